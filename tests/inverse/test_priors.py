"""Priors: densities and marginal variances, both modes, decomposition, refusals."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from refusals import refusals

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.inverse.methods.priors import Gaussian, Matern, TotalVariation

MESHES = [{"x": 2, "y": 4}, {"x": 8}]
GRID = Grid((8, 12), (0.0, -1.0), (2.0, 2.0))


def jacobian(prior, grid, at=None):
    """The residuals of a field's prior as a matrix."""
    at = jnp.zeros(grid.shape) if at is None else at
    columns = jax.jit(jax.jacfwd(lambda u: prior.residuals(u, Domain(grid))))(at)
    return np.concatenate([np.asarray(rows).reshape(-1, grid.cells) for rows in jax.tree.leaves(columns)])


def marginal_variance(prior, grid):
    rows = jacobian(prior, grid)
    return np.diag(np.linalg.inv(rows.T @ rows)).reshape(grid.shape)


def cells_per_length(prior, grid):
    """1 / (kappa h)."""
    return prior.length / math.sqrt(8 * (2 - grid.ndim / 2)) / grid.spacing[0]


@pytest.mark.parametrize(
    ("grid", "relative"),
    [
        # Truncation: (kappa h)^2 / 8 and (kappa h)^2 log(1 / (kappa h)); the box is six lengths long, so what comes
        # round it is below 1e-5.
        (Grid((128,), (0.0,), (1.8,)), lambda fine: 1 / (8 * fine**2)),
        (Grid((32, 36), (0.0, 1.0), (1.6, 2.8)), lambda fine: math.log(fine) / fine**2),
    ],
)
def test_matern_fields_have_the_deviation_asked_for(grid, relative):
    prior = Matern(2.0, 0.3, (True,) * grid.ndim)
    variance = marginal_variance(prior, grid)
    # The same everywhere, to the rounding of an inverse of condition 1e6.
    np.testing.assert_allclose(variance, variance.flat[0], rtol=1e-9)
    error = variance.flat[0] / 4 - 1
    assert 0 < error < 1.1 * relative(cells_per_length(prior, grid))


def test_the_variance_converges_in_one_two_and_three_dimensions():
    """On periodic grids waves are the eigenvectors: the variance is the mean of the inverse squares of the symbol."""

    def error(ndim, n):
        grid = Grid((n,) * ndim)
        prior = Matern(1.0, 0.2, (True,) * ndim)
        impulse = jnp.zeros(grid.shape).at[(0,) * ndim].set(1.0)
        symbol = np.fft.fftn(np.asarray(jax.jit(lambda u: prior.residuals(u, Domain(grid)))(impulse)))
        return np.mean(1 / np.abs(symbol) ** 2) - 1

    # Second order; second but for a logarithm; first (the variance of waves beyond the grid's).
    assert error(1, 64) / error(1, 128) == pytest.approx(4, rel=0.05)
    assert 2.5 < error(2, 64) / error(2, 128) < 4
    assert error(3, 64) < 0.3 * math.sqrt(4) / (0.2 * 64)
    assert error(3, 64) < 0.7 * error(3, 32)


def test_a_wall_doubles_the_variance_and_is_not_felt_further_inside():
    variance = marginal_variance(Matern(1.0, 0.2, (False,)), Grid((128,), (0.0,), (1.28,)))
    # The correlation with the image of a cell half a spacing from the wall is 1 - O((kappa h)^2).
    np.testing.assert_allclose(variance[[0, -1]], 2, rtol=0.02)
    np.testing.assert_allclose(variance[40:-40], 1, rtol=0.01)


def test_matern_residuals_are_relative_to_the_mean():
    mean = random(GRID.shape)
    prior, plain = (Matern(1.5, 0.6, (True, False), m) for m in (mean, 0.0))
    u = random(GRID.shape, 1)
    np.testing.assert_allclose(
        prior.residuals(u, Domain(GRID)), plain.residuals(u - mean, Domain(GRID)), rtol=0, atol=1e-13
    )


def test_gaussian_residuals_count_deviations():
    found = Gaussian(1.0, jnp.asarray([0.5, 2.0])).residuals(jnp.asarray([2.0, 2.0]), Domain(GRID))
    np.testing.assert_array_equal(found, [2.0, 0.5])
    assert float(Gaussian(1.0, 0.5).residuals(jnp.asarray(0.0), Domain(GRID))) == -2.0


def variation(u, weight, rounding, spacing):
    """Between walls, by numpy."""
    slopes = [np.diff(u, axis=a, append=np.take(u, [-1], axis=a)) / h for a, h in enumerate(spacing)]
    return weight * math.prod(spacing) * np.sqrt(sum(s**2 for s in slopes) + rounding**2).sum()


def half_square(residuals):
    return 0.5 * sum(jnp.vdot(r, r) for r in jax.tree.leaves(residuals))


@pytest.mark.parametrize("grid", [Grid((7,)), GRID, Grid((3, 4, 5))], ids=lambda g: str(g.shape))
@pytest.mark.slow
def test_total_variation_is_the_sum_of_the_slopes(grid):
    u = random(grid.shape)
    found = half_square(TotalVariation(0.3, 0.05).residuals(u, Domain(grid)))
    np.testing.assert_allclose(found, variation(np.asarray(u), 0.3, 0.05, grid.spacing), rtol=1e-13)


def test_a_jump_costs_as_much_as_a_ramp():
    """Between 0 and 1 the variation is 1 however steep, up to the rounding in flat cells."""
    grid, prior = Grid((64,)), TotalVariation(1.0, 1e-6)
    x = jnp.asarray(grid.coordinates(0, 0.5))
    for u in (jnp.where(x < 0.5, 0.0, 1.0), jnp.clip(4 * x - 1, 0, 1)):
        assert float(half_square(prior.residuals(u, Domain(grid)))) == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.slow
def test_the_gauss_newton_matrix_of_total_variation_is_not_below_the_hessian(flat):
    grid, prior = Grid((4, 5)), TotalVariation(0.7, 0.4, (True, False))
    u = jnp.zeros(grid.shape) if flat else random(grid.shape)

    def loss(u):
        return half_square(prior.residuals(u.reshape(grid.shape), Domain(grid)))

    rows = jacobian(prior, grid, u)
    hessian = np.asarray(jax.jit(jax.hessian(loss))(u.ravel()))
    assert np.linalg.eigvalsh(rows.T @ rows - hessian).min() > -1e-12
    # Only the constant is free.
    assert np.linalg.matrix_rank(rows.T @ rows) == grid.cells - 1


PRIORS = {
    "gaussian": Gaussian(0.3, 1.7),
    "matern": Matern(1.5, 0.6, (True, False), 0.2),
    "total variation": TotalVariation(0.3, 0.4, (True, False)),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    def residuals(domain, u):
        found = PRIORS[name].residuals(u, domain)
        return jnp.stack(found) if isinstance(found, tuple) else found

    ndim = 3 if name == "total variation" else 2
    check_decompositions(residuals, GRID, MESHES[:1], (random(GRID.shape),), (True,), lambda domain: domain.spec(ndim))


def test_priors_map_over_members_and_differentiate_in_their_parameters():
    members = random((3, *GRID.shape))

    def loss(length, u):
        return half_square(Matern(1.5, length, (True, False)).residuals(u, Domain(GRID)))

    found = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(jnp.asarray(0.6), members)
    step = 1e-5
    for slope, u in zip(found, members, strict=True):
        difference = (loss(jnp.asarray(0.6 + step), u) - loss(jnp.asarray(0.6 - step), u)) / (2 * step)
        # Truncation step^2, rounding 1e-16 / step.
        np.testing.assert_allclose(slope, difference, rtol=1e-8)


REFUSALS = {
    "deviation": (
        lambda: Gaussian(0.0, jnp.asarray([1.0, -2.0])),
        "Gaussian.deviation must be positive and finite, got -2; write what the unknown may differ from the mean by.",
    ),
    "length": (
        lambda: Matern(1.0, 0.0, (True,)),
        "Matern.length must be positive and finite, got 0; write a distance in units of the domain, of several cells.",
    ),
    "rounding": (
        lambda: TotalVariation(1.0, float("nan")),
        "TotalVariation.rounding must be positive and finite, got nan; write a slope that is small beside those of "
        "edges.",
    ),
    "sides": (
        lambda: Matern(1.0, 0.5, (True,)).residuals(jnp.zeros(GRID.shape), Domain(GRID)),
        "Matern.periodic=(True,) has 1 entries for a grid of 2 axes; write one True or False per axis.",
    ),
    "no field": (
        lambda: TotalVariation(1.0, 0.1).residuals(jnp.asarray(1.0), Domain(GRID)),
        "TotalVariation is a prior of fields, here of blocks of (8, 12) cells; got an unknown of shape (), for which "
        "write Gaussian.",
    ),
}


test_refusals_say_what_came_and_what_to_write = refusals(REFUSALS)
