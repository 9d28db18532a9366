"""Particles stored by cell: dense arrays with a fixed number of slots in each cell of a grid.

Every per-particle array is `(..., capacity, *cells)`: the spatial axes of the grid of cells are last, so a block of
cells on a device is cut, padded and moved as any field. An empty slot has the id `EMPTY`.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.arguments import require_kind, shown
from simjax.core.boundary import FieldLayout, Ghosts, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, Grid
from simjax.notebook import all_in_a_line

EMPTY = -1
GROUP = 8
"""Slots of a neighbouring cell that one turn of a loop over pairs looks at; a capacity is a multiple of it."""


def require_cells(name: str, cells: Any) -> None:
    """Raises ConfigurationError for what is no `Cells`, given to the class `name`."""
    expected = "cells of particles; write Cells(domain, capacity=16, periodic=(True, True))"
    require_kind(f"{name}: cells", cells, Cells, expected)


class Cells(eqx.Module):
    """A grid of cells for particles that interact over at most `reach`, and how many particles a cell can hold.

    domain: the grid of cells and its decomposition; a cell is at least `reach` long along every axis, so that partners
    of a particle lie in its own cell and in those next to it. capacity: slots of a cell, a multiple of 8. periodic:
    whether each axis closes on itself; along the others no particles lie beyond the sides.

    Raises:
        ConfigurationError: the capacity is no multiple of 8, or `periodic` has not one entry per axis.

    Examples:
        >>> cells = sj.Cells(sj.Domain(sj.Grid((4, 4), upper=(8.0, 8.0))), capacity=16, periodic=(True, True))
        >>> cells.shape  # of an array with a number for each particle: slots, then cells
        (16, 4, 4)
    """

    domain: Domain
    capacity: int = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_kind("Cells.domain", self.domain, Domain, "a Domain; write Domain(Grid((4, 4)))")
        if isinstance(self.capacity, bool) or not isinstance(self.capacity, int | np.integer) or self.capacity < 1:
            raise ConfigurationError(f"Cells.capacity={self.capacity!r}: expected a positive multiple of {GROUP}.")
        if self.capacity % GROUP:
            raise ConfigurationError(
                f"Cells.capacity={self.capacity}: expected a multiple of {GROUP}, the slots that a loop over pairs "
                f"looks at together; write {GROUP * math.ceil(self.capacity / GROUP)}."
            )
        if not isinstance(self.periodic, tuple) or len(self.periodic) != self.ndim:
            raise ConfigurationError(
                f"Cells.periodic={shown(self.periodic)}: expected {self.ndim} value(s), one per axis of cells."
            )

    @property
    def ndim(self) -> int:
        return self.domain.grid.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """(capacity, *cells) of one device's block: the last axes of every per-particle array."""
        return (self.capacity, *self.domain.block_shape)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """`shape` with the ghost cells of width one."""
        return (self.capacity, *(n + 2 for n in self.domain.block_shape))

    @property
    def slots(self) -> int:
        """Slots of one device's block."""
        return math.prod(self.shape)

    def layout(self, beyond: float = 0) -> FieldLayout:
        """Layout of a per-particle array that holds `beyond` where no particles can be, past the sides."""
        sides = [(Periodic(), Periodic()) if p else (Ghosts(beyond), Ghosts(beyond)) for p in self.periodic]
        return center_layout(sides)

    def pad(self, tree, beyond: float = 0):
        """Every per-particle array of `tree` with the cells around the block: `(..., *padded_shape)`."""
        return self.domain.pad(tree, self.layout(beyond), 1)

    def offsets_within(self, dtype, ghosts: int = 0) -> tuple[Array, ...]:
        """Centres of the block's cells from the centre of its first, one `(1, ...)` array per axis to broadcast.

        Formed within the block and not from the box's origin: differences of near positions keep their digits.
        """
        result = []
        for axis, (n, h) in enumerate(zip(self.domain.block_shape, self.domain.grid.spacing, strict=True)):
            index = jnp.arange(-ghosts, n + ghosts, dtype=jnp.int32).astype(dtype)
            shape = tuple(n + 2 * ghosts if k == axis else 1 for k in range(self.ndim))
            result.append((index * h).reshape(1, *shape))
        return tuple(result)

    def centres(self, dtype) -> tuple[Array, ...]:
        """Coordinates of the centres of this block's cells, one `(1, ...)` array per axis to broadcast."""
        return tuple(x[None] for x in self.domain.coordinates((CENTER,) * self.ndim, dtype))

    def index(self, axis: int) -> Array:
        """Global index along `axis` of every cell of this block, int32, to broadcast with per-particle arrays."""
        n = self.domain.block_shape[axis]
        shape = tuple(n if k == axis + 1 else 1 for k in range(self.ndim + 1))
        return self.domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32).reshape(shape)

    def walls(self, axis: int, dtype) -> tuple[Array, Array]:
        """Ends of the box along `axis`, from the centre of each cell of this block: two arrays to broadcast."""
        grid, place = self.domain.grid, self.index(axis).astype(dtype)
        return -(place + 0.5) * grid.spacing[axis], (grid.shape[axis] - 0.5 - place) * grid.spacing[axis]

    def absolute(self, position: Array) -> Array:
        """Coordinates in the box `(ndim, *shape)` of particles at `position` in their cells."""
        return jnp.stack([x + c for x, c in zip(position, self.centres(position.dtype), strict=True)])


def cells_for(
    lower: Sequence[float],
    upper: Sequence[float],
    reach: float,
    periodic: Sequence[bool],
    blocks: Sequence[int] = (),
    most: int = 2**22,
) -> Grid:
    """The finest grid over a box whose cells are at least `reach` long, cut evenly into `blocks` along each axis.

    Raises:
        ConfigurationError: the box, or a device's block, is thinner than `reach`.
    """
    blocks = tuple(blocks) or (1,) * len(lower)
    shape = []
    for axis, (a, b, count) in enumerate(zip(lower, upper, blocks, strict=True)):
        # Rounding must not cost a cell where the box is a whole multiple of the reach.
        cells = math.floor((b - a) / reach * (1 + 1e-12))
        if cells < 1 and periodic[axis]:
            raise ConfigurationError(
                f"The box is {b - a:g} long along {AXES[axis]}, less than the {reach:g} over which particles interact "
                f"(cutoff and skin); use a longer box or a shorter cutoff."
            )
        cells = max(cells, 1)
        if cells < count:
            raise ConfigurationError(
                f"mesh.{AXES[axis]}={count} cuts the box into blocks of {(b - a) / count:g} along {AXES[axis]}, less "
                f"than the {reach:g} over which particles interact; write mesh.{AXES[axis]}={cells} or less."
            )
        shape.append(cells - cells % count)
    while math.prod(shape) > most:  # a dilute system: coarser cells hold the same particles
        shape = [max(count, n // 2 - (n // 2) % count) for n, count in zip(shape, blocks, strict=True)]
    return Grid(shape, lower, upper)


def pack(cells: Cells, position: Array, attributes: Any) -> tuple[Array, Array, Any, Array]:
    """Particles given one after the other, sorted into the cells of this block.

    Args:
        cells: where they go.
        position: `(ndim, particles)` coordinates in the box, those of all devices' particles. Along periodic axes they
            may lie outside.
        attributes: tree of arrays `(..., particles)`.

    Returns:
        Positions within their cells `(ndim, *shape)`, ids `shape` (numbers in the order given, int32), the attributes
        `(..., *shape)`, and the number of particles (of all devices) that found no place: a full cell, or a position
        outside the box or not finite. Which slot a particle gets depends on its cell's other particles alone.
    """
    grid, domain = cells.domain.grid, cells.domain
    count = position.shape[-1]
    inside = jnp.all(jnp.isfinite(position), axis=0)
    flat = jnp.zeros((count,), jnp.int32)
    own = inside
    within = []
    for axis in range(cells.ndim):
        h, n, block = grid.spacing[axis], grid.shape[axis], domain.block_shape[axis]
        u = (position[axis] - grid.lower[axis]) / h
        index = jnp.floor(jnp.where(inside, u, 0)).astype(jnp.int32)
        within.append((u - index.astype(u.dtype) - 0.5) * h)
        if cells.periodic[axis]:
            index = jnp.mod(index, n)
        local = index - domain.first_index(axis)
        own = own & (local >= 0) & (local < block)
        flat = flat * block + jnp.clip(local, 0, block - 1)
    total = math.prod(domain.block_shape)
    key = jnp.where(own, flat, total)
    order = jnp.argsort(key, stable=True).astype(jnp.int32)
    sorted_key = key[order]
    first = jnp.searchsorted(sorted_key, jnp.arange(total + 1, dtype=jnp.int32)).astype(jnp.int32)
    # Slots look for their particle: nothing is scattered, whose derivative would be wrong where particles of other
    # blocks are dropped.
    number = first[:-1][None] + jnp.arange(cells.capacity, dtype=jnp.int32)[:, None]
    filled = number < first[1:][None]
    source = order[jnp.where(filled, number, 0)]

    def spread(values: Array, empty) -> Array:
        chosen = jnp.where(filled, values[..., source], jnp.asarray(empty, values.dtype))
        return chosen.reshape(*values.shape[:-1], *cells.shape)

    ids = spread(jnp.arange(count, dtype=jnp.int32), EMPTY)
    found = domain.total(jnp.sum(filled, dtype=jnp.int32))
    positions = spread(jnp.stack(within), 0)
    return positions, ids, jax.tree.map(lambda values: spread(values, 0), attributes), count - found


def unpack(cells: Cells, ids: Array, values: Array, count: int, absent=0) -> Array:
    """Per-particle values `(..., *shape)` of all blocks in the order of ids: `(..., count)`, on every device.

    Ids that are nowhere get `absent`.
    """
    lead = values.shape[: values.ndim - len(cells.shape)]
    flat = ids.reshape(-1)
    where = jnp.where(flat >= 0, flat, count)
    present = jnp.zeros((count,), jnp.int32).at[where].add(1, mode="drop")
    target = jnp.zeros((*lead, count), values.dtype)
    target = target.at[..., where].add(values.reshape(*lead, -1), mode="drop")
    return jnp.where(cells.domain.total(present) > 0, cells.domain.total(target), jnp.asarray(absent, values.dtype))


def at_slots(ids: Array, values: Array) -> Array:
    """Values `(..., particles)` by number at the slot of each particle, `(..., *shape)`; zero at empty slots."""
    return jnp.where(ids >= 0, values[..., jnp.where(ids >= 0, ids, 0)], 0)


def counted(cells: Cells, ids: Array) -> Array:
    """Number of particles on all devices, int32."""
    return cells.domain.total(jnp.sum(ids >= 0, dtype=jnp.int32))


def enlarged(values: np.ndarray, ndim: int, capacity: int, empty) -> np.ndarray:
    """A per-particle array on the host with more slots in every cell, the new ones holding `empty`."""
    axis = values.ndim - ndim - 1
    more = [(0, capacity - values.shape[axis] if k == axis else 0) for k in range(values.ndim)]
    return np.pad(values, more, constant_values=empty)
