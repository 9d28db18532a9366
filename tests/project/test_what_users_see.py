"""Objects that users print, and arguments of another kind than expected."""

import jax
import jax.numpy as jnp
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

MOST_LINES, MOST_LETTERS = 5, 1000


@pytest.fixture(scope="module")
def flow():
    return sj.load("fluid", overrides=["grid.shape=[16,16]", "time.end=0.02", "output=none"])


@pytest.fixture(scope="module")
def ended(flow):
    return sj.simulate(flow.model, flow.integrator, flow.params, flow.state, flow.schedule, frames=1)


def test_a_public_object_is_printed_in_five_lines(flow, ended, tmp_path):
    liquid = sj.load("lennard_jones")
    run = sj.load("fluid", overrides=["grid.shape=[16,16]", "time.end=0.02", "output=none", f"output.root={tmp_path}"])
    printed = [
        flow,
        *(flow.model, flow.params, flow.state, flow.schedule, flow.model.domain, flow.model.domain.grid),
        *(ended, ended.clock, flow.differentiable(), run.run()),
        *(liquid, liquid.model, liquid.params, liquid.state),
        sj.NoSlipWall((1.0, 0.0)),
        sj.Grid((4, 3), stretch={"y": sj.Lines([0.0, 0.1, 0.3, 1.0])}),
    ]
    for one in printed:
        text = repr(one)
        assert len(text.splitlines()) <= MOST_LINES and len(text) <= MOST_LETTERS, text
        assert " object at 0x" not in text, text


def test_grids_that_differ_are_printed_differently():
    """Their texts stand in the keys of kept programs."""
    box = {"lower": (0.0, 0.0), "upper": (1.0, 1.0)}
    stretched = [{"y": sj.Lines([0.0, inner, 1.0])} for inner in (0.4, 0.5)]
    grids = [sj.Grid((2, 2)), sj.Grid((2, 2), axisymmetric=True), sj.Grid((2, 2), upper=(1.0, 2.0))]
    grids += [sj.Grid((2, 2), **box, stretch=stretch) for stretch in stretched]
    assert len({repr(grid) for grid in grids}) == len(grids)


def simulated(flow, **changes):
    given = {"model": flow.model, "integrator": flow.integrator, "params": flow.params, "state": flow.state}
    return sj.simulate(*{**given, **changes}.values(), flow.schedule, frames=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda flow: sj.Grid(16), "Grid.shape=16: expected a number of cells for each axis; write Grid((16, 16))."),
        (lambda flow: sj.Grid("16"), "Grid.shape='16': expected a number of cells for each axis"),
        (lambda flow: sj.Grid((16, 8.5)), "Grid.shape[1]=8.5: expected a whole number of cells, such as 16."),
        (lambda flow: sj.Grid((16, True)), "Grid.shape[1]=True: expected a whole number"),
        (
            lambda flow: sj.Grid((16, 16), upper=2.0),
            "Grid.upper=2.0: expected a number for each axis; write upper=(1.0, 1.0).",
        ),
        (lambda flow: sj.Grid((16,), lower=["a"]), "Grid.lower=['a']: expected a number for each axis"),
        (lambda flow: sj.Domain(16), "Domain.grid=16: expected a Grid; write Domain(Grid((16, 16)))."),
        (lambda flow: sj.Domain(sj.Grid((16,)), ["x"]), "Domain.split=('x',): expected ('x', 2), mesh axis and count"),
        (
            lambda flow: simulated(flow, integrator="rk4"),
            "integrator='rk4': expected an Integrator, as Incompressible needs a scheme; write INTEGRATORS['rk4'].",
        ),
        (lambda flow: simulated(flow, integrator=None), "integrator=None: expected an Integrator"),
        (
            lambda flow: simulated(flow, state=jnp.zeros((16, 16))),
            "state=an array of shape (16, 16): expected Incompressible.State; write Incompressible.State(...).",
        ),
        (
            lambda flow: simulated(flow, state=jax.tree.map(lambda u: u[:8], flow.state)),
            "state.velocity.0 has the shape (8, 16): expected (16, 16), the cells of the grid.",
        ),
        (
            lambda flow: simulated(flow, params={"viscosity": 0.1}),
            "params={'viscosity': 0.1}: expected Incompressible.Params; write Incompressible.Params(...).",
        ),
        (
            lambda flow: flow.differentiable()(1e-3),
            "values=0.001: expected a mapping by name, such as {'viscosity': ...}.",
        ),
        (
            lambda flow: flow.differentiable()({"viscosity": "small"}),
            "values['viscosity']='small': expected a number.",
        ),
        (
            lambda flow: sj.Compressible(flow.model.domain, [(sj.PeriodicSide(), sj.PeriodicSide())] * 2, "weno5"),
            "Compressible.scheme='weno5': expected a GasScheme; write GasScheme('weno5').",
        ),
        (
            lambda flow: sj.Incompressible(
                flow.model.domain, [(sj.PeriodicSide(), sj.PeriodicSide())] * 2, forces=lambda t, x, params: x[0]
            ),
            "expected a function f(t, coordinates, params) or None for each of 2 axes; write [force, None].",
        ),
        (lambda flow: simulated(flow, model=None), "model=None: expected a model; write"),
        (
            lambda flow: simulated(flow, state=jax.tree.map(lambda u: u.astype(int), flow.state)),
            "alone: expected real or complex numbers; write jnp.asarray(..., float).",
        ),
        (
            lambda flow: sj.simulate(flow.model, flow.integrator, flow.params, flow.state, 0.1, frames=1),
            "schedule=0.1: expected a Schedule; write Schedule(interval, dt=dt).",
        ),
        (
            lambda flow: sj.simulate(flow.model, flow.integrator, flow.params, flow.state, flow.schedule, frames="3"),
            "frames='3': expected a whole number of at least 1, such as 10.",
        ),
        (lambda flow: sj.Schedule("0.1", dt=0.1), "Schedule.interval='0.1': expected a finite number above zero."),
        (lambda flow: sj.Schedule(steps=3, dt="0.1"), "Schedule.dt='0.1': expected a finite number above zero."),
        (lambda flow: sj.Schedule(steps=2.5, dt=0.1), "Schedule.steps=2.5: expected a whole number of at least 1"),
        (lambda flow: sj.Binomial("3"), "Binomial: states='3': expected a whole number of at least 1"),
        (lambda flow: sj.Incompressible(16, []), "Incompressible: domain=16: expected a Domain; write Domain(Grid("),
        (lambda flow: sj.Maxwell(None, []), "Maxwell: domain=None: expected a Domain"),
        (lambda flow: sj.Burgers(None, []), "Burgers: domain=None: expected a Domain"),
        (
            lambda flow: sj.Burgers(flow.model.domain, "periodic"),
            "Burgers: sides='periodic': expected a pair of sides for each axis; write [(lower, upper), ...]",
        ),
        (lambda flow: sj.center_layout(2), "center_layout: boundaries=2: expected a pair of boundaries for each axis"),
        (lambda flow: sj.make_mesh(2), "make_mesh: sizes=2: expected devices by mesh axis, such as {'x': 2, 'y': 1}."),
        (
            lambda flow: sj.Lines("faces.csv"),
            "Lines.faces='faces.csv': expected a list of at least two finite numbers.",
        ),
        (lambda flow: sj.load("fluid", "time.end=2"), "load: overrides='time.end=2': expected a list of lines; write"),
        (lambda flow: sj.load("fluid", [1]), "load: overrides=[1]: expected a list of lines"),
        (lambda flow: sj.Simulation("fluid"), "Simulation: config='fluid': expected a Config; write sj.load(NAME)"),
        (lambda flow: sj.InverseProblem("fluid"), "expected a Simulation, or a list of them; write sj.load(NAME)."),
        (lambda flow: sj.Search("fluid"), "Search: problem='fluid': expected an InverseProblem, or a Simulation"),
        (
            lambda flow: flow.differentiable(fields="initial.velocity"),
            "fields='initial.velocity': expected a list of names; write fields=['NAME'].",
        ),
        (lambda flow: flow.differentiable(variables=3), "variables=3: expected a list of names"),
        (lambda flow: sj.open_run(None), "open_run: folder=None: expected a folder's path, such as result.folder."),
        (lambda flow: sj.check_files(3), "check_files: folder=3: expected a folder's path"),
        (lambda flow: sj.goodput(None), "goodput=None: expected a folder's path"),
        (lambda flow: sj.status_of(None), "status_of: clock=None: expected the Clock of a run; write run.clock."),
        (lambda flow: sj.raise_on_fault(0), "raise_on_fault: clock=0: expected the Clock of a run"),
    ],
)
def test_an_argument_of_another_kind_is_refused_in_a_sentence(flow, call, said):
    with pytest.raises(ConfigurationError) as error:
        call(flow)
    assert said in str(error.value)
