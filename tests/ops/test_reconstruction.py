"""Face values: exact for polynomials, of their order, mirrored, bounded, and free of units."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.ops.reconstruction import (
    INTERPOLATIONS,
    LIMITERS,
    RECONSTRUCTIONS,
    around_faces,
    difference_of_faces,
    pad_only,
    values_at_faces,
)

SECOND = [name for name, scheme in INTERPOLATIONS.items() if scheme.order == 2]


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def face_states(u, axis, ndim, scheme):
    """(left, right) on the n + 1 faces of a block that is padded along `axis` only."""
    return values_at_faces(around_faces(u, axis, ndim, scheme.width), scheme)


def cells(n, width, average, wave=1):
    """sin(wave 2 pi x) on n cells of the unit line and `width` ghosts, points or averages, and exact face values."""
    h, k = 1 / n, 2 * np.pi * wave
    x = (np.arange(-width, n + width) + 0.5) * h
    factor = np.sin(k * h / 2) / (k * h / 2) if average else 1.0
    return jnp.asarray(factor * np.sin(k * x + 0.3)), np.sin(k * np.arange(n + 1) * h + 0.3)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("name", ["first_order", *SECOND, "weno5"])
@pytest.mark.slow
def test_smooth_face_values_are_of_the_order_of_the_scheme(name, average):
    scheme = (RECONSTRUCTIONS if average else INTERPOLATIONS)[name]
    errors = []
    for n in (40, 80, 160):
        u, exact = cells(n, scheme.width, average)
        left, right = face_states(u, 0, 1, scheme)
        errors.append(float(jnp.abs(left - exact).mean() + jnp.abs(right - exact).mean()))
    slope = np.log2(errors[-2] / errors[-1])
    # Limiters clip the extrema, the number of which does not grow: the mean error keeps its order but for a share
    # of cells that falls like 1 / n; the weights of the smooth scheme approach their limits like h^2.
    assert abs(slope - scheme.order) < (0.1 if scheme.order != 2 else 0.25), errors


@pytest.mark.parametrize("average", [True, False])
def test_weno_is_exact_for_parabolas_and_limited_slopes_for_lines(average):
    x = np.arange(-3, 11) + 0.5
    mean_of_square = x**2 + (1 / 12 if average else 0.0)
    faces = np.arange(9.0)
    table = RECONSTRUCTIONS if average else INTERPOLATIONS
    for value in face_states(jnp.asarray(2 + 3 * x - 0.7 * mean_of_square), 0, 1, table["weno5"]):
        np.testing.assert_allclose(value, 2 + 3 * faces - 0.7 * faces**2, rtol=0, atol=1e-13)
    for name in SECOND:
        for value in face_states(jnp.asarray(2 + 3 * x[1:-1]), 0, 1, table[name]):
            np.testing.assert_allclose(value, 2 + 3 * faces, rtol=0, atol=1e-14)


@pytest.mark.parametrize("table", [RECONSTRUCTIONS, INTERPOLATIONS])
@pytest.mark.parametrize("name", ["first_order", *LIMITERS, "weno5"])
@pytest.mark.slow
def test_the_mirror_image_has_the_mirrored_face_values(name, table):
    u = jnp.asarray(np.random.default_rng(0).normal(size=(4, 20)))
    left, right = face_states(u, 1, 2, table[name])
    mirrored_left, mirrored_right = face_states(u[:, ::-1], 1, 2, table[name])
    np.testing.assert_array_equal(mirrored_left[:, ::-1], right)
    np.testing.assert_array_equal(mirrored_right[:, ::-1], left)


@pytest.mark.parametrize("name", LIMITERS)
@pytest.mark.slow
def test_limiters_are_symmetric_and_keep_to_the_monotone_region(name):
    a, b = (jnp.asarray(v) for v in np.random.default_rng(1).normal(size=(2, 500)))
    limiter = jax.jit(LIMITERS[name])
    slope = limiter(a, b)
    np.testing.assert_array_equal(slope, limiter(b, a))
    np.testing.assert_array_equal(-slope, limiter(-a, -b))
    assert bool(jnp.all(jnp.where(a * b <= 0, slope == 0, slope * a > 0)))
    # Sweby's region; a rounding of the harmonic mean.
    assert bool(jnp.all(jnp.abs(slope) <= 2 * jnp.minimum(jnp.abs(a), jnp.abs(b)) * (1 + 1e-15)))
    assert bool(jnp.all(jnp.isfinite(jax.jit(jax.jacfwd(LIMITERS[name]))(jnp.zeros(3), jnp.zeros(3)))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e6])
def test_weno_does_not_overshoot_a_jump_at_any_scale(dtype, size):
    u = jnp.asarray(size * (np.arange(20) >= 10), dtype)
    for value in face_states(u, 0, 1, INTERPOLATIONS["weno5"]):
        # A parabola across the jump would overshoot by an eighth.
        assert -1e-4 * size <= float(value.min()) and float(value.max()) <= (1 + 1e-4) * size
    np.testing.assert_array_equal(face_states(0 * u, 0, 1, INTERPOLATIONS["weno5"])[0], 0)


def test_derivative_in_a_uniform_state_is_that_of_the_ideal_weights():
    u = jnp.full(6, 0.7)
    slope = jax.jit(jax.grad(lambda u: face_states(u, 0, 1, INTERPOLATIONS["weno5"])[0][0]))(u)
    # A few roundings, squared, over the 1024 that count as none, squared.
    np.testing.assert_allclose(slope, [3 / 128, -20 / 128, 90 / 128, 60 / 128, -5 / 128, 0], rtol=0, atol=1e-5)


def test_cutting_and_differencing_along_each_axis():
    u = jnp.asarray(np.random.default_rng(2).normal(size=(3, 9, 10, 11)))

    @functools.partial(jax.jit, static_argnums=1)
    def cut(u, axis):
        line = pad_only(u, axis, 3, 2)
        around = around_faces(line, axis, 3, 2)
        return line, around, difference_of_faces(around[1], axis, 3, 0.5)

    for axis in range(3):
        line, around, slope = cut(u, axis)
        shape = [3, 5, 6, 7]
        shape[axis + 1] += 4
        assert line.shape == tuple(shape)
        assert len(around) == 4 and around[0].shape[axis + 1] == (5, 6, 7)[axis] + 1
        np.testing.assert_allclose(slope, np.diff(around[1], axis=axis + 1) / 0.5, rtol=1e-15)
