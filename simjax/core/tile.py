"""Boxes with cells around them, in which several stencils follow on each other without an exchange in between."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain, flatten_layouts
from simjax.core.joint_sides import Joint
from simjax.grid import LOWER, UPPER
from simjax.stencil.evaluate import evaluate, trace_stencil
from simjax.stencil.kernels.operands import NotLowered
from simjax.stencil.kernels.trace_marks import kept, widened
from simjax.stencil.padding import disassembled


class Tile(Domain):
    """A box of a domain's block, stored with `depth` cells around it on every side; it never asks a neighbour.

    Every stencil leaves its `width` outermost cells without a result (zero), so that after widths of `depth` in all
    the box alone is right. Cells beyond walls are filled anew in front of every stencil. Arrays have the shape
    (..., size + 2 depth, ...) per spatial axis.
    """

    begin: tuple[int, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    walls: bool = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        depth: int,
        begin: Sequence[int] | None = None,
        sizes: Sequence[int] | None = None,
        walls: bool = True,
        implementation: str | None = None,
    ):
        """The box of `sizes` cells from cell `begin` of each of the domain's blocks on; by default the whole block.

        `walls=False`: as if there were none. `implementation`: the domain's, where it is not given.
        """
        super().__init__(domain.grid, domain.split, False, implementation or domain.implementation, 0, domain.lines)
        self.walls = walls
        self.begin = (0,) * domain.grid.ndim if begin is None else tuple(begin)
        self.sizes = domain.block_shape if sizes is None else tuple(sizes)
        self.depth = depth

    @property
    def block_shape(self):
        return tuple(n + 2 * self.depth for n in self.sizes)

    @property
    def cells_around(self):
        return self.depth

    def first_cell(self, axis):
        return self.begin[axis]

    def first_index(self, axis):
        return self.block_index(axis) * self._cells(axis) + self.begin[axis] - self.depth

    def _cells(self, axis: int) -> int:
        """Cells of a whole block."""
        return super().block_shape[axis]

    def apply(self, stencil, fields, layouts, width, t=0.0):
        """See `Domain.apply`; results are zero on the `width` outermost cells."""
        ndim = self.grid.ndim
        function = (lambda blocks: stencil(*blocks)) if isinstance(fields, tuple) else stencil
        leaves, tree = jax.tree.flatten(fields)
        leaves = self._with_walls(leaves, flatten_layouts(layouts, tree), width, t)

        def of_leaves(*blocks: Array):
            return function(jax.tree.unflatten(tree, blocks))

        leaves, ghosts = disassembled(leaves, ndim, width)
        traced = trace_stencil(of_leaves, leaves, width, ndim, self.implementation)
        found = evaluate(traced, leaves, ghosts, False)
        return jax.tree.map(lambda u: _widened(u, width, ndim), found)

    def pad(self, fields, layouts, width, t=0.0):
        """See `Domain.pad`; what no cell is stored for repeats the outermost ones."""
        leaves, tree = jax.tree.flatten(fields)
        leaves = self._with_walls(leaves, flatten_layouts(layouts, tree), width, t)
        around = [[(0, 0)] * (u.ndim - self.grid.ndim) + [(width, width)] * self.grid.ndim for u in leaves]
        return tree.unflatten([jnp.pad(u, sizes, mode="edge") for u, sizes in zip(leaves, around, strict=True)])

    def _with_walls(self, leaves: list[Array], layouts: list[FieldLayout], width: int, t) -> list[Array]:
        """The fields with the `width` lines beyond every wall that this box has cells on both sides of."""
        for axis in range(self.grid.ndim if self.walls else 0):
            wall = self.depth - self.begin[axis], self.depth - self.begin[axis] + self._cells(axis)
            for side in (LOWER, UPPER):
                leaves = self._with_wall(leaves, layouts, axis, side, wall[side], width, t)
        return leaves

    def _with_wall(
        self, leaves: list[Array], layouts: list[FieldLayout], axis: int, side: int, at: int, width: int, t
    ) -> list[Array]:
        """The fields with lines beyond the wall in front of line `at`."""
        n = self.block_shape[axis]
        beyond = min(width, at if side == LOWER else n - at)
        within = min(width + 1, n - at if side == LOWER else at)
        if beyond <= 0 or within <= 0:
            return leaves
        first, start = (at, at - beyond) if side == LOWER else (at - within, at)

        def cut(u: Array, begin: int, count: int) -> Array:
            return lax.slice_in_dim(u, begin, begin + count, axis=u.ndim + axis - self.grid.ndim)

        edges = [cut(u, first, within) for u in leaves]

        def walled(k: int, u: Array, layout: FieldLayout) -> Array:
            if layout.is_periodic(axis):
                return u
            ghosts = self._at_side(edges[k], layout, axis, side, beyond, t, cut(u, start, beyond))
            return lax.dynamic_update_slice_in_dim(u, ghosts, start, u.ndim + axis - self.grid.ndim)

        return [walled(k, *both) for k, both in enumerate(zip(leaves, layouts, strict=True))]

    def beside(self, fields, layouts, axis, width=1, t=0.0):
        """See `Domain.beside`; what no cell is stored for repeats the outermost ones."""
        where = axis - self.grid.ndim
        ends = [(lax.slice_in_dim(u, k, k + 1, axis=u.ndim + where) for k in (0, u.shape[where] - 1)) for u in fields]
        return [tuple(jnp.concatenate([line] * width, axis=where) for line in both) for both in ends]


class Unbounded(Domain):
    """A domain without sides, for tracing alone: stencils of a cell far from every side.

    See `stencil.kernels.trace_marks`.
    """

    allows_loops = False

    def __init__(self, domain: Domain):
        super().__init__(domain.grid, domain.split, lines=domain.lines)

    def apply(self, stencil, fields, layouts, width, t=0.0):
        """See `Tile.apply`.

        Raises:
            NotLowered: the ghost cells of a side read more cells along the side than the stencil does.
        """
        self._check(fields, layouts)
        fields = jax.tree.map(kept, fields)
        found = stencil(*fields) if isinstance(fields, tuple) else stencil(fields)
        return jax.tree.map(lambda u: widened(u, width, self.grid.ndim), found)

    def pad(self, fields, layouts, width, t=0.0):
        """See `Tile.pad`.

        Raises:
            NotLowered: as for `apply`.
        """
        self._check(fields, layouts)
        return jax.tree.map(lambda u: widened(kept(u), width, self.grid.ndim), fields)

    def _check(self, fields, layouts) -> None:
        of_all = flatten_layouts(layouts, jax.tree.structure(fields))
        if any(isinstance(side, Joint) for layout in of_all for both in layout.boundaries for side in both):
            raise NotLowered("ghost cells of characteristic sides, which read cells along their side")


def _widened(u: Array, width: int, ndim: int) -> Array:
    return lax.pad(u, jnp.zeros((), u.dtype), [(0, 0, 0)] * (u.ndim - ndim) + [(width, width, 0)] * ndim)
