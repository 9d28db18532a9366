"""The trigonometric transforms against their defining sums, and what they are for: they diagonalise the Laplacian."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.ops.difference import laplacian
from simjax.solvers.transforms import COSINE, FOURIER, SINE

TRANSFORMS = {"fourier": (FOURIER, Periodic), "cosine": (COSINE, Neumann), "sine": (SINE, Dirichlet)}
# Small ones, where packing has its special cases, two powers of two, an odd one; the rest repeat them.
USUAL = (1, 2, 3, 4, 5, 8, 15, 16)
SIZES = [pytest.param(n, marks=[] if n in USUAL else pytest.mark.slow) for n in range(1, 17)]
# Sums of at most 16 products of order one, a few roundings each.
ROUNDING = 1e-13


def basis(name, n):
    """Rows of the defining sum, `(packed index, point)`, from the half-waves that each packed entry claims."""
    _, found = results(name, n)
    m, j = np.asarray(found["half waves"])[:, None], np.arange(n)
    if name == "cosine":
        return np.cos(np.pi * m * (j + 0.5) / n)
    if name == "sine":
        return np.sin(np.pi * m * (j + 0.5) / n)
    real = np.arange(n)[:, None] <= n // 2
    return np.where(real, np.cos(np.pi * m * j / n), -np.sin(np.pi * m * j / n))


def field(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@functools.cache
def results(name, n):
    """Everything asked of one transform at one size, in one compiled program: (u, a dict of results)."""
    transform, boundary = TRANSFORMS[name]
    grid = Grid((n,), (0.0,), (1.7,))
    layout = center_layout([(boundary(), boundary())])

    @functools.partial(jax.jit, compiler_options=QUICK)
    def evaluate(u):
        difference = Domain(grid).apply(lambda p: laplacian(p, grid.spacing), u, layout, width=1)
        return {
            "forward": transform.forward(u, 1),
            "there and back": transform.inverse(transform.forward(u, 1), 1),
            "back and there": transform.forward(transform.inverse(u, 1), 1),
            "of the difference": transform.forward(difference, 1),
            "half waves": transform.half_waves(jnp.arange(n), n),
            "eigenvalues": transform.eigenvalues(jnp.arange(n, dtype=u.dtype), n, grid.spacing[0]),
        }

    u = field((3, n))
    return u, evaluate(u)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_forward_is_the_defining_sum(name, n):
    u, found = results(name, n)
    np.testing.assert_allclose(found["forward"], u @ basis(name, n).T, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.slow
def test_any_axis_may_be_transformed(name, n):
    transform, _ = TRANSFORMS[name]
    u, expected, axes = field((n, n, n)), basis(name, n), (0, 1, 2, -3, -1)
    forward = jax.jit(lambda u: [transform.forward(u, axis) for axis in axes])(u)
    inverse = jax.jit(lambda found: [transform.inverse(v, axis) for v, axis in zip(found, axes, strict=True)])
    for result, axis in zip(forward, (0, 1, 2, 0, 2), strict=True):
        moved = np.moveaxis(np.tensordot(expected, u, (1, axis)), 0, axis)
        np.testing.assert_allclose(result, moved, rtol=0, atol=ROUNDING)
    for result in inverse(forward):
        np.testing.assert_allclose(result, u, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_inverse_undoes_forward(name, n):
    u, found = results(name, n)
    np.testing.assert_allclose(found["there and back"], u, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(found["back and there"], u, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_packing_keeps_size_type_and_every_wave_once(name, n):
    transform, _ = TRANSFORMS[name]
    u = jax.ShapeDtypeStruct((n, 2), jnp.float32)
    for direction in (transform.forward, transform.inverse):
        result = jax.eval_shape(functools.partial(direction, axis=0), u)
        assert result.shape == u.shape and result.dtype == u.dtype
    expected = {
        "cosine": range(n),
        "sine": range(1, n + 1),
        "fourier": [2 * k for k in [*range(n // 2 + 1), *range(1, (n + 1) // 2)]],
    }
    _, found = results(name, n)
    assert sorted(found["half waves"].tolist()) == sorted(expected[name])


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_transforms_diagonalise_the_second_difference(name, n):
    _, found = results(name, n)
    largest = 4 * (n / 1.7) ** 2  # of the operator's eigenvalues, by which the difference amplifies rounding
    expected = found["eigenvalues"][None] * found["forward"]
    np.testing.assert_allclose(found["of the difference"], expected, rtol=0, atol=ROUNDING * largest)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", SIZES)
def test_only_the_constant_has_eigenvalue_zero(name, n):
    """Exactly zero: the solve knows the singular wave by it."""
    _, found = results(name, n)
    values = np.asarray(found["eigenvalues"])
    assert np.sum(values == 0) == (0 if name == "sine" else 1)
    # The longest wave has -(pi / length)^2, on the coarsest grid 0.4 of it.
    assert np.all(values[values != 0] < -0.4 * (np.pi / 1.7) ** 2)
