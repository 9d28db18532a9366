"""Where a simulation stands in time, and when it is looked at: a schedule, and a clock that cannot drift."""

import math

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.errors import ConfigurationError
from simjax.core.status import OK


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


def time_of(clock: Clock, schedule: Schedule) -> Array:
    """The present time, in the clock's dtype."""
    dtype = clock.elapsed.dtype
    begin = schedule.start + clock.frame.astype(dtype) * schedule.interval
    if schedule.dt is None:
        return begin + clock.elapsed
    return begin + clock.substep.astype(dtype) * schedule.dt


def tick_fixed(clock: Clock, schedule: Schedule) -> tuple[Clock, tuple[Array, Array, Array]]:
    """The clock after a step, with `dt`; the step's beginning, length and number."""
    dt = length_of(schedule, clock.substep, clock.elapsed.dtype)
    return tick(clock, dt, clock.substep == schedule.steps - 1), (time_of(clock, schedule), dt, clock.step)


def length_of(schedule: Schedule, substep: Array, dtype) -> Array:
    """Of a frame's step number `substep`, with `dt`."""
    assert schedule.dt is not None
    dt = jnp.asarray(schedule.dt, dtype)
    if schedule.even_dt is not None:
        return dt
    return jnp.where(substep == schedule.steps - 1, jnp.asarray(schedule.last_dt, dtype), dt)


def tick(clock: Clock, dt: Array, completes: Array) -> Clock:
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
