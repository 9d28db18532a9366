"""The shipped inverse problems find what they seek: each against the truth that made its measurements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.config import load_config
from simjax.inverse.problem import InverseProblem
from simjax.inverse.search import Search


def searched(name, folder, *overrides):
    config = load_config(name, overrides=[f"output.root={folder}", "output.report=false", *overrides])
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # within Optax
        return Search(config).run().answer


def error(answer, path, background=0.0):
    """Of an estimated field, relative to the truth's departure from a background."""
    truth, estimate = (np.stack(u[path]) for u in (answer.truth, answer.estimate))
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth - background))


def covers(answer, path):
    low, high = answer.intervals[path]
    return low <= float(answer.truth[path]) <= high


@pytest.mark.long
def test_viscosity_and_initial_vorticity_from_noisy_snapshots(tmp_path):
    answer = searched("inverse_vorticity", tmp_path)
    # Noise of 2 % in each of 20 000 values leaves the viscosity uncertain by less than 1 %.
    assert float(answer.estimate["physics.viscosity"]) == pytest.approx(0.01, rel=0.02)
    assert covers(answer, "physics.viscosity")
    # Noise of 2 % of the snapshots' size, of which the smoothing over 0.2, two cells, leaves one part in 4 pi 2^2 in
    # squares: 0.3 %, several times that for what is known of scales that have decayed.
    assert error(answer, "initial.vorticity") < 0.01
    assert answer.residual == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_a_source_from_point_sensors(tmp_path):
    answer = searched("inverse_source", tmp_path)
    for path, (low, high) in answer.intervals.items():
        # One seed: within twice the 95 % interval, which is narrow.
        truth, half = float(answer.truth[path]), (high - low) / 2
        assert abs(float(answer.estimate[path]) - truth) < 2 * half, path
        assert half < 0.02 * truth, path


@pytest.mark.long
def test_a_pair_potential_from_trajectories(tmp_path):
    answer = searched("inverse_pair_potential", tmp_path)
    for path in ("physics.potential.lennard_jones.epsilon", "physics.potential.lennard_jones.sigma"):
        low, high = answer.intervals[path]
        # One seed: within twice the 95 % interval. The guess was 30 % and 5 % off.
        assert abs(float(answer.estimate[path]) - 1) < high - low < 0.01, path
    # 2592 residuals scatter by 1.4 % about one.
    assert answer.residual == pytest.approx(1.0, abs=0.06)


@pytest.mark.long
def test_a_body_from_the_echoes_at_the_surface(tmp_path):
    answer = searched("inverse_waveform", tmp_path)
    # Half a wavelength at the highest frequency with any energy, 8 / s, is 0.06: edges are that wide, and the ring of
    # that width around a disc of radius 0.1 holds about a third of what is sought, in squares a tenth.
    assert error(answer, "coefficients.speed", background=1.0) < 0.3
    assert answer.residual == pytest.approx(1.0, abs=0.1)


@pytest.mark.long
def test_currents_that_unmix_a_dye(tmp_path):
    overrides = [f"output.root={tmp_path}"]
    problem = InverseProblem(load_config("inverse_unmixing", overrides=overrides))
    (instrument,) = problem.instruments
    spot = np.linalg.norm(instrument.measured)

    def missed(physical):
        return np.linalg.norm(problem.series(physical)[instrument.name][-1] - instrument.measured[-1]) / spot

    answer = searched("inverse_unmixing", tmp_path)
    # Diffusion cannot be undone. The best there could be is what it leaves of a Gaussian spot in a fluid at rest, whose
    # variance s = width^2 grows by 2 D t; what a Stokes flow without diffusion does exactly, the stirring in reverse
    # (Taylor 1966), is no best control here: filaments are thinner than the spot, and the fluid has inertia.
    before, after = 0.12**2, 0.12**2 + 2 * 2e-4 * 4
    still = (1 + before / after - 4 * before / (before + after)) ** 0.5
    assert missed(problem.guess()) > 0.9
    assert still < missed(answer.estimate) < missed(problem.truth()) < 2 * still
    # Power, the sum of squares of currents of a second each: its price keeps it near that of the two that stirred.
    assert sum(float(current) ** 2 for current in answer.estimate.values()) < 1.5 * 2 * 0.25**2


@pytest.mark.long
def test_multiple_shooting_beats_single_shooting(tmp_path):
    multiple = searched("inverse_chaos", tmp_path)
    single = searched("inverse_chaos", tmp_path, "inverse.shooting.windows=1")
    assert error(multiple, "initial.u") < 0.2
    # Single shooting stays in a minimum near the guess: all of the truth is missing.
    assert error(single, "initial.u") > 4 * error(multiple, "initial.u")


@pytest.mark.long
def test_a_reaction_learned_from_noisy_snapshots(tmp_path):
    answer = searched("inverse_closure", tmp_path)
    seen = np.linspace(0.0, 1.0, 101)
    (learned,) = answer.modules["closure"].module(jnp.asarray(seen.reshape(-1, 1)))
    truth = 8 * seen * (1 - seen) * (seen - 0.3)
    # Noise of 2 % in each of 5000 values; the weights of a small network are more than a cubic needs.
    assert np.linalg.norm(learned.ravel() - truth) < 0.05 * np.linalg.norm(truth)
    assert answer.residual == pytest.approx(1.0, abs=0.1)
