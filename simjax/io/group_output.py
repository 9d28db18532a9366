"""The files of an ensemble that ran in groups of members: whole ones over those of the groups, without a copy of
frames; samples of instruments, which are small beside them, are copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.formats import formats_at_end
from simjax.io.frame_layout import (
    PIECE_BYTES,
    FrameLayout,
    Variable,
    checked_storage,
    describe,
    without_fields,
    write_common,
    write_plain,
)
from simjax.io.frame_output import DIAGNOSTICS_NAME, FrameWriter
from simjax.io.instrument_files import FOLDER
from simjax.io.statistic_variables import COUNTED, statistic_in_name


@dataclass(frozen=True)
class GroupFile:
    """The frames of one group. name: its file, by a path from the run's folder. members: the place of each of its
    members in the whole ensemble; members whose frames another group holds are -1."""

    name: str
    members: tuple[int, ...]


def write_over_groups(
    writer: FrameWriter, folder: Path, layout: FrameLayout, groups: Sequence[GroupFile], *, content: str, complete: bool
) -> None:
    """Write the master, the diagnostics and what other programs open, over the files of `groups`.

    Args:
        writer: of the whole ensemble, which has written no frames of its own, anywhere.
        layout: the variables of the whole ensemble, with the members' statuses.
        content: "fields" or "particles".
    """
    times, steps = _frames(folder, groups)
    attributes = {**writer.attributes, "simjax_segments": 0, "simjax_complete": int(complete)}
    for name, own in ((writer.master_name, layout), (DIAGNOSTICS_NAME, without_fields(layout))):
        with replaced(folder / name) as path, new_hdf5(path) as file:
            write_common(file, own, attributes, steps, times)
            for variable in own.framed:
                if "member" in variable.dims:
                    dataset = _over_members(file, own, variable, folder, groups, len(times))
                else:
                    dataset = _over_all(file, own, variable, folder, groups, len(times))
                describe(file, dataset, variable)
    writer.show(folder, steps, times, layout)
    if times:
        for form in formats_at_end(content):
            assert form.write is not None
            form.write(writer)


def write_samples_over_groups(
    writer: FrameWriter, folder: Path, groups: Sequence[GroupFile], *, complete: bool
) -> None:
    """Write the samples of one instrument of the whole ensemble, copied from those of `groups`.

    Args:
        writer: of the whole ensemble, which has written no samples of its own, anywhere.
        folder: of the run, from which the names of `groups` count.
    """
    times, steps = _frames(folder, groups)
    layout, place = writer.layout, Path(FOLDER) / writer.folder.name
    attributes = {**writer.attributes, "simjax_segments": 0, "simjax_complete": int(complete)}
    (folder / place).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        files = [(stack.enter_context(h5py.File(folder / one.name, "r")), one.members) for one in groups]
        pieces = _sample_pieces(layout, files, len(times))
        with replaced(folder / place / writer.master_name) as path:
            write_plain(path, layout, attributes, steps, times, pieces)
    writer.show(folder / place, steps, times, layout)


def _sample_pieces(
    layout: FrameLayout, files: Sequence[tuple[h5py.File, Sequence[int]]], samples: int
) -> Iterator[tuple[int, int, Mapping[str, np.ndarray]]]:
    """(first sample, samples, name -> values) of all members; NaN where a member has none."""
    together = max(1, PIECE_BYTES // max(1, layout.frame_bytes))
    for start in range(0, samples, together):
        count, found = min(together, samples - start), {}
        for variable in layout.framed:
            values = np.full(layout.shape(variable, count), np.nan, variable.dtype)
            time = variable.dims.index("time")
            for file, members in files:
                stored = file[variable.name]
                assert isinstance(stored, h5py.Dataset)
                own = max(0, min(count, stored.shape[time] - start))
                if not own:
                    continue
                whole = (slice(None),) * (time - 1)
                for row, member, rows in _runs(members):
                    read = stored[(slice(row, row + rows), *whole, slice(start, start + own))]
                    values[(slice(member, member + rows), *whole, slice(own))] = read
            found[variable.name] = values
        yield start, count, found


def _frames(folder: Path, groups: Sequence[GroupFile]) -> tuple[list[float], list[int]]:
    """Times of all frames, and the largest step of any group at each."""
    times: list[float] = []
    steps = np.zeros(0, "i8")
    for group in groups:
        with h5py.File(folder / group.name, "r") as file:
            own, counts = np.asarray(file["time"]).tolist(), np.asarray(file["step"])
        times = own if len(own) > len(times) else times
        longer = np.zeros(len(times), "i8")
        longer[: len(steps)] = steps
        longer[: len(counts)] = np.maximum(longer[: len(counts)], counts)
        steps = longer
    return times, steps.tolist()


def _over_members(
    file: h5py.File, layout: FrameLayout, variable: Variable, folder: Path, groups: Sequence[GroupFile], frames: int
) -> h5py.Dataset:
    """A variable of every member, as a virtual dataset; NaN where a member has no frame."""
    virtual = h5py.VirtualLayout(layout.shape(variable, frames), variable.dtype)
    for group in groups:
        with h5py.File(folder / group.name, "r") as source_file:
            stored = source_file[variable.name]
            assert isinstance(stored, h5py.Dataset)
            shape = stored.shape
        source = h5py.VirtualSource(group.name, variable.name, shape, variable.dtype)
        for row, member, count in _runs(group.members):
            virtual[member : member + count, : shape[1]] = source[row : row + count, : shape[1]]
    missing = np.nan if variable.dtype.kind == "f" else 0
    return file.create_virtual_dataset(variable.name, virtual, fillvalue=missing)


def _runs(members: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(row, member, count) of members that follow one another in a group and in the ensemble."""
    row = 0
    while row < len(members):
        count = 1
        while row + count < len(members) and members[row + count] == members[row] + count:
            count += 1
        if members[row] >= 0:
            yield row, members[row], count
        row += 1 if members[row] < 0 else count


def _over_all(
    file: h5py.File, layout: FrameLayout, variable: Variable, folder: Path, groups: Sequence[GroupFile], frames: int
) -> h5py.Dataset:
    """A statistic over the members of all groups, from those of each."""
    shape = layout.shape(variable, frames)
    storage = checked_storage(shape, variable.dtype, variable.dims.index("time"))
    dataset = file.create_dataset(variable.name, shape, variable.dtype, track_order=True, **storage)
    with ExitStack() as stack:
        files: list[Any] = [stack.enter_context(h5py.File(folder / group.name, "r")) for group in groups]
        for frame in range(frames):
            dataset[frame] = _merged(variable.name, [one for one in files if frame < len(one["time"])], frame)
    return dataset


def _merged(name: str, files: Sequence[Any], frame: int) -> np.ndarray | np.floating | int:
    """A statistic at one frame of groups whose files are open (Chan, Golub and LeVeque 1983)."""
    if name == COUNTED:
        return sum(int(file[COUNTED][frame]) for file in files)
    variable, statistic = statistic_in_name(name)
    result, mean, count = np.asarray(np.nan), np.asarray(np.nan), 0
    for file in files:
        own = int(file[COUNTED][frame])
        if not own:
            continue
        values = np.asarray(file[name][frame], np.float64)
        if statistic == "min":
            result = np.fmin(result, values)
        elif statistic == "max":
            result = np.fmax(result, values)
        else:
            other, share = np.asarray(file[f"{variable}_mean"][frame], np.float64), own / (count + own)
            distance = other - mean if count else np.zeros_like(other)
            if statistic == "variance":
                before = result if count else np.zeros_like(values)
                result = (1 - share) * before + share * values + share * (1 - share) * distance**2
            mean = mean + share * distance if count else other
            result = mean if statistic == "mean" else result
        count += own
    return result
