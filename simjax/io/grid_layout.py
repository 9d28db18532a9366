"""The layout "simjax grid/1": which variables the files of a run of fields hold."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, FACE, place_attributes
from simjax.io.frame_layout import (
    FrameLayout,
    Variable,
    coordinates_attribute,
    diagnostic_variables,
    frame_layout,
    member_coordinate,
    parameter_variable,
)
from simjax.io.statistic_variables import members_counted, quantile_coordinate, statistic_fields
from simjax.schema.statistics import NO_STATISTICS, Statistics

if TYPE_CHECKING:
    from simjax.core.model import Output
    from simjax.grid import Grid

LAYOUT = "simjax grid/1"
BOUNDS = "bounds"
PALETTE, RANK, SINGULAR = "palette", "rank", "singular"
"""Attributes that say how pictures have a variable, as `core.model.Output` has them; the last is 1 where it is so. Of a
number over time the second says which are drawn first."""
TROUBLE = "trouble"
"""The attribute with the trouble of a model that a number over time is of; such numbers are drawn last."""


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
    periodic: Sequence[bool] | None = None,
    about: Mapping[str, Mapping[str, object]] | None = None,
    member_numbers: Sequence[int] | None = None,
    statistics: Statistics = NO_STATISTICS,
    reduced: Sequence[Output] = (),
) -> FrameLayout:
    """Describes the files of a run; fields are (member, time, z, y, x), diagnostics (member, time).

    periodic: per axis, by default all; along others there is one face more than cells. about: attributes of
    parameters and diagnostics by name.
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.dtype("f4"), np.dtype("f8")):
        raise ConfigurationError(f"dtype={dtype} of the output: expected float32 or float64.")
    mantissa = np.finfo(dtype).nmant
    if rounding_bits is not None and not 1 <= rounding_bits <= mantissa:
        raise ConfigurationError(
            f"output.rounding_bits={rounding_bits}: expected 1 to {mantissa} bits for {dtype}, or null."
        )
    leading = () if members is None else ("member",)
    periodic, about = (True,) * grid.ndim if periodic is None else tuple(periodic), about or {}
    placed = outputs or reduced  # whose places the axes are
    fixed = [*member_coordinate(members, member_numbers), *space_coordinates(grid, placed, length_units, periodic)]
    fixed += [*topology(grid, placed, periodic), *cell_sizes(grid, length_units), *quantile_coordinate(statistics)]
    fixed += [parameter_variable(name, value, members, about.get(name)) for name, value in parameters.items()]
    staggered = any(FACE in output.offset for output in placed)
    framed = [
        field_variable(
            o,
            grid.ndim,
            (*leading, "time"),
            dtype,
            tuple(parameters),
            rounding_bits,
            on_grid=staggered,
            attributes=measure_attribute(grid, o),
        )
        for o in outputs
    ]
    framed += [
        field_variable(
            like,
            grid.ndim,
            dims,
            dtype,
            (),
            rounding_bits,
            on_grid=staggered,
            attributes={**attributes, **measure_attribute(grid, like)},
        )
        for like, dims, attributes in statistic_fields(reduced, statistics)
    ]
    framed += members_counted(statistics)
    framed += diagnostic_variables(diagnostics, leading, parameters, about)
    return frame_layout(fixed, framed, time_units, rounding_bits)


def space_coordinates(
    grid: Grid, outputs: Sequence[Output], units: str, periodic: Sequence[bool] | None = None
) -> list[Variable]:
    """Positions along every axis, slowest first: of cell centres, and of faces where an output lies on any.

    Along a periodic axis there are as many faces as cells, each cell's lower one; else the upper wall's too. Where
    `periodic` is None no axis has the upper wall's.
    """
    staggered = any(FACE in output.offset for output in outputs)
    coordinates = []
    for axis in reversed(range(grid.ndim)):
        for offset, place in ((CENTER, "cell centre"), (FACE, "cell face")):
            if offset == FACE and not staggered:
                continue
            name = _dimension(axis, offset)
            attributes = {
                "axis": AXES[axis].upper(),
                "units": units,
                **place_attributes(grid, axis, place),
            }
            if offset == CENTER and axis in grid.stretched:
                attributes["bounds"] = f"{name}_bounds"
            values = grid.coordinates(axis, offset)
            if offset == FACE and periodic is not None and not periodic[axis]:
                values = np.append(values, grid.upper[axis])
            coordinates.append(Variable(name, (name,), np.dtype("f8"), attributes, values))
    return coordinates


def cell_sizes(grid: Grid, units: str) -> list[Variable]:
    """Ends of the cells along stretched axes (CF bounds), and areas or volumes (CF cell measures) of all; CF 7.1, 7.2.

    None of a uniform Cartesian grid, and in one dimension no measure, as CF has none of lengths. Cells of an
    axisymmetric grid are rings, with volumes.
    """
    if not grid.stretched and not grid.axisymmetric:
        return []
    found = []
    if grid.stretched:
        found.append(Variable(BOUNDS, (BOUNDS,), np.dtype("i4"), {"long_name": "lower and upper end"}, np.arange(2)))
    for axis in grid.stretched:
        line = grid.stretch[axis]
        assert line is not None
        ends = np.stack([line.faces[:-1], line.faces[1:]], axis=1)
        found.append(Variable(f"{AXES[axis]}_bounds", (AXES[axis], BOUNDS), np.dtype("f8"), {}, ends))
    if grid.ndim > 1:
        sizes = [grid.widths(axis) for axis in range(grid.ndim)]
        if grid.axisymmetric:
            sizes[0] = sizes[0] * np.pi * (2 * grid.coordinates(0, FACE) + sizes[0])
        size, name = functools.reduce(np.multiply.outer, sizes[::-1]), _measure(grid)
        power = 3 if grid.axisymmetric else grid.ndim
        attributes = {"standard_name": f"cell_{name}", "units": "1" if units == "1" else f"{units}{power}"}
        dims = tuple(reversed(AXES[: grid.ndim]))
        found.append(Variable(f"cell_{name}", dims, np.dtype("f8"), attributes, size))
    return found


def measure_attribute(grid: Grid, output: Output) -> dict[str, str]:
    """The attribute that names the sizes of a variable's cells, where it is at their centres."""
    if not (grid.stretched or grid.axisymmetric) or grid.ndim == 1 or FACE in output.offset:
        return {}
    name = _measure(grid)
    return {"cell_measures": f"{name}: cell_{name}"}


def _measure(grid: Grid) -> str:
    return "volume" if grid.axisymmetric or grid.ndim == 3 else "area"


def topology(grid: Grid, outputs: Sequence[Output], periodic: Sequence[bool]) -> list[Variable]:
    """The SGRID variable `grid`, which says how faces and cells belong together; none where all is at centres.

    Along a periodic axis the last cell's upper face is the first one (padding: high, and `periodic` names the axis).
    https://sgrid.github.io/sgrid, version 0.3; in one dimension as readers of two take it.
    """
    if not any(FACE in output.offset for output in outputs):
        return []
    axes, faces = AXES[: grid.ndim], [_dimension(axis, FACE) for axis in range(grid.ndim)]
    padded = [
        f"{axis}: {face} (padding: {'high' if wraps else 'none'})"
        for axis, face, wraps in zip(axes, faces, periodic, strict=True)
    ]
    attributes: dict[str, object] = {
        "cf_role": "grid_topology",
        "topology_dimension": np.int32(grid.ndim),
        "node_dimensions": " ".join(faces),
        ("volume_dimensions" if grid.ndim == 3 else "face_dimensions"): " ".join(padded),
        "node_coordinates": " ".join(faces),
        "periodic": " ".join(axis for axis, wraps in zip(axes, periodic, strict=True) if wraps),
    }
    if grid.ndim == 2:
        attributes |= {"edge1_dimensions": f"{faces[0]} {padded[1]}", "edge2_dimensions": f"{padded[0]} {faces[1]}"}
    if grid.ndim == 3:
        for axis in range(3):
            across = [faces[k] if k == axis else padded[k] for k in range(3)]
            along = [padded[k] if k == axis else faces[k] for k in range(3)]
            attributes[f"face{axis + 1}_dimensions"] = " ".join(across)
            attributes[f"edge{axis + 1}_dimensions"] = " ".join(along)
    return [Variable("grid", (), np.dtype("i4"), attributes, np.zeros((), "i4"))]


def _location(offset: Sequence[float]) -> str:
    """The name that SGRID has for the place of a field in its cell."""
    faces = [axis for axis, o in enumerate(offset) if o == FACE]
    if not faces:
        return {1: "face", 2: "face", 3: "volume"}[len(offset)]
    if len(faces) == len(offset):
        return "node"
    if len(offset) == 2:
        return f"edge{faces[0] + 1}"
    return f"face{faces[0] + 1}" if len(faces) == 1 else f"edge{({0, 1, 2} - set(faces)).pop() + 1}"


def _dimension(axis: int, offset: float) -> str:
    return AXES[axis] if offset == CENTER else AXES[axis] + "_face"


def field_variable(
    output: Output,
    ndim: int,
    leading: tuple[str, ...],
    dtype: np.dtype,
    parameters=(),
    rounding_bits=None,
    *,
    on_grid: bool = False,
    attributes: Mapping[str, object] | None = None,
) -> Variable:
    """A field without its values: dimensions `leading`, then those of space with the slowest first.

    on_grid: whether the file has the variable of `topology`, which the field then points to. attributes: further ones.
    Raises ConfigurationError where the offset is neither the centre of a cell nor a face.
    """
    if len(output.offset) != ndim or any(o not in (CENTER, FACE) for o in output.offset):
        raise ConfigurationError(
            f"output {output.name!r} has offset {output.offset}; expected {ndim} numbers, each {CENTER} "
            f"(cell centre) or {FACE} (lower face)."
        )
    space = tuple(_dimension(axis, output.offset[axis]) for axis in reversed(range(ndim)))
    faces = [_dimension(axis, offset) for axis, offset in enumerate(output.offset) if offset == FACE]
    attributes = {"units": output.units, "long_name": output.long_name or output.name, **(attributes or {})}
    if output.standard_name:
        attributes["standard_name"] = output.standard_name
    attributes["grid_location"] = " ".join(faces) or "center"
    if on_grid:
        attributes |= {"grid": "grid", "location": _location(output.offset)}
    attributes["_FillValue"] = dtype.type(np.nan)
    if output.vector:
        attributes |= {"vector": output.vector, "component": np.int32(output.component)}
    attributes |= {PALETTE: output.palette} if output.palette else {}
    attributes |= {RANK: np.int32(output.rank)} if output.rank != 1 else {}
    attributes |= {SINGULAR: np.int32(1)} if output.singular else {}
    attributes |= coordinates_attribute(parameters)
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
