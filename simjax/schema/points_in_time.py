"""Moments of the world's time, such as that at which a job ends."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Plain

_SECONDS = re.compile(r"\d{9,11}(\.\d*)?")


@dataclass(frozen=True)
class Moment(Plain):
    """A date and a time with its zone, or seconds since 1970; kept as text of ISO 8601 in UTC, or null."""

    @property
    def allowed(self) -> str:
        return (
            "a date and time with its zone, such as 2026-11-28T06:00:00+01:00, seconds since 1970, such as "
            "$SLURM_JOB_END_TIME, or null"
        )

    def read(self, path: str, value: Any, problems: ConfigErrors) -> str | None:
        if value is None:
            return None
        moment = _moment(value)
        if moment is None:
            problems.add(path, value, self.allowed)
            return None
        return moment.astimezone(UTC).isoformat()


def _moment(value: Any) -> datetime | None:
    """The moment of a text, of a number of seconds, or of what YAML makes of a date; None where it is none."""
    try:
        if isinstance(value, str) and _SECONDS.fullmatch(value):
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment if isinstance(moment, datetime) and moment.utcoffset() is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def seconds_since_1970(moment: str) -> float:
    """The seconds since 1970 of a moment as it is kept."""
    return datetime.fromisoformat(moment).timestamp()
