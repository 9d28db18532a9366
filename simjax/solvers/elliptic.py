"""The discrete operator shift x - div(k grad x) with variable k, walls of any kind, on a decomposed grid.

Fields are at cell centres. A *conductance* belongs to a face: what flows through it per unit difference between
the two cells beside it, k / h^2. A block of n cells has n + 1 faces along an axis, its own lower ones and the
next block's first. Walls are conductances too: beyond them the solution counts as zero, so a Dirichlet wall, half
a cell away, has 2 k / h^2 and a Neumann wall none.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.core.boundary import Boundary, FieldLayout, Ghosts, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, FACE, LOWER, UPPER
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing, between_centers, relative, scaled


class Elliptic(eqx.Module):
    """A x = shift m x - sum over axes of the difference of (conductance times the difference of x).

    conductances: per axis, this block's faces, `(..., n + 1, ...)`, at least zero. mass m: positive, like a
    block, or a number. Symmetric and positive semi-definite by construction; rows sum to shift m but at walls.
    `closed` says that nothing passes any wall: then sums over all cells of A x and of shift m x are equal.
    """

    domain: Domain
    layout: FieldLayout
    conductances: tuple[Array, ...]
    mass: Array
    closed: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], shift) -> Float[Array, "..."]:
        """A x on this block."""
        ndim = self.domain.grid.ndim
        padded = self.domain.pad(x, self.layout, 1)
        total = shift * self.mass * x
        for axis, conductance in enumerate(self.conductances):
            flux = conductance * difference(crop(padded, ndim, axis), axis - ndim)
            total = total - difference(flux, axis - ndim)
        return total

    def diagonal(self, shift) -> Float[Array, "..."]:
        """The diagonal of A; without what a cell that is its own neighbour (periodic, alone) gives to itself."""
        total = jnp.broadcast_to(shift * self.mass, self.domain.block_shape)
        for axis, conductance in enumerate(self.conductances):
            if self.domain.grid.shape[axis] == 1 and self.layout.is_periodic(axis):
                continue
            n = self.domain.block_shape[axis]
            total = total + cut(conductance, axis, 0, n) + cut(conductance, axis, 1, n + 1)
        return total


def difference(u: Array, array_axis: int) -> Array:
    """u[i + 1] - u[i] along an axis counted from the last: one fewer."""
    axis = u.ndim + array_axis
    n = u.shape[axis]
    return lax.slice_in_dim(u, 1, n, axis=axis) - lax.slice_in_dim(u, 0, n - 1, axis=axis)


def crop(padded: Array, ndim: int, axis: int) -> Array:
    """A block padded by one cell without its ghosts, but for those along `axis`."""
    for k in range(ndim):
        if k != axis:
            where = padded.ndim - ndim + k
            padded = lax.slice_in_dim(padded, 1, padded.shape[where] - 1, axis=where)
    return padded


def cut(u: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    """`u[start:stop:stride]` along `axis` of an array without leading axes."""
    return lax.slice_in_dim(u, start, stop, stride=stride, axis=axis)


def wall_layout(layout: FieldLayout) -> FieldLayout:
    """The layout of the operator's argument: periodic where `layout` is, zero beyond walls."""
    return center_layout(
        [pair if layout.is_periodic(axis) else (Ghosts(), Ghosts()) for axis, pair in enumerate(layout.boundaries)]
    )


def elliptic(
    domain: Domain, layout: FieldLayout, coefficients: Sequence[Float[Array, "..."]], widths: Sequence[Spacing] = ()
) -> Elliptic:
    """The operator shift x - div(k grad x) for the homogeneous boundaries of `layout`.

    On a stretched or axisymmetric grid it is this times the volumes of the cells, which are its `mass`; they and the
    areas of faces are in mean ones.

    Args:
        domain: the grid and its decomposition.
        layout: cell-centred; any mixture of sides that are periodic or have a `conductance`.
        coefficients: k on this block's faces, one array per axis with n + 1 faces along it; at least zero.
        widths: of the cells along every axis, by default the true ones, `Domain.spacing`.
    """
    conductances, closed, mean = [], True, domain.grid.mean_spacing
    dtype = jnp.result_type(*coefficients)
    widths = widths or domain.spacing(layout, 0, dtype)
    shares = [relative(own, h) for own, h in zip(widths, mean, strict=True)]
    radii = _radii(domain, dtype) if domain.grid.axisymmetric else ()
    for axis, (k, h) in enumerate(zip(coefficients, domain.spacing(layout, 1, dtype), strict=True)):
        if not layout.is_periodic(axis):
            ends = domain.wall_spacing(axis, dtype)
            pairs = zip(layout.boundaries[axis], ends, strict=True)
            factors = [_wall_factor(boundary, axis, end) for boundary, end in pairs]
            closed = closed and all(isinstance(factor, float) and factor == 0 for factor in factors)
            k = k * _on_walls(domain, axis, factors, k.dtype)
        area = shares[:axis] + shares[axis + 1 :]
        apart = relative(between_centers(h, axis), mean[axis])
        if radii:
            area = [*area, radii[1 if axis == RADIAL else 0]]
        conductances.append(scaled(k * (1 / mean[axis] ** 2), *area, 1 / apart))
    unit = scaled(jnp.ones((), jnp.result_type(*conductances)), *shares, *radii[:1])
    mass = jnp.broadcast_to(unit, domain.block_shape) if unit.ndim else unit
    # Where cells are is in the conductances; traced places beside them would be captured by every solve.
    placed = eqx.tree_at(lambda one: one.lines, domain, (None,) * domain.grid.ndim, is_leaf=lambda leaf: leaf is None)
    return Elliptic(placed, wall_layout(layout), tuple(conductances), mass, closed)


def _radii(domain: Domain, dtype) -> tuple[Array, Array]:
    """Distances of this block's cells and of its n + 1 faces from the axis, over the mean distance."""
    grid = domain.grid
    mean = 0.5 * (grid.lower[RADIAL] + grid.upper[RADIAL])
    faces = domain.coordinates((FACE, FACE), dtype, (1, 0))[RADIAL][1:] * (1 / mean)
    return 0.5 * (faces[1:] + faces[:-1]), faces


def _wall_factor(boundary: Boundary, axis: int, spacing: float | Array) -> float | Array:
    factor = boundary.conductance(spacing)
    if factor is None:
        raise ConfigurationError(
            f"boundaries.{AXES[axis]}: an implicit solve takes periodic, dirichlet and neumann conditions, and others "
            f"that are linear with constant coefficients; got {type(boundary).__name__}."
        )
    return factor


def _on_walls(domain: Domain, axis: int, factors: Sequence[float | Array], dtype) -> Array:
    """`factors` on the faces of `axis` that lie on its (lower, upper) wall, one on all others."""
    n = domain.block_shape[axis]
    face = domain.block_index(axis) * n + jnp.arange(n + 1, dtype=jnp.int32)
    on_upper = jnp.where(face == domain.grid.shape[axis], factors[UPPER], 1.0)
    factor = jnp.where(face == 0, factors[LOWER], on_upper).astype(dtype)
    return factor.reshape(tuple(n + 1 if k == axis else 1 for k in range(domain.grid.ndim)))
