"""Lists of neighbours made in a few operations, for a GPU: each takes in all particles and all candidates at once."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.particles.cells import Cells
from simjax.particles.neighbor_slots import slots_around
from simjax.particles.one_pass import Table

WORD = 32
"""Candidates that a word has a bit for."""


def columns_by_cell(filled: Array, particles: int) -> tuple[Array, Array]:
    """The filled slots cell by cell, `(particles,)` with 0 for the rest, and where each slot stands there.

    filled: `cells.shape` bool; the first slots of a cell.
    """
    capacity, shape = filled.shape[0], filled.shape[1:]
    count = jnp.sum(filled, axis=0, dtype=jnp.int32).ravel()
    first = (jnp.cumsum(count) - count).reshape(1, *shape)
    number = jnp.arange(capacity, dtype=jnp.int32).reshape(-1, *(1,) * len(shape))
    place = jnp.where(filled & (first + number < particles), first + number, particles)
    slots = jnp.arange(filled.size, dtype=jnp.int32)
    owner = jnp.zeros((particles,), jnp.int32).at[place.ravel()].set(slots, mode="drop", unique_indices=True)
    return owner, place


def within_at_once(cells: Cells, coordinates: Array, distance: float, own: Array) -> Array:
    """Bits for the slots of the cells around the particle of each slot `own`, counted cell by cell, set where a partner
    is: `(particles, words)` uint32.

    coordinates: `(ndim, *cells.padded_shape)`, infinite where there is no particle.
    """
    table = Table(cells, coordinates)
    around, bits = _words(cells)
    index = (own - own % cells.capacity)[:, None, None] + jnp.asarray(around)[None]
    limit = jnp.asarray(distance, coordinates.dtype) ** 2
    mine, theirs = table.at(own), table.at(index)
    square = sum((x[:, None, None] - y) ** 2 for x, y in zip(mine, theirs, strict=True))
    near = (square < limit) & (index != own[:, None, None])
    return jnp.sum(jnp.where(near, jnp.asarray(bits)[None], np.uint32(0)), axis=-1, dtype=jnp.uint32)


def listed_at_once(cells: Cells, found: Array, own: Array, length: int) -> tuple[Array, Array]:
    """The slots that the bits `(particles, words)` stand for, counted cell by cell, in their order: `(particles,
    length)`; and how many bits each particle has.

    own: the slot of each particle, counted in the same way.
    """
    count, words = found.shape
    each = lax.population_count(found).astype(jnp.int32)
    through = jnp.cumsum(each, axis=1)
    bits = np.uint32(1) << np.arange(WORD, dtype=np.uint32)
    # The row of a bit is the number of those before it.
    within = lax.population_count(found[:, :, None] & jnp.asarray(bits - 1)[None, None]).astype(jnp.int32)
    row = (through - each)[:, :, None] + within
    row = jnp.where(found[:, :, None] & jnp.asarray(bits)[None, None] != 0, row, length)
    # With a zero that depends on the list: jax would form these before a loop that is differentiated, and keep them.
    column = jnp.arange(count, dtype=jnp.int32)[:, None, None] + 0 * row
    around, _ = _words(cells)
    there = (own - own % cells.capacity)[:, None, None] + jnp.asarray(around)[None]
    # Rows beyond the last are dropped. Two numbers tell the place: their product may be more than an int32 holds.
    unused = jnp.broadcast_to(own[:, None], (count, length))
    place = column.reshape(-1), row.reshape(-1)
    slot = unused.at[place].set(there.reshape(-1), mode="drop", unique_indices=True, wrap_negative_indices=False)
    return slot, through[:, -1]


def _words(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Slots of `slots_around` that bits of words stand for, and the bits, 0 beyond the last: `(words, WORD)` each."""
    around = slots_around(cells)[0]
    words = math.ceil(around.size / WORD)
    bits = np.tile(np.uint32(1) << np.arange(WORD, dtype=np.uint32), words)
    bits[around.size :] = 0
    return np.pad(around, (0, words * WORD - around.size)).reshape(words, WORD), bits.reshape(words, WORD)
