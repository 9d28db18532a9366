"""Schemes that estimate the error of each step, by the tables of diffrax."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.arguments import shown
from simjax.errors import ConfigurationError
from simjax.integrators import diffrax_tables
from simjax.integrators.implicit import DiagonallyImplicit
from simjax.integrators.integrator import ErrorControlled
from simjax.integrators.runge_kutta import RungeKutta, weighted
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.stages import stage as kept_stage
from simjax.ops.scaling import scaled

Row = tuple[float, ...]


class Embedded(ErrorControlled):
    """A Runge-Kutta method with weights of its slopes that tell how far it is from one of lower order."""

    order: int = eqx.field(static=True)
    scheme: RungeKutta
    error: Row = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return self.scheme.stages

    def kept_stages(self, model):
        return self.scheme.kept_stages(model)

    def prepare(self, model, params, dt):
        return self.scheme.prepare(model, params, dt)

    def step(self, model, t, dt, state, params, prepared=None):
        return self.scheme.taken(model, t, dt, state, params, prepared, stored=True)[0]

    def attempt(self, model, t, dt, state, params, prepared, allowed):
        after, slopes = self.scheme.taken(model, t, dt, state, params, prepared, stored=True)
        return after, weighted(dt, self.error, slopes)


class Additive(ErrorControlled):
    """u_i = u + dt sum_{j<i} (e_ij f_j + a_ij g_j) + dt a_ii g_i, u_new = u + dt sum_i b_i (f_i + g_i).

    f is the explicit tendency of the model and g the implicit one, which the model itself solves for. error: weights of
    f + g that tell how far the result is from that of a method of lower order.
    """

    order: int = eqx.field(static=True)
    explicit: tuple[Row, ...] = eqx.field(static=True)
    implicit: tuple[Row, ...] = eqx.field(static=True)
    b: Row = eqx.field(static=True)
    error: Row = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.b)

    def prepare(self, model, params, dt):
        return model.prepare(params)

    def stable_dt(self, model, state, params):
        return model.explicit_stable_dt(state, params)

    def step(self, model, t, dt, state, params, prepared=None):
        return self._taken(model, t, dt, state, params, prepared)[0]

    def attempt(self, model, t, dt, state, params, prepared, allowed):
        after, slopes = self._taken(model, t, dt, state, params, prepared)
        return after, weighted(dt, self.error, slopes)

    def _taken(self, model, t, dt, state, params, prepared):
        """The state at t + dt, and f + g of all stages."""
        prepared = model.prepare(params) if prepared is None else prepared
        with part("tendency"):
            explicit, implicit = [model.explicit_rhs(t, state, params)], [model.implicit_rhs(t, state, params)]
        for e, (*a, diagonal) in zip(self.explicit, self.implicit, strict=True):
            known = jax.tree.map(jnp.add, weighted(dt, e, explicit), weighted(dt, a, implicit))
            right, time = jax.tree.map(jnp.add, state, known), t + sum(e) * dt
            stage = model.implicit_solve(time, diagonal * dt, right, params, prepared)
            # What the solve found costs nothing, and does not magnify what is left of an iteration.
            scale = 1 / (diagonal * dt)
            implicit.append(jax.tree.map(lambda u, r, scale=scale: scaled(scale, u - r), stage, right))
            stage = kept_stage(model.constrain(time, dt, stage, params))
            with part("tendency"):
                explicit.append(model.explicit_rhs(time, stage, params))
        slopes = [jax.tree.map(jnp.add, f, g) for f, g in zip(explicit, implicit, strict=True)]
        after = jax.tree.map(jnp.add, state, weighted(dt, self.b, slopes))
        return kept_stage(model.constrain(t + dt, dt, after, params)), slopes


def _row(numbers) -> Row:
    return tuple(float(number) for number in numbers)


def _embedded(order: int, table: Any) -> Embedded:
    a, b = tuple(_row(row) for row in table.a_lower), _row(table.b_sol)
    scheme = RungeKutta(order=order, a=a, b=b, courant_limit=ErrorControlled.courant_limit)
    return Embedded(order=order, scheme=scheme, error=_row(table.b_error))


def _additive(order: int, tables: Any) -> Additive:
    explicit, implicit = tables.tableaus
    return Additive(
        order=order,
        explicit=tuple(_row(row) for row in explicit.a_lower),
        implicit=_with_diagonal(implicit),
        b=_row(implicit.b_sol),
        error=_row(implicit.b_error),
    )


def _implicit(order: int, table: Any) -> DiagonallyImplicit:
    predictor = tuple(_row(row) for row in table.a_predictor)
    return DiagonallyImplicit(order=order, a=_with_diagonal(table), predictor=predictor, error=_row(table.b_error))


def _with_diagonal(table: Any) -> tuple[Row, ...]:
    return tuple(_row([*row, last]) for row, last in zip(table.a_lower, table.a_diagonal[1:], strict=True))


SCHEMES: dict[str, Callable[[], ErrorControlled]] = {
    "tsit5": lambda: _embedded(5, diffrax_tables.TSIT5),
    "bosh3": lambda: _embedded(3, diffrax_tables.BOSH3),
    "dopri8": lambda: _embedded(8, diffrax_tables.DOPRI8),
    "kvaerno5": lambda: _implicit(5, diffrax_tables.KVAERNO5),
    "kencarp4": lambda: _additive(4, diffrax_tables.KENCARP4),
}
"""tsit5: Tsitouras (2011); bosh3: Bogacki and Shampine (1989); dopri8: Prince and Dormand (1981); kencarp4: Kennedy and
Carpenter (2003); kvaerno5: Kvaerno (2004)."""


def error_controlled(name: str) -> ErrorControlled:
    """The scheme of a name that estimates its error, for a `Schedule` with a tolerance.

    "tsit5", "bosh3", "dopri8": explicit Runge-Kutta methods of order five, three and eight. "kencarp4": of order four,
    which takes implicitly what a `SemiImplicitModel` offers, its stiff linear part. "kvaerno5": of order five, which
    takes the whole tendency implicitly, for stiff reactions.

    Raises:
        ConfigurationError: there is no such scheme.

    Examples:
        >>> sj.error_controlled("tsit5").order
        5
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params, start = line.Params(jnp.asarray(0.01), jnp.ones(1)), line.State(jnp.ones(32))
        >>> schedule = sj.Schedule(0.1, tolerance=1e-6, max_steps=100)
        >>> end = sj.simulate(line, sj.error_controlled("tsit5"), params, start, schedule, frames=3)
        >>> int(end.clock.frame), int(end.clock.control.rejected)
        (3, 0)
    """
    if not isinstance(name, str) or name not in SCHEMES:
        raise ConfigurationError(f"error_controlled({shown(name)}): expected one of {', '.join(SCHEMES)}.")
    return _scheme(name)


@functools.cache
def _scheme(name: str) -> ErrorControlled:
    return SCHEMES[name]()
