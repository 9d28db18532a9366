"""Values along one axis, from where a file has them to where a grid wants them. Host arrays only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simjax.grid import AXES, CENTER

if TYPE_CHECKING:
    from simjax.grid import Grid

SAME = 1e-6  # positions this close, in target spacings, are the same: coordinates are often stored in float32
PERIOD_TOLERANCE = 0.01


@dataclass(frozen=True)
class TargetAxis:
    """One axis of the grid: `count` values at `offset` in their cells, and whether it wraps.

    places: positions of the values and the ends of what each stands for, `(count,)` and `(count + 1,)`, where the axis
    is stretched; on a uniform one positions are lower + (i + offset) h.
    """

    name: str
    lower: float
    upper: float
    count: int
    offset: float
    periodic: bool
    places: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def spacing(self) -> float:
        """The width of a cell, of the least one where it is stretched."""
        return float(np.diff(self.ends).min()) if self.places else (self.upper - self.lower) / self.count

    @property
    def positions(self) -> np.ndarray:
        return self.places[0] if self.places else self.lower + (np.arange(self.count) + self.offset) * self.spacing

    @property
    def ends(self) -> np.ndarray:
        """Ends of what the values stand for: of cells, or halfway between faces."""
        if self.places:
            return self.places[1]
        half = 0.5 * self.spacing
        return np.append(self.positions - half, self.positions[-1] + half)


def target_axis(grid: Grid, axis: int, offset: float, periodic: bool) -> TargetAxis:
    """An axis of a grid for values at `offset` in their cells."""
    places, line = None, grid.stretch[axis]
    if line is not None:
        faces, centers = np.asarray(line.faces), np.asarray(line.centers)
        length = faces[-1] - faces[0]
        before = centers[-1] - length if periodic else faces[0] - (centers[0] - faces[0])
        places = (centers, faces) if offset == CENTER else (faces[:-1], np.concatenate([[before], centers]))
    lower, upper = grid.lower[axis], grid.upper[axis]
    return TargetAxis(AXES[axis], lower, upper, grid.shape[axis], offset, periodic, places)


class AxisMismatch(ValueError):
    """The file's positions along an axis do not cover the grid's."""


def regrid_axis(values: np.ndarray, positions: np.ndarray | None, target: TargetAxis) -> tuple[np.ndarray, str | None]:
    """Bring axis 0 of `values` to the target's positions; says what was done, or None when nothing was.

    Without positions the file's cells divide the grid's box evenly. Coarser sources are interpolated
    linearly, finer ones averaged over the target's cells, which keeps the integral. Beyond the outermost
    position the value is held. Raises AxisMismatch when the file does not reach the grid's outermost values.
    """
    count = values.shape[0]
    if positions is None and count == target.count:
        return values, None
    width = (target.upper - target.lower) / count
    line = target.lower + (np.arange(count) + 0.5) * width if positions is None else positions
    if count > 1 and line[0] > line[-1]:
        values, line = values[::-1], line[::-1]
    if np.any(np.diff(line) <= 0.0) or not np.all(np.isfinite(line)):
        raise AxisMismatch(f"the coordinate {target.name} is neither increasing nor decreasing")
    if count == 1:
        return np.repeat(values, target.count, axis=0), f"constant along {target.name}"
    tolerance = SAME * target.spacing
    # A run's own file has one face more than cells along an axis with walls: the upper wall's.
    if count in (target.count, target.count + 1) and np.allclose(
        line[: target.count], target.positions, rtol=0.0, atol=tolerance
    ):
        return values[: target.count], None
    values, line = _cover(values, line, target)
    told = f"along {target.name} ({count} to {target.count})"
    if _is_finer(line, target):
        return _cell_means(values, line, target), f"averaged {told}"
    interpolated = _interpolate(values, line, target.positions)
    return interpolated, f"interpolated linearly {told}"


def _is_finer(line: np.ndarray, target: TargetAxis) -> bool:
    """Tell whether the source has the smaller spacing; where either is stretched, in most cells of the target."""
    if target.places is None:
        return (line[-1] - line[0]) / (line.shape[0] - 1) < target.spacing * (1.0 - PERIOD_TOLERANCE)
    within = np.clip(np.searchsorted(line, target.positions), 1, line.shape[0] - 1)
    gaps = line[within] - line[within - 1]
    return bool(np.median(gaps / np.diff(target.ends)) < 1.0 - PERIOD_TOLERANCE)


def _cover(values: np.ndarray, positions: np.ndarray, target: TargetAxis) -> tuple[np.ndarray, np.ndarray]:
    """Check that the source covers the axis, and repeat it beyond a periodic one as far as is needed."""
    count = positions.shape[0]
    width = (positions[-1] - positions[0]) / (count - 1)
    first, last = positions[0] - 0.5 * width, positions[-1] + 0.5 * width
    box = f"{target.lower:g} to {target.upper:g}"
    extent = f"{target.name} from {first:g} to {last:g} in the file, {box} in the grid"
    if not target.periodic:
        outer = target.positions[[0, -1]]
        if outer[0] < first - SAME * width or outer[1] > last + SAME * width:
            raise AxisMismatch(extent)
        return values, positions
    period = target.upper - target.lower
    if abs(positions[-1] - positions[0] - period) < PERIOD_TOLERANCE * width:  # the end repeats the beginning
        values, positions, count = values[:-1], positions[:-1], count - 1
    elif abs(last - first - period) > PERIOD_TOLERANCE * period and not _wraps(positions, period):
        raise AxisMismatch(f"{extent}, which is periodic")
    wrapped = target.lower + np.mod(positions - target.lower, period)
    order = np.argsort(wrapped, kind="stable")
    values, positions = values[order], wrapped[order]
    extra = min(count, int(np.ceil(target.spacing / width)) + 2)
    values = np.concatenate([values[-extra:], values, values[:extra]])
    return values, np.concatenate([positions[-extra:] - period, positions, positions[:extra] + period])


def _wraps(positions: np.ndarray, period: float) -> bool:
    """Tell whether cells of different widths leave a gap around the end of the period that is like their own."""
    gaps = np.diff(positions)
    uneven = gaps.max() > gaps.min() * (1.0 + PERIOD_TOLERANCE)
    return bool(uneven and 0.0 < period - (positions[-1] - positions[0]) <= 2.0 * gaps.max())


def _interpolate(values: np.ndarray, positions: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    below = np.clip(np.searchsorted(positions, wanted, side="right") - 1, 0, positions.shape[0] - 2)
    gap = positions[below + 1] - positions[below]
    weight = np.clip((wanted - positions[below]) / gap, 0.0, 1.0).reshape(-1, *[1] * (values.ndim - 1))
    return (1.0 - weight) * values[below] + weight * values[below + 1]


def _cell_means(values: np.ndarray, positions: np.ndarray, target: TargetAxis) -> np.ndarray:
    """Means over [position - h/2, position + h/2] of the source taken as linear in each of its cells."""
    column = (-1, *[1] * (values.ndim - 1))
    edges = np.empty(positions.shape[0] + 1)
    edges[1:-1] = 0.5 * (positions[1:] + positions[:-1])
    wanted = target.ends
    edges[0] = min(2 * positions[0] - edges[1], wanted[0])
    edges[-1] = max(2 * positions[-1] - edges[-2], wanted[-1])
    slopes = np.zeros_like(values)
    slopes[1:-1] = (values[2:] - values[:-2]) / (positions[2:] - positions[:-2]).reshape(column)
    widths = np.diff(edges)
    integral = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values * widths.reshape(column), axis=0)])
    cell = np.clip(np.searchsorted(edges, wanted, side="right") - 1, 0, positions.shape[0] - 1)
    into = (wanted - edges[cell]).reshape(column)
    partial = into * (values[cell] + 0.5 * slopes[cell] * (into - widths[cell].reshape(column)))
    sizes = np.diff(wanted).reshape(column) if target.places else target.spacing
    return np.diff(integral[cell] + partial, axis=0) / sizes
