"""The scene of a run: walls, bodies and media drawn with its fields, and the exact solution beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

# Jumps between neighbours of more than this share of a medium's range are an edge; a medium with more edges than
# this share of its cells is rough all over, and its outlines would hide the field.
EDGE, MOST_EDGES = 0.2, 0.06
FEW_LEVELS = 8


@dataclass(frozen=True)
class Scene:
    """Solid sides, bodies, media, sources and receivers of a run, its exact solution, and the size of its particles.

    box: lower and upper end of every axis. walls: `(axis, "lower" or "upper")` of solid sides. bodies: the distance
    from their surface at a time, negative inside, indexed [x, y, z]; moving: whether they move. media: values of each
    property at cell centres, indexed [x, y, z]. marks: places `(count, axes)` by what stands there, such as "source".
    exact: values of a variable at a time, indexed [x, y, z]. diameters: `(species,)`, relative to each other.
    periodic: of every axis. centers: of cells along stretched axes, by their numbers. followed: the distance from a
    body that a run moves, by the diagnostics that say where it is. Lengths and times are those of the file.
    """

    box: tuple[tuple[float, float], ...] = ()
    walls: frozenset[tuple[str, str]] = frozenset()
    bodies: Callable[[float], np.ndarray] | None = None
    moving: bool = False
    media: Mapping[str, np.ndarray] = field(default_factory=dict)
    marks: Mapping[str, np.ndarray] = field(default_factory=dict)
    exact: Mapping[str, Callable[[float], np.ndarray]] = field(default_factory=dict)
    diameters: np.ndarray | None = None
    periodic: tuple[bool, ...] = ()
    centers: Mapping[int, np.ndarray] = field(default_factory=dict)
    followed: Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = None

    def following(self, dataset: xr.Dataset) -> Scene:
        """The scene with a body where the diagnostics of a run have it, of an ensemble those of its first member."""
        followed = self.followed
        if followed is None:
            return self
        # xarray is loaded where something is drawn.
        from simjax.report.scalars import file_times

        times = file_times(dataset)
        over_time = ({"time"}, {"member", "time"})
        numbers = {str(name): one.values for name, one in dataset.data_vars.items() if {*one.dims} in over_time}
        numbers = {name: values.reshape(-1, times.size)[0] for name, values in numbers.items()}

        def bodies(time: float) -> np.ndarray:
            frame = int(np.argmin(np.abs(times - time)))
            return followed({name: values[frame] for name, values in numbers.items()})

        return dataclasses.replace(self, bodies=bodies, moving=True)

    def centres(self, axis: int, count: int) -> np.ndarray:
        """Places of so many cells along an axis."""
        if axis in self.centers and self.centers[axis].size == count:
            return self.centers[axis]
        lower, upper = self.box[axis]
        return lower + (upper - lower) * (np.arange(count) + 0.5) / count


NOWHERE = Scene()
"""The scene of what is drawn without its run."""


def outline_levels(values: np.ndarray) -> list[float]:
    """Values whose contours are the edges of a medium; none where it is uniform, smooth, or rough all over."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return []
    steps = [np.abs(np.diff(values, axis=axis)).ravel() for axis in range(values.ndim)]
    edges = np.concatenate(steps) > EDGE * (high - low)
    kinds = np.unique(finite)
    if kinds.size <= FEW_LEVELS:
        return [0.5 * float(a + b) for a, b in zip(kinds[:-1], kinds[1:], strict=True)]
    return [0.5 * (low + high)] if 0 < edges.mean() < MOST_EDGES else []
