"""Room that particles need: cells, slots, rows of lists, steps between two arrangements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from simjax.grid import Grid
from simjax.particles.cells import cells_for
from simjax.particles.neighbor_list import GROUP
from simjax.particles.pairs import ROWS
from simjax.schema.config import Config

SPARE_ROWS = 1.3  # of the mean number of partners


@dataclasses.dataclass(frozen=True)
class Room:
    """Sizes on which the shapes of a run of particles depend.

    cells: per axis; capacity: of one; rows: of a list of partners;
    columns: particles of a device; steps: between two arrangements."""

    cells: tuple[int, ...]
    capacity: int
    rows: int
    columns: int
    steps: int


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Where particles can be: corners and whether each axis closes on itself."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    periodic: tuple[bool, ...]

    @property
    def volume(self) -> float:
        return math.prod(b - a for a, b in zip(self.lower, self.upper, strict=True))


def bounds_of(config: Config) -> Bounds:
    """The section `box`."""
    box = config.box
    assert box is not None and box.lower is not None and box.periodic is not None
    return Bounds(box.lower, box.upper, box.periodic)


def room_of_pairs(
    config: Config, bounds: Bounds, position: np.ndarray, blocks: Sequence[int],
    *, reach: float, number_density: float, steps: int,
) -> Room:  # fmt: skip
    """Room for particles at `position` `(ndim, particles)` that have partners up to `reach` away.

    number_density: per volume, where particles are.

    Raises:
        ConfigurationError: the box, or a device's block of it, is thinner than the reach of the particles.
    """
    grid = cells_for(bounds.lower, bounds.upper, reach, bounds.periodic, blocks)
    count, ndim, given = position.shape[1], len(bounds.lower), config.neighbor_list
    ball = {1: 2 * reach, 2: math.pi * reach**2, 3: 4 / 3 * math.pi * reach**3}[ndim]
    rows = min(count, math.ceil(SPARE_ROWS * number_density * ball + 8))
    rows = ROWS * math.ceil(rows / ROWS) if given.max_neighbors is None else given.max_neighbors
    return room_in(config, grid, position, blocks, rows=rows, steps=steps)


def room_in(
    config: Config, grid: Grid, position: np.ndarray, blocks: Sequence[int], *, rows: int, steps: int
) -> Room:  # fmt: skip
    """Room in the cells of `grid` for particles that start at `position`, if they stay about as dense."""
    count, given = position.shape[1], config.neighbor_list
    index = [
        np.floor((x - a) / h).astype(int) % n
        for x, a, h, n in zip(position, grid.lower, grid.spacing, grid.shape, strict=True)
    ]
    inside = np.bincount(np.ravel_multi_index(tuple(index), grid.shape), minlength=grid.cells)
    mean = count / grid.cells
    fullest = max(float(inside.max()), mean + 3 * math.sqrt(mean))
    capacity = fullest + 1 if given.cell_capacity is None else max(given.cell_capacity, int(inside.max()))
    columns = _columns(inside.reshape(grid.shape), blocks, count)
    return Room(tuple(grid.shape), multiple(capacity), rows, columns, steps)


def _columns(inside: np.ndarray, blocks: Sequence[int], count: int) -> int:
    """Particles that a device has at most, of `count` with `inside` in each cell: a tenth and some chance more."""
    cut = [size for n, k in zip(inside.shape, blocks, strict=True) for size in (k, n // k)]
    of_blocks = inside.reshape(cut).sum(axis=tuple(range(1, len(cut), 2)))
    most = float(of_blocks.max())
    return min(count, math.ceil(1.1 * most + 3 * math.sqrt(most)))


def multiple(capacity: float) -> int:
    """The least number of slots not below `capacity` that the loops over cells can take."""
    return GROUP * math.ceil(capacity / GROUP)


def steps_in(config: Config, way: float, fastest: float) -> int:
    """Steps in which what is as fast as `fastest` goes `way`, of those that divide a frame, unless they are given."""
    time = config.time
    assert time.dt is not None
    if config.neighbor_list.rebuild_every is not None:
        return config.neighbor_list.rebuild_every
    # Even particles at rest are pushed.
    frame = max(1, math.ceil(min(time.output_every, max(time.end, time.dt)) / time.dt * (1 - 1e-12)))
    allowed = min(frame, way / (max(fastest, 1e-3) * time.dt))
    return divisor(frame, allowed)


def divisor(whole: int, most: float) -> int:
    """The largest divisor of `whole` up to `most`, unless it is less than half of that; at least 1."""
    most = max(1, min(whole, math.floor(most)))
    found = max(d for d in range(1, most + 1) if whole % d == 0)
    return found if 2 * found > most else most
