"""Capacities that particles need: cells, slots in a cell, neighbours in a list, particles on a device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from simjax.grid import Grid
from simjax.particles.cells import cells_for
from simjax.particles.neighbor_list import GROUP
from simjax.particles.pair_loops import ROWS
from simjax.schema.config import Config

SPARE = 1.3  # of the mean number of neighbours


@dataclasses.dataclass(frozen=True)
class Capacities:
    """Sizes on which the shapes of a run of particles depend.

    cells: number along each axis. cell_capacity: particles that a cell holds. max_neighbors: those that a list holds.
    max_particles: those that a device holds in lists. rebuild_every: steps between two lists.
    """

    cells: tuple[int, ...]
    cell_capacity: int
    max_neighbors: int
    max_particles: int
    rebuild_every: int


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Box in which particles can be: corners and whether each axis closes on itself."""

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


def capacities_of_pairs(
    config: Config,
    bounds: Bounds,
    position: np.ndarray,
    blocks: Sequence[int],
    *,
    reach: float,
    number_density: float,
    steps: int,
) -> Capacities:
    """Capacities for particles at `position` `(ndim, particles)` that have neighbours up to `reach` away.

    number_density: per volume, where particles are.

    Raises:
        ConfigurationError: the box, or a device's block of it, is thinner than the reach of the particles.
    """
    grid = cells_for(bounds.lower, bounds.upper, reach, bounds.periodic, blocks)
    count, ndim, given = position.shape[1], len(bounds.lower), config.neighbor_list
    ball = {1: 2 * reach, 2: math.pi * reach**2, 3: 4 / 3 * math.pi * reach**3}[ndim]
    max_neighbors = min(count, math.ceil(SPARE * number_density * ball + 8))
    max_neighbors = ROWS * math.ceil(max_neighbors / ROWS) if given.max_neighbors is None else given.max_neighbors
    return capacities_in(config, grid, position, blocks, max_neighbors=max_neighbors, steps=steps)


def capacities_in(
    config: Config, grid: Grid, position: np.ndarray, blocks: Sequence[int], *, max_neighbors: int, steps: int
) -> Capacities:
    """Capacities of the cells of `grid` for particles that start at `position`, if they stay about as dense."""
    count, given = position.shape[1], config.neighbor_list
    index = [
        np.floor((x - a) / h).astype(int) % n
        for x, a, h, n in zip(position, grid.lower, grid.spacing, grid.shape, strict=True)
    ]
    inside = np.bincount(np.ravel_multi_index(tuple(index), grid.shape), minlength=grid.cells)
    mean = count / grid.cells
    fullest = max(float(inside.max()), mean + 3 * math.sqrt(mean))
    capacity = fullest + 1 if given.cell_capacity is None else max(given.cell_capacity, int(inside.max()))
    max_particles = _most_on_a_device(inside.reshape(grid.shape), blocks, count)
    return Capacities(tuple(grid.shape), multiple(capacity), max_neighbors, max_particles, steps)


def _most_on_a_device(inside: np.ndarray, blocks: Sequence[int], count: int) -> int:
    """Particles that a device has at most, of `count` with `inside` in each cell: a tenth and some chance more."""
    cut = [size for n, k in zip(inside.shape, blocks, strict=True) for size in (k, n // k)]
    of_blocks = inside.reshape(cut).sum(axis=tuple(range(1, len(cut), 2)))
    most = float(of_blocks.max())
    return min(count, math.ceil(1.1 * most + 3 * math.sqrt(most)))


def multiple(capacity: float) -> int:
    """The least number of slots not below `capacity` that the loops over cells can take."""
    return GROUP * math.ceil(capacity / GROUP)


def steps_in(config: Config, distance: float, fastest: float) -> int:
    """Steps in which a particle of the speed `fastest` moves by `distance`: those that divide a frame, or as given."""
    time = config.time
    assert time.dt is not None
    if config.neighbor_list.rebuild_every is not None:
        return config.neighbor_list.rebuild_every
    # Even particles at rest are pushed.
    frame = max(1, math.ceil(min(time.output_every, max(time.end, time.dt)) / time.dt * (1 - 1e-12)))
    allowed = min(frame, distance / (max(fastest, 1e-3) * time.dt))
    return divisor(frame, allowed)


def divisor(whole: int, most: float) -> int:
    """The largest divisor of `whole` up to `most`, unless it is less than half of that; at least 1."""
    most = max(1, min(whole, math.floor(most)))
    found = max(d for d in range(1, most + 1) if whole % d == 0)
    return found if 2 * found > most else most
