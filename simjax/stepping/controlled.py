"""Steps as long as their estimated error allows: each is taken, judged, and kept or taken again, shorter."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Model
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Allowed, ErrorControlled, Integrator
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.varying import steady_carry, taken_where, varies_beyond
from simjax.status import OK, TOLERANCE_MISSED
from simjax.stepping.checkpointing.closed_loop_body import closed
from simjax.stepping.clock import Clock, Control, Schedule, tick, time_left, time_of

FIRST = 1e-6
"""The first step, as a part of a frame: short, since a step that is far too long may look exact."""
SMALLEST = 1e-14
"""The step below which the control gives up, as a part of a frame: about what the clock still counts."""
SAFETY, LEAST, MOST = 0.9, 0.2, 5.0
"""The error aimed at, over the tolerance to the power of the step, and by how much a step changes at most."""


def require_control(model: Model, integrator: Integrator | None, params) -> None:
    """Refuse what has no estimate of its error, or a law that an estimate knows nothing of.

    Raises:
        ConfigurationError: the scheme estimates no error, or the tendency is not the whole law.
    """
    name = type(model).__name__
    if not isinstance(model, ExplicitModel):
        raise ConfigurationError(
            f"a tolerance: expected a model that is given by its tendency alone, and {name} is not; write dt."
        )
    if beside := model.beside_tendency(params):
        raise ConfigurationError(
            f"a tolerance: expected a model whose tendency is the whole law, but {beside} changes the state beside it, "
            f"and an estimate of errors knows nothing of that; write courant or dt for {name}."
        )
    if not isinstance(integrator, ErrorControlled):
        raise ConfigurationError(
            f"a tolerance: expected a scheme that estimates its error, got {type(integrator).__name__}; write "
            "error_controlled('tsit5')."
        )


def controlled_step(model, integrator, params, state, clock: Clock, schedule: Schedule, until, prepared):
    """(state, clock) after one attempt at a step: as they were, but for the control, where its error is too large."""
    dtype, control = clock.elapsed.dtype, clock.control
    assert control is not None
    remaining = time_left(clock, schedule)
    wanted = jnp.where(control.next_dt > 0, control.next_dt, FIRST * schedule.interval)
    # A remainder just above one step is halved, not left as a sliver.
    last = remaining <= wanted
    dt = jnp.where(last, remaining, jnp.where(remaining < 2 * wanted, remaining / 2, wanted))
    ready = (clock.frame < until) & (clock.status == OK)
    t = time_of(clock, schedule)

    def attempt(carry):
        state, t, dt = carry
        allowed = _allowed(model, schedule, *_stopped((state, state)))
        after, error = integrator.attempt(model, t, dt, state, params, prepared, allowed)
        with part("time step limit"):
            size = _judged(model, schedule, params, *_stopped((state, after, error))).astype(dtype)
        return (after, t, dt), size

    def judged(carry):
        return _kept_if_exact(attempt, (carry[0], t, dt))

    of_members = varies_beyond(ready, model.domain.names)
    state, size = taken_where(ready, judged, (state, jnp.zeros((), dtype)), both=of_members)
    accepted = ready & (size <= 1)
    ticked = tick(clock, dt, last)
    clock = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), ticked, clock)
    following = _following(control, size, accepted, dt, wanted, integrator.order)
    # Written so that a step that is not a number counts as collapsed too.
    missed = ready & ~accepted & ~(following.next_dt > SMALLEST * schedule.interval)
    control = jax.tree.map(lambda new, old: jnp.where(ready, new, old), following, control)
    status = clock.status | jnp.where(missed, TOLERANCE_MISSED, OK).astype(clock.status.dtype)
    return state, eqx.tree_at(lambda c: (c.control, c.status), clock, (control, status))


def _kept_if_exact(attempt: Callable, carry):
    """The state after an attempt `((state, t, dt)) -> ((after, t, dt), size)` if its size is at most one, else `state`.

    Also the size. A rejected attempt may have met numbers that are not finite, whose derivatives would spoil those of
    the whole run though nothing depends on them: differentiated, it is one of no length.
    """
    leaves, tree = jax.tree.flatten(carry)
    taken, seen, _ = closed(attempt, leaves, tree)

    def chosen(leaves, seen):
        after, (size,) = taken(leaves, seen)
        return [jnp.where(size <= 1, new, old) for new, old in zip(after, leaves, strict=True)], size

    def derivative(primals, tangents):
        (leaves, seen), (_, size) = primals, chosen(*primals)
        *fields, dt = leaves
        short = [*fields, jnp.where(size <= 1, dt, 0)]
        after, slopes = jax.jvp(lambda *given: taken(*given)[0], (short, seen), tangents)
        return ([*after[:-1], dt], size), ([*slopes[:-1], tangents[0][-1]], jnp.zeros_like(size))

    exact = jax.custom_jvp(chosen)
    exact.defjvp(derivative)
    found, size = exact(leaves, seen)
    return tree.unflatten(found)[0], size


def _stopped(tree):
    """The tree without derivatives: none flows through the length of a step."""
    return jax.tree.map(lax.stop_gradient, tree)


def _allowed(model, schedule: Schedule, before, after) -> Allowed:
    assert schedule.tolerance is not None
    return Allowed.by(model, schedule.tolerance, schedule.absolute_tolerance, before, after)


def _judged(model, schedule: Schedule, params, state, after, error) -> Array:
    """The size of the error; infinite where the state after the step is not finite or not physical."""
    size = _allowed(model, schedule, state, after).size(error)
    for wrong in model.unphysical(after, params).values():
        size = jnp.where(model.domain.max(wrong.astype(jnp.int32)) == 1, jnp.inf, size)
    return jnp.where(jnp.isfinite(size), size, jnp.inf)


def _following(control: Control, size: Array, accepted: Array, dt: Array, wanted: Array, order: int) -> Control:
    """The control after an attempt of `dt`, where it had `wanted` a step perhaps longer.

    After a step that is accepted by its error and that of the step before, which calms steps at the limit of stability:
    Gustafsson (1991), ACM Trans. Math. Softw. 17, 533; with the exponents of Hairer and Wanner, IV.2. After one that is
    rejected by its error alone.
    """
    size = jnp.maximum(size, 1e-8)
    before = jnp.where(control.error > 0, control.error, 1.0)
    grown = jnp.clip(SAFETY * size ** (-0.7 / order) * before ** (0.4 / order), LEAST, MOST)
    shorter = jnp.clip(SAFETY * size ** (-1.0 / order), LEAST, SAFETY)
    # A step that the frame's end cut short says nothing against the one that was wanted.
    proposed = jnp.where(dt < wanted, jnp.maximum(wanted, dt * grown), dt * grown)
    return Control(
        next_dt=jnp.where(accepted, proposed, dt * shorter),
        error=jnp.where(accepted, jnp.maximum(size, 1e-4), control.error),
        rejected=control.rejected + jnp.where(accepted, 0, 1).astype(control.rejected.dtype),
    )


def controlled_steps(step: Callable, domain: Domain, begin, steps: int, until):
    """(state, clock) after `steps` attempts, or as many as the frame takes; without reverse mode."""

    def is_going(clock: Clock, count) -> Array:
        return domain.anywhere((count < steps) & (clock.frame < until) & (clock.status == OK))

    def one(carry):
        count, _, state, clock = carry
        state, clock = step((state, clock))
        return count + 1, is_going(clock, count + 1), state, clock

    zero = jnp.zeros((), jnp.int32)
    body, carry = steady_carry(one, (zero, is_going(begin[1], zero), *begin))
    return lax.while_loop(lambda carry: carry[1], body, carry)[2:]
