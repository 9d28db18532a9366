"""Arrays of other libraries by DLPack: taken without a copy, and given away in the same way."""

import jax
import numpy as np
import pytest

import simjax as sj
from simjax import arguments
from simjax.errors import ConfigurationError


class Foreign:
    """An array that offers DLPack and nothing else."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Kept(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("it needs a gradient,\nuse detach()")


SPOT = np.random.default_rng(0).random((16, 16))
DYE = {"grid": {"shape": [16, 16]}, "time": {"end": 0.1, "output_every": 0.1}, "precision": "float64"}


def dye(wrapped, **sections):
    start = {"concentration": wrapped(SPOT)}
    physics = {"diffusivity": wrapped(np.asarray(0.01)), "velocity": wrapped(np.asarray([0.5, 0.0]))}
    return sj.configure(sj.AdvectionDiffusion, physics=physics, initial=start, **DYE, **sections)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_nothing_is_copied_on_the_way_in():
    taken = arguments.taken_over(Foreign(SPOT))
    assert isinstance(taken, np.ndarray) and np.shares_memory(taken, SPOT)


def test_arrays_of_accelerators_become_those_of_jax(monkeypatch):
    monkeypatch.setattr(arguments, "HOST", 2)
    taken = arguments.taken_over(Foreign(SPOT))
    assert isinstance(taken, jax.Array)
    np.testing.assert_array_equal(taken, SPOT)


def test_configurations_of_foreign_arrays_are_those_of_numpy():
    assert dye(Foreign).config.write() == dye(lambda array: array).config.write()


def test_vectors_are_lists_of_foreign_arrays():
    def flow(wrapped):
        speed = [wrapped(SPOT), wrapped(0 * SPOT)]
        return sj.configure(sj.Incompressible, physics={"viscosity": 0.01}, initial={"velocity": speed}, **DYE)

    assert flow(Foreign).config.write() == flow(lambda array: array).config.write()


def test_a_library_that_keeps_its_array_is_told():
    with pytest.raises(ConfigurationError, match=r"Kept cannot be taken over by DLPack \(it needs a gradient, use det"):
        dye(Kept)


@pytest.mark.slow
def test_runs_and_their_gradients_take_foreign_arrays_and_give_them_away():
    run = dye(Foreign).differentiable(fields=["initial.concentration"], variables=["concentration"])
    start = 2 * SPOT
    ours, theirs = (
        run({"diffusivity": u(np.asarray(0.02))}, {"initial.concentration": u(start)}).observed
        for u in (np.asarray, Foreign)
    )
    np.testing.assert_array_equal(theirs["concentration"], ours["concentration"])
    given = np.from_dlpack(theirs["concentration"])
    assert np.shares_memory(given, np.from_dlpack(theirs["concentration"]))
    np.testing.assert_array_equal(given, np.asarray(theirs["concentration"]))
    np.testing.assert_allclose(given[0], start, rtol=1e-15)  # the start as it was given, to a rounding
    end, back = jax.vjp(lambda u: run(fields={"initial.concentration": u}).observed["concentration"][-1], start)
    (slope,) = back(arguments.taken_over(Foreign(np.ones_like(end))))
    # The total is conserved: its derivative is one everywhere, to the rounding of some ten steps.
    np.testing.assert_allclose(slope, np.ones_like(start), rtol=1e-12)


def test_simulate_takes_foreign_states_and_parameters():
    line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)

    def end(wrapped):
        params = line.Params(wrapped(np.asarray(0.01)), wrapped(np.ones(2)))
        return sj.integrate(line, sj.INTEGRATORS["euler"], params, line.State(wrapped(SPOT)), dt=0.01, steps=2)

    np.testing.assert_array_equal(end(Foreign).concentration, end(np.asarray).concentration)


def test_measurements_may_be_foreign_arrays():
    measured = np.stack([SPOT])
    seen = {
        "output": "fields",
        "of": "concentration",
        "data": Foreign(measured),
        "deviation": Foreign(0.1 + SPOT),
        "times": [0.1],
    }
    problem = sj.InverseProblem(
        dye(Foreign),
        unknowns={"physics.diffusivity": {"guess": 0.02, "positive": True}},
        observations=[seen],
        start={"physics.diffusivity": Foreign(np.asarray(0.03))},
    )
    (instrument,) = problem.instruments
    np.testing.assert_array_equal(instrument.measured, measured)
    np.testing.assert_array_equal(instrument.standard_deviation(), 0.1 + measured)
    again = problem.with_measurements({instrument.name: Foreign(2 * measured)}).instruments[0]
    np.testing.assert_array_equal(again.measured, 2 * measured)
