"""Neighbours of particles: lists of slots, and the loop over neighbouring cells that needs no list."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.platform import one_pass, where_needed
from simjax.jaxpr.varying import varies_beyond
from simjax.particles.cells import GROUP, Cells
from simjax.particles.neighbor_search import columns_by_cell, listed_at_once, within_at_once
from simjax.particles.neighbor_slots import cell_strides, displacements, own_slot
from simjax.particles.one_pass import by_cell
from simjax.status import BLOCK_FULL, LIST_FULL, OK
from simjax.stencil.materialise import held

WORD = 16
"""Slots that a word of a list in the making has a bit for; the other half of its 32 bits counts words."""


class Neighbours(eqx.Module):
    """The partners of every particle of a block within some distance.

    slot: `(length, particles)` int32, positions in the flattened padded block; unused entries hold the particle's own.
    owner: `(particles,)` int32, which slot of the flattened block each column is about. place: `cells.shape` int32, the
    column of each slot; of an empty one, `particles`. Columns beyond the last particle are about slot 0, without
    partners. longest: number of rows, from the first on, in which there are partners, int32. own: None; where sums are
    one operation on the whole list, as on a GPU, the slot of each particle, `(particles,)` int32, and then `slot` is
    `(particles, length)` and both are counted cell by cell (`one_pass.by_cell`).

    Partners come in one order, by cell and slot, so that a list made anew of the same particles gives the same sums.
    """

    slot: Array
    owner: Array
    place: Array
    longest: Array
    own: Array | None = None

    def without(self, cells: Cells, slots: Array) -> "Neighbours":
        """The list without partners in some slots of each particle, `(count, particles)` int32."""
        if self.own is None:
            out = jnp.any(self.slot[:, None] == slots[None], axis=1)
            own = own_slot(cells).ravel()[self.owner][None]
        else:
            out = jnp.any(self.slot[:, None] == by_cell(cells, slots).T[:, :, None], axis=1)
            own = self.own[:, None]
        return dataclasses.replace(self, slot=jnp.where(out, own, self.slot))


def of_every_slot(cells: Cells, slot: Array) -> Neighbours:
    """A list with a column for every slot, from positions in the flattened padded block `(length, *cells.shape)`."""
    column = jnp.arange(cells.slots, dtype=jnp.int32)
    longest = jnp.asarray(slot.shape[0], jnp.int32)
    slot = slot.reshape(slot.shape[0], cells.slots)
    place = column.reshape(cells.shape)
    if one_pass():
        return Neighbours(by_cell(cells, slot).T, column, place, longest, by_cell(cells, own_slot(cells).ravel()))
    return Neighbours(slot, column, place, longest)


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
    coordinates, filled = _far_where_empty(cells, position, ids), ids >= 0
    count = jnp.sum(filled, dtype=jnp.int32)
    owner, place = (columns_by_cell if one_pass() else _columns)(filled, max_particles)
    own = own_slot(cells).ravel()[owner]
    used = jnp.arange(max_particles, dtype=jnp.int32) < count
    if one_pass():
        own = by_cell(cells, own)
        found = within_at_once(cells, coordinates, distance, own)
        slot, each = listed_at_once(cells, jnp.where(used[:, None], found, np.uint32(0)), own, max_neighbors)
        longest = jnp.max(each)
    else:
        found = jnp.where(used[None], _within(cells, coordinates, distance, own), np.uint32(0))
        longest = jnp.max(jnp.sum(lax.population_count(found), axis=0, dtype=jnp.int32))
    fault = jnp.where(cells.domain.max(longest) > max_neighbors, LIST_FULL, OK).astype(jnp.int32)
    fault |= jnp.where(cells.domain.max(count) > max_particles, BLOCK_FULL, OK).astype(jnp.int32)
    longest = jnp.minimum(longest, max_neighbors)
    if one_pass():
        return Neighbours(slot, owner, place, longest, own), fault
    return Neighbours(_listed(cells, found, own, max_neighbors, longest), owner, place, longest), fault


def _far_where_empty(cells: Cells, position: Array, ids: Array) -> Array:
    """Coordinates in the block, padded, infinite where there is no particle: `(ndim, *padded_shape)`."""
    padded = cells.pad(jnp.where(ids >= 0, position, jnp.inf), beyond=math.inf)
    centres = cells.offsets_within(position.dtype, ghosts=1)
    return jnp.stack([x + c for x, c in zip(padded, centres, strict=True)])


def _columns(filled: Array, particles: int) -> tuple[Array, Array]:
    """The filled slots one after the other, `(particles,)` with 0 for the rest, and where each slot stands there."""
    flat = filled.ravel()
    rank = jnp.cumsum(flat.astype(jnp.int32)) - 1
    place = jnp.where(flat & (rank < particles), rank, particles)
    slots = jnp.arange(flat.size, dtype=jnp.int32)
    owner = jnp.zeros((particles,), jnp.int32).at[place].set(slots, mode="drop")
    return owner, place.reshape(filled.shape)


def _within(cells: Cells, coordinates: Array, distance: float, own: Array) -> Array:
    """For the particle of each slot `own` of the flattened padded block, a bit for each slot of the cells around, set
    where a partner is: `(words, particles)` uint32.

    coordinates: `(ndim, *padded_shape)`, infinite where there is no particle.
    """
    # Cells one after the other in one long axis, along which loops go; some between the block's own are ghost cells.
    cells_padded, first = math.prod(cells.padded_shape[1:]), int(sum(cell_strides(cells)))
    span = cells_padded - 2 * first
    # A position that is not finite has no partners; its loss is noticed where particles move between cells.
    groups, far = math.ceil(cells.capacity / WORD), coordinates.reshape(cells.ndim, cells.capacity, cells_padded)
    far = jnp.pad(far, [(0, 0), (0, groups * WORD - cells.capacity), (0, 0)], constant_values=jnp.inf)
    here = lax.slice_in_dim(far, first, first + span, axis=-1)
    limit = jnp.asarray(distance, here.dtype) ** 2
    # The first slots of a cell are filled.
    fullest = jnp.max(jnp.sum(~jnp.isinf(coordinates[0]), axis=0, dtype=jnp.int32))
    of_members = varies_beyond(fullest, cells.domain.names)
    none = (0 * here[0, :WORD]).astype(jnp.uint16)
    zero = jnp.zeros((), jnp.int32)
    # Of each row of words: where the cell around begins, and the first slot in it.
    begins = np.repeat(first + displacements(cells.ndim) @ cell_strides(cells), groups).astype(np.int32)
    rows = jnp.asarray(begins), jnp.asarray(np.resize(WORD * np.arange(groups, dtype=np.int32), begins.shape))

    def of_group(_, mine):
        ours = lax.dynamic_slice(here, (zero, mine, zero), (cells.ndim, WORD, span))

        def look(begin, theirs):
            there = lax.dynamic_slice(far, (zero, theirs, begin), ours.shape)
            bits = jnp.zeros(none.shape, jnp.uint32)
            for k in range(WORD):
                square = sum((x - y[k][None]) ** 2 for x, y in zip(ours, there, strict=True))
                bits = bits | jnp.where(square < limit, np.uint32(1 << k), np.uint32(0))
            return bits.astype(jnp.uint16)

        def turn(_, row):
            begin, theirs = row
            both = jnp.maximum(theirs, mine) < fullest
            return None, where_needed(both, look, lambda begin, theirs: none, begin, theirs, always=of_members)

        return None, lax.scan(turn, None, rows)[1]

    found = lax.scan(of_group, None, WORD * jnp.arange(groups, dtype=jnp.int32))[1]
    slot, place = _divided(own, cells_padded)
    group, row_of_slot = _divided(slot, WORD)
    group, place = held((group, row_of_slot * span + place - first))

    def of_row(bits):  # of all groups: `(groups, WORD, span)`
        return bits.reshape(groups, -1).at[group, place].get(mode="promise_in_bounds").astype(jnp.uint32)

    words = jax.vmap(of_row, in_axes=1)(found)
    row = jnp.arange(words.shape[0], dtype=jnp.int32)[:, None]
    # No particle is its own partner.
    itself = (3**cells.ndim // 2 * groups * WORD + slot)[None]
    word, bit = _divided(itself, WORD)
    lone = jnp.where(word == row, np.uint32(1) << bit.astype(jnp.uint32), np.uint32(0))
    return words & ~lone


def _listed(cells: Cells, found: Array, own: Array, length: int, longest: Array) -> Array:
    """The slots that the bits `(words, particles)` stand for, in their order: `(length, particles)`.

    own: the slot of each particle; longest: the most bits that one has.
    """
    words, count = found.shape
    here = jnp.arange(count, dtype=jnp.int32)
    low = np.uint32(2**WORD - 1)

    # Beside its bits, a word has the number of the next one with a partner.
    def before(later, word):
        number, bits = word
        return jnp.where(bits != 0, number, later), bits | later.astype(jnp.uint32) << np.uint32(WORD)

    none = jnp.full_like(found[0], words, jnp.int32)
    numbers = jnp.arange(words, dtype=jnp.int32)
    first, chained = lax.scan(before, none, (numbers, found), reverse=True)
    chained = jnp.concatenate([chained.ravel(), none.astype(jnp.uint32) << np.uint32(WORD)])
    base = _divided(own, math.prod(cells.padded_shape[1:]))[1]
    displaced = jnp.asarray(_displaced(cells))

    def at(table: Array, index: Array) -> Array:
        return table.at[index].get(mode="promise_in_bounds")

    # What is looked up stands alone: a loop that also computes goes number by number.
    def entry(carry):
        word, left = carry
        bits = left & low
        lowest = bits & (~bits + np.uint32(1))
        bit = lax.population_count(lowest - np.uint32(1)).astype(jnp.int32)
        candidate = held(jnp.where(bits != 0, word * WORD + bit, 0))
        slot = jnp.where(bits != 0, base + held(at(displaced, candidate)), own)
        left = left ^ lowest
        following = (left >> np.uint32(WORD)).astype(jnp.int32)
        next_word = held(at(chained, held(following * count + here)))
        done = (left & low) == 0
        return (jnp.where(done, following, word), jnp.where(done, next_word, left)), slot

    def turn(carry, number):
        of_members = varies_beyond(longest, cells.domain.names)
        return where_needed(number < longest, entry, lambda carry: (carry, own), carry, always=of_members)

    start = (first, at(chained, first * count + here))
    return lax.scan(turn, start, jnp.arange(length, dtype=jnp.int32))[1]


def _divided(number: Array, by: int) -> tuple[Array, Array]:
    """Quotient and remainder of int32 that are not negative: `//` asks each whether it is."""
    return lax.div(number, jnp.full_like(number, by)), lax.rem(number, jnp.full_like(number, by))


def _displaced(cells: Cells) -> np.ndarray:
    """Distance in the flattened padded block from slot 0 of a cell to each candidate, by neighbouring cell and slot."""
    slots = np.arange(math.ceil(cells.capacity / WORD) * WORD) * math.prod(cells.padded_shape[1:])
    return ((displacements(cells.ndim) @ cell_strides(cells))[:, None] + slots[None]).astype(np.int32).ravel()


def interior(cells: Cells, padded: Array) -> Array:
    """The block's own slots of a padded per-particle array."""
    return padded[(..., *(slice(1, -1),) * cells.ndim)]
