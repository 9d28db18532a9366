"""Particles change cells: a cell looks at its neighbours and takes over those that are inside it now."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.platform import one_pass
from simjax.particles.cells import EMPTY, GROUP, Cells
from simjax.particles.neighbor_slots import cell_strides, own_slot
from simjax.status import CELL_FULL, ESCAPED, SKIN_PASSED
from simjax.stencil.materialise import held

BITS = 2
"""Bits of a number for a move along one axis, which is one of three."""


@part("migration")
def rebin(cells: Cells, position: Array, image: Array, ids: Array, carried: Any):
    """Move each particle to the slot list of the cell that contains its position.

    Axis by axis, a cell joins its own particles that stay with those of its two neighbours that come over, in this
    order; what particles carry follows once it is known where each was. There is no difference between a
    neighbouring cell and one on another device: the result does not depend on the decomposition.

    Args:
        cells: the grid of cells.
        position: `(ndim, *cells.shape)` from the centre of each particle's cell so far, at most 1.5 cells.
        image: `(ndim, *cells.shape)` int32, how often each particle has gone round periodic axes.
        ids: `cells.shape` int32.
        carried: tree of further per-particle arrays `(..., *cells.shape)`.

    Returns:
        position, image, ids and carried of the particles in their new cells, and bits of `status`, int32, for what
        went wrong on any device. Particles without a slot, or beyond the sides of the box, are lost; the caller must
        not go on.
    """
    # One value for every reader: a sum that is formed anew in each may end on the other side of a face.
    position = held(position)
    wrong = _lost(cells, position, ids, [1.5 * h for h in cells.domain.grid.spacing])
    moves = [_cells_moved(x, h) for x, h in zip(position, cells.domain.grid.spacing, strict=True)]
    padded = cells.pad((_origins(cells, ids, moves), position, image, ids, carried))
    origin, full = _arrived(cells, padded[0])
    wrong = wrong | jnp.where(full, CELL_FULL, 0).astype(jnp.int32)

    filled, moves = origin > 0, [_move(cells, origin, axis) for axis in range(cells.ndim)]
    slot = (origin - 1) >> BITS * cells.ndim
    cell = own_slot(cells)[:1] - sum(m * int(stride) for m, stride in zip(moves, cell_strides(cells), strict=True))
    # Every array reads it: formed once.
    where = held(jnp.where(filled, slot * math.prod(cells.padded_shape[1:]) + cell, 0))

    def moved(u: Array, empty: int = 0) -> Array:
        lead = u.shape[: u.ndim - len(cells.padded_shape)]
        # An array may be of nothing.
        picked = u.reshape(*lead, math.prod(cells.padded_shape)).at[..., where].get(mode="promise_in_bounds")
        return jnp.where(filled, picked, jnp.asarray(empty, u.dtype))

    position, image = moved(padded[1]), moved(padded[2])
    for axis, move in enumerate(moves):
        position = position.at[axis].add(-cells.domain.grid.spacing[axis] * move.astype(position.dtype))
        if cells.periodic[axis]:  # what enters through a side has gone round the box once more
            index, last = cells.index(axis), cells.domain.grid.shape[axis] - 1
            entered = ((move > 0) & (index == 0)).astype(jnp.int32) - ((move < 0) & (index == last)).astype(jnp.int32)
            image = image.at[axis].add(entered)
    return position, image, moved(padded[3], EMPTY), jax.tree.map(moved, padded[4]), _anywhere(cells, wrong)


def strayed(cells: Cells, position: Array, ids: Array, cutoff: float) -> Array:
    """Bits of `status`, whether on any device a particle is so far beyond its cell that a partner nearer than `cutoff`
    may be beyond the cells next to it (`SKIN_PASSED`), or beyond the sides of the box (`ESCAPED`).

    position: `(ndim, *cells.shape)` from the centre of each particle's cell. ids: `cells.shape` int32.
    """
    return _anywhere(cells, _lost(cells, position, ids, [h - cutoff / 2 for h in cells.domain.grid.spacing]))


def _lost(cells: Cells, position: Array, ids: Array, farthest: list[float]) -> Array:
    """Bits of `status` for particles of this block that are farther than `farthest` along each axis from the centres of
    their cells, or beyond the sides of the box.
    """
    wrong = jnp.zeros((), jnp.int32)
    for axis, (x, h) in enumerate(zip(position, cells.domain.grid.spacing, strict=True)):
        # Written so that a position that is not a number counts as far.
        far = (ids >= 0) & ~(jnp.abs(x) <= farthest[axis])
        wrong = wrong | jnp.where(jnp.any(far), SKIN_PASSED, 0).astype(jnp.int32)
        if not cells.periodic[axis]:
            target = cells.index(axis) + _cells_moved(x, h)
            outside = (ids >= 0) & ((target < 0) | (target >= cells.domain.grid.shape[axis]))
            wrong = wrong | jnp.where(jnp.any(outside), ESCAPED, 0).astype(jnp.int32)
    return wrong


def _anywhere(cells: Cells, bits: Array) -> Array:
    """The bits set on any device."""
    return sum((cells.domain.max(bits & bit) for bit in (CELL_FULL, SKIN_PASSED, ESCAPED)), jnp.zeros((), jnp.int32))


def _cells_moved(position: Array, h: float) -> Array:
    """Count the cells by which a particle left its own: -1, 0 or 1, and 0 where its position is not a number.

    The cell that it leaves and the one that it enters must decide alike. Comparisons do: they are exact, where the
    quotient position / h may be rounded in another way in every loop that the compiler makes of it, and a particle
    on the face between two cells was lost.
    """
    half = jnp.asarray(h / 2, position.dtype)
    return (position >= half).astype(jnp.int32) - (position < -half).astype(jnp.int32)


def _origins(cells: Cells, ids: Array, moves: list[Array]) -> Array:
    """One number that tells a particle's slot and by how many cells it moves along each axis; 0: there is none."""
    number = jnp.arange(cells.capacity, dtype=jnp.int32).reshape(-1, *(1,) * cells.ndim)
    for move in moves:
        number = number << BITS | move + 1
    return jnp.where(ids >= 0, number + 1, 0)


def _move(cells: Cells, origin: Array, axis: int) -> Array:
    """By how many cells the particles with these `_origins` move along an axis; 0 where there is none."""
    return jnp.where(origin > 0, ((origin - 1) >> BITS * (cells.ndim - 1 - axis) & 2**BITS - 1) - 1, 0)


def _arrived(cells: Cells, origin: Array) -> tuple[Array, Array]:
    """The `_origins` of the particles of this block's cells after all have moved, from those in the padded block; and
    whether a cell was too full.
    """
    full = jnp.zeros((), bool)
    for axis in range(cells.ndim):
        n = cells.domain.block_shape[axis]
        sides = [lax.slice_in_dim(origin, k, k + n, axis=axis + 1) for k in (1, 0, 2)]
        candidates = jnp.concatenate(
            [jnp.where(_move(cells, u, axis) == wanted, u, 0) for u, wanted in zip(sides, (0, 1, -1), strict=True)]
        )
        count, rank = _ranked(candidates > 0)
        full = full | jnp.any(count > cells.capacity)
        size, shape = count.size, (cells.capacity, *count.shape)
        cell = jnp.arange(size, dtype=jnp.int32).reshape(1, *count.shape)
        slot = jnp.where(candidates > 0, rank * size + cell, cells.capacity * size)
        # Without derivative, numbers may be scattered.
        origin = jnp.zeros(math.prod(shape), jnp.int32).at[slot].set(candidates, mode="drop").reshape(shape)
    return origin, full


def _ranked(chosen: Array) -> tuple[Array, Array]:
    """Count those chosen in each cell, and those before each candidate; candidates stand along the first axis."""
    if one_pass():
        chosen = chosen.astype(jnp.int32)
        through = jnp.cumsum(chosen, axis=0)
        return through[-1], through - chosen
    groups = chosen.astype(jnp.int32).reshape(-1, GROUP, *chosen.shape[1:])

    # Some at once, as a step of a loop takes its time.
    def next_group(before, group):
        ranks = []
        for one in group:
            ranks.append(before)
            before = before + one
        return before, jnp.stack(ranks)

    count, rank = lax.scan(next_group, jnp.zeros_like(groups[0, 0]), groups)
    return count, rank.reshape(chosen.shape)
