"""The key `outputs`: what is looked at while a run goes on, each with a cadence of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

VECTORS_ALONG_BODIES = ("position", "normal", "shear_stress")
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

    def readings(self, written: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The variables of its file, each with those of the run that it is read from.

        written: the names that `of` takes, each with its variables.
        """
        match self.kind:
            case "radial_distribution" | "mean_square_displacement":
                return {self.kind: ()}
            case "tracks":
                return {"position": (), "velocity": ()}
            case "density":
                names = {"velocity": [f"mean_velocity_{axis}" for axis in "xyz"[: len(self.given["shape"])]]}
                return {variable: () for name in self.of for variable in names.get(name, [name])}
            case "spectrum":
                return {f"{name}_spectrum": written[name] for name in self.of}
            case "body_surface":
                axes, names = "xyz"[: len(self._first_place)], ("position", *self.of)
                parts = ([f"{n}_{axis}" for axis in axes] if n in VECTORS_ALONG_BODIES else [n] for n in names)
                return {variable: () for part in parts for variable in part}
            case "correlation":
                return {f"{'_'.join(self.of)}_correlation": tuple(one for name in self.of for one in written[name])}
            case "structure_function":
                return {key: parts for name in self.of for key, parts in self._increments(name, written[name]).items()}
            case "surface_integral":
                return {f"{name}_{'flux' if len(written[name]) > 1 else 'integral'}": written[name] for name in self.of}
        return {variable: (variable,) for name in self.of for variable in written[name]}

    @property
    def _first_place(self) -> tuple[float, ...]:
        """The first place of an instrument along bodies."""
        return self.given["around"] if "around" in self.given else self.given["points"][0]

    def _increments(self, name: str, parts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """A scalar's structure function, or those of the component along the separations and of those across."""
        if len(parts) == 1:
            return {f"{name}_structure_function": parts}
        along = f"{name}_{self.given['along']}"
        return {
            f"{name}_longitudinal_structure_function": (along,),
            f"{name}_transverse_structure_function": tuple(part for part in parts if part != along),
        }

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        given = {key: _plain(value) for key, value in self.given.items()}
        match self.kind:
            case "balance" | "spectrum" | "structure_function" | "correlation":
                own = {self.kind: list(self.of), **given}
            case "radial_distribution":
                own = {self.kind: given["radii"], "width": given["width"]}
            case "mean_square_displacement":
                own = {self.kind: None}
            case "tracks":
                own = {self.kind: given}
            case _:
                own = {self.kind: given, "of": list(self.of)}
        return {**own, "every": self.every, "name": self.name}


class Instruments(tuple[InstrumentConfig, ...]):
    """The entries of `outputs`; null where there are none."""

    def write(self) -> list[dict[str, Any]] | None:
        """The plain YAML value."""
        return [instrument.write() for instrument in self] or None

    @property
    def balanced(self) -> tuple[str, ...]:
        """Quantities of which balances are asked for, which are kept beside the fields."""
        return tuple(dict.fromkeys(name for one in self if one.kind == "balance" for name in one.of))

    @property
    def within_frames(self) -> tuple[InstrumentConfig, ...]:
        """Entries with a cadence of their own."""
        return tuple(instrument for instrument in self if not instrument.at_frames)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def line_points(given: Mapping[str, Any]) -> list[list[float]]:
    """Evenly spaced points of a line from end to end, one list of coordinates each."""
    ends, count = list(zip(given["from"], given["to"], strict=True)), given["points"]
    inner = [[a + number * ((b - a) / (count - 1)) for a, b in ends] for number in range(count - 1)]
    return [*inner, list(given["to"])]


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
