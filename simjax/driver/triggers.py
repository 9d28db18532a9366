"""Conditions on a run's quantities: which of them hold, and the frames that events write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from simjax.driver.build import Plan
from simjax.driver.compiled_run import CompiledRun
from simjax.driver.frame_files import on_host, open_writer
from simjax.driver.provenance import require_frames
from simjax.errors import ConfigurationError
from simjax.io.frame_output import FrameWriter
from simjax.io.grid_output import EVENTS_FOLDER
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.errors import closest
from simjax.schema.formula import Condition
from simjax.schema.instruments import FRAME, STEP
from simjax.schema.kinds import write
from simjax.stepping.watching import Halt

TIME = "t"
STOP = ""
"""The name of the condition `stop.when` among those of events, which have names."""
BESIDE = "courant", "error_"
"""Beginnings of quantities that are known at output times alone."""


class Judged(NamedTuple):
    """Findings at a time: why the run ends, if it does, and which events occurred, each with a sentence."""

    ended: str | None
    events: dict[str, str]


class Triggers:
    """The conditions of a run, judged at output times and after steps; all processes find the same.

    A stop ends the run where its condition holds after the start. An event occurs where its condition holds and did
    not hold when it was judged before, at the start first.
    """

    def __init__(self, config: Config, programs: CompiledRun):
        self._config, self._programs = config, programs
        events = {event.name: event for event in config.events or ()}
        conditions = {name: (event.when, event.every) for name, event in events.items()}
        if config.stop is not None and config.stop.when is not None:
            conditions[STOP] = config.stop.when, config.stop.every  # last, so that an event beside it is written
        self._at = {every: {name: when for name, (when, own) in conditions.items() if own == every}
                    for every in (FRAME, STEP)}  # fmt: skip
        self._steady = None if config.stop is None else config.stop.steady
        self._held: dict[str, bool] = {}
        self._history: list[tuple[float, float]] = []
        self.ended: str | None = None

    def __bool__(self) -> bool:
        return bool(self._at[FRAME] or self._at[STEP] or self._steady)

    @property
    def after_steps(self) -> dict[str, Condition]:
        """Conditions that are judged after every step, by name."""
        return self._at[STEP]

    def check(self) -> None:
        """Raise ConfigurationError where a quantity is not one of the run's, before anything is compiled."""
        if not self:
            return
        known = sorted(self._programs.observed_shapes()[1])
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
        for name in sorted(name for name in self._quantities(STEP) if name.startswith(BESIDE)):
            raise ConfigurationError(f"every={STEP}: {name} is known at output times alone; write every: {FRAME}.")

    # ------------------------------------------------------------------ at output times

    def judge(self, time: float, step: int, diagnostics: Mapping[str, Any], *, first: bool) -> Judged:
        """Findings at an output time; at the `first`, the start, nothing ends and nothing occurs."""
        names = self._quantities(FRAME)
        values = {name: float(whole(diagnostics[name])) for name in names if name != TIME} | {TIME: time}
        events = {}
        for name, when in self._at[FRAME].items():
            holds = bool(when(values, np))
            if name == STOP:
                if holds and not first:
                    self._end(f"stop.when held: {when.text}", when.names, values, step)
            elif holds and not self._held.get(name, first):
                events[name] = _sentence(f"event {name}: {when.text} began to hold", when.names, values, step)
            self._held[name] = holds
        if self._steady is not None:
            self._judge_steady(time, values[self._steady.quantity], step)
        return Judged(self.ended, events)

    def _quantities(self, every: str) -> set[str]:
        names = {name for when in self._at[every].values() for name in when.names}
        return names | ({self._steady.quantity} if self._steady is not None and every == FRAME else set())

    def _judge_steady(self, time: float, value: float, step: int) -> None:
        assert self._steady is not None
        quantity, over = self._steady.quantity, self._steady.over
        self._history.append((time, value))
        # One is kept that is so long ago or longer.
        begins = [number for number, (t, _) in enumerate(self._history) if t <= time - over * (1 - 1e-9)]
        if not begins:
            return
        self._history = self._history[begins[-1] :]
        values = [u for _, u in self._history]
        largest = max(abs(u) for u in values)
        change = (max(values) - min(values)) / largest if largest > 0 else 0.0
        if change <= self._steady.change and self.ended is None:
            text = f"stop.steady: {quantity} changed by {change:.3g} of itself over {time - self._history[0][0]:g}"
            self._end(text, [quantity], {quantity: value, TIME: time}, step)

    def _end(self, text: str, names: Any, values: Mapping[str, float], step: int) -> None:
        if self.ended is None:
            self.ended = _sentence(f"ended as {text}", names, values, step)

    # ------------------------------------------------------------------ after steps

    def halt(self) -> Callable[[Any, Any], Halt]:
        """(model, params) -> what makes the loop over steps halt where a condition asks for it."""
        programs, conditions = self._programs, dict(self._at[STEP])

        def halting(model, params) -> Halt:
            def holds(t, state):
                values = {**programs.diagnostics(model, t, state, params), TIME: t}
                return jnp.stack([jnp.asarray(when(values, jnp)) for when in conditions.values()])

            return Halt(holds, tuple(name == STOP for name in conditions))

        return halting

    def judge_step(self, time: float, step: int, held, diagnostics: Callable[[], Mapping[str, Any]]) -> Judged:
        """Findings where the loop over steps halted: `held` by the order of `after_steps`."""
        found = {name: float(whole(value)) for name, value in diagnostics().items()} | {TIME: time}
        events = {}
        for (name, when), holds in zip(self._at[STEP].items(), held, strict=True):
            if not holds:
                continue
            if name == STOP:
                self._end(f"stop.when held: {when.text}", when.names, found, step)
            else:
                events[name] = _sentence(f"event {name}: {when.text} began to hold", when.names, found, step)
        return Judged(self.ended, events)

    # ------------------------------------------------------------------ checkpoints

    def told(self) -> dict[str, Any]:
        """The state of the conditions for a checkpoint, for JSON."""
        stop = write(self._config.stop)
        return {"held": self._held, "history": self._history, "ended": self.ended, "stop": stop}

    def restore(self, told: Mapping[str, Any]) -> str | None:
        """Go on from a checkpoint; the sentence by which the same stop has ended the run already."""
        self._held = dict(told.get("held", {}))
        if told.get("stop") != write(self._config.stop):
            return None
        self._history = [(time, value) for time, value in told.get("history", [])]
        return told.get("ended")


def _sentence(text: str, names: Any, values: Mapping[str, float], step: int) -> str:
    shown = ", ".join(f"{name} = {values[name]:.6g}" for name in sorted(names) if name != TIME)
    return f"{text} at t = {values[TIME]:g}, step {step}{f' ({shown})' if shown else ''}"


class EventFiles:
    """The frames that events wrote, with all variables: `events/NAME/` is a folder like a run's."""

    def __init__(
        self, folder: Path, programs: CompiledRun, plan: Plan, run_id: str, keep_until_step: int | None,
        counted: Mapping[str, int],
    ):  # fmt: skip
        self.writers: dict[str, FrameWriter] = {}
        config = programs.config
        if not config.events:
            return
        self.programs = programs if config.output.fields is None else programs.of_all_variables()
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
        """End the files after an error, as they are."""
        for writer in self.writers.values():
            with contextlib.suppress(Exception):
                writer.abandon()
