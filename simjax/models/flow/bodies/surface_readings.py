"""Readings of a flow along the surface of bodies: pressure and friction, the value and the flux of a scalar.

A point is found on a straight way from a given place, where the distance from bodies, linear between the centres of
cells, vanishes. Near it the pressure is taken as a quadratic, and what vanishes at the surface as the distance times a
quadratic, so that curved surfaces have no slip all along. Each is nearest to values in the fluid by squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.instruments.fits import Around, gathered, slope_from, value_at, values_around
from simjax.instruments.places import around as cells_around
from simjax.instruments.sampling import interpolate
from simjax.models.flow.bodies import solid_stage
from simjax.models.flow.bodies.solid_geometry import (
    at_faces,
    bends,
    face_offset,
    mirrored,
    on_block,
    weights_below,
)
from simjax.ops.difference import shift
from simjax.ops.spacing import Spacing, along
from simjax.solvers.elliptic import cut

if TYPE_CHECKING:
    from simjax.instruments.body_surface import SurfacePoints

OF_FLOW = ("pressure", "shear_stress", "normal")
"""Names of what can be read of any flow."""
ITERATIONS = 6
"""Newton's steps towards the surface; each squares the error of what lies within a cell, of 1/2 of it at first."""


class Surface(NamedTuple):
    """Points on the surface of bodies at one time.

    position, normal: `(points, axes)`, normals into the fluid. found: whether there is a surface, `(points,)`.
    steepness: of the distance there. distance: at the centres of this block's cells. layout: of coefficients there.
    """

    domain: Domain
    position: Array
    normal: Array
    found: Array
    steepness: Array
    distance: Array
    layout: FieldLayout

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(self.layout.is_periodic(axis) for axis in range(self.domain.grid.ndim))

    def interpolated(self, field: Array, offset: Sequence[float]) -> tuple[Array, Array]:
        """A field that goes on smoothly into bodies at the points, `(points,)`, and its gradient, `(axes, points)`."""
        of_axes = slopes(self.domain, field, self.layout)
        found = _at(self.domain, (field, *of_axes), self.position, offset, self.periodic)
        return found[0], found[1:]

    def beside(self, offset: Sequence[float], *fields: Array) -> tuple[Around, Array, Array, tuple[Array, ...]]:
        """Values of fields around the points, their depth in the fluid, and weights.

        A value counts fully from one cell in the fluid on, and as little as it lies nearer to the surface, or to the
        plane that touches it at the point: so what is on the other side of a thin body does not count. Nor does a value
        whose depth is less by a cell than that from this plane: it is nearer to another surface.
        """
        domain, ndim = self.domain, self.domain.grid.ndim
        distance = self.distance
        for axis in range(ndim):
            if offset[axis] != CENTER:
                distance = _on_lower_faces(domain, distance, axis, self.layout)
        around = values_around(domain, self.position, offset, self.periodic)
        depth, *values = gathered(domain, around, distance, *fields)
        depth = depth / self.steepness.reshape(-1, *(1,) * ndim)
        over = jnp.einsum("pk,pk...->p...", self.normal * around.widths, around.places, precision="highest")
        cells = jnp.sqrt(jnp.sum((self.normal / around.widths) ** 2, 1)).reshape(-1, *(1,) * ndim)
        own = jnp.clip(1 - cells * (over - depth), 0, 1)
        return around, depth, own * jnp.clip(cells * jnp.minimum(depth, over), 0, 1), tuple(values)

    def value(self, field: Array, offset: Sequence[float]) -> Array:
        """The value of a field of the fluid at the points."""
        around, _, weights, (values,) = self.beside(offset, field)
        return value_at(values, weights, around)

    def slope(self, field: Array, offset: Sequence[float], given: Array | None) -> Array:
        """The slope along the normal of a field of the fluid less what is `given` at the surface; None: zero there.

        given: at the places of the field; it goes on smoothly for a cell into the fluid, and here linearly.
        """
        around, depth, weights, (values,) = self.beside(offset, field)
        if given is not None:
            there, gradient = self.interpolated(given, offset)
            values = values - there.reshape(-1, *(1,) * (values.ndim - 1))
            change = jnp.einsum("kp,pk...->p...", gradient * around.widths.T, around.places, precision="highest")
            values = values - change
        return slope_from(depth, values, weights, around)


def surface_at(domain: Domain, layout: FieldLayout, distance: Array, points: SurfacePoints) -> Surface:
    """The first surface on the way from each point.

    distance: from bodies, at the centres of this block's cells. layout: says along which axes fields are periodic. The
    positions have derivatives with respect to what the distance depends on.
    """
    grid, dtype, kind = domain.grid, distance.dtype, mirrored(layout)
    periodic, offset = tuple(kind.is_periodic(axis) for axis in range(grid.ndim)), (CENTER,) * grid.ndim
    gradient, origin = slopes(domain, distance, kind), jnp.asarray(points.origins, dtype)

    def normals(x: Array) -> tuple[Array, Array]:
        """Unit vectors along the gradient, and its size; the vectors are not finite where there is none."""
        found = _at(domain, gradient, x, offset, periodic).T
        size = jnp.linalg.norm(found, axis=1)
        return found / size[:, None], size

    if points.directions is None:
        inside = _at(domain, (distance,), origin, offset, periodic)[0] <= 0
        towards = jnp.where(inside, 1, -1).astype(dtype)[:, None] * normals(origin)[0]
    else:
        towards = jnp.asarray(points.directions, dtype)
    known, way = lax.stop_gradient((distance, towards))

    def crossing(distance: Array, way: Array, reached: Array) -> tuple[Array, Array]:
        """The distance from the surface so far on the way, and its slope."""
        return jax.jvp(
            lambda s: _at(domain, (distance,), origin + s[:, None] * way, offset, periodic)[0],
            (reached,),
            (jnp.ones_like(reached),),
        )

    # By the narrowest cells, which lie at bodies: wider steps would pass over one.
    least = [float(grid.widths(axis).min()) for axis in range(grid.ndim)]
    count = max(math.ceil(length / h - 1e-6) for length, h in zip(grid.lengths, least, strict=True))
    step = 1 / jnp.max(jnp.abs(way) / jnp.asarray([least], dtype), 1)
    steps = jnp.arange(count + 1, dtype=jnp.int32).astype(dtype)[None]
    places = origin[:, None] + (step[:, None] * steps)[..., None] * way[:, None]
    ends = zip(grid.lower, grid.upper, periodic, strict=True)
    within = [(places[..., k] >= a) & (places[..., k] <= b) | wraps for k, (a, b, wraps) in enumerate(ends)]
    fluid = _at(domain, (known,), places, offset, periodic)[0] > 0
    crossed = (fluid[:, 1:] != fluid[:, :-1]) & jnp.stack(within).all(0)[:, 1:]
    low = step * jnp.argmax(crossed, 1).astype(dtype)

    def nearer(_, reached: Array) -> Array:
        value, slope = crossing(known, way, reached)
        return jnp.clip(reached - value / slope, low, low + step)

    reached = lax.stop_gradient(lax.fori_loop(0, ITERATIONS, nearer, low + 0.5 * step))
    value, slope = crossing(distance, towards, reached)
    position = origin + (reached - value / lax.stop_gradient(slope))[:, None] * towards
    normal, steepness = normals(position)
    found = crossed.any(1) & jnp.isfinite(position).all(1)
    return Surface(domain, position, normal, found, steepness, distance, kind)


def _at(domain: Domain, fields: Sequence[Array], x: Array, offset: Sequence[float], periodic: Sequence[bool]) -> Array:
    """Fields at places `(..., axes)` by multilinear interpolation: `(fields, ...)`."""
    grid = domain.grid
    wrapped = [
        a + jnp.mod(x[..., k] - a, length) if periodic[k] else x[..., k]
        for k, (a, length) in enumerate(zip(grid.lower, grid.lengths, strict=True))
    ]
    below, fraction = cells_around(domain, jnp.stack(wrapped), offset, periodic, fields[0].dtype)
    return jnp.stack([interpolate(domain, u, below, fraction, periodic) for u in fields])


def slopes(domain: Domain, field: Array, layout: FieldLayout) -> tuple[Array, ...]:
    """The gradient where the field is, by central differences, on uniform and on stretched axes."""

    def differences(padded: Array, h: Sequence[Spacing]) -> tuple[Array, ...]:
        ndim, found = padded.ndim, []
        for axis in range(ndim):
            apart = along(h[axis], axis, ndim, 1)
            if isinstance(apart, Array):
                n = apart.shape[axis]
                apart = 0.5 * (cut(apart, axis, 0, n - 2) + cut(apart, axis, 2, n)) + cut(apart, axis, 1, n - 1)
            else:
                apart = 2 * apart
            found.append((shift(padded, ndim, axis, 1) - shift(padded, ndim, axis, -1)) / apart)
        return tuple(found)

    return domain.apply_spaced(differences, (field,), (layout,), 1)


def _on_lower_faces(domain: Domain, distance: Array, axis: int, layout: FieldLayout) -> Array:
    """The distance from bodies on the lower faces of cells normal to an axis."""
    padded, below = domain.pad(distance, layout, 3), weights_below(domain, layout, 3, distance.dtype)
    return cut(shift(at_faces(bends(padded, below), axis, below), distance.ndim), axis, 0, domain.block_shape[axis])


def components(name: str, values: Array) -> dict[str, Array]:
    """A vector `(points, axes)` by the names of its components."""
    return {f"{name}_{axis}": values[:, k] for k, axis in zip(range(values.shape[1]), AXES, strict=False)}


def known_along(surface: Surface, readings: dict[str, Array]) -> dict[str, Array]:
    """The readings, with place and normal; NaN where there is no surface."""
    found = components("position", surface.position) | components("normal", surface.normal) | readings
    return {name: jnp.where(surface.found, u, jnp.nan) for name, u in found.items()}


def surface_of_flow(flow, t, params, points: SurfacePoints) -> Surface:
    """The surface of the bodies in an `Incompressible` flow.

    Raises:
        ConfigurationError: there are none, or the fluid moves one.
    """
    if flow.solid is None:
        raise ConfigurationError(
            f"{type(flow).__name__}.along_bodies: there are no bodies in this flow; make it with solid=Solid(distance)."
        )
    if flow.solid.free is not None:
        raise ConfigurationError(
            f"{type(flow).__name__}.along_bodies: expected bodies that move as they are told, not one that the fluid "
            "moves (physics.body); leave body_surface out."
        )
    domain, layout, dtype = flow.domain, flow.projection.layout, jnp.result_type(params.viscosity)
    distance = on_block(flow.solid.distance, domain, (CENTER,) * domain.grid.ndim, jnp.asarray(t, dtype), dtype)
    return surface_at(domain, layout, distance, points)


def replicated(domain: Domain, number: Array) -> Array:
    """A parameter as what all devices have alike, where steps take it for one that may vary: the mean over blocks."""
    return domain.total(number / (domain.grid.cells // math.prod(domain.block_shape)))


def eddies_along(surface: Surface, flow, t, state, params) -> Array | float:
    """The eddy viscosity at the surface of bodies."""
    if not flow.momentum.has_eddies(params):
        return 0.0
    eddies = flow.momentum.eddy_viscosity(t, state.velocity, flow.layouts_for(t, state), params)
    return jnp.maximum(surface.value(eddies, surface.layout.offset), 0)


def along_flow(surface: Surface, flow, t, state, params) -> dict[str, Array]:
    """The kinematic pressure, and the friction of the fluid on the bodies: a force per area over density.

    It is nu times the slope along the normal of the velocity along the surface, less that of the body, which may turn
    but keeps its shape.
    """
    domain, dtype = flow.domain, state.velocity[0].dtype
    found = []
    for axis, u in enumerate(state.velocity):
        given = flow.solid.velocity_on_faces(domain, axis, jnp.asarray(t, dtype), dtype)
        found.append(surface.slope(u, face_offset(domain, axis), given))
    slope, normal = jnp.stack(found, 1), surface.normal
    slope = slope - normal * jnp.sum(normal * slope, 1, keepdims=True)
    viscosity = replicated(domain, params.viscosity) + eddies_along(surface, flow, t, state, params)
    pressure = surface.value(solid_stage.pressure(flow, t, state), surface.layout.offset)
    return {"pressure": pressure} | components("shear_stress", jnp.reshape(viscosity, (-1, 1)) * slope)


def along_scalar(surface: Surface, flow, t, state, params) -> dict[str, Array]:
    """The value of the scalar of a `CarryingFlow` at the surface, and its flux from the bodies into the fluid."""
    c, kind, domain, name = flow.scalar(state), flow.surface, flow.domain, flow.carried
    offset, now = flow.layout.offset, jnp.asarray(t, c.dtype)
    if kind.value is not None:
        given = kind.given_value(domain, flow.layout, now, c.dtype)
        value, gradient = surface.interpolated(given, offset)
        slope = surface.slope(c, offset, given)
        slope = slope + jnp.einsum("kp,pk->p", gradient, surface.normal, precision="highest")
        diffusivity = replicated(domain, params.diffusivity)
        if flow.flow.momentum.has_eddies(params):
            share = replicated(domain, params.eddy_share)
            diffusivity = diffusivity + share * eddies_along(surface, flow.flow, t, state, params)
        return {name: value, f"{name}_flux": -diffusivity * slope}
    value = surface.value(c, offset)
    if kind.flux is None:
        return {name: value, f"{name}_flux": jnp.zeros_like(value)}
    flux, _ = surface.interpolated(on_block(kind.flux, domain, offset, now, c.dtype), offset)
    return {name: value, f"{name}_flux": flux}


def names_along(carried: str) -> tuple[str, ...]:
    """Names of what can be read of a flow that carries this scalar."""
    return (*OF_FLOW, carried, f"{carried}_flux")
