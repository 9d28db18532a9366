"""Time stepping: a schedule, a clock that cannot drift, and nested scans that reverse mode can afford."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.adjoint.loop import binomial_scan
from simjax.adjoint.plan import Binomial, Checkpoint, Policy, group_size, plan
from simjax.core.errors import ConfigurationError
from simjax.core.model import Model
from simjax.core.status import FRAME_UNFINISHED, NON_FINITE, OK, STEP_COLLAPSED, UNPHYSICAL, all_finite
from simjax.core.varying import steady_carry, vary_like
from simjax.integrators.integrator import Integrator


class Schedule(eqx.Module):
    """When to observe and how to step.

    Frame k ends at exactly start + (k + 1) interval. With `dt`, a frame takes `ceil(interval / dt)` steps and the
    last one is shortened where dt does not divide the interval. With `courant`, each step is that multiple of
    the model's stable step, never over the end of the frame, and a frame takes at most `max_steps`. No gradient
    flows through the length of a Courant-limited step.
    """

    interval: float = eqx.field(static=True)
    start: float = eqx.field(static=True, default=0.0)
    dt: float | None = eqx.field(static=True, default=None)
    courant: float | None = eqx.field(static=True, default=None)
    max_steps: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        if (self.dt is None) == (self.courant is None):
            raise ConfigurationError(
                f"Schedule needs exactly one of dt and courant; dt={self.dt}, courant={self.courant}."
            )
        for name in ("interval", "dt", "courant"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"Schedule.{name}={value}: expected a finite number above zero.")
        if self.courant is not None and self.max_steps < 1:
            raise ConfigurationError("Schedule.courant needs max_steps, the most steps a frame may take.")

    @property
    def steps(self) -> int:
        """Steps of one frame (the most there can be, with `courant`)."""
        if self.dt is None:
            return self.max_steps
        return max(1, math.ceil(self.interval / self.dt * (1 - 1e-12)))

    @property
    def last_dt(self) -> float:
        """Length of a frame's last step, with `dt`."""
        assert self.dt is not None
        return self.interval - (self.steps - 1) * self.dt

    @property
    def even_dt(self) -> float | None:
        """The length of every step, where all are equal to rounding."""
        if self.dt is None or abs(self.last_dt - self.dt) > 1e-9 * self.dt:
            return None
        return self.dt


class Clock(eqx.Module):
    """Where a simulation stands. Time is formed from integers, so it neither drifts nor depends on chunking.

    frame: completed frames. substep: steps since the frame began. step: steps since the start. elapsed: time since
    the frame began. dt: the last step taken. status: bits of `core.status`.
    """

    frame: Array
    substep: Array
    step: Array
    elapsed: Array
    dt: Array
    status: Array

    @classmethod
    def zero(cls, dtype) -> "Clock":
        """The clock at the start, with times in `dtype`."""

        # An array of its own for each, so that a clock can be donated.
        def zero(kind):
            return jnp.zeros((), kind)

        count = jnp.int32
        return cls(zero(count), zero(count), zero(count), zero(dtype), zero(dtype), jnp.asarray(OK, count))


class Trajectory(eqx.Module):
    """What `simulate` returns: the final state and clock, and what was observed, frames leading."""

    state: Any
    clock: Clock
    observed: Any


def real_dtype(state) -> jnp.dtype:
    """The floating-point type of a state's real and complex leaves."""
    inexact = [leaf.dtype for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.finfo(jnp.result_type(*inexact)).dtype


def time_of(clock: Clock, schedule: Schedule) -> Array:
    """The present time, in the clock's dtype."""
    dtype = clock.elapsed.dtype
    begin = schedule.start + clock.frame.astype(dtype) * schedule.interval
    if schedule.dt is None:
        return begin + clock.elapsed
    return begin + clock.substep.astype(dtype) * schedule.dt


def advance(
    model: Model, integrator: Integrator, params, state, clock: Clock, schedule: Schedule,
    *, steps: int, until, checkpoint: Policy | Binomial = "none",
):  # fmt: skip
    """`steps` steps, none of them beyond the end of frame number `until`: the new (state, clock).

    Transactional: if the result is not finite or not physical, the state and clock that came in are returned with
    a status bit set, and every later call returns them unchanged. So the last good state is never lost, and an
    ensemble member that diverged stays where it was without touching the others.
    """
    params = vary_like(params, state)
    begin = state, clock
    prepared = vary_like(integrator.prepare(model, params, schedule.even_dt), state)

    def step(carry):
        state, clock = carry
        return take_step(model, integrator, params, state, clock, schedule, until, prepared)

    state, clock = _repeat(step, begin, steps, integrator, checkpoint)
    good = model.domain.min(all_finite(state).astype(jnp.int32)) == 1
    fault = jnp.where(good, OK, NON_FINITE).astype(jnp.int32) | clock.status
    for wrong in model.unphysical(state, params).values():
        anywhere = model.domain.max(wrong.astype(jnp.int32)) == 1
        fault |= jnp.where(anywhere & good, UNPHYSICAL, OK).astype(jnp.int32)
    keep = fault == OK
    state, clock = jax.tree.map(lambda new, old: jnp.where(keep, new, old), (state, clock), begin)
    return state, eqx.tree_at(lambda c: c.status, clock, fault)


def take_step(
    model: Model, integrator: Integrator, params, state, clock: Clock, schedule: Schedule, until, prepared=None
):
    """One step of `schedule`: the new (state, clock), whatever they hold. See `advance`."""
    if schedule.dt is not None:
        return _fixed_step(model, integrator, params, state, clock, schedule, prepared)
    return _courant_step(model, integrator, params, state, clock, schedule, until, prepared)


def _fixed_step(model, integrator, params, state, clock: Clock, schedule: Schedule, prepared):
    dtype = clock.elapsed.dtype
    assert schedule.dt is not None
    dt = jnp.asarray(schedule.dt, dtype)
    if schedule.even_dt is None:
        last = clock.substep == schedule.steps - 1
        dt = jnp.where(last, jnp.asarray(schedule.last_dt, dtype), dt)
    t = time_of(clock, schedule)
    state = integrator.step(model, t, dt, state, params, prepared)
    state = model.perturb(clock.step, t, dt, state, params)
    return state, _tick(clock, dt, clock.substep == schedule.steps - 1)


def _courant_step(model, integrator, params, state, clock: Clock, schedule: Schedule, until, prepared):
    dtype = clock.elapsed.dtype
    remaining = schedule.interval - clock.elapsed
    limit = schedule.courant * model.domain.min(integrator.stable_dt(model, state, params)).astype(dtype)
    # A remainder just above one step is halved, not left as a sliver.
    dt = jnp.where(remaining <= limit, remaining, jnp.where(remaining < 2 * limit, remaining / 2, limit))
    # Written so that a limit that is not a number counts as collapsed too.
    collapsed = ~(limit > 1e-9 * schedule.interval)
    fault = jnp.where(collapsed, STEP_COLLAPSED, OK).astype(clock.status.dtype)
    clock = eqx.tree_at(lambda c: c.status, clock, clock.status | fault)

    def forward(carry):
        state, clock = carry
        t = time_of(clock, schedule)
        state = integrator.step(model, t, dt, state, params, prepared)
        state = model.perturb(clock.step, t, dt, state, params)
        return state, _tick(clock, dt, remaining <= limit)

    step, begin = steady_carry(forward, (state, clock))
    return lax.cond(collapsed | (clock.frame >= until), lambda carry: carry, step, begin)


def _tick(clock: Clock, dt: Array, completes: Array) -> Clock:
    """The clock one step of `dt` later; a step that completes the frame starts the next one."""
    zero = jnp.zeros_like(clock.elapsed)
    return Clock(
        frame=clock.frame + completes.astype(clock.frame.dtype),
        substep=jnp.where(completes, 0, clock.substep + 1),
        step=clock.step + 1,
        elapsed=jnp.where(completes, zero, clock.elapsed + dt),
        dt=dt,
        status=clock.status,
    )


def _repeat(step: Callable, carry, steps: int, integrator: Integrator, checkpoint: Policy | Binomial):
    """`step` applied `steps` times; what reverse mode stores is set by `checkpoint`."""
    step, carry = steady_carry(step, carry)

    def body(carry, _):
        return step(carry), None

    if isinstance(checkpoint, Binomial):
        return binomial_scan(lambda carry: (step(carry), None), carry, length=steps, states=checkpoint.states)[0]
    if checkpoint == "none":
        # Two one-stage steps per loop body save the copy of the carry; multi-stage steps gain nothing from it.
        unroll = 2 if integrator.stages == 1 and steps % 2 == 0 else 1
        return lax.scan(body, carry, None, length=steps, unroll=unroll)[0]
    body = jax.checkpoint(body, prevent_cse=False)
    if checkpoint == "every_step":
        return lax.scan(body, carry, None, length=steps)[0]
    inner = group_size(steps)
    groups, rest = divmod(steps, inner)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def group(carry, _):
        return lax.scan(body, carry, None, length=inner)[0], None

    carry = lax.scan(group, carry, None, length=groups)[0]
    return lax.scan(body, carry, None, length=rest)[0] if rest else carry


def simulate(
    model: Model, integrator: Integrator, params, state, schedule: Schedule,
    *, frames: int, clock: Clock | None = None, observe: Callable | None = None,
    checkpoint: Checkpoint = "two_level",
) -> Trajectory:  # fmt: skip
    """Advance `frames` frames of `schedule` from `state`, observing at the end of each.

    Args:
        model, integrator: the equations and the scheme.
        params: the model's parameters; differentiable.
        state: initial state, already constrained (as `model.init` functions return it); differentiable.
        schedule: frames and steps.
        clock: where to go on from; by default the start.
        observe: `observe(t, state, params)` -> any tree of arrays; by default nothing is recorded.
        checkpoint: what reverse mode keeps. "two_level": about the square root of the steps of a frame, and one
            state per frame, each step recomputed from its beginning; "every_step": each step's beginning;
            "none": every intermediate value; `Binomial(states)`: that many states, for the fewest steps computed
            again, without forward mode; `Budget(bytes)`: every step if that fits, else as many as do, logged. It
            changes nothing in a forward run. `adjoint.plan.plan` tells memory and cost beforehand.

    Returns:
        A `Trajectory`; leaves of `observed` have a leading axis of length `frames`. The status in its clock is
        not zero if the run stopped early on a fault, with the last good state.
    """
    start = Clock.zero(real_dtype(state)) if clock is None else clock
    params = vary_like(params, state)
    # Shapes are those of this device's blocks.
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((state, start)))
    chosen = plan(checkpoint, frames=frames, steps=schedule.steps, state_bytes=size)
    within = Binomial(chosen.step_states) if chosen.policy == "binomial" else chosen.policy

    def frame(carry, _=None):
        state, clock = carry
        until = clock.frame + 1
        state, clock = advance(
            model, integrator, params, state, clock, schedule, steps=schedule.steps, until=until, checkpoint=within
        )  # fmt: skip
        # Where a fault stopped the frame, it is the reason; the number of steps is not.
        unfinished = (clock.frame < until) & (clock.status == OK)
        short = jnp.where(unfinished, FRAME_UNFINISHED, OK).astype(clock.status.dtype)
        clock = eqx.tree_at(lambda c: c.status, clock, clock.status | short)
        observed = None if observe is None else observe(time_of(clock, schedule), state, params)
        return (state, clock), observed

    _, begin = steady_carry(lambda carry: frame(carry)[0], (state, start))
    if chosen.policy == "binomial" and frames > 1:
        (state, end), observed = binomial_scan(frame, begin, length=frames, states=chosen.frame_states)
        return Trajectory(state, end, observed)
    if chosen.policy == "two_level" and frames > 1:
        frame = jax.checkpoint(frame, prevent_cse=False)
    (state, end), observed = lax.scan(frame, begin, None, length=frames)
    return Trajectory(state, end, observed)
