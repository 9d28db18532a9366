"""The key `statistics`: moments, extremes and Fourier sums in time, gathered while a run goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.instruments import FRAME, STEP

MEAN, VARIANCE, COVARIANCE, THIRD_MOMENT, MIN, MAX = "mean", "variance", "covariance", "third_moment", "min", "max"
FOURIER = "fourier"
KINDS = (MEAN, VARIANCE, COVARIANCE, THIRD_MOMENT, MIN, MAX, FOURIER)
DEFAULT_KINDS = (MEAN, VARIANCE)


@dataclass(frozen=True)
class PhaseConfig:
    """Parts of a period in which states are gathered apart: `bins` of them, the first one around t = 0."""

    period: float
    bins: int

    @property
    def middles(self) -> list[float]:
        """The middle of each, as a part of the period."""
        return [number / self.bins for number in range(self.bins)]


@dataclass(frozen=True)
class StatisticsConfig:
    """One entry of `statistics`.

    name: of its files. of: variables or whole fields, as they are written, or the name of one instrument. kinds: of
    `KINDS`, in that order. start: the time from which states count. every: `STEP`, `FRAME` or a time. over: axes that
    are averaged over. window: the length of each set; None for one set until the run ends. of_instrument: whether `of`
    is an instrument. phase: parts of a period that are gathered apart; None for all times together. frequencies: those
    of the Fourier integrals, in inverse units of time. reference: values by key path of the run that these are compared
    with.
    """

    name: str
    of: tuple[str, ...]
    kinds: tuple[str, ...] = DEFAULT_KINDS
    start: float = 0.0
    every: float | str = STEP
    over: tuple[str, ...] = ()
    window: float | None = None
    of_instrument: bool = False
    phase: PhaseConfig | None = None
    frequencies: tuple[float, ...] = ()
    reference: Mapping[str, Any] | None = None

    @property
    def interval(self) -> float | None:
        """Time between two samples: zero where it is every step, None where it is every frame."""
        return {STEP: 0.0, FRAME: None}[self.every] if isinstance(self.every, str) else self.every

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        return {
            "of": list(self.of),
            "kinds": list(self.kinds),
            "from": self.start,
            "every": self.every,
            "over": list(self.over),
            "window": self.window,
            "name": self.name,
            **({"phase": dataclasses.asdict(self.phase)} if self.phase else {}),
            **({"frequencies": list(self.frequencies)} if self.frequencies else {}),
            **({"reference": dict(self.reference)} if self.reference else {}),
        }


class TimeStatistics(tuple[StatisticsConfig, ...]):
    """The entries of `statistics`; null where there are none."""

    def write(self) -> list[dict[str, Any]] | None:
        """The plain YAML value."""
        return [one.write() for one in self] or None
