"""The entropic pressure: its source, how well a few sweeps solve for it, and what jumps of density do to that."""

import jax.numpy as jnp
import numpy as np
import pytest

from simjax.ops import igr
from simjax.ops.reconstruction import LINEAR5

SPACINGS = [(0.1,), (0.1, 0.1), (0.1, 0.05), (0.2, 0.2, 0.2)]


def padded(u):
    return jnp.pad(jnp.asarray(u), 1, mode="wrap")


def solved(density, given, ratios):
    """Sigma after all sweeps on a periodic grid."""
    given = jnp.asarray(given)
    first, *others = igr.relaxations(ratios)
    found = igr.first_sweep(padded(density), given, first, ratios)
    for weight in others:
        found = igr.sweep(padded(found), padded(density), given, weight, ratios)
    return np.asarray(found)


def matrix(density, ratios):
    """The left-hand side of the equation, periodic; written apart, cell by cell."""
    shape, n = density.shape, density.size
    number = np.arange(n).reshape(shape)
    result = np.diag(1 / density.ravel())
    for axis, ratio in enumerate(ratios):
        above = np.roll(number, -1, axis).ravel()
        between = ratio * 2 / (density + np.roll(density, -1, axis)).ravel()
        for i, j, c in zip(number.ravel(), above, between, strict=True):
            result[i, i] += c
            result[j, j] += c
            result[i, j] -= c
            result[j, i] -= c
    return result


@pytest.mark.parametrize("spacing", SPACINGS, ids=str)
def test_a_few_sweeps_leave_the_stated_part_of_the_solution(spacing):
    """Of any source at uniform density, in the mean square; one sweep less would not do."""
    ratios = igr.strengths(spacing)
    shape = (12, 8, 6)[: len(spacing)]
    given = np.random.default_rng(1).normal(size=shape)
    density = np.full(shape, 2.0)
    exact = np.linalg.solve(matrix(density, ratios), given.ravel()).reshape(shape)
    # The response is largest to a uniform source, rho times itself.
    bound = igr.REMAINDER * 2.0 * np.linalg.norm(given)
    assert np.linalg.norm(solved(density, given, ratios) - exact) < bound
    # Of each wave by itself, which at uniform density has one coefficient between 1 - r and 1 + r.
    radius = igr.contraction(ratios)
    waves = np.linspace(1 - radius, 1 + radius, 1001)
    weights = igr.relaxations(ratios)
    worst = np.abs(np.prod([1 - w * waves for w in weights], axis=0) / waves).max() * (1 - radius)
    count, rate = len(weights), radius / (1 + np.sqrt(1 - radius**2))
    assert worst == pytest.approx(rate ** (count - 1) * radius / (1 + radius), rel=1e-6)
    assert worst <= igr.REMAINDER < worst / rate
    # As many for each further axis of equal spacings as for one more; where alpha is eight h^2 along an axis, eight.
    assert count == (8 if 0.05 in spacing else 3 + len(spacing))


def test_the_strength_is_that_of_the_largest_spacing():
    assert igr.strengths((0.1, 0.05)) == pytest.approx((igr.STRENGTH, 4 * igr.STRENGTH))


def test_jumps_of_density_do_not_undo_the_contraction():
    """A face between densities a and b has 2 / (a + b), at most twice what the cell itself has."""
    ratios = igr.strengths((1.0, 1.0))
    density = 10.0 ** np.random.default_rng(2).uniform(-3, 3, (8, 8))
    lhs = matrix(density, ratios)
    share, faces = igr._cells(padded(density), ratios)
    np.testing.assert_allclose(share, 1 / np.diag(lhs).reshape(8, 8), rtol=1e-12)
    most = max(float((np.asarray(share) * sum(a + b for a, b in faces)).max()), 0.0)
    bound = 4 * sum(ratios) / (1 + 4 * sum(ratios))
    assert 0.5 * bound < most < bound
    # Waves that no uniform gas has stay bounded: Sigma is of the size of the source.
    given = np.random.default_rng(3).uniform(0, 1, (8, 8))
    exact = np.linalg.solve(lhs, given.ravel()).reshape(8, 8)
    # Of densities that differ by six orders from cell to cell no weights are made for: not half of Sigma is amiss.
    assert np.abs(solved(density, given, ratios) - exact).max() < 0.5 * np.abs(exact).max()


def test_the_source_is_that_of_the_gradient():
    """tr(G)^2 + tr(G G) of linear velocities, in a plane whose cells are not square; negative in a rotation."""
    spacing = (0.1, 0.05)
    ratios, alpha = igr.strengths(spacing), igr.STRENGTH * 0.1**2
    x, y = np.meshgrid(0.1 * np.arange(6), 0.05 * np.arange(5), indexing="ij")
    for gradient in ([[0.3, 0.2], [-0.7, 1.1]], [[0.0, -1.0], [1.0, 0.0]]):
        g = np.array(gradient)
        velocity = [jnp.asarray(g[i, 0] * x + g[i, 1] * y) for i in range(2)]
        wanted = alpha * (np.trace(g) ** 2 + np.trace(g @ g))
        np.testing.assert_allclose(igr.source(velocity, ratios), wanted, rtol=1e-12)
    assert wanted == pytest.approx(-2 * alpha)


def test_sigma_of_a_uniform_compression_is_density_times_the_source():
    """To the part that is left out: without a gradient of its own, Sigma = 2 alpha rho (du/dx)^2."""
    ratios = igr.strengths((0.5,))
    given = np.full(16, 0.3)
    np.testing.assert_allclose(solved(np.full(16, 3.0), given, ratios), 0.9, rtol=igr.REMAINDER)


def test_linear_values_at_faces_are_exact_for_polynomials_of_fourth_degree():
    x = np.arange(-2.0, 3.0)
    for degree in range(6):
        error = float(LINEAR5.upwind(*(jnp.asarray(v) for v in x**degree))) - 0.5**degree
        # The sixth cell is not there: one of fifth degree has -45 / 32 in the middle of five.
        assert abs(error) < 1e-13 if degree < 5 else abs(error) > 0.1
