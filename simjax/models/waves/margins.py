"""Room for light that enters at faces of cells: grids of equal cells, and their margins of sides and layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simjax.core.boundary import PeriodicSide, Side
from simjax.models.waves.pml import AbsorbingSide

GAP = 2
"""Cells that are left between what enters, and sides and layers."""


@dataclass(frozen=True)
class Margins:
    """Sides of a grid as those see them who need room inside.

    layers: cells of absorbing layers at both sides of each axis. periodic: of each axis.
    """

    layers: tuple[tuple[int, ...], ...]
    periodic: tuple[bool, ...]

    @classmethod
    def of_sides(cls, sides: Sequence[tuple[Side, Side]], layer_cells: int) -> Margins:
        """The margins of a model's sides."""
        layers = tuple(tuple(layer_cells * isinstance(side, AbsorbingSide) for side in pair) for pair in sides)
        return cls(layers, tuple(isinstance(pair[0], PeriodicSide) for pair in sides))

    @classmethod
    def of_configuration(cls, config: Any) -> Margins:
        """The margins of a configuration of waves."""
        kinds = [(pair.lower.kind, pair.upper.kind) for pair in config.boundaries]
        layers = tuple(tuple(config.physics.layer_cells * (kind == "absorbing") for kind in pair) for pair in kinds)
        return cls(layers, tuple("periodic" in pair for pair in kinds))

    def room(self, grid: Any, axis: int) -> tuple[int, int]:
        """Numbers of the first and the last faces along an axis that are far enough from sides and layers."""
        lower, upper = self.layers[axis]
        return lower + GAP, grid.shape[axis] - upper - GAP


def uniform_refusals(path: str, grid: Any, order: int) -> Iterator[tuple[str, str]]:
    """A sentence on a grid or an order that light which enters does not take, with its key path."""
    if order != 2 or grid.axisymmetric or any(line is not None for line in grid.stretch or ()):
        yield path, f"{path} is given: expected a Cartesian grid of equal cells and physics.order: 2 beside it"


def nearest_face(grid: Any, axis: int, place: float) -> int:
    """The number of the faces nearest to a place; grid: with shape, lower and upper."""
    return round((place - grid.lower[axis]) / _spacing(grid, axis))


def place_of_face(grid: Any, axis: int, number: int) -> float:
    """The place of the faces of a number."""
    return grid.lower[axis] + number * _spacing(grid, axis)


def _spacing(grid: Any, axis: int) -> float:
    return (grid.upper[axis] - grid.lower[axis]) / grid.shape[axis]
