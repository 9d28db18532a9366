"""Objects that users print, and arguments of another kind than expected."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    light = sj.load("double_slit", ["grid.shape=[32,32]"])
    liquid = sj.load("lennard_jones")
    dye = sj.load("dye", ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.1", "time.dt=0.01"])
    cells = sj.Cells(sj.Domain(sj.Grid((4, 4))), 16, (True, True))
    network, places = sj.LocalNetwork(1, 2, [8, 8], key=jax.random.key(0)), np.ones((300, 2))
    learner = sj.Learner(network, optax.adam(0.1))
    problem = sj.InverseProblem(
        dye,
        unknowns={"physics.diffusivity": {"guess": 0.02, "positive": True}},
        observations=[{"output": "fields", "of": "concentration", "deviation": 0.01}],
    )
    run = sj.load("fluid", overrides=["grid.shape=[16,16]", "time.end=0.02", "output=none", f"output.root={tmp_path}"])
    printed = [
        flow,
        *(flow.model, flow.params, flow.state, flow.schedule, flow.model.domain, flow.model.domain.grid),
        *(ended, ended.clock, flow.differentiable(), run.run()),
        *(liquid, liquid.model, liquid.params, liquid.state),
        sj.NoSlipWall((1.0, 0.0)),
        sj.Grid((4, 3), stretch={"y": sj.Lines([0.0, 0.1, 0.3, 1.0])}),
        sj.Grid((4, 499), stretch={"y": sj.Lines(np.linspace(0, 1, 500))}),
        *(sj.WeaklyCompressibleSPH.Params(*[jnp.ones(())] * 6), sj.Compressible.Params(jnp.asarray(1.4))),
        *(light.params, light.state),
        *(cells, sj.ParticleMesh(cells), sj.NeighborPolicy(1.0, 0.3), sj.body_params(2, jnp.asarray(1.0))),
        *(sj.Shots(places[:4, None], np.ones((4, 1, 9)), np.arange(9.0), places), sj.nearest_points(places)),
        *(network, sj.Closure(network), learner, learner.begin()),
        *(problem, problem.instruments[0], sj.Search(problem), sj.rays_around((0.5, 0.5), 200)),
        sj.RolloutLoss(dye, unroll=1),
        *sj.INTEGRATORS.values(),
        *(sj.stochastic("shark"), sj.Stored(sj.INTEGRATORS["rk4"], "bfloat16")),
    ]
    for one in printed:
        text = repr(one)
        assert len(text.splitlines()) <= MOST_LINES and len(text) <= MOST_LETTERS, text
        assert " object at 0x" not in text, text
    for name in ("tsit5", "dopri8", "kencarp4", "kvaerno5"):  # long, as the numbers of a scheme are in programs' keys
        assert len(repr(sj.error_controlled(name)).splitlines()) == 1


def test_grids_that_differ_are_printed_differently():
    """Their texts stand in the keys of kept programs."""
    box = {"lower": (0.0, 0.0), "upper": (1.0, 1.0)}
    stretched = [{"y": sj.Lines([0.0, inner, 1.0])} for inner in (0.4, 0.5)]
    faces = np.linspace(0, 1, 500)
    long = [sj.Lines(faces), sj.Lines(np.where(faces == faces[250], faces + 1e-9, faces))]  # told apart by a checksum
    assert repr(long[0]) != repr(long[1])
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


PERIODIC = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2


def flow_with(**options):
    sides = options.pop("sides", PERIODIC)
    model = sj.Incompressible(sj.Domain(sj.Grid((8, 8))), sides, **options)
    params = model.Params(jnp.asarray(0.01), jnp.asarray(0.0))
    return sj.integrate(
        model, sj.INTEGRATORS["kutta3"], params, model.State((jnp.zeros((8, 8)),) * 2), dt=0.01, steps=1
    )


def dye_with(side=None, **params):
    model = sj.AdvectionDiffusion(sj.Domain(sj.Grid((8, 8))), [PERIODIC[0], (side, side)] if side else PERIODIC)
    given = {"diffusivity": jnp.asarray(0.01), "velocity": jnp.zeros(2)} | params
    start = model.State(jnp.zeros((8, 8)))
    return sj.integrate(model, sj.INTEGRATORS["rk4"], model.Params(**given), start, dt=0.01, steps=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: flow_with(forces=(lambda t: t, None)), "test_what_users_see.py: expected a function force(t, coord"),
        (lambda: flow_with(forces=(lambda t, x, y: (x, y), None)), "expected a number or an array."),
        (lambda: flow_with(forces=(lambda t, x, p: jnp.ones(3), None)), "an array that broadcasts to (8, 8)."),
        (lambda: dye_with(sj.ScalarSide(sj.Dirichlet(lambda t: t))), "expected a function value(t, *coordinates)."),
        (lambda: dye_with(sj.ScalarSide(sj.Dirichlet(jnp.ones(7)))), "a value on a side is an array of shape (7,)"),
        (lambda: sj.Dirichlet("1"), "Dirichlet.value='1': expected a number, a scalar array or a function"),
        (lambda: sj.Neumann(None), "Neumann.slope=None: expected a number"),
        (lambda: sj.Robin("1"), "Robin.transfer='1': expected a number"),
        (lambda: sj.ScalarSide(1.0), "ScalarSide.boundary=1.0: expected a Boundary; write ScalarSide(Dirichlet(1.0))."),
        (lambda: flow_with(sides=[(sj.Inflow(1.0), sj.Outflow()), PERIODIC[1]]), "write velocity=(1.0, 0.0)."),
        (lambda: flow_with(solid=sj.Solid(lambda x, y: x)), "expected a function (t, x, y)."),
        (lambda: flow_with(solid=0.1), "Incompressible.solid=0.1: expected a Solid; write Solid("),
        (lambda: dye_with(diffusivity="0.1"), "AdvectionDiffusion.Params.diffusivity='0.1': expected a number."),
        (lambda: dye_with(diffusivity=None), "params.diffusivity=None: expected a number."),
        (lambda: dye_with(diffusivity=jnp.ones(3)), "params.diffusivity has the shape (3,): expected a number, or (8,"),
        (lambda: sj.AllenCahn(None), "AllenCahn: domain=None: expected a Domain"),
        (lambda: sj.Vorticity(sj.Grid((8, 8))), "Vorticity: domain=Grid((8, 8), "),
        (lambda: sj.AllenCahn(sj.Domain(sj.Grid((8,))), forces=[None]), "AllenCahn: forces=[None]: expected functions"),
        (lambda: sj.ParticleMesh(16), "ParticleMesh: cells=16: expected cells of particles; write Cells(domain"),
        (lambda: sj.ElectrostaticPlasma(None), "ElectrostaticPlasma: mesh=None: expected a mesh; write ParticleMesh("),
        (lambda: sj.NeighborPolicy("2", 1), "NeighborPolicy.cutoff='2': expected a number of at least 0"),
        (lambda: sj.Grid((8, 8), stretch="y"), "Grid.stretch='y': expected Lines by axis; write stretch={'x'"),
        (lambda: sj.Grid((8, 8), stretch={"q": None}), "Grid.stretch: 'q': expected one of x, y."),
        (lambda: sj.decompose(16, None), "decompose: grid=16: expected a Grid"),
        (
            lambda: sj.distribute(jnp.sin, 2, in_specs=(), out_specs=()),
            "distribute: mesh=2: expected a mesh of devices",
        ),
        (lambda: sj.nearest_points("here"), "nearest_points.places='here': expected one row of coordinates per point"),
        (lambda: sj.rays_around((0.5, 0.5), "4"), "rays_around: count='4': expected a whole number"),
        (
            lambda: sj.Stored("rk4", "bfloat16"),
            "Stored: scheme='rk4': expected an Integrator; write INTEGRATORS['rk4']",
        ),
        (lambda: sj.RolloutLoss("fluid", unroll=1), "RolloutLoss: simulation='fluid': expected a Simulation; write"),
        (lambda: sj.Schedule(0.1, dt=0.1, start="0"), "Schedule.start='0': expected a number."),
    ],
)
def test_a_function_or_a_number_of_another_kind_is_refused_in_a_sentence(call, said):
    with pytest.raises(ConfigurationError) as refused:
        call()
    assert said in str(refused.value) and "\n" not in str(refused.value), refused.value


def test_a_mistake_within_a_function_of_a_user_stays_what_it_is():
    """Its own traceback leads to the line."""
    with pytest.raises(TypeError, match="can only concatenate"):
        flow_with(forces=(lambda t, x, p: "a" + 1, None))
