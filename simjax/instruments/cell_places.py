"""Coordinates of values that lie in cells of a grid, at their centres or on their faces."""

from __future__ import annotations

from collections.abc import Sequence

from simjax.core.model import Output
from simjax.grid import AXES, CENTER, Grid, place_attributes
from simjax.instruments.instrument import Coordinate


def cell_coordinates(
    grid: Grid, output: Output, axes: Sequence[int], units: str
) -> tuple[tuple[str, ...], tuple[Coordinate, ...]]:
    """The dimensions of a variable along some axes, slowest first, and their coordinates: of centres or of faces."""
    found = []
    for k in reversed(axes):
        place, name = ("centre", AXES[k]) if output.offset[k] == CENTER else ("face", f"{AXES[k]}_face")
        about = {"axis": AXES[k].upper(), "units": units, **place_attributes(grid, k, f"cell {place}")}
        found.append(Coordinate(name, (name,), grid.coordinates(k, output.offset[k]), about))
    return tuple(one.name for one in found), tuple(found)
