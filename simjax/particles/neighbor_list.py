"""Neighbours of particles: lists of slots, and the loop over neighbouring cells that needs no list."""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.jaxpr.parts import part
from simjax.particles.cells import GROUP, Cells
from simjax.status import BLOCK_FULL, LIST_FULL, OK

WORD = 32


class Neighbours(eqx.Module):
    """The partners of every particle of a block within some distance.

    slot: `(length, particles)` int32, positions in the flattened padded block; unused entries hold the particle's own.
    owner: `(particles,)` int32, which slot of the flattened block each column is about. place: `cells.shape` int32, the
    column of each slot; of an empty one, `particles`. Columns beyond the last particle are about slot 0, without
    partners.

    Partners come in one order, by cell and slot, so that a list made anew of the same particles gives the same sums.
    """

    slot: Array
    owner: Array
    place: Array


def of_every_slot(cells: Cells, slot: Array) -> Neighbours:
    """A list with a column for every slot, from positions in the flattened padded block `(length, *cells.shape)`."""
    column = jnp.arange(cells.slots, dtype=jnp.int32)
    return Neighbours(slot.reshape(slot.shape[0], cells.slots), column, column.reshape(cells.shape))


def own_slot(cells: Cells) -> Array:
    """Position of every slot of the block in the flattened padded block, `cells.shape` int32."""
    flat = jnp.zeros((1,) * (cells.ndim + 1), jnp.int32)
    for axis, n in enumerate(cells.shape):
        ghost = 0 if axis == 0 else 1
        index = jnp.arange(n, dtype=jnp.int32) + ghost
        flat = flat * (n + 2 * ghost) + index.reshape(tuple(n if k == axis else 1 for k in range(cells.ndim + 1)))
    return flat


def displacements(ndim: int) -> np.ndarray:
    """The neighbouring cells of a cell and itself, `(3**ndim, ndim)` int32 of -1, 0 and 1."""
    return np.array(list(itertools.product((-1, 0, 1), repeat=ndim)), np.int32)


def turns(cells: Cells) -> int:
    """Groups of slots in all neighbouring cells."""
    return 3**cells.ndim * (cells.capacity // GROUP)


def nearby(cells: Cells, padded: Array, turn: Array) -> Array:
    """Padded values `(..., *padded_shape)` in one group of slots of one neighbouring cell: `(..., GROUP, *cells)`."""
    lead = padded.shape[: padded.ndim - cells.ndim - 1]
    return lax.dynamic_slice(padded, _start(cells, padded, turn), (*lead, GROUP, *cells.domain.block_shape))


def added_nearby(cells: Cells, padded: Array, group: Array, turn: Array) -> Array:
    """`padded` with a `group` added where `nearby` reads it."""
    return lax.dynamic_update_slice(padded, nearby(cells, padded, turn) + group, _start(cells, padded, turn))


def _start(cells: Cells, padded: Array, turn: Array) -> list[Array]:
    """First position of a group in a padded array."""
    per_cell = cells.capacity // GROUP
    cell = turn // per_cell
    start = [jnp.asarray(0, turn.dtype)] * (padded.ndim - cells.ndim - 1) + [(turn % per_cell) * GROUP]
    return start + [cell // 3 ** (cells.ndim - 1 - axis) % 3 for axis in range(cells.ndim)]


def placed(cells: Cells, position: Array, ids: Array) -> tuple[Array, Array]:
    """Coordinates in the block, and occupied slots, both padded: `(ndim, *padded_shape)`, `padded_shape`."""
    position, ids = cells.pad((position, ids + 1))
    centres = cells.offsets_within(position.dtype, ghosts=1)
    return jnp.stack([x + c for x, c in zip(position, centres, strict=True)]), ids > 0


@part("neighbor list")
def neighbours_within(
    cells: Cells, position: Array, ids: Array, distance: float, max_neighbors: int, max_particles: int = 0
) -> tuple[Neighbours, Array]:
    """All pairs of particles nearer than `distance`, at most the length of a cell.

    Args:
        cells: the grid of cells.
        position: `(ndim, *cells.shape)`, each within its own cell.
        ids: `cells.shape` int32.
        distance: of the pairs to list.
        max_neighbors: the most neighbours that a particle may have.
        max_particles: the most particles that a block may have: work and memory of lists; 0: as many as it has slots.

    Returns:
        The list, and bits of `status` for what did not fit into it on any device.
    """
    max_particles = max_particles or cells.slots
    coordinates, occupied = placed(cells, position, ids)
    found = _within(cells, coordinates, occupied, distance)
    filled = interior(cells, occupied)
    most = jnp.max(jnp.sum(lax.population_count(found), axis=0, dtype=jnp.int32))
    count = jnp.sum(filled, dtype=jnp.int32)
    fault = jnp.where(cells.domain.max(most) > max_neighbors, LIST_FULL, OK).astype(jnp.int32)
    fault |= jnp.where(cells.domain.max(count) > max_particles, BLOCK_FULL, OK).astype(jnp.int32)
    owner, place = _columns(filled, max_particles)
    used = (jnp.arange(max_particles, dtype=jnp.int32) < count)[None]
    bits = jnp.where(used, found.reshape(-1, cells.slots)[:, owner], np.uint32(0))
    return Neighbours(_listed(cells, bits, owner, max_neighbors), owner, place), fault


def _columns(filled: Array, particles: int) -> tuple[Array, Array]:
    """The filled slots one after the other, `(particles,)` with 0 for the rest, and where each slot stands there."""
    flat = filled.ravel()
    rank = jnp.cumsum(flat.astype(jnp.int32)) - 1
    place = jnp.where(flat & (rank < particles), rank, particles)
    slots = jnp.arange(flat.size, dtype=jnp.int32)
    owner = jnp.zeros((particles,), jnp.int32).at[place].set(slots, mode="drop")
    return owner, place.reshape(filled.shape)


def _within(cells: Cells, coordinates: Array, occupied: Array, distance: float) -> Array:
    """For each particle, a bit for each slot of the cells around, set where a partner is: `(words, *cells.shape)`."""
    here, filled = interior(cells, coordinates), interior(cells, occupied)
    # A position that is not finite has no partners; its loss is noticed where particles move between cells.
    far = jnp.where(occupied, coordinates, jnp.inf)
    limit = jnp.asarray(distance, here.dtype) ** 2

    def look(_, turn):
        there = nearby(cells, far, turn)
        bits = jnp.zeros(cells.shape, jnp.uint8)
        for k in range(GROUP):
            square = sum((x - y[k][None]) ** 2 for x, y in zip(here, there, strict=True))
            bits = bits | ((square < limit).astype(jnp.uint8) << np.uint8(k))
        return None, bits

    groups = lax.scan(look, None, jnp.arange(turns(cells), dtype=jnp.int32))[1]
    per_word = WORD // GROUP
    missing = -turns(cells) % per_word
    groups = jnp.pad(groups, [(0, missing)] + [(0, 0)] * len(cells.shape)).astype(jnp.uint32)
    groups = groups.reshape(-1, per_word, *cells.shape)
    words = sum((groups[:, k] << np.uint32(GROUP * k) for k in range(1, per_word)), groups[:, 0])
    # No particle is its own partner.
    itself = 3**cells.ndim // 2 * cells.capacity + jnp.arange(cells.capacity, dtype=jnp.int32)
    number = jnp.arange(words.shape[0], dtype=jnp.int32)
    lone = (itself[None] // WORD == number[:, None]).astype(jnp.uint32) << (itself[None] % WORD).astype(jnp.uint32)
    words = words & ~lone.reshape(*lone.shape, *(1,) * cells.ndim)
    return jnp.where(filled[None], words, np.uint32(0))


def _listed(cells: Cells, found: Array, owner: Array, length: int) -> Array:
    """The slots that the bits `(words, particles)` stand for, in their order: `(length, particles)`."""
    words, count = found.shape

    # The next word with a partner, from each word on.
    def before(later, word):
        number, bits = word
        number = jnp.where(bits != 0, number, later)
        return number, number

    none = jnp.full_like(found[0], words, jnp.int32)
    numbers = jnp.arange(words, dtype=jnp.int32)
    following = lax.scan(before, none, (numbers, found), reverse=True)[1]
    following = jnp.concatenate([following.ravel(), none, none])
    found = jnp.concatenate([found.ravel(), jnp.zeros_like(found[0])])
    own = own_slot(cells).ravel()[owner]
    base = own % math.prod(cells.padded_shape[1:])
    displaced = jnp.asarray(_displaced(cells))
    here = jnp.arange(count, dtype=jnp.int32)

    def at(table: Array, index: Array) -> Array:
        return table.at[index].get(mode="promise_in_bounds")

    def turn(carry, _):
        word, bits = carry
        lowest = bits & (~bits + np.uint32(1))
        bit = lax.population_count(lowest - np.uint32(1)).astype(jnp.int32)
        candidate = jnp.where(bits != 0, word * WORD + bit, 0)
        slot = jnp.where(bits != 0, base + at(displaced, candidate), own)
        bits = bits ^ lowest
        word = jnp.where(bits == 0, at(following, jnp.minimum(word + 1, words) * count + here), word)
        bits = jnp.where(bits == 0, at(found, word * count + here), bits)
        return (word, bits), slot

    first = following[:count]
    return lax.scan(turn, (first, at(found, first * count + here)), None, length=length)[1]


def _displaced(cells: Cells) -> np.ndarray:
    """Distance in the flattened padded block from slot 0 of a cell to each candidate, by neighbouring cell and slot."""
    padded = cells.padded_shape
    steps = np.array([math.prod(padded[axis + 2 :]) for axis in range(cells.ndim)])
    slots = np.arange(cells.capacity) * math.prod(padded[1:])
    cells_away = displacements(cells.ndim) @ steps
    return (cells_away[:, None] + slots[None]).astype(np.int32).ravel()


def interior(cells: Cells, padded: Array) -> Array:
    """The block's own slots of a padded per-particle array."""
    return padded[(..., *(slice(1, -1),) * cells.ndim)]
