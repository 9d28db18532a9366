"""Leapfrog for models in two halves that act on each other in turns."""

from collections.abc import Callable

import equinox as eqx

from simjax.integrators.integrator import Integrator, ReversibleIntegrator


class Leapfrog(ReversibleIntegrator):
    """Kick-drift-kick with the kicks of neighbouring steps merged: one kick and one drift per step.

    The kicked half of the state (velocity) stands at time t - lag, with `lag` a scalar leaf of the state that is
    zero at the start. A step kicks by lag + dt/2, drifts by dt and leaves lag = dt/2; so it is of second order
    also where steps vary, and a step of -dt undoes one of dt to rounding. Verlet (1967), Phys. Rev. 159, 98.
    """

    order: int = eqx.field(static=True, default=2)
    courant_limit: float = eqx.field(static=True, default=1.0)

    @property
    def stages(self) -> int:
        return 1

    def kept_values(self):
        """Its steps are sums of products: sound and light in absorbing layers need 1.2 states of one."""
        return 2

    def prepare(self, model, params, dt):
        return model.prepare(params)

    def step(self, model, t, dt, state, params, prepared=None, between: Callable | None = None):
        """`between(kicked, before)` gives the state from which the drift starts."""
        if prepared is None:
            prepared = model.prepare(params)
        half, before = 0.5 * dt, state
        state = model.kick(t, state.lag + half, state, params, prepared)
        if between is not None:
            state = between(state, before)
        state = model.drift(t + half, dt, state, params, prepared)
        return eqx.tree_at(lambda s: s.lag, state, half)

    def undo(self, model, t, dt, state, params, prepared, before):
        half, lag = 0.5 * dt, 0.5 * before
        state = model.drift(t + half, -dt, state, params, prepared)
        state = model.kick(t, -(lag + half), state, params, prepared)
        return eqx.tree_at(lambda s: s.lag, state, lag)


INTEGRATORS: dict[str, Integrator] = {"leapfrog": Leapfrog()}
