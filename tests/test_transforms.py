"""The trigonometric transforms against their defining sums, and what they are for: they diagonalise the Laplacian."""

import jax.numpy as jnp
import numpy as np
import pytest

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.core.grid import Grid
from simjax.ops.difference import laplacian
from simjax.solvers.transforms import COSINE, FOURIER, SINE

TRANSFORMS = {"fourier": (FOURIER, Periodic), "cosine": (COSINE, Neumann), "sine": (SINE, Dirichlet)}
SIZES = range(1, 17)
# Sums of at most 16 products of order one, a few roundings each.
ROUNDING = 1e-13


def half_waves(transform, n):
    return np.asarray(transform.half_waves(jnp.arange(n), n))


def basis(name, n):
    """Rows of the defining sum, `(packed index, point)`, from the half-waves that each packed entry claims."""
    transform, _ = TRANSFORMS[name]
    m, j = half_waves(transform, n)[:, None], np.arange(n)
    if name == "cosine":
        return np.cos(np.pi * m * (j + 0.5) / n)
    if name == "sine":
        return np.sin(np.pi * m * (j + 0.5) / n)
    real = np.arange(n)[:, None] <= n // 2
    return np.where(real, np.cos(np.pi * m * j / n), -np.sin(np.pi * m * j / n))


def field(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
def test_forward_is_the_defining_sum_along_any_axis(name, n):
    transform, _ = TRANSFORMS[name]
    u = field((2, n, 3))
    expected = np.einsum("kj,ajb->akb", basis(name, n), u)
    np.testing.assert_allclose(transform.forward(u, 1), expected, rtol=0, atol=ROUNDING * n)
    for axis, along in ((0, (1, 0, 2)), (2, (0, 2, 1)), (-1, (0, 2, 1))):
        moved = transform.forward(u.transpose(along), axis).transpose(along)
        np.testing.assert_allclose(moved, expected, rtol=0, atol=ROUNDING * n)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("axis", [0, -1])
def test_inverse_undoes_forward(name, n, axis):
    transform, _ = TRANSFORMS[name]
    u = field((n, 2) if axis == 0 else (2, n))
    np.testing.assert_allclose(transform.inverse(transform.forward(u, axis), axis), u, rtol=0, atol=ROUNDING * n)
    np.testing.assert_allclose(transform.forward(transform.inverse(u, axis), axis), u, rtol=0, atol=ROUNDING * n)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
def test_packing_keeps_size_type_and_every_wave_once(name, n):
    transform, _ = TRANSFORMS[name]
    u = field((n, 2)).astype(jnp.float32)
    for result in (transform.forward(u, 0), transform.inverse(u, 0)):
        assert result.shape == u.shape and result.dtype == u.dtype
    expected = {
        "cosine": range(n),
        "sine": range(1, n + 1),
        "fourier": [2 * k for k in [*range(n // 2 + 1), *range(1, (n + 1) // 2)]],
    }
    assert sorted(half_waves(transform, n)) == sorted(expected[name])


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
def test_transforms_diagonalise_the_second_difference(name, n):
    transform, boundary = TRANSFORMS[name]
    grid = Grid((n,), (0.0,), (1.7,))
    u = field((3, n))
    layout = center_layout([(boundary(), boundary())])
    difference = Domain(grid).apply(lambda p: laplacian(p, grid.spacing), u, layout, width=1)
    values = transform.eigenvalues(jnp.arange(n, dtype=u.dtype), n, grid.spacing[0])
    scale = 4 / grid.spacing[0] ** 2  # the largest eigenvalue there can be
    np.testing.assert_allclose(
        transform.forward(difference, -1), values[None] * transform.forward(u, -1), rtol=0, atol=ROUNDING * n * scale
    )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_only_the_constant_has_eigenvalue_zero(name):
    """Exactly zero, since the solve tells a singular wave by it."""
    transform, _ = TRANSFORMS[name]
    for n in SIZES:
        values = np.asarray(transform.eigenvalues(jnp.arange(n, dtype=float), n, 0.1))
        assert np.sum(values == 0) == (0 if name == "sine" else 1)
        # The longest wave has -(pi / length)^2, to within a factor 0.4 on the coarsest grid.
        assert np.all(values[values != 0] < -0.4 * (np.pi / (0.1 * n)) ** 2)
