"""The one place that knows who the neighbour is: ghost cells, exchange between devices, global reductions."""

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from simjax.arguments import require_kind
from simjax.core.block_sizes import not_divisible, thicker_blocks
from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.joint_sides import joint_ghosts
from simjax.core.neighbors import exchanged
from simjax.core.stretched import Places, as_array, image_distances, places_around, widths_around
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, FACE, LOWER, UPPER, Grid
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.varying import cast_varying, vary_like, varying_axes
from simjax.notebook import all_in_a_line
from simjax.stencil.evaluate import evaluate, trace_stencil
from simjax.stencil.padding import Reach, Sides, lines, padded, reach_of, with_edges

Split = tuple[str, int] | None


class Domain(eqx.Module):
    """A grid and how it is cut over a device mesh; the only class that exchanges data between devices.

    `split` has one entry per spatial axis: None, or (mesh axis name, number of blocks). Inside `shard_map` every
    array is this device's block; with `split` all None the block is the whole grid. Spatial axes are the last
    `grid.ndim` axes of every array, whatever stands before them.

    `overlap=True` computes the part of a stencil that needs no ghost cells independently of the exchange, so
    that a compiler with asynchronous collectives can hide the communication behind it. `implementation="pallas"`
    makes each stencil one kernel for the accelerator, interpreted on a CPU. `steps_per_exchange` above zero says how
    many steps are taken between two exchanges, on blocks with as many ghost cells as these steps need (`blocking`).
    `lines`: for each axis None or (faces, centres), which take the place of those of a stretched axis of the grid, as
    `grid.Lines` has them; they may be traced, so that gradients with respect to the stretching flow.

    Examples:
        >>> domain = sj.Domain(sj.Grid((16, 16)))
        >>> x, y = domain.coordinates((0.5, 0.5))  # of cell centres
        >>> bool(jnp.isclose(domain.mean(x + y), 1.0))
        True
    """

    grid: Grid
    lines: tuple[tuple[Array, Array] | None, ...]
    split: tuple[Split, ...] = eqx.field(static=True)
    overlap: bool = eqx.field(static=True)
    implementation: str = eqx.field(static=True)
    steps_per_exchange: int = eqx.field(static=True)
    allows_loops: ClassVar[bool] = True

    def __init__(
        self,
        grid: Grid,
        split: Sequence[Split] | None = None,
        overlap: bool = False,
        implementation: str = "xla",
        steps_per_exchange: int = 0,
        lines: Sequence[tuple[Array, Array] | None] | None = None,
    ):
        require_kind("Domain.grid", grid, Grid, "a Grid; write Domain(Grid((16, 16)))")
        self.grid = grid
        self.lines = tuple(lines) if lines is not None else (None,) * grid.ndim
        self.split = tuple(split) if split is not None else (None,) * grid.ndim
        self.overlap = overlap
        self.implementation = implementation
        self.steps_per_exchange = steps_per_exchange

    def __check_init__(self):
        if len(self.split) != self.grid.ndim or not all(isinstance(one, tuple | None) for one in self.split):
            raise ConfigurationError(
                f"Domain.split={self.split}: expected ('x', 2), mesh axis and count, or None for {self.grid.ndim} axes."
            )
        for axis, entry in enumerate(self.split):
            if entry is not None and self.grid.shape[axis] % entry[1]:
                raise ConfigurationError(not_divisible(axis, self.grid.shape[axis], *entry))

    __repr__ = all_in_a_line

    # ------------------------------------------------------------------ geometry

    @property
    def names(self) -> tuple[str, ...]:
        """Mesh axes over which the grid is cut."""
        return tuple(entry[0] for entry in self.split if entry is not None)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Cells of one device's block, per spatial axis."""
        return tuple(n // _count(entry) for n, entry in zip(self.grid.shape, self.split, strict=True))

    def spec(self, ndim: int | None = None) -> PartitionSpec:
        """PartitionSpec of an array of rank `ndim` whose last axes are spatial."""
        ndim = self.grid.ndim if ndim is None else ndim
        names = tuple(None if entry is None else entry[0] for entry in self.split)
        return PartitionSpec(*(None,) * (ndim - self.grid.ndim), *names)

    def unsplit(self) -> "Domain":
        """The same grid on one device (or left to the compiler's partitioner)."""
        return Domain(self.grid, None, self.overlap, self.implementation, self.steps_per_exchange, self.lines)

    def block_index(self, axis: int) -> Array | int:
        """Index along `axis` of the block that this device holds."""
        entry = self.split[axis]
        return 0 if entry is None else lax.axis_index(entry[0])

    def first_index(self, axis: int) -> Array | int:
        """Global index of the first stored cell along `axis`."""
        return self.block_index(axis) * self.block_shape[axis]

    def coordinates(
        self, offset: Sequence[float], dtype=None, ghosts: Sequence[int] | None = None, periodic: Sequence[int] = ()
    ) -> tuple[Array, ...]:
        """This block's positions for a field at `offset`: one array per axis, shaped to broadcast.

        Positions are formed from the global integer index, so they do not depend on the decomposition.
        `ghosts` adds that many positions at both ends of each axis; along `periodic` axes these are the same places.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        ghosts = (0,) * self.grid.ndim if ghosts is None else ghosts
        result = []
        for axis, (n, w) in enumerate(zip(self.block_shape, ghosts, strict=True)):
            if self.grid.stretch[axis] is not None:
                result.append(self._stretched_places(axis, offset[axis], dtype, w, axis in periodic))
                continue
            index = self.first_index(axis) + jnp.arange(-w, n + w, dtype=jnp.int32)
            index = jnp.mod(index, self.grid.shape[axis]) if axis in periodic else index
            shape = tuple(n + 2 * w if k == axis else 1 for k in range(self.grid.ndim))
            x = self.grid.lower[axis] + (index.astype(dtype) + offset[axis]) * self.grid.mean_spacing[axis]
            result.append(x.reshape(shape))
        return tuple(result)

    # ------------------------------------------------------------------ stretched axes

    def spacing(self, layout: FieldLayout, ghosts: int = 0, dtype=None) -> tuple[float | Array, ...]:
        """Widths of cells along every axis: the grid's number, or (1, ..., n + 2 ghosts, ..., 1) of this block's cells.

        layout: of a field with these cells, which says along which axes they are periodic.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        found: list[float | Array] = list(self.grid.mean_spacing)
        for axis in self.grid.stretched:
            margin = ghosts + self.cells_around
            widths = widths_around(self._line(axis)[0], margin, layout.is_periodic(axis))
            found[axis] = self._along(widths, axis, ghosts, margin, dtype)
        return tuple(found)

    def apply_spaced(self, stencil: Callable, fields, layouts, width: int, t=0.0):
        """`apply` of a stencil whose last argument is the spacing: a number, or a padded block of the cells' widths.

        There is one entry for each axis; blocks of widths stand where the grid is stretched.
        """
        if not self.grid.stretched:
            return self.apply(lambda *padded: stencil(*padded, self.grid.mean_spacing), fields, layouts, width, t)
        leaves, tree = jax.tree.flatten(fields)
        kinds = flatten_layouts(layouts, tree)
        mirrored = center_layout(
            [
                (Periodic(), Periodic()) if kinds[0].is_periodic(k) else (Neumann(), Neumann())
                for k in range(self.grid.ndim)
            ]
        )
        axes, numbers = self.grid.stretched, self.grid.mean_spacing
        known = self.spacing(kinds[0], 0, leaves[0].dtype)
        # Alike in what varies between devices: the adjoint of a stencil gives all its fields cotangents that do.
        widths = vary_like(tuple(jnp.broadcast_to(known[axis], self.block_shape) for axis in axes), leaves)

        def with_spacing(*blocks: Array):
            of_axis = dict(zip(axes, blocks[len(leaves) :], strict=True))
            spacing = tuple(of_axis.get(axis, h) for axis, h in enumerate(numbers))
            padded = tree.unflatten(blocks[: len(leaves)])
            return stencil(*padded, spacing) if isinstance(fields, tuple) else stencil(padded, spacing)

        return self.apply(with_spacing, (*leaves, *widths), (*kinds, *(mirrored,) * len(widths)), width, t)

    def wall_spacing(self, axis: int, dtype) -> tuple[float | Array, float | Array]:
        """Widths of the first and of the last cell, so far are the first ghosts beyond walls from their images."""
        if self.grid.stretch[axis] is None:
            return self.grid.mean_spacing[axis], self.grid.mean_spacing[axis]
        faces = self._line(axis)[0]
        return as_array(faces[1] - faces[0], dtype), as_array(faces[-1] - faces[-2], dtype)

    @property
    def cells_around(self) -> int:
        """Cells beside this device's own that its block is stored with."""
        return 0

    def first_cell(self, axis: int) -> int:
        """Number within a device's block of the first cell that is stored without those around it."""
        return 0

    def _line(self, axis: int) -> tuple[Places, Places]:
        """Faces and centres of all cells along a stretched axis."""
        line = self.grid.stretch[axis]
        assert line is not None
        return self.lines[axis] or (np.asarray(line.faces), np.asarray(line.centers))

    def _stretched_places(self, axis: int, offset: float, dtype, ghosts: int, periodic: bool) -> Array:
        """Places along a stretched axis; of ghost cells along a periodic one those of the same cells inside."""
        faces, centers = self._line(axis)
        margin = ghosts + self.cells_around
        places = centers if offset == CENTER else faces
        if periodic:
            n = faces.shape[0] - 1
            around = places[np.arange(-margin, n + margin) % n]
        else:
            around = places_around(places, faces, margin, False)
        return self._along(around, axis, ghosts, margin, dtype)

    def _along(self, places: Places, axis: int, ghosts: int, margin: int, dtype) -> Array:
        """Cut this block's part from an array along an axis that begins `margin` cells before the grid's first cell."""
        size = self.block_shape[axis] + 2 * ghosts
        entry, cells = self.split[axis], self.grid.shape[axis] // _count(self.split[axis])
        first = margin - ghosts - self.cells_around + self.first_cell(axis)
        own = as_array(places[first : first + size], dtype)
        if entry is not None:  # chosen among all blocks': jax has no slice that begins at another place on each device
            number = lax.broadcasted_iota(jnp.int32, (entry[1], 1), 0)
            blocks = [places[first + k * cells : first + k * cells + size] for k in range(entry[1])]
            whole = jnp.stack([as_array(block, dtype) for block in blocks])
            own = jnp.sum(jnp.where(number == self.block_index(axis), whole, 0), axis=0)
        return own.reshape(tuple(size if k == axis else 1 for k in range(self.grid.ndim)))

    # ------------------------------------------------------------------ ghost cells

    def pad(self, fields, layouts, width: int, t=0.0):
        """Each field with `width` ghost cells on every side: `(..., n + 2 width, ...)` per spatial axis.

        `fields` is an array or a tree of arrays, `layouts` a `FieldLayout` or a tree of them in step with it.
        Axes are padded one after the other over already padded arrays, so corners are right without messages of
        their own, and all fields share one message per axis and direction.
        """
        leaves, tree = jax.tree.flatten(fields)
        return jax.tree.unflatten(tree, padded(*self.around(leaves, flatten_layouts(layouts, tree), width, t), width))

    def around(
        self, leaves: list[Array], kinds: list[FieldLayout], width: int, t=0.0, reaches: Sequence[Reach] | None = None
    ) -> tuple[list[Array], list[list[Sides]]]:
        """The fields, and the ghost lines of each along each axis; those of an axis hold those of the axes before.

        reaches: of each field, which ghost cells are read; neighbours send no others, in whose place are own cells.
        """
        ndim = self.grid.ndim
        reaches = reaches or [reach_of(width, ndim)] * len(leaves)
        leaves, edges = with_edges(leaves, range(ndim), ndim, width + 1)
        ghosts: list[list[Sides]] = [[] for _ in leaves]
        for axis in range(ndim):
            ends, read = [pieces[axis] for pieces in edges], [reach[axis] for reach in reaches]
            for pieces, piece in zip(ghosts, self._ghosts(ends, ghosts, kinds, axis, width, t, read), strict=True):
                pieces.append(piece)
        return leaves, ghosts

    @part("halo exchange")
    def _ghosts(self, ends: list[Sides], ghosts, layouts, axis: int, width: int, t, read) -> list[Sides]:
        """Ghost lines of every field along `axis`, given its `ends`, and the ghost lines along the axes before it."""
        n = self.block_shape[axis]
        # A face field's ghosts at a wall mirror lines 1..width: line 0 is the wall itself.
        at_wall = any(layout.offset[axis] == FACE and not layout.is_periodic(axis) for layout in layouts)
        needed = width + 1 if at_wall and self.split[axis] is not None else width
        if n < needed:
            raise ConfigurationError(
                f"A block has {n} cells along {AXES[axis]}, fewer than the {needed} that a stencil with a halo of "
                f"{width} needs; {thicker_blocks(axis, self.grid.shape[axis], needed)}."
            )
        if width == 0:  # no ghost cells: nothing is exchanged, and no side is asked for any
            empty = [lax.slice_in_dim(u, 0, 0, axis=u.ndim + axis - self.grid.ndim) for u, _ in ends]
            return [(u, u) for u in empty]
        edge = min(width + 1, n)
        lowest = [lines(u, g, axis, self.grid.ndim, 0, edge) for (u, _), g in zip(ends, ghosts, strict=True)]
        highest = [lines(u, g, axis, self.grid.ndim, n - edge, n) for (_, u), g in zip(ends, ghosts, strict=True)]
        where = axis - self.grid.ndim
        first = [lax.slice_in_dim(e, 0, width, axis=e.ndim + where) for e in lowest]
        last = [lax.slice_in_dim(e, edge - width, edge, axis=e.ndim + where) for e in highest]
        entry = self.split[axis]
        if entry is None:
            below, above = last, first
        else:
            periodic = any(layout.is_periodic(axis) for layout in layouts)
            below, above = exchanged(first, last, where, entry, periodic, read)
        together = [joint_ghosts(self, e, layouts, axis, s, width, t) for s, e in ((LOWER, lowest), (UPPER, highest))]
        result = []
        for k, layout in enumerate(layouts):
            if layout.is_periodic(axis):
                result.append((below[k], above[k]))
            else:
                lower = self._at_side(lowest[k], layout, axis, LOWER, width, t, below[k], together[LOWER].get(k))
                upper = self._at_side(highest[k], layout, axis, UPPER, width, t, above[k], together[UPPER].get(k))
                result.append((lower, upper))
        return result

    def beside(self, fields, layouts, axis: int, width: int = 1, t=0.0) -> list[Sides]:
        """The `width` ghost lines of each field along one axis, without corners."""
        leaves, tree = jax.tree.flatten(fields)
        edges = with_edges(leaves, [axis], self.grid.ndim, width + 1)[1]
        ends = [pieces[0] for pieces in edges]
        read = [(width, width)] * len(leaves)
        return self._ghosts(ends, [[] for _ in leaves], flatten_layouts(layouts, tree), axis, width, t, read)

    def _at_side(
        self, edge: Array, layout: FieldLayout, axis: int, side: int, width: int, t, neighbour, joint=None
    ) -> Array:
        """Ghost lines at one side: the boundary's where this block touches the side, else the neighbour's.

        joint: those that a rule for several fields gives, nearest to the side first.
        """
        array_axis = edge.ndim + axis - self.grid.ndim
        ghost = joint
        if ghost is None:
            ghost = layout.boundaries[axis][side].ghost(
                edge if side == LOWER else lax.rev(edge, (array_axis,)),
                axis=axis,
                side=side,
                offset=layout.offset[axis],
                width=width,
                t=t,
                spacing=self.side_spacing(edge, layout, axis, side, width),
                positions=functools.partial(self.side_positions, edge, layout, axis, side),
            )
        if side == LOWER and width > 1:
            ghost = lax.rev(ghost, (array_axis,))
        if self.split[axis] is None:
            return ghost
        outermost = 0 if side == LOWER else _count(self.split[axis]) - 1
        return jnp.where(self.block_index(axis) == outermost, ghost, neighbour)

    def side_spacing(self, edge: Array, layout: FieldLayout, axis: int, side: int, width: int):
        """The spacing that `Boundary.ghost` takes at a side."""
        spacing: list[float | Array] = list(self.grid.mean_spacing)
        if self.grid.stretch[axis] is not None:
            along = image_distances(self._line(axis)[0], side, width, layout.offset[axis] == FACE)
            shape = tuple(width if k == axis else 1 for k in range(self.grid.ndim))
            spacing[axis] = as_array(along, edge.dtype).reshape((1,) * (edge.ndim - self.grid.ndim) + shape)
        return tuple(spacing)

    def side_positions(self, u: Array, layout: FieldLayout, axis: int, side: int) -> tuple[Array, ...]:
        """Coordinates of the side's plane for `u`, which may carry ghost cells along other axes."""
        spatial = u.shape[u.ndim - self.grid.ndim :]
        ghosts = [(have - n) // 2 for have, n in zip(spatial, self.block_shape, strict=True)]
        ghosts[axis] = 0
        periodic = [k for k in range(self.grid.ndim) if layout.is_periodic(k)]
        x = list(self.coordinates(layout.offset, u.dtype, ghosts, periodic))
        x[axis] = jnp.full((1,) * self.grid.ndim, (self.grid.lower, self.grid.upper)[side][axis], u.dtype)
        return tuple(x)

    def impose(self, fields, layouts, t=0.0):
        """Fields with the lower wall faces they store set to what their boundaries prescribe."""
        leaves, tree = jax.tree.flatten(fields)
        kinds = flatten_layouts(layouts, tree)
        return jax.tree.unflatten(tree, [self._impose(u, k, t) for u, k in zip(leaves, kinds, strict=True)])

    def _impose(self, u: Array, layout: FieldLayout, t) -> Array:
        for axis in range(self.grid.ndim):
            value = self.prescribed(u, layout, axis, LOWER, t)
            if value is None:
                continue
            n = self.block_shape[axis]
            shape = tuple(n if k == u.ndim + axis - self.grid.ndim else 1 for k in range(u.ndim))
            on_side = (self.first_index(axis) + jnp.arange(n, dtype=jnp.int32)).reshape(shape) == 0
            u = jnp.where(on_side, value, u)
        return u

    def prescribed(self, u, layout: FieldLayout, axis: int, side: int, t=0.0) -> Array | None:
        """The value prescribed for `u` on the faces in a side, to broadcast against one line; None where it is free."""
        if layout.offset[axis] != FACE or layout.is_periodic(axis):
            return None
        positions = functools.partial(self.side_positions, u, layout, axis, side)
        return layout.boundaries[axis][side].imposed(t=t, positions=positions, like=u)

    # ------------------------------------------------------------------ stencils

    def apply(self, stencil: Callable, fields, layouts, width: int, t=0.0):
        """`stencil` evaluated at every cell.

        Args:
            stencil: pure, translation-invariant function from padded fields (the tree of `fields`, every spatial
                axis longer by `2 width`) to arrays on the interior; called as `stencil(*fields)` for a tuple.
            fields: array, or tuple of arrays of this block.
            layouts: `FieldLayout`, or a tuple in step with `fields`.
            width: ghost cells the stencil needs on every side; 0: each cell by itself, whatever the sides are.
            t: time, for boundary values that depend on it.

        Returns:
            What `stencil` returns, on this block's interior.
        """
        function = (lambda padded: stencil(*padded)) if isinstance(fields, tuple) else stencil
        leaves, tree = jax.tree.flatten(fields)
        if width:
            # As neighbours' cells do; what only own cells are read of is then of the same type.
            leaves = [cast_varying(u, self.names) for u in leaves]
        overlap = self.overlap and width > 0 and all(n > 2 * width for n in self.block_shape)

        def of_leaves(*blocks: Array):
            return function(jax.tree.unflatten(tree, blocks))

        traced = trace_stencil(of_leaves, leaves, width, self.grid.ndim, self.implementation)
        leaves, ghosts = self.around(leaves, flatten_layouts(layouts, tree), width, t, traced.reaches)
        return evaluate(traced, leaves, ghosts, overlap)

    # ------------------------------------------------------------------ whole fields

    def gather(self, field: Array) -> Array:
        """The field of the whole grid, on every device: for grids too small to be worth cutting."""
        for axis, entry in enumerate(self.split):
            if entry is not None:
                field = lax.all_gather(field, entry[0], axis=field.ndim + axis - self.grid.ndim, tiled=True)
        return field

    def scatter(self, field: Array) -> Array:
        """This device's block of a field of the whole grid that every device holds."""
        for axis, n in enumerate(self.block_shape):
            if self.split[axis] is not None:
                start = self.block_index(axis) * n
                field = lax.dynamic_slice_in_dim(field, start, n, axis=field.ndim + axis - self.grid.ndim)
        return field

    def reflect(self, field: Array, axis: int) -> Array:
        """The field mirrored at the middle of `axis`: cell n - 1 - i in the place of cell i."""
        field = lax.rev(field, (field.ndim + axis - self.grid.ndim,))
        entry = self.split[axis]
        if entry is None:
            return field
        name, count = entry
        return lax.ppermute(field, name, [(k, count - 1 - k) for k in range(count)])

    def last_line(self, field: Array, axis: int) -> Array:
        """The last line of the whole grid along an axis, one cell thick, on every block along it."""
        n, where = field.shape[axis - self.grid.ndim], field.ndim + axis - self.grid.ndim
        line, entry = lax.slice_in_dim(field, n - 1, n, axis=where), self.split[axis]
        if entry is None:
            return line
        name, count = entry
        return lax.psum(jnp.where(lax.axis_index(name) == count - 1, line, jnp.zeros_like(line)), name)

    # ------------------------------------------------------------------ reductions

    def total(self, partial, axes: Sequence[int] | None = None):
        """Sum over the blocks (along `axes`) of what each has added up of its cells: an array or a tree, by entry."""
        names = self.names if axes is None else tuple(entry[0] for k in axes if (entry := self.split[k]) is not None)
        if not names:
            return partial
        return lax.psum(jax.tree.map(self._of_all_axes, partial), names)

    def _of_all_axes(self, partial: Array) -> Array:
        """A value that depends on some of the axes that are cut, typed as varying over all, as collectives ask."""
        return cast_varying(partial, self.names) if {*self.names} & varying_axes(partial) else partial

    def sum(self, field) -> Array:
        """Sum of a field (or a tree of fields) over the whole grid."""
        return self.total(jnp.asarray(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(field))))

    def mean(self, field: Array) -> Array:
        """Mean of a field over the whole grid."""
        return self.sum(field) / self.grid.cells

    def dot(self, a, b) -> Array:
        """Sum over the whole grid of the products of two fields (or trees of fields)."""
        return self.sum(jax.tree.map(jnp.multiply, a, b))

    def max(self, field) -> Array:
        """Largest value over the whole grid, NaN if there is one anywhere; carries no gradient."""
        result = self._of_all_axes(jnp.max(lax.stop_gradient(field)))
        if not self.names:
            return result
        if not jnp.issubdtype(result.dtype, jnp.floating):
            return lax.pmax(result, self.names)
        # Between devices a maximum passes over NaN, which then would depend on the decomposition: it goes beside.
        broken = jnp.isnan(result)
        both = jnp.stack([jnp.where(broken, -jnp.inf, result), broken.astype(result.dtype)])
        value, broken = lax.pmax(both, self.names)
        return jnp.where(broken > 0, jnp.nan, value)

    def min(self, field) -> Array:
        """Smallest value over the whole grid; carries no gradient."""
        return -self.max(-jnp.asarray(field))

    def anywhere(self, condition: Array) -> Array:
        """Tell whether a scalar holds on any device, for any member: all agree, so a loop may depend on it."""
        names = tuple(sorted(varying_axes(condition)))
        return lax.psum(condition.astype(jnp.int32), names) > 0 if names else condition


def _count(entry: Split) -> int:
    return 1 if entry is None else entry[1]


def flatten_layouts(layouts, tree) -> list[FieldLayout]:
    """Layouts of the arrays of a tree, one per array: a single layout serves every array of the tree."""
    if isinstance(layouts, FieldLayout):
        return [layouts] * tree.num_leaves
    kinds = jax.tree.leaves(layouts, is_leaf=lambda node: isinstance(node, FieldLayout))
    if len(kinds) != tree.num_leaves:
        raise ConfigurationError(f"{tree.num_leaves} fields need as many layouts; got {len(kinds)}.")
    return kinds
