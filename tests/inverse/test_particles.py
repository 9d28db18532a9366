"""Inverse problems of particles from configurations: what is seen of them, the gradient, what is found and refused."""

import copy

import jax
import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError
from simjax.inverse.search import Search

# Sixteen particles of a crystal of two axes, a little of which melts in six steps.
CRYSTAL = {
    "experiment_name": "crystal",
    "model": "molecular_dynamics",
    "precision": "float64",
    "physics": {"mode": "force_shifted", "cutoff": 1.7},
    "box": {"upper": [4.8, 4.8]},
    "particles": {"placement": "square", "count": 16, "temperature": 0.3},
    "time": {"end": 0.06, "output_every": 0.03, "dt": 0.01},
    "outputs": [{"radial_distribution": [1.0, 1.2, 1.4], "width": 0.2}],
    "inverse": {
        "unknowns": {
            "physics.potential.lennard_jones.epsilon": {"guess": 0.8, "positive": True},
            "initial.velocity": {"guess": ["0.1*sin(x)", 0], "prior": {"gaussian": {"mean": 0, "deviation": 1}}},
        },
        "observations": [
            {"output": "particles", "of": "position", "deviation": 1.0e-3},
            {"output": "radial_distribution", "deviation": 0.05},
            {"output": "diagnostics", "of": "potential_energy", "deviation": 0.01},
        ],
        "solver": {"name": "gauss_newton", "iterations": 8, "cg_iterations": 40},
    },
}


def posed(changes=None):
    return validate(changed(copy.deepcopy(CRYSTAL), changes or {}))


def value_and_gradient(problem):
    least_squares = problem.least_squares()
    return jax.jit(jax.value_and_grad(lambda latent: least_squares.loss(latent)[0]))(problem.start())


@pytest.fixture(scope="module")
def problem():
    return sj.InverseProblem(posed())


@pytest.mark.slow
def test_making_a_problem_runs_nothing(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a simulation was run")

    monkeypatch.setattr("simjax.driver.differentiable_run.simulate", refuse)
    problem = sj.InverseProblem(posed())
    assert (
        problem.numbers == ("physics.potential.lennard_jones.epsilon",)
        and problem.fields == ("initial.velocity",)
        and problem.is_twin
    )


@pytest.mark.slow
def test_what_is_seen(problem):
    position, radial, energy = problem.instruments
    assert [i.measured.shape for i in (position, radial, energy)] == [(2, 2, 16), (2, 3), (2,)]
    truth = problem.truth()["initial.velocity"]
    moved = position.measured[0] - problem.rollout.programs.start_of.position
    # Half a step squared times the largest force and noise of 1e-3, against 0.03 of a speed of 0.5.
    np.testing.assert_allclose(moved, 0.03 * np.stack(truth), rtol=0, atol=0.008)
    guess = problem.guess()["initial.velocity"]
    x = problem.rollout.programs.start_of.position[0]
    np.testing.assert_allclose(guess[0], 0.1 * np.sin(x), rtol=0, atol=1e-15)


@pytest.mark.slow
def test_the_gradient_is_that_of_differences(problem):
    least_squares, start = problem.least_squares(), problem.start()
    loss = jax.jit(lambda latent: least_squares.loss(latent)[0])
    _, gradient = value_and_gradient(problem)
    random = np.random.default_rng(0)
    direction = jax.tree.map(lambda u: random.normal(size=np.shape(u)), start)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    slope = sum(float((g * d).sum()) for g, d in pairs)
    h = 1e-5
    ahead, behind = (float(loss(jax.tree.map(lambda u, d, s=s: u + s * h * d, start, direction))) for s in (1, -1))
    # Rounding of a loss is 1e-16 of it over h, and h squared times a third derivative of some thousand slopes.
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-6)


@pytest.mark.slow
def test_on_a_mesh_as_on_one_device(problem):
    value, gradient = value_and_gradient(problem)
    value_cut, cut = value_and_gradient(problem.changed(sizes={"x": 2}))
    assert float(value_cut) == pytest.approx(float(value), rel=1e-12)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-11 * float(np.abs(a).max()))  # sums in another order


@pytest.mark.long
def test_velocities_and_a_number_are_found(tmp_path):
    config = posed({"output": {"root": str(tmp_path)}})
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # within Optax
        found = Search(config).run()
    answer = found.answer
    low, high = answer.intervals["physics.potential.lennard_jones.epsilon"]
    # One draw of the noise: within twice the 95 % interval.
    assert abs(float(answer.estimate["physics.potential.lennard_jones.epsilon"]) - 1) < high - low < 0.5
    off = np.stack(answer.estimate["initial.velocity"]) - np.stack(answer.truth["initial.velocity"])
    # A position off by 1e-3 after 0.03 and 0.06 is a velocity off by some 0.02.
    assert np.sqrt(np.mean(off**2)) < 0.04
    assert answer.residual == pytest.approx(1.0, abs=0.5)
    import h5py

    with h5py.File(found.folder / "inversion.h5") as file:
        np.testing.assert_allclose(file["velocity_x"], answer.estimate["initial.velocity"][0], rtol=0, atol=1e-12)
        assert file["measured_0_position"].shape == (2, 16, 2)
    page = (found.folder / "report.html").read_text()
    assert "Particles" in page and "cells" not in page.split("Readings")[0]


@pytest.mark.slow
def test_experiments_differ_in_temperature():
    experiments = {"cold": {"particles": {"temperature": 0.1}}, "hot": {"particles": {"temperature": 0.5}}}
    section = {"unknowns": {"physics.potential.lennard_jones.sigma": {"guess": 0.9}}, "experiments": experiments}
    config = posed({"inverse": {**CRYSTAL["inverse"], **section}})
    own = [experiment.of(config).particles.temperature for experiment in config.inverse.experiments]
    assert own == [0.1, 0.5]
    problem = sj.InverseProblem(config)
    names = [i.name for experiment in problem.experiments for i in experiment.instruments]
    assert names[:2] == ["cold_0_position", "cold_1_radial_distribution"] and len(names) == 6


def test_experiments_differ_in_keys_of_a_part():
    """Those that an experiment does not name stay, unless it names another part."""
    near = {"physics": {"potential": {"lennard_jones": {"epsilon": 2.0}}}}
    other = {"physics": {"potential": {"yukawa": {"strength": 3.0}}, "thermostat": "langevin"}}
    base = {"physics": {"potential": {"lennard_jones": {"sigma": 1.1}}, "mode": "force_shifted", "cutoff": 1.7}}
    section = {"unknowns": {"particles.temperature": {"guess": 0.2}}, "experiments": {"near": near, "other": other}}
    config = posed({**base, "inverse": {**CRYSTAL["inverse"], **section}})
    first, second = (experiment.of(config).physics for experiment in config.inverse.experiments)
    assert (first.potential.keys.epsilon, first.potential.keys.sigma, first.cutoff) == (2.0, 1.1, 1.7)
    assert (second.potential.name, second.potential.keys.strength, second.thermostat.name) == ("yukawa", 3, "langevin")


MISTAKES = {
    "a snapshot of a field": (
        {"observations": [{"output": "particles", "of": "density", "deviation": 1}]},
        "of = 'density': expected one of variables, position",
    ),
    "counts": (
        {"observations": [{"output": "particles", "of": "image", "deviation": 1}]},
        "expected one of variables, position, velocity",
    ),
    "of fields": (
        {"observations": [{"output": "fields", "deviation": 1}]},
        "radial_distribution, particles, diagnostics",
    ),
    "near": (
        {"observations": [{"radial_distribution": [0.1], "width": 0.2, "deviation": 1}]},
        "write {output: radial_distribution} here and outputs: [{radial_distribution: [0.1], width: 0.2}]",
    ),
    "once": (
        {"observations": [{"snapshot": "position", "deviation": 1}]},
        "observations[0].snapshot: what is observed is an output now; write {output: particles, of: position} here",
    ),
    "a cutoff": ({"unknowns": {"physics.cutoff": {}}}, "physics.cutoff: unknown key"),
    "smooth": ({"unknowns": {"initial.velocity": {"smooth": 1.0}}}, "expected at a field on a grid"),
    "windows": ({"shooting": {"windows": 2}}, "expected 1 for particles"),
    "a guess": ({"unknowns": {"initial.velocity": {"guess": ["noise(2)", 0]}}}, "noise"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_sentences(name):
    section, words = MISTAKES[name]
    assert words in refusal(changed(copy.deepcopy(CRYSTAL), {"inverse": {**CRYSTAL["inverse"], **section}}))


def test_a_diagnostic_that_is_not_there():
    section = {**CRYSTAL["inverse"], "observations": [{"output": "diagnostics", "of": "temprature", "deviation": 1}]}
    with pytest.raises(ConfigurationError, match="did you mean 'temperature'"):
        sj.InverseProblem(posed({"inverse": section}))
    far = {"outputs": [{"radial_distribution": [3.0], "width": 0.2}], "inverse": CRYSTAL["inverse"]}
    with pytest.raises(ConfigurationError, match="the length of a cell"):
        sj.InverseProblem(posed(far))
