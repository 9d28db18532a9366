"""Explicit Runge-Kutta methods as tables; constraints are restored after every stage.

Three forms, because they differ in memory and in what survives limiting: Butcher tables, Shu-Osher convex
combinations (strong stability preserving), and Williamson's two-register form.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.tendency import tendency
from simjax.integrators.integrator import Integrator
from simjax.jaxpr.stages import stage as kept_stage
from simjax.jaxpr.varying import steady_carry
from simjax.ops.scaling import scaled
from simjax.stencil.materialise import formed_once


def _is_zero(number) -> bool:
    """Tell whether a coefficient is known to be zero while a program is traced; in a loop over stages none is."""
    return isinstance(number, float) and number == 0


def _later(t, fraction, dt):
    return t if _is_zero(fraction) else t + fraction * dt


def _combine(state, dt, weights, slopes):
    """state + dt * sum(weights * slopes), skipping weights known to be zero."""
    used = [(w, k) for w, k in zip(weights, slopes, strict=True) if not _is_zero(w)]

    def leaf(u, *slopes):
        total = sum(w * k for (w, _), k in zip(used[1:], slopes[1:], strict=True)) if len(used) > 1 else 0
        change = used[0][0] * slopes[0] + total
        return u + (scaled(dt, change) if isinstance(change, Array) and jnp.iscomplexobj(change) else dt * change)

    return jax.tree.map(leaf, state, *(k for _, k in used))


def weighted(dt, weights, slopes):
    """dt * sum(weights * slopes), skipping weights that are zero; not all are."""
    used = [(w, k) for w, k in zip(weights, slopes, strict=True) if w != 0]

    def leaf(*slopes):
        terms = [w * k for (w, _), k in zip(used, slopes, strict=True)]
        return scaled(dt, sum(terms[1:], terms[0]))

    return jax.tree.map(leaf, *(k for _, k in used))


@jax.custom_jvp
def _mean(alpha, u, v, change):
    """alpha u + (1 - alpha) (v + change), rounded once.

    Two weights that are rounded need not sum to one, and each step would lose mass: 3e-8 of it in single precision.
    """
    # Not (v + change) - u: that rounds by a part of the whole, and a smooth gas then drifts by more than at random.
    return u + (1 - alpha) * ((v - u) + change)


@_mean.defjvp
def _mean_slope(primals, tangents):
    """The same of tangents, as one of them and a share of a difference: its transpose reads the least."""
    alpha, _, u, v, change = primals[0], *tangents
    advanced = v + change
    return _mean(*primals), advanced + alpha * (u - advanced)


def through_stages(stage: Callable, carry, rows: Sequence[Sequence[float]], dt: Array, looped: bool):
    """`carry = stage(carry, row, number)` for the rows of a table, one after the other or in a loop.

    One after the other, a row and its number are Python's; in a loop they are traced. Reverse mode through the loop
    keeps the carry of every stage and computes the stage anew from it.
    """
    if not looped:
        for number, row in enumerate(rows):
            carry = stage(carry, row, number)
        return carry
    table = np.asarray(rows)

    def body(numbered):
        number, carry = numbered
        row = lax.dynamic_index_in_dim(jnp.asarray(table, dt.dtype), number, keepdims=False)
        return number + 1, jax.checkpoint(stage, prevent_cse=False)(carry, row, number)

    steady, numbered = steady_carry(body, (jnp.zeros((), jnp.int32), carry))
    return lax.scan(lambda numbered, _: (steady(numbered), None), numbered, length=len(table))[0][1]


class _Stages(Integrator):
    """Steps of stages, of a model with what time does not change formed once."""

    def kept_stages(self, model):
        # In a loop each stage has a checkpoint of its own.
        return 1 if model.loops_over_stages else self.stages

    def prepare(self, model, params, dt):
        return model.constant_parts(params)


class RungeKutta(_Stages):
    """u_i = u + dt sum_j a_ij k_j, k_j = rhs(t + c_j dt, u_j), u_new = u + dt sum_j b_j k_j."""

    order: int = eqx.field(static=True)
    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.b)

    def step(self, model, t, dt, state, params, prepared=None):
        return self.taken(model, t, dt, state, params, prepared, stored=False)[0]

    def taken(self, model, t, dt, state, params, prepared, *, stored: bool) -> tuple[Any, Sequence[Any]]:
        """The state at t + dt, and the slopes of all stages.

        stored: whether slopes that many stages read are kept as they are from being computed anew for each.
        """
        model = model if prepared is None else model.with_parts(prepared)

        looped = model.loops_over_stages and self.stages > 1

        def stage(carry, row, number):
            now, slopes = carry
            slope = tendency(model, "rhs", now, _later(t, row[-2], dt), now, params)
            if stored:
                slope = formed_once(slope)
            if looped:
                slopes = jax.tree.map(
                    lambda every, new: lax.dynamic_update_index_in_dim(every, new, number, 0), slopes, slope
                )
                known = [jax.tree.map(lambda every, k=k: every[k], slopes) for k in range(self.stages)]
            else:
                slopes = known = (*slopes, slope)
            now = _combine(state, dt, row[: len(known)], known)
            return kept_stage(model.constrain(_later(t, row[-1], dt), dt, now, params)), slopes

        # A row: weights of all slopes, the time of the stage and that of the next. In a loop, slopes that are not yet
        # known are zero and have the weight zero.
        weights = [[*row, *[0.0] * (self.stages - len(row))] for row in (*self.a, self.b)]
        times = [0.0, *map(sum, self.a), 1.0]
        rows = [[*row, times[k], times[k + 1]] for k, row in enumerate(weights)]
        none = jax.tree.map(lambda u: jnp.zeros((self.stages, *u.shape), u.dtype), state) if looped else ()
        after, slopes = through_stages(stage, (state, none), rows, dt, looped)
        if looped:
            slopes = [jax.tree.map(lambda every, k=k: every[k], slopes) for k in range(self.stages)]
        return after, slopes


class ShuOsher(_Stages):
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
        model = model if prepared is None else model.with_parts(prepared)

        def stage(now, row, number):
            alpha, beta, c, ahead = row
            slope = tendency(model, "rhs", now, _later(t, c, dt), now, params)

            def mixed(u, v, k):
                change = dt * beta * k
                return v + change if _is_zero(alpha) else _mean(alpha, u, v, change)

            mixture = jax.tree.map(mixed, state, now, slope)
            return kept_stage(model.constrain(_later(t, ahead, dt), dt, mixture, params))

        rows, c = [], 0.0
        for alpha, beta in self.rows:
            ahead = (1 - alpha) * (c + beta)
            rows.append((alpha, beta, c, ahead))
            c = ahead
        return through_stages(stage, state, rows, dt, model.loops_over_stages)


class LowStorage(_Stages):
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
        model = model if prepared is None else model.with_parts(prepared)

        def stage(carry, row, number):
            now, register = carry
            a, b, c, ahead = row
            slope = tendency(model, "rhs", now, _later(t, c, dt), now, params)
            register = jax.tree.map(lambda r, k: dt * k if _is_zero(a) else a * r + dt * k, register, slope)
            now = jax.tree.map(lambda u, r: u + b * r, now, register)
            return kept_stage(model.constrain(_later(t, ahead, dt), dt, now, params)), register

        rows = list(zip(self.a, self.b, self.c, (*self.c[1:], 1.0), strict=True))
        none = jax.tree.map(jnp.zeros_like, state)
        return through_stages(stage, (state, none), rows, dt, model.loops_over_stages)[0]


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
