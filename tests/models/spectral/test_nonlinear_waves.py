"""Burgers, Korteweg-de Vries and Kuramoto-Sivashinsky against exact solutions, invariants and a converged table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive
from semilinear import largest, line, numbers, on, run, sample

from simjax.core.boundary import NoSlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.spectral.nonlinear_waves import KortewegDeVries, KuramotoSivashinsky, ViscousBurgers
from simjax.stepping.simulate import Schedule, simulate


def cole_hopf(x, t, viscosity):
    """Burgers from sin(x): u = -2 nu (log phi)_x, phi = sum of I_n(1 / 2 nu) cos(n x) exp(-n^2 nu t)."""
    n = np.arange(1, 60).reshape(-1, 1)
    # Scaled Bessel functions: the factor cancels.
    weight = 2 * ive(n, 1 / (2 * viscosity)) * np.exp(-(n**2) * viscosity * t)
    phi = ive(0, 1 / (2 * viscosity)) + np.sum(weight * np.cos(n * x), axis=0)
    return 2 * viscosity * np.sum(weight * n * np.sin(n * x), axis=0) / phi


def test_burgers_equals_the_cole_hopf_solution():
    model = on(line(256, 0, 2 * np.pi), ViscousBurgers)
    x = model.domain.grid.coordinates(0, 0.5)
    _, seen = run(model, numbers(ViscousBurgers, viscosity=0.1), sample(model, u=np.sin), 4.0, 0.0025, frames=8)
    for frame, t in ((0, 0.5), (1, 1.0), (3, 2.0), (7, 4.0)):
        # Coefficients have fallen below 1e-12 where they are cut, at 85; steps of 0.005 leave 3.5e-10, of fourth order.
        assert largest(seen["u"][frame] - cole_hopf(x, t, 0.1)) < 5e-11, t


def two_solitons(x, t, fast=1.0, slow=0.5):
    """u = 2 (log tau)_xx, tau = 1 + e_1 + e_2 + A e_1 e_2, e_i = exp(2 k_i x - 8 k_i^3 t)."""
    e1, e2 = (np.exp(2 * k * x - 8 * k**3 * t) for k in (fast, slow))
    both = ((fast - slow) / (fast + slow)) ** 2 * e1 * e2
    tau = 1 + e1 + e2 + both
    first, second = ((2 * fast) ** m * e1 + (2 * slow) ** m * e2 + (2 * fast + 2 * slow) ** m * both for m in (1, 2))
    return 2 * (second / tau - (first / tau) ** 2)


# Steps of 1e-3 leave 2.5e-8, of fourth order: 1.5e-9 and 6e-12; 640 cells leave 1e-10, 800 leave 1e-12; rounding of
# 32,000 steps adds up to another 1e-11.
@pytest.mark.parametrize("n, dt, bound", [(640, 5e-4, 2e-9), pytest.param(800, 1.25e-4, 2e-11, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_two_solitons_of_korteweg_de_vries_overtake_and_nothing_is_lost(n, dt, bound):
    model = on(line(n, -40, 40), KortewegDeVries)
    params, x = numbers(KortewegDeVries), model.domain.grid.coordinates(0, 0.5)
    start = sample(model, u=lambda x: two_solitons(x, -2.0))

    def look(t, state, params):
        return model.observe(t, state, params)["u"], model.diagnostics(t, state, params)

    _, (u, invariants) = run(model, params, start, 4.0, dt, frames=4, look=look)
    for frame, t in enumerate((-1.0, 0.0, 1.0, 2.0)):
        assert largest(u[frame] - two_solitons(x, t)) < bound, t
    first = model.diagnostics(0.0, start, params)
    # 4 (k1 + k2), 8/3 (k1^3 + k2^3) and -32/5 (k1^5 + k2^5) on the line; the box cuts tails of exp(-32) off.
    for name, exact in {"mass": 6.0, "momentum": 3.0, "energy": -6.6}.items():
        np.testing.assert_allclose(first[name], exact, rtol=1e-12)
    # The mass is one coefficient, which nothing touches; the rest is changed by the steps alone, at fifth order: steps
    # of 1e-3 take 1e-9 of the energy.
    np.testing.assert_allclose(invariants["mass"], first["mass"], rtol=1e-14)
    np.testing.assert_allclose(invariants["momentum"], first["momentum"], rtol=5e-11)
    np.testing.assert_allclose(invariants["energy"], first["energy"], rtol=5e-11)


# u at x = 2 pi j, j = -3..3, from cos(x/16) (1 + sin(x/16)) on a line of 32 pi (a converged spectral solution), and how
# far one with 256 modes and steps of 1/20 is from it.
CHAOS = {
    10: (
        1.5e-07,
        [
            -0.0095577123380,
            0.1187550669406,
            0.3323425852144,
            0.5879678733693,
            0.8579304759279,
            1.1248581239294,
            1.4160354121313,
        ],
    ),
    20: (
        8e-08,
        [
            -0.0420034440899,
            0.0791748079856,
            0.2363235702543,
            0.4131803808326,
            0.5951208044663,
            0.8106338555163,
            1.1219484634267,
        ],
    ),
    30: (
        2.2e-07,
        [
            0.0952979809186,
            0.0192242876048,
            0.1902440334321,
            0.3111985972605,
            0.5017513784271,
            0.5400403431686,
            0.9270849506465,
        ],
    ),
    50: (
        7.3e-06,
        [
            0.7203260544544,
            0.8712168189810,
            0.9187417720566,
            -0.9131499278808,
            0.7135629167739,
            -0.9358464828436,
            -2.4940717767313,
        ],
    ),
}


def test_kuramoto_sivashinsky_equals_a_converged_solution_while_it_can_be_predicted():
    """To its own last figures with 384 cells and steps of 1/40, though errors grow exponentially in the chaos."""
    n, length = 384, 32 * np.pi
    half = 0.5 * length / n
    model = on(line(n, -half, length - half), KuramotoSivashinsky)
    start = sample(model, u=lambda x: np.cos(x / 16) * (1 + np.sin(x / 16)))
    _, seen = run(model, numbers(KuramotoSivashinsky), start, 50.0, 0.025, frames=5)
    for t, (coarse, values) in CHAOS.items():
        found = np.roll(seen["u"][t // 10 - 1][:: n // 16], 3)[:7]
        assert largest(found - values) < 0.01 * coarse, t


def test_waves_of_kuramoto_sivashinsky_grow_and_decay_at_the_rates_of_the_linear_equation():
    model = on(line(64, 0, 32 * np.pi), KuramotoSivashinsky)
    x = model.domain.grid.coordinates(0, 0.5)
    waves, end, small = np.array([3, 8, 12, 17]) / 16, 4.0, 1e-7
    start = sample(model, u=lambda x: small * sum(np.cos(k * x) for k in waves))
    params = numbers(KuramotoSivashinsky, instability=1.1, damping=0.9)
    _, seen = run(model, params, start, end, 0.5)
    amplitudes = [2 * np.mean(seen["u"][0] * np.cos(k * x)) / small for k in waves]
    # Exact in the linear part; waves of 1e-7 change each other by about as much.
    np.testing.assert_allclose(np.log(amplitudes) / end, 1.1 * waves**2 - 0.9 * waves**4, atol=1e-6)


@pytest.mark.slow
def test_slope_of_the_front_obeys_the_equation_of_slopes():
    """d/dx of the equation of heights, truncated as it is: equal to rounding."""
    grid, params = line(48, 0, 22.0), numbers(KuramotoSivashinsky)
    heights, slopes = on(grid, KuramotoSivashinsky, integral=True), on(grid, KuramotoSivashinsky)
    start = sample(heights, u=lambda x: np.cos(2 * np.pi * x / 22) + 0.3 * np.sin(6 * np.pi * x / 22))
    (k,) = heights.basis.wavenumbers(np.float64)
    end, _ = run(heights, params, start, 2.0, 0.1)
    expected, _ = run(slopes, params, {"u": slopes.derivative(k, start["u"])}, 2.0, 0.1)
    # 80 evaluations of terms of order ten.
    assert largest(slopes.derivative(k, end["u"]) - expected["u"]) < 1e-12


def test_kuramoto_sivashinsky_of_a_slope_is_refused_in_two_dimensions():
    with pytest.raises(ConfigurationError, match="integral=True"):
        KuramotoSivashinsky(Domain(Grid((8, 8))))


def test_walls_are_refused():
    with pytest.raises(ConfigurationError, match="boundaries.x=periodic"):
        ViscousBurgers(Domain(Grid((8,))), [(NoSlipWall(), NoSlipWall())])


@pytest.mark.slow
def test_viscosity_of_burgers_has_the_derivative_of_the_cole_hopf_solution():
    """Through all steps, against differences of the exact solution, whose own error is of the second order."""
    model = on(line(64, 0, 2 * np.pi), ViscousBurgers)
    x = model.domain.grid.coordinates(0, 0.5)
    weight, end, step = jnp.asarray(np.cos(x + 0.4) + np.sin(2 * x)), 1.0, 1e-4
    start = sample(model, u=np.sin)

    def loss(viscosity):
        params = {"viscosity": viscosity}
        end_state = simulate(model, INTEGRATORS["etdrk4"], params, start, Schedule(end, dt=0.02), frames=1).state
        return jnp.mean(weight * model.to_grid(end_state["u"]))

    exact = [float(np.mean(weight * cole_hopf(x, end, 0.2 + h))) for h in (step, -step)]
    # step^2 times a third derivative of order one hundred.
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(0.2), (exact[0] - exact[1]) / (2 * step), rtol=1e-6)
