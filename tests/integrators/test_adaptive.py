"""Schemes that estimate their error: their order, that of the estimate, and the refusal of other names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ordinary import Decay, Ordinary

import simjax as sj
from simjax.core.model import SemiImplicitModel
from simjax.errors import ConfigurationError
from simjax.integrators.adaptive import SCHEMES
from simjax.integrators.integrator import Allowed

NAMES = tuple(SCHEMES)
EXPLICIT = ("bosh3", "tsit5", "dopri8")


class Turning(Ordinary, SemiImplicitModel):
    """du/dt = i u + i |u|^2 u / 2 + cos t, of two numbers; the first term may be taken implicitly."""

    def explicit_rhs(self, t, state, params):
        x, y = state
        size = 0.5 * (x * x + y * y)
        return -size * y + jnp.cos(t), size * x

    def implicit_rhs(self, t, state, params):
        x, y = state
        return -y, x

    def implicit_solve(self, t, dt, right, params, prepared):
        x, y = right
        scale = 1 / (1 + dt * dt)
        return scale * (x - dt * y), scale * (y + dt * x)

    def explicit_stable_dt(self, state, params):
        return self.stable_dt(state, params)


def attempt(name, model, state, dt, t=0.0, params=None):
    """The state after a step, and the estimate of its error, of stages that are exact to 1e-10."""
    allowed = Allowed.by(model, 1e-10, 1e-10, state, state)
    return sj.error_controlled(name).attempt(model, jnp.asarray(t), jnp.asarray(dt), state, params, None, allowed)


def march(name, steps, end=1.0):
    model, dt = Turning(), end / steps

    def one(k, state):
        return attempt(name, model, state, dt, k * dt)[0]

    return jax.jit(lambda state: jax.lax.fori_loop(0, steps, one, state))((jnp.full(1, 0.7), jnp.full(1, -0.2)))


def gap(a, b):
    return float(jnp.max(jnp.abs(jnp.stack(a) - jnp.stack(b))))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "tsit5" else pytest.mark.slow) for n in NAMES])
def test_measured_order_is_the_scheme_s(name):
    """Against the scheme of order eight with many steps."""
    steps = {"dopri8": 8, "tsit5": 8, "kvaerno5": 8, "kencarp4": 10, "bosh3": 20}[name]
    best = march("dopri8", 64)
    errors = [gap(march(name, n), best) for n in (steps, 2 * steps)]
    # The next term is smaller by the step times a rate of about one; tsit5 gains on it, its leading error being small.
    assert np.log2(errors[0] / errors[1]) > sj.error_controlled(name).order - 0.4


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "tsit5" else pytest.mark.slow) for n in NAMES])
def test_the_estimate_falls_with_the_order(name):
    """The control takes its steps to the power that it is told: an estimate of dt^order."""
    start, dt = (jnp.full(1, 0.7), jnp.full(1, -0.2)), 0.2 if name == "dopri8" else 0.05
    errors = [gap(attempt(name, Turning(), start, h)[1], (jnp.zeros(1), jnp.zeros(1))) for h in (dt, dt / 2)]
    # The next term is smaller by the step times a rate of about two. dopri8 has an estimate of order eight or better.
    slope = np.log2(errors[0] / errors[1])
    assert abs(slope - sj.error_controlled(name).order) < (1.2 if name == "dopri8" else 0.4)


@pytest.mark.parametrize("name", ["kvaerno5", pytest.param("kencarp4", marks=pytest.mark.slow)])
def test_stiff_modes_are_damped_to_nothing(name):
    """A step of a million time scales, of what is taken implicitly."""

    class Stiff(Decay, SemiImplicitModel):
        def explicit_rhs(self, t, state, params):
            return jnp.zeros_like(state)

        def implicit_rhs(self, t, state, params):
            return -params * state

        def implicit_solve(self, t, dt, right, params, prepared):
            return right / (1 + dt * params)

        def explicit_stable_dt(self, state, params):
            return self.stable_dt(state, params)

    model = Decay() if name == "kvaerno5" else Stiff()
    after, _ = attempt(name, model, jnp.ones(1), 1.0, params=jnp.asarray(1e6))
    # L-stable: what is left is of the order of the inverse of the step in time scales.
    assert float(jnp.abs(after[0])) < 1e-4


def test_other_names_are_refused():
    with pytest.raises(ConfigurationError) as caught:
        sj.error_controlled("rk4")
    assert str(caught.value) == "error_controlled('rk4'): expected one of tsit5, bosh3, dopri8, kvaerno5, kencarp4."
    with pytest.raises(ConfigurationError, match=r"error_controlled\(\['tsit5'\]\): expected one of tsit5"):
        sj.error_controlled(["tsit5"])  # pyright: ignore[reportArgumentType]
