"""Explicit Runge-Kutta methods as tables; constraints are restored after every stage.

Three forms, because they differ in memory and in what survives limiting: Butcher tables, Shu-Osher convex
combinations (strong stability preserving), and Williamson's two-register form.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.varying import steady_carry
from simjax.integrators.integrator import Integrator


def _combine(state, dt, weights, tendencies):
    """state + dt * sum(weights * tendencies), skipping zero weights."""
    used = [(w, k) for w, k in zip(weights, tendencies, strict=True) if w != 0]

    def leaf(u, *slopes):
        total = sum(w * k for (w, _), k in zip(used[1:], slopes[1:], strict=True)) if len(used) > 1 else 0
        return u + dt * (used[0][0] * slopes[0] + total)

    return jax.tree.map(leaf, state, *(k for _, k in used)) if used else state


def _looped(stage: Callable, carry, rows: Sequence[Sequence[float]], dt: Array):
    """`carry = stage(carry, row, number)` for the rows of a table, as a loop.

    Reverse mode keeps the carry of every stage and computes the stage anew from it.
    """
    table = np.asarray(rows)

    def body(numbered):
        number, carry = numbered
        row = lax.dynamic_index_in_dim(jnp.asarray(table, dt.dtype), number, keepdims=False)
        return number + 1, jax.checkpoint(stage, prevent_cse=False)(carry, row, number)

    steady, numbered = steady_carry(body, (jnp.zeros((), jnp.int32), carry))
    return lax.scan(lambda numbered, _: (steady(numbered), None), numbered, length=len(table))[0][1]


class RungeKutta(Integrator):
    """u_i = u + dt sum_j a_ij k_j, k_j = rhs(t + c_j dt, u_j), u_new = u + dt sum_j b_j k_j."""

    order: int = eqx.field(static=True)
    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.b)

    def step(self, model, t, dt, state, params, prepared=None):
        if self.stages > 1 and model.loops_over_stages:
            return self._step_in_loop(model, t, dt, state, params)
        slopes = [model.rhs(t, state, params)]
        for row in self.a:
            time = t + sum(row) * dt
            stage = model.constrain(time, dt, _combine(state, dt, row, slopes), params)
            slopes.append(model.rhs(time, stage, params))
        return model.constrain(t + dt, dt, _combine(state, dt, self.b, slopes), params)

    def _step_in_loop(self, model, t, dt, state, params):
        """Slopes that are not yet known are zero and have the weight zero."""

        def stage(carry, row, number):
            now, slopes = carry
            weights, c, ahead = row[:-2], row[-2], row[-1]
            slope = model.rhs(t + c * dt, now, params)
            slopes = jax.tree.map(
                lambda known, new: lax.dynamic_update_index_in_dim(known, new, number, 0), slopes, slope
            )

            def combined(u, known):
                total = sum((weights[k] * known[k] for k in range(1, self.stages)), weights[0] * known[0])
                return u + dt * total

            return model.constrain(t + ahead * dt, dt, jax.tree.map(combined, state, slopes), params), slopes

        rows = [[*row, *[0.0] * (self.stages - len(row))] for row in (*self.a, self.b)]
        times = [0.0, *map(sum, self.a), 1.0]
        table = [[*row, times[k], times[k + 1]] for k, row in enumerate(rows)]
        none = jax.tree.map(lambda u: jnp.zeros((self.stages, *u.shape), u.dtype), state)
        return _looped(stage, (state, none), table, dt)[0]


class ShuOsher(Integrator):
    """u_i = alpha_i u + (1 - alpha_i) (u_{i-1} + dt beta_i rhs(t + c_{i-1} dt, u_{i-1})), u_0 = u.

    Each row is (alpha_i, beta_i). Shu and Osher (1988), J. Comput. Phys. 77, 439.
    """

    order: int = eqx.field(static=True)
    rows: tuple[tuple[float, float], ...] = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.rows)

    def step(self, model, t, dt, state, params, prepared=None):
        if self.stages > 1 and model.loops_over_stages:
            return self._step_in_loop(model, t, dt, state, params)
        stage, c = state, 0.0
        for alpha, beta in self.rows:
            slope = model.rhs(t + c * dt, stage, params)
            c = (1 - alpha) * (c + beta)
            stage = jax.tree.map(
                lambda u, v, k, alpha=alpha, beta=beta: alpha * u + (1 - alpha) * (v + dt * beta * k)
                if alpha
                else v + dt * beta * k,
                state, stage, slope,
            )  # fmt: skip
            stage = model.constrain(t + c * dt, dt, stage, params)
        return stage

    def _step_in_loop(self, model, t, dt, state, params):
        def stage(now, row, number):
            alpha, beta, c, ahead = row
            slope = model.rhs(t + c * dt, now, params)
            mixed = jax.tree.map(
                lambda u, v, k: alpha * u + (1 - alpha) * (v + dt * beta * k), state, now, slope
            )  # fmt: skip
            return model.constrain(t + ahead * dt, dt, mixed, params)

        table, c = [], 0.0
        for alpha, beta in self.rows:
            ahead = (1 - alpha) * (c + beta)
            table.append((alpha, beta, c, ahead))
            c = ahead
        return _looped(stage, state, table, dt)


class LowStorage(Integrator):
    """r = a_i r + dt rhs(t + c_i dt, u); u = u + b_i r: two registers, whatever the order.

    Williamson (1980), J. Comput. Phys. 35, 48.
    """

    order: int = eqx.field(static=True)
    a: tuple[float, ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    c: tuple[float, ...] = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.b)

    def step(self, model, t, dt, state, params, prepared=None):
        if self.stages > 1 and model.loops_over_stages:
            return self._step_in_loop(model, t, dt, state, params)
        register = None
        for i, (a, b) in enumerate(zip(self.a, self.b, strict=True)):
            slope = model.rhs(t + self.c[i] * dt, state, params)
            if register is None:
                register = jax.tree.map(lambda k: dt * k, slope)
            else:
                register = jax.tree.map(lambda r, k, a=a: a * r + dt * k, register, slope)
            ahead = self.c[i + 1] if i + 1 < self.stages else 1.0
            state = jax.tree.map(lambda u, r, b=b: u + b * r, state, register)
            state = model.constrain(t + ahead * dt, dt, state, params)
        return state

    def _step_in_loop(self, model, t, dt, state, params):
        def stage(carry, row, number):
            now, register = carry
            a, b, c, ahead = row
            slope = model.rhs(t + c * dt, now, params)
            register = jax.tree.map(lambda r, k: a * r + dt * k, register, slope)
            now = jax.tree.map(lambda u, r: u + b * r, now, register)
            return model.constrain(t + ahead * dt, dt, now, params), register

        times = (*self.c[1:], 1.0)
        table = list(zip(self.a, self.b, self.c, times, strict=True))
        return _looped(stage, (state, jax.tree.map(jnp.zeros_like, state)), table, dt)[0]


# Stability along the imaginary axis: 1.73 for three stages of order three, 2.83 for the classical fourth order;
# forward Euler and second-order methods lean on diffusion and are held to one.
INTEGRATORS: dict[str, Integrator] = {
    "euler": RungeKutta(order=1, a=(), b=(1.0,), courant_limit=1.0),
    "midpoint": RungeKutta(order=2, a=((0.5,),), b=(0.0, 1.0), courant_limit=1.0),
    "heun": RungeKutta(order=2, a=((1.0,),), b=(0.5, 0.5), courant_limit=1.0),
    "ssprk2": ShuOsher(order=2, rows=((0.0, 1.0), (0.5, 1.0)), courant_limit=1.0),
    "kutta3": RungeKutta(order=3, a=((0.5,), (-1.0, 2.0)), b=(1 / 6, 2 / 3, 1 / 6), courant_limit=1.7),
    "ssprk3": ShuOsher(order=3, rows=((0.0, 1.0), (3 / 4, 1.0), (1 / 3, 1.0)), courant_limit=1.7),
    "williamson3": LowStorage(
        order=3,
        a=(0.0, -5 / 9, -153 / 128),
        b=(1 / 3, 15 / 16, 8 / 15),
        c=(0.0, 1 / 3, 3 / 4),
        courant_limit=1.7,
    ),
    "rk4": RungeKutta(
        order=4, a=((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), b=(1 / 6, 1 / 3, 1 / 3, 1 / 6), courant_limit=2.7
    ),
}
"""midpoint, heun: Runge (1895); kutta3, rk4: Kutta (1901); ssprk: Shu and Osher (1988);
williamson3: Williamson (1980), case 7."""
