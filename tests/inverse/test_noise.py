"""Noise models: squares of residuals are twice rho, derivatives at zero and at kinks, outliers, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import check_decompositions, random
from refusals import refusals

from simjax.grid import Grid
from simjax.inverse.methods.noise import GaussianNoise, HuberNoise, RelativeNoise, StudentNoise

# A noise model of deviation 0.5 and its rho(z), by numpy.
DEVIATION = 0.5
NOISES = {
    "gaussian": (GaussianNoise(DEVIATION), lambda z: z**2 / 2),
    "relative": (RelativeNoise(0.1, DEVIATION), lambda z: z**2 / 2),
    "student": (StudentNoise(DEVIATION, 4.0), lambda z: 2.5 * np.log1p(z**2 / 4)),
    "cauchy": (StudentNoise(DEVIATION, 1.0), lambda z: np.log1p(z**2)),
    "huber": (HuberNoise(DEVIATION, 1.3), lambda z: np.where(np.abs(z) < 1.3, z**2 / 2, 1.3 * np.abs(z) - 1.3**2 / 2)),
}
each_noise = pytest.mark.parametrize("name", NOISES)
MEASURED = 2.0


def residual(name):
    """r(z), a scalar function."""
    noise = NOISES[name][0]
    return lambda z: noise.residuals(MEASURED + DEVIATION * z, jnp.asarray(MEASURED))


@each_noise
@pytest.mark.slow
def test_half_the_square_is_rho_and_the_sign_is_kept(name):
    z = jnp.asarray([-1e6, -30.0, -1.3, -1.2, -0.3, -1e-3, -1e-9, 0.0, 1e-5, 0.1414, 0.1415, 0.9, 1.4, 8.0, 1e12])
    found = np.asarray(jax.vmap(residual(name))(z))
    # z itself comes from a difference of numbers around 2.
    np.testing.assert_allclose(0.5 * found**2, NOISES[name][1](np.asarray(z)), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(np.sign(found), np.sign(z))


@each_noise
@pytest.mark.slow
def test_derivatives_are_those_of_rho_in_both_modes(name):
    """r r' = rho', and at zero, where a root has none, r' = sqrt(rho'') and r'' = 0."""
    r, rho = residual(name), NOISES[name][1]
    z = jnp.asarray([-30.0, -1.5, -0.2, -0.01, 0.01, 0.141, 0.142, 0.5, 2.0, 50.0])
    backward, forward = jax.jit(jax.vmap(jax.grad(r)))(z), jax.jit(jax.vmap(jax.jacfwd(r)))(z)
    np.testing.assert_allclose(backward, forward, rtol=1e-14)
    step = 1e-6
    slope = (rho(np.asarray(z) + step) - rho(np.asarray(z) - step)) / (2 * step)
    # Central differences: truncation step^2, rounding 1e-16 rho / step.
    np.testing.assert_allclose(jax.vmap(r)(z) * backward, slope, rtol=1e-7, atol=1e-8)
    zero = jnp.asarray(0.0)
    curvature = {"student": 1.25, "cauchy": 2.0}.get(name, 1.0)
    for slope in (jax.grad(r)(zero), jax.jacfwd(r)(zero)):
        np.testing.assert_allclose(slope, np.sqrt(curvature), rtol=1e-14)
    np.testing.assert_allclose(jax.hessian(r)(zero), 0, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_robust_noise_is_continuous_where_its_formulas_meet():
    """Value and slope on both sides of Huber's threshold and of the series of Student's logarithm."""
    for name, kink in (("huber", 1.3), ("student", np.sqrt(4 * 0.02))):
        ends = jnp.asarray([kink - 1e-7, kink + 1e-7])
        values, slopes = jax.vmap(jax.value_and_grad(residual(name)))(ends)
        np.testing.assert_allclose(values[1] - values[0], slopes[0] * 2e-7, rtol=0, atol=1e-13)
        # Both are smooth to first order: slopes differ by the second derivative times the step.
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=0, atol=1e-6)


def test_an_outlier_moves_a_robust_mean_little():
    """The best constant for 20 measurements around 1 and one of 100."""
    measured = jnp.asarray(np.append(1 + 0.1 * np.random.default_rng(0).normal(size=20), 100.0))

    def best(noise):
        def residuals(mean):
            return noise.residuals(jnp.full(measured.shape, mean), measured)

        def update(_, mean):
            r, slope = jax.jvp(residuals, (mean,), (jnp.ones(()),))
            return mean - jnp.vdot(slope, r) / jnp.vdot(slope, slope)

        return float(jax.jit(lambda: jax.lax.fori_loop(0, 100, update, jnp.asarray(1.2)))())

    assert best(GaussianNoise(0.1)) == pytest.approx(float(measured.mean()))
    assert abs(best(StudentNoise(0.1, 4.0)) - 1) < 0.05
    assert abs(best(HuberNoise(0.1, 1.345)) - 1) < 0.1


def test_deviations_broadcast_and_relative_noise_has_a_floor():
    predicted, measured = jnp.zeros((2, 3)), jnp.asarray([[1.0, 2.0, 4.0], [-10.0, 0.0, 20.0]])
    found = GaussianNoise(jnp.asarray([0.5, 1.0, 2.0])).residuals(predicted, measured)
    np.testing.assert_array_equal(found, [[-2.0, -2.0, -2.0], [20.0, 0.0, -10.0]])
    found = RelativeNoise(0.5, 1.0).residuals(predicted, measured)
    np.testing.assert_array_equal(found, [[-1.0, -2.0, -2.0], [2.0, 0.0, -2.0]])
    assert GaussianNoise(0.5).residuals(predicted.astype(jnp.float32), measured.astype(jnp.float32)).dtype == np.float32


@each_noise
@pytest.mark.slow
def test_neither_values_nor_derivatives_depend_on_the_decomposition(name):
    grid = Grid((4, 8))
    check_decompositions(
        lambda domain, u, v: NOISES[name][0].residuals(u, v),
        grid,
        [{"x": 2, "y": 4}],
        (random(grid.shape), random(grid.shape, 1)),
        (True, True),
        lambda domain: domain.spec(),
    )


REFUSALS = {
    "deviation": (
        lambda: GaussianNoise(-0.1),
        "GaussianNoise.deviation must be positive and finite, got -0.1; write the instrument's standard deviation.",
    ),
    "floor": (
        lambda: RelativeNoise(0.05, 0.0),
        "RelativeNoise.floor must be positive and finite, got 0; write the deviation of small measurements.",
    ),
    "degrees": (
        lambda: StudentNoise(1.0, 0.0),
        "StudentNoise.degrees must be positive and finite, got 0; write a number of degrees of freedom such as 4.",
    ),
    "threshold": (
        lambda: HuberNoise(1.0, float("inf")),
        "HuberNoise.threshold must be positive and finite, got inf; write a number of deviations such as 1.345.",
    ),
    "shapes": (
        lambda: GaussianNoise(1.0).residuals(jnp.zeros(3), jnp.zeros(4)),
        "Expected predictions of shape (4,), that of the measurements, got (3,); write one "
        "measurement for each value that the operator returns.",
    ),
}


test_refusals_say_what_came_and_what_to_write = refusals(REFUSALS)
