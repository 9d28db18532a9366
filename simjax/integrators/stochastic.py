"""Schemes for models with white noise: stochastic Runge-Kutta methods, by the tables of diffrax.

W is the increment of a Brownian path in a step and H its space-time Levy area, as diffrax defines them: independent,
with variances dt and dt / 12. They are drawn here by the number of the step, as `diffrax.UnsafeBrownianPath` draws them
by its times: fresh for every step. That class has a key for a whole array, which a device that has a part of it cannot
use, and one for each cell takes several times as many random bits; `diffrax.VirtualBrownianTree` knows the path between
steps too, at the price of some tens of draws for each cell and step.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import shown
from simjax.core.model import ExplicitModel, Model
from simjax.core.tendency import tendency
from simjax.core.white_noise import WhiteNoise, standard_normals
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.stages import stage as kept_stage

Row = tuple[float, ...]
Kick = tuple[Array, Array] | None
"""Increments g W and g H of a field, g its amplitude; None where it has no noise."""


class Stochastic(Integrator):
    """u_i = u + dt sum_j a_ij f_j + g (v_i W + h_i H), u_new = u + dt sum_j b_j f_j + g W, in Ito's sense.

    f_j is the tendency at stage j, g the amplitude at the step's beginning. order: that without noise. strong_order:
    that of a path; of `euler_maruyama` it is one where the noise is additive. additive: whether g must not depend on
    the state; of such a scheme the change of g in time is part of the step.

    Kloeden and Platen (1992), 10.2; Foster, dos Reis and Strange (2023), arXiv:2210.17543, eq. 6.1.

    Examples:
        >>> scheme = sj.stochastic("shark")
        >>> scheme.strong_order, scheme.additive
        (1.5, True)
    """

    order: int = eqx.field(static=True)
    strong_order: float = eqx.field(static=True)
    additive: bool = eqx.field(static=True)
    a: tuple[Row, ...] = eqx.field(static=True)
    b: Row = eqx.field(static=True)
    v: Row = eqx.field(static=True)
    h: Row = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True, default=1.0)

    @property
    def stages(self) -> int:
        return len(self.b)

    def kept_stages(self, model):
        return self.stages + (1 if self.v[0] or self.h[0] else 0)

    def prepare(self, model, params, dt):
        return model.constant_parts(params)

    def step(self, model, t, dt, state, params, prepared=None):
        raise ConfigurationError(
            "A scheme for noise draws by the number of a step: call numbered_step, simulate or integrate, not step."
        )

    def numbered_step(self, model, number, t, dt, state, params, prepared=None):
        model = model if prepared is None else model.with_parts(prepared)
        noise = model.white_noise(t, state, params)
        with part("noise"):
            paths = self.paths(model, noise, number, dt, state)
            kicks = _kicks(noise.amplitudes, paths)
        now, slopes = state, ()
        times = (0.0, *map(sum, self.a))
        for row, time, v, h in zip(((), *self.a), times, self.v, self.h, strict=True):
            if row or v or h:
                now = _moved(state, dt, row, slopes, kicks, v, h)
                now = kept_stage(model.constrain(t + time * dt, dt, now, params))
            slopes = (*slopes, tendency(model, "rhs", now, t + time * dt, now, params))
        after = _moved(state, dt, self.b, slopes, kicks, 1.0, 0.0)
        if self.additive:
            # The path's integral against a g that changes evenly in the step.
            later = model.white_noise(t + dt, state, params).amplitudes
            change = jax.tree.map(lambda new, old: None if new is None else new - old, later, noise.amplitudes)
            after = _moved(after, dt, (), (), _kicks(change, paths), 0.5, -1.0)
        return kept_stage(model.constrain(t + dt, dt, after, params))

    def paths(self, model, noise: WhiteNoise, number, dt, state) -> list[Kick]:
        """W and H of this step in the cells of this block, for each leaf of the state that has noise."""
        # The derivative of a square root at zero is infinite; steps that are not taken may have no length.
        root = jnp.where(dt > 0, jnp.sqrt(jnp.where(dt > 0, dt, 1)), 0)
        found: list[Kick] = []
        for field, (u, amplitude) in enumerate(zip(*_leaves(state, noise.amplitudes), strict=True)):
            if amplitude is None:
                found.append(None)
                continue
            w, h = standard_normals(model.domain, noise.seed, number, field, u.dtype)
            found.append((root.astype(u.dtype) * w, (root / math.sqrt(12)).astype(u.dtype) * h))
        return found


def _leaves(state, amplitudes) -> tuple[list[Array], list[Any]]:
    """Fields and their amplitudes, None for those without noise."""
    return jax.tree.leaves(state), jax.tree.leaves(amplitudes, is_leaf=lambda leaf: leaf is None)


def _kicks(amplitudes, paths: list[Kick]) -> list[Kick]:
    given = jax.tree.leaves(amplitudes, is_leaf=lambda leaf: leaf is None)
    both = zip(given, paths, strict=True)
    return [None if path is None else (g * path[0], g * path[1]) for g, path in both]


def _moved(state, dt, weights: Row, slopes, kicks: list[Kick], v: float, h: float):
    """state + dt sum(weights * slopes) + g (v W + h H)."""
    leaves, tree = jax.tree.flatten(state)
    rates = [jax.tree.leaves(slope) for slope in slopes]
    moved = []
    for field, (u, kick) in enumerate(zip(leaves, kicks, strict=True)):
        for weight, rate in zip(weights, rates, strict=True):
            u = u + dt * (weight * rate[field])
        if kick is not None:
            for factor, change in zip((v, h), kick, strict=True):
                u = u + factor * change if factor else u
        moved.append(u)
    return tree.unflatten(moved)


def require_noise(model: Model, integrator: Integrator, t, state, params) -> None:
    """Refuse a scheme that does not fit the noise of a model.

    Raises:
        ConfigurationError: the scheme draws no noise and the model has some, or the other way round; or the amplitude
            depends on the state, in a scheme for additive noise.
    """
    name, scheme = type(model).__name__, type(integrator).__name__
    noise = model.white_noise(t, state, params) if isinstance(model, ExplicitModel) else None
    if not isinstance(integrator, Stochastic):
        if noise is not None:
            raise ConfigurationError(
                f"{name} has noise: expected a scheme that draws it, got {scheme}; write "
                "sj.stochastic('euler_maruyama') in its place."
            )
        return
    if noise is None:
        raise ConfigurationError(
            f"sj.stochastic(...): {name} has no noise; define noise(t, state, params) in a CenteredModel, or write "
            "INTEGRATORS['rk4']."
        )
    if integrator.additive and _depends(model, t, state, params):
        raise ConfigurationError(
            f"sj.stochastic('shark') is for additive noise, and {name}.noise depends on the state; write "
            "sj.stochastic('euler_maruyama')."
        )


def _depends(model: Any, t, state, params) -> bool:
    """Tell whether the amplitude of the noise has a derivative with respect to the state, be it zero."""

    def amplitudes(state):
        noise = model.white_noise(t, state, params)
        return None if noise is None else noise.amplitudes

    ones = jax.tree.map(jnp.ones_like, state)
    return bool(jax.tree.leaves(eqx.filter_jvp(amplitudes, (state,), (ones,))[1]))


def _euler_maruyama() -> Stochastic:
    return Stochastic(order=1, strong_order=0.5, additive=False, a=(), b=(1.0,), v=(0.0,), h=(0.0,))


def _additive(order: int, strong_order: float, table: Any) -> Stochastic:
    def row(numbers) -> Row:
        return tuple(float(number) for number in numbers)

    return Stochastic(
        order=order,
        strong_order=strong_order,
        additive=True,
        a=tuple(map(row, table.a)),
        b=row(table.b_sol),
        v=row(table.coeffs_w.a),
        h=row(table.coeffs_hh.a),
    )


def _shark() -> Stochastic:
    from simjax.integrators import diffrax_tables

    return _additive(2, 1.5, diffrax_tables.SHARK)


SCHEMES: dict[str, Callable[[], Stochastic]] = {"euler_maruyama": _euler_maruyama, "shark": _shark}


def stochastic(name: str) -> Stochastic:
    """The scheme of a name for a model with `noise`, in Ito's sense.

    "euler_maruyama": for any amplitude; paths of order 1/2, of order one where the amplitude does not depend on the
    state. "shark": for amplitudes that do not; paths of order 3/2, by two evaluations of the tendency.

    Raises:
        ConfigurationError: there is no such scheme.

    Examples:
        >>> class Walk(sj.CenteredModel):
        ...     "A random walk in every cell."
        ...
        ...     fields, parameters = ("u",), {"sigma": 1.0}
        ...
        ...     def rhs(self, t, state, params):
        ...         return {"u": 0 * state["u"]}
        ...
        ...     def noise(self, t, state, params):
        ...         return {"u": params["sigma"]}
        ...
        ...     def stable_dt(self, state, params):
        ...         return jnp.inf
        >>> walk = Walk(sj.Domain(sj.Grid((8,))), [(sj.PeriodicSide(), sj.PeriodicSide())], seed=1)
        >>> start = {"u": jnp.zeros(8)}
        >>> end = sj.integrate(walk, sj.stochastic("euler_maruyama"), {"sigma": 0.1}, start, dt=0.1, steps=10)
    """
    if not isinstance(name, str) or name not in SCHEMES:
        raise ConfigurationError(f"stochastic({shown(name)}): expected one of {', '.join(SCHEMES)}.")
    return _scheme(name)


@functools.cache
def _scheme(name: str) -> Stochastic:
    return SCHEMES[name]()
