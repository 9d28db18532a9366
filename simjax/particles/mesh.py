"""Particles and fields on a mesh: what particles carry is deposited on the nodes around them, fields come back.

A particle is stored in a cell and reaches nodes in it and in the next ones only. For each node around a cell the
weights of the cell's slots are summed: a dense product, no scatter and no atomics. Sums over slots and over
neighbouring cells are taken in one order, whatever the decomposition. Fields depend on the mesh, and not on the cells,
which may follow the decomposition.
Hockney and Eastwood (1988), Computer Simulation Using Particles, chapter 5.
"""

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from simjax.arguments import require_one_of
from simjax.core.boundary import Periodic, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, Grid
from simjax.jaxpr.linear_map import linear_map
from simjax.jaxpr.platform import one_pass
from simjax.notebook import all_in_a_line
from simjax.particles.cells import Cells, require_cells
from simjax.particles.mesh_nodes import Nodes
from simjax.particles.mesh_sums import products, summed_over_nodes


def _nearest(d: Array) -> Array:
    return jnp.where((d >= -0.5) & (d < 0.5), jnp.ones_like(d), jnp.zeros_like(d))


def _cloud(d: Array) -> Array:
    return jnp.maximum(1 - jnp.abs(d), 0)


def _triangle(d: Array) -> Array:
    far = jnp.maximum(1.5 - jnp.abs(d), 0)
    return jnp.where(jnp.abs(d) < 0.5, 0.75 - d * d, 0.5 * far * far)


def _cubic(d: Array) -> Array:
    a = jnp.abs(d)
    far = jnp.maximum(2 - a, 0)
    return jnp.where(a < 1, 2 / 3 + a * a * (0.5 * a - 1), far * far * far / 6)


SHAPES: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "ngp": (0.5, _nearest),
    "cic": (1.0, _cloud),
    "tsc": (1.5, _triangle),
    "pcs": (2.0, _cubic),
}
"""Name -> how far a particle reaches and its weight at a distance, both in mesh cells: nearest grid point, cloud in
cell, triangular-shaped cloud, piecewise cubic spline."""


class ParticleMesh(eqx.Module):
    """A periodic mesh over the box of the particle cells, cut over devices as they are.

    finer: mesh cells in each particle cell along every axis, or a tuple: those of the whole mesh along each axis, no
    fewer than there are particle cells, and a whole number on every device. shape: a name in `SHAPES`. offset: where
    the nodes are in their mesh cells, per axis. stray: how far particles may lie outside the cell in which they are
    stored, in mesh cells. Values of particles further out become NaN rather than be lost. With nodes at `CENTER` and
    "cic", or at `FACE` and "tsc", a stray of 1/2 costs nothing where cells are whole numbers of mesh cells.

    Examples:
        >>> cells = sj.Cells(sj.Domain(sj.Grid((8,), upper=(8.0,))), capacity=32, periodic=(True,))
        >>> mesh = sj.ParticleMesh(cells, finer=2, shape="tsc")
    """

    cells: Cells
    mesh_cells: tuple[int, ...] = eqx.field(static=True)
    shape: str = eqx.field(static=True)
    offset: tuple[float, ...] = eqx.field(static=True)
    stray: float = eqx.field(static=True)

    __repr__ = all_in_a_line

    def __init__(
        self,
        cells: Cells,
        finer: int | Sequence[int] = 1,
        shape: str = "cic",
        offset: Sequence[float] = (),
        stray: float = 0.5,
    ):
        require_cells("ParticleMesh", cells)
        require_one_of("ParticleMesh: shape", shape, SHAPES)
        grid = cells.domain.grid
        mesh_cells = tuple(finer) if isinstance(finer, Sequence) else tuple(n * finer for n in grid.shape)
        coarse = len(mesh_cells) != grid.ndim or any(n < k for n, k in zip(mesh_cells, grid.shape, strict=True))
        if coarse or stray < 0:
            raise ConfigurationError(
                f"ParticleMesh: finer={finer} and stray={stray:g}; expected at least 1, or along each axis at least as "
                f"many mesh cells as there are particle cells, {grid.shape}, and a stray of at least 0."
            )
        for axis, periodic in enumerate(cells.periodic):
            if not periodic:
                raise ConfigurationError(f"ParticleMesh: axis {AXES[axis]} is not periodic; write periodic sides.")
        self.cells, self.mesh_cells, self.shape, self.stray = cells, mesh_cells, shape, stray
        self.offset = tuple(offset) or (CENTER,) * cells.ndim

    @property
    def domain(self) -> Domain:
        """The mesh: fields are `(..., *domain.block_shape)`."""
        cells = self.cells.domain
        return Domain(Grid(self.mesh_cells, cells.grid.lower, cells.grid.upper), cells.split)

    # ------------------------------------------------------------------ both ways

    def deposit(self, position: Array, ids: Array, values: Array) -> Array:
        """Deposit the charges or masses of particles on the nodes.

        Args:
            position: `(ndim, *cells.shape)` within the cells.
            ids: `cells.shape` int32; empty slots carry nothing.
            values: `(..., *cells.shape)`; floating-point.

        Returns:
            `(..., *domain.block_shape)`, whose sum is that of the values; divide by the volume of a mesh cell for a
            density.
        """
        return self._deposit(position, ids, values, (0,) * self.cells.ndim)

    def interpolate(self, position: Array, ids: Array, field: Array) -> Array:
        """A field at the particles: the transpose of `deposit`.

        Args:
            position, ids: as for `deposit`.
            field: `(..., *domain.block_shape)`.

        Returns:
            `(..., *cells.shape)`; zero at empty slots.
        """
        return self._interpolate(position, ids, field, (0,) * self.cells.ndim)

    def beyond(self, position: Array, ids: Array) -> Array:
        """Distance by which the furthest particle of this block lies outside its cell, in mesh cells; no gradient."""
        lengths = zip(position, self.domain.grid.spacing, self.cells.domain.grid.spacing, strict=True)
        outside = [jnp.abs(lax.stop_gradient(x)) / h - 0.5 * (cell / h) for x, h, cell in lengths]
        furthest = functools.reduce(jnp.maximum, outside)
        return jnp.max(jnp.where(ids >= 0, jnp.maximum(furthest, 0), 0))

    # ------------------------------------------------------------------ derivatives

    # `slopes` says how often the weights are differentiated along each axis. The derivatives of both ways are both ways
    # with other weights. Written out, as compilers make slow products of what differentiation makes of them.

    def _deposit(self, position: Array, ids: Array, values: Array, slopes: tuple[int, ...]) -> Array:
        def derivative(primals, tangents):
            position, ids, values = primals
            directions = _unless_zero(tangents[0]), _unless_zero(tangents[2])

            def forward(directions):
                dx, dvalues = directions
                terms = [] if dvalues is None else [self._deposit(position, ids, dvalues, slopes)]
                if dx is not None:
                    for x, steeper in zip(self._scaled(dx), _steeper(slopes), strict=True):
                        terms.append(self._deposit(position, ids, values * _raised(x, values), steeper))
                return functools.reduce(jnp.add, terms)

            def transpose(cotangent):
                dx, dvalues = directions
                x = None if dx is None else self._gradient(position, ids, values, cotangent, slopes)
                return x, None if dvalues is None else self._interpolate(position, ids, cotangent, slopes)

            return deposited(*primals), linear_map(forward, transpose, directions)

        def once(position, ids, values):
            return self.spread(self.weights(position, ids, slopes), ids, values)

        deposited = jax.custom_jvp(once)
        deposited.defjvp(derivative, symbolic_zeros=True)
        return deposited(position, ids, values)

    def _interpolate(self, position: Array, ids: Array, field: Array, slopes: tuple[int, ...]) -> Array:
        def derivative(primals, tangents):
            position, ids, field = primals
            directions = _unless_zero(tangents[0]), _unless_zero(tangents[2])

            def forward(directions):
                dx, dfield = directions
                terms = [] if dfield is None else [self._interpolate(position, ids, dfield, slopes)]
                if dx is not None:
                    for x, steeper in zip(self._scaled(dx), _steeper(slopes), strict=True):
                        found = self._interpolate(position, ids, field, steeper)
                        terms.append(found * _raised(x, found))
                return functools.reduce(jnp.add, terms)

            def transpose(cotangent):
                dx, dfield = directions
                x = None if dx is None else self._gradient(position, ids, cotangent, field, slopes)
                return x, None if dfield is None else self._deposit(position, ids, cotangent, slopes)

            return interpolated(*primals), linear_map(forward, transpose, directions)

        def once(position, ids, field):
            return self._interpolated(self.weights(position, ids, slopes), ids, field)

        interpolated = jax.custom_jvp(once)
        interpolated.defjvp(derivative, symbolic_zeros=True)
        return interpolated(position, ids, field)

    def _gradient(self, position: Array, ids: Array, values: Array, field: Array, slopes: tuple[int, ...]) -> Array:
        """Derivative in the position of each particle of the sum of its values times the field there."""
        found = [self._interpolate(position, ids, field, steeper) for steeper in _steeper(slopes)]
        lead = tuple(range(values.ndim - self.cells.ndim - 1))
        return self._scaled(jnp.stack([jnp.sum(values * f, axis=lead) for f in found]))

    def _scaled(self, x: Array) -> Array:
        """Lengths in mesh cells."""
        h = jnp.asarray(self.domain.grid.spacing, x.dtype)
        return x / h.reshape(-1, *(1,) * (x.ndim - 1))

    # ------------------------------------------------------------------ sums over slots and over nodes

    def spread(self, weights: Sequence[Array], ids: Array, values: Array) -> Array:
        """Values times one of the `weights` per axis, `(nodes, *cells.shape)`, added up on the nodes."""
        ndim = self.cells.ndim
        lead = values.shape[: values.ndim - ndim - 1]
        spread = jnp.where(ids >= 0, values, 0).reshape(-1, 1, *self.cells.shape)
        if one_pass():
            nodes = jnp.sum(spread.reshape(-1, *(1,) * ndim, *self.cells.shape) * products(weights), axis=ndim + 1)
        else:
            for w in weights[:-1]:
                spread = spread[:, :, None] * w[None, None]
                spread = spread.reshape(spread.shape[0], -1, *self.cells.shape)
            cells = "uvw"[:ndim]
            product = f"lps{cells},ns{cells}->lpn{cells}"
            nodes = jnp.einsum(product, spread, weights[-1], precision=lax.Precision.HIGHEST)
        field = nodes.reshape(-1, *(w.shape[0] for w in weights), *self.cells.domain.block_shape)
        for axis in range(ndim):
            field = self._gathered(field, axis)
        return field.reshape(*lead, *field.shape[1:])

    def _interpolated(self, weights: list[Array], ids: Array, field: Array) -> Array:
        ndim = self.cells.ndim
        lead = field.shape[: field.ndim - ndim]
        field = field.reshape(-1, *field.shape[field.ndim - ndim :])
        for axis in reversed(range(ndim)):
            field = self._displaced(field, axis)
        found = summed_over_nodes(field, weights).reshape(*lead, *self.cells.shape)
        return jnp.where(ids >= 0, found, 0)

    # ------------------------------------------------------------------ weights

    def nodes(self, axis: int) -> Nodes:
        """Nodes within reach of particles along an axis."""
        # Which of two nodes equally near gets a particle is a matter of rounding.
        closed = self.shape == "ngp"
        cells, nodes = self.cells.domain.block_shape[axis], self.domain.block_shape[axis]
        return Nodes(cells, nodes, SHAPES[self.shape][0] + self.stray, self.offset[axis], closed)

    def weights(self, position: Array, ids: Array, slopes: Sequence[int]) -> list[Array]:
        """Per axis, the weight (or its slope) of every slot at the nodes within reach: `(nodes, *cells.shape)`."""
        result = []
        for axis, scaled in enumerate(self._scaled(position)):
            nodes = self.nodes(axis)
            middle = 0.5 * float(nodes.per_cell)
            # Rounding may leave a particle outside its cell by a few digits.
            furthest = middle + self.stray + 1e-6
            lost = (ids >= 0) & ~(jnp.abs(scaled) <= furthest)
            scaled = jnp.where(lost, jnp.nan, scaled)
            around = nodes.around
            index = jnp.arange(around.start, around.stop, dtype=jnp.int32).astype(scaled.dtype)
            places = (index + (self.offset[axis] - middle)).reshape(-1, *(1,) * scaled.ndim)
            if not nodes.whole:
                along = tuple(nodes.cells if k == axis + 1 else 1 for k in range(scaled.ndim))
                places = places - jnp.asarray(nodes.shifts(), scaled.dtype).reshape(1, *along)
            weights = _sloped(SHAPES[self.shape][1], slopes[axis])(scaled[None] - places)
            result.append(jnp.where(lost[None], scaled[None], weights))
        return result

    # ------------------------------------------------------------------ neighbouring cells

    def _gathered(self, field: Array, axis: int) -> Array:
        """Nodes around cells along one axis, `(lead, nodes, ...)`, added up on the mesh: `(lead, ...)`."""
        nodes = self.nodes(axis)
        return self._gathered_whole(field, axis, nodes) if nodes.whole else self._gathered_uneven(field, axis, nodes)

    def _gathered_whole(self, field: Array, axis: int, nodes: Nodes) -> Array:
        around, finer = nodes.around, nodes.nodes // nodes.cells
        parts = {node: field[:, k] for k, node in enumerate(around)}
        outer = [node for node in around if not 0 <= node < finer]
        width = max((abs(node // finer) for node in outer), default=0)
        sides = self._beside(self.cells.domain, [parts[node] for node in outer], axis, width)
        beside = dict(zip(outer, sides, strict=True))
        array_axis = parts[around.start].ndim + axis - self.cells.ndim
        n = nodes.cells
        phases = []
        for phase in range(finer):
            found = []
            for node in (node for node in around if node % finer == phase):
                part = parts[node]
                if node in beside:
                    lower, upper = beside[node]
                    part = jnp.concatenate([lower, part, upper], axis=array_axis)
                    part = lax.slice_in_dim(part, width - node // finer, width - node // finer + n, axis=array_axis)
                found.append(part)
            phases.append(functools.reduce(jnp.add, found))
        joined = jnp.stack(phases, axis=array_axis + 1)
        return joined.reshape(*joined.shape[:array_axis], n * finer, *joined.shape[array_axis + 2 :])

    def _gathered_uneven(self, field: Array, axis: int, nodes: Nodes) -> Array:
        array_axis = field.ndim + axis - self.cells.ndim
        lower, upper = (field[:, part.start : part.stop] for part in (nodes.of_lower, nodes.of_upper))
        (below, _), (_, above) = self._beside(self.cells.domain, [lower, upper], axis, nodes.cells_beyond)

        def in_line(u: Array) -> Array:
            """Nodes and cells along the axis as one axis, the latter faster."""
            u = jnp.moveaxis(u, 1, array_axis - 1)
            return u.reshape(*u.shape[: array_axis - 1], -1, *u.shape[array_axis + 1 :])

        pairs = [in_line(u) for u in (field, below, above)]
        pairs.append(jnp.zeros_like(lax.slice_in_dim(pairs[0], 0, 1, axis=array_axis - 1)))
        line, ahead = jnp.concatenate(pairs, axis=array_axis - 1), (slice(None),) * (array_axis - 1)
        terms = [line.at[(*ahead, term)].get(mode="promise_in_bounds") for term in nodes.gathered()]
        return functools.reduce(jnp.add, terms)

    def _displaced(self, field: Array, axis: int) -> Array:
        """The transpose of `_gathered`: `(lead, ...)` on the mesh to `(lead, nodes, ...)` around cells."""
        nodes = self.nodes(axis)
        width, array_axis = nodes.beyond, field.ndim + axis - self.cells.ndim
        ((lower, upper),) = self._beside(self.domain, [field], axis, width)
        around = jnp.concatenate([lower, field, upper], axis=array_axis)
        if not nodes.whole:
            ahead = (slice(None),) * array_axis
            found = around.at[(*ahead, nodes.read())].get(mode="promise_in_bounds")
            return jnp.moveaxis(found, array_axis, 1)
        n, finer = nodes.nodes, nodes.nodes // nodes.cells
        parts = [
            lax.slice_in_dim(around, width + node, width + node + n - finer + 1, finer, axis=array_axis)
            for node in nodes.around
        ]
        return jnp.stack(parts, axis=1)

    def _beside(self, domain: Domain, fields: list[Array], axis: int, width: int):
        layout = center_layout([(Periodic(), Periodic())] * self.cells.ndim)
        return domain.beside(fields, layout, axis, width)


def _steeper(slopes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """`slopes` with one more derivative along each axis in turn."""
    return [tuple(s + (k == axis) for k, s in enumerate(slopes)) for axis in range(len(slopes))]


def _sloped(function: Callable[[Array], Array], order: int) -> Callable[[Array], Array]:
    """The derivative of a function of one variable."""
    if not order:
        return function
    before = _sloped(function, order - 1)
    return lambda d: jax.jvp(before, (d,), (jnp.ones_like(d),))[1]


def _raised(x: Array, like: Array) -> Array:
    return x.reshape((1,) * (like.ndim - x.ndim) + x.shape)


def _unless_zero(tangent):
    return None if isinstance(tangent, SymbolicZero) else tangent
