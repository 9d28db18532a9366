"""Steps that frames of a run take by their errors, counted without derivatives."""

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.model import Model
from simjax.integrators.integrator import Integrator
from simjax.jaxpr.varying import steady_carry
from simjax.stepping.clock import Clock, Schedule
from simjax.stepping.simulate import advance

MOST_ATTEMPTS = 10**6
"""The most steps of a frame whose steps are counted."""


def most_attempts(
    model: Model, integrator: Integrator | None, params, state, clock: Clock, schedule: Schedule, *, frames: int
) -> Array:
    """The most steps that one of some frames takes, those included whose error is too large; without derivatives."""

    def one(carry, _=None):
        state, before = carry
        until = before.frame + 1
        after = advance(model, integrator, params, state, before, schedule, steps=MOST_ATTEMPTS, until=until)
        return after, _attempts(after[1]) - _attempts(before)

    _, begin = steady_carry(lambda carry: one(carry)[0], (state, clock))
    return jnp.max(lax.scan(one, begin, None, length=frames)[1])


def _attempts(clock: Clock) -> Array:
    assert clock.control is not None
    return clock.step + clock.control.rejected
