"""Sums over pairs of near particles, whose derivatives are sums over the same pairs.

For r_i = sum over j of f(x_i - x_j, a_i, a_j) and a cotangent c of r, the cotangent of x_i is the sum over the same
partners j of f_x(i, j)^T c_i - f_x(j, i)^T c_j, as being near is mutual: gathers only, no scatter and no atomics, and
between devices the cotangents travel as ghost particles do.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from simjax.jaxpr.linear_map import linear_map
from simjax.jaxpr.parts import part
from simjax.jaxpr.platform import where_needed
from simjax.jaxpr.varying import steady_carry, vary_like
from simjax.particles.cells import Cells
from simjax.particles.neighbor_list import GROUP, Neighbours, added_nearby, interior, nearby, own_slot, placed, turns

Pair = Callable[..., Any]
"""`pair(separation, here, there, params)` -> tree of arrays: what a particle gets from one partner.

separation: tuple of `ndim` arrays x_i - x_j; here, there: the values of the two particles, component axes first. All
operations are element by element; `params` may hold anything. It must not close over traced values.
"""
ROWS = 4
"""Rows of a list that one turn of the loop takes: sums are loaded and stored once for them."""


class Pairs(eqx.Module):
    """The pairs of a set of particles that are nearer than `cutoff`.

    cells: the grid of cells, each at least `cutoff` long. position: `(ndim, *cells.shape)` within the cells. ids:
    `cells.shape` int32. neighbours: list of pairs, for which positions may have moved since it was made as long as no
    pair outside it has come nearer than `cutoff`; without one, all particles of the cells around are looked at.

    Examples:
        >>> from simjax.particles.cells import pack
        >>> cells = sj.Cells(sj.Domain(sj.Grid((4,), upper=(4.0,))), capacity=8, periodic=(True,))
        >>> position, ids, _, lost = pack(cells, jnp.asarray([[0.5, 1.25, 3.75]]), {})
        >>> def near(separation, here, there, params):
        ...     return jnp.where(abs(separation[0]) < 1.0, 1.0, 0.0)
        >>> partners = sj.Pairs(cells, position, ids, cutoff=1.0).sum(near)
        >>> float(partners.sum())  # 0.5 and 1.25; 3.75 and 0.5, through the side; each from both ends
        4.0
    """

    cells: Cells
    position: Array
    ids: Array
    cutoff: float = eqx.field(static=True)
    neighbours: Neighbours | None = None

    @property
    def ndim(self) -> int:
        return self.cells.ndim

    @part("sums over pairs")
    def sum(self, pair: Pair, values: Any = (), params: Any = (), signs: Any = None):
        """Sums of `pair` over the partners of each particle.

        Args:
            pair: what one partner gives; differentiable in separation, floating-point values and params.
            values: tree of per-particle arrays `(..., *cells.shape)`.
            params: tree of arrays that all pairs share.
            signs: of a pair that gives its two particles the same up to a sign, the tree that it returns with 1 or -1
                for every array: pair(-r, there, here, params) = sign pair(r, here, there, params). Without a list, such
                a pair is evaluated once and not for each of its particles. None: it gives them what is not related.

        Returns:
            The tree that `pair` returns, with arrays `(..., *cells.shape)`; zero at empty slots.
        """
        moving, fixed = eqx.partition((self.position, values, params), eqx.is_inexact_array)
        rest = dataclasses.replace(self, position=None)

        @jax.custom_jvp
        def total(moving, fixed, rest):
            position, values, params = eqx.combine(moving, fixed)
            return _sum(dataclasses.replace(rest, position=position), pair, values, params, signs)

        def derivative(primals, tangents):
            moving, fixed, rest = primals
            directions = jax.tree.map(_unless_zero, tangents[0], is_leaf=lambda t: isinstance(t, SymbolicZero))
            position, values, params = eqx.combine(moving, fixed)
            slopes = _Slopes(dataclasses.replace(rest, position=position), pair, values, params, signs)
            return total(*primals), linear_map(slopes.forward, slopes.transpose(directions), directions)

        total.defjvp(derivative, symbolic_zeros=True)
        return total(moving, fixed, rest)


def _unless_zero(tangent):
    return None if isinstance(tangent, SymbolicZero) else tangent


@dataclasses.dataclass(frozen=True)
class _Slopes:
    """The derivative of `pairs.sum(pair, values, params)` in position, values and params, and its transpose."""

    pairs: Pairs
    pair: Pair
    values: Any
    params: Any
    signs: Any

    def forward(self, directions):
        """The change of the sums with (position, values, params), of which those that do not change are None."""
        dx, dvalues, dparams = directions

        def pushed(separation, here, there, shared):
            (here, dx_here, dhere), (there, dx_there, dthere) = here, there
            params, dparams = shared
            changed = [dhere, dthere, dparams]
            apart = separation
            if dx_here is not None:
                changed.append(tuple(a - b for a, b in zip(dx_here, dx_there, strict=True)))

            def of(here_part, there_part, params_part, apart=apart):
                return self.pair(
                    apart, _with(here, here_part), _with(there, there_part), _with(params, params_part)
                )  # fmt: skip

            at = [_part(here, dhere), _part(there, dthere), _part(params, dparams)]
            at += [separation] if dx_here is not None else []
            return jax.jvp(of, tuple(at), tuple(changed))[1]

        return self.pairs.sum(pushed, (self.values, dx, dvalues), (self.params, dparams), self.signs)

    def transpose(self, directions) -> Callable:
        """From cotangents of the sums to those of what changes in `directions`."""
        moves, which_values, which_params = (jax.tree.map(lambda _: True, part) for part in directions)

        def pulled(separation, here, there, params):
            (here, cotangent_here), (there, cotangent_there) = here, there

            def to_here(apart, part):
                return self.pair(apart, _with(here, part), there, params)

            def to_there(apart, part):
                return self.pair(tuple(-x for x in apart), there, _with(here, part), params)

            at = separation, _part(here, which_values)
            first = jax.vjp(to_here, *at)[1](cotangent_here)
            second = jax.vjp(to_there, *at)[1](cotangent_there)
            apart, values = jax.tree.map(jnp.add, first, second)
            return (apart if moves is not None else None), values

        def pull(cotangents):
            x, values, params = None, which_values, which_params
            if moves is not None or jax.tree.leaves(which_values):
                # What a pair does to the places of its particles is opposite, to their values it may be anything.
                only_moves = self.signs is not None and not jax.tree.leaves(which_values)
                signs = ((-1,) * self.pairs.cells.ndim, which_values) if only_moves else None
                x, values = self.pairs.sum(pulled, (self.values, cotangents), self.params, signs)
                x = None if x is None else jnp.stack(x)
            if jax.tree.leaves(which_params):
                params = self._of_params(which_params, cotangents)
            return x, values, params

        return pull

    def _of_params(self, which, cotangents):
        """Cotangents of the shared parameters: sums over all pairs of all blocks."""
        # Summed over devices once, at the end: some look at fewer rows of their lists than others.
        varying = (self.pairs.position, self.values, cotangents)
        shared, over_devices = jax.vjp(lambda part: vary_like(part, varying), _part(self.params, which))

        def of_one(inside, separation, here, there):
            here, cotangent = here
            masked = jax.tree.map(lambda c: jnp.where(inside, c, jnp.zeros_like(c)), cotangent)

            def of(part):
                return self.pair(separation, here, there[0], _with(self.params, part))

            return jax.vjp(of, shared)[1](masked)[0]

        start = jax.tree.map(jnp.zeros_like, shared)
        total = _fold(self.pairs, of_one, (self.values, cotangents), lambda *_: start)
        return over_devices(total)[0]


def _part(tree, which):
    """Leaves of `tree` that `which` (the same tree with None for others) names."""
    return jax.tree.map(lambda w, leaf: None if w is None else leaf, which, tree, is_leaf=lambda w: w is None)


def _with(tree, part):
    """`tree` with the leaves of `part` in the place of its own."""
    return jax.tree.map(lambda p, leaf: leaf if p is None else p, part, tree, is_leaf=lambda p: p is None)


def _sum(pairs: Pairs, pair: Pair, values, params, signs):
    def masked(inside, separation, here, there):
        found = pair(separation, here, there, params)
        return jax.tree.map(lambda f: jnp.where(inside, f, jnp.zeros_like(f)), found)

    def start(separation, here, there):
        found = jax.eval_shape(pair, separation, here, there, params)
        shape = separation[0].shape
        return jax.tree.map(lambda f: jnp.zeros((*f.shape[: f.ndim - len(shape)], *shape), f.dtype), found)

    neighbours = pairs.neighbours
    if neighbours is None and signs is not None:
        return _once(pairs, masked, values, start, signs)
    found = _fold(pairs, masked, values, start)
    if neighbours is None:
        return found

    def in_cells(r):
        with_none = jnp.concatenate([r, jnp.zeros((*r.shape[:-1], 1), r.dtype)], axis=-1)
        return with_none.at[..., neighbours.place].get(mode="promise_in_bounds")

    return jax.tree.map(in_cells, found)


def _fold(pairs: Pairs, of_one: Callable, values, start: Callable):
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
    """Tell whether a candidate is a partner, and the separation from it, as `_fold` passes them on."""
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

    def over(total, groups, number):
        def needed(total, group):
            slots, first = group
            return where_needed(first < neighbours.longest, turn, lambda total, slots: total, total, slots), None

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


def _once(pairs: Pairs, masked: Callable, values, start: Callable, signs):
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
        group = jax.tree.map(
            lambda sign, *parts: sign * jnp.concatenate(parts, axis=over_slots), signs, *given
        )  # fmt: skip
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
