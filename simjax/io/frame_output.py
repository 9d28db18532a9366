"""Writes the frames of a run so that only the open segment is lost, whatever happens to the process."""

from __future__ import annotations

import abc
import dataclasses
import itertools
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
from simjax.io.files import fingerprint, replaced, what_to_do
from simjax.io.formats import formats_at_end
from simjax.io.frame_layout import (
    NO_NUMBERS,
    FrameLayout,
    MemberNumbers,
    Variable,
    framed_datasets,
    read_frame,
    with_members,
    without_fields,
    write_plain,
    write_virtual,
    written_times,
)
from simjax.io.gathered import Gathered, Values
from simjax.io.replacing import remove_temporaries
from simjax.io.segments import (
    ADVICE,
    RUN_ID,
    SEGMENT_FOLDER,
    WHOLE,
    Part,
    Segment,
    chunks_of,
    is_plain,
    kept_segments,
    pieces_of,
    ranges_told,
    read_master,
    require_intact,
    segment_name,
    unreadable,
)
from simjax.processes import processes

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

    Of several processes each writes the parts of the variables that it holds, and process 0 the files over them:
    `commit` and `close` are called by all of them together.

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
        parts: those that this process writes.
    """

    diagnostics_name: str | None = DIAGNOSTICS_NAME
    """Name of the file without fields that lies beside the master; None for none."""

    def __init__(
        self,
        folder: Path,
        master_name: str,
        stem: str,
        layout: FrameLayout,
        attributes: Mapping[str, Any],
        *,
        keep_until_step: int | None,
        segment_bytes: int = 64 << 20,
        parts: Sequence[Part] = (WHOLE,),
    ):
        self.folder = Path(folder)
        self.master_name, self._stem = master_name, stem
        self._layout, self._attributes = layout, attributes
        self._segment_bytes = segment_bytes
        self._group = processes()
        self.own_parts = tuple(parts)
        self._layouts = [layout.within(part.ranges) for part in parts]
        self._sealed: list[Segment] = []  # the full ones
        self._tail = Gathered()  # frames of the segments being filled
        self._tail_files: list[Segment] = []  # their files, which may lack the newest frames
        self._chunk = 0  # number of the segments being filled
        self._of_others: list[Segment] = []  # by other processes, at the last commit
        self._keep_until_step = keep_until_step
        self._resuming = keep_until_step is not None  # and nothing has been written yet
        self.frames_kept = self._given = 0
        self._steps: list[int] = []
        self._times: list[float] = []
        self._pending: deque[Future] = deque()
        self._failure: BaseException | None = None
        try:
            if keep_until_step is not None:
                self.frames_kept = self._given = self._read_folder(keep_until_step)
            elif self._group.first:
                self._begin_folder()
        except OSError as error:
            if isinstance(error, InputOutputError):
                raise
            raise InputOutputError(
                f"{self.folder} cannot be written ({error}); {what_to_do(error, 'set output.folder to another')}."
            ) from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simjax-output")

    # -- what fields and particles do in their own way

    @abc.abstractmethod
    def to_file(self, layout: FrameLayout, variable: Variable, given: np.ndarray | None, frames: int) -> np.ndarray:
        """An array as it is given, in the order and precision of the file; InputOutputError where it does not fit.

        layout: that of the part which it is of.
        """

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
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the root of every file."""
        return self._attributes

    def show(self, folder: Path, steps: Sequence[int], times: Sequence[float], layout: FrameLayout) -> None:
        """Ends a writer that has written nothing, and takes frames of `folder` that others wrote."""
        self.folder, self._steps, self._times, self._layout = folder, list(steps), list(times), layout
        self._thread.shutdown()

    def whole_layout(self, statuses, of_members: MemberNumbers = NO_NUMBERS) -> FrameLayout:
        """The layout with the members' statuses and further numbers of each."""
        return with_members(self._layout, statuses, of_members)

    @property
    def times(self) -> Sequence[float]:
        """Times of the frames after a commit."""
        return self._times

    @property
    def frames(self) -> int:
        """The number of frames, with those that are yet to be written."""
        return self._given

    @property
    def frame_bytes(self) -> int:
        """Bytes that one output time adds to the files."""
        return self._layout.frame_bytes

    def write(self, step, time, fields: Mapping, diagnostics: Mapping) -> None:
        """Enqueues frames; waits while two earlier calls are still being written."""
        self.write_parts(step, time, [{**fields, **diagnostics}])

    def write_parts(self, step, time, parts: Sequence[Mapping]) -> None:
        """Enqueues frames, of which each of `own_parts` is given by name; waits as `write`."""
        for array in itertools.chain(*(part.values() for part in parts)):
            if hasattr(array, "copy_to_host_async"):
                array.copy_to_host_async()
        self._take_over()
        self._wait(PENDING_WRITES - 1)
        self._given += np.size(step)
        self._submit(self._append, step, time, [dict(part) for part in parts])

    def commit(self) -> Future:
        """Puts all frames so far into closed segments and the master; with other processes before it returns."""
        self._take_over()
        if self._group.count > 1:
            self._commit(self._write_masters)
            return self._thread.submit(lambda: None)
        return self._thread.submit(self._attempt, lambda: (self._write_tail(), self._write_masters()))

    def close(self, complete: bool, statuses=None, of_members: MemberNumbers = NO_NUMBERS) -> None:
        """Commits, records `statuses` (one integer a member, 0 for good) and `of_members`, and ends the run's files.

        A complete run below 2 GB by one process becomes one plain master. Formats that show it are written in any case.
        """
        try:
            self._take_over()
            self._commit(lambda: self._finish(complete, statuses, of_members), with_tail=self._group.count > 1)
        finally:
            self._thread.shutdown()

    def abandon(self) -> None:
        """Ends after an error: what was written stays, and a folder in which nothing was written is left as it is.

        Where there are other processes they may be gone: frames after the last commit are given up.
        """
        if self._group.count > 1 or self._resuming:
            self._thread.shutdown(cancel_futures=True)
        else:
            self.close(complete=False)

    # -- the caller's side of the queue

    def _submit(self, task: Callable, *arguments) -> None:
        self._pending.append(self._thread.submit(self._attempt, task, *arguments))

    def _wait(self, pending: int) -> None:
        while len(self._pending) > pending or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()

    def _commit(self, finish: Callable[[], None], *, with_tail: bool = True) -> None:
        """Write the last segments of all processes, then by the first of them what lies over them."""
        with self._group.together():
            if with_tail:
                self._submit(self._write_tail)
            self._wait(0)
        told = self._group.gather([dataclasses.asdict(segment) for segment in self._own])
        others = itertools.chain(*(own for who, own in enumerate(told) if who != self._group.index))
        self._of_others = [Segment(**{**one, "ranges": ranges_told(one["ranges"])}) for one in others]
        with self._group.together():
            if self._group.first:
                self._submit(finish)
                self._wait(0)

    def _take_over(self) -> None:
        """Drops the frames after the step that is resumed from; the first change of the folder."""
        if not self._resuming:
            return
        assert self._keep_until_step is not None
        self._resuming = False
        with self._group.together():
            if self._group.first:
                self._submit(self._remove_temporaries)
                self._wait(0)
        self._submit(self._unfold)
        self._commit(self._write_masters_alone)

    # -- the writer's thread

    def _attempt(self, task: Callable, *arguments) -> None:
        """Runs a task; after one has failed none runs again, lest frames go missing in the middle."""
        if self._failure is not None:
            raise self._failure
        try:
            task(*arguments)
        except BaseException as error:
            self._failure = error
            raise

    def _append(self, step, time, parts: Sequence[Mapping]) -> None:
        steps, times = np.atleast_1d(np.asarray(step)), written_times(time)
        arrays: list[dict[str, np.ndarray]] = []
        for layout, given in zip(self._layouts, parts, strict=True):
            arrays.append({})
            for variable in layout.framed:
                values = given.get(variable.name)
                values = None if values is None else np.asarray(values)
                arrays[-1][variable.name] = self.to_file(layout, variable, values, len(steps))
        chunk = self._chunk
        self._extend(steps.astype(int).tolist(), times.tolist(), arrays)
        if self._chunk > chunk and self._group.count == 1:
            self._write_masters()

    def _extend(self, steps: Sequence[int], times: Sequence[float], parts: Sequence[Values]) -> None:
        """Adds frames to the segments being filled, and writes those that become full."""
        first = 0
        while first < len(steps):
            left = len(steps) - first
            full = self._is_full(left)
            count = next(n for n in range(1, left + 1) if self._is_full(n)) if full else left
            self._tail.add(self._layout, parts, first, count)
            self._steps += steps[first : first + count]
            self._times += times[first : first + count]
            first += count
            if full:
                self._write_tail()
                self._sealed += self._tail_files
                self._tail, self._tail_files = Gathered(), []
                self._chunk += 1

    def _is_full(self, more: int) -> bool:
        """Tell whether the segments being filled are full with so many more frames."""
        # As long for all processes, each of which holds such a share.
        share = self.frame_bytes / self._group.count
        least = max(self._segment_bytes, share * (len(self._steps) + more) // MANY_SEGMENTS)
        return share * (self._tail.frames + more) >= least

    def _write_tail(self) -> None:
        """Writes the gathered frames as the last segments, unless their files begin with just them."""
        count = self._tail.frames
        if count == (self._tail_files[0].frames if self._tail_files else 0):
            return
        first, written = len(self._steps) - count, []
        for number, (part, layout) in enumerate(zip(self.own_parts, self._layouts, strict=True)):
            name = segment_name(self._chunk, self._stem, part.number)
            with replaced(self.folder / name) as path:
                pieces = self._tail.pieces(layout, number)
                write_plain(path, layout, self._attributes, self._steps[first:], self._times[first:], pieces)
                file = fingerprint(path)
            written.append(Segment(name, count, *file, self._chunk, part.number, part.ranges))
        self._tail_files = written

    @property
    def _own(self) -> list[Segment]:
        return [*self._sealed, *self._tail_files]

    @property
    def _segments(self) -> list[Segment]:
        known = {segment.name: segment for segment in (*self._of_others, *self._own)}
        return sorted(known.values(), key=lambda segment: (segment.chunk, segment.part))

    def _write_masters_alone(self) -> None:
        """Write the master, and remove what was left of frames after the step that is resumed from."""
        self._write_masters()
        for form in formats_at_end(self._stem):
            for path in form.files(self.folder):
                path.unlink()
        chunks = {segment.chunk for segment in self._segments}
        for chunk, path in reversed(self._found()):  # the last first: what remains is always a beginning of the run
            if chunk not in chunks:
                path.unlink()

    def _write_masters(self, complete: bool = False) -> None:
        segments = self._segments
        attributes = {**self._attributes, "simjax_segments": len(segments), "simjax_complete": int(complete)}
        count = sum(frames for _, frames, _ in chunks_of(segments))
        steps, times = self._steps[:count], self._times[:count]  # without those gathered since
        with replaced(self.folder / self.master_name) as path:
            if segments:
                self.write_master(path, attributes, steps, times, segments)
            else:
                self.write_whole(path, attributes, [], [], [])
        if self.diagnostics_name is None:
            return
        with replaced(self.folder / self.diagnostics_name) as path:
            if segments:
                write_virtual(path, without_fields(self._layout), attributes, steps, times, segments)
            else:
                write_plain(path, without_fields(self._layout), attributes, [], [], [])

    def _finish(self, complete: bool, statuses, of_members: MemberNumbers) -> None:
        if statuses is not None:
            self._layout = self.whole_layout(statuses, of_members)
        small = self.frame_bytes * len(self._steps) < CONSOLIDATE_BYTES
        if complete and small and not any(segment.ranges for segment in self._segments):
            self._consolidate()
        else:
            self._write_tail()
            self._write_masters(complete)
        if self._steps:
            for form in formats_at_end(self._stem, self._layout.sizes.get("member", 1)):
                assert form.write is not None
                form.write(self)

    def _consolidate(self) -> None:
        """Writes all frames into one plain file, the last ones from memory, then removes the segments."""
        attributes = {**self._attributes, "simjax_segments": 0, "simjax_complete": 1}
        require_intact(self.folder, self._sealed, self._attributes.get(RUN_ID))
        frames = attributes, self._steps, self._times
        with replaced(self.folder / self.master_name) as path:
            self.write_whole(path, *frames, self._all_pieces())
        if self.diagnostics_name is not None:
            with replaced(self.folder / self.diagnostics_name) as path:
                write_plain(path, without_fields(self._layout), *frames, self._all_pieces())
        for segment in reversed(self._segments):
            (self.folder / segment.name).unlink()
        data = self.folder / SEGMENT_FOLDER
        if not any(data.iterdir()):
            data.rmdir()

    def _all_pieces(self) -> Iterator[tuple[int, int, Mapping]]:
        """(first frame, frames, name -> values) of a run by one process."""
        yield from pieces_of([(self.folder / segment.name, segment.frames) for segment in self._sealed])
        yield from self._tail.pieces(self._layout, 0, sum(segment.frames for segment in self._sealed))

    # -- a folder that already holds frames

    def _begin_folder(self) -> None:
        """A new run's, in a folder without frames."""
        if self._found() or (self.folder / self.master_name).exists():
            raise InputOutputError(
                f"{self.folder} already holds the frames of a run; expected an empty folder: set "
                f"output.folder to another one, or go on with that run by resume={self.folder}."
            )
        self._remove_temporaries()
        self._write_masters()

    def _remove_temporaries(self) -> None:
        (self.folder / SEGMENT_FOLDER).mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, self.folder / SEGMENT_FOLDER):
            remove_temporaries(folder)

    def _found(self) -> list[tuple[int, Path]]:
        """Chunk and path of every segment in the folder, in their order."""
        segment = re.compile(rf"{self._stem}\.p\d{{5,}}\.s(\d{{6,}})\.h5")
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
        """Takes the segments that have a frame to keep as they are: those after it are not shown."""
        # One process reads all of them; what it finds is the error of all.
        kept = kept_segments(
            self.folder, table, steps, keep_until_step, self._attributes.get(RUN_ID), thorough=self._group.first
        )
        for _, _, segments in chunks_of(segment for segment, _ in kept):
            path = self.folder / segments[0].name
            with h5py.File(path, "r") as file:
                own, times = np.asarray(file["step"]), np.asarray(file["time"])
                framed_datasets(file, path, self._layout.within(segments[0].ranges), len(own), self.within)
            frames = int(np.count_nonzero(own[: segments[0].frames] <= keep_until_step))
            self._steps += own[:frames].tolist()
            self._times += times[:frames].tolist()
            self._sealed += [self._as_it_is(segment, frames) for segment in segments]
        self._chunk = 1 + max((segment.chunk for segment in self._sealed), default=-1)

    def _as_it_is(self, segment: Segment, frames: int) -> Segment:
        """A segment with the size and checksum of its file, which may have grown since the master was written."""
        path = self.folder / segment.name
        if path.stat().st_size == segment.size:
            return replace(segment, frames=frames)
        size, digest = fingerprint(path)
        return replace(segment, frames=frames, size=size, sha256=digest)

    def _unfold(self) -> None:
        """Takes the frames of a plain master that are kept, to write them as segments.

        Segments beside a plain file are left from a consolidation, or a resume, that was cut short.
        """
        assert self._keep_until_step is not None
        master = self.folder / self.master_name
        if self._sealed or not is_plain(master):
            return
        for step, time, parts in self._read_frames(master, self._keep_until_step):
            self._extend([step], [time], parts)

    def _read_frames(self, path: Path, keep_until_step: int) -> Iterator[tuple[int, float, Sequence[Values]]]:
        """(step, time, variables by part) of the frames up to a step."""
        with h5py.File(path, "r") as file:
            steps, times = (np.asarray(file[self.within(file, name)]) for name in ("step", "time"))
            datasets = framed_datasets(file, path, self._layout, len(steps), self.within)
            for index in range(int(np.count_nonzero(steps <= keep_until_step))):
                frame = [read_frame(datasets, self._layout, part.ranges, index) for part in self.own_parts]
                yield int(steps[index]), float(times[index]), frame
