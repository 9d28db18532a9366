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
from jax import Array
from jax.custom_derivatives import SymbolicZero

from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.linear_map import linear_map
from simjax.jaxpr.varying import vary_like
from simjax.particles.cells import Cells
from simjax.particles.neighbor_list import Neighbours
from simjax.particles.one_pass import summed
from simjax.particles.pair_loops import all_candidates, fold, in_one_pass, once, sums_at_once

Pair = Callable[..., Any]
"""`pair(separation, here, there, params)` -> tree of arrays: what a particle gets from one partner.

separation: tuple of `ndim` arrays x_i - x_j; here, there: the values of the two particles, component axes first. All
operations are element by element; `params` may hold anything. It must not close over traced values.
"""


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
                return self.pair(apart, _with(here, here_part), _with(there, there_part), _with(params, params_part))

            at = [_part(here, dhere), _part(there, dthere), _part(params, dparams)]
            at += [separation] if dx_here is not None else []
            return jax.jvp(of, tuple(at), tuple(changed))[1]

        return self.pairs.sum(pushed, (self.values, dx, dvalues), (self.params, dparams), self.signs)

    def transpose(self, directions) -> Callable:
        """Pull cotangents of the sums back to the arguments that change in `directions`."""
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

        def slopes(shared, inside, separation, here, there):
            here, cotangent = here
            masked = jax.tree.map(lambda c: jnp.where(inside, c, jnp.zeros_like(c)), cotangent)

            def of(part):
                return self.pair(separation, here, there[0], _with(self.params, part))

            return jax.vjp(of, shared)[1](masked)[0]

        if in_one_pass(self.pairs):
            return over_devices(self._at_once(slopes, shared, cotangents))[0]
        start = jax.tree.map(jnp.zeros_like, shared)
        of_one = functools.partial(slopes, shared)
        return over_devices(fold(self.pairs, of_one, (self.values, cotangents), lambda *_: start))[0]

    def _at_once(self, slopes: Callable, shared, cotangents):
        """Sums of `slopes` over all pairs of this block, of which scalars have one in each pair."""
        index, of = all_candidates(self.pairs, (self.values, cotangents))
        scalars, others = eqx.partition(shared, lambda p: p.ndim == 0)

        def of_scalars(index):
            each = jax.tree.map(lambda u: jnp.moveaxis(u, (-2, -1), (0, 1)), of(index))
            return jax.vmap(jax.vmap(functools.partial(slopes, scalars)))(*each)

        of_others = slopes(others, *of(index)) if jax.tree.leaves(others) else others
        return eqx.combine(jax.tree.map(jnp.sum, summed(of_scalars, index)), of_others)


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
    if in_one_pass(pairs):
        return jax.tree.map(lambda r: _in_cells_at_once(pairs, r), sums_at_once(pairs, masked, values))
    if neighbours is None and signs is not None:
        return once(pairs, masked, values, start, signs)
    found = fold(pairs, masked, values, start)
    if neighbours is None:
        return found

    def in_cells(r):
        with_none = jnp.concatenate([r, jnp.zeros((*r.shape[:-1], 1), r.dtype)], axis=-1)
        return with_none.at[..., neighbours.place].get(mode="promise_in_bounds")

    return jax.tree.map(in_cells, found)


def _in_cells_at_once(pairs: Pairs, sums: Array) -> Array:
    """Sums of each column of the list, or of each slot, in the cells."""
    shape, neighbours = pairs.cells.shape, pairs.neighbours
    if neighbours is None:
        return sums.reshape(*sums.shape[:-1], *shape)
    there = neighbours.place < sums.shape[-1]
    found = sums.at[..., jnp.where(there, neighbours.place, 0)].get(mode="promise_in_bounds")
    return jnp.where(there, found, jnp.zeros_like(found))
