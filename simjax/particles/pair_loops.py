"""Loops over the candidates for partners of particles: the rows of their list, or the slots of the cells around them.

On a GPU they are no loops but one operation on all candidates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.platform import one_pass, where_needed
from simjax.jaxpr.varying import steady_carry, varies_beyond
from simjax.particles.cells import GROUP, Cells
from simjax.particles.neighbor_list import Neighbours, added_nearby, interior, nearby, placed, turns
from simjax.particles.neighbor_slots import own_slot, slots_around
from simjax.particles.one_pass import Table, by_cell, summed

ROWS = 4
"""Rows of a list that one turn of the loop takes: sums are loaded and stored once for them."""


class Pairs(Protocol):
    """Fields of `particles.pairs.Pairs` that sums read."""

    @property
    def cells(self) -> Cells: ...
    @property
    def position(self) -> Array: ...
    @property
    def ids(self) -> Array: ...
    @property
    def cutoff(self) -> float: ...
    @property
    def neighbours(self) -> Neighbours | None: ...


def in_one_pass(pairs: Pairs) -> bool:
    """Tell whether sums are one operation on all candidates: as their list was made, and without one by platform."""
    return one_pass() if pairs.neighbours is None else pairs.neighbours.own is not None


def all_candidates(pairs: Pairs, values) -> tuple[Array, Callable]:
    """Candidates for partners of all particles as numbers of slots `(particles, candidates)` int32, and from these
    `(inside, separation, here, there)` as `fold` passes them on, all of that shape.
    """
    cells, neighbours = pairs.cells, pairs.neighbours
    coordinates, occupied, padded = _around(pairs, values)
    if neighbours is None:
        # Nothing is near what is not there.
        coordinates = jnp.where(occupied, coordinates, jnp.inf)
        own = by_cell(cells, own_slot(cells).ravel())
        index = (own - own % cells.capacity)[:, None] + jnp.asarray(slots_around(cells))
    else:
        assert neighbours.own is not None
        own, index = neighbours.own, neighbours.slot
    table = Table(cells, (coordinates, padded))
    own = own[:, None]

    def of(index: Array):
        # Looked up anew for every candidate, so that nothing stands between the table and the sums.
        mine, here = table.at(jnp.broadcast_to(own, index.shape))
        theirs, there = table.at(index)
        return *_met(pairs, mine, theirs, index != own), here, there

    return index, of


def sums_at_once(pairs: Pairs, of_one: Callable, values):
    """`fold` in one pass, of the particles of each column of the list or of each slot."""
    index, of = all_candidates(pairs, values)
    return summed(lambda index: of_one(*of(index)), index)


def fold(pairs: Pairs, of_one: Callable, values, start: Callable):
    """The sum of `of_one(inside, separation, here, there)` over all candidates for a partner, of all particles at once.

    Where a candidate is no partner nearer than the cutoff, `inside` is false and the separation is half the cutoff
    along x: nothing is singular there.
    """
    along = _over_list if pairs.neighbours is not None else _over_cells
    coordinates, occupied, padded = _around(pairs, values)

    def look(here, there, mine, theirs, candidate):
        return of_one(*_met(pairs, mine, theirs, candidate), here, there)

    return along(pairs, look, (coordinates, occupied), padded, start)


def _around(pairs: Pairs, values):
    """Coordinates in the block, occupied slots and values, all with those of the cells around."""
    coordinates, occupied = placed(pairs.cells, pairs.position, pairs.ids)
    return coordinates, occupied, pairs.cells.pad(values) if jax.tree.leaves(values) else values


def _met(pairs: Pairs, mine, theirs, candidate) -> tuple[Array, tuple[Array, ...]]:
    """Tell whether a candidate is a partner, and the separation from it, as `fold` passes them on."""
    limit = jnp.asarray(pairs.cutoff, pairs.position.dtype)
    apart = [a - b for a, b in zip(mine, theirs, strict=True)]
    inside = candidate & (sum(x * x for x in apart) < limit * limit)
    away = [limit / 2] + [jnp.zeros_like(limit)] * (len(apart) - 1)
    return inside, tuple(jnp.where(inside, x, far) for x, far in zip(apart, away, strict=True))


def _over_list(pairs: Pairs, look: Callable, padded_particles, padded, start: Callable):
    cells, neighbours = pairs.cells, pairs.neighbours
    assert neighbours is not None
    rows = neighbours.slot
    own = own_slot(cells).ravel()[neighbours.owner]
    coordinates, _ = padded_particles
    near = len(cells.padded_shape)

    def flat(u):
        return u.reshape(*u.shape[: u.ndim - near], -1)

    def inner(u):
        flat_block = interior(cells, u).reshape(*u.shape[: u.ndim - near], -1)
        return flat_block.at[..., neighbours.owner].get(mode="promise_in_bounds")

    here, mine = jax.tree.map(inner, padded), inner(coordinates)
    everywhere, positions = jax.tree.map(flat, padded), flat(coordinates)

    def row(slot):
        there, theirs = jax.tree.map(lambda u: u.at[..., slot].get(mode="promise_in_bounds"), (everywhere, positions))
        return look(here, there, mine, theirs, slot != own)

    # All rows of a turn in each operation: operations of a row are short beside what it takes to start them.
    def turn(total, slots):
        found = jax.vmap(row)(slots)
        for k in range(slots.shape[0]):
            total = jax.tree.map(lambda u, f, k=k: u + f[k], total, found)
        return total

    of_members = varies_beyond(neighbours.longest, cells.domain.names)

    def over(total, groups, number):
        def needed(total, group):
            slots, first = group
            some = first < neighbours.longest
            return where_needed(some, turn, lambda total, slots: total, total, slots, always=of_members), None

        return lax.scan(needed, total, (groups, number))[0]

    total = start(tuple(mine), here, here)
    whole = rows.shape[0] // ROWS * ROWS
    number = jnp.arange(rows.shape[0], dtype=jnp.int32)
    _, total = steady_carry(lambda total: turn(total, rows[:1]), total)
    if whole:
        total = over(total, rows[:whole].reshape(-1, ROWS, rows.shape[1]), number[:whole:ROWS])
    return over(total, rows[whole:, None], number[whole:]) if whole < rows.shape[0] else total


def _over_cells(pairs: Pairs, look: Callable, padded_particles, padded, start: Callable):
    cells = pairs.cells
    coordinates, occupied = padded_particles
    here, mine, candidates = _candidates(cells, coordinates, occupied, padded)

    @functools.partial(jax.jit, inline=True)  # traced once for all slots of a group
    def one(there, theirs, candidate):
        return look(here, there, mine, theirs, candidate)

    def turn(total, number):
        for candidate in candidates(number):
            total = jax.tree.map(jnp.add, total, one(*candidate))
        return total

    total = start(tuple(mine), here, here)
    _, total = steady_carry(lambda total: turn(total, jnp.asarray(0, jnp.int32)), total)
    numbers = jnp.arange(turns(cells), dtype=jnp.int32)
    return lax.scan(lambda total, number: (turn(total, number), None), total, numbers)[0]


def once(pairs: Pairs, masked: Callable, values, start: Callable, signs):
    """Sums of a pair with `signs`, from particles of a cell and of half the cells around it.

    What their partners get is added up in the cells around, where some are other devices', and sent there as ghost
    values come.
    """
    cells = pairs.cells
    here, mine, candidates = _candidates(cells, *_around(pairs, values))
    over_slots = -cells.ndim - 1

    @functools.partial(jax.jit, inline=True)  # traced once for all slots of a group
    def one(there, theirs, candidate):
        return masked(*_met(pairs, mine, theirs, candidate), here, there)

    def within(total, number):
        for candidate in candidates(number):
            total = jax.tree.map(jnp.add, total, one(*candidate))
        return total

    def between(carry, number):
        total, theirs = carry
        given = []
        for candidate in candidates(number):
            found = one(*candidate)
            total = jax.tree.map(jnp.add, total, found)
            given.append(jax.tree.map(lambda f: jnp.sum(f, axis=over_slots, keepdims=True), found))
        group = jax.tree.map(lambda sign, *parts: sign * jnp.concatenate(parts, axis=over_slots), signs, *given)
        return total, jax.tree.map(lambda u, g: added_nearby(cells, u, g, number), theirs, group)

    per_cell = cells.capacity // GROUP
    own = 3**cells.ndim // 2 * per_cell
    numbers = jnp.arange(own, turns(cells), dtype=jnp.int32)
    total = start(tuple(mine), here, here)
    _, total = steady_carry(lambda total: within(total, numbers[0]), total)
    total = lax.scan(lambda total, number: (within(total, number), None), total, numbers[:per_cell])[0]
    theirs = jax.tree.map(lambda u: jnp.zeros((*u.shape[:over_slots], *cells.padded_shape), u.dtype), total)
    carry = total, theirs
    _, carry = steady_carry(lambda carry: between(carry, numbers[0]), carry)
    total, theirs = lax.scan(lambda carry, number: (between(carry, number), None), carry, numbers[per_cell:])[0]
    (back,) = jax.linear_transpose(cells.pad, total)(theirs)
    return jax.tree.map(jnp.add, total, back)


def _candidates(cells: Cells, coordinates: Array, occupied: Array, padded):
    """Values and coordinates of the block's particles; and from the number of a group, for each of its slots, the
    values and coordinates there, and whether a particle is there that is not the same.
    """
    own = own_slot(cells)
    flat = jnp.arange(occupied.size, dtype=jnp.int32).reshape(occupied.shape)
    here, mine, filled = jax.tree.map(lambda u: interior(cells, u), (padded, coordinates, occupied))

    def of(number):
        group = jax.tree.map(lambda u: nearby(cells, u, number), (padded, coordinates, occupied, flat))
        for k in range(GROUP):
            there, theirs, there_filled, slot = jax.tree.map(lambda u, k=k: _slot_of(cells, u, k), group)
            yield there, theirs, filled & there_filled & (slot != own)

    return here, mine, of


def _slot_of(cells: Cells, group: Array, k: int) -> Array:
    """One slot of a group, as long as a whole cell: `(..., *cells.shape)`."""
    lead = group.shape[: group.ndim - len(cells.shape)]
    one = lax.slice_in_dim(group, k, k + 1, axis=len(lead))
    return jnp.broadcast_to(one, (*lead, *cells.shape))
