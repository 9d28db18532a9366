"""Files of a run's instruments: `outputs/NAME/samples.h5` in its folder, each with a time axis of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.errors import InputOutputError
from simjax.grid import AXES, CENTER
from simjax.io.frame_layout import FrameLayout, Variable, frame_layout, member_coordinate, root_attributes
from simjax.io.frame_output import FrameWriter
from simjax.io.grid_layout import described
from simjax.io.segments import Part

if TYPE_CHECKING:
    from simjax.core.model import Output
    from simjax.grid import Grid

LAYOUT = "simjax instrument/1"
FOLDER, SAMPLES_NAME = "outputs", "samples.h5"
STATION, DISTANCE, WAVENUMBER, BIN, RADIUS = "station", "distance", "wavenumber", "value", "radius"
SEPARATION, ANGLE = "separation", "angle"


class InstrumentWriter(FrameWriter):
    """Writes samples of one instrument: `given[name]` is (samples, [member,] *own axes), x before y before z.

    A sample is a frame in a folder of the instrument's own; of several processes the first one writes all of it.
    fixed: coordinates. dims: those of each variable beside members and time, slowest first.
    """

    diagnostics_name = None

    def __init__(
        self,
        folder: Path,
        outputs: Mapping[str, Output],
        dims: Mapping[str, tuple[str, ...]],
        fixed: Sequence[Variable],
        *,
        dtype: np.dtype,
        members: Sequence[int] | None,
        time_units: str,
        attributes: Mapping[str, Any],
        title: str,
        keep_until_step: int | None,
        parts: Sequence[Part],
        described: Mapping[str, Any],
        segment_bytes: int = 64 << 20,
    ):
        layout = frame_layout(
            [*member_coordinate(None if members is None else len(members), members), *fixed],
            [
                _variable(output, dims[name], fixed, dtype, members is not None, described)
                for name, output in outputs.items()
            ],
            time_units,
        )
        root = root_attributes(attributes, title, dtype, LAYOUT)
        if any(variable.name == STATION for variable in fixed):
            root["featureType"] = "timeSeries"
        super().__init__(
            folder,
            SAMPLES_NAME,
            "samples",
            layout,
            root,
            keep_until_step=keep_until_step,
            parts=parts,
            segment_bytes=segment_bytes,
        )

    def to_file(self, layout: FrameLayout, variable: Variable, given: np.ndarray | None, frames: int) -> np.ndarray:
        own = [dim for dim in variable.dims if dim not in ("member", "time")]
        axes = ["time", *(["member"] if "member" in variable.dims else []), *reversed(own)]
        sizes = {"time": frames, **{dim: layout.sizes[dim] for dim in variable.dims if dim != "time"}}
        expected = tuple(sizes[dim] for dim in axes)
        if given is None or given.shape != expected:
            found = "nothing" if given is None else f"shape {given.shape}"
            raise InputOutputError(f"instrument {variable.name!r}: expected shape {expected}, got {found}.")
        order = [axes.index(dim) for dim in variable.dims]
        return np.ascontiguousarray(given.transpose(order), dtype=variable.dtype)


def _variable(
    output: Output,
    dims: tuple[str, ...],
    fixed: Sequence[Variable],
    dtype: np.dtype,
    of_members: bool,
    described: Mapping[str, Any],
) -> Variable:
    """A variable of samples; time series of stations have their time last, as CF has them."""
    lead = ("member",) if of_members else ()
    order = (*dims, "time") if dims == (STATION,) else ("time", *dims)
    attributes: dict[str, Any] = {"units": output.units, "long_name": output.long_name or output.name}
    if output.standard_name:
        attributes["standard_name"] = output.standard_name
    # Coordinates that are no dimension of their own: places of stations, of points on a line, of a plane.
    beside = [v.name for v in fixed if v.dims != (v.name,) and set(v.dims) <= {*dims}]
    if beside:
        attributes["coordinates"] = " ".join(beside)
    attributes |= described
    attributes["_FillValue"] = dtype.type(np.nan)
    return Variable(output.name, (*lead, *order), dtype, attributes)


# ---------------------------------------------------------------------- coordinates


def plane_coordinates(
    grid: Grid, outputs: Sequence[Output], axis: int, position: float, units: str
) -> tuple[list[Variable], dict[str, tuple[str, ...]]]:
    """Coordinates of a plane across an axis, and the dimensions of each output in it: of centres or of faces."""
    fixed, dims = cell_coordinates(grid, outputs, [k for k in range(grid.ndim) if k != axis], units)
    about = {"units": units, **described(grid, axis, "plane")}
    at = Variable(AXES[axis], (), np.dtype("f8"), about, np.asarray(position))
    return [*fixed, at], dims


def cell_coordinates(
    grid: Grid, outputs: Sequence[Output], axes: Sequence[int], units: str
) -> tuple[list[Variable], dict[str, tuple[str, ...]]]:
    """Coordinates along some axes, and the dimensions of each output along them: of centres or of faces."""
    fixed, dims = {}, {}
    for output in outputs:
        own = []
        for k in reversed(axes):
            place, name = ("centre", AXES[k]) if output.offset[k] == CENTER else ("face", f"{AXES[k]}_face")
            about = {"axis": AXES[k].upper(), "units": units, **described(grid, k, f"cell {place}")}
            fixed[name] = Variable(name, (name,), np.dtype("f8"), about, grid.coordinates(k, output.offset[k]))
            own.append(name)
        dims[output.name] = tuple(own)
    return list(fixed.values()), dims


def mesh_coordinates(grid: Grid, units: str) -> list[Variable]:
    """Centres of the cells of a mesh, the slowest axis in the file first."""
    found = []
    for k in reversed(range(grid.ndim)):
        about = {"axis": AXES[k].upper(), "units": units, "long_name": f"{AXES[k]} of the cell centre"}
        found.append(Variable(AXES[k], (AXES[k],), np.dtype("f8"), about, grid.coordinates(k, CENTER)))
    return found


def track_coordinates(ids: Sequence[int], ndim: int) -> list[Variable]:
    """Numbers of tagged particles, and the axes of space."""
    numbers = {"long_name": "number of the particle", "units": "1"}
    return [
        Variable("particle", ("particle",), np.dtype("i8"), numbers, np.asarray(ids, "i8")),
        Variable(
            "space",
            ("space",),
            np.dtype("i4"),
            {"long_name": "axis of space", "units": "1"},
            np.arange(ndim, dtype="i4"),
        ),
    ]


def station_coordinates(points: np.ndarray, units: str) -> list[Variable]:
    """Points `(stations, axes)` as the stations of a discrete sampling geometry."""
    return [*station_numbers(len(points)), *_places(points, STATION, units)]


def station_numbers(count: int) -> list[Variable]:
    """Numbers of stations whose places are variables."""
    about = {"cf_role": "timeseries_id", "long_name": "number of the point", "units": "1"}
    return [Variable(STATION, (STATION,), np.dtype("i4"), about, np.arange(count, dtype="i4"))]


def angle_coordinate(count: int) -> Variable:
    """Equal angles of rays, the first along x."""
    about = {"long_name": "angle of the ray, counterclockwise from x", "units": "radian"}
    return Variable(ANGLE, (ANGLE,), np.dtype("f8"), about, 2 * np.pi * np.arange(count) / count)


def line_coordinates(points: np.ndarray, units: str) -> list[Variable]:
    """Points `(points, axes)` on a line by their distance from the first."""
    length = np.linalg.norm(points - points[0], axis=1)
    about = {"long_name": "distance from the first point", "units": units}
    return [Variable(DISTANCE, (DISTANCE,), np.dtype("f8"), about, length), *_places(points, DISTANCE, units)]


def _places(points: np.ndarray, dim: str, units: str) -> list[Variable]:
    about = [{"units": units, "long_name": f"{axis} of the point"} for axis in AXES]
    return [Variable(AXES[k], (dim,), np.dtype("f8"), about[k], points[:, k]) for k in range(points.shape[1])]


def wavenumber_coordinate(shells: int, longest: float, units: str) -> Variable:
    """The middle of shells of wavenumbers that are 2 pi over the longest side wide."""
    about = {"long_name": "wavenumber", "units": "1" if units == "1" else f"{units}-1"}
    return Variable(WAVENUMBER, (WAVENUMBER,), np.dtype("f8"), about, 2 * np.pi / longest * np.arange(1, shells + 1))


def separation_coordinate(lengths: Sequence[float], axis: str, units: str) -> Variable:
    """Distances between two points along an axis."""
    about = {"long_name": f"separation along {axis}", "units": units}
    return Variable(SEPARATION, (SEPARATION,), np.dtype("f8"), about, np.asarray(lengths))


def radius_coordinate(radii: Sequence[float], units: str) -> Variable:
    """Distances between particles."""
    about = {"long_name": "distance between particles", "units": units}
    return Variable(RADIUS, (RADIUS,), np.dtype("f8"), about, np.asarray(radii))


def bin_coordinates(edges: np.ndarray, units: str) -> list[Variable]:
    """The middles of bins, and their edges as CF's bounds."""
    about = {"long_name": "middle of the bin", "units": units, "bounds": f"{BIN}_bounds"}
    ends = Variable("end", ("end",), np.dtype("i4"), {"long_name": "lower and upper edge", "units": "1"}, np.arange(2))
    bounds = np.stack([edges[:-1], edges[1:]], axis=1)
    return [
        Variable(BIN, (BIN,), np.dtype("f8"), about, bounds.mean(axis=1)),
        ends,
        Variable(f"{BIN}_bounds", (BIN, "end"), np.dtype("f8"), {"units": units}, bounds),
    ]
