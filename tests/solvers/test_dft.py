"""Fourier transforms as products with matrices, against numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax import lax

from simjax.solvers import dft

# One matrix, even and odd; two factors: equal, both odd, and a prime one.
SIZES = (1, 2, 7, 8, 256, 3 * 43, 2 * 131)


@pytest.fixture
def matrices(monkeypatch):
    """Transforms as they are compiled for a TPU."""
    monkeypatch.setattr(dft, "platform", lambda: "tpu")


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def errors(n, dtype):
    """Relative error of each transform and its inverse, in the 2-norm."""
    u, v = numbers((2, n, 3)), numbers((2, n, 3)) + 1j * numbers((2, n, 3), 1)
    half = np.fft.rfft(u, axis=1)
    kind = jnp.complex64 if dtype == jnp.float32 else jnp.complex128
    pairs = {
        "fft": (dft.fft, v, kind, np.fft.fft(v, axis=1)),
        "ifft": (dft.ifft, v, kind, np.fft.ifft(v, axis=1)),
        "rfft": (dft.rfft, u, dtype, half),
        "irfft": (lambda w, axis: dft.irfft(w, n, axis), half, kind, u),
    }

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(values):
        return {name: pairs[name][0](value, 1) for name, value in values.items()}

    found = run({name: jnp.asarray(value, to) for name, (_, value, to, _) in pairs.items()})
    return {
        name: np.linalg.norm(np.asarray(found[name]) - expected) / np.linalg.norm(expected)
        for name, (_, _, _, expected) in pairs.items()
    }


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_products_are_the_transforms(matrices, n):
    assert dft.by_matrices(n)
    # Two sums of at most 131 products of order one; rounding grows as their square root, and numpy has its own.
    assert max(errors(n, jnp.float64).values()) < 2e-15 * 131**0.5


@pytest.mark.parametrize("n", [512, pytest.param(16384, marks=pytest.mark.slow)])
def test_single_precision_keeps_six_digits(matrices, n):
    # Measured on a CPU: 1.2e-7 at 512 points and 3.5e-7 at 16 384, where jnp.fft has 1.1e-7 and 1.4e-7.
    assert max(errors(n, jnp.float32).values()) < {512: 2e-7, 16384: 5e-7}[n]


def test_any_axis_and_leading_axes(matrices):
    u = numbers((3, 6, 5))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(u):
        there = [dft.rfft(u, axis) for axis in (0, 1, -1)]
        back = [dft.irfft(v, u.shape[axis], axis) for v, axis in zip(there, (0, 1, -1), strict=True)]
        return there, back, jax.vmap(dft.rfft)(u)

    there, back, members = run(jnp.asarray(u))
    for found, again, axis in zip(there, back, (0, 1, -1), strict=True):
        np.testing.assert_allclose(found, np.fft.rfft(u, axis=axis), rtol=0, atol=1e-13)
        np.testing.assert_allclose(again, u, rtol=0, atol=1e-13)
    np.testing.assert_allclose(members, there[-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [6, 130])
@pytest.mark.slow
def test_gradients_are_those_of_the_fft(monkeypatch, n):
    """Of a loss that sees every wave, through a transform and back."""
    u, weight = jnp.asarray(numbers((2, n))), jnp.asarray(numbers((2, n // 2 + 1), 1).astype(complex))

    def loss(u):
        return jnp.sum(jnp.sin(dft.irfft(weight * dft.rfft(u), n))) + jnp.sum(
            jnp.abs(dft.fft(lax.complex(u, u))) ** 2 * 0.01
        )

    plain, products = jax.jit(jax.grad(loss)), jax.jit(lambda u: jax.grad(loss)(u))
    plain = plain(u)
    monkeypatch.setattr(dft, "platform", lambda: "tpu")
    np.testing.assert_allclose(products(u), plain, rtol=0, atol=1e-12 * float(jnp.abs(plain).max()))


def test_large_factors_are_left_to_the_compiler_with_a_reason(matrices):
    assert not dft.by_matrices(2 * 521) and "no two factors up to 512" in dft.reason(2 * 521)
    assert dft.by_matrices(2 * 509) and "509 and 2 points" in dft.reason(2 * 509)


def test_processors_without_a_matrix_unit_take_the_fft():
    assert not dft.by_matrices(16) and "by an FFT" in dft.reason(16)
