"""The layout "simjax grid/1": which variables a grid file holds, and how they are laid down in HDF5.

One description serves the three kinds of file: a segment (some frames), the consolidated file (all frames),
and the virtual master (all frames, kept in the segments). Every one of them is NetCDF-4 with CF attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from simjax.core.errors import ConfigurationError
from simjax.core.grid import AXES, CENTER, FACE
from simjax.io.files import new_hdf5

if TYPE_CHECKING:
    from simjax.core.grid import Grid
    from simjax.core.model import Output

LAYOUT = "simjax grid/1"
CONVENTIONS = "CF-1.11"
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class Variable:
    """One dataset: its dimensions in the file, its attributes, its values unless they come by frames."""

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype
    attributes: Mapping[str, object] = field(default_factory=dict)
    values: np.ndarray | None = None


@dataclass(frozen=True)
class GridLayout:
    """The variables of a run: `fixed` ones are known beforehand, `framed` ones have a value per frame."""

    sizes: Mapping[str, int]
    fixed: tuple[Variable, ...]
    framed: tuple[Variable, ...]
    time_units: str
    rounding_bits: int | None

    def shape(self, variable: Variable, frames: int) -> tuple[int, ...]:
        return tuple(frames if dim == "time" else self.sizes[dim] for dim in variable.dims)

    def frame_bytes(self) -> int:
        """Bytes that one output time adds to the files."""
        return sum(int(np.prod(self.shape(v, 1), dtype=np.int64)) * v.dtype.itemsize for v in self.framed)


def build_layout(
    grid: Grid,
    outputs: Sequence[Output],
    *,
    members: int | None,
    parameters: Mapping[str, np.ndarray],
    diagnostics: Sequence[str],
    time_units: str,
    length_units: str,
    dtype,
    rounding_bits: int | None,
) -> GridLayout:
    """Describes the files of a run; fields are (member, time, z, y, x), diagnostics (member, time)."""
    dtype = np.dtype(dtype)
    if dtype not in (np.dtype("f4"), np.dtype("f8")):
        raise ConfigurationError(f"dtype={dtype} of the output: expected float32 or float64.")
    mantissa = np.finfo(dtype).nmant
    if rounding_bits is not None and not 1 <= rounding_bits <= mantissa:
        raise ConfigurationError(
            f"output.rounding_bits={rounding_bits}: expected 1 to {mantissa} bits for {dtype}, or null."
        )
    leading = () if members is None else ("member",)
    fixed = [*_member_coordinate(members), *space_coordinates(grid, outputs, length_units)]
    fixed += [_parameter(name, value, members) for name, value in parameters.items()]
    framed = [
        field_variable(o, grid.ndim, (*leading, "time"), dtype, tuple(parameters), rounding_bits) for o in outputs
    ]
    framed += [
        Variable(name, (*leading, "time"), np.dtype("f8"), {"long_name": name, **_coordinates(parameters)})
        for name in diagnostics
    ]
    names = ["time", "step", "status", *(v.name for v in (*fixed, *framed))]
    for name in names:
        if names.count(name) > 1 or not name or "/" in name:
            raise ConfigurationError(
                f"the output has {names.count(name)} variables named {name!r}; expected names that differ "
                "from one another and from the coordinates, without '/': rename one."
            )
    sizes = {v.name: v.values.shape[0] for v in fixed if v.values is not None and v.dims == (v.name,)}
    return GridLayout(sizes, tuple(fixed), tuple(framed), time_units, rounding_bits)


def _member_coordinate(members: int | None) -> list[Variable]:
    if members is None:
        return []
    attributes = {"standard_name": "realization", "long_name": "ensemble member", "axis": "E", "units": "1"}
    return [Variable("member", ("member",), np.dtype("i4"), attributes, np.arange(members, dtype="i4"))]


def space_coordinates(grid: Grid, outputs: Sequence[Output], units: str) -> list[Variable]:
    """Positions along every axis, slowest first: of cell centres, and of faces where an output lies on them."""
    faces = {axis for output in outputs for axis, offset in enumerate(output.offset) if offset == FACE}
    coordinates = []
    for axis in reversed(range(grid.ndim)):
        for offset, place in ((CENTER, "cell centre"), (FACE, "lower cell face")):
            if offset == FACE and axis not in faces:
                continue
            name = _dimension(axis, offset)
            attributes = {
                "axis": AXES[axis].upper(),
                "units": units,
                "long_name": f"{AXES[axis]} of the {place}",
            }
            values = grid.coordinates(axis, offset)
            coordinates.append(Variable(name, (name,), np.dtype("f8"), attributes, values))
    return coordinates


def _dimension(axis: int, offset: float) -> str:
    return AXES[axis] if offset == CENTER else AXES[axis] + "_face"


def _parameter(name: str, value, members: int | None) -> Variable:
    values = np.asarray(value, dtype="f8")
    if values.shape not in ((), (members,)):
        raise ConfigurationError(
            f"parameter {name!r} has shape {values.shape}; expected one number, or one for each of the "
            f"{members} members."
        )
    dims = ("member",) if values.ndim else ()
    return Variable(name, dims, values.dtype, {"long_name": name, "units": "1"}, values)


def _coordinates(parameters: Iterable[str]) -> dict[str, str]:
    names = " ".join(parameters)
    return {"coordinates": names} if names else {}


def field_variable(
    output: Output, ndim: int, leading: tuple[str, ...], dtype: np.dtype, parameters=(), rounding_bits=None
) -> Variable:
    """A field without its values: dimensions `leading`, then those of space with the slowest first.

    Raises ConfigurationError where the offset is neither the centre of a cell nor a face.
    """
    if len(output.offset) != ndim or any(o not in (CENTER, FACE) for o in output.offset):
        raise ConfigurationError(
            f"output {output.name!r} has offset {output.offset}; expected {ndim} numbers, each {CENTER} "
            f"(cell centre) or {FACE} (lower face)."
        )
    space = tuple(_dimension(axis, output.offset[axis]) for axis in reversed(range(ndim)))
    faces = [_dimension(axis, offset) for axis, offset in enumerate(output.offset) if offset == FACE]
    attributes: dict[str, object] = {"units": output.units, "long_name": output.long_name or output.name}
    if output.standard_name:
        attributes["standard_name"] = output.standard_name
    attributes["grid_location"] = " ".join(faces) or "center"
    attributes["_FillValue"] = dtype.type(np.nan)
    if output.vector:
        attributes |= {"vector": output.vector, "component": np.int32(output.component)}
    attributes |= _coordinates(parameters)
    if rounding_bits is not None:  # the attribute by which netCDF-C marks fields rounded in this way
        attributes["_QuantizeBitRoundNumberOfSignificantBits"] = np.int32(rounding_bits)
    return Variable(output.name, (*leading, *space), dtype, attributes)


def round_mantissa(values: np.ndarray, bits: int) -> np.ndarray:
    """Rounds float32 or float64 `values` to `bits` explicit mantissa bits, ties to even.

    The relative error is at most 2^-(bits+1); the zeros left behind are what makes the values compress.
    Infinities and NaN stay (Kloewer et al. 2021, Nature Computational Science 1, 713).
    """
    drop = np.finfo(values.dtype).nmant - bits
    if drop == 0:
        return values
    integer = np.dtype(f"u{values.dtype.itemsize}").type
    pattern = values.view(integer)
    tie_to_even = (pattern >> integer(drop)) & integer(1)
    rounded = pattern + ((integer(1) << integer(drop - 1)) - integer(1) + tie_to_even)
    rounded &= ~((integer(1) << integer(drop)) - integer(1))
    return np.where(np.isfinite(values), rounded.view(values.dtype), values)


def write_plain(
    path: Path,
    layout: GridLayout,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    pieces: Iterable[tuple[int, int, Mapping[str, np.ndarray]]],
) -> None:
    """Writes a file that holds its own values; a piece is (first frame, frames, name -> values)."""
    with new_hdf5(path) as file:
        _write_common(file, layout, attributes, steps, times)
        datasets = {}
        for variable in layout.framed:
            shape = layout.shape(variable, len(steps))
            compression = _compression(variable, shape, layout.rounding_bits)
            datasets[variable.name] = file.create_dataset(
                variable.name, shape, variable.dtype, track_order=True, **compression
            )
            _describe(file, datasets[variable.name], variable)
        for start, frames, values in pieces:
            for variable in layout.framed:
                frame_range = frame_selection(variable, start, frames)
                datasets[variable.name][frame_range] = values[variable.name][frame_selection(variable, 0, frames)]


def write_virtual(
    path: Path,
    layout: GridLayout,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    sources: Sequence[tuple[str, int]],
) -> None:
    """Writes a master whose framed variables lie in other files; a source is (relative path, frames)."""
    with new_hdf5(path) as file:
        _write_common(file, layout, attributes, steps, times)
        for variable in layout.framed:
            virtual = h5py.VirtualLayout(layout.shape(variable, len(steps)), variable.dtype)
            start = 0
            for source, frames in sources:
                whole = h5py.VirtualSource(source, variable.name, layout.shape(variable, frames))
                # Selected explicitly: "all" would mean all that the file holds once it has grown.
                frames_there = whole[frame_selection(variable, 0, frames)]
                virtual[frame_selection(variable, start, frames)] = frames_there
                start += frames
            # NaN is what a missing segment reads as; open_run refuses such a folder before anyone reads it.
            dataset = file.create_virtual_dataset(variable.name, virtual, fillvalue=np.nan)
            _describe(file, dataset, variable)


def _write_common(file: h5py.File, layout: GridLayout, attributes, steps, times) -> None:
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


def write_variables(file: h5py.File, attributes: Mapping[str, object], variables: Sequence[Variable]) -> None:
    """Writes root attributes and variables with their values; every dimension is one of the variables."""
    for name, value in attributes.items():
        file.attrs[name] = value
    for variable in sorted(variables, key=lambda v: v.dims != (v.name,)):  # scales before what is attached to them
        dataset = file.create_dataset(variable.name, data=variable.values, dtype=variable.dtype, track_order=True)
        if variable.dims == (variable.name,):
            dataset.make_scale(variable.name)
        _describe(file, dataset, variable)


def _describe(file: h5py.File, dataset: h5py.Dataset, variable: Variable) -> None:
    for name, value in variable.attributes.items():
        dataset.attrs[name] = value
    if variable.dims != (variable.name,):
        for position, dim in enumerate(variable.dims):
            dataset.dims[position].attach_scale(file[dim])


def frame_selection(variable: Variable, start: int, frames: int) -> tuple[slice, ...]:
    """The index that selects `frames` frames from `start` on in a variable with a time axis."""
    return (*(slice(None),) * variable.dims.index("time"), slice(start, start + frames))


def _compression(variable: Variable, shape: tuple[int, ...], rounding_bits: int | None) -> dict:
    """Fields rounded on request are gzipped, one frame of one member a chunk, thinner where that is large."""
    spatial = shape[variable.dims.index("time") + 1 :]
    if rounding_bits is None or not spatial or 0 in shape:
        return {}
    plane = int(np.prod(spatial[1:], dtype=np.int64)) * variable.dtype.itemsize
    chunk = (min(spatial[0], max(1, CHUNK_BYTES // plane)), *spatial[1:])
    return {"chunks": (1,) * (len(shape) - len(spatial)) + chunk, "compression": "gzip", "shuffle": True}
