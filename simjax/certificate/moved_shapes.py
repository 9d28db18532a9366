"""Ways on which bodies in a flow move by a cell, for a certificate: of arrays, and of formulas that stay formulas."""

import dataclasses
import math
import re
from collections.abc import Collection

import jax
import numpy as np

from simjax.certificate.directions import Unknowns
from simjax.config.read_stretched_grid import grid_of
from simjax.grid import AXES, Grid
from simjax.schema.config import Config
from simjax.schema.formula import Formula

SOLID, SOLID_VELOCITY = "solid", "solid_velocity"
SHAPE = f"coefficients.{SOLID}"
OUTWARD = "outward"
# Where bodies start, in cells from their place: off it, as bodies in the middle of a box lie on kinks.
SHAPE_OFFSET = 0.1


def keeps_formula(config: Config) -> bool:
    """Tell whether bodies are given by a formula of the place at any time: they move by it, or the fluid moves them."""
    source = config.coefficients.get(SOLID)
    return isinstance(source, tuple) and ("t" in source[0].names or getattr(config.physics, "body", None) is not None)


def with_places(config: Config) -> Config:
    """The configuration with named numbers by which a shape that stays a formula is moved along axes and grown.

    The velocity of bodies moves along. Distances are taken for those that they are: a formula that is another multiple
    of the distance grows by another multiple of a cell.

    Raises:
        ConfigurationError: the formula is so long that it cannot be moved.
    """
    cells, coefficients = _cells(grid_of(config.grid_of_fields())), dict(config.coefficients)
    distance, velocity = coefficients[SOLID], coefficients.get(SOLID_VELOCITY)
    assert isinstance(distance, tuple)
    coefficients[SOLID] = (Formula(f"({_moved(distance[0], cells)}) - {_number(OUTWARD)}"),)
    if isinstance(velocity, tuple):
        coefficients[SOLID_VELOCITY] = tuple(Formula(_moved(formula, cells)) for formula in velocity)
    places = {_number(way): SHAPE_OFFSET * cell for way, cell in cells.items()}
    return dataclasses.replace(config, coefficients=coefficients, parameters={**config.parameters, **places})


def ways_of_formula(grid: Grid, start: Unknowns) -> dict[str, Unknowns]:
    """Way -> that of the number that `with_places` adds for it, a tree like `start`; see `Objective.across`."""
    still = jax.tree.map(np.zeros_like, start)
    return {way: still | {_number(way): np.asarray(cell)} for way, cell in _cells(grid).items()}


def ways_of_distance(grid: Grid, start: Unknowns) -> dict[str, Unknowns]:
    """Way -> that of the distance from bodies, an array at the centres of cells; see `Objective.across`."""
    (distance,), cells = start[SHAPE], _cells(grid)
    slopes = [np.gradient(distance, axis=axis) for axis in range(distance.ndim)]
    steepness = np.sqrt(sum((slope / h) ** 2 for slope, h in zip(slopes, cells.values(), strict=False)))
    still = jax.tree.map(np.zeros_like, start)
    parts = zip(cells, [*slopes, cells[OUTWARD] * steepness], strict=True)
    return {way: still | {SHAPE: (-part,)} for way, part in parts}


def _cells(grid: Grid) -> dict[str, float]:
    """Way -> the length of a cell on it: "along x", ..., and "outward"."""
    along = {f"along {axis}": h for axis, h in zip(AXES, grid.mean_spacing, strict=False)}
    return along | {OUTWARD: math.prod(grid.mean_spacing) ** (1 / grid.ndim)}


def _number(way: str) -> str:
    """The name of the number that moves a shape on a way."""
    return f"{SOLID}_{way}".replace(" ", "_")


def _moved(formula: Formula, ways: Collection[str]) -> str:
    """The text of a formula of the place, with bodies moved along the axes by numbers."""
    text = formula.text
    for axis in AXES:
        if (way := f"along {axis}") in ways:
            text = re.sub(rf"\b{axis}\b", f"({axis} - {_number(way)})", text)
    return text
