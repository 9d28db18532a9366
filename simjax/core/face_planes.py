"""Planes of faces of cells: a side of the grid, or a plane inside it, and fluxes through them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain, flatten_layouts
from simjax.grid import UPPER


class FacePlane(NamedTuple):
    """The faces of cells across an axis with one number in the whole grid: 0 in its lower side, n in its upper one."""

    axis: int
    number: int

    @classmethod
    def of_side(cls, domain: Domain, axis: int, side: int) -> "FacePlane":
        """The faces in a side of the grid."""
        return cls(axis, domain.grid.shape[axis] if side == UPPER else 0)

    def place(self, domain: Domain) -> int | Array:
        """The number of the faces in this block, from 0 to its cells along the axis; of the nearest if it has none."""
        cells, whole = domain.block_shape[self.axis], domain.grid.shape[self.axis]
        if self.number in (0, whole):
            return 0 if self.number == 0 else cells
        if domain.split[self.axis] is None:
            return self.number
        return jnp.clip(self.number - domain.first_index(self.axis), 0, cells)

    def counted(self, domain: Domain, u: Array) -> Array:
        """A number of this block if the faces count for it, which lie at its lower end or inside; else zero."""
        if domain.split[self.axis] is None:
            return u
        cells, whole = domain.block_shape[self.axis], domain.grid.shape[self.axis]
        owner = min(self.number, whole - 1) // cells
        return jnp.where(domain.block_index(self.axis) == owner, u, jnp.zeros_like(u))

    def lines(self, domain: Domain, padded: Any, width: int) -> Any:
        """The `width` cells on both sides of the faces, of arrays (or a tree) with as many ghost cells."""
        first, ndim = self.place(domain), domain.grid.ndim

        def cut(u: Array) -> Array:
            return _cut(u, first, 2 * width, u.ndim - ndim + self.axis)

        return jax.tree.map(cut, padded)

    def faces(self, domain: Domain, u: Array) -> Array:
        """The values on these faces of a field on the n + 1 faces of a block along the axis."""
        return _cut(u, self.place(domain), 1, u.ndim - domain.grid.ndim + self.axis)


class Flux(NamedTuple):
    """A flux through faces in a plane, towards larger coordinates: of this block, of one cell along the plane's axis.

    density: per area and time. areas: of the faces, broadcastable to `density`.
    """

    density: Array
    areas: Array

    def total(self, domain: Domain, plane: FacePlane) -> Array:
        """Sum over all faces that count for this block, per time."""
        return plane.counted(domain, jnp.sum(self.density * self.areas))


class WaveProduct(NamedTuple):
    """A part of the energy flux of waves along an axis: `sign` times the product of two variables, by name.

    On faces across the axis, where one of them is and the other is averaged to, both lie at the same places. one: of a
    wave with one component that one, such as the pressure; its slope along the axis is -i w m sign `other` with a
    number m of the medium, for waves as exp(i w t).
    """

    one: str
    other: str
    sign: int = 1


class ModeOnPlane(NamedTuple):
    """A mode of a waveguide on faces across it: the fields of a wave that goes up the axis, of amplitude one.

    kept, turned: names of the two variables of the energy flux and their values on the faces, (cells,); in a wave that
    goes down the axis the second have the other sign. width: of a cell across the guide. wavenumber: along it; zero of
    a mode that does not go on.
    """

    kept: tuple[str, Any]
    turned: tuple[str, Any]
    width: float
    wavenumber: float


def at_faces(
    domain: Domain, stencil: Callable, fields: tuple, layouts, width: int, plane: FacePlane, t: Any = 0.0
) -> Any:
    """`stencil(*padded, spacing)` of `Domain.apply_spaced`, on the cells around a plane of faces alone.

    A stencil that gives fluxes on the n + 1 faces along the axis gives those of these faces.
    """
    padded = domain.pad(fields, layouts, width, t)
    leaves, tree = jax.tree.flatten(fields)
    spacing: list[Any] = list(domain.spacing(flatten_layouts(layouts, tree)[0], width, leaves[0].dtype))
    shape = tuple(n + 2 * width for n in domain.block_shape)
    spacing = [jnp.broadcast_to(h, shape) if isinstance(h, Array) else h for h in spacing]
    near = plane.lines(domain, (*padded, *(h for h in spacing if isinstance(h, Array))), width)
    widths = iter(near[len(padded) :])
    return stencil(*near[: len(padded)], tuple(next(widths) if isinstance(h, Array) else h for h in spacing))


def inner(u: Array, axis: int, ndim: int, width: int = 1) -> Array:
    """A line along a plane without ghost cells along the other axes."""
    for k in range(ndim):
        if k != axis:
            u = lax.slice_in_dim(u, width, u.shape[k] - width, axis=k)
    return u


def _cut(u: Array, first: int | Array, count: int, axis: int) -> Array:
    if isinstance(first, int):
        return lax.slice_in_dim(u, first, first + count, axis=axis)
    return lax.dynamic_slice_in_dim(u, first, count, axis=axis)
