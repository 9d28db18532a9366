"""Models for tests of what does not depend on space."""

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Model, SplitModel
from simjax.grid import Grid


class WithoutSpace(Model):
    """What a model says of its fields in files, for states that are never written."""

    def outputs(self):
        return ()

    def observe(self, t, state, params):
        return {}

    def component_layouts(self):
        return {}

    def state_from(self, fields, params):
        return fields


class Ordinary(WithoutSpace, ExplicitModel):
    """Ordinary differential equations as a model: one cell holds the state."""

    domain: Domain

    def __init__(self):
        self.domain = Domain(Grid((1,)))

    def stable_dt(self, state, params):
        return jnp.asarray(0.1)


class Decay(Ordinary):
    """du/dt = -k u."""

    def rhs(self, t, state, params):
        return -params * state


class State(eqx.Module):
    """position at time t, velocity at t - lag."""

    position: jax.Array
    velocity: jax.Array
    lag: jax.Array


class Pendulum(WithoutSpace, SplitModel):
    """x' = v, v' = -sin x + push cos t."""

    domain: Domain
    push: float = 0.0
    calls: list = eqx.field(static=True, default_factory=list)

    def prepare(self, params):
        return None

    def kick(self, t, dt, state, params, prepared):
        self.calls.append("kick")
        pull = -jnp.sin(state.position) + self.push * jnp.cos(t)
        return State(state.position, state.velocity + dt * pull, state.lag)

    def drift(self, t, dt, state, params, prepared):
        self.calls.append("drift")
        return State(state.position + dt * state.velocity, state.velocity, state.lag)

    def stable_dt(self, state, params):
        """Shrinks with the speed, so that steps under a Courant number differ."""
        return 0.1 / (1 + state.velocity**2)
