"""Conditions on a run's quantities: which of them hold, and the frames that events write."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simjax.driver.output.frame_files import on_host, open_writer
from simjax.driver.output.instrument import RunInstrument
from simjax.driver.output.member_statistics import NEVER
from simjax.driver.output.provenance import require_frames
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_fields import STEPS
from simjax.driver.start.build import Plan
from simjax.errors import ConfigurationError
from simjax.io.frame_layout import NO_NUMBERS, MemberNumbers, written_times
from simjax.io.frame_output import FrameWriter
from simjax.io.grid_output import EVENTS_FOLDER
from simjax.parallel import whole
from simjax.processes import processes
from simjax.report.check import ROUNDING
from simjax.schema.config import Config
from simjax.schema.config_errors import closest
from simjax.schema.formula import Condition
from simjax.schema.instruments import FRAME, STEP
from simjax.schema.kinds import write
from simjax.stepping.watching import Halt

TIME = "t"
STOP = ""
"""The name of the condition `stop.when` among those of events, which have names."""
BESIDE = "courant", "error_", *STEPS
"""Beginnings of quantities that are known at output times alone."""
MOST_NAMED, MOST_TOLD = 3, 16
"""The most members that a sentence names, and of which the report has a sentence each."""


class At(NamedTuple):
    """An output time. steps, good: of each member, or of the run, how many steps it took and whether it is well."""

    time: float
    steps: np.ndarray
    good: np.ndarray


class Judged(NamedTuple):
    """Findings at a time: which events occurred, each with a sentence, and a sentence for each member that met the
    condition of an end."""

    events: dict[str, str]
    met: tuple[str, ...] = ()


class Triggers:
    """The conditions of a run, judged at output times and after steps; all processes find the same.

    A stop ends the run where its condition holds after the start. An event occurs where its condition holds and did
    not hold when it was judged before, at the start first. In an ensemble each member is judged by itself: the run ends
    when all that are well have met the condition at some time, and an event occurs where it does for any of them.

    ended: why the run has ended. times: of each member, or of the run, when it met the condition of an end; NaN where
    it did not.
    """

    def __init__(self, config: Config, programs: CompiledRun):
        self._config, self._programs = config, programs
        events = {event.name: event for event in config.events or ()}
        conditions = {name: (event.when, event.every) for name, event in events.items()}
        if config.stop is not None and config.stop.when is not None:
            conditions[STOP] = config.stop.when, config.stop.every  # last, so that an event beside it is written
        self._at = {
            every: {name: when for name, (when, own) in conditions.items() if own == every} for every in (FRAME, STEP)
        }
        self._steady = None if config.stop is None else config.stop.steady
        # Built where a name is asked for: others are of no concern to conditions.
        named = self._quantities(FRAME) | self._quantities(STEP)
        self._instruments = {one.name: RunInstrument.of(one, programs) for one in config.outputs if one.name in named}
        self._held: dict[str, np.ndarray] = {}
        self._history: list[tuple[float, np.ndarray]] = []
        self.ended: str | None = None
        self.times = np.full(programs.members or 1, np.nan)

    def __bool__(self) -> bool:
        return bool(self._at[FRAME] or self._at[STEP] or self._steady)

    @property
    def after_steps(self) -> dict[str, Condition]:
        """Conditions that are judged after every step, by name."""
        return self._at[STEP]

    def instruments(self, every: str) -> tuple[str, ...]:
        """Names of the instruments of `outputs` whose readings are judged at output times, or after steps."""
        return tuple(name for name in self._instruments if name in self._quantities(every))

    def readings(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The number that each of some instruments reads, of each member."""
        return {name: next(iter(rows.values())) for name, rows in found.items() if name in self._instruments}

    def read_after_steps(self, measure: Callable, now: tuple) -> dict[str, Any]:
        """The readings that are judged after steps, by the programs of `CompiledInstruments.measure`."""
        names = self.instruments(STEP)
        return self.readings(measure(names)(*now)[1]) if names else {}

    def check(self) -> None:
        """Raise ConfigurationError where a quantity is not one of the run's, before anything is compiled."""
        if not self:
            return
        for name, one in self._instruments.items():
            shapes = one.shapes(self._programs.domain.grid)
            count = sum(math.prod(shape) for shape in shapes.values())
            if count != 1:
                raise ConfigurationError(
                    f"outputs: {name} reads {count} numbers, {', '.join(shapes)}: expected one in a condition of stop "
                    "or events, such as that of a box_mean; write an entry that reads one."
                )
        known = sorted({*self._programs.observed_shapes()[1], *(one.name for one in self._config.outputs)})
        places = {"stop.steady.quantity": {self._steady.quantity}} if self._steady is not None else {}
        numbers = {event.name: number for number, event in enumerate(self._config.events or ())}
        for name, when in {**self._at[FRAME], **self._at[STEP]}.items():
            places["stop.when" if name == STOP else f"events[{numbers[name]}].when"] = set(when.names)
        for path, names in places.items():
            for name in sorted(names - {*known, TIME}):
                close = closest(name, known)
                hint = f"did you mean '{close}'? " if close else ""
                raise ConfigurationError(
                    f"{path}: {name!r} is no quantity of model={self._config.model}; {hint}There are "
                    f"{', '.join(known)}, and t."
                )
        for name in sorted(
            name
            for name in self._quantities(STEP) - {*self._instruments}
            if name.startswith(BESIDE) or name.endswith(ROUNDING)
        ):
            raise ConfigurationError(f"every={STEP}: {name} is known at output times alone; write every: {FRAME}.")

    # ------------------------------------------------------------------ at output times

    def judge(self, at: At, diagnostics: Mapping[str, Any], *, first: bool) -> Judged:
        """Findings at an output time; at the `first`, the start, nothing ends and nothing occurs."""
        count = len(self.times)
        values = {name: self._numbers(diagnostics[name]) for name in self._quantities(FRAME) if name != TIME}
        values[TIME] = np.full(count, at.time)
        looked_at = at.good & (self._programs.counted_from < NEVER)
        events, before = {}, np.full(count, first)
        ends: list[tuple[np.ndarray, Sequence[str], Any]] = []
        for name, when in self._at[FRAME].items():
            holds = np.broadcast_to(when(values, np), count) & looked_at
            if name == STOP:
                ends.append((holds & (not first), [f"stop.when held: {when.text}"] * count, when.names))
            elif np.any(new := holds & ~self._held.get(name, before)):
                text = f"event {name}: {when.text} began to hold{self._of(new)}"
                events[name] = _sentence(text, when.names, values, at, int(np.argmax(new)))
            self._held[name] = holds
        if self._steady is not None:
            ends.append(self._judge_steady(at.time, values[self._steady.quantity], looked_at))
        met = tuple(sentence for end in ends for sentence in self._meet(*end, values, at))
        if met and self._programs.members is None:
            self.ended = f"ended as {met[0]}"
            return Judged(events)
        missing = looked_at & np.isnan(self.times)
        if not first and self.ended is None and np.any(~np.isnan(self.times)) and not np.any(missing):
            who = "all members" if np.all(at.good) else "all members that are well"
            self.ended = (
                f"ended as {who} met a condition of stop, the first at t = {np.nanmin(self.times):g}, the last at "
                f"t = {np.nanmax(self.times):g}"
            )
        return Judged(events, met)

    def _numbers(self, found: Any) -> np.ndarray:
        """A quantity of each member, or of the run, on the host."""
        return np.asarray(whole(found), np.float64).reshape(len(self.times))

    def _quantities(self, every: str) -> set[str]:
        names = {name for when in self._at[every].values() for name in when.names}
        return names | ({self._steady.quantity} if self._steady is not None and every == FRAME else set())

    def _of(self, rows: np.ndarray) -> str:
        """Members by name, for a sentence; nothing for a run without."""
        if self._programs.members is None:
            return ""
        numbers = np.flatnonzero(rows)
        named = ", ".join(self._programs.member_named(int(row)) for row in numbers[:MOST_NAMED])
        return f" for {named}{f' and {len(numbers) - MOST_NAMED} others' if len(numbers) > MOST_NAMED else ''}"

    def _judge_steady(self, time: float, value: np.ndarray, looked_at: np.ndarray):
        """Judge which members are steady; return these, a sentence for each, and the quantity judged."""
        assert self._steady is not None
        quantity, over = self._steady.quantity, self._steady.over
        self._history.append((time, value))
        # One is kept that is so long ago or longer.
        begins = [number for number, (t, _) in enumerate(self._history) if t <= time - over * (1 - 1e-9)]
        self._history = self._history[begins[-1] :] if begins else self._history
        since = time - self._history[0][0]
        values = np.stack([u for _, u in self._history])
        largest = np.max(np.abs(values), axis=0)
        change = np.ptp(values, axis=0) / np.where(largest > 0, largest, 1.0)
        steady = (change <= self._steady.change) & looked_at & bool(begins)

        texts = [f"stop.steady: {quantity} changed by {one:.3g} of itself over {since:g}" for one in change]
        return steady, texts, {quantity}

    def _meet(self, holds: np.ndarray, texts: Sequence[str], names: Any, values, at: At) -> Iterator[str]:
        """Note members that meet the condition of an end for the first time; a sentence for each."""
        for row in map(int, np.flatnonzero(holds & np.isnan(self.times))):
            self.times[row] = at.time
            whose = "" if self._programs.members is None else f"{self._programs.member_named(row)}: "
            yield whose + _sentence(texts[row], names, values, at, row)

    # ------------------------------------------------------------------ after steps

    def halt(self) -> Callable[[Any, Any, Any], Halt]:
        """(model, params, numbers of the run) -> what makes the loop over steps halt where a condition asks for it."""
        programs, conditions = self._programs, dict(self._at[STEP])
        read = [self._instruments[name] for name in self.instruments(STEP)]
        seen = {output.name: output for one in read for output in one.variables}

        def halting(model, params, numbers) -> Halt:
            def holds(t, state):
                values = {**programs.diagnostics(model, t, state, params), TIME: t}
                if read:
                    view = programs.view(model, t, state, params, numbers, [*seen.values()])
                    found = self.readings({one.source.name: one.read(view) for one in read})
                    values |= {name: reading.reshape(()) for name, reading in found.items()}
                return jnp.stack([jnp.asarray(when(values, jnp)) for when in conditions.values()])

            return Halt(holds, tuple(name == STOP for name in conditions))

        return halting

    def judge_step(self, time: float, step: int, held, diagnostics: Callable[[], Mapping[str, Any]]) -> Judged:
        """Findings where the loop over steps of a run without members halted: `held` by the order of `after_steps`."""
        found = {name: self._numbers(value) for name, value in diagnostics().items()}
        found[TIME] = np.asarray([time])
        at = At(time, np.asarray([step]), np.asarray([True]))
        events = {}
        for (name, when), holds in zip(self._at[STEP].items(), held, strict=True):
            if not holds:
                continue
            if name == STOP:
                for sentence in self._meet(at.good, [f"stop.when held: {when.text}"], when.names, found, at):
                    self.ended = f"ended as {sentence}"
            else:
                events[name] = _sentence(f"event {name}: {when.text} began to hold", when.names, found, at, 0)
        return Judged(events)

    # ------------------------------------------------------------------ the end

    @property
    def numbers(self) -> MemberNumbers:
        """When each member met the condition of an end, for the files; nothing of a run without members or a stop."""
        if self._programs.members is None or self._config.stop is None:
            return NO_NUMBERS
        return stop_times(self.times, self._config.schema.time_units)

    def notes(self) -> list[str]:
        """Sentences for the report of an ensemble: when members met the condition of an end."""
        return [] if not self.numbers else said_of_times(self.times, self._programs.member_named)

    # ------------------------------------------------------------------ checkpoints

    def told(self) -> dict[str, Any]:
        """The state of the conditions for a checkpoint, for JSON."""
        return {
            "held": {name: holds.tolist() for name, holds in self._held.items()},
            "history": [(time, values.tolist()) for time, values in self._history],
            "ended": self.ended,
            "times": self.times.tolist(),
            "stop": write(self._config.stop),
        }

    def restore(self, told: Mapping[str, Any]) -> str | None:
        """Go on from a checkpoint; the sentence by which the same stop has ended the run already."""
        self._held = {name: np.atleast_1d(holds) for name, holds in told.get("held", {}).items()}
        if told.get("stop") != write(self._config.stop):
            return None
        self._history = [(time, np.atleast_1d(values)) for time, values in told.get("history", [])]
        self.times = np.asarray(told.get("times", self.times), np.float64)
        self.ended = told.get("ended")
        return self.ended


def stop_times(times: np.ndarray, units: str) -> MemberNumbers:
    """The times at which members met a condition of `stop`, NaN where they did not, for the files."""
    return {"stop_time": (written_times(times), units, "time at which the member met a condition of stop")}


def said_of_times(times: np.ndarray, named: Callable[[int], str]) -> list[str]:
    """Sentences about the times of an event: one for each member, or one that sums up many."""
    met = np.flatnonzero(~np.isnan(times))
    if len(times) <= MOST_TOLD or not len(met):
        return [f"{named(int(row))} met a condition of stop at t = {times[row]:g}." for row in met]
    known = times[met]
    return [
        f"{len(met)} of {len(times)} members met a condition of stop, from t = {known.min():g} to {known.max():g}: "
        "stop_time in the files."
    ]


def _sentence(text: str, names: Any, values: Mapping[str, np.ndarray], at: At, row: int) -> str:
    shown = ", ".join(f"{name} = {values[name][row]:.6g}" for name in sorted(names) if name != TIME)
    return f"{text} at t = {at.time:g}, step {at.steps[row]}{f' ({shown})' if shown else ''}"


class EventFiles:
    """The frames that events wrote, with all variables: `events/NAME/` is a folder like a run's."""

    def __init__(
        self,
        folder: Path,
        programs: CompiledRun,
        plan: Plan,
        run_id: str,
        keep_until_step: int | None,
        counted: Mapping[str, int],
    ):
        self.writers: dict[str, FrameWriter] = {}
        config = programs.config
        if not config.events:
            return
        whole = config.output.fields is None and not config.ensemble.statistics
        self.programs = programs if whole else programs.of_all_variables()
        for event in config.events:
            path = folder / EVENTS_FOLDER / event.name
            if processes().first:
                path.mkdir(parents=True, exist_ok=True)
            writer = open_writer(path, self.programs, config, plan, run_id, keep_until_step)
            require_frames(path, writer.frames_kept, counted.get(event.name))
            self.writers[event.name] = writer

    @property
    def counts(self) -> dict[str, int]:
        """Number of frames of each."""
        return {name: writer.frames for name, writer in self.writers.items()}

    def write(self, names: Sequence[str], time: float, step: int, state, clock) -> None:
        """Write a frame for each of the events that occurred."""
        if not names:
            return
        programs = self.programs
        at = jnp.asarray(time, programs.dtype)
        fields, diagnostics, _ = programs.observe()(programs.values, programs.files, state, clock, at)
        for name in names:
            writer = self.writers[name]
            parts, _ = on_host(programs, fields, diagnostics, writer.own_parts)
            writer.write_parts([step], [time], parts)

    def commit(self) -> None:
        """Put all frames so far on the disk, before a checkpoint that counts on them."""
        for committed in [writer.commit() for writer in self.writers.values()]:
            committed.result()

    def close(self, complete: bool) -> None:
        """End the files in good order."""
        for writer in self.writers.values():
            writer.close(complete, 0)

    def abandon(self) -> None:
        """Close the files after an error with the frames they have."""
        for writer in self.writers.values():
            with contextlib.suppress(Exception):
                writer.abandon()
