"""Sums over many candidates of every particle as one operation, of which XLA makes one kernel for a GPU.

A group of threads adds up the candidates of one particle. In the code that was looked at, for 88 to 141 candidates of
4000 particles and more, the order follows from their number alone; of fewer, XLA may cut the work in another way. What
is looked up of a candidate lies in one row of a table, cell by cell: it is loaded at once, and near particles lie near.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.particles.cells import Cells

COPIES = 16
"""Sums of one expression that get a copy of it each. Of more, XLA stores what several of them share: its time would
follow their number."""


class Table:
    """Values of every slot of the padded block, to be looked up: the arrays `(..., *cells.padded_shape)` of a tree.

    Of each dtype there is one array `(slots, components)`, formed before anything is looked up in it.
    """

    def __init__(self, cells: Cells, tree: Any):
        leaves, self._tree = jax.tree.flatten(tree)
        ndim = len(cells.padded_shape)
        self._leads = [u.shape[: u.ndim - ndim] for u in leaves]
        self._kinds: dict[Any, list[int]] = {}
        for k, leaf in enumerate(leaves):
            self._kinds.setdefault(leaf.dtype, []).append(k)
        rows = [_rows(cells, [leaves[k] for k in members]) for members in self._kinds.values()]
        self._rows = lax.optimization_barrier(rows)

    def at(self, index: Array) -> Any:
        """The tree of values at the numbers `index` of slots as `by_cell` counts them: arrays `(..., *index.shape)`."""
        found: list[Any] = [None] * len(self._leads)
        for rows, members in zip(self._rows, self._kinds.values(), strict=True):
            entries, first = rows.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), 0
            for k in members:
                last = first + math.prod(self._leads[k])
                one = [entries[..., component] for component in range(first, last)]
                found[k] = jnp.stack(one).reshape(*self._leads[k], *index.shape)
                first = last
        return jax.tree.unflatten(self._tree, found)


def _rows(cells: Cells, leaves: list[Array]) -> Array:
    components = [u.reshape(-1, *cells.padded_shape) for u in leaves]
    stacked = jnp.moveaxis(jnp.concatenate(components), (0, 1), (-1, -2)).reshape(-1, sum(map(len, components)))
    count = stacked.shape[1]
    # A row of two, or of fours, is loaded by one instruction.
    width = count if count <= 2 else 4 * math.ceil(count / 4)
    return jnp.pad(stacked, [(0, 0), (0, width - count)])


def by_cell(cells: Cells, slot: Array) -> Array:
    """Numbers of slots of the padded block counted cell by cell, from positions in the flattened padded block."""
    cells_padded = math.prod(cells.padded_shape[1:])
    # Without a sign, as division is quicker so.
    place = slot.astype(jnp.uint32)
    return (place % cells_padded * cells.capacity + place // cells_padded).astype(jnp.int32)


def summed(of: Callable[[Array], Any], index: Array) -> Any:
    """Sums over the last axis of what `of` makes of numbers of slots, or of others, `(particles, candidates)`.

    Args:
        of: from such numbers to a tree of arrays `(..., particles, candidates)`, element by element.
        index: int32.

    Returns:
        The tree with arrays `(..., particles)`.
    """
    of = jax.jit(of, inline=True)  # traced once
    shapes, tree = jax.tree.flatten(jax.eval_shape(of, index))
    counts = [math.prod(shape.shape[:-2]) for shape in shapes]
    if sum(counts) > COPIES:
        return jax.tree.map(lambda u: jnp.sum(u, axis=-1), of(index))
    results, copy = [], 0
    for k, (shape, count) in enumerate(zip(shapes, counts, strict=True)):
        sums = []
        for component in range(count):
            found = jax.tree.leaves(of(_copied(index, copy)))[k].reshape(-1, *shape.shape[-2:])
            sums.append(jnp.sum(found[component], axis=-1))
            copy += 1
        results.append(jnp.stack(sums).reshape(shape.shape[:-1]) if sums else jnp.zeros(shape.shape[:-1], shape.dtype))
    return jax.tree.unflatten(tree, results)


def _copied(index: Array, number: int) -> Array:
    """`index` by an expression of its own for each number.

    Where several sums read a value, XLA fuses it into one of them and stores it for the others, or stores it for all,
    as it thinks that each would compute it anew. So it is shown an expression for each sum that nothing else reads, and
    fuses all of it; it does not know that bits which cannot be set add nothing. The compiler of the kernel does, and
    computes what the expressions share once.
    """
    return index + lax.shift_right_logical((index & 1) + number, jnp.full_like(index, 8)) if number else index
