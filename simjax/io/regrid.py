"""Values along one axis, from where a file has them to where a grid wants them, region by region. Host arrays only."""

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
        """Ends of the cells or points that the values stand for: of cells, or halfway between faces."""
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


@dataclass(frozen=True)
class AxisMap:
    """Values along an axis of the grid, each a sum over some of those along an axis of a file.

    Value i is the sum of `weights[k] * values[sources[k]]` over k from `begins[i]` up to `begins[i + 1]`, in this order
    wherever the grid is cut, so that it rounds the same. Without weights it is the one value of the file.
    """

    sources: np.ndarray
    begins: np.ndarray
    weights: np.ndarray | None = None

    def within(self, first: int, last: int) -> tuple[list[tuple[int, int]], AxisMap]:
        """The map of values `first` up to `last` alone, and what it takes of the file's axis: one range or two.

        There are two where these values lie at both ends of a periodic axis; the map takes them one after the other.
        """
        own = slice(self.begins[first], self.begins[last])
        sources = self.sources[own]
        needed = np.unique(sources)
        gaps = np.diff(needed)
        cut = int(np.argmax(gaps)) + 1 if gaps.size and gaps.max() > 1 else len(needed)
        ranges = [(int(part[0]), int(part[-1]) + 1) for part in (needed[:cut], needed[cut:]) if len(part)]
        places = sources - ranges[0][0]
        if len(ranges) == 2:
            places = np.where(sources < ranges[1][0], places, places - (ranges[1][0] - ranges[0][1]))
        begins = self.begins[first : last + 1] - self.begins[first]
        return ranges, AxisMap(places, begins, None if self.weights is None else self.weights[own])

    def apply(self, values: np.ndarray) -> np.ndarray:
        """The values on the grid, from those of the file; the axis is the first one."""
        if self.weights is None:
            there = np.array_equal(self.sources, np.arange(values.shape[0]))
            return values if there else values[self.sources]
        column, starts, counts = (-1, *[1] * (values.ndim - 1)), self.begins[:-1], np.diff(self.begins)
        result = self.weights[starts].reshape(column) * values[self.sources[starts]]
        for number in range(1, int(counts.max())):
            rows = np.flatnonzero(counts > number)
            at = starts[rows] + number
            result[rows] += self.weights[at].reshape(column) * values[self.sources[at]]
        return result


def _taken(sources: np.ndarray) -> AxisMap:
    return AxisMap(sources, np.arange(len(sources) + 1))


def axis_map(count: int, positions: np.ndarray | None, target: TargetAxis) -> tuple[AxisMap, str | None]:
    """The way from `count` values of a file to the target's; says what is done, or None when nothing is.

    Without positions the file's cells divide the grid's box evenly. Coarser sources are interpolated
    linearly, finer ones averaged over the target's cells, which keeps the integral. Beyond the outermost
    position the value is held. Raises AxisMismatch when the file does not reach the grid's outermost values.
    """
    sources = np.arange(count)
    if positions is None and count == target.count:
        return _taken(sources), None
    width = (target.upper - target.lower) / count
    line = target.lower + (np.arange(count) + 0.5) * width if positions is None else positions
    if line.shape != (count,):
        raise AxisMismatch(f"the coordinate {target.name} has {line.size} positions for {count} values")
    if count > 1 and line[0] > line[-1]:
        sources, line = sources[::-1], line[::-1]
    if np.any(np.diff(line) <= 0.0) or not np.all(np.isfinite(line)):
        raise AxisMismatch(f"the coordinate {target.name} is neither increasing nor decreasing")
    if count == 1:
        return _taken(np.zeros(target.count, int)), f"constant along {target.name}"
    tolerance = SAME * target.spacing
    # A run's own file has one face more than cells along an axis with walls: the upper wall's.
    if count in (target.count, target.count + 1) and np.allclose(
        line[: target.count], target.positions, rtol=0.0, atol=tolerance
    ):
        return _taken(sources[: target.count]), None
    sources, line = _cover(sources, line, target)
    told = f"along {target.name} ({count} to {target.count})"
    if _is_finer(line, target):
        return _cell_means(sources, line, target), f"averaged {told}"
    return _interpolation(sources, line, target.positions), f"interpolated linearly {told}"


def _is_finer(line: np.ndarray, target: TargetAxis) -> bool:
    """Tell whether the source has the smaller spacing; where the target is stretched, in most of its cells."""
    if target.places is None:
        return (line[-1] - line[0]) / (line.shape[0] - 1) < target.spacing * (1.0 - PERIOD_TOLERANCE)
    within = np.clip(np.searchsorted(line, target.positions), 1, line.shape[0] - 1)
    gaps = line[within] - line[within - 1]
    return bool(np.median(gaps / np.diff(target.ends)) < 1.0 - PERIOD_TOLERANCE)


def _cover(sources: np.ndarray, positions: np.ndarray, target: TargetAxis) -> tuple[np.ndarray, np.ndarray]:
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
        return sources, positions
    period = target.upper - target.lower
    if abs(positions[-1] - positions[0] - period) < PERIOD_TOLERANCE * width:  # the end repeats the beginning
        sources, positions, count = sources[:-1], positions[:-1], count - 1
    elif abs(last - first - period) > PERIOD_TOLERANCE * period and not _wraps(positions, period):
        raise AxisMismatch(f"{extent}, which is periodic")
    wrapped = target.lower + np.mod(positions - target.lower, period)
    order = np.argsort(wrapped, kind="stable")
    sources, positions = sources[order], wrapped[order]
    extra = min(count, int(np.ceil(target.spacing / width)) + 2)
    sources = np.concatenate([sources[-extra:], sources, sources[:extra]])
    return sources, np.concatenate([positions[-extra:] - period, positions, positions[:extra] + period])


def _wraps(positions: np.ndarray, period: float) -> bool:
    """Tell whether cells of different widths leave a gap around the end of the period that is like their own."""
    gaps = np.diff(positions)
    uneven = gaps.max() > gaps.min() * (1.0 + PERIOD_TOLERANCE)
    return bool(uneven and 0.0 < period - (positions[-1] - positions[0]) <= 2.0 * gaps.max())


def _interpolation(sources: np.ndarray, positions: np.ndarray, wanted: np.ndarray) -> AxisMap:
    below = np.clip(np.searchsorted(positions, wanted, side="right") - 1, 0, positions.shape[0] - 2)
    gap = positions[below + 1] - positions[below]
    weight = np.clip((wanted - positions[below]) / gap, 0.0, 1.0)
    pairs = np.stack([sources[below], sources[below + 1]], axis=1).ravel()
    weights = np.stack([1.0 - weight, weight], axis=1).ravel()
    return AxisMap(pairs, np.arange(0, len(pairs) + 1, 2), weights)


def _cell_means(sources: np.ndarray, positions: np.ndarray, target: TargetAxis) -> AxisMap:
    """Means over [position - h/2, position + h/2] of the source taken as linear in each of its cells."""
    count, wanted = positions.shape[0], target.ends
    edges = np.empty(count + 1)
    edges[1:-1] = 0.5 * (positions[1:] + positions[:-1])
    edges[0] = min(2 * positions[0] - edges[1], wanted[0])
    edges[-1] = max(2 * positions[-1] - edges[-2], wanted[-1])
    first = np.clip(np.searchsorted(edges, wanted[:-1], side="right") - 1, 0, count - 1)
    last = np.clip(np.searchsorted(edges, wanted[1:], side="left") - 1, first, count - 1)
    # Every pair of a cell of the grid, `row`, and one of the file's that it overlaps.
    each = last - first + 1
    row = np.repeat(np.arange(target.count), each)
    cell = first[row] + np.arange(len(row)) - (np.cumsum(each) - each)[row]
    lower, upper = np.maximum(wanted[row], edges[cell]), np.minimum(wanted[row + 1], edges[cell + 1])
    share = (upper - lower) / (np.diff(wanted)[row] if target.places else target.spacing)
    # The mean over a part of a cell is its value and the slope times the distance of the part's middle from its own.
    off = 0.5 * (lower + upper) - 0.5 * (edges[cell] + edges[cell + 1])
    sloped = np.flatnonzero((off != 0.0) & (cell > 0) & (cell < count - 1))
    inner = cell[sloped]
    slope = share[sloped] * off[sloped] / (positions[inner + 1] - positions[inner - 1])
    rows = np.concatenate([row, row[sloped], row[sloped]])
    order = np.argsort(rows, kind="stable")
    taken = sources[np.concatenate([cell, inner + 1, inner - 1])][order]
    begins = np.searchsorted(rows[order], np.arange(target.count + 1))
    return AxisMap(taken, begins, np.concatenate([share, slope, -slope])[order])
