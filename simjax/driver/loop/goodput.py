"""`goodput.jsonl`: what the wall-clock time of a run was spent on, over all its parts."""

from __future__ import annotations

import contextlib
import json
import time as wall
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from simjax.errors import InputOutputError
from simjax.io.files import open_in_run
from simjax.schema.locate import usable_path

GOODPUT_NAME = "goodput.jsonl"
SIMULATE, STARTUP, COMPILE, OUTPUT, CHECKPOINT = "simulate", "startup", "compile", "output", "checkpoint"
WAITING, LOST, DOWN, ENDED = "waiting", "lost", "down", "ended"
ACTIVITIES: tuple[str, ...] = (SIMULATE, STARTUP, COMPILE, OUTPUT, CHECKPOINT, WAITING, LOST, DOWN)
"""In the order in which they are shown. `lost` and `down` are not in the file: they follow from a restart."""


class GoodputLog:
    """The activities of one part of a run: a line in the file when the host loop goes from one to another.

    Lines gather in memory until `open`, so that a resume that fails before its first frame leaves no trace.

    Args:
        launched: when the process began, by `monotonic`; until `begin` it is starting up.
        kept: whether there is a file at all: of several processes the first has one.
        monotonic, now: clocks in s; `now` is the time since 1970.
    """

    def __init__(
        self,
        launched: float,
        *,
        kept: bool = True,
        monotonic: Callable[[], float] = wall.monotonic,
        now: Callable[[], float] = wall.time,
    ):
        self.launched, self._kept, self._monotonic = launched, kept, monotonic
        self._zero = now() - monotonic()  # a part keeps to one clock, whatever is done to the other
        self._activity = STARTUP
        self._unwritten: list[dict[str, Any]] = []
        self._file: TextIO | None = None
        self._write(STARTUP, at=launched)

    def open(self, folder: Path, from_step: int | None) -> None:
        """Write the lines so far to the file in `folder`, and the next ones at once.

        from_step: the step of the checkpoint that the run goes on from; None for a new run.
        """
        if not self._kept or self._file is not None:
            return
        path = folder / GOODPUT_NAME
        if from_step is not None:
            self._unwritten[0]["from_step"] = from_step
            if path.is_file() and not path.read_bytes().endswith(b"\n"):  # a kill cut the last line
                self._unwritten.insert(0, {})
        self._file = open_in_run(path, "w" if from_step is None else "a")
        for line in self._unwritten:
            self._append(line)
        self._unwritten = []

    def begin(self, activity: str) -> None:
        """Record that the host loop turns to another activity."""
        self._activity = activity
        self._write(activity)

    @contextlib.contextmanager
    def during(self, activity: str, **facts: Any) -> Iterator[None]:
        """Context in which the host loop is occupied with another activity; `facts` are told in the line."""
        before = self._activity
        if before == activity and not facts:
            yield
            return
        self._activity = activity
        self._write(activity, **facts)
        try:
            yield
        finally:
            self.begin(before)

    def end(self, outcome: str = "") -> None:
        """Close the file. The time after a run was completed is not its own, also where it is taken up again."""
        self._write(ENDED, outcome=outcome)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._kept = False

    def lines(self, folder: Path) -> list[Mapping[str, Any]]:
        """Lines of every part of the run, as if the present part ended now."""
        return [*_read(folder), {"at": _text(self._now()), "activity": ENDED}]

    def _now(self) -> float:
        return self._zero + self._monotonic()

    def _write(self, activity: str, *, at: float | None = None, **facts: Any) -> None:
        if not self._kept:
            return
        line = {"at": _text(self._now() if at is None else self._zero + at), "activity": activity, **facts}
        if self._file is None:
            self._unwritten.append(line)
        else:
            self._append(line)

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        # Accounts never end a run: on a full disk its own files say so.
        with contextlib.suppress(OSError):
            self._file.write(f"{json.dumps(line) if line else ''}\n")
            self._file.flush()


@dataclass(frozen=True)
class Goodput:
    """Seconds of a run by activity; all of them together are `wall`.

    Examples:
        >>> sj.Goodput({"simulate": 30.0, "compile": 10.0}).share
        0.75
    """

    seconds: Mapping[str, float]

    @property
    def wall(self) -> float:
        """Seconds from the first start to the last line, without those after a run was completed."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Seconds of simulating whose result is there, over all seconds; zero where nothing is known."""
        return self.seconds[SIMULATE] / self.wall if self.wall > 0 else 0.0


def goodput(folder: str | Path) -> Goodput:
    """Account of the wall-clock time of a run: simulating, compiling, writing, waiting, and restarts.

    A run under way can be asked as well; it is known up to its last line.

    Args:
        folder: of the run.

    Raises:
        InputOutputError: the folder has no `goodput.jsonl`.

    Examples:
        >>> done = sj.load("fluid", ["grid.shape=[16,16]", "time.end=0.02", "output=none"]).run()
        >>> sorted(sj.goodput(done.folder).seconds)[:3], sj.goodput(done.folder).seconds["lost"]
        (['checkpoint', 'compile', 'down'], 0.0)
    """
    path = usable_path(folder, "goodput") / GOODPUT_NAME
    if not path.is_file():
        raise InputOutputError(f"{path} is missing; expected the folder of a run, such as outputs/fluid/RUN.")
    return account(_read(Path(folder)))


def account(lines: Iterable[Mapping[str, Any]]) -> Goodput:
    """Add up the times between lines.

    After a restart, what is later than the checkpoint that the run went on from is lost, and the time from the last
    line to the new start the run was down.
    """
    spans: list[tuple[str, float, int | None]] = []  # activity, seconds, step that it saved
    before: Mapping[str, Any] | None = None
    for line in lines:
        if before is not None:
            seconds, activity = max(0.0, _seconds(line) - _seconds(before)), before["activity"]
            if "from_step" in line:
                if activity == ENDED and before.get("outcome", "").startswith("completed"):
                    seconds = 0.0
                if activity != ENDED or _last_saved(spans) != line["from_step"]:
                    spans = _after_loss(spans, line["from_step"])
                activity = DOWN
            spans.append((DOWN if activity == ENDED else activity, seconds, before.get("step")))
        before = line
    total: dict[str, float] = {activity: 0.0 for activity in ACTIVITIES}
    for activity, seconds, _ in spans:
        total[activity] += seconds
    return Goodput(total)


def _last_saved(spans: list[tuple[str, float, int | None]]) -> int | None:
    return next((step for activity, _, step in reversed(spans) if activity == CHECKPOINT), None)


def _after_loss(spans: list[tuple[str, float, int | None]], step: int) -> list[tuple[str, float, int | None]]:
    """All that was done after `step` was last saved becomes lost; starting up again and being down stay."""
    saved = [index for index, (activity, _, of) in enumerate(spans) if activity == CHECKPOINT and of == step]
    first = saved[-1] + 1 if saved else 0
    stays = (STARTUP, DOWN)
    return spans[:first] + [(a if a in stays else LOST, seconds, None) for a, seconds, _ in spans[first:]]


def _read(folder: Path) -> list[Mapping[str, Any]]:
    """The lines of a run's file, without those that a kill or a full disk cut short."""
    path = folder / GOODPUT_NAME
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
            _seconds(line)
            known = line["activity"] in (*ACTIVITIES, ENDED)
        except (ValueError, KeyError, TypeError):
            continue
        if known:
            found.append(line)
    return found


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def _seconds(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()
