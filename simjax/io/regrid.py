"""Values along one axis, from where a file has them to where a grid wants them. Host arrays only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SAME = 1e-6  # positions this close, in target spacings, are the same: coordinates are often stored in float32
PERIOD_TOLERANCE = 0.01


@dataclass(frozen=True)
class TargetAxis:
    """One axis of the grid: positions lower + (i + offset) h of `count` values, and whether it wraps."""

    name: str
    lower: float
    upper: float
    count: int
    offset: float
    periodic: bool

    @property
    def spacing(self) -> float:
        return (self.upper - self.lower) / self.count

    @property
    def positions(self) -> np.ndarray:
        return self.lower + (np.arange(self.count) + self.offset) * self.spacing


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
    source_spacing = (line[-1] - line[0]) / (line.shape[0] - 1)
    told = f"along {target.name} ({count} to {target.count})"
    if source_spacing < target.spacing * (1.0 - PERIOD_TOLERANCE):
        return _cell_means(values, line, target), f"averaged {told}"
    interpolated = _interpolate(values, line, target.positions)
    return interpolated, f"interpolated linearly {told}"


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
    elif abs(last - first - period) > PERIOD_TOLERANCE * period:
        raise AxisMismatch(f"{extent}, which is periodic")
    wrapped = target.lower + np.mod(positions - target.lower, period)
    order = np.argsort(wrapped, kind="stable")
    values, positions = values[order], wrapped[order]
    extra = min(count, int(np.ceil(target.spacing / width)) + 2)
    values = np.concatenate([values[-extra:], values, values[:extra]])
    return values, np.concatenate([positions[-extra:] - period, positions, positions[:extra] + period])


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
    wanted = np.append(target.positions - 0.5 * target.spacing, target.positions[-1] + 0.5 * target.spacing)
    edges[0] = min(2 * positions[0] - edges[1], wanted[0])
    edges[-1] = max(2 * positions[-1] - edges[-2], wanted[-1])
    slopes = np.zeros_like(values)
    slopes[1:-1] = (values[2:] - values[:-2]) / (positions[2:] - positions[:-2]).reshape(column)
    widths = np.diff(edges)
    integral = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values * widths.reshape(column), axis=0)])
    cell = np.clip(np.searchsorted(edges, wanted, side="right") - 1, 0, positions.shape[0] - 1)
    into = (wanted - edges[cell]).reshape(column)
    partial = into * (values[cell] + 0.5 * slopes[cell] * (into - widths[cell].reshape(column)))
    return np.diff(integral[cell] + partial, axis=0) / target.spacing
