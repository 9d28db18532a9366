"""What a model changes of a start is told, and refused above a bound; members, members in groups, and particles."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.taken_start import TOLD, merged
from simjax.errors import ConfigurationError
from simjax.models.capacities import Bounds
from simjax.models.particles_of_file import count_outside

QUIET = {"report": False, "animation": False}
TIME = {"end": 0.02, "output_every": 0.01, "dt": 0.01}
# On faces the first is free of divergence to the last digit, the second a gradient: of equal norms and orthogonal.
FLOW = {
    "grid": {"shape": [8, 16]},
    "physics": {"viscosity": 0.01},
    "parameters": {"part": 0.75},
    "initial": {"velocity": ["sin(2*pi*y) + part*sin(2*pi*x)", 0]},
    "boundaries": {"x": "periodic", "y": "periodic"},
    "precision": "float64",
    "time": TIME,
}


def flow(**others):
    return sj.configure("incompressible", **{**FLOW, **others})


def started(simulation):
    programs = compiled_run(simulation.config)
    programs.start()
    return programs


def test_the_share_that_a_projection_takes_is_told_and_bounded():
    programs = started(flow())
    assert programs.start_changes == {"initial.velocity": pytest.approx(0.6, rel=1e-12)}  # 3 / 5, to rounding
    (sentence,) = programs.told_start()
    assert sentence.startswith("initial.velocity: 60 % (L2 norm) of the start was changed by the projection")
    assert started(flow(limits={"start_change": 0.6001})).told_start() == [sentence]
    with pytest.raises(ConfigurationError) as refused:
        started(flow(limits={"start_change": 0.5999})).told_start()
    assert "60 % (L2 norm) of it would be changed by the projection" in str(refused.value)
    assert "expected at most limits.start_change=0.5999, so write" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("part, told", [(0.0, False), (0.9 * TOLD, False), (1.1 * TOLD, True)])
def test_what_is_less_than_told_is_left_out(part, told):
    assert bool(started(flow(parameters={"part": part})).start_changes) == told


def test_cells_count_by_their_volume():
    """A pressure 1/2 + x raised to one: integrals of squares are 1/24 of what was changed, 31/24 of the raised one."""
    simulation = sj.configure(
        "compressible",
        grid={"shape": [64], "stretch": {"x": {"formula": "s**2*(3 - s)/2"}}},
        physics={"pressure_floor": 1.0},
        initial={"density": 1.0, "velocity": [0.3], "pressure": "0.5 + x"},
        boundaries={"x": "outflow"},
        precision="float64",
        time=TIME,
    )
    programs = started(simulation)
    # The midpoint rule on cells of up to 1/43 is wrong by squares of that.
    assert programs.start_changes == {"initial.pressure": pytest.approx(31**-0.5, rel=2e-3)}
    assert programs.told_start()[0].endswith("of the start was changed by the floors of density and pressure.")


class Raised(sj.CenteredModel):
    """A field of at least one: du/dt = 0."""

    fields = ("u",)

    def rhs(self, t, state, params):
        return {"u": 0 * state["u"]}

    def stable_dt(self, state, params):
        return jnp.ones(())

    def constrain(self, t, dt, state, params):
        return {"u": jnp.maximum(state["u"], 1)}


def test_a_field_of_nothing_is_all_changed_where_a_model_puts_something():
    given = {"grid": {"shape": [8]}, "initial": {"u": 0}, "precision": "float64", "time": TIME}
    programs = started(sj.configure(Raised, **given))
    assert programs.start_changes == {"initial.u": 1.0}
    (sentence,) = programs.told_start()
    assert sentence == "initial.u: 100 % (L2 norm) of the start was changed by what the model imposes."


@pytest.mark.parametrize("mesh", [{}, pytest.param({"x": 2, "y": 4}, marks=pytest.mark.slow)], ids=["one", "2x4"])
def test_waves_that_dealiasing_cuts(mesh):
    """Two waves along x, of which half of the wavenumbers, |k| < 8, have the first alone."""
    simulation = sj.configure(
        "allen_cahn",
        grid={"shape": [32, 32]},
        initial={"u": "cos(2*pi*x) + 0.75*cos(2*pi*8*x)"},
        precision="float64",
        mesh=mesh,
        time=TIME,
    )
    programs = started(simulation)
    assert programs.start_changes == {"initial.u": pytest.approx(0.6, rel=1e-12)}  # 3 / 5, to rounding
    assert programs.told_start()[0].endswith("by dealiasing, which keeps 1/2 of the wavenumbers.")


def test_the_largest_of_several():
    assert merged([{"a": 0.1, "b": 0.3}, {}, {"a": 0.2}]) == {"a": 0.2, "b": 0.3}


def test_particles_outside_of_the_box_are_counted():
    box = Bounds((0.0, 0.0), (4.0, 5.0), (True, True))
    # On the upper side is outside, on the lower one inside.
    assert count_outside(box, np.array([[0.0, 4.0, -0.1, 3.9, 9.0], [0.0, 1.0, 1.0, 4.9, 7.0]])) == 3


MEMBERS = {"size": 3, "vary": {"parameters.part": {"values": [0.0, 0.75, 0.1]}}}
CHANGED = {"initial.velocity": pytest.approx(0.6, rel=1e-12)}  # the largest of all members


def told_in(result):
    assert json.loads(result.ds.attrs["simjax_start_changes"]) == CHANGED
    assert result.start_changes == CHANGED


@pytest.mark.slow
def test_a_run_tells_what_was_changed_and_so_does_one_that_goes_on(tmp_path):
    output = {**QUIET, "root": str(tmp_path)}
    result = flow(output=output, ensemble=MEMBERS, time={**TIME, "end": 0.01}).run()
    told_in(result)
    told_in(flow(output=output, ensemble=MEMBERS).run(resume=result.folder))
    log = (result.folder / "run.log").read_text()
    assert log.count("initial.velocity: 60 % (L2 norm) of the start was changed") == 1


@pytest.mark.slow
def test_groups_of_members_tell_the_largest_of_all(tmp_path):
    told_in(flow(output={**QUIET, "root": str(tmp_path)}, ensemble={**MEMBERS, "group": 1}).run())


@pytest.mark.slow
def test_nothing_is_written_of_a_start_that_is_refused(tmp_path):
    output = {**QUIET, "root": str(tmp_path)}
    with pytest.raises(ConfigurationError, match="limits.start_change=0.5"):
        flow(output=output, limits={"start_change": 0.5}).run()
    assert not any(tmp_path.iterdir())
    kept = flow(output=output, parameters={"part": 0.0}, limits={"start_change": 0.5}).run()
    assert kept.start_changes == {} and "simjax_start_changes" not in kept.ds.attrs


@pytest.mark.slow
def test_particles_that_are_wrapped_are_told(tmp_path):
    np.savez(tmp_path / "a.npz", position=np.array([[0.5, 0.5], [2.5, 2.0], [-0.5, 3.5], [1.5, 7.0]]))
    overrides = [
        "box.upper=[4,5]",
        "particles.placement=file",
        "particles.count=null",
        f"particles.file={tmp_path / 'a.npz'}",
        "physics.cutoff=1",
        "neighbor_list.skin=0.5",
        "time={end: 0.01, dt: 0.005, output_every: 0.01}",
        "output.report=false",
        "output.animation=false",
        f"output.root={tmp_path}",
    ]
    result = sj.load("lennard_jones", overrides).run()
    assert result.start_changes == {"particles.position": 2}
    log = (result.folder / "run.log").read_text()
    assert "particles.position: 2 of 4 particles lay outside the box and were wrapped into it." in log
