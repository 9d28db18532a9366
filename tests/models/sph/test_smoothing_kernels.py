"""Smoothing kernels: unit integral, derivative, compact support, and sums over a lattice."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.models.sph.kernels import SMOOTHING_KERNELS

CASES = list(itertools.product(SMOOTHING_KERNELS, (1, 2, 3)))
LENGTH = 0.7


@pytest.mark.parametrize(("name", "ndim"), CASES)
@pytest.mark.slow
def test_the_integral_is_one(name, ndim):
    kernel = SMOOTHING_KERNELS[name](LENGTH, ndim)
    # Gauss's rule is exact for each polynomial between whole numbers of q, up to rounding.
    nodes, weights = np.polynomial.legendre.leggauss(12)
    sphere = (2, 2 * math.pi, 4 * math.pi)[ndim - 1]
    total = 0.0
    for piece in range(int(kernel.reach)):
        r = (piece + (nodes + 1) / 2) * LENGTH
        total += np.sum(weights / 2 * LENGTH * sphere * r ** (ndim - 1) * kernel.value(jnp.asarray(r**2)))
    assert abs(total - 1) < 1e-14


@pytest.mark.parametrize(("name", "ndim"), CASES)
@pytest.mark.slow
def test_the_slope_is_the_derivative(name, ndim):
    kernel = SMOOTHING_KERNELS[name](LENGTH, ndim)
    r = jnp.linspace(0.01, 1.05 * kernel.support, 57)
    exact = jax.vmap(jax.grad(lambda r: kernel.value(r * r)))(r)
    # Differences of the splines' powers cancel to some 100 roundings.
    np.testing.assert_allclose(kernel.slope(r * r) * r, exact, rtol=0, atol=1e-13)
    step = 1e-5
    difference = (kernel.value((r + step) ** 2) - kernel.value((r - step) ** 2)) / (2 * step)
    # step^2 / 6 times a third derivative of at most 1e3, and 1e-16 / step of rounding.
    np.testing.assert_allclose(kernel.slope(r * r) * r, difference, rtol=0, atol=2e-8)


@pytest.mark.parametrize(("name", "ndim"), CASES)
@pytest.mark.slow
def test_the_support_is_compact_and_the_middle_smooth(name, ndim):
    kernel = SMOOTHING_KERNELS[name](LENGTH, ndim)
    square = jnp.asarray([1.0, 1.0001, 4.0]) * kernel.support**2
    # Of the quintic's powers rounding is left at the rim.
    np.testing.assert_allclose(kernel.value(square), 0, atol=1e-15)
    np.testing.assert_allclose(kernel.slope(square), 0, atol=1e-15)
    assert np.all(np.asarray(kernel.value(0.99 * square[:1])) > 0)
    both = jax.vmap(jax.value_and_grad(lambda s: kernel.value(s) + kernel.slope(s)))(jnp.zeros((2,)))
    assert np.all(np.isfinite(both))


# Errors of the sum over a lattice at spacings h / 1.5: those of the kernel's Fourier transform at the lattice's waves.
@pytest.mark.parametrize(
    ("name", "error"), [("cubic_spline", 5e-3), ("quintic_spline", 2e-4), ("wendland_c2", 5e-3), ("wendland_c4", 3e-3)]
)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.slow
def test_sums_over_a_lattice_are_nearly_one(name, error, ndim):
    kernel = SMOOTHING_KERNELS[name](1.5, ndim)
    index = np.arange(-6, 7)
    for place in np.random.default_rng(0).random((5, ndim)):
        offsets = np.stack(np.meshgrid(*(index - x for x in place), indexing="ij")).reshape(ndim, -1)
        total = jnp.sum(kernel.value(jnp.asarray(np.sum(offsets**2, axis=0))))
        assert abs(total - 1) < error
