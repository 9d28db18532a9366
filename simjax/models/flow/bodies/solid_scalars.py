"""Scalars around bodies: a value at their surface by interpolation along grid lines, or a flux into cells they cut.

Where the value is given, cells whose centre lies within half a cell of the surface, on either side, take the value that
is linear on the way to the next cell in the fluid (Fadlun, Verzicco, Orlandi and Mohd-Yusof 2000, J. Comput. Phys. 161,
35), as faces of a velocity do. Where its flux is given, as none, each cell keeps what is in its part in the fluid, and
exchanges it through the open parts of its faces (Ng, Min and Gibou 2009, J. Comput. Phys. 228, 8807). Cells less than
half in the fluid would limit the time step: they share their gain with their fullest neighbours (after Berger and
Giuliani 2021, J. Comput. Phys. 428, 109820). That is a symmetric positive operator on the gains, so that it conserves,
damps what the fluxes damp, and leaves a steady state as it is.
"""

import abc
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.axisymmetric_grid import relative_volumes
from simjax.models.flow.bodies.solid_geometry import (
    Neighbours,
    at_nodes,
    counted,
    followed,
    friction,
    ghost_weights,
    inverse,
    mirrored,
    neighbour_sum,
    on_block,
    open_cells,
    products,
    weights_below,
)
from simjax.models.flow.bodies.solids import Reach, Solid
from simjax.ops.difference import shift
from simjax.ops.spacing import scaled
from simjax.solvers.elliptic import crop, cut, difference, wall_layout


class SolidSurface(eqx.Module):
    """Condition of a scalar at the surface of bodies: a `value`, or the `flux` from them into the fluid.

    Each an array at the centres of this block's cells, or a function `(t, *coordinates)` that goes on smoothly for a
    cell into the fluid and into bodies; one of them is None. With neither, nothing passes.

    Examples:
        >>> ball = sj.Solid(lambda t, x, y: jnp.hypot(x - 0.5, y - 0.5) - 0.2)
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
        >>> warm = sj.SolidSurface(ball, value=lambda t, x, y: jnp.ones_like(x + y))
        >>> model = sj.PassiveScalar(sj.Domain(sj.Grid((32, 32))), sides, surface=warm)
    """

    solid: Solid
    value: Array | Callable | None = None
    flux: Array | Callable | None = None

    def given_value(self, domain: Domain, layout: FieldLayout, t, dtype) -> Array:
        """The value at the centres of this block's cells."""
        assert self.value is not None
        return on_block(self.value, domain, layout.offset, t, dtype)

    def cells(self, domain: Domain, layout: FieldLayout, t, dtype) -> "Cells":
        """Coefficients at time `t`; `layout` is that of the scalar."""
        beside, below = mirrored(layout), weights_below(domain, layout, 1, dtype)
        ndim, block = domain.grid.ndim, domain.block_shape
        distance = domain.pad(on_block(self.solid.distance, domain, (CENTER,) * ndim, t, dtype), beside, 1)
        nodes = at_nodes(distance, below)
        part, some = open_cells(nodes, range(ndim)), nodes > 0
        for axis in range(ndim):
            n = some.shape[axis]
            some = cut(some, axis, 0, n - 1) | cut(some, axis, 1, n)
        if self.value is not None:
            rate = friction(distance, domain.spacing(layout, 1, dtype), None).rate
            return GivenValue(part, shift(distance, ndim) > 0, distance, ghost_weights(distance), rate)
        fluid = domain.pad(some.astype(dtype), beside, 1)
        passes, faces, steepness = [], [], jnp.zeros((), dtype)
        for axis, h in enumerate(domain.spacing(layout, 0, dtype)):
            both = products(crop(fluid, ndim, axis), axis)
            across = [k for k in range(ndim) if k != axis]
            faces.append(jnp.where(both > 0, open_cells(nodes, across), 0.0))
            passes.append(cut(both, axis, 0, block[axis]))
            steepness = steepness + scaled(difference(faces[-1], axis - ndim), 1 / h) ** 2
        area = jnp.where(steepness > 0, jnp.sqrt(jnp.where(steepness > 0, steepness, 1.0)), 0.0)
        part = jnp.where(some, part, 0.0)
        beyond = jnp.where(some, 0.0, inverse(neighbour_sum(fluid, ndim)))
        return CutCells(part, some, tuple(faces), tuple(passes), area, beyond, *_sharing(domain, layout, part))


class Cells(eqx.Module):
    """Cells around bodies. part: that of each in the fluid. fluid: whether its value is that of the fluid."""

    part: eqx.AbstractVar[Array]
    fluid: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def joined(self, domain: Domain, c: Array, layout: FieldLayout, t, surface: SolidSurface, reach: Reach) -> Array:
        """The scalar with cells that the fluid does not change by itself.

        reach: of the diffusivity.
        """

    def carrying(self, velocity: Sequence[Array]) -> tuple[Array, ...]:
        """The velocity that carries the scalar through faces."""
        return tuple(velocity)

    def conducting(self, diffusivity: Sequence[Array]) -> tuple[Array, ...]:
        """Diffusivity on the n + 1 faces along each axis, over their whole area."""
        return tuple(diffusivity)

    def exchanged(
        self, domain: Domain, layout: FieldLayout, c: Array, t, surface: SolidSurface, reach: Reach
    ) -> Array | float:
        """Explicit part of the exchange with the surface, over the diffusivity, per volume; `joined` has the other."""
        return 0.0

    @abc.abstractmethod
    def gained(
        self, domain: Domain, layout: FieldLayout, fluxes: Array, source: Array | float, t, surface: SolidSurface
    ) -> Array:
        """The tendency by what passes faces, per volume of whole cells, and by a source in the fluid."""

    def written(self, domain: Domain, c: Array, layout: FieldLayout, t, surface: SolidSurface) -> Array:
        """The scalar as files and pictures have it."""
        return c

    @abc.abstractmethod
    def from_bodies(
        self, domain: Domain, layout: FieldLayout, fluxes: Array, c: Array, diffusivity: Array, t, surface: SolidSurface
    ) -> Array:
        """Rate at which bodies give to the fluid, per volume. fluxes: through faces, as in `gained`; c: the scalar."""

    def statistics(self, domain: Domain, layout: FieldLayout, c: Array, name: str) -> dict[str, Array]:
        """Total, mean, variance, minimum and maximum of a scalar in the fluid."""
        volumes = scaled(self.part, relative_volumes(domain, layout, domain.spacing(layout, 0, c.dtype), c.dtype))
        whole, total = domain.sum(volumes), domain.sum(volumes * c)
        mean = total / whole
        return {
            f"total_{name}": total * math.prod(domain.grid.mean_spacing),
            f"mean_{name}": mean,
            f"variance_{name}": domain.sum(volumes * (c - mean) ** 2) / whole,
            f"minimum_{name}": domain.min(jnp.where(self.fluid, c, jnp.inf)),
            f"maximum_{name}": domain.max(jnp.where(self.fluid, c, -jnp.inf)),
        }


class GivenValue(Cells):
    """Cells around bodies with a given value at the surface.

    depth: of cells in the fluid, below zero in bodies, with one more all around. ghosts, rate: see
    `solid_geometry.ghost_weights` and `friction`.
    """

    part: Array
    fluid: Array
    depth: Array
    ghosts: Array
    rate: Array

    def joined(self, domain, c, layout, t, surface, reach):
        """The scalar as the surface leaves it in a time, with ghost values of the fluid beside in bodies."""
        value = surface.given_value(domain, layout, t, c.dtype)
        return value + self._kept(domain, c, layout, t, reach) - self._kept(domain, value, mirrored(layout), t, reach)

    def _kept(self, domain: Domain, c: Array, layout: FieldLayout, t, reach: Reach) -> Array:
        kept = reach.slowed(c, self.rate)
        return jnp.where(self.fluid, kept, self.ghosts * followed(domain.pad(kept, layout, 1, t), self.depth))

    def exchanged(self, domain, layout, c, t, surface, reach):
        given = domain.pad(surface.given_value(domain, layout, t, c.dtype), mirrored(layout), 1)
        relative = domain.pad(c, layout, 1, t) - given
        by = friction(self.depth, domain.spacing(layout, 1, c.dtype), None)
        return -counted(relative, by) - reach.explicit(self.rate) * shift(relative, relative.ndim)

    def gained(self, domain, layout, fluxes, source, t, surface):
        return fluxes + source

    def written(self, domain, c, layout, t, surface):
        """The scalar in the fluid, and the given value in bodies, where `joined` has it beyond that."""
        return jnp.where(self.fluid, c, surface.given_value(domain, layout, t, c.dtype))

    def from_bodies(self, domain, layout, fluxes, c, diffusivity, t, surface):
        """Flux through faces from cells in bodies, and exchange of the surface with cells beside it.

        In a steady flow that is all that passes the surface.
        """
        explicit = self.exchanged(domain, layout, c, t, surface, Reach(*jnp.zeros((2,), c.dtype)))
        beside = diffusivity * (self.rate * (surface.given_value(domain, layout, t, c.dtype) - c) + explicit)
        return jnp.where(self.fluid, beside, -fluxes)


class CutCells(Cells):
    """Cells around bodies with a given flux through the surface.

    faces: the open part of the n + 1 faces along each axis. passes: one on the lower faces between two cells that are
    partly in the fluid. area: of the surface, over the volume of a whole cell. beyond: in other cells, one over the
    number of neighbours that are. marks: one for the neighbours with which a small cell shares. users: of a cell, one
    and the number of small cells that share with it. merged: one over the volume that takes up the gain of a cell, in
    mean ones.
    """

    part: Array
    fluid: Array
    faces: tuple[Array, ...]
    passes: tuple[Array, ...]
    area: Array
    beyond: Array
    marks: Neighbours
    users: Array
    merged: Array

    def joined(self, domain, c, layout, t, surface, reach):
        """The scalar, in cells beside those in the fluid as in these."""
        near = neighbour_sum(domain.pad(jnp.where(self.fluid, c, 0.0), mirrored(layout), 1), domain.grid.ndim)
        return jnp.where(self.beyond > 0, self.beyond * near, c)

    def carrying(self, velocity):
        return tuple(u * passes for u, passes in zip(velocity, self.passes, strict=True))

    def conducting(self, diffusivity):
        return tuple(k * part for k, part in zip(diffusivity, self.faces, strict=True))

    def gained(self, domain, layout, fluxes, source, t, surface):
        gain = fluxes + self.part * source
        if surface.flux is not None:
            gain = gain + self.area * on_block(surface.flux, domain, layout.offset, t, fluxes.dtype)
        volumes = relative_volumes(domain, layout, domain.spacing(layout, 0, gain.dtype), gain.dtype)
        return jnp.where(self.fluid, self._shared(domain, layout, scaled(gain, volumes)), 0.0)

    def _shared(self, domain: Domain, layout: FieldLayout, gain: Array) -> Array:
        """The tendency by a gain of the amount in each cell, over the mean volume of whole ones."""
        gain = gain / self.users
        common = self.merged * _with_chosen(domain, layout, gain, self.marks)
        return _with_choosers(domain, layout, common, self.marks) / self.users

    def from_bodies(self, domain, layout, fluxes, c, diffusivity, t, surface):
        if surface.flux is None:
            return jnp.zeros_like(fluxes)
        return self.area * on_block(surface.flux, domain, layout.offset, t, fluxes.dtype)


def _sharing(domain: Domain, layout: FieldLayout, part: Array) -> tuple[Neighbours, Array, Array]:
    """`marks`, `users` and `merged` of `CutCells`."""
    ndim, dtype = domain.grid.ndim, part.dtype
    padded = domain.pad(part, wall_layout(layout), 1)
    beside = [(shift(padded, ndim, axis, -1), shift(padded, ndim, axis, 1)) for axis in range(ndim)]
    fullest = jnp.stack([one for pair in beside for one in pair]).max(0)
    small = (part < 0.5) & (fullest > part)

    def mark(part: Array) -> Array:
        return (small & (part == fullest)).astype(dtype)

    marks = tuple((mark(below), mark(above)) for below, above in beside)
    users = _with_choosers(domain, layout, jnp.ones_like(part), marks)
    own = scaled(part, relative_volumes(domain, layout, domain.spacing(layout, 0, dtype), dtype)) / users
    return marks, users, inverse(_with_chosen(domain, layout, own, marks))


def _with_chosen(domain: Domain, layout: FieldLayout, u: Array, marks: Neighbours) -> Array:
    """Sums over cells, those that they marked and those that these marked."""
    ndim = domain.grid.ndim

    def chosen(u: Array) -> Array:
        padded = domain.pad(u, wall_layout(layout), 1)
        terms = [
            mark * shift(padded, ndim, axis, by)
            for axis, pair in enumerate(marks)
            for mark, by in zip(pair, (-1, 1), strict=True)
        ]
        return sum(terms[1:], terms[0])

    return u + chosen(u + chosen(u))


def _with_choosers(domain: Domain, layout: FieldLayout, u: Array, marks: Neighbours) -> Array:
    """The transpose of `_with_chosen`: a neighbour above that marked the one below it gives to it, and so on."""
    ndim, flat = domain.grid.ndim, [mark for pair in marks for mark in pair]

    def given(u: Array) -> Array:
        padded = domain.pad(tuple(mark * u for mark in flat), (wall_layout(layout),) * len(flat), 1)
        terms = [shift(v, ndim, k // 2, 1 - 2 * (k % 2)) for k, v in enumerate(padded)]
        return sum(terms[1:], terms[0])

    return u + given(u + given(u))


def integral(domain: Domain, layout: FieldLayout, rate: Array) -> Array:
    """The integral of a field at cell centres over the box."""
    volumes = relative_volumes(domain, layout, domain.spacing(layout, 0, rate.dtype), rate.dtype)
    return domain.sum(scaled(rate, volumes)) * math.prod(domain.grid.mean_spacing)
