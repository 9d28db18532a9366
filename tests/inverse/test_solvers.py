"""Solvers of least squares against a linear problem, whose answer and uncertainty are known exactly."""

from math import erf
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.inverse.estimate import _doubts, _interval, _undetermined
from simjax.inverse.methods.ensemble_kalman import EnsembleKalman
from simjax.inverse.methods.gauss_newton import GaussNewton
from simjax.inverse.methods.gradient_descent import GradientDescent, MultiStart, optimiser_named
from simjax.inverse.methods.laplace import (
    ITERATIONS,
    Uncertainty,
    draw_keys,
    draws_converged,
    number_sensitivity,
    posterior_draws,
    uncertainty_of_numbers,
)
from simjax.inverse.methods.least_squares import Evaluation, LeastSquares

TRUTH = jnp.asarray([1.0, 2.0, -1.0])
MATRIX = jnp.asarray(np.random.default_rng(0).normal(size=(30, 3)))
MEASURED = MATRIX @ TRUTH
START = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
# Of residuals ten times A u - y and, with a prior, u.
CURVATURE = 100 * MATRIX.T @ MATRIX + jnp.eye(3)
BEST = jnp.linalg.solve(CURVATURE, 100 * MATRIX.T @ MEASURED)
COVARIANCE = jnp.linalg.inv(CURVATURE)


def evaluate(latent, measured, *, prior=True):
    """Residuals of a linear run, failing where the first unknown exceeds 50."""
    vector = jnp.concatenate([latent["a"][None], latent["b"]])
    residuals = {"measured": 10 * (MATRIX @ vector - measured)} | ({"prior": latent} if prior else {})
    return Evaluation(residuals, jnp.where(latent["a"] > 50, 1, 0).astype(jnp.int32))


def without_prior(latent, measured):
    return evaluate(latent, measured, prior=False)


def problem(function=evaluate):
    return LeastSquares(MEASURED, function, jax.vmap(function, in_axes=(0, None)))


def solved(solver, iterations, start=START, least_squares=None):
    least_squares = problem() if least_squares is None else least_squares
    iterate, step = solver.begin(start), eqx.filter_jit(solver.step)
    with jax.numpy_dtype_promotion("standard"):  # within Optax
        for _ in range(iterations):
            iterate = step(least_squares, iterate)
    return iterate


def vector_of(latent):
    return jnp.concatenate([latent["a"][None], latent["b"]])


@pytest.mark.parametrize(
    "solver, iterations, tolerance",
    [
        # Quadratic: to rounding once the solver has seen as many directions as there are unknowns.
        (GaussNewton(), 8, 1e-9),
        (GradientDescent(optimiser_named("lbfgs"), searches=True), 30, 1e-9),
        # First order: Adam's steps fall as its learning rate lets them.
        (GradientDescent(optimiser_named("adam", 0.1)), 400, 1e-5),
        (MultiStart(optimiser_named("adam", 0.1), 4, 1.0), 400, 1e-5),
    ],
    ids=["Gauss-Newton", "L-BFGS", "Adam", "four starts"],
)
@pytest.mark.slow
def test_finds_the_minimum_of_a_linear_problem(solver, iterations, tolerance):
    iterate = solved(solver, iterations)
    np.testing.assert_allclose(vector_of(solver.estimate(iterate)), BEST, rtol=0, atol=tolerance)
    assert int(iterate.iteration) == iterations


@pytest.mark.slow
def test_ensemble_kalman_draws_from_the_posterior():
    """Mean and spread of the members, to the error of 2000 draws: 1 / sqrt(2000) of a deviation, four times that."""
    solver, members = EnsembleKalman(2000), 2000
    least_squares = problem(without_prior)
    iterate, step = solver.begin(START), eqx.filter_jit(solver.step)
    while not solver.settled(iterate, iterate, 0.0):
        iterate = step(least_squares, iterate)
    assert 1 < int(iterate.iteration) < 20, "the tempering takes a few steps"
    deviations = jnp.sqrt(jnp.diag(COVARIANCE))
    departure = np.abs(vector_of(solver.estimate(iterate)) - BEST) / deviations
    assert departure.max() < 4 / members**0.5
    spread = jnp.concatenate([jnp.std(iterate.latent["a"])[None], jnp.std(iterate.latent["b"], 0)])
    np.testing.assert_allclose(spread, deviations, rtol=4 / (2 * members) ** 0.5)


@pytest.mark.slow
def test_a_member_whose_run_fails_spoils_none_of_the_others():
    start = START | {"a": jnp.asarray(49.0)}
    iterate = solved(EnsembleKalman(40, spread=2.0), 1, start, problem(without_prior))
    assert 0 < int(jnp.sum(iterate.status != 0)) < 40
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(iterate.latent))
    starts = MultiStart(optimiser_named("adam", 0.1), 8, 2.0)
    iterate = solved(starts, 1, start)
    assert 0 < int(jnp.sum(~jnp.isfinite(iterate.loss))) < 8
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(iterate.latent))


def uncertainty(problem, latent, names):
    return uncertainty_of_numbers(number_sensitivity(problem, latent, names), names)


def linear(matrix):
    """Residuals `matrix` times the numbers p, q, s and the field f, one after the other."""

    def evaluate(latent, given):
        vector = jnp.concatenate([jnp.ravel(latent[name]) for name in ("p", "q", "s", "f") if name in latent])
        return Evaluation(given @ vector, jnp.zeros((), jnp.int32))

    return LeastSquares(jnp.asarray(matrix), evaluate, jax.vmap(evaluate, (0, None)))


NUMBERS = {name: jnp.asarray(0.3) for name in ("p", "q", "s")}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_the_data_do_not_determine_is_named(dtype):
    """Two numbers that act alike have no interval each; the third has that of the problem without one of them."""
    columns = np.random.default_rng(1).normal(size=(40, 3))
    columns[:, 1] = -2.5 * columns[:, 0]
    latent = {name: u.astype(dtype) for name, u in NUMBERS.items()}
    found = uncertainty(linear(columns.astype(dtype)), latent, list(latent))
    (combination,) = found.undetermined
    assert set(combination) == {"p", "q"}
    # A multiple of (2.5, 1), to the rounding of the factorisation.
    assert combination["p"] / combination["q"] == pytest.approx(2.5, rel=1e3 * float(np.finfo(dtype).eps))
    assert found.deviations["p"] == found.deviations["q"] == np.inf
    alone = np.linalg.inv(columns[:, ::2].T @ columns[:, ::2])[1, 1] ** 0.5
    assert found.deviations["s"] == pytest.approx(alone, rel=1e3 * float(np.finfo(dtype).eps))


def test_nearly_parallel_columns_still_have_an_interval():
    columns = np.random.default_rng(1).normal(size=(40, 3))
    columns[:, 1] = -2.5 * columns[:, 0] + 1e-5 * columns[:, 1]
    found = uncertainty(linear(columns), NUMBERS, list(NUMBERS))
    assert not found.undetermined
    exact = np.sqrt(np.diag(np.linalg.inv(columns.T @ columns)))
    # The condition of the columns, 1e6, times rounding; the reference loses its square.
    np.testing.assert_allclose([found.deviations[name] for name in NUMBERS], exact, rtol=1e-4)


def test_numbers_without_influence_and_those_that_a_field_makes_up_for():
    columns = np.random.default_rng(1).normal(size=(40, 6))
    columns[:, 1] = 0
    columns[:, 0] = columns[:, 3:] @ [1.0, -2.0, 0.5]
    found = uncertainty(linear(columns), NUMBERS | {"f": jnp.zeros(3)}, list(NUMBERS))
    assert sorted(name for combination in found.undetermined for name in combination) == ["p", "q"]
    assert all(len(combination) == 1 for combination in found.undetermined)
    rest = columns[:, 2:]
    # Conjugate gradients to 1e-6 of the right-hand side.
    assert found.deviations["s"] == pytest.approx(np.linalg.inv(rest.T @ rest)[0, 0] ** 0.5, rel=1e-5)


def test_intervals_that_do_not_converge_are_named():
    """More eigenvalues, spread over more decades, than the iterations that there are."""
    size = 2 * ITERATIONS
    columns = np.zeros((size + 1, size + 1))
    columns[:-1, 1:] = np.diag(np.logspace(0, -8, size))
    columns[:, 0] = 1
    found = uncertainty(linear(columns), {"p": jnp.asarray(0.0), "f": jnp.zeros(size)}, ["p"])
    assert found.unconverged["p"] > 1e-5 and not found.undetermined


def test_laplace_is_exact_for_a_linear_problem():
    found = uncertainty(problem(), {"a": BEST[0], "b": BEST[1:]}, ["a"])
    # Conjugate gradients to 1e-6 of the right-hand side.
    assert found.deviations["a"] == pytest.approx(float(jnp.sqrt(COVARIANCE[0, 0])), rel=1e-5)
    assert not found.undetermined and not found.unconverged


def test_an_interval_holds_95_percent_of_a_normal_distribution():
    as_it_is = SimpleNamespace(physical=lambda latent, domain: latent)
    problem = SimpleNamespace(transforms={"a": as_it_is}, domain=SimpleNamespace(unsplit=lambda: None))
    deviation = 0.3
    lower, upper = _interval(problem, "a", {"a": 2.0}, deviation)
    below, above = (erf((end - 2.0) / (2**0.5 * deviation)) / 2 for end in (lower, upper))
    # Rounding of numbers of order one.
    assert above == pytest.approx(0.475, abs=1e-14) and below == pytest.approx(-0.475, abs=1e-14)


def test_advice_is_not_what_is_there_already():
    """Of fields beside a number, and of the number itself."""
    told = Uncertainty({"p": 1.0}, (), {"p": 0.3})
    problem = SimpleNamespace(domain=SimpleNamespace(unsplit=lambda: None), priors={"initial.u": None})
    (both,) = _doubts(problem, {}, {}, told, ["initial.u", "initial.v"])
    assert both.endswith("so it may be too wide; give priors to initial.v.")
    (one,) = _doubts(problem, {}, {}, told, ["initial.u"])
    assert one.endswith("so it may be too wide; make the fields smooth.")
    for narrower, prior in ((False, "give it a prior"), (True, "give it a narrower prior")):
        assert prior in _undetermined({"p": 1.0}, {"p": 1.0}, (), narrower)


def test_samples_have_the_posterior_covariance():
    count = 4000
    best = {"a": BEST[0], "b": BEST[1:]}
    drawn, left = posterior_draws(problem(), best, draw_keys(range(count)))
    assert draws_converged(left.max()) and not draws_converged(1.1e-3)
    table = np.concatenate([np.asarray(drawn["a"])[:, None], np.asarray(drawn["b"])], axis=1)
    scale = np.sqrt(np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE)))
    # An entry of a sample covariance has the standard error sqrt(2 / count) at most; four of them.
    assert np.abs(np.cov(table.T) - COVARIANCE).max() < 4 * (2 / count) ** 0.5 * scale.max()
    assert np.abs(table.mean(0) - BEST).max() < 4 * np.sqrt(np.diag(COVARIANCE).max() / count)


def test_a_damped_step_that_fails_is_not_taken():
    """From where the full step leads into a region without runs, the latent stays and damping rises."""

    def cliff(latent, measured):
        residuals, _ = evaluate(latent, measured)
        return Evaluation(residuals, jnp.where(latent["a"] > 0.5, 1, 0).astype(jnp.int32))

    first = solved(GaussNewton(), 1, least_squares=problem(cliff))
    np.testing.assert_array_equal(vector_of(first.latent), vector_of(START))
    assert float(first.inner) > 1e-3
    later = solved(GaussNewton(), 12, least_squares=problem(cliff))
    assert 0 < float(later.latent["a"]) <= 0.5
    assert float(later.loss) < float(first.loss)
