"""Steps that are undone, and the runs whose steps can be."""

import jax.numpy as jnp

from simjax.core.model import Model
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator, ReversibleIntegrator
from simjax.stepping.clock import Clock, Schedule, length_of, time_of


def undo_step(model, integrator: ReversibleIntegrator, params, state, clock: Clock, schedule: Schedule, prepared):
    """Undo the step by which `fixed_step` made `state` and `clock`, unless it was the first step of all."""
    dtype, completed = clock.elapsed.dtype, clock.substep == 0
    substep = jnp.where(completed, schedule.steps, clock.substep) - 1
    before = length_of(schedule, jnp.where(substep == 0, schedule.steps, substep) - 1, dtype)
    clock = Clock(
        frame=clock.frame - completed.astype(clock.frame.dtype),
        substep=substep,
        step=clock.step - 1,
        elapsed=substep.astype(dtype) * jnp.asarray(schedule.dt, dtype),
        elapsed_low=clock.elapsed_low,
        dt=before,
        first_limit=clock.first_limit,
        smallest_limit=clock.smallest_limit,
        status=clock.status,
    )
    t, dt = time_of(clock, schedule), length_of(schedule, substep, dtype)
    return integrator.undo(model, t, dt, state, params, prepared, before), clock


def reversible(model: Model, integrator: Integrator | None, params, schedule: Schedule) -> ReversibleIntegrator:
    """`integrator`, where steps of `schedule` can be undone."""
    if not isinstance(integrator, ReversibleIntegrator):
        why = f"expected a scheme whose steps can be undone (leapfrog), got {type(integrator).__name__}"
    elif schedule.dt is None:
        limit = "courant" if schedule.tolerance is None else "tolerance"
        why = f"expected steps of a fixed length (Schedule.dt), got {limit}={getattr(schedule, limit):g}"
    elif lost := model.irreversible(params):
        why = f"expected a model that loses nothing, but {lost} cannot be undone"
    else:
        return integrator
    raise ConfigurationError(f"checkpoint='reverse': {why}; use 'two_level' or Binomial(states=...).")
