"""The layout "simjax grid/1": which variables the files of a run of fields hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simjax.core.errors import ConfigurationError
from simjax.core.grid import AXES, CENTER, FACE
from simjax.io.frame_layout import (
    FrameLayout,
    Variable,
    coordinates_attribute,
    diagnostic_variables,
    frame_layout,
    member_coordinate,
    parameter_variable,
)

if TYPE_CHECKING:
    from simjax.core.grid import Grid
    from simjax.core.model import Output

LAYOUT = "simjax grid/1"


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
) -> FrameLayout:
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
    fixed = [*member_coordinate(members), *space_coordinates(grid, outputs, length_units)]
    fixed += [parameter_variable(name, value, members) for name, value in parameters.items()]
    framed = [
        field_variable(o, grid.ndim, (*leading, "time"), dtype, tuple(parameters), rounding_bits) for o in outputs
    ]
    framed += diagnostic_variables(diagnostics, leading, parameters)
    return frame_layout(fixed, framed, time_units, rounding_bits)


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
