"""Operators of the instruments that read several variables at once, over surfaces and at pairs of points."""

from __future__ import annotations

from simjax.core.model import Output
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.grid import AXES, Grid
from simjax.instruments.operators import Instrumental
from simjax.instruments.surfaces import SurfaceIntegral, faces_of_box, plane
from simjax.instruments.two_points import Correlation, StructureFunction
from simjax.models.measures import product_of_units, to_the_power
from simjax.schema.instruments import InstrumentConfig


def of_several(source: InstrumentConfig, programs: CompiledFields) -> tuple[dict[str, Instrumental], dict[str, Output]]:
    """The operator of each reading, and how it is described."""
    schema, grid = programs.config.schema, programs.grid
    operators: dict[str, Instrumental] = {}
    outputs: dict[str, Output] = {}
    for name, parts in source.readings(schema.written(grid.ndim, programs.config.counts)).items():
        own = {output.name: output for output in programs.outputs_named(parts)}
        first, last = own[parts[0]], own[parts[-1]]
        units = first.units
        match source.kind:
            case "surface_integral":
                operators[name] = SurfaceIntegral(name, parts, _faces(source, grid))
                units = product_of_units(units, to_the_power(schema.length_units, grid.ndim - 1))
                about = f"{'flux' if len(parts) > 1 else 'integral'} of {_field(name)} over the surface"
            case "structure_function":
                order = source.given["order"]
                operators[name] = StructureFunction(name, parts, *_separations(source, grid), order)
                units, about = to_the_power(units, order), f"{_field(name)}, structure function of order {order}"
            case _:
                normalised = source.given["normalised"]
                operators[name] = Correlation(name, parts, *_separations(source, grid), normalised)
                units = "1" if normalised else product_of_units(units, last.units)
                about = f"correlation of {' and '.join(part.replace('_', ' ') for part in parts)}"
        outputs[name] = Output(name, first.offset, units, about)
    return operators, outputs


def _field(name: str) -> str:
    """Name of a reading without its end, in words."""
    ends = ("_structure_function", "_flux", "_integral")
    return next(name.removesuffix(end) for end in ends if name.endswith(end)).replace("_", " ")


def _faces(source: InstrumentConfig, grid: Grid):
    given = source.given
    if "lower" in given:
        return faces_of_box(given["lower"], given["upper"])
    axis = next(axis for axis in AXES if axis in given)
    return plane(grid, AXES.index(axis), given[axis])


def _separations(source: InstrumentConfig, grid: Grid) -> tuple[int, tuple[int, ...]]:
    """The axis along which points lie apart, and by how many cells."""
    axis = AXES.index(source.given["along"])
    width = grid.lengths[axis] / grid.shape[axis]
    return axis, tuple(round(length / width) for length in source.given["separations"])
