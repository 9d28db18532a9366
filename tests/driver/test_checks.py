"""Checks of a finished run: each passes at its bound and fails just beyond it, for every member."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from simjax.config import load_config, validate
from simjax.driver.checks import check_run
from simjax.driver.compiled_fields import CompiledFieldRun
from simjax.status import NON_FINITE, OK

FRAMES, STEPS, CELLS, ORDER = 5, 400, 64, 3
ROUNDING = np.finfo(np.float64).eps
FLOW = {"model": "incompressible", "physics": {"viscosity": 0.0}, "grid": {"shape": [8, 8]}}
HEAT = {"model": "advection_diffusion", "physics": {"diffusivity": 0.1, "velocity": [0.0, 0.0]},
        "grid": {"shape": [8, 8]}}  # fmt: skip


class Compiled(CompiledFieldRun):
    """What checks ask of compiled programs, with nothing compiled."""

    def __init__(self, config):
        self.config, self.dtype, self.size = (
            config,
            np.dtype(np.float64 if config.storage is None else np.float32),
            CELLS,
        )
        self.integrator = SimpleNamespace(courant_limit=1.7, order=ORDER)


def checked(model, statuses=(OK,), steps=STEPS, members=None, **series):
    """The checks, by name, of a run whose diagnostics were `series`, `(frames,)` or `(members, frames)`."""
    config = validate({"precision": "float64", **model, "time": {"end": 1.0, "output_every": 0.25}})
    dims = ("time",) if members is None else ("member", "time")
    coords = {"time": np.linspace(0, 1, FRAMES), "step": ("time", np.linspace(0, steps, FRAMES).astype(int))}
    given = {}
    ones = {"kinetic_energy", "mean_concentration", "minimum_concentration", "maximum_concentration"}
    for name in {*ones, "enstrophy", "max_divergence", "max_divergence_rounding", *series}:
        values = series.get(name, np.full(FRAMES, float(name in ones)))
        given[name] = (dims, np.broadcast_to(values, ((members,) if members else ()) + (FRAMES,)))
    dataset = xr.Dataset(given, coords)
    return {check.name: check for check in check_run(config, Compiled(config), dataset, np.asarray(statuses))}


def last(value, before=1.0):
    """A series that is `before` but for its last frame."""
    return np.asarray([before] * (FRAMES - 1) + [value])


def test_a_member_that_was_lost_is_counted():
    assert checked(HEAT)["Fields stayed finite"].passed
    lost = checked(HEAT, (OK, NON_FINITE, OK), members=3)["Fields stayed finite"]
    assert (lost.value, lost.passed) == ("2 of 3 members", False)
    assert not checked(HEAT, (NON_FINITE,))["Fields stayed finite"].passed


@pytest.mark.parametrize("members", [None, 3])
def test_what_is_conserved_may_change_by_the_roundings_of_its_steps(members):
    """Ten of them a step, added up as a random walk: 10 eps sqrt(steps) of the quantity's scale."""
    bound = 10 * ROUNDING * STEPS**0.5
    for share, passed in ((0.9, True), (1.2, False)):  # of 90 roundings each is 1 % of the bound
        for sign in (1, -1):
            series = np.ones((members or 1, FRAMES))
            series[-1, -1] += sign * share * bound
            found = checked(
                HEAT, (OK,) * (members or 1), members=members,
                mean_concentration=series if members else series[0], maximum_concentration=np.ones(FRAMES),
            )["Mean concentration is conserved"]  # fmt: skip
            assert found.passed == passed, (share, sign)


def test_what_is_conserved_is_measured_by_its_scale():
    name = "Mean concentration is conserved"
    found = {"mean_concentration": last(1e-14, 0.0), "maximum_concentration": np.ones(FRAMES)}
    assert checked(HEAT, **found)[name].passed
    found |= {"maximum_concentration": np.full(FRAMES, 1e-3), "minimum_concentration": np.full(FRAMES, -1e-3)}
    assert not checked(HEAT, **found)[name].passed
    assert checked(HEAT, **{**found, "minimum_concentration": np.full(FRAMES, -1.0)})[name].passed  # all below zero


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_means_in_16_bits_may_change_by_random_roundings_of_all_cells(dtype):
    """Six standard deviations: half of the spacing, in steps x cells that are independent."""
    spacing = {"bfloat16": 2.0**-7, "float16": 2.0**-10}[dtype]
    bound = 6 * spacing / 2 * (STEPS / CELLS) ** 0.5
    for share, passed in ((0.98, True), (1.02, False)):
        found = checked(
            {**HEAT, "precision": "float32", "storage": {"dtype": dtype}}, mean_concentration=last(1 + share * bound)
        )
        assert found["Mean concentration is conserved"].passed == passed


def test_what_falls_may_rise_by_roundings_of_its_sum_alone():
    name = "Kinetic energy never rises"
    assert checked(FLOW, kinetic_energy=np.linspace(1, 0.5, FRAMES))[name].passed
    for roundings, passed in ((45, True), (60, False)):
        rising = last(1.0 + roundings * ROUNDING)
        assert checked(FLOW, kinetic_energy=rising)[name].passed == passed
    # Of motion with w dt = 0.01 at a Courant number of 0.5, third order: 2 / 4! (w dt)^2 C^2 in each of 100 steps.
    motion = {"enstrophy": np.full(FRAMES, 0.5 * (0.01 * STEPS) ** 2), "courant": np.full(FRAMES, 0.5)}
    for share, passed in ((0.98, True), (1.02, False)):
        rising = last(1.0 + share * STEPS / (FRAMES - 1) * 2 / 24 * 0.01**2 * 0.5**2)
        assert checked(FLOW, kinetic_energy=rising, **motion)[name].passed == passed
    # A rise in the middle is not made good by what falls later.
    assert not checked(FLOW, kinetic_energy=np.asarray([1.0, 0.8, 0.9, 0.5, 0.4]))[name].passed


def test_what_would_vanish_without_rounding_may_be_as_large_as_the_model_says():
    bound = np.asarray([1e-9, 1e-9, 3e-9, 1e-9, 1e-9])  # forces may have been larger before
    for share, passed in ((0.99, True), (1.01, False)):
        found = checked(FLOW, max_divergence=last(share * 3e-9, 0.0), max_divergence_rounding=bound)
        assert found["Max divergence"].passed == passed
    # Each member by its own bound.
    bounds, errors = np.asarray([[1e-9], [1e-3]]), np.asarray([[2e-9], [1e-5]])
    given = {"max_divergence": np.tile(errors, FRAMES), "max_divergence_rounding": np.tile(bounds, FRAMES)}
    assert not checked(FLOW, (OK, OK), members=2, **given)["Max divergence"].passed


def test_a_courant_number_beyond_that_of_the_scheme_fails():
    for largest, passed in ((1.7, True), (1.71, False)):
        assert checked(HEAT, courant=last(largest, 0.5))["Largest Courant number"].passed == passed


def test_an_error_that_is_not_finite_fails():
    exact = {**HEAT, "exact": {"concentration": "0"}}
    for error, passed in ((1e3, True), (np.inf, False), (np.nan, False)):
        found = checked(exact, error_concentration=last(error, 0.1))
        assert found["Relative error of concentration at the end"].passed == passed


def of_particles(count=10, **series):
    """The checks, by name, of an isolated liquid, whose energy and momentum stay as they are."""
    config = load_config("lennard_jones", ["precision=float64"])
    numbers = {"particles": count, "kinetic_energy": 2.0, "energy": 1.0, "momentum_x": 0.0, "momentum_y": 0.0}
    coords = {"time": np.linspace(0, 1, FRAMES), "step": ("time", np.linspace(0, STEPS, FRAMES).astype(int))}
    given = {name: ("time", np.full(FRAMES, value, float)) for name, value in numbers.items()}
    given |= {name: ("time", np.asarray(values, float)) for name, values in series.items()}
    dataset = xr.Dataset({**given, "mass": ("particle", np.full(count, 0.9))}, coords)
    return {check.name: check for check in check_run(config, Compiled(config), dataset, np.asarray([OK]))}


def test_a_lost_particle_fails():
    assert of_particles()["Particles"].passed
    assert not of_particles(particles=[10, 10, 9, 10, 10])["Particles"].passed


def test_energy_may_drift_by_a_hundredth_of_the_kinetic_energy():
    """A line through all frames drifts; what swings about it does not."""
    time = np.linspace(0, 1, FRAMES)
    for share, passed in ((0.0099, True), (0.0101, False), (-0.0099, True), (-0.0101, False)):
        assert of_particles(energy=1 + 2 * share * time)["Energy drift"].passed == passed
    assert of_particles(energy=1 + np.asarray([0.5, -0.5, 0.0, -0.5, 0.5]))["Energy drift"].passed


@pytest.mark.slow
def test_momentum_may_change_by_the_roundings_of_its_steps():
    """Of all particles without their signs: sqrt(2 x 2 x 9), times 10 eps sqrt(steps)."""
    bound = 6 * 10 * ROUNDING * STEPS**0.5
    for share, passed in ((0.99, True), (1.01, False)):
        for name in ("momentum_x", "momentum_y"):
            assert of_particles(**{name: last(-share * bound, 0.0)})["Momentum is conserved"].passed == passed
