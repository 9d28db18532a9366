"""The key `outputs`: what is looked at while a run goes on, each with a cadence of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.instrument_declarations import KEYS, OF, instrument_class

FRAME, STEP = "frame", "step"
"""Cadences that are no times: at every output time, and after every step."""
TOLERANCE = 1e-3
"""Part of `every` by which a sample may be taken early, where a step ends that close before its time."""


@dataclass(frozen=True)
class InstrumentConfig:
    """One entry of `outputs`.

    kind: slice, probe, ... name: of its files and of its dataset. of: variables or whole fields, as they are written.
    every: `FRAME`, `STEP` or a time. given: the keys of its kind as they are read.
    """

    kind: str
    name: str
    of: tuple[str, ...]
    every: float | str
    given: Mapping[str, Any]

    @property
    def at_frames(self) -> bool:
        """Tell whether samples are taken at output times alone."""
        return self.every == FRAME

    @property
    def interval(self) -> float:
        """Time between two samples; zero where it is every step."""
        assert not self.at_frames
        return 0.0 if isinstance(self.every, str) else self.every

    @property
    def interval_within_frames(self) -> float:
        """Time between two samples; zero where it is every step or every frame."""
        return 0.0 if self.at_frames else self.interval

    @property
    def kind_class(self) -> Any:
        """The class of `instruments.instrument.Instrument` that is declared as its kind."""
        return instrument_class(self.kind)

    def readings(self, written: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The variables of its file, each with those of the run that it is read from.

        written: the names that `of` takes, each with its variables.
        """
        return self.kind_class.readings(self, written)

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        given, at_kind = {key: _plain(value) for key, value in self.given.items()}, self.kind_class.at_kind
        of = {OF: list(self.of)} if self.of else {}
        if at_kind == OF:
            own = {self.kind: of[OF], **given}
        elif at_kind == KEYS:
            own = {self.kind: given or None, **of}
        else:
            own = {self.kind: given.pop(at_kind), **given, **of}
        return {**own, "every": self.every, "name": self.name}


class Instruments(tuple[InstrumentConfig, ...]):
    """The entries of `outputs`; null where there are none."""

    def write(self) -> list[dict[str, Any]] | None:
        """The plain YAML value."""
        return [instrument.write() for instrument in self] or None

    @property
    def balanced(self) -> tuple[str, ...]:
        """Quantities of which balances are asked for, which are kept beside the fields."""
        return tuple(dict.fromkeys(name for one in self if one.kind_class.accounts for name in one.of))

    @property
    def within_frames(self) -> tuple[InstrumentConfig, ...]:
        """Entries with a cadence of their own."""
        return tuple(instrument for instrument in self if not instrument.at_frames)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def passed(time: float, every: float) -> int:
    """The number of sample times after the start that are over at `time`."""
    return math.floor(time / every + TOLERANCE)


def due_steps(ends: Iterable[float], begin: float, every: float) -> list[bool]:
    """Tell of steps that end at these times, the first of which begins at `begin`, which reach a sample time.

    every: zero for all of them.
    """
    if not every:
        return [True for _ in ends]
    before, due = passed(begin, every), []
    for end in ends:
        after = passed(end, every)
        due.append(after > before)
        before = after
    return due
