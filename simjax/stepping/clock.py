"""Time in a simulation: a schedule of frames, and a clock that cannot drift."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from simjax.arguments import require_count, shown
from simjax.errors import ConfigurationError
from simjax.notebook import all_in_a_line
from simjax.status import OK
from simjax.stepping.compensated import Pair, added, pair_of, product, total_of

Number = float | Array


class Schedule(eqx.Module):
    """When to observe and how to step.

    `Schedule(interval, dt=...)`: frame k ends at exactly start + (k + 1) interval. A frame takes `ceil(interval / dt)`
    steps, and the last one is shortened where dt does not divide the interval.

    `Schedule(steps=..., dt=...)`: a frame is so many steps of dt. Here dt may be traced: programs are compiled once
    for every dt, and are differentiable in it.

    `Schedule(interval, courant=..., max_steps=...)`: each step is that multiple of the model's stable step, never over
    the end of the frame, and a frame takes at most `max_steps`. The run ends with a fault where the step falls below a
    billionth of the interval, or below `step_shrink` of the first one. No gradient flows through the length of a
    Courant-limited step.

    `Schedule(interval, tolerance=..., max_steps=...)`: each step is as long as its estimated error allows, and never
    over the end of the frame, for schemes of `error_controlled`. Of every field the error of a step, as a root mean
    square over the box, is at most tolerance times that of the field plus `absolute_tolerance`. A step that is less
    exact is taken again, shorter. A frame takes at most `max_steps`, those that are rejected included. No gradient
    flows through the lengths of steps.

    Args:
        interval: time from frame to frame, a plain number.
        start: time of the first frame's beginning; may be traced.
        dt: length of a step.
        courant: Courant number of a step.
        max_steps: the most steps of a frame, with `courant` and `tolerance`.
        steps: steps of a frame, with `dt` and without `interval`.
        step_shrink: a fraction between zero (no bound) and one, with `courant`.
        tolerance: error of a step, relative to each field.
        absolute_tolerance: error of a step in the units of each field; by default `tolerance`.

    Raises:
        ConfigurationError: a number out of its range, or a combination other than these four.

    Examples:
        >>> sj.Schedule(0.1, dt=0.01).steps
        10
        >>> fast = sj.Schedule(0.1, courant=0.5, max_steps=100)
        >>> exact = sj.Schedule(0.1, tolerance=1e-6, max_steps=100)
    """

    start: Number
    courant: float | None = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    step_shrink: float = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    absolute_tolerance: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    """Steps of one frame (the most there can be, with `courant` and `tolerance`)."""
    _interval: float | None = eqx.field(static=True)
    _dt: float | None = eqx.field(static=True)  # with an interval
    _free_dt: Number | None  # with a number of steps

    def __init__(
        self,
        interval: float | None = None,
        start: Number = 0.0,
        dt: Number | None = None,
        courant: float | None = None,
        max_steps: int = 0,
        step_shrink: float = 0.0,
        *,
        steps: int | None = None,
        tolerance: float | None = None,
        absolute_tolerance: float | None = None,
    ):
        if sum(given is not None for given in (dt, courant, tolerance)) != 1:
            raise ConfigurationError(
                "Schedule needs exactly one of dt, courant and tolerance; "
                f"dt={dt}, courant={courant}, tolerance={tolerance}."
            )
        if (interval is None) == (steps is None) or (steps is not None and dt is None):
            raise ConfigurationError(
                f"Schedule: interval={interval}, steps={steps}, courant={courant}, tolerance={tolerance}: expected an "
                "interval, or with dt a number of steps in its place; write Schedule(interval, dt=dt) or "
                "Schedule(steps=100, dt=dt)."
            )
        if steps is not None:
            require_count("Schedule.steps", steps)
        if dt is None and max_steps == 0:
            name = "courant" if tolerance is None else "tolerance"
            raise ConfigurationError(f"Schedule.{name} needs max_steps, the most steps a frame may take.")
        if dt is None:
            require_count("Schedule.max_steps", max_steps)
        if absolute_tolerance is not None and tolerance is None:
            raise ConfigurationError(
                f"Schedule.absolute_tolerance={absolute_tolerance} without a tolerance; write Schedule(interval, "
                "tolerance=1e-6, absolute_tolerance=1e-9, max_steps=1000)."
            )
        if not isinstance(step_shrink, (int, float, np.generic)) or not 0 <= step_shrink < 1:
            raise ConfigurationError(f"Schedule.step_shrink={shown(step_shrink)}: expected a number from 0 to below 1.")
        if not isinstance(start, (int, float)) and not hasattr(start, "dtype"):
            raise ConfigurationError(f"Schedule.start={shown(start)}: expected a number.")
        self.start, self.max_steps, self.step_shrink = start, max_steps, float(step_shrink)
        self.courant = None if courant is None else _plain("courant", courant)
        self.tolerance = None if tolerance is None else _plain("tolerance", tolerance)
        absolute = tolerance if absolute_tolerance is None else absolute_tolerance
        self.absolute_tolerance = 0.0 if absolute is None else _plain("absolute_tolerance", absolute)
        self._interval = None if interval is None else _plain("interval", interval)
        self._dt = None if dt is None or steps is not None else _plain("dt", dt)
        self._free_dt = None if dt is None or steps is None else _step_length(dt)
        if steps is not None:
            self.steps = int(steps)
        elif self._dt is None:
            self.steps = max_steps
        else:
            self.steps = max(1, math.ceil(self.interval / self._dt * (1 - 1e-12)))

    __repr__ = all_in_a_line

    @property
    def interval(self) -> float:
        """Time from frame to frame; traced where it is a number of steps of a traced dt."""
        if self._interval is None:
            interval: Any = self.steps * self.dt
            return interval
        return self._interval

    @property
    def dt(self) -> Any:
        """Length of a step, but for the last one of a frame; None with `courant` and `tolerance`."""
        return self._dt if self._free_dt is None else self._free_dt

    @property
    def last_dt(self) -> Any:
        """Length of a frame's last step, with `dt`."""
        if self._dt is None:
            return self._free_dt
        return self.interval - (self.steps - 1) * self._dt

    @property
    def even_dt(self) -> Any:
        """The length of every step, where all are equal to rounding, else None."""
        if self._dt is not None and abs(self.last_dt - self._dt) > 1e-9 * self._dt:
            return None
        return self.dt


def _plain(name: str, value: Any) -> float:
    """A Python number above zero."""
    if isinstance(value, Tracer):
        raise ConfigurationError(
            f"Schedule.{name} is traced: expected a plain number, as the number of steps has to be known when a "
            "program is compiled; write Schedule(steps=100, dt=dt) for a dt that is traced."
        )
    real = (isinstance(value, (int, float)) or hasattr(value, "dtype")) and np.ndim(value) == 0
    if not (real and math.isfinite(value) and value > 0):
        given = value if real else shown(value)
        raise ConfigurationError(f"Schedule.{name}={given}: expected a finite number above zero.")
    return float(value)


def _step_length(dt) -> Number:
    """`dt` as it is, checked as far as its value is known."""
    if isinstance(dt, int | float | np.generic) or not hasattr(dt, "dtype"):
        return _plain("dt", dt)
    if jnp.ndim(dt) or not jnp.issubdtype(dt.dtype, jnp.floating):
        raise ConfigurationError(
            f"Schedule.dt has shape {dt.shape} and dtype {dt.dtype}: expected one real number; use jax.vmap for "
            "several."
        )
    if not isinstance(dt, Tracer):
        _plain("dt", dt)
    return dt


class Control(eqx.Module):
    """State of the control of errors, carried from step to step.

    next_dt: the step that it wants to take next; zero at the start. error: estimated error of the last step that was
    accepted, over the tolerance; zero at the start. rejected: steps that were not accepted.
    """

    next_dt: Array
    error: Array
    rejected: Array

    @classmethod
    def zero(cls, dtype) -> "Control":
        """The control at the start."""
        return cls(jnp.zeros((), dtype), jnp.zeros((), dtype), jnp.zeros((), jnp.int32))


class Clock(eqx.Module):
    """The position of a simulation in time, from integers or kept with its rounding error: it does not drift.

    frame: completed frames. substep: steps since the frame began. step: steps since the start. elapsed: time since
    the frame began, rounded; elapsed_low: what that rounding left out, so that their sum has twice the digits. dt: the
    last step taken. first_limit, smallest_limit: the step that the Courant number allowed at first (an interval at
    most), and the smallest so far; zero before there was one. status: bits of `status`. control: that of errors, where
    the schedule has a tolerance.

    Examples:
        >>> int(sj.Clock.zero(jnp.float64).step)
        0
    """

    frame: Array
    substep: Array
    step: Array
    elapsed: Array
    elapsed_low: Array
    dt: Array
    first_limit: Array
    smallest_limit: Array
    status: Array
    control: Control | None = None

    __repr__ = all_in_a_line

    @classmethod
    def zero(cls, dtype, *, controlled: bool = False) -> "Clock":
        """The clock at the start, with times in `dtype`; controlled: for a schedule with a tolerance."""

        # An array of its own for each, so that a clock can be donated.
        def zero(kind):
            return jnp.zeros((), kind)

        count = jnp.int32
        return cls(
            zero(count),
            zero(count),
            zero(count),
            zero(dtype),
            zero(dtype),
            zero(dtype),
            zero(dtype),
            zero(dtype),
            jnp.asarray(OK, count),
            Control.zero(dtype) if controlled else None,
        )


def clock_at_start(dtype, schedule: Schedule) -> Clock:
    """`Clock.zero` for a schedule."""
    return Clock.zero(dtype, controlled=schedule.tolerance is not None)


def time_of(clock: Clock, schedule: Schedule) -> Array:
    """The present time, in the clock's dtype."""
    dtype = clock.elapsed.dtype
    start = pair_of(schedule.start, dtype)
    begin = _times(clock.frame, _interval_of(schedule, dtype))
    if schedule.dt is None:
        return _total(start, begin, (clock.elapsed, clock.elapsed_low))
    return _total(start, begin, _times(clock.substep, pair_of(schedule.dt, dtype)))


def _interval_of(schedule: Schedule, dtype) -> Pair:
    if isinstance(schedule.interval, float):
        return pair_of(schedule.interval, dtype)
    return _times(jnp.asarray(schedule.steps, jnp.int32), pair_of(schedule.dt, dtype))


def _is_double(dtype) -> bool:
    """Tell whether the type is so precise that plain products and sums suffice."""
    return jnp.finfo(dtype).nmant >= 52


def _times(count: Array, length: Pair) -> Pair:
    dtype = length[0].dtype
    if _is_double(dtype):
        return count.astype(dtype) * length[0], jnp.zeros((), dtype)
    return product(count, length)


def _total(*pairs: Pair) -> Array:
    if not _is_double(pairs[0][0].dtype):
        return total_of(*pairs)
    total = pairs[0][0]
    for number, _ in pairs[1:]:
        total = total + number
    return total


def elapsed_of(clock: Clock) -> np.ndarray:
    """Time since the frame began, of every member, in float64; of a clock that is not traced."""
    return np.asarray(clock.elapsed, np.float64) + np.asarray(clock.elapsed_low, np.float64)


def time_left(clock: Clock, schedule: Schedule) -> Array:
    """Time to the end of the frame."""
    interval, low = pair_of(schedule.interval, clock.elapsed.dtype)
    return (interval - clock.elapsed) + (low - clock.elapsed_low)


def tick_fixed(clock: Clock, schedule: Schedule) -> tuple[Clock, tuple[Array, Array, Array]]:
    """The clock after a step, with `dt`; the step's beginning, length and number."""
    dtype = clock.elapsed.dtype
    dt = length_of(schedule, clock.substep, dtype)
    completes = clock.substep == schedule.steps - 1
    elapsed = (clock.substep + 1).astype(dtype) * jnp.asarray(schedule.dt, dtype), jnp.zeros((), dtype)
    return _ticked(clock, dt, completes, elapsed), (time_of(clock, schedule), dt, clock.step)


def ticked_fixed(clock: Clock, schedule: Schedule, count: Array) -> Clock:
    """The clock after `count` steps, at least one, with `dt`: that after so many times `tick_fixed`."""
    dtype, substep, steps = clock.elapsed.dtype, clock.substep + count, jnp.full_like(clock.substep, schedule.steps)
    frames, substep = lax.div(substep, steps), lax.rem(substep, steps)
    last = jnp.where(substep == 0, schedule.steps, substep) - 1
    return dataclasses.replace(
        clock,
        frame=clock.frame + frames,
        substep=substep,
        step=clock.step + count,
        elapsed=substep.astype(dtype) * jnp.asarray(schedule.dt, dtype),
        elapsed_low=jnp.zeros_like(clock.elapsed_low),
        dt=length_of(schedule, last, dtype),
    )


def length_of(schedule: Schedule, substep: Array, dtype) -> Array:
    """Length of a frame's step number `substep`, with `dt`."""
    assert schedule.dt is not None
    dt = jnp.asarray(schedule.dt, dtype)
    if schedule.even_dt is not None:
        return dt
    return jnp.where(substep == schedule.steps - 1, jnp.asarray(schedule.last_dt, dtype), dt)


def tick(clock: Clock, dt: Array, completes: Array) -> Clock:
    """The clock one step of `dt` later; a step that completes the frame starts the next one."""
    return _ticked(clock, dt, completes, added((clock.elapsed, clock.elapsed_low), dt))


def _ticked(clock: Clock, dt: Array, completes: Array, elapsed: Pair) -> Clock:
    zero = jnp.zeros_like(clock.elapsed)
    return Clock(
        frame=clock.frame + completes.astype(clock.frame.dtype),
        substep=jnp.where(completes, 0, clock.substep + 1),
        step=clock.step + 1,
        elapsed=jnp.where(completes, zero, elapsed[0]),
        elapsed_low=jnp.where(completes, zero, elapsed[1]),
        dt=dt,
        first_limit=clock.first_limit,
        smallest_limit=clock.smallest_limit,
        status=clock.status,
        control=clock.control,
    )


def numbers_of(clock: Clock) -> tuple[Array, Array]:
    """The counts of a clock as one array, and its times: a loop on a GPU takes a launch for each array."""
    counts = [clock.frame, clock.substep, clock.step, clock.status]
    times = [clock.elapsed, clock.elapsed_low, clock.dt, clock.first_limit, clock.smallest_limit]
    if clock.control is not None:
        counts, times = [*counts, clock.control.rejected], [*times, clock.control.next_dt, clock.control.error]
    return jnp.stack(counts), jnp.stack(times)


def clock_of(counts: Array, times: Array) -> Clock:
    """The clock with these `numbers_of` it."""
    frame, substep, step, status = (counts[k] for k in range(4))
    elapsed, elapsed_low, dt, first_limit, smallest_limit = (times[k] for k in range(5))
    control = Control(times[5], times[6], counts[4]) if len(times) > 5 else None
    return Clock(frame, substep, step, elapsed, elapsed_low, dt, first_limit, smallest_limit, status, control)


def at_frame_start(clock: Clock) -> Clock:
    """`clock` as if its frame began now."""
    begun = clock.substep, clock.elapsed, clock.elapsed_low
    zeros = tuple(jnp.zeros_like(leaf) for leaf in begun)
    return eqx.tree_at(lambda c: (c.substep, c.elapsed, c.elapsed_low), clock, zeros)
