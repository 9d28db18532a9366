"""Variables of a file of frames, and their layout in HDF5.

One description serves the three kinds of file: a segment (some frames), the consolidated file (all frames),
and the virtual master (all frames, kept in the segments). Every one of them is NetCDF-4 with CF attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.files import new_hdf5
from simjax.io.segments import Ranges, Segment, chunks_of, write_table

CONVENTIONS, SGRID = "CF-1.11", "SGRID-0.3"
PIECE_BYTES = 4 << 20
CHUNK_BYTES = 16 << 20
DIGITS = 15
"""Digits of a written time: as many as a decimal number keeps in float64."""
# HDF5 holds a chunk that is being filled frame by frame in its cache, of 1 MiB.
FILLED_BYTES = 1 << 19
# Who reads a window of one member reads whole chunks, with the other members in them.
MEMBERS_BYTES = 1 << 15


def written_times(times: Any) -> np.ndarray:
    """Times as files say them: 0.7 where seven frames of 0.1 add up to 0.7000000000000001, so that 0.7 selects it.

    The clock of a run, and what a resume goes on with, stay as they are.
    """
    return np.asarray([float(f"{time:.{DIGITS}g}") for time in np.atleast_1d(np.asarray(times, np.float64))])


@dataclass(frozen=True)
class Variable:
    """One dataset: its dimensions in the file, its attributes, its values unless they come by frames."""

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype
    attributes: Mapping[str, object] = field(default_factory=dict)
    values: np.ndarray | None = None


MemberNumbers = Mapping[str, tuple[np.ndarray, str, str]]
"""Numbers of each member that are known at the end, by name, with their units and what they mean."""
NO_NUMBERS: MemberNumbers = MappingProxyType({})


@dataclass(frozen=True)
class FrameLayout:
    """The variables of a run: `fixed` ones are known beforehand, `framed` ones have a value per frame."""

    sizes: Mapping[str, int]
    fixed: tuple[Variable, ...]
    framed: tuple[Variable, ...]
    time_units: str
    rounding_bits: int | None

    def shape(self, variable: Variable, frames: int) -> tuple[int, ...]:
        return tuple(frames if dim == "time" else self.sizes[dim] for dim in variable.dims)

    def within(self, ranges: Ranges) -> FrameLayout:
        """The layout of a part, with its own coordinates."""

        def cut(variable: Variable) -> Variable:
            if variable.values is None or not ranges.keys() & {*variable.dims}:
                return variable
            own = tuple(slice(*ranges.get(dim, (None,))) for dim in variable.dims)
            return replace(variable, values=variable.values[own])

        sizes = {dim: ranges[dim][1] - ranges[dim][0] if dim in ranges else n for dim, n in self.sizes.items()}
        return replace(self, sizes=sizes, fixed=tuple(map(cut, self.fixed)))

    @functools.cached_property
    def frame_bytes(self) -> int:
        """Bytes that one output time adds to the files; asked for at every sample of an instrument."""
        return sum(int(np.prod(self.shape(v, 1), dtype=np.int64)) * v.dtype.itemsize for v in self.framed)


def without_fields(layout: FrameLayout) -> FrameLayout:
    """The layout of the same run without fields and without space."""
    spaceless = {"member", "time"}
    fixed = tuple(v for v in layout.fixed if spaceless.issuperset(v.dims) and "cf_role" not in v.attributes)
    framed = tuple(v for v in layout.framed if spaceless.issuperset(v.dims))
    return replace(layout, fixed=fixed, framed=framed)


def with_members(layout: FrameLayout, statuses, more: MemberNumbers) -> FrameLayout:
    """The layout with the status of each member, or of the run, and with further numbers of each member."""
    values = np.asarray(statuses, dtype="i4")
    attributes = {"long_name": "status bits at the end; 0 where nothing went wrong", "units": "1"}
    added = [Variable("status", ("member",) if values.ndim else (), values.dtype, attributes, values)]
    for name, (numbers, units, about) in more.items():
        added.append(Variable(name, ("member",), numbers.dtype, {"long_name": about, "units": units}, numbers))
    return replace(layout, fixed=(*layout.fixed, *added))


def frame_layout(
    fixed: Sequence[Variable], framed: Sequence[Variable], time_units: str, rounding_bits: int | None = None
) -> FrameLayout:
    """A layout of variables; ConfigurationError where two have one name."""
    names = ["time", "step", "status", *(v.name for v in (*fixed, *framed))]
    for name in names:
        if names.count(name) > 1 or not name or "/" in name:
            raise ConfigurationError(
                f"the output has {names.count(name)} variables named {name!r}; expected names that differ "
                "from one another and from the coordinates, without '/': rename one."
            )
    sizes = {v.name: v.values.shape[0] for v in fixed if v.values is not None and v.dims == (v.name,)}
    return FrameLayout(sizes, tuple(fixed), tuple(framed), time_units, rounding_bits)


def diagnostic_variables(
    names: Sequence[str],
    leading: tuple[str, ...],
    parameters: Iterable[str],
    about: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Variable]:
    """Numbers recorded at every output time; about: attributes of each, such as units."""
    common = coordinates_attribute(parameters)
    described = {name: {"long_name": name, **(about or {}).get(name, {})} for name in names}
    return [Variable(n, (*leading, "time"), np.dtype("f8"), {**described[n], **common}) for n in names]


def member_coordinate(members: int | None, numbers: Sequence[int] | None = None) -> list[Variable]:
    """The members of an ensemble, if it is one. numbers: of the members, by default from 0 on."""
    if members is None:
        return []
    attributes = {"standard_name": "realization", "long_name": "ensemble member", "units": "1"}
    counted = np.arange(members) if numbers is None else np.asarray(numbers)
    return [Variable("member", ("member",), np.dtype("i4"), attributes, counted.astype("i4"))]


def parameter_variable(name: str, value, members: int | None, about: Mapping[str, object] | None = None) -> Variable:
    """A number, or one per member; about: its attributes, such as units."""
    values = np.asarray(value, dtype="f8")
    if values.shape not in ((), (members,)):
        raise ConfigurationError(
            f"parameter {name!r} has shape {values.shape}; expected one number, or one for each of the "
            f"{members} members."
        )
    dims = ("member",) if values.ndim else ()
    return Variable(name, dims, values.dtype, {"long_name": name, **(about or {})}, values)


def coordinates_attribute(parameters: Iterable[str]) -> dict[str, str]:
    """Names the parameters, so that readers take them as coordinates."""
    names = " ".join(parameters)
    return {"coordinates": names} if names else {}


def write_plain(
    path: Path,
    layout: FrameLayout,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    pieces: Iterable[tuple[int, int, Mapping[str, np.ndarray]]],
) -> None:
    """Writes a file that holds its own values; a piece is (first frame, frames, name -> values)."""
    with new_hdf5(path) as file:
        write_common(file, layout, attributes, steps, times)
        datasets = {}
        for variable in layout.framed:
            shape = layout.shape(variable, len(steps))
            storage = checked_storage(shape, variable.dtype, variable.dims.index("time"), layout.rounding_bits)
            datasets[variable.name] = file.create_dataset(
                variable.name, shape, variable.dtype, track_order=True, **storage
            )
            describe(file, datasets[variable.name], variable)
        fill(datasets, layout, pieces)


def fill(datasets: Mapping[str, h5py.Dataset], layout: FrameLayout, pieces: Iterable[tuple[int, int, Mapping]]) -> None:
    """Writes frames into datasets by name; a piece is (first frame, frames, name -> values)."""
    for start, frames, values in pieces:
        for variable in layout.framed:
            frame_range = frame_selection(variable, start, frames)
            datasets[variable.name][frame_range] = values[variable.name][frame_selection(variable, 0, frames)]


def framed_datasets(
    file: h5py.File, path: Path, layout: FrameLayout, frames: int, within: Callable[[h5py.File, str], str]
) -> dict[str, h5py.Dataset]:
    """The framed variables of a file; InputOutputError where one is not as this run writes it.

    within: the path of a variable in the file.
    """
    datasets = {}
    for variable in layout.framed:
        expected = (layout.shape(variable, frames), variable.dtype)
        dataset = file.get(within(file, variable.name))
        found = (dataset.shape, dataset.dtype) if isinstance(dataset, h5py.Dataset) else "missing"
        if not isinstance(dataset, h5py.Dataset) or found != expected:
            raise InputOutputError(
                f"{path}: {variable.name!r} is {found} where this run writes {expected}; resume with "
                "the grid, ensemble, precision and output of before, or write to another folder."
            )
        datasets[variable.name] = dataset
    return datasets


def read_frame(
    datasets: Mapping[str, h5py.Dataset], layout: FrameLayout, ranges: Ranges, index: int
) -> dict[str, np.ndarray]:
    """Read a part of one frame of each framed variable."""
    return {v.name: datasets[v.name][part_selection(v, ranges, index, 1)] for v in layout.framed}


def write_virtual(
    path: Path,
    layout: FrameLayout,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    sources: Sequence[Segment],
) -> None:
    """Writes a master whose framed variables lie in segments, of which it records sizes and checksums."""
    with new_hdf5(path) as file:
        write_common(file, layout, attributes, steps, times)
        write_table(file, sources)
        for variable in layout.framed:
            describe(file, over_segments(file, variable.name, layout, variable, len(steps), sources), variable)


def over_segments(
    parent: h5py.Group,
    name: str,
    layout: FrameLayout,
    variable: Variable,
    total: int,
    sources: Sequence[Segment],
) -> h5py.Dataset:
    """`parent[name]`: all `total` frames of a variable that lies in segments."""
    virtual = h5py.VirtualLayout(layout.shape(variable, total), variable.dtype)
    for start, frames, segments in chunks_of(sources):
        # Numbers of the run lie in every part; one of them is enough.
        own = {tuple(segment.ranges.get(dim) for dim in variable.dims): segment for segment in reversed(segments)}
        for segment in own.values():
            part = h5py.VirtualSource(
                segment.name, variable.name, layout.within(segment.ranges).shape(variable, frames)
            )
            # Selected explicitly: "all" would mean all that the file holds once it has grown.
            virtual[part_selection(variable, segment.ranges, start, frames)] = part[
                frame_selection(variable, 0, frames)
            ]
    # NaN is what a missing segment reads as; open_run refuses such a folder before anyone reads it.
    missing = np.nan if variable.dtype.kind == "f" else 0
    return parent.create_virtual_dataset(name, virtual, fillvalue=missing)


def write_common(file: h5py.File, layout: FrameLayout, attributes, steps, times) -> None:
    """Writes datasets and attributes common to all files of frames: times, steps and the variables that are known
    beforehand."""
    time_attributes = {"standard_name": "time", "long_name": "time", "axis": "T", "units": layout.time_units}
    step_attributes = {"long_name": "time steps since the start", "units": "1"}
    variables = (
        Variable("time", ("time",), np.dtype("f8"), time_attributes, np.asarray(times, dtype="f8")),
        Variable("step", ("time",), np.dtype("i8"), step_attributes, np.asarray(steps, dtype="i8")),
        *layout.fixed,
    )
    write_variables(file, attributes, variables)


def cf_attributes(title: str) -> dict[str, str]:
    """The root attributes that CF wants of every file."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "Conventions": CONVENTIONS,
        "title": title,
        "source": "simjax",
        "history": f"{now} written by simjax",
        "institution": "",
        "references": "",
    }


def root_attributes(attributes: Mapping[str, Any], title: str, dtype: np.dtype, layout: str) -> dict[str, Any]:
    """The root attributes of every file of a run."""
    state = {"simjax_layout": layout, "simjax_segments": 0, "simjax_complete": 0}
    return {**cf_attributes(title), "simjax_dtype": dtype.name, **attributes, **state}


def write_variables(file: h5py.File, attributes: Mapping[str, object], variables: Sequence[Variable]) -> None:
    """Writes root attributes and variables with their values; every dimension is one of the variables."""
    for name, value in attributes.items():
        file.attrs[name] = value
    for variable in sorted(variables, key=lambda v: v.dims != (v.name,)):  # scales before what is attached to them
        storage = checked_storage(np.asarray(variable.values).shape, variable.dtype)
        dataset = file.create_dataset(
            variable.name, data=variable.values, dtype=variable.dtype, track_order=True, **storage
        )
        if variable.dims == (variable.name,):
            dataset.make_scale(variable.name)
        describe(file, dataset, variable)


def describe(file: h5py.File, dataset: h5py.Dataset, variable: Variable) -> None:
    """Attaches attributes and dimensions to a dataset."""
    for name, value in variable.attributes.items():
        dataset.attrs[name] = value
    if variable.dims != (variable.name,):
        for position, dim in enumerate(variable.dims):
            dataset.dims[position].attach_scale(file[dim])


def frame_selection(variable: Variable, start: int, frames: int) -> tuple[slice, ...]:
    """The index that selects `frames` frames from `start` on in a variable with a time axis."""
    return (*(slice(None),) * variable.dims.index("time"), slice(start, start + frames))


def part_selection(variable: Variable, ranges: Ranges, start: int, frames: int) -> tuple[slice, ...]:
    """The index that selects some frames of a part in a variable of all."""
    at = {**ranges, "time": (start, start + frames)}
    return tuple(slice(*at.get(dim, (None,))) for dim in variable.dims)


def checked_storage(
    shape: Sequence[int], dtype: np.dtype, time: int | None = None, rounding_bits: int | None = None
) -> dict:
    """Options of h5py with which HDF5 checks every value that it reads, and gzips fields that were rounded.

    A chunk is one frame of few members, thinner where that is large, and several frames where those of all members are
    small: axis `time` counts them, and members are on an axis before it. Checksums need chunks, so numbers alone and
    empty arrays have none.
    """
    if not shape or 0 in shape:
        return {}
    chunk, size = [1] * len(shape), dtype.itemsize
    for axis in (a for a in reversed(range(len(shape))) if a != time):
        most = MEMBERS_BYTES if time is not None and axis < time else CHUNK_BYTES
        chunk[axis] = min(shape[axis], max(1, most // size))
        size *= chunk[axis]
    if time is not None and chunk[:time] == [*shape[:time]]:
        chunk[time] = min(shape[time], max(1, FILLED_BYTES // size))
    storage: dict = {"chunks": tuple(chunk), "fletcher32": True}
    if rounding_bits is not None and time is not None and time + 1 < len(shape):
        storage |= {"compression": "gzip", "shuffle": True}
    return storage
