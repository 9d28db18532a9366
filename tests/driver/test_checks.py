"""Checks of a finished run: each passes at its bound and fails just beyond it, for every member."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import simjax as sj
from simjax.config import load_config, validate
from simjax.driver.output.run_checks import check_run
from simjax.driver.programs.field_run import CompiledFieldRun
from simjax.driver.programs.particle_run import CompiledParticleRun
from simjax.io.run_numbers import RunNumbers
from simjax.models.flow.step.budgets import falling_energy
from simjax.models.particle_model import family_of
from simjax.status import NON_FINITE, OK

FRAMES, STEPS, CELLS, ORDER = 5, 400, 64, 3
ROUNDING = np.finfo(np.float64).eps
FLOW = {"model": "incompressible", "physics": {"viscosity": 0.0}, "grid": {"shape": [8, 8]}}
HEAT = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 0.1, "velocity": [0.0, 0.0]},
    "grid": {"shape": [8, 8]},
}


def compiled(kind, config):
    """What checks ask of compiled programs, with nothing compiled."""
    programs = object.__new__(kind)
    programs.config, programs.size, programs.parameters = config, CELLS, {}
    programs.measures = {} if kind is CompiledFieldRun else family_of(config).measures
    programs.dtype = np.dtype(np.float64 if config.storage is None else np.float32)
    programs.integrator = SimpleNamespace(courant_limit=1.7, order=ORDER)
    return programs


def checked(model, statuses=(OK,), steps=STEPS, members=None, **series):
    """The checks, by name, of a run whose diagnostics were `series`, `(frames,)` or `(members, frames)`."""
    config = validate({"precision": "float64", **model, "time": {"end": 1.0, "output_every": 0.25}})
    given = {}
    ones = {"kinetic_energy", "mean_concentration", "minimum_concentration", "maximum_concentration"}
    for name in {*ones, "enstrophy", "max_divergence", "max_divergence_rounding", *series}:
        values = series.get(name, np.full(FRAMES, float(name in ones)))
        given[name] = np.broadcast_to(values, (members or 1, FRAMES))
    numbers = RunNumbers(given, np.linspace(0, 1, FRAMES), np.linspace(0, steps, FRAMES).astype(int))
    programs = compiled(CompiledFieldRun, config)
    return {check.name: check for check in check_run(config, programs, numbers, np.asarray(statuses))}


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
                HEAT,
                (OK,) * (members or 1),
                members=members,
                mean_concentration=series if members else series[0],
                maximum_concentration=np.ones(FRAMES),
            )["Mean concentration is conserved"]
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
    usual = {"particles": count, "kinetic_energy": 2.0, "energy": 1.0, "momentum_x": 0.0, "momentum_y": 0.0}
    given = {name: np.full((1, FRAMES), value, float) for name, value in usual.items()}
    given |= {name: np.asarray(values, float)[None] for name, values in series.items()}
    time, step = np.linspace(0, 1, FRAMES), np.linspace(0, STEPS, FRAMES).astype(int)
    numbers = RunNumbers(given, time, step, mass=np.full(count, 0.9))
    programs = compiled(CompiledParticleRun, config)
    programs.family = SimpleNamespace(energy_of_jumps=lambda parameters: 0.0)
    return {check.name: check for check in check_run(config, programs, numbers, np.asarray([OK]))}


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
    """Of what kinetic and potential energy, 2 and -1, give all particles: sqrt(2 x 3 x 9), times 10 eps sqrt(steps)."""
    bound = (2 * 3 * 9) ** 0.5 * 10 * ROUNDING * STEPS**0.5
    for share, passed in ((0.99, True), (1.01, False)):
        for name in ("momentum_x", "momentum_y"):
            assert of_particles(**{name: last(-share * bound, 0.0)})["Momentum is conserved"].passed == passed


def test_of_particles_at_rest_rounding_alone_may_drift():
    """Ten roundings a step of an energy of 600, added up at random; of no kinetic energy there is no share."""
    time, still = np.linspace(0, 1, FRAMES), np.zeros(FRAMES)
    bound = 10 * ROUNDING * STEPS**0.5 * 600
    for share, passed in ((0.9, True), (2.0, False)):
        found = of_particles(kinetic_energy=still, energy=-600 + share * bound * time)
        assert found["Energy drift"].passed == passed
    # Momentum is measured by what the potential energy could give: sqrt(2 x 600 x 9).
    scale = (2 * 600 * 9) ** 0.5
    for share, passed in ((0.9, True), (1.1, False)):
        moved = last(share * 10 * ROUNDING * STEPS**0.5 * scale, 0.0)
        found = of_particles(kinetic_energy=still, energy=np.full(FRAMES, -600.0), momentum_x=moved)
        assert found["Momentum is conserved"].passed == passed


# ---------------------------------------------------------------------- runs


VORTICES = ["sin(2*pi*x)*cos(2*pi*y)", "-cos(2*pi*x)*sin(2*pi*y)"]
CLOSED = {"x": "no_slip", "y": "no_slip"}
TIME = {"end": 0.2, "output_every": 0.05, "courant": 0.5}
FLOWS = {"grid": {"shape": [24, 24]}, "physics": {"viscosity": 0.01}, "initial": {"velocity": VORTICES}, "time": TIME}
STILL = {**FLOWS, "initial": {"velocity": ["0", "0"]}, "boundaries": CLOSED}
HEATED = {
    **STILL,
    "physics": {"viscosity": 0.01, "diffusivity": 0.01, "expansion": 1.0, "gravity": [0, -100.0]},
    "boundaries": {"x": "no_slip", "y": {end: {"kind": "no_slip", "temperature": 1e3} for end in ("lower", "upper")}},
    "initial": {"velocity": ["0", "0"], "temperature": "1e3 + sin(pi*y)"},
}
WAVE = {
    "grid": {"shape": [32, 32]},
    "physics": {"diffusivity": 0.01, "velocity": [1.0, 0.5]},
    "time": TIME,
    "initial": {"concentration": "1 + sin(2*pi*x)*sin(2*pi*y)"},
}
LATTICE = {
    "box": {"upper": [5.13] * 3},
    "particles": {"placement": "fcc", "count": 108, "temperature": 0.0},
    "time": {"end": 0.25, "output_every": 0.05, "dt": 0.005},
}

RIGHT = {
    "a force that the pressure balances": ("incompressible", {**STILL, "forcing": {"velocity": ["0", "-9.81"]}}),
    "a strong force": ("incompressible", {**STILL, "forcing": {"velocity": ["sin(pi*y)", "-1e4*y"]}}),
    "buoyancy of a hot fluid": ("boussinesq", HEATED),
    "steps of second order without viscosity": (
        "incompressible",
        {
            **FLOWS,
            "physics": {"viscosity": 0.0},
            "initial": {"velocity": ["noise(4)", "noise(4)"]},
            "time": {**TIME, "integrator": "heun"},
        },
    ),
    "a flow in 16 bits": ("incompressible", {**FLOWS, "storage": {"dtype": "bfloat16"}}),
    "a mean in 16 bits": ("advection_diffusion", {**WAVE, "storage": {"dtype": "bfloat16"}}),
    "a concentration below zero": (
        "advection_diffusion",
        {**WAVE, "initial": {"concentration": "-1000*exp(-100*((x - 0.5)**2 + (y - 0.5)**2))"}},
    ),
    "a lattice at rest": ("molecular_dynamics", LATTICE),
    "a cold solid": ("molecular_dynamics", {**LATTICE, "particles": {**LATTICE["particles"], "temperature": 0.1}}),
}


def run(model, sections, folder, **more):
    silent = {"report": False, "animation": False, "fields": [], "root": str(folder)}
    return sj.configure(model, **{"precision": "float32", **sections, **more, "output": silent}).run()


SLOW = "buoyancy of a hot fluid", "a lattice at rest", "a cold solid", "a flow in 16 bits"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in RIGHT])
def test_a_right_run_fails_no_check(name, tmp_path):
    result = run(*RIGHT[name], tmp_path)
    assert result.failed_checks == () and "fail" not in result.message
    assert ("max_divergence_rounding" in result.ds) == ("max_divergence" in result.ds)


@pytest.mark.slow
@pytest.mark.parametrize("moved", ["0.1*sin(4*t)", "0"])
def test_a_body_that_moves_may_feed_energy(moved, tmp_path):
    body = {
        "solid": f"sqrt((x - 0.5)**2 + (y - 0.5 - {moved})**2) - 0.15",
        "solid_velocity": ["-(y - 0.5)", "0.4*cos(4*t)"],
    }
    result = run("incompressible", {**STILL, "coefficients": body}, tmp_path)
    assert float(result.ds.kinetic_energy[-1]) > 0 and result.failed_checks == ()


@pytest.mark.parametrize("given", [{"solid_velocity": ["1", "0"]}, {"solid": "sqrt((x - t)**2 + y**2) - 0.1"}])
def test_the_energy_of_a_flow_falls_around_bodies_at_rest_alone(given):
    body = {"solid": "sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.1"}
    still = validate({"model": "incompressible", **FLOWS, "coefficients": body})
    moving = validate({"model": "incompressible", **FLOWS, "coefficients": {**body, **given}})
    assert still.schema.claimed("falling", still) == [("kinetic_energy", "enstrophy")]
    assert moving.schema.claimed("falling", moving) == []


@sj.model("fed_flow", falling=falling_energy)
class FedFlow(sj.Incompressible):
    """A flow that something feeds which the equation does not have: 5 % of its speed in a time."""

    def rhs(self, t, state, params):
        slopes = super().rhs(t, state, params).velocity
        return self.State(tuple(k + 0.05 * u for k, u in zip(slopes, state.velocity, strict=True)))


@sj.model("half_projected_flow")
class HalfProjectedFlow(sj.Incompressible):
    """A flow of which the projection leaves a part of the divergence."""

    def constrain(self, t, dt, state, params):
        whole = super().constrain(t, dt, state, params).velocity
        return self.State(tuple(u + 0.05 * (v - u) for u, v in zip(whole, state.velocity, strict=True)))


@sj.model("leaking_heat", conserved=("mean_concentration",))
class LeakingHeat(sj.AdvectionDiffusion):
    """Heat of which 1e-3 is lost in a time."""

    def rhs(self, t, state, params):
        return self.State(super().rhs(t, state, params).concentration - 1e-3 * state.concentration)


WRONG = {
    "Kinetic energy never rises": (FedFlow, {**FLOWS, "physics": {"viscosity": 0.0}}),
    "Largest divergence": (HalfProjectedFlow, {**FLOWS, "initial": {"velocity": ["noise(4)", "noise(4)"]}}),
    "Mean concentration is conserved": (LeakingHeat, WAVE),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_run_does_not_say_that_it_completed_without_its_failed_check(name, tmp_path):
    result = run(*WRONG[name], tmp_path)
    (sentence,) = result.failed_checks
    assert sentence.startswith(name)
    told = f"completed, but 1 check failed ({name})".partition(", ")[2]
    assert result.message.startswith("completed in ") and result.message.endswith(told)
    (part,) = json.loads((result.folder / "provenance.json").read_text())["parts"]
    assert part["outcome"] == result.message and part["failed_checks"] == [sentence]
    assert (result.folder / "run.log").read_text().splitlines()[-1].endswith(told)


@pytest.mark.slow
@pytest.mark.parametrize(("dt", "failed"), [(0.005, []), (0.03, ["Energy drift"])])
def test_energy_that_particles_gain_by_steps_that_are_too_long_is_found(dt, failed, tmp_path):
    """Six times the usual step: 12 % of the kinetic energy; of a potential that ends without a jump 1 % may drift."""
    liquid = {
        **LATTICE,
        "physics": {"mode": "force_shifted"},
        "particles": {**LATTICE["particles"], "temperature": 1.44},
    }
    result = run("molecular_dynamics", {**liquid, "time": {"end": 3.0, "output_every": 0.3, "dt": dt}}, tmp_path)
    assert [sentence.partition(":")[0] for sentence in result.failed_checks] == failed
