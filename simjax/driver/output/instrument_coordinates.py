"""Coordinates of the files of instruments, by the operator that reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from simjax.driver.output.instrument import Instrument
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.grid import AXES, Grid
from simjax.instruments.body_surface import BodySurface
from simjax.instruments.distributions import Histogram, VectorSpectrum
from simjax.instruments.operators import BoxAverage, Diagnostic, Slice
from simjax.instruments.particle_operators import MeanSquareDisplacement, OnMesh, RadialDistribution, Tracks
from simjax.instruments.surfaces import SurfaceIntegral
from simjax.instruments.two_points import Correlation, StructureFunction
from simjax.io.frame_layout import Variable
from simjax.io.instrument_files import (
    ANGLE,
    BIN,
    DISTANCE,
    RADIUS,
    SEPARATION,
    STATION,
    WAVENUMBER,
    angle_coordinate,
    bin_coordinates,
    line_coordinates,
    mesh_coordinates,
    plane_coordinates,
    radius_coordinate,
    separation_coordinate,
    station_coordinates,
    station_numbers,
    track_coordinates,
    wavenumber_coordinate,
)
from simjax.schema.instruments import line_points


def coordinates_of(
    instrument: Instrument, programs: CompiledRun
) -> tuple[list[Variable], dict[str, tuple[str, ...]], dict[str, Any]]:
    """Coordinates, the dimensions of each variable beside time, and further attributes."""
    source, grid, units = instrument.source, programs.domain.grid, programs.config.schema.length_units
    given, first = source.given, next(iter(instrument.operators.values()))
    dims: tuple[str, ...] = ()
    fixed: list[Variable] = []
    described: dict[str, Any] = {}
    if isinstance(first, Slice):
        outputs = [*instrument.outputs.values()]
        return *plane_coordinates(grid, outputs, first.axis, first.position, units), described
    if isinstance(first, BoxAverage):
        described = {"cell_methods": "area: mean", "box_lower": first.lowers[0], "box_upper": first.uppers[0]}
    elif isinstance(first, VectorSpectrum):
        dims, fixed = (WAVENUMBER,), [wavenumber_coordinate(first.shells, first.length(grid), units)]
    elif isinstance(first, Histogram):
        alike = {output.units for output in instrument.variables}
        dims, fixed = (BIN,), bin_coordinates(first.edges, alike.pop() if len(alike) == 1 else "1")
    elif isinstance(first, RadialDistribution):
        dims, fixed = (RADIUS,), [radius_coordinate(first.radii, units)]
    elif isinstance(first, StructureFunction | Correlation):
        dims, fixed = (SEPARATION,), [separation_coordinate(given["separations"], given["along"], units)]
    elif isinstance(first, BodySurface) and "around" in given:
        dims, fixed = (ANGLE,), [angle_coordinate(given["points"])]
        described = {"around": given["around"]}
    elif isinstance(first, BodySurface):
        dims, fixed = (STATION,), station_numbers(len(given["points"]))
    elif isinstance(first, SurfaceIntegral):
        described = {f"surface_{key}": value for key, value in given.items()}
    elif isinstance(first, Tracks):
        dims, fixed = ("particle", "space"), track_coordinates(first.ids, grid.ndim)
    elif isinstance(first, OnMesh):
        mesh = Grid(first.cells, grid.lower, grid.upper)
        dims, fixed = tuple(AXES[: grid.ndim][::-1]), mesh_coordinates(mesh, units)
    elif isinstance(first, MeanSquareDisplacement | Diagnostic):
        pass
    elif source.kind == "probe":
        dims, fixed = (STATION,), station_coordinates(np.asarray(given["points"]), units)
    else:
        dims, fixed = (DISTANCE,), line_coordinates(np.asarray(line_points(given)), units)
    return fixed, dict.fromkeys(instrument.outputs, dims), described
