"""A comparison: contestants from the same start, whose results are compared before their times are.

Contestants are processes. simjax comes first; each other one is timed beside it, pair by pair, so that whatever else
the machine does hits both alike, and its ratio is the median of the pairs'.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Arrays
from benchmarks.environments import NotInstalled, python_of
from benchmarks.peer import Peer, Timing


@dataclass(frozen=True)
class Contestant:
    """A program of `benchmarks.contestants` with its options.

    bound: largest distance of its results from simjax's that is accepted, relative to the largest number of simjax's
    array of that name; why: where it comes from. package: whose environment it runs in; None: this one.
    """

    name: str
    program: str
    bound: float = 0.0
    why: str = ""
    package: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One table: what all contestants compute, and how much of it a call does.

    what: equations, scheme, grid; work: units of `unit` in one call; physics and start: what every contestant is given.
    from_start: a call is a whole process, from its start to its first result. uncounted: rounds that are not timed, in
    which processes warm up or keep their programs.
    """

    what: str
    unit: str
    precision: str
    work: float
    physics: Mapping[str, Any]
    start: Arrays
    contestants: Sequence[Contestant]
    from_start: bool = False
    uncounted: int = 1


class Running:
    """A contestant at work: `report` and `result` of its first chunk, and `run` for another one."""

    def __init__(self, contestant: Contestant, folder: Path):
        self._output = _output(contestant, folder)
        self._peer = Peer(*_command(contestant, folder))

    def ready(self) -> tuple[dict[str, Any], Arrays]:
        """Wait for the first result."""
        return self._peer.report(), _arrays(self._output)

    def run(self) -> Timing:
        return self._peer.run()

    def close(self) -> None:
        self._peer.close()


class FromStart:
    """A contestant whose chunk is a whole process; the one whose result is compared is also the first that is timed."""

    def __init__(self, contestant: Contestant, folder: Path):
        self._output = _output(contestant, folder)
        self._command = _command(contestant, folder)
        self._first: Timing | None = None

    def ready(self) -> tuple[dict[str, Any], Arrays]:
        """Run a process to its end."""
        report, self._first = self._whole()
        return report, _arrays(self._output)

    def run(self) -> Timing:
        first, self._first = self._first, None
        return first or self._whole()[1]

    def _whole(self) -> tuple[dict[str, Any], Timing]:
        begin, busy = _moments()
        with Peer(*self._command) as peer:
            report = peer.report()
            taken = _moments()[0] - begin
        # The processor's time of a child is known when it has ended.
        return report, Timing(taken, _moments()[1] - busy)

    def close(self) -> None:
        pass


def _output(contestant: Contestant, folder: Path) -> Path:
    """The file in which a contestant leaves its result."""
    return folder / f"{contestant.name}.npz".replace(" ", "_").replace("/", "_")


def _arrays(file: Path) -> Arrays:
    with np.load(file) as found:
        return dict(found)


def _command(contestant: Contestant, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that runs a contestant, and its environment."""
    python = python_of(contestant.package) if contestant.package else sys.executable
    module, options = f"benchmarks.contestants.{contestant.program}", json.dumps(dict(contestant.options))
    command = [python, "-m", module, str(folder), str(_output(contestant, folder)), options]
    return command, {"JAX_PLATFORMS": "cpu", **contestant.environment}


def _moments() -> tuple[float, float]:
    times = os.times()
    return times.elapsed, times.children_user + times.children_system


def compare(row: Row, pairs: int, start: Callable[..., Any] | None = None) -> dict[str, Any]:
    """The finished table as plain values.

    Every other contestant has `ratio` and `error`, or `refused`, a sentence: a result that is too far off is not timed.
    """
    found: dict[str, Any] = {
        "what": row.what,
        "unit": row.unit,
        "precision": row.precision,
        "from_start": row.from_start,
        "contestants": [],
    }
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "physics.json").write_text(json.dumps(dict(row.physics)))
        np.savez(folder / "start.npz", **row.start)
        start = start or (FromStart if row.from_start else Running)
        started = [(one, _started(one, folder, start, stack)) for one in row.contestants]
        ready = [(one, running, *_ready(running)) for one, running in started]
        first, reference, report, result = ready[0]
        if result is None:
            raise RuntimeError(f"{first.name}: {report['refused']}")
        entries = [{"name": first.name, **report}]
        timed = []
        for one, running, own, its in ready[1:]:
            entry = {"name": one.name, **own}
            entries.append(entry)
            if its is None:
                continue
            entry |= {"error": distance(its, result), "bound": one.bound, "why": one.why}
            if not entry["error"] <= one.bound:
                entry["refused"] = f"off by {entry['error']:.2g}, where {one.bound:.2g} is accepted"
                continue
            timed.append((entry, running))
        alone, ratios = alternate(reference, [running for _, running in timed], pairs, row.uncounted)
        _enter(entries[0], alone, row.work)
        for (entry, _), (times, pairwise) in zip(timed, ratios, strict=True):
            _enter(entry, times, row.work)
            entry["ratio"] = statistics.median(pair.seconds for pair in pairwise)
            entry["cpu_ratio"] = _median(pair.cpu_seconds for pair in pairwise)
            entry["ratios"] = [pair.seconds for pair in pairwise]
    found["contestants"] = entries
    return found


def alternate(
    first: Any, others: Sequence[Any], pairs: int, uncounted: int
) -> tuple[list[Timing], list[tuple[list[Timing], list[Timing]]]]:
    """Times of the first, and for each other one its times and its ratios to the first's, taken right before it.

    The first `uncounted` rounds are left out. Alone, the first is timed as often. A ratio of no processor time, whose
    clock is too coarse for the shortest chunks, is not a number.
    """
    own: list[Timing] = []
    taken: list[tuple[list[Timing], list[Timing]]] = [([], []) for _ in others]
    for turn in range(-uncounted, pairs):
        for place in range(max(1, len(others))):
            before = first.run()
            after = others[place].run() if others else None
            if turn < 0:
                continue
            own.append(before)
            if after is not None:
                times, ratios = taken[place]
                times.append(after)
                cpu = after.cpu_seconds / before.cpu_seconds if before.cpu_seconds > 0 else float("nan")
                ratios.append(Timing(after.seconds / before.seconds, cpu))
    return own, taken


def _median(values: Iterable[float]) -> float | None:
    """The median of what is a number; None: nothing is."""
    known = [value for value in values if math.isfinite(value)]
    return statistics.median(known) if known else None


def distance(found: Arrays, reference: Arrays) -> float:
    """Largest difference of arrays by name, relative to the reference's largest number; infinite: none or NaN."""
    worst = 0.0 if found else np.inf
    for name, its in found.items():
        ours = np.asarray(reference[name], np.float64)
        if ours.shape != its.shape:
            return np.inf
        relative = np.abs(np.asarray(its, np.float64) - ours).max() / np.abs(ours).max()
        worst = max(worst, float(relative) if np.isfinite(relative) else np.inf)
    return worst


def _enter(entry: dict[str, Any], times: Sequence[Timing], work: float) -> None:
    seconds = statistics.median(one.seconds for one in times)
    entry |= {
        "seconds": seconds,
        "seconds_least": min(one.seconds for one in times),
        "cpu_seconds": statistics.median(one.cpu_seconds for one in times),
        "rate": work / seconds,
        "pairs": len(times),
    }


def _started(one: Contestant, folder: Path, start, stack: contextlib.ExitStack):
    """The contestant at work, or the sentence that says why it is not."""
    try:
        running = start(one, folder)
    except NotInstalled as error:
        return str(error)
    stack.callback(running.close)
    return running


def _ready(running) -> tuple[dict[str, Any], Arrays | None]:
    if isinstance(running, str):
        return {"refused": running}, None
    try:
        return running.ready()
    except RuntimeError as error:
        return {"refused": str(error)}, None
