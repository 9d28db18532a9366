"""Implicit-explicit Runge-Kutta: orders, stiffness, and the same table for solves of any kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ordinary import WithoutSpace

from simjax.core.domain import Domain
from simjax.core.model import SemiImplicitModel, SemilinearModel
from simjax.grid import Grid
from simjax.integrators.imex import INTEGRATORS

each = pytest.mark.parametrize("name", INTEGRATORS)


class Stiff(WithoutSpace, SemiImplicitModel):
    """(u, v)' = explicit (v u, -u^2 + 2 u cos t) + implicit rate (v - u, u - v); `params` is the rate."""

    domain: Domain

    def __init__(self):
        self.domain = Domain(Grid((1,)))

    def explicit_rhs(self, t, state, params):
        u, v = state
        return v * u, -(u**2) + 2 * u * jnp.cos(t)

    def implicit_rhs(self, t, state, params):
        u, v = state
        return params * (v - u), params * (u - v)

    def implicit_solve(self, t, dt, right, params, prepared):
        total, difference = right[0] + right[1], (right[0] - right[1]) / (1 + 2 * dt * params)
        return (total + difference) / 2, (total - difference) / 2

    def explicit_stable_dt(self, state, params):
        return jnp.asarray(0.5)

    def stable_dt(self, state, params):
        return 1 / (2 + 2 * params)


class Modes(Stiff, SemilinearModel):
    """Three modes with rates (0, -1 + 4 i, -params) and an explicit coupling."""

    def linear(self, params):
        return jnp.stack([jnp.zeros_like(params), (-1 + 4j) * jnp.ones_like(params), -params])

    def explicit_rhs(self, t, state, params):
        return jnp.roll(state, 1) * state[::-1] * 0.3 + jnp.cos(t)

    implicit_rhs = SemilinearModel.implicit_rhs
    implicit_solve = SemilinearModel.implicit_solve


def march(integrator, model, state, params, end, steps):
    dt = end / steps

    def body(k, state):
        return integrator.step(model, k * dt, dt, state, params, integrator.prepare(model, params, dt))

    return jax.jit(lambda state: jax.lax.fori_loop(0, steps, body, state))(state)


def gap(a, b):
    return sum(float(jnp.max(jnp.abs(x - y))) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@each
@pytest.mark.parametrize("kind", ["stiff", "modes"])
@pytest.mark.slow
def test_measured_order_is_the_scheme_s(name, kind):
    """Against the same scheme of the highest order with sixteen times as many steps."""
    integrator = INTEGRATORS[name]
    if kind == "stiff":
        model, start, params = Stiff(), (jnp.full(1, 1.0), jnp.full(1, 0.3)), jnp.asarray(3.0)
    else:
        model, start, params = Modes(), jnp.asarray([0.5, 0.4 + 0.2j, 0.3]), jnp.asarray(5.0 + 0j)
    best = march(INTEGRATORS["ars343"], model, start, params, 1.2, 2560)
    errors = [gap(march(integrator, model, start, params, 1.2, n), best) for n in (80, 160)]
    # The next term is smaller by the step times a rate of about five: a tenth of the order.
    assert abs(np.log2(errors[0] / errors[1]) - integrator.order) < 0.2


@each
def test_stages_and_times(name):
    """Explicit tendencies, solves and constraints at the times of the stages; the last one at the end of the step."""
    visited = []

    class Recorded(Stiff):
        def explicit_rhs(self, t, state, params):
            visited.append(("explicit", round(float(t), 9)))
            return super().explicit_rhs(t, state, params)

        def implicit_solve(self, t, dt, right, params, prepared):
            visited.append(("solve", round(float(t), 9)))
            return super().implicit_solve(t, dt, right, params, prepared)

        def constrain(self, t, dt, state, params):
            visited.append(("constrain", round(float(t), 9)))
            return state

    integrator = INTEGRATORS[name]
    integrator.step(Recorded(), 2.0, 0.5, (jnp.ones(1), jnp.ones(1)), 1.0)
    times = {kind: [t for k, t in visited if k == kind] for kind in ("explicit", "solve", "constrain")}
    assert len(times["explicit"]) == integrator.stages and times["explicit"][0] == 2.0
    assert times["constrain"][-1] == 2.5
    assert times["solve"] == [round(2 + 0.5 * sum(row), 9) for row in integrator.implicit]
    # A stage's time is the same on both sides of the table.
    for explicit, implicit in zip(integrator.explicit, integrator.implicit, strict=True):
        assert sum(explicit) == pytest.approx(sum(implicit), abs=1e-9)
    assert sum(integrator.weights) == pytest.approx(1.0, abs=1e-12)


@each
def test_stiff_differences_are_gone_after_a_long_step(name):
    """u - v decays at 2e8; a step of 0.01 leaves u = v to the inverse of their product."""
    u, v = INTEGRATORS[name].step(Stiff(), 0.0, 0.01, (jnp.full(1, 1.0), jnp.full(1, 0.3)), 1e8)
    # Explicit terms of order one drive them apart by 0.01 / (2e6) at most, and stiffly by their combination.
    assert abs(float((u - v)[0])) < 0.02
    assert abs(float((u + v)[0]) - 1.3) < 0.05


@pytest.mark.parametrize("name", ["ars343", "ars443"])
def test_the_stated_limit_is_near_the_end_of_stability(name):
    """|amplification| on the imaginary axis, where central advection is: at most one at the limit, above 10 % on."""

    class Rotation(Stiff):
        def explicit_rhs(self, t, state, params):
            return 1j * state

        def implicit_solve(self, t, dt, right, params, prepared):
            return right

    def amplification(dt):
        return abs(complex(INTEGRATORS[name].step(Rotation(), 0.0, dt, jnp.asarray(1.0 + 0j), None)))

    # To a rounding of the tables.
    assert amplification(INTEGRATORS[name].courant_limit) <= 1 + 1e-9
    assert amplification(1.1 * INTEGRATORS[name].courant_limit) > 1


@each
def test_only_the_explicit_part_limits_the_step(name):
    assert float(INTEGRATORS[name].stable_dt(Stiff(), None, jnp.asarray(1e6))) == 0.5
