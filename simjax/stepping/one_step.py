"""Single steps of a run, and those that a model takes by itself: the state and the clock after them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from simjax.arguments import require_kind, shown
from simjax.core.model import Model, SelfSteppingModel
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator
from simjax.integrators.stochastic import require_noise
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.varying import match_varying, taken_where, varies_beyond, vary_like
from simjax.status import NON_FINITE, OK, SKIN_PASSED, STEP_COLLAPSED, STEP_SHRUNK, UNPHYSICAL, all_finite
from simjax.stepping.checkpointing.loops import repeat
from simjax.stepping.checkpointing.plan import Binomial, Policy
from simjax.stepping.clock import Clock, Schedule, tick, tick_fixed, time_left, time_of
from simjax.stepping.controlled import controlled_step
from simjax.stepping.temporal_blocking import step_of


def real_dtype(state) -> jnp.dtype:
    """The floating-point type of a state's real and complex leaves.

    Raises ConfigurationError for numbers that are no arrays, and where none is real or complex.
    """
    leaves = jax.tree.leaves(state)
    for leaf in leaves:
        if not hasattr(leaf, "dtype"):
            raise ConfigurationError(
                f"state holds {shown(leaf)} of the kind {type(leaf).__name__}: expected arrays of numbers; write "
                "jnp.asarray(...) around each field."
            )
    inexact = [leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if not inexact:
        kinds = ", ".join(sorted({str(leaf.dtype) for leaf in leaves})) or "no arrays"
        raise ConfigurationError(
            f"state has arrays of {kinds} alone: expected real or complex numbers; write jnp.asarray(..., float)."
        )
    return jnp.finfo(jnp.result_type(*inexact)).dtype


def required(model: Model, integrator: Integrator | None) -> Integrator:
    """`integrator`, which only a model that takes its own steps can do without."""
    scheme = integrator if isinstance(integrator, str) else "rk4"
    what = f"an Integrator, as {type(model).__name__} needs a scheme; write INTEGRATORS[{scheme!r}]"
    require_kind("integrator", integrator, Integrator, what)
    assert integrator is not None
    return integrator


def if_good(model: Model, params, begin, after):
    """(state, clock) `after` some steps, or that of `begin` with a status where a value is not finite or physical."""
    state, clock = after
    good = model.domain.min(all_finite(state).astype(jnp.int32)) == 1
    fault = jnp.where(good, OK, NON_FINITE).astype(jnp.int32) | clock.status
    for wrong in model.unphysical(state, params).values():
        anywhere = model.domain.max(wrong.astype(jnp.int32)) == 1
        fault |= jnp.where(anywhere & good, UNPHYSICAL, OK).astype(jnp.int32)
    keep, smallest = fault == OK, clock.smallest_limit
    state, clock = jax.tree.map(lambda new, old: jnp.where(keep, new, old), (state, clock), begin)
    # The smallest step stays that of the attempt, and varies between devices as the rest of the clock does.
    return state, eqx.tree_at(lambda c: (c.status, c.smallest_limit), clock, (fault, match_varying(smallest, fault)))


def prepared_scheme(model: Model, integrator: Integrator, params, state, schedule: Schedule):
    """Compute the scheme's coefficients once before all steps.

    Raises:
        ConfigurationError: the model has noise and the scheme draws none, or the other way round.
    """
    require_noise(model, integrator, jnp.asarray(schedule.start, real_dtype(state)), state, params)
    dt = schedule.even_dt
    if dt is not None and not isinstance(dt, float):
        dt = jnp.asarray(dt, real_dtype(state))
    return vary_like(integrator.prepare(model, params, dt), state)


def take_step(
    model: Model, integrator: Integrator | None, params, state, clock: Clock, schedule: Schedule, until, prepared=None
):
    """One step of `schedule`: the new (state, clock), whatever they hold. See `advance`."""
    if isinstance(model, SelfSteppingModel):
        return arranged_steps(model, params, (state, clock), schedule, 1, "none")
    integrator = required(model, integrator)
    if schedule.dt is not None:
        after = fixed_step(model, integrator, params, state, clock, schedule, prepared)
        return _with_fault(model, params, after, schedule)
    if schedule.tolerance is not None:
        after = controlled_step(model, integrator, params, state, clock, schedule, until, prepared)
        return _with_fault(model, params, after, schedule)

    def take(state, t, dt, number):
        return step_of(model, integrator, t, dt, number, state, params, prepared)

    after = courant_step(model, integrator, params, state, clock, schedule, until, take)
    return _with_fault(model, params, after, schedule)


def _with_fault(model: Model, params, after, schedule: Schedule):
    """(state, clock), with the model's faults at this time in the status."""
    state, clock = after
    wrong = model.fault(time_of(clock, schedule), params)
    return after if wrong is None else (state, eqx.tree_at(lambda c: c.status, clock, clock.status | wrong))


def fixed_step(model, integrator, params, state, clock: Clock, schedule: Schedule, prepared):
    """(state, clock) after a step of a fixed length."""
    after, (t, dt, number) = tick_fixed(clock, schedule)
    return step_of(model, integrator, t, dt, number, state, params, prepared), after


def arranged_steps(
    model: SelfSteppingModel,
    params,
    begin,
    schedule: Schedule,
    steps: int,
    checkpoint: Policy | Binomial,
    look: Callable | None = None,
):
    """(state, clock) after steps of a model that takes its own, arranged anew before the first and then regularly.

    look: `(seen, before, after, state)` -> seen, called after every step with its clocks, where `begin` and what is
    returned have `seen` as a third part.
    """
    if schedule.dt is None:
        raise ConfigurationError(
            f"Schedule.courant={schedule.courant:g}: {type(model).__name__} takes steps of a fixed length; write dt."
        )
    within = "none" if checkpoint == "none" else "every_step"

    def arranged(carry, count: int):
        state, clock, *seen = carry
        state, arrangement, fault = model.arrange(state, params)

        def step(carry):
            state, before, farthest, *seen = carry
            clock, (t, dt, number) = tick_fixed(before, schedule)
            state = model.step(number, t, dt, state, params, arrangement)
            used = model.skin_used(jax.tree.map(lax.stop_gradient, state), arrangement)
            seen = [] if look is None else [look(seen[0], before, clock, state)]
            return state, clock, jnp.maximum(farthest, used), *seen

        farthest = jnp.zeros((), clock.elapsed.dtype)
        state, clock, farthest, *seen = repeat(step, (state, clock, farthest, *seen), count, within, in_pairs=False)
        # Written so that what is not a number counts as too much.
        fault |= jnp.where(model.domain.max(farthest) <= 1, OK, SKIN_PASSED).astype(jnp.int32)
        return state, eqx.tree_at(lambda c: c.status, clock, clock.status | fault), *seen

    count = model.steps_per_arrangement
    whole, rest = divmod(steps, count)
    carry = begin
    if whole:
        carry = repeat(lambda carry: arranged(carry, count), carry, whole, checkpoint, in_pairs=False)
    return arranged(carry, rest) if rest else carry


def courant_step(model, integrator, params, state, clock: Clock, schedule: Schedule, until, take: Callable):
    """(state, clock) after a step as long as the Courant number allows; `take(state, t, dt, number)` takes it."""
    dtype = clock.elapsed.dtype
    remaining = time_left(clock, schedule)
    with part("time step limit"):
        limit = schedule.courant * model.domain.min(integrator.stable_dt(model, state, params)).astype(dtype)
    # A remainder just above one step is halved, not left as a sliver.
    dt = jnp.where(remaining <= limit, remaining, jnp.where(remaining < 2 * limit, remaining / 2, limit))
    unset = clock.first_limit == 0
    first = jnp.where(unset, jnp.minimum(limit, schedule.interval), clock.first_limit)
    smallest = jnp.where(unset, first, jnp.fmin(clock.smallest_limit, limit))
    # Written so that a limit that is not a number counts as collapsed too.
    collapsed = ~(limit > 1e-9 * schedule.interval)
    shrunk = limit < schedule.step_shrink * first
    fault = jnp.where(collapsed, STEP_COLLAPSED, jnp.where(shrunk, STEP_SHRUNK, OK)).astype(clock.status.dtype)
    ready = clock.frame < until
    limits = jnp.where(ready, smallest, clock.smallest_limit), jnp.where(ready, fault, OK) | clock.status
    clock = eqx.tree_at(lambda c: (c.smallest_limit, c.status), clock, limits)

    # The clock is not part of what the condition passes on: each of its numbers would be a copy on a GPU.
    take_it = ready & (fault == OK)
    of_members = varies_beyond(take_it, model.domain.names)
    t = time_of(clock, schedule)
    state = taken_where(take_it, lambda state: take(state, t, dt, clock.step), state, both=of_members)
    begun = eqx.tree_at(lambda c: c.first_limit, clock, first)
    ticked = tick(begun, dt, remaining <= limit)
    return state, jax.tree.map(lambda new, old: jnp.where(take_it, new, old), ticked, clock)
