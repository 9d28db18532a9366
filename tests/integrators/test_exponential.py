"""Exponential integrators: coefficients to rounding, order on a stiff problem, exactness without a nonlinear term."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.exponential import INTEGRATORS, phi_functions
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion
from simjax.models.spectral.base import SpectralModel
from simjax.ops.scaling import scaled
from simjax.stepping.simulate import Schedule, simulate


def exact_phi(z):
    """exp, phi_1, phi_2, phi_3 in extended precision: series for small arguments, halving and doubling for large ones.

    phi_k(2 z) follow from phi_k(z) by sums of like signs in the left half plane: phi_1(2z) = (e^z + 1) phi_1 / 2,
    phi_2(2z) = (phi_1^2 + 2 phi_2) / 4, phi_3(2z) = (phi_1 phi_2 + 2 phi_3 + phi_2) / 8.
    """
    z = np.asarray(z, np.clongdouble)
    halvings = max(0, int(np.ceil(np.log2(np.abs(z).max() + 1e-30))) + 1)
    w = z / np.longdouble(2) ** halvings
    factorial = [np.longdouble(math.factorial(k)) for k in range(34)]
    one, two, three = (sum(w**j / factorial[j + k] for j in range(30)) for k in (1, 2, 3))
    e = sum(w**j / factorial[j] for j in range(30))
    for _ in range(halvings):
        one, two, three = (e + 1) * one / 2, (one**2 + 2 * two) / 4, (one * two + 2 * three + two) / 8
        e = e * e
    return e, one, two, three


def arguments(kind):
    """From nothing to very stiff, closely around where the series ends."""
    sizes = np.concatenate([[0.0], np.logspace(-9, 4, 200), np.linspace(1.9, 2.1, 21)])
    turns = {"decaying": [-1.0], "dispersive": [1j, -1j], "both": [np.exp(2.5j), np.exp(-1.8j)]}[kind]
    z = np.concatenate([sizes * turn for turn in turns])
    return z.real if kind == "decaying" else z


@pytest.mark.parametrize("kind", ["decaying", "dispersive", "both"])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.slow
def test_coefficients_are_right_to_rounding(kind, single):
    """Also near |z| = 0, where the closed forms would have lost all digits, and for real and complex z of any size."""
    z = arguments(kind)
    z = z.astype({False: z.dtype, True: np.complex64 if z.dtype.kind == "c" else np.float32}[single])
    found = [np.asarray(p) for p in phi_functions(jnp.asarray(z))]
    assert all(p.dtype == z.dtype for p in found)
    roundings = np.finfo(z.dtype).eps
    for k, (p, exact) in enumerate(zip(found, map(np.squeeze, zip(*map(exact_phi, z), strict=True)), strict=True)):
        # In units of the largest value 1/k!. The exponential of an imaginary number turns by a rounding of z itself.
        turning = np.abs(z) if k == 0 else np.minimum(np.abs(z), 1)
        error = np.abs(p - exact) * math.factorial(k)
        assert np.all(error <= 4 * roundings * (1 + turning)), (k, z[np.argmax(error)], error.max())


def test_real_symbols_have_real_coefficients():
    model = Relaxation(Domain(Grid((8,), upper=(2 * np.pi,))))
    prepared = INTEGRATORS["etdrk4"].prepare(model, {"rate": jnp.asarray(10.0)}, 0.1)
    assert {leaf.dtype for leaf in jax.tree.leaves(prepared)} == {jnp.dtype(float)}


def test_coefficients_have_derivatives_at_zero_and_far_away():
    for z in (0.0, -1e-8, -1.0, -2.0, -50.0):
        slopes = jax.jacfwd(lambda z: jnp.stack(phi_functions(z)))(jnp.asarray(z))
        h = 1e-3
        around = [np.asarray(exact_phi(np.array([z + s * h]))).real.astype(float)[:, 0] for s in (-2, -1, 1, 2)]
        expected = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * h)
        # The difference formula's own error is h^4 / 30.
        np.testing.assert_allclose(slopes, expected, rtol=0, atol=1e-12)


class Relaxation(SpectralModel):
    """Fast relaxation to cos(t) with a square: du/dt = -rate (1 + k^2) u + rate cos(t) (1 + u^2 / 10)."""

    parameters = {"rate": 10.0}

    def symbol(self, k, params):
        return {"u": -params["rate"] * (1 + k[0] ** 2)}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.to_spectrum(params["rate"] * jnp.cos(t) * (1 + 0.1 * u * u))}


class Dispersion(SpectralModel):
    """Korteweg and de Vries: du/dt = -u_xxx - 3 (u^2)_x, whose symbol i k^3 is imaginary."""

    def symbol(self, k, params):
        return {"u": jax.lax.complex(jnp.zeros_like(k[0]), k[0] ** 3)}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.derivative(-3 * k[0], self.to_spectrum(u * u))}


def solve(model, params, integrator, dt, end):
    (x,) = model.domain.coordinates((0.5,))
    state = model.state_from({"u": (0.5 * jnp.exp(jnp.sin(x)),)}, params)
    schedule = Schedule(end, dt=dt)
    run = jax.jit(lambda s: simulate(model, INTEGRATORS[integrator], params, s, schedule, frames=1).state)
    return np.asarray(run(state)["u"])


@pytest.mark.parametrize("integrator, order", [("etdrk1", 1), ("etdrk2", 2), ("etdrk3", 3), ("etdrk4", 4)])
@pytest.mark.parametrize("kind, scale", [(Relaxation, 1.0), (Dispersion, 0.4)])
@pytest.mark.slow
def test_order_on_stiff_problems(integrator, order, kind, scale):
    """dt times the largest eigenvalue is up to 12 for the first and 3.4 for the second."""
    assert INTEGRATORS[integrator].order == INTEGRATORS[integrator].stages == order
    model = kind(Domain(Grid((24,), upper=(2 * np.pi,))))
    params = {"rate": jnp.asarray(10.0)} if kind is Relaxation else {}
    end = 0.8 * scale
    exact = solve(model, params, "etdrk4", end / 4096, end)
    steps = (32, 64, 128)
    errors = [np.abs(solve(model, params, integrator, end / n, end) - exact).max() for n in steps]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert errors[0] > 1e-9  # above rounding: there is something to measure
    # The measured slope rises to the order from below as the step falls.
    assert order - 0.3 < slopes[-1] < order + 0.6, (slopes, errors)


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.slow
def test_a_linear_equation_is_solved_exactly_by_one_step(integrator):
    class Wave(SpectralModel):
        """du/dt = -u_x + u_xx / 10."""

        def symbol(self, k, params):
            return {"u": jax.lax.complex(-0.1 * k[0] ** 2, -k[0])}

        def nonlinear(self, t, k, state, params):
            return {"u": jnp.zeros_like(state["u"])}

    model = Wave(Domain(Grid((12,), upper=(2 * np.pi,))))
    (x,) = model.domain.coordinates((0.5,))
    state = model.state_from({"u": (jnp.sin(3 * x),)}, {})
    final = INTEGRATORS[integrator].step(model, 0.0, 0.7, state, {}, None)
    expected = np.exp(-0.9 * 0.7) * jnp.sin(3 * (x - 0.7))
    # The phase, up to 17, is rounded.
    np.testing.assert_allclose(model.observe(0.7, final, {})["u"], expected, rtol=0, atol=5e-15)


def test_ten_thousand_steps_of_an_unstable_equation_stay_real():
    """The linear part amplifies by exp(200) what a real field does not have: it must be taken out every step."""

    class Pattern(SpectralModel):
        """Swift and Hohenberg: du/dt = 0.2 u - (1 + lap)^2 u - u^3."""

        kept = 1 / 2

        def symbol(self, k, params):
            return {"u": 0.2 - (1 - k[0] ** 2 - k[1] ** 2) ** 2}

        def nonlinear(self, t, k, state, params):
            return {"u": -self.to_spectrum(self.to_grid(state["u"]) ** 3)}

    side = 4 * np.pi
    model = Pattern(Domain(Grid((12, 12), upper=(side, side))))
    x, y = model.domain.coordinates((0.5, 0.5))
    state = model.state_from({"u": (0.1 * jnp.cos(x + 0.5 * y) + 0.05 * jnp.sin(x) * jnp.cos(y),)}, {})
    schedule = Schedule(1000.0, dt=0.1)
    final = jax.jit(lambda s: simulate(model, INTEGRATORS["etdrk1"], {}, s, schedule, frames=1, checkpoint="none"))(
        state
    ).state["u"]
    assert 0.01 < float(jnp.abs(final).max()) < 1
    symmetric = model.to_spectrum(model.to_grid(final))
    np.testing.assert_allclose(final, symmetric, rtol=0, atol=1e-15)


def test_models_without_a_diagonal_part_are_refused():
    model = AdvectionDiffusion.__new__(AdvectionDiffusion)
    with pytest.raises(ConfigurationError, match="etdrk2 needs a model with a diagonal linear part"):
        INTEGRATORS["etdrk2"].prepare(model, None, 0.1)


def test_products_of_real_and_complex_numbers():
    z = jnp.asarray([1 + 2j, -3j])
    np.testing.assert_array_equal(scaled(jnp.asarray([2.0, 3.0]), z), [2 + 4j, -9j])
    np.testing.assert_array_equal(scaled(jnp.asarray([1j, 2.0]), z), [-2 + 1j, -6j])
    assert scaled(2.0, z.astype(jnp.complex64)).dtype == jnp.complex64
