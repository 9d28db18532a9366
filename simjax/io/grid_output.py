"""Writes the fields of a run so that only the open segment is lost, whatever happens to the process."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import numpy.typing as npt

from simjax.core.errors import InputOutputError
from simjax.io.files import remove_temporaries, replaced
from simjax.io.grid_layout import (
    LAYOUT,
    GridLayout,
    Variable,
    build_layout,
    cf_attributes,
    frame_selection,
    round_mantissa,
    write_plain,
    write_virtual,
)
from simjax.io.vtkhdf import SIDECAR_PATTERN, write_sidecars

if TYPE_CHECKING:
    from simjax.core.grid import Grid
    from simjax.core.model import Output

FIELDS_NAME = "fields.h5"
DIAGNOSTICS_NAME = "diagnostics.h5"
SEGMENT_FOLDER = "data"
CONSOLIDATE_BYTES = 2_000_000_000
PENDING_WRITES = 2
# Segments grow with the run beyond this many, so that a virtual dataset stays under 2000 mappings to 600 GB.
MANY_SEGMENTS = 500
_SEGMENT = re.compile(r"fields\.p00000\.s(\d{6,})\.h5")


def segment_name(index: int) -> str:
    """The path of a segment, relative to the run's folder."""
    return f"{SEGMENT_FOLDER}/fields.p00000.s{index:06d}.h5"


class GridWriter:
    """Writes frames of fields and diagnostics from a thread of its own, in the layout "simjax grid/1".

    Frames gather in memory until they fill a segment (`segment_bytes`); a segment is written to a temporary
    name, synchronised and renamed, and once full never touched again. `commit` writes the frames gathered so
    far as the last segment, which later grows: it is replaced, in one step, by a file that begins with the
    same frames. `fields.h5` and `diagnostics.h5` refer to the segments by relative paths and are replaced the
    same way, after the segments they name. So at any instant the files on disk are whole and agree.

    `keep_until_step` resumes in a folder that holds frames: those after that step are dropped (-1 drops all).
    `fields[name]` is (frames, [member,] x, y, z) and is written as ([member,] time, z, y, x);
    `diagnostics[name]` is (frames, [member]). A failure in the thread raises InputOutputError at the next
    call.
    """

    def __init__(
        self,
        folder: Path,
        grid: Grid,
        outputs: Sequence[Output],
        *,
        members: int | None,
        parameters: Mapping[str, np.ndarray],
        diagnostics: Sequence[str],
        attributes: Mapping[str, str | int],
        title: str,
        time_units: str = "s",
        length_units: str = "m",
        dtype: npt.DTypeLike = np.float32,
        keep_until_step: int | None = None,
        segment_bytes: int = 64 << 20,
        rounding_bits: int | None = None,
    ):
        self.folder = Path(folder)
        self._grid, self._outputs = grid, tuple(outputs)
        self._layout = build_layout(
            grid,
            outputs,
            members=members,
            parameters=parameters,
            diagnostics=diagnostics,
            time_units=time_units,
            length_units=length_units,
            dtype=dtype,
            rounding_bits=rounding_bits,
        )
        self._attributes = _root_attributes(attributes, title, np.dtype(dtype))
        self._segment_bytes = segment_bytes
        self._sealed: list[int] = []  # frames of each full segment
        self._tail: list[dict[str, np.ndarray]] = []  # frames of the segment being filled
        self._tail_on_disk = 0  # of them, those its file holds
        self._tail_stale = False  # its file holds frames that were dropped
        self._steps: list[int] = []
        self._times: list[float] = []
        self._pending: deque[Future] = deque()
        self._failure: Exception | None = None
        try:
            self._open_folder(keep_until_step)
        except OSError as error:
            if isinstance(error, InputOutputError):
                raise
            raise InputOutputError(
                f"{self.folder} cannot be written ({error}); set output.folder to another."
            ) from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simjax-grid-output")

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
        """Returns when every frame written so far is in a closed segment and in `fields.h5`."""
        self._submit(self._flush)
        self._wait(0)

    def close(self, complete: bool, statuses=None) -> None:
        """Commits, records `statuses` (one integer a member, 0 for good), and ends the run's files.

        A complete run below 2 GB becomes one plain `fields.h5`. VTKHDF sidecars are written in any case.
        """
        try:
            self._submit(self._finish, complete, statuses)
            self._wait(0)
        finally:
            self._thread.shutdown()

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
            task(*arguments)
        except Exception as error:
            self._failure = error
            raise

    def _append(self, step, time, fields: Mapping, diagnostics: Mapping) -> None:
        steps, times = np.atleast_1d(np.asarray(step)), np.atleast_1d(np.asarray(time))
        given = {**fields, **diagnostics}
        arrays = {v.name: self._to_file(v, given, len(steps)) for v in self._layout.framed}
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
            self._sealed.append(len(self._tail))
            self._tail, self._tail_on_disk = [], 0

    def _to_file(self, variable: Variable, given: Mapping, frames: int) -> np.ndarray:
        """From (frames, [member,] x, y, z) to ([member,] frames, z, y, x), in the file's precision."""
        shape = self._layout.shape(variable, frames)
        lead = variable.dims.index("time") + 1
        expected = shape[:lead][::-1] + shape[lead:][::-1]
        values = np.asarray(given[variable.name]) if variable.name in given else None
        if values is None or values.shape != expected:
            found = "nothing" if values is None else f"shape {values.shape}"
            raise InputOutputError(f"output {variable.name!r}: expected shape {expected}, got {found}.")
        order = (*reversed(range(lead)), *reversed(range(lead, values.ndim)))
        values = np.ascontiguousarray(values.transpose(order), dtype=variable.dtype)
        bits = self._layout.rounding_bits
        return values if bits is None or lead == len(shape) else round_mantissa(values, bits)

    def _flush(self) -> None:
        if self._write_tail():
            self._write_masters(complete=False)

    def _write_tail(self) -> bool:
        """Writes the gathered frames as the last segment, unless its file already holds just them."""
        count = len(self._tail)
        if count == self._tail_on_disk and not self._tail_stale:
            return False
        first = len(self._steps) - count
        with replaced(self.folder / segment_name(len(self._sealed))) as path:
            pieces = ((i, 1, frame) for i, frame in enumerate(self._tail))
            write_plain(path, self._layout, self._attributes, self._steps[first:], self._times[first:], pieces)
        self._tail_on_disk, self._tail_stale = count, False
        return True

    def _write_masters(self, complete: bool) -> None:
        counts = [*self._sealed, *([self._tail_on_disk] if self._tail_on_disk else [])]
        sources = [(segment_name(index), frames) for index, frames in enumerate(counts)]
        attributes = self._attributes | {"simjax_segments": len(counts), "simjax_complete": int(complete)}
        steps, times = self._steps[: sum(counts)], self._times[: sum(counts)]  # without those gathered since
        for name, layout in ((FIELDS_NAME, self._layout), (DIAGNOSTICS_NAME, self._diagnostics_layout())):
            with replaced(self.folder / name) as path:
                if sources:
                    write_virtual(path, layout, attributes, steps, times, sources)
                else:
                    write_plain(path, layout, attributes, [], [], [])

    def _diagnostics_layout(self) -> GridLayout:
        """The same run without fields and without space."""
        spaceless = {"member", "time"}
        fixed = tuple(v for v in self._layout.fixed if spaceless.issuperset(v.dims))
        framed = tuple(v for v in self._layout.framed if spaceless.issuperset(v.dims))
        return replace(self._layout, fixed=fixed, framed=framed)

    def _finish(self, complete: bool, statuses) -> None:
        if statuses is not None:
            self._layout = replace(self._layout, fixed=(*self._layout.fixed, self._status(statuses)))
        self._flush()
        small = self.frame_bytes * len(self._steps) < CONSOLIDATE_BYTES
        if complete and small:
            self._consolidate()
        else:
            self._write_masters(complete)
        if self._steps:
            write_sidecars(self.folder / FIELDS_NAME, self._grid, self._outputs)

    def _status(self, statuses) -> Variable:
        values = np.asarray(statuses, dtype="i4")
        dims = ("member",) if values.ndim else ()
        attributes = {"long_name": "status bits at the end; 0 where nothing went wrong", "units": "1"}
        return Variable("status", dims, values.dtype, attributes, values)

    def _consolidate(self) -> None:
        """Copies the segments into one plain file, then removes them."""
        attributes = self._attributes | {"simjax_segments": 0, "simjax_complete": 1}
        segments = [self.folder / segment_name(i) for i in range(len(self._sealed) + bool(self._tail_on_disk))]
        for name, layout in ((FIELDS_NAME, self._layout), (DIAGNOSTICS_NAME, self._diagnostics_layout())):
            with replaced(self.folder / name) as path:
                write_plain(path, layout, attributes, self._steps, self._times, _pieces(segments))
        for segment in reversed(segments):
            segment.unlink()
        data = self.folder / SEGMENT_FOLDER
        if not any(data.iterdir()):
            data.rmdir()

    # -- a folder that already holds frames

    def _open_folder(self, keep_until_step: int | None) -> None:
        data = self.folder / SEGMENT_FOLDER
        data.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, data):
            remove_temporaries(folder)
        master = self.folder / FIELDS_NAME
        found = sorted((int(m[1]), p) for p in data.iterdir() if (m := _SEGMENT.fullmatch(p.name)))
        if keep_until_step is None:
            if found or master.exists():
                raise InputOutputError(
                    f"{self.folder} already holds the fields of a run; expected an empty folder: set "
                    f"output.folder to another one, or go on with that run by resume={self.folder}."
                )
            return
        if master.exists() and _is_plain(master):
            # Segments beside a plain file are left from a consolidation, or a resume, that was cut short.
            for frame in self._read_frames(master, keep_until_step):
                self._append_frame(*frame)
            self._write_tail()
        else:
            self._keep_segments([index for index, _ in found], keep_until_step)
        self._write_masters(complete=False)
        for sidecar in self.folder.glob(SIDECAR_PATTERN):
            sidecar.unlink()
        for index, path in reversed(found):  # the last first: what remains is always a beginning of the run
            if index >= len(self._sealed) + bool(self._tail_on_disk):
                path.unlink()

    def _keep_segments(self, indices: Sequence[int], keep_until_step: int) -> None:
        """Takes full segments as they are; loads the last that has a frame to keep, to fill it further."""
        kept: list[tuple[Path, np.ndarray, np.ndarray]] = []
        for index in range(len(indices)):
            path = self.folder / segment_name(index)
            try:
                with h5py.File(path, "r") as file:
                    steps, times = np.asarray(file["step"]), np.asarray(file["time"])
            except OSError as error:
                raise InputOutputError(
                    f"{path} is missing or damaged ({error}); bring it back, or run again in another folder."
                ) from error
            keep = steps <= keep_until_step
            if keep.any():
                kept.append((path, steps[keep], times[keep]))
            if not keep.all():
                break
        for _, steps, times in kept[:-1]:
            self._sealed.append(len(steps))
            self._steps += steps.tolist()
            self._times += times.tolist()
        for step, time, frame in self._read_frames(kept[-1][0], keep_until_step) if kept else ():
            self._steps.append(step)
            self._times.append(time)
            self._tail.append(frame)
        # Frames to be dropped stay in the file until more are written: the master names only the kept ones.
        self._tail_on_disk, self._tail_stale = len(self._tail), True

    def _read_frames(self, path: Path, keep_until_step: int) -> Iterator[tuple[int, float, dict[str, np.ndarray]]]:
        with h5py.File(path, "r") as file:
            steps, times = np.asarray(file["step"]), np.asarray(file["time"])
            for variable in self._layout.framed:
                expected = (self._layout.shape(variable, len(steps)), variable.dtype)
                dataset = file.get(variable.name)
                found = (dataset.shape, dataset.dtype) if isinstance(dataset, h5py.Dataset) else "missing"
                if found != expected:
                    raise InputOutputError(
                        f"{path}: {variable.name!r} is {found} where this run writes {expected}; resume with "
                        "the grid, ensemble, precision and output of before, or write to another folder."
                    )
            for index in range(int(np.count_nonzero(steps <= keep_until_step))):
                yield int(steps[index]), float(times[index]), self._frame(file, index)


def _is_plain(master: Path) -> bool:
    with h5py.File(master, "r") as file:
        return int(np.asarray(file.attrs["simjax_segments"])) == 0


def _pieces(segments: Sequence[Path]) -> Iterator[tuple[int, int, Mapping]]:
    start = 0
    for segment in segments:
        with h5py.File(segment, "r") as file:
            frames = len(np.asarray(file["step"]))
            yield start, frames, file
            start += frames


def _root_attributes(attributes: Mapping[str, str | int], title: str, dtype: np.dtype) -> dict[str, str | int]:
    state = {"simjax_layout": LAYOUT, "simjax_segments": 0, "simjax_complete": 0}
    return {**cf_attributes(title), "simjax_dtype": dtype.name, **attributes, **state}
