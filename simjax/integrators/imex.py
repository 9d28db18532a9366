"""Implicit-explicit Runge-Kutta methods as tables: stiff linear terms implicitly, the rest explicitly.

Ascher, Ruuth and Spiteri (1997), Appl. Numer. Math. 25, 151. All tables here have an explicit first stage, one
number on the implicit diagonal, and a last implicit row equal to the implicit weights: stiff modes are damped to
nothing by a long step (L-stability).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.core.model import SemiImplicitModel
from simjax.integrators.integrator import Integrator
from simjax.integrators.runge_kutta import weighted
from simjax.jaxpr.jaxpr_parts import part
from simjax.ops.scaling import scaled

Row = tuple[float, ...]


class ImplicitExplicit(Integrator):
    """u_i = u + dt sum_{j<i} (e_ij f_j + a_ij g_j) + dt a_ii g_i, f and g the explicit and implicit tendencies.

    `explicit` has the rows e_i of the stages after the first, `implicit` the rows (a_i1, ..., a_ii) of the same
    stages over themselves, g_1 of the first stage being unused. `weights` are those of f in the result; where
    they repeat the last explicit row the last stage is the result. g_i is what the solve found,
    (u_i - right side) / (dt a_ii): it costs nothing and does not magnify what is left of an iterative solve.
    """

    order: int = eqx.field(static=True)
    explicit: tuple[Row, ...] = eqx.field(static=True)
    implicit: tuple[Row, ...] = eqx.field(static=True)
    weights: Row = eqx.field(static=True)
    courant_limit: float = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return sum(1 for weight in self.weights if weight != 0) if self._ends_on_last_stage else len(self.weights)

    @property
    def _ends_on_last_stage(self) -> bool:
        return self.weights[-1] == 0 and self.weights[:-1] == self.explicit[-1]

    def prepare(self, model: SemiImplicitModel, params, dt):
        return model.prepare(params)

    def stable_dt(self, model: SemiImplicitModel, state, params):
        return model.explicit_stable_dt(state, params)

    def step(self, model: SemiImplicitModel, t, dt, state, params, prepared=None):
        prepared = model.prepare(params) if prepared is None else prepared
        fast, slow, stage, time = [], [], state, t
        for number, (e, a) in enumerate(zip(self.explicit, self.implicit, strict=True)):
            with part("tendency"):
                slow.append(model.explicit_rhs(time, stage, params))
            right = _add(_add(state, dt, e, slow), dt, a[:-1], fast)
            time = t + sum(e) * dt
            stage = model.implicit_solve(time, a[-1] * dt, right, params, prepared)
            if any(row[number] != 0 for row in self.implicit[number + 1 :]):
                scale = 1 / (a[-1] * dt)
                fast.append(jax.tree.map(lambda u, r, scale=scale: scaled(scale, u - r), stage, right))
            else:
                fast.append(None)
            stage = model.constrain(time, dt, stage, params)
        if self._ends_on_last_stage:
            return stage
        slow.append(model.explicit_rhs(t + dt, stage, params))
        change = tuple(w - e for w, e in zip(self.weights, (*self.explicit[-1], 0.0), strict=True))
        return model.constrain(t + dt, dt, _add(stage, dt, change, slow), params)


def _add(state, dt, weights: Row, slopes):
    """state + dt * sum(weights * slopes), skipping zero weights."""
    if all(w == 0 for w in weights):
        return state
    return jax.tree.map(jnp.add, state, weighted(dt, weights, slopes))


def _ars222() -> ImplicitExplicit:
    gamma = 1 - math.sqrt(0.5)
    delta = 1 - 1 / (2 * gamma)
    return ImplicitExplicit(
        order=2,
        explicit=((gamma,), (delta, 1 - delta)),
        implicit=((gamma,), (1 - gamma, gamma)),
        weights=(delta, 1 - delta, 0.0),
        courant_limit=1.0,
    )


def _ars343() -> ImplicitExplicit:
    # The middle root of 6 x^3 - 18 x^2 + 9 x - 1, and the paper's choice of two free coefficients.
    gamma, free = 0.435866521508459, 0.5529291479
    first, second = -1.5 * gamma**2 + 4 * gamma - 0.25, 1.5 * gamma**2 - 5 * gamma + 1.25
    lower = (
        (1 - 4.5 * gamma + 1.5 * gamma**2) * free
        + (2.75 - 10.5 * gamma + 3.75 * gamma**2) * free
        - 3.5
        + 13 * gamma
        - 4.5 * gamma**2
    )
    middle = (1 + gamma) / 2
    return ImplicitExplicit(
        order=3,
        explicit=((gamma,), (lower, middle - lower), (1 - 2 * free, free, free)),
        implicit=((gamma,), ((1 - gamma) / 2, gamma), (first, second, gamma)),
        weights=(0.0, first, second, gamma),
        courant_limit=2.8,
    )


# Where the explicit part alone is stable along the imaginary axis: 2.83 for ars343, 1.57 for ars443. imex_euler and
# ars222 lean on diffusion, as their explicit parts do, and are held to one.
INTEGRATORS: dict[str, Integrator] = {
    "imex_euler": ImplicitExplicit(
        order=1, explicit=((1.0,),), implicit=((1.0,),), weights=(1.0, 0.0), courant_limit=1.0
    ),
    "ars222": _ars222(),
    "ars343": _ars343(),
    "ars443": ImplicitExplicit(
        order=3,
        explicit=((1 / 2,), (11 / 18, 1 / 18), (5 / 6, -5 / 6, 1 / 2), (1 / 4, 7 / 4, 3 / 4, -7 / 4)),
        implicit=((1 / 2,), (1 / 6, 1 / 2), (-1 / 2, 1 / 2, 1 / 2), (3 / 2, -3 / 2, 1 / 2, 1 / 2)),
        weights=(1 / 4, 7 / 4, 3 / 4, -7 / 4, 0.0),
        courant_limit=1.5,
    ),
}
"""imex_euler: ARS(1,1,1); ars222, ars343, ars443: (implicit stages, explicit stages, order) of the paper's tables."""
