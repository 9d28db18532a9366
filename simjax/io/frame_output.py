"""Writes the frames of a run so that only the open segment is lost, whatever happens to the process."""

from __future__ import annotations

import abc
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.errors import InputOutputError
from simjax.io.containment import require_contained
from simjax.io.files import fingerprint, remove_temporaries, replaced
from simjax.io.formats import formats_at_end
from simjax.io.frame_layout import FrameLayout, Variable, cf_attributes, frame_selection, write_plain, write_virtual
from simjax.io.segments import (
    ADVICE,
    RUN_ID,
    SEGMENT_FOLDER,
    Segment,
    is_plain,
    kept_segments,
    pieces_of,
    read_master,
    require_intact,
    segment_name,
    unreadable,
)

DIAGNOSTICS_NAME = "diagnostics.h5"
CONSOLIDATE_BYTES = 2_000_000_000
PENDING_WRITES = 2
# Segments grow with the run beyond this many, so that a virtual dataset stays under 2000 mappings to 600 GB.
MANY_SEGMENTS = 500


class FrameWriter(abc.ABC):
    """Writes frames of arrays and diagnostics from a thread of its own.

    Frames gather in memory until they fill a segment (`segment_bytes`); a segment is written to a temporary
    name, synchronised and renamed, and once full never touched again. `commit` writes the frames gathered so
    far as the last segment, which later grows: it is replaced, in one step, by a file that begins with the
    same frames. The master file and `diagnostics.h5` refer to the segments by relative paths and are replaced the
    same way, after the segments they name. So at any instant the files on disk are whole and agree.

    `keep_until_step` resumes in a folder that holds frames: those after that step are dropped (-1 drops all). What is
    there is checked at once, against the sizes and checksums that the master records, and changed with the first
    frame or commit: a run that cannot go on leaves the folder as it was.
    `fields[name]` is (frames, [member,] ...) and is written as `to_file` says; `diagnostics[name]` is
    (frames, [member]). A failure in the thread raises InputOutputError at the next call.

    Args:
        folder: of the run.
        master_name: of the file that shows all frames.
        stem: what names of segments begin with: "fields" or "particles", as formats name what they show.
        layout: the variables.
        attributes: of the root of every file.
    """

    def __init__(
        self, folder: Path, master_name: str, stem: str, layout: FrameLayout, attributes: Mapping[str, Any],
        *, keep_until_step: int | None, segment_bytes: int = 64 << 20,
    ):  # fmt: skip
        self.folder = Path(folder)
        self.master_name, self._stem = master_name, stem
        self._layout, self._attributes = layout, attributes
        self._segment_bytes = segment_bytes
        self._sealed: list[Segment] = []  # the full ones
        self._tail: list[dict[str, np.ndarray]] = []  # frames of the segment being filled
        self._tail_file: Segment | None = None  # its file, which may lack the newest frames
        self._keep_until_step = keep_until_step
        self._resuming = keep_until_step is not None  # and nothing has been written yet
        self.frames_kept = 0
        self._steps: list[int] = []
        self._times: list[float] = []
        self._pending: deque[Future] = deque()
        self._failure: BaseException | None = None
        try:
            if keep_until_step is None:
                self._begin_folder()
            else:
                self.frames_kept = self._read_folder(keep_until_step)
        except OSError as error:
            if isinstance(error, InputOutputError):
                raise
            raise InputOutputError(
                f"{self.folder} cannot be written ({error}); set output.folder to another."
            ) from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simjax-output")

    # -- what fields and particles do in their own way

    @abc.abstractmethod
    def to_file(self, variable: Variable, given: np.ndarray | None, frames: int) -> np.ndarray:
        """An array as it is given, in the order and precision of the file; InputOutputError where it does not fit."""

    def write_whole(self, path: Path, attributes: Mapping, steps, times, pieces: Iterable) -> None:
        """A master that holds its own values; a piece is (first frame, frames, name -> values)."""
        write_plain(path, self._layout, attributes, steps, times, pieces)

    def write_master(self, path: Path, attributes: Mapping, steps, times, sources: Sequence[Segment]) -> None:
        """A master over segments."""
        write_virtual(path, self._layout, attributes, steps, times, sources)

    def within(self, file: h5py.File, name: str) -> str:
        """The path of a variable in a segment or a master."""
        return name

    @property
    def layout(self) -> FrameLayout:
        """The variables of the files."""
        return self._layout

    @property
    def stem(self) -> str:
        """Beginning of the names of segments: what the frames are of."""
        return self._stem

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the root of every file."""
        return self._attributes

    def show(self, folder: Path, steps: Sequence[int], times: Sequence[float], layout: FrameLayout) -> None:
        """Ends a writer that has written nothing, and takes frames of `folder` that others wrote."""
        self.folder, self._steps, self._times, self._layout = folder, list(steps), list(times), layout
        self._thread.shutdown()

    def whole_layout(self, statuses) -> FrameLayout:
        """The layout with the members' statuses."""
        return replace(self._layout, fixed=(*self._layout.fixed, self._status(statuses)))

    @property
    def times(self) -> Sequence[float]:
        """Times of the frames after a commit."""
        return self._times

    @property
    def frames(self) -> int:
        """The number of frames after a commit."""
        return len(self._steps)

    @property
    def frame_bytes(self) -> int:
        """Bytes that one output time adds to the files."""
        return self._layout.frame_bytes()

    def write(self, step, time, fields: Mapping, diagnostics: Mapping) -> None:
        """Enqueues frames; waits while two earlier calls are still being written."""
        for array in (*fields.values(), *diagnostics.values()):
            if hasattr(array, "copy_to_host_async"):
                array.copy_to_host_async()
        self._wait(PENDING_WRITES - 1)
        self._submit(self._append, step, time, dict(fields), dict(diagnostics))

    def commit(self) -> None:
        """Returns when every frame written so far is in a closed segment and in the master."""
        self._submit(self._flush)
        self._wait(0)

    def close(self, complete: bool, statuses=None) -> None:
        """Commits, records `statuses` (one integer a member, 0 for good), and ends the run's files.

        A complete run below 2 GB becomes one plain master. Formats that show it are written in any case.
        """
        try:
            self._submit(self._finish, complete, statuses)
            self._wait(0)
        finally:
            self._thread.shutdown()

    def abandon(self) -> None:
        """Ends after an error: what was written stays, and a folder in which nothing was written is left as it is."""
        if self._resuming and not self._pending:
            self._thread.shutdown()
        else:
            self.close(complete=False)

    # -- the caller's side of the queue

    def _submit(self, task: Callable, *arguments) -> None:
        self._pending.append(self._thread.submit(self._attempt, task, *arguments))

    def _wait(self, pending: int) -> None:
        while len(self._pending) > pending or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()

    # -- the writer's thread

    def _attempt(self, task: Callable, *arguments) -> None:
        """Runs a task; after one has failed none runs again, lest frames go missing in the middle."""
        if self._failure is not None:
            raise self._failure
        try:
            if self._resuming:
                self._take_over()
            task(*arguments)
        except BaseException as error:
            self._failure = error
            raise

    def _append(self, step, time, fields: Mapping, diagnostics: Mapping) -> None:
        steps, times = np.atleast_1d(np.asarray(step)), np.atleast_1d(np.asarray(time))
        given = {**fields, **diagnostics}
        arrays = {}
        for variable in self._layout.framed:
            values = given.get(variable.name)
            arrays[variable.name] = self.to_file(variable, None if values is None else np.asarray(values), len(steps))
        sealed = len(self._sealed)
        for index, (frame_step, frame_time) in enumerate(zip(steps, times, strict=True)):
            self._append_frame(int(frame_step), float(frame_time), self._frame(arrays, index))
        if len(self._sealed) > sealed:
            self._write_masters(complete=False)

    def _frame(self, arrays: Mapping, index: int) -> dict[str, np.ndarray]:
        return {v.name: arrays[v.name][frame_selection(v, index, 1)] for v in self._layout.framed}

    def _append_frame(self, step: int, time: float, frame: dict[str, np.ndarray]) -> None:
        self._steps.append(step)
        self._times.append(time)
        self._tail.append(frame)
        limit = max(self._segment_bytes, self.frame_bytes * len(self._steps) // MANY_SEGMENTS)
        if self.frame_bytes * len(self._tail) >= limit:
            self._write_tail()
            assert self._tail_file is not None
            self._sealed.append(self._tail_file)
            self._tail, self._tail_file = [], None

    def _flush(self) -> None:
        if self._write_tail():
            self._write_masters(complete=False)

    def _write_tail(self) -> bool:
        """Writes the gathered frames as the last segment, unless its file begins with just them."""
        count = len(self._tail)
        if count == (0 if self._tail_file is None else self._tail_file.frames):
            return False
        first = len(self._steps) - count
        name = segment_name(len(self._sealed), self._stem)
        with replaced(self.folder / name) as path:
            pieces = ((i, 1, frame) for i, frame in enumerate(self._tail))
            write_plain(path, self._layout, self._attributes, self._steps[first:], self._times[first:], pieces)
            written = fingerprint(path)
        self._tail_file = Segment(name, count, *written)
        return True

    @property
    def _segments(self) -> list[Segment]:
        return self._sealed if self._tail_file is None else [*self._sealed, self._tail_file]

    def _write_masters(self, complete: bool) -> None:
        segments = self._segments
        attributes = {**self._attributes, "simjax_segments": len(segments), "simjax_complete": int(complete)}
        count = sum(segment.frames for segment in segments)
        steps, times = self._steps[:count], self._times[:count]  # without those gathered since
        with replaced(self.folder / self.master_name) as path:
            if segments:
                self.write_master(path, attributes, steps, times, segments)
            else:
                self.write_whole(path, attributes, [], [], [])
        with replaced(self.folder / DIAGNOSTICS_NAME) as path:
            if segments:
                write_virtual(path, without_fields(self._layout), attributes, steps, times, segments)
            else:
                write_plain(path, without_fields(self._layout), attributes, [], [], [])

    def _finish(self, complete: bool, statuses) -> None:
        if statuses is not None:
            self._layout = self.whole_layout(statuses)
        self._flush()
        small = self.frame_bytes * len(self._steps) < CONSOLIDATE_BYTES
        if complete and small:
            self._consolidate()
        else:
            self._write_masters(complete)
        if self._steps:
            for form in formats_at_end(self._stem):
                assert form.write is not None
                form.write(self)

    def _status(self, statuses) -> Variable:
        values = np.asarray(statuses, dtype="i4")
        dims = ("member",) if values.ndim else ()
        attributes = {"long_name": "status bits at the end; 0 where nothing went wrong", "units": "1"}
        return Variable("status", dims, values.dtype, attributes, values)

    def _consolidate(self) -> None:
        """Copies the segments into one plain file, then removes them."""
        attributes = {**self._attributes, "simjax_segments": 0, "simjax_complete": 1}
        require_intact(self.folder, self._segments, self._attributes.get(RUN_ID))
        segments = [(self.folder / segment.name, segment.frames) for segment in self._segments]
        with replaced(self.folder / self.master_name) as path:
            self.write_whole(path, attributes, self._steps, self._times, pieces_of(segments))
        with replaced(self.folder / DIAGNOSTICS_NAME) as path:
            write_plain(
                path, without_fields(self._layout), attributes, self._steps, self._times, pieces_of(segments)
            )  # fmt: skip
        for segment, _ in reversed(segments):
            segment.unlink()
        data = self.folder / SEGMENT_FOLDER
        if not any(data.iterdir()):
            data.rmdir()

    # -- a folder that already holds frames

    def _begin_folder(self) -> None:
        """A new run's, in a folder without frames."""
        (self.folder / SEGMENT_FOLDER).mkdir(parents=True, exist_ok=True)
        if self._found() or (self.folder / self.master_name).exists():
            raise InputOutputError(
                f"{self.folder} already holds the frames of a run; expected an empty folder: set "
                f"output.folder to another one, or go on with that run by resume={self.folder}."
            )
        self._remove_temporaries()
        self._write_masters(complete=False)

    def _remove_temporaries(self) -> None:
        for folder in (self.folder, self.folder / SEGMENT_FOLDER):
            remove_temporaries(folder)

    def _found(self) -> list[tuple[int, Path]]:
        """Number and path of every segment in the folder, in their order."""
        segment = re.compile(rf"{self._stem}\.p00000\.s(\d{{6,}})\.h5")
        data = self.folder / SEGMENT_FOLDER
        paths = data.iterdir() if data.is_dir() else ()
        return sorted((int(m[1]), p) for p in paths if (m := segment.fullmatch(p.name)))

    def _read_folder(self, keep_until_step: int) -> int:
        """Count the frames up to a step, once they are known to be those that were written.

        Raises:
            InputOutputError: a file is missing, damaged or foreign; its name is said.
        """
        master = self.folder / self.master_name
        owner, table, steps = read_master(master, self._stem, lambda file: self.within(file, "step"))
        if owner != self._attributes.get(RUN_ID):
            raise InputOutputError(f"{master} belongs to another run, {owner}; {ADVICE}.")
        if not table:
            require_contained(master)
            problem = unreadable(master)
            if problem:
                raise InputOutputError(f"{problem}.")
            for _ in self._read_frames(master, keep_until_step):
                break  # its variables fit
            return int(np.count_nonzero(steps <= keep_until_step))
        self._keep_segments(table, steps, keep_until_step)
        return len(self._steps)

    def _keep_segments(self, table: Sequence[Segment], steps: np.ndarray, keep_until_step: int) -> None:
        """Takes full segments as they are; loads the last that has a frame to keep, to fill it further."""
        kept = kept_segments(self.folder, table, steps, keep_until_step, self._attributes.get(RUN_ID))
        for segment, own in kept[:-1]:
            with h5py.File(self.folder / segment.name, "r") as file:
                self._times += np.asarray(file["time"])[: segment.frames].tolist()
            self._steps += own.tolist()
            self._sealed.append(segment)
        for segment, _ in kept[-1:]:
            path = self.folder / segment.name
            for step, time, frame in self._read_frames(path, keep_until_step, segment.frames):
                self._steps.append(step)
                self._times.append(time)
                self._tail.append(frame)
            # Its file is replaced before the master is, so from now on the master does not say what it must be.
            self._tail_file = Segment(segment.name, len(self._tail))

    def _take_over(self) -> None:
        """Drops the frames after the step that is resumed from; the first change of the folder."""
        assert self._keep_until_step is not None
        self._resuming = False
        (self.folder / SEGMENT_FOLDER).mkdir(parents=True, exist_ok=True)
        self._remove_temporaries()
        found, master = self._found(), self.folder / self.master_name
        if not self._segments and is_plain(master):
            # Segments beside a plain file are left from a consolidation, or a resume, that was cut short.
            for frame in self._read_frames(master, self._keep_until_step):
                self._append_frame(*frame)
            self._write_tail()
        self._write_masters(complete=False)
        for form in formats_at_end(self._stem):
            for path in form.files(self.folder):
                path.unlink()
        for index, path in reversed(found):  # the last first: what remains is always a beginning of the run
            if index >= len(self._segments):
                path.unlink()

    def _read_frames(
        self, path: Path, keep_until_step: int, most: int | None = None
    ) -> Iterator[tuple[int, float, dict[str, np.ndarray]]]:
        """(step, time, variables) of the frames up to a step, `most` of them."""
        with h5py.File(path, "r") as file:
            steps, times = (np.asarray(file[self.within(file, name)]) for name in ("step", "time"))
            datasets = {}
            for variable in self._layout.framed:
                expected = (self._layout.shape(variable, len(steps)), variable.dtype)
                dataset = file.get(self.within(file, variable.name))
                found = (dataset.shape, dataset.dtype) if isinstance(dataset, h5py.Dataset) else "missing"
                if found != expected:
                    raise InputOutputError(
                        f"{path}: {variable.name!r} is {found} where this run writes {expected}; resume with "
                        "the grid, ensemble, precision and output of before, or write to another folder."
                    )
                datasets[variable.name] = dataset
            for index in range(int(np.count_nonzero(steps[:most] <= keep_until_step))):
                yield int(steps[index]), float(times[index]), self._frame(datasets, index)


def without_fields(layout: FrameLayout) -> FrameLayout:
    """The layout of the same run without fields and without space."""
    spaceless = {"member", "time"}
    fixed = tuple(v for v in layout.fixed if spaceless.issuperset(v.dims) and "cf_role" not in v.attributes)
    framed = tuple(v for v in layout.framed if spaceless.issuperset(v.dims))
    return replace(layout, fixed=fixed, framed=framed)


def root_attributes(attributes: Mapping[str, Any], title: str, dtype: np.dtype, layout: str) -> dict[str, Any]:
    """The root attributes of every file of a run."""
    state = {"simjax_layout": layout, "simjax_segments": 0, "simjax_complete": 0}
    return {**cf_attributes(title), "simjax_dtype": dtype.name, **attributes, **state}
