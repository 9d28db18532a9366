"""Limits of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from simjax.errors import ConfigurationError


@dataclass(frozen=True)
class Limits:
    """Numbers that bound what a server takes on.

    requests: most of them at once, read, waiting or computed; more are refused. seconds: from the first byte of a
    request to its answer. window: seconds for which a request waits for others that are computed with it.
    """

    requests: int = 64
    seconds: float = 60.0
    window: float = 0.002

    def __post_init__(self):
        for one in fields(self):
            value = getattr(self, one.name)
            if not math.isfinite(value) or value < 0 or (value == 0 and one.name != "window"):
                raise ConfigurationError(f"{one.name}={value}: expected a positive number.")


DEFAULT = Limits()
