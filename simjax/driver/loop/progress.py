"""Display of a run in progress: one live block on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import os
import sys
import time as clock_module
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from simjax.driver.loop.terminal import OutlivingStream, Stream
from simjax.notebook import LiveOutput, bar, in_notebook
from simjax.report.labels import duration, metric

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

_WINDOW = 30.0  # seconds of the recent past that the remaining time is estimated from
_OF_STEPS = {"courant": "CFL", "time_step": "dt", "rejected_steps": "rejected"}
_MOST_SHOWN = 4
_REDRAWN = 0.25  # seconds between two drawings of the bar in a notebook


class Progress:
    """Shows a run from its start time to `end_time`.

    `size` counts what `units` names, and their updates per second the speed. On a terminal, and in a notebook, one
    block is redrawn in place: a bar, simulated time, speed, remaining time, and the first diagnostics of an update.
    Otherwise a plain line is written at most every `interval` seconds. The remaining time follows from the simulated
    time gained per second over the last half minute, so neither compilation nor a resumed run's past distorts it.
    """

    def __init__(
        self,
        title: str,
        end_time: float,
        size: int,
        *,
        units: tuple[str, str] = ("cells", "cells/s"),
        start_time: float = 0.0,
        time_units: str = "s",
        stream: Stream | None = None,
        interval: float = 5.0,
        clock: Callable[[], float] = clock_module.monotonic,
    ):
        self.title, self.end_time, self.size, self.units = title, end_time, size, units
        self.start_time, self.time_units = start_time, "" if time_units == "1" else time_units
        self.stream: Stream = OutlivingStream(sys.stdout if stream is None else stream)
        self._in_notebook = stream is None and in_notebook()
        self.interval, self.clock = interval, clock
        self.time, self.step, self.rate = start_time, 0, math.nan
        self.diagnostics: dict[str, float] = {}
        self._history: deque[tuple[float, float]] = deque()
        self._began = self._last_line = clock()
        self._live: Live | None = None
        self._output: LiveOutput | None = None
        self._notes: list[str] = []

    @property
    def compiling(self) -> bool:
        """Tell whether nothing has been computed yet."""
        return not self._history

    @property
    def fraction(self) -> float:
        """The part of the simulated time that is done, from 0 to 1."""
        span = self.end_time - self.start_time
        return min(max((self.time - self.start_time) / span, 0.0), 1.0) if span > 0 else 1.0

    @property
    def elapsed(self) -> float:
        """Wall-clock seconds since start."""
        return self.clock() - self._began

    @property
    def remaining(self) -> float:
        """Wall-clock seconds still to go; NaN before there are two updates to tell from."""
        if self.time >= self.end_time:
            return 0.0
        if len(self._history) < 2:
            return math.nan
        (wall, simulated), (wall_now, simulated_now) = self._history[0], self._history[-1]
        gained = simulated_now - simulated
        if gained <= 0:
            return math.nan
        expected = (self.end_time - simulated_now) * (wall_now - wall) / gained
        return max(0.0, expected - (self.clock() - wall_now))

    def start(self) -> None:
        """Begin to show; the time until the first update is called compilation."""
        self._began = self._last_line = self.clock()
        if self._in_notebook:
            self._output = LiveOutput()
            self._show()
        elif self.stream.isatty() and os.environ.get("TERM") != "dumb":
            self._live = _live_block(self)
            self._live.start()
        else:
            size = f"{self.size:,}".replace(",", " ")
            self._line(f"{self.title}: {size} {self.units[0]}, to t = {self.simulated(self.end_time)}; compiling")

    def update(self, time: float, step: int, rate: float, diagnostics: Mapping[str, float]) -> None:
        """Tell where the run is: simulated time, steps done, updates per second, latest diagnostics by label."""
        now = self.clock()
        first = self.compiling
        self.time, self.step, self.rate = time, step, rate
        self.diagnostics = dict(diagnostics)
        self._history.append((now, time))
        while len(self._history) > 2 and self._history[1][0] < now - _WINDOW:
            self._history.popleft()
        if self._output is not None:
            if first or now - self._last_line >= _REDRAWN or self.fraction >= 1:
                self._last_line = now
                self._show()
        elif self._live is None and (first or now - self._last_line >= self.interval):
            self._last_line = now
            self._line(self.status())

    def message(self, text: str) -> None:
        """Write a line that stays, above the live block if there is one."""
        if self._output is not None:
            self._notes.append(text)
            self._show()
        elif self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            self._line(text)

    def finish(self, text: str) -> None:
        """End the live block as it stands and write `text` below it. Calling it twice is harmless."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._output is not None:
            self._notes += text.splitlines()[:1]
            self._show()
        elif text:
            self._line(text)

    def _show(self) -> None:
        """Draw the bar of a notebook anew."""
        assert self._output is not None
        if self.compiling:
            facts = [("", "compiling")]
        else:
            facts = [("t", f"{self.simulated(self.time)} of {self.simulated(self.end_time)}"), ("step", str(self.step))]
            if math.isfinite(self.rate):
                facts.append(("speed", metric(self.rate, self.units[1])))
            if 0 < self.remaining < math.inf:
                facts.append(("ETA", duration(self.remaining)))
            facts += self.shown_diagnostics()
        self._output.show(bar(self.title, self.fraction, facts, self._notes))

    def status(self) -> str:
        """Progress of the run in one line of plain text."""
        parts = [f"{100 * self.fraction:5.1f} %", f"t = {self.simulated(self.time)}", f"step {self.step}"]
        if math.isfinite(self.rate):
            parts.append(metric(self.rate, self.units[1]))
        if math.isfinite(self.remaining):
            parts.append(f"ETA {duration(self.remaining)}")
        parts.extend(f"{name} {value}" for name, value in self.shown_diagnostics())
        return "  ".join(parts)

    def shown_diagnostics(self) -> list[tuple[str, str]]:
        """The first diagnostics by their labels, before all those of the steps."""
        known = [name for name in _OF_STEPS if name in self.diagnostics]
        names = known + [name for name in self.diagnostics if name not in _OF_STEPS]
        return [
            (_OF_STEPS.get(name, name.replace("_", " ")), f"{float(self.diagnostics[name]):.3g}")
            for name in names[:_MOST_SHOWN]
        ]

    def simulated(self, value: float) -> str:
        """A simulated time with its units."""
        return f"{value:.4g} {self.time_units}".rstrip()

    def _line(self, text: str) -> None:
        try:
            self.stream.write(text + "\n")
        except UnicodeEncodeError:
            self.stream.write(text.encode("ascii", errors="replace").decode("ascii") + "\n")
        self.stream.flush()

    def __rich__(self) -> Table:
        return _block(self)


def _live_block(progress: Progress) -> Live:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=progress.stream)  # type: ignore[arg-type]
    return Live(progress, console=console, refresh_per_second=4)


def _block(progress: Progress) -> Table:
    """Title and elapsed time; the bar; where the run is; its diagnostics."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    note = "compiling" if progress.compiling else f"ETA {duration(progress.remaining)}"
    if not progress.compiling and progress.fraction >= 1:
        note = "done"
    bar = ProgressBar(
        total=1.0,
        completed=progress.fraction,
        width=40,
        pulse=progress.compiling,
        animation_time=progress.elapsed,
    )
    line = Table.grid(padding=(0, 2))
    line.add_row(bar, Text(f"{100 * progress.fraction:5.1f} %", "bold"), Text(note, "cyan"))
    figures = [
        ("t", f"{progress.simulated(progress.time)} of {progress.simulated(progress.end_time)}"),
        ("step", str(progress.step)),
    ]
    if math.isfinite(progress.rate):
        figures.append(("speed", metric(progress.rate, progress.units[1])))
    block = Table.grid()
    block.add_row(Text.assemble((progress.title, "bold"), "   ", (duration(progress.elapsed), "dim")))
    block.add_row(line)
    block.add_row(_figures(figures))
    if progress.diagnostics:
        block.add_row(_figures(progress.shown_diagnostics()))
    return block


def _figures(pairs: list[tuple[str, str]]) -> Text:
    from rich.text import Text

    text = Text(overflow="ellipsis", no_wrap=True)
    for i, (name, value) in enumerate(pairs):
        text.append("   " if i else "").append(f"{name} ", "dim").append(value)
    return text


class IterationProgress:
    """Shows a search or a training: iterations done, the latest numbers, seconds for each and the time that is left.

    noun: what an iteration is called. then: what comes after all of them, beside the time that is left. On a terminal
    one line is written over and over, otherwise a line at most every `interval` seconds.
    """

    def __init__(
        self,
        title: str,
        iterations: int,
        *,
        noun: str = "iteration",
        then: str = "",
        stream: Stream | None = None,
        interval: float = 5.0,
    ):
        self.title, self.iterations, self.noun, self.interval = title, iterations, noun, interval
        self.then = then
        self.stream: Stream = OutlivingStream(sys.stdout if stream is None else stream)
        self._first: tuple[float, int] | None = None
        self._last_line = -math.inf
        self._live = self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def start(self) -> None:
        """Begin to show; the time until the second update goes into compilation."""
        self._line(f"{self.title}: up to {self.iterations} {self.noun}s; compiling")

    def update(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """Tell that an iteration is done, and its result."""
        now = clock_module.monotonic()
        said = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        pace = ""
        if self._first is None:
            self._first = now, iteration
        elif iteration > self._first[1]:
            each = (now - self._first[0]) / (iteration - self._first[1])
            pace = f"  {each:.2g} s each, {duration(each * (self.iterations - iteration))} left at most{self.then}"
        if self._live or now - self._last_line >= self.interval:
            self._last_line = now
            self._line(f"{self.noun} {iteration}/{self.iterations}  {said}{pace}")

    def stop(self) -> None:
        """Stop updating the progress line, which stays on the screen."""
        if self._live:
            self.stream.write("\n")

    def _line(self, text: str) -> None:
        self.stream.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        self.stream.flush()
