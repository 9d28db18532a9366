"""The box of cells around bodies, outside of which nothing knows of them: their algebra is done in it alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.ops.spacing import Spacing
from simjax.stencil.formulation import stores_values

MARGIN = 3
"""Cells around those whose centre lies within a cell of a surface or in a body: coefficients reach two of them."""


@dataclass(frozen=True)
class Box:
    """Cells from `start` to before `stop` of a block, by axis: the same on all blocks.

    block: cells of a block.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Tell whether it is all of the block."""
        return not any(self.start) and self.stop == self.block

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(last - first for first, last in zip(self.start, self.stop, strict=True))

    def cut(self, u: Array, ghosts: int = 0) -> Array:
        """The part in the box, with `ghosts` cells more all around, of what has so many more than the block.

        Along axes of which it has one line, it stays as it is.
        """
        if self.whole or u.ndim == 0:
            return u
        lines = [n == 1 and n != own + 2 * ghosts for n, own in zip(u.shape, self.block, strict=True)]
        first = [0 if line else k for line, k in zip(lines, self.start, strict=True)]
        last = [1 if line else k + 2 * ghosts for line, k in zip(lines, self.stop, strict=True)]
        return lax.slice(u, first, last)

    def lines(self, spacing: Sequence[Spacing]) -> tuple[Spacing, ...]:
        """Widths of the cells in the box, of those of the block."""
        return tuple(self.cut(h) if isinstance(h, Array) else h for h in spacing)

    @property
    def inset(self) -> bool:
        """Tell whether the block has cells on all sides of it."""
        return all(first > 0 for first in self.start) and all(np.less(self.stop, self.block))

    def with_neighbours(
        self, domain: Domain, fields: Sequence[Array], layouts: Sequence[FieldLayout], t=0.0
    ) -> tuple[Array, ...]:
        """The part of fields in the box, with one cell more all around."""
        if self.inset:
            first, last = [k - 1 for k in self.start], [k + 1 for k in self.stop]
            return tuple(lax.slice(u, first, last) for u in fields)
        return tuple(self.cut(u, 1) for u in domain.pad(tuple(fields), tuple(layouts), 1, t))

    def changed_with_neighbours(
        self, domain: Domain, fields: Sequence[Array], parts: Sequence[Array], layouts: Sequence[FieldLayout], t=0.0
    ) -> tuple[Array, ...]:
        """`with_neighbours` of fields with `parts` in the place of what is in the box."""
        if self.inset:
            within = Box((1,) * len(self.block), tuple(n + 1 for n in self.shape), tuple(n + 2 for n in self.shape))
            return tuple(map(within.put, self.with_neighbours(domain, fields, layouts, t), parts))
        return self.with_neighbours(domain, tuple(map(self.put, fields, parts)), layouts, t)

    def put(self, u: Array, part: Array) -> Array:
        """A field with `part` in the place of what is in the box."""
        if self.whole:
            return part
        if stores_values():
            return lax.dynamic_update_slice(u, part, self.start)
        return jnp.where(self._inside(), self.spread(part), u)

    def added(self, u: Array, part: Array) -> Array:
        """A field with `part` added in the box."""
        if self.whole:
            return u + part
        if stores_values():
            return lax.dynamic_update_slice(u, self.cut(u) + part, self.start)
        return u + self.spread(part)

    def spread(self, part: Array) -> Array:
        """A field that is zero outside of the box."""
        if self.whole:
            return part
        ends = zip(self.start, self.stop, self.block, strict=True)
        return lax.pad(part, jnp.zeros((), part.dtype), [(first, n - last, 0) for first, last, n in ends])

    def _inside(self) -> Array:
        inside = jnp.ones((), bool)
        for axis, (first, last, n) in enumerate(zip(self.start, self.stop, self.block, strict=True)):
            place = np.arange(n).reshape([n if k == axis else 1 for k in range(len(self.block))])
            inside = inside & jnp.asarray((place >= first) & (place < last))
        return inside


@dataclass(frozen=True)
class Known:
    """Knowledge of bodies that do not move, whatever numbers a run is given.

    beside: at least the number of cells that their surface alters. joined: whether the fluid is one region. box: around
    them.
    """

    beside: int
    joined: bool
    box: Box


def all_of(domain: Domain) -> Box:
    """The box that is the whole block."""
    return Box((0,) * domain.grid.ndim, domain.block_shape, domain.block_shape)


def box_around(domain: Domain, distance: np.ndarray, periodic: Sequence[bool]) -> Box:
    """The smallest box for bodies at this distance from the cells of the whole grid.

    All blocks have the same one in their own count of cells, which holds what any of them has of bodies.
    """
    near = np.zeros(distance.shape, bool)
    for axis in range(distance.ndim):
        ends = [(int(k == axis),) * 2 for k in range(distance.ndim)]
        wide = np.pad(distance, ends, mode="wrap" if periodic[axis] else "edge")
        step = np.abs(np.diff(wide, axis=axis))
        n = distance.shape[axis]
        steepest = np.maximum(np.take(step, range(n), axis), np.take(step, range(1, n + 1), axis))
        near |= distance <= steepest
    start, stop = [], []
    for axis, (n, own) in enumerate(zip(distance.shape, domain.block_shape, strict=True)):
        line = near.any(tuple(k for k in range(distance.ndim) if k != axis))
        wide = np.pad(line, MARGIN, mode="wrap" if periodic[axis] else "constant")
        line = np.any([wide[k : k + n] for k in range(2 * MARGIN + 1)], axis=0)
        found = np.flatnonzero(line.reshape(-1, own).any(0))
        start.append(int(found[0]) if found.size else 0)
        stop.append(int(found[-1]) + 1 if found.size else 1)
    return Box(tuple(start), tuple(stop), domain.block_shape)
