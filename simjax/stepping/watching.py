"""Loops over steps that take readings, statistics and conditions on the way: what is seen gathers in buffers and sums
that the loop carries."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.model import Model, SelfSteppingModel
from simjax.integrators.integrator import Integrator
from simjax.jaxpr.varying import steady_carry, taken_where, vary_like
from simjax.status import OK
from simjax.stepping.checkpointing.loops import repeat
from simjax.stepping.checkpointing.plan import Binomial, Policy
from simjax.stepping.clock import Clock, Schedule, time_of
from simjax.stepping.moments import Averages, Moments, Sums
from simjax.stepping.one_step import arranged_steps, if_good, prepared_scheme, required, take_step

EARLY = 1e-3
"""Part of a step by which it may begin before the time from which states count."""


class Watch(NamedTuple):
    """A function that reads a state `(t, state) -> tree of arrays`, and the most readings that a call can need.

    is_due: `(when, number, before, after)`, whether to read after step `number` of the call, between whose clocks it
    took place; `when` is what the call is given for this watch. None: after every step that is taken.
    """

    read: Callable[[Array, Any], Any]
    room: int
    is_due: Callable[[Any, Array, Clock, Clock], Array] | None


class Readings(NamedTuple):
    """Readings of one call, the first `count` of `room + 1` rows.

    step, elapsed, elapsed_low: as of a `Clock` after the step, but that a frame's end counts as its whole length.
    """

    count: Array
    step: Array
    elapsed: Array
    elapsed_low: Array
    values: Any


class Phases(NamedTuple):
    """Equal parts of a period in which states are gathered apart: sums have an axis of them in front."""

    period: float
    bins: int

    def bin_of(self, begin: Array, elapsed: Array) -> Array:
        """Number of the part, each `bins`-th of a period around its middle.

        begin: the phase at which the frame began, in parts, so that times of a long run lose no digits. elapsed: time
        since then.
        """
        phase = begin + elapsed * (self.bins / self.period)
        # A state between two parts is in the later one, whatever its time was rounded to.
        return jnp.floor(phase + 0.5 + EARLY).astype(jnp.int32) % self.bins


class Gathering(NamedTuple):
    """Sums over the states of a run, and a function that reads the fields of them, `(t, state) -> fields by variable`.

    over: the reductions of each variable's field. is_due: as of `Watch`; a state counts with the time since the one
    before it that did. read_always: whether to read after steps too where nothing is due. phases: parts of a period
    that are gathered apart.
    """

    moments: Moments
    read: Callable[[Array, Any], Mapping[str, Array]]
    over: Mapping[str, Averages]
    is_due: Callable[[Any, Array, Clock, Clock], Array] | None
    read_always: bool = False
    phases: Phases | None = None

    def shapes(self, t: Array, state) -> dict[str, tuple[int, ...]]:
        """The shape of each variable's sums on this device."""

        def averaged(t: Array, state) -> dict[str, Array]:
            return {name: self.over[name].mean(u) for name, u in self.read(t, state).items()}

        return {name: one.shape for name, one in jax.eval_shape(averaged, t, state).items()}


class Halt(NamedTuple):
    """Conditions at which the steps of a call end: `(t, state) -> (conditions,)` whether each holds.

    at_once: of each, whether it does so wherever it holds, rather than where it begins to.
    """

    holds: Callable[[Array, Any], Array]
    at_once: tuple[bool, ...]


class Start(NamedTuple):
    """When states begin to count, as time since the frame's begin, what a gathering's `is_due` gets, and at the frame's
    begin the phase, as `Phases.bin_of` takes it, and the turns f t of waves, of which whole ones may be left out."""

    elapsed: Array
    when: Any
    phase: Array
    turns: Array


class Gathered(NamedTuple):
    """Sums that a run of several frames carries along.

    gatherings: by name. starts: when states begin to count in a frame, by its number.
    """

    gatherings: Mapping[str, Gathering]
    starts: Callable[[Array], Mapping[str, Start]]

    def zero(self, t: Array, state, dtype) -> dict[str, Sums]:
        """The sums before the first sample, on this device."""
        found = {}
        for name, one in self.gatherings.items():
            zero = one.moments.zero(one.shapes(t, state), dtype)
            found[name] = jax.tree.map(jnp.asarray, zero if one.phases is None else zero.apart(one.phases.bins))
        return found


class Sight(NamedTuple):
    """Readings, statistics and conditions that a loop over steps evaluates.

    watches, gatherings: by name. when, starts: what the `is_due` of each gets, and when states begin to count. halt: at
    which conditions no further step is taken.
    """

    watches: Mapping[str, Watch] = MappingProxyType({})
    when: Mapping[str, Any] = MappingProxyType({})
    gatherings: Mapping[str, Gathering] = MappingProxyType({})
    starts: Mapping[str, Start] = MappingProxyType({})
    halt: Halt | None = None


class Seen(NamedTuple):
    """Readings of one call of the loop.

    Attributes:
        number: number of steps taken.
        found: readings by instrument. sums: running sums of statistics, by name.
        held: for each condition of `halt`, whether it holds; None without `halt`.
        halted: for each condition of `halt`, whether it ended the steps; None without `halt`.
    """

    number: Array
    found: dict[str, Readings]
    sums: dict[str, Sums]
    held: Array | None
    halted: Array | None


def advance_watching(
    model: Model,
    integrator: Integrator | None,
    params,
    state,
    clock: Clock,
    schedule: Schedule,
    *,
    steps: int,
    until,
    sight: Sight,
    sums: Mapping[str, Sums] = MappingProxyType({}),
    checkpoint: Policy | Binomial = "none",
) -> tuple[Any, Clock, dict[str, Readings], dict[str, Sums], Array | None]:
    """The result of `advance`, what the watches read on the way, the sums of the gatherings, and which conditions
    ended the steps: nothing is read and added where the steps are given up.

    A state is read after each step, so none is left between exchanges. With conditions no step is taken after one at
    which one of them asks for it, nor beyond the end of frame number `until`.
    """
    params = vary_like(params, state)
    begin, halt = (state, clock), sight.halt
    held = None if halt is None else _judged(model, halt, clock, state, schedule)
    found = {name: _empty(watch, state, clock, schedule) for name, watch in sight.watches.items()}
    halted = None if held is None else jnp.zeros_like(held)
    seen = Seen(jnp.zeros((), jnp.int32), found, dict(sums), held, halted)

    def look(seen: Seen, before: Clock, after: Clock, state) -> Seen:
        return _with_state(sight, model, seen, (before, after), state, schedule)

    if isinstance(model, SelfSteppingModel):
        *after, seen = arranged_steps(model, params, (*begin, seen), schedule, steps, checkpoint, look)
    else:
        integrator = required(model, integrator)
        prepared = prepared_scheme(model, integrator, params, state, schedule)

        def step(carry):
            state, before, seen = carry
            state, clock = take_step(model, integrator, params, state, before, schedule, until, prepared)
            return state, clock, look(seen, before, clock, state)

        def step_unless_halted(carry):
            over = jnp.any(carry[2].halted) | (carry[1].frame >= until)
            taken, carry = steady_carry(step, carry)
            return lax.cond(over, lambda carry: carry, taken, carry)

        one = step if halt is None else step_unless_halted
        in_pairs = integrator.stages == 1  # as `advance` takes them
        *after, seen = repeat(one, (*begin, seen), steps, checkpoint, in_pairs=in_pairs)
    state, clock = if_good(model, params, begin, tuple(after))
    good = clock.status == OK
    kept = {name: one._replace(count=jnp.where(good, one.count, 0)) for name, one in seen.found.items()}
    gathered = jax.tree.map(lambda new, old: jnp.where(good, new, old), seen.sums, dict(sums))
    return state, clock, kept, gathered, None if seen.halted is None else seen.halted & good


def _with_state(sight: Sight, model: Model, seen: Seen, clocks: tuple[Clock, Clock], state, schedule: Schedule) -> Seen:
    """Findings updated by the state after a further step."""
    # Else the step is computed once more for the few values that are read.
    state = jax.tree.map(lax.optimization_barrier, state)
    found = {
        name: _with_reading(watch, sight.when[name], seen.number, clocks, state, schedule, seen.found[name])
        for name, watch in sight.watches.items()
    }
    sums = {
        name: _with_sample(one, sight.starts[name], seen.number, clocks, state, schedule, seen.sums[name])
        for name, one in sight.gatherings.items()
    }
    held, halted = seen.held, seen.halted
    if sight.halt is not None and held is not None:
        before, held = held, _judged(model, sight.halt, clocks[1], state, schedule)
        halted = held & (jnp.asarray(sight.halt.at_once) | ~before)
    return Seen(seen.number + 1, found, sums, held, halted)


def _judged(model: Model, halt: Halt, clock: Clock, state, schedule: Schedule) -> Array:
    """Tell which conditions hold, with the same answer on every device."""
    holds = halt.holds(time_of(clock, schedule), state).astype(jnp.int32)
    return jnp.stack([model.domain.max(one) for one in holds]) > 0


def _empty(watch: Watch, state, clock: Clock, schedule: Schedule) -> Readings:
    rows = watch.room + 1  # the last one takes what is not due
    shapes = jax.eval_shape(lambda clock, state: watch.read(time_of(clock, schedule), state), clock, state)
    dtype = clock.elapsed.dtype
    return Readings(
        jnp.zeros((), jnp.int32),
        jnp.zeros(rows, clock.step.dtype),
        jnp.zeros(rows, dtype),
        jnp.zeros(rows, dtype),
        jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), shapes),
    )


def _with_reading(
    watch: Watch, when, number: Array, clocks: tuple[Clock, Clock], state, schedule: Schedule, found: Readings
) -> Readings:
    """Readings with a further sample where one is due; where it is not, the next one takes its place."""
    before, after = clocks
    t = time_of(after, schedule)
    if watch.is_due is None:
        due, values = after.step != before.step, watch.read(t, state)
    else:
        due = watch.is_due(when, number, before, after)
        nothing = jax.tree.map(lambda rows: jnp.zeros(rows.shape[1:], rows.dtype), found.values)
        read, nothing = steady_carry(lambda _: watch.read(t, state), nothing)
        values = lax.cond(due, read, lambda row: row, nothing)
    low = jnp.where(after.frame != before.frame, 0, after.elapsed_low)
    row = after.step, _elapsed(clocks, schedule.interval), low, values
    place = found.count
    kept = jax.tree.map(
        lambda rows, one: lax.dynamic_update_index_in_dim(rows, one.astype(rows.dtype), place, 0), found[1:], row
    )
    return Readings(place + due.astype(place.dtype), *kept)


def _with_sample(
    gathering: Gathering,
    start: Start,
    number: Array,
    clocks: tuple[Clock, Clock],
    state,
    schedule: Schedule,
    sums: Sums,
) -> Sums:
    """The sums with the state after a step, where it counts."""
    before, after = clocks
    t = time_of(after, schedule)
    counts = (after.step != before.step) & (before.elapsed >= start.elapsed - EARLY * after.dt)
    due = counts if gathering.is_due is None else counts & gathering.is_due(start.when, number, before, after)
    sums = sums._replace(waiting=sums.waiting + jnp.where(counts, after.dt, 0))
    elapsed = _elapsed(clocks, schedule.interval)
    turns = start.turns + elapsed * jnp.asarray(gathering.moments.frequencies, elapsed.dtype)
    if gathering.phases is None:
        return _with_state_of(gathering, t, turns, state, due, sums)
    number = gathering.phases.bin_of(start.phase, elapsed)
    whole = sums._replace(waiting=None)  # pyright: ignore[reportArgumentType]
    own = jax.tree.map(lambda bins: lax.dynamic_index_in_dim(bins, number, 0, keepdims=False), whole)
    own = _with_state_of(gathering, t, turns, state, due, own._replace(waiting=sums.waiting))
    kept = jax.tree.map(
        lambda bins, one: lax.dynamic_update_index_in_dim(bins, one, number, 0),
        whole,
        own._replace(waiting=None),  # pyright: ignore[reportArgumentType]
    )
    return kept._replace(waiting=own.waiting)


def _elapsed(clocks: tuple[Clock, Clock], interval: float) -> Array:
    """Time since the frame of a step began, at the step's end."""
    before, after = clocks
    return jnp.where(after.frame != before.frame, jnp.asarray(interval, after.elapsed.dtype), after.elapsed)


def _with_state_of(gathering: Gathering, t: Array, turns: Array, state, due: Array, sums: Sums) -> Sums:
    """The sums with a state, where it is due."""

    def with_state(sums: Sums) -> Sums:
        return gathering.moments.with_sample(sums, t, sums.waiting, gathering.read(t, state), gathering.over, turns)

    return taken_where(due, with_state, sums, both=gathering.read_always)


def due_at_frames(_: Any, number: Array, before: Clock, after: Clock) -> Array:
    """Tell it by the end of a frame."""
    return after.frame != before.frame


def due_by_number(flags: Array, number: Array, before: Clock, after: Clock) -> Array:
    """Tell it by a flag for each step of the call."""
    return flags[number]


def due_by_time(interval: float, every: float, tolerance: float) -> Callable[[Array, Array, Clock, Clock], Array]:
    """Tell it by the time within a frame of `interval`, of which the first sample is the given time after its begin."""

    def passed(first: Array, elapsed: Array) -> Array:
        return jnp.floor((elapsed - first) / every + tolerance)

    def is_due(first: Array, number: Array, before: Clock, after: Clock) -> Array:
        return (passed(first, _elapsed((before, after), interval)) > passed(first, before.elapsed)) & (
            after.step != before.step
        )

    return is_due
