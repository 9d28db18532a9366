"""Limits in the world's time: how long a run takes at most, and until when it may."""

from __future__ import annotations

import signal
import time as wall

from simjax.errors import ConfigurationError
from simjax.schema.config import LimitsConfig
from simjax.schema.points_in_time import seconds_since_1970


def limit_reached(limits: LimitsConfig, elapsed: float, needed: float) -> str | None:
    """Name the limit of time that leaves no more than the seconds `needed`; None if every limit leaves more.

    elapsed: seconds since the process began.
    """
    if limits.wall_clock is not None and elapsed + needed >= limits.wall_clock:
        return f"the wall-clock limit of {limits.wall_clock:g} s"
    if limits.until is not None and wall.time() + needed >= seconds_since_1970(limits.until):
        return f"limits.until={limits.until}"
    return None


def require_time(limits: LimitsConfig, elapsed: float) -> None:
    """Raises ConfigurationError where a limit has passed before anything was computed."""
    if reached := limit_reached(limits, elapsed, 0.0):
        raise no_step(reached, elapsed)


def no_step(reason: str, elapsed: float) -> ConfigurationError:
    """The error of a run that a limit stops before its first step, and would stop there again."""
    return ConfigurationError(
        f"{reason} is reached before the first step, {elapsed:.1f} s after the process began, so that no progress is "
        "made, now or on resume; write a larger limits.wall_clock, which counts from the start of Python, or a later "
        "limits.until, at which a job ends; or null for none."
    )


def is_signal(reason: str) -> bool:
    """Tell whether the reason to stop is a signal, rather than a limit."""
    return reason.split(" ")[0] in signal.Signals.__members__
