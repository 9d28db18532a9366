"""Particles change cells: a cell looks at its neighbours and takes over those that are inside it now."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.boundary import Periodic, center_layout
from simjax.grid import LOWER, UPPER
from simjax.jaxpr.parts import part
from simjax.particles.cells import EMPTY, Cells
from simjax.status import CELL_FULL, ESCAPED, SKIN_PASSED
from simjax.stencil.materialise import held


@part("migration")
def rebin(cells: Cells, position: Array, image: Array, ids: Array, carried: Any):
    """Every particle in the cell in which it is.

    Axis by axis, a cell joins its own particles that stay with those of its two neighbours that come over, in this
    order. There is no difference between a neighbouring cell and one on another device: the result does not depend on
    the decomposition.

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
    wrong = jnp.zeros((), jnp.int32)
    for axis in range(cells.ndim):
        h = cells.domain.grid.spacing[axis]
        move = _cells_moved(position[axis], h)
        far = (ids >= 0) & ~(jnp.abs(position[axis]) <= 1.5 * h)
        bits = jnp.where(jnp.any(far), SKIN_PASSED, 0)
        if not cells.periodic[axis]:
            bits = bits | jnp.where(jnp.any((ids >= 0) & _leaves(cells, axis, move)), ESCAPED, 0)
        position, image, ids, carried, full = _along(cells, axis, move, position, image, ids, carried)
        wrong = wrong | bits.astype(jnp.int32) | jnp.where(full, CELL_FULL, 0).astype(jnp.int32)
    return position, image, ids, carried, _anywhere(cells, wrong)


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


def _leaves(cells: Cells, axis: int, move: Array) -> Array:
    target = cells.index(axis) + move
    return (target < 0) | (target >= cells.domain.grid.shape[axis])


def _along(cells: Cells, axis: int, move: Array, position: Array, image: Array, ids: Array, carried):
    """Particles moved between cells along one axis, and whether a cell of this block was too full."""
    h, count = cells.domain.grid.spacing[axis], cells.domain.grid.shape[axis]
    own = [position, image, ids, move, *jax.tree.leaves(carried)]
    below, above = _from_neighbours(cells, own, axis)
    moves = [below[3], move, above[3]]
    candidates_ids = [below[2], ids, above[2]]
    index = cells.index(axis)
    # What enters through a periodic side has gone round the box once more.
    below[0] = below[0].at[axis].add(-h)
    above[0] = above[0].at[axis].add(h)
    if cells.periodic[axis]:
        below[1] = below[1].at[axis].add((index == 0).astype(jnp.int32))
        above[1] = above[1].at[axis].add(-(index == count - 1).astype(jnp.int32))
    taken = [
        (i >= 0) & (m == wanted) for i, m, wanted in zip(candidates_ids, moves, (1, 0, -1), strict=True)
    ]  # fmt: skip
    if not cells.periodic[axis]:
        taken[0], taken[2] = taken[0] & (index > 0), taken[2] & (index < count - 1)
    order = [1, 0, 2]
    chosen = jnp.concatenate([taken[k] for k in order], axis=0)
    source, filled, total = _compacted(chosen, cells.capacity)
    slot_axis = -cells.ndim - 1
    size = math.prod(cells.domain.block_shape)
    # Every array reads it: formed once.
    where = held(source * size + jnp.arange(size, dtype=jnp.int32).reshape(1, *cells.domain.block_shape))

    def moved(lower, mine, upper, empty=0):
        sides = (lower, mine, upper)
        joined = jnp.concatenate([sides[k] for k in order], axis=slot_axis)
        flat = joined.reshape(*joined.shape[:slot_axis], math.prod(joined.shape[slot_axis:]))  # of nothing, perhaps
        picked = flat.at[..., where].get(mode="promise_in_bounds")
        return jnp.where(filled, picked, jnp.asarray(empty, joined.dtype))

    new = [moved(*sides, EMPTY if k == 2 else 0) for k, sides in enumerate(zip(below, own, above, strict=True))]
    carried = jax.tree.unflatten(jax.tree.structure(carried), new[4:])
    return new[0], new[1], new[2], carried, jnp.any(total > cells.capacity)


def _from_neighbours(cells: Cells, own: list[Array], axis: int) -> tuple[list[Array], list[Array]]:
    """The per-particle arrays of the cell below each cell, and of the one above it, along `axis`.

    Beyond the sides of the box these are those of the opposite side, which the caller leaves out.
    """
    layout = center_layout([(Periodic(), Periodic())] * cells.ndim)
    sides = cells.domain.beside(own, layout, axis, 1)
    where = axis - cells.ndim

    def shifted(u: Array, ghost: Array, side: int) -> Array:
        n = u.shape[where]
        if side == LOWER:
            return jnp.concatenate([ghost, lax.slice_in_dim(u, 0, n - 1, axis=u.ndim + where)], axis=where)
        return jnp.concatenate([lax.slice_in_dim(u, 1, n, axis=u.ndim + where), ghost], axis=where)

    below = [shifted(u, lower, LOWER) for u, (lower, _) in zip(own, sides, strict=True)]
    above = [shifted(u, upper, UPPER) for u, (_, upper) in zip(own, sides, strict=True)]
    return below, above


def _compacted(chosen: Array, capacity: int) -> tuple[Array, Array, Array]:
    """The k-th chosen candidate of each cell for each slot k: its number, whether there is one, and how many."""
    rank = jnp.cumsum(chosen.astype(jnp.int32), axis=0)
    total = rank[-1]
    slot = jnp.arange(capacity, dtype=jnp.int32).reshape(-1, *(1,) * (chosen.ndim - 1))
    candidates, size = chosen.shape[0], total.size
    cell = jnp.arange(size, dtype=jnp.int32).reshape(1, *total.shape)
    # The first candidate whose rank is above a slot's number, by halving: ranks never fall.
    source = jnp.zeros((capacity, *total.shape), jnp.int32)
    step = 1 << (candidates.bit_length() - 1)
    while step:
        last = source + (step - 1)
        at = rank.ravel().at[jnp.minimum(last, candidates - 1) * size + cell].get(mode="promise_in_bounds")
        source = jnp.where((last < candidates) & (at <= slot), source + step, source)
        step //= 2
    filled = slot < total[None]
    return jnp.where(filled, source, np.int32(0)), filled, total
