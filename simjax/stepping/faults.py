"""Faults of a simulation read from its clock, in words and as an exception."""

import math

import jax
import numpy as np
from jax.core import Tracer

from simjax.arguments import require_kind, shown, taken_over
from simjax.errors import ConfigurationError, NumericalError
from simjax.status import FRAME_UNFINISHED, OK, STEP_COLLAPSED, STEP_SHRUNK, TOLERANCE_MISSED
from simjax.status import reasons as known_reasons
from simjax.stepping.clock import Clock, Schedule, elapsed_of


def is_traced(clock: Clock) -> bool:
    """Tell whether the clock is traced, as within jit, vmap and shard_map."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(clock))


def reasons(status: int) -> str:
    """The sentence fragments of all bits set in `status`.

    Raises ConfigurationError for what is no whole number.

    Examples:
        >>> sj.reasons(0), sj.reasons(1)
        ('no fault', 'a field became infinite or not a number')
    """
    given = taken_over(status)
    if np.shape(given) != () or not np.issubdtype(np.asarray(given).dtype, np.integer):
        raise ConfigurationError(
            f"reasons({shown(status)}): expected the status of one run, a whole number, such as clock.status."
        )
    return known_reasons(int(given))


def status_of(clock: Clock, schedule: Schedule | None = None) -> str:
    """Describe the outcome of a run: "no fault", or the cause, the frame, the step and the time.

    Args:
        clock: as `simulate` and `advance` return it, of one run or with leading axes of members. Not traced: call this
            on what a compiled function returns.
        schedule: that of the run, for the time.

    Examples:
        >>> sj.status_of(sj.Clock.zero(jnp.float64))
        'no fault'
    """
    require_kind("status_of: clock", clock, Clock, "the Clock of a run; write run.clock")
    statuses = np.atleast_1d(np.asarray(clock.status)).ravel()
    faulty = np.flatnonzero(statuses != OK)
    if not faulty.size:
        return "no fault"
    number = int(faulty[0])
    one = jax.tree.map(lambda leaf: np.atleast_1d(np.asarray(leaf)).ravel()[number], clock)
    text = f"{known_reasons(int(one.status))}, in frame {int(one.frame)} (counted from 0), after step {int(one.step)}"
    if schedule is not None:
        text += f" at t={float(times_on_host(one, schedule)):.6g}"
    if int(one.status) & (STEP_COLLAPSED | STEP_SHRUNK):
        text += f"; {limits_told(one)}"
    if statuses.size > 1:
        return f"{faulty.size} of {statuses.size} members failed; member {number}: {text}"
    return text


def limits_told(clock: Clock) -> str:
    """The smallest Courant-limited step and the first one, in words; of several members, of the worst."""
    first, smallest = (np.atleast_1d(np.asarray(limit)) for limit in (clock.first_limit, clock.smallest_limit))
    worst = int(np.argmin(smallest))  # not a number counts as smaller than any
    begun = f"; the first one was {first[worst]:.3g}" if first[worst] > 0 else ""
    return f"the smallest step that the Courant number allowed was {smallest[worst]:.3g}{begun}"


def times_on_host(clock: Clock, schedule: Schedule) -> np.ndarray:
    """The time of every member's clock, in float64."""
    begun = float(schedule.start) + np.asarray(clock.frame, np.float64) * float(schedule.interval)
    if schedule.dt is None:
        return begun + elapsed_of(clock)
    return begun + np.asarray(clock.substep, np.float64) * float(schedule.dt)


def raise_on_fault(clock: Clock, schedule: Schedule | None = None) -> None:
    """Raise an error if a run did not come to its end.

    Raises:
        NumericalError: it did not; with the cause, the frame, the step and the time, as of `status_of`.

    Examples:
        >>> sj.raise_on_fault(sj.Clock.zero(jnp.float64))  # nothing went wrong, so nothing happens
    """
    require_kind("raise_on_fault: clock", clock, Clock, "the Clock of a run; write run.clock")
    if np.any(np.asarray(clock.status) != OK):
        raise NumericalError(
            f"The run stopped early: {status_of(clock, schedule)}. {_remedy(clock, schedule)}; on_fault='keep' returns "
            "the last good state, on_fault='nan' one of NaN."
        )


def _remedy(clock: Clock, schedule: Schedule | None) -> str:
    """Advice: what to write in place of the schedule, where that is known."""
    unfinished = np.any(np.asarray(clock.status) & FRAME_UNFINISHED)
    if schedule is None or schedule.dt is not None or not unfinished:
        missed = np.any(np.asarray(clock.status) & TOLERANCE_MISSED)
        return "Take a larger tolerance, or float64" if missed else "Take a smaller dt or Courant number"
    limit = "courant" if schedule.tolerance is None else "tolerance"
    # A flow that begins at rest takes long steps at first, from which no one can tell how many there will be.
    number = f"{limit}={getattr(schedule, limit):g}"
    written = f"Schedule({schedule.interval:g}, {number}, max_steps={4 * schedule.max_steps})"
    return f"A frame has {schedule.max_steps} steps at most: allow more, as by {written}"


def shrinkage(clock: Clock) -> float:
    """The smallest Courant-limited step as a fraction of the first one, of the worst member; 1 before there is one."""
    first, smallest = (np.asarray(limit, np.float64) for limit in (clock.first_limit, clock.smallest_limit))
    ratio = np.min(np.where(first > 0, smallest / np.where(first > 0, first, 1), 1))
    return float(ratio) if math.isfinite(ratio) else 0.0
