"""Moments of bodies in a flow: what they displace, its centroid and inertia, sums of forces and torques."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.axisymmetric_grid import mean_volume, relative_volumes
from simjax.models.flow.axisymmetric_flow import volumes_around
from simjax.models.flow.bodies.body_box import Box
from simjax.models.flow.bodies.ring_geometry import open_part_of, rings_of
from simjax.models.flow.bodies.solid_geometry import (
    OF_CELLS,
    at_nodes,
    face_offset,
    inverse,
    mirrored,
    straightened,
    weights_below,
)
from simjax.ops.spacing import scaled
from simjax.stencil.formulation import stores_values


class Displaced(eqx.Module):
    """The fluid that bodies displace, over its density.

    volume: a number. centre: their centroid, `(ndim,)`. moment: of inertia about it, `(1, 1)` in a plane, `(3, 3)` in
    space.
    """

    volume: Array
    centre: Array
    moment: Array


def displaced(domain: Domain, layout: FieldLayout, distance: Array) -> Displaced:
    """The fluid that bodies displace, by the closed parts of cells; of second order.

    layout: of the pressure. distance: of the centres of this block's cells. No image of a periodic box counts.
    """
    ndim, dtype = domain.grid.ndim, distance.dtype
    below = weights_below(domain, layout, 2, dtype)
    padded = straightened(domain.pad(distance, mirrored(layout), 2), below, (OF_CELLS,) * ndim)
    rings = rings_of(domain, layout, dtype)
    part = 1 - open_part_of(at_nodes(padded, below), range(ndim), None if rings is None else rings.cells)
    part = scaled(part, relative_volumes(domain, layout, domain.spacing(layout, 0, dtype), dtype))
    part = part * mean_volume(domain.grid)
    x = domain.coordinates((CENTER,) * ndim, dtype)
    volume, *first = domain.total(jnp.stack([jnp.sum(part), *(jnp.sum(part * one) for one in x)]))
    centre = jnp.stack(first) * inverse(volume)
    r = [one - c for one, c in zip(x, centre, strict=True)]
    # A part at the centre of its cell is spread over it: by h^2/12 of the volume along each axis.
    spread = [scaled(part, h, h) / 12 for h in domain.spacing(layout, 0, dtype)]
    products = [part * r[a] * r[b] - (spread[a] if a == b else 0.0) for a in range(ndim) for b in range(ndim)]
    second = domain.total(jnp.stack([jnp.sum(one) for one in products])).reshape(ndim, ndim)
    whole = jnp.trace(second)
    return Displaced(volume, centre, whole.reshape(1, 1) if ndim == 2 else whole * jnp.eye(3, dtype=dtype) - second)


def arms(domain: Domain, layout: FieldLayout, offset: Sequence[float], centre: Array) -> tuple[Array, ...]:
    """For each axis the way from a point to the places of a field, in a periodic box the shortest one."""
    found = []
    for axis, x in enumerate(domain.coordinates(tuple(offset), centre.dtype)):
        way, length = x - centre[axis], domain.grid.lengths[axis]
        found.append(way - length * jnp.round(way / length) if layout.is_periodic(axis) else way)
    return tuple(found)


def planes(ndim: int) -> list[tuple[int, int]]:
    """For each component of a torque the axes that it turns, the first towards the second."""
    return [(0, 1)] if ndim == 2 else [(1, 2), (2, 0), (0, 1)]


def turning(domain: Domain, layout: FieldLayout, component: int, spin: Sequence[Array], centre: Array) -> Array:
    """A component of spin x r on its faces."""
    r, total = arms(domain, layout, face_offset(domain, component), centre), jnp.zeros((), centre.dtype)
    for rate, (a, b) in zip(spin, planes(domain.grid.ndim), strict=True):
        if component == a:
            total = total - rate * r[b]
        elif component == b:
            total = total + rate * r[a]
    return total


def moments(
    domain: Domain, layout: FieldLayout, fields: Sequence[Array], centre: Array, box: Box
) -> tuple[Array, Array]:
    """Sums of a field of vectors on the faces of each axis, times volumes, and of its moments about a point.

    fields: in the box, outside of which they vanish.

    Returns:
        One number for each axis, and one in a plane or three in space.
    """
    ndim, volume, turns = domain.grid.ndim, mean_volume(domain.grid), planes(domain.grid.ndim)
    terms: list[Array] = []
    turned: list[list[Array]] = [[] for _ in turns]
    for axis, u in enumerate(fields):
        amount = volume * scaled(u, *box.lines(volumes_around(domain, layout, (axis,), u.dtype)))
        terms.append(amount)
        r = [box.cut(arm) for arm in arms(domain, layout, face_offset(domain, axis), centre)]
        for number, (a, b) in enumerate(turns):
            if axis == a:
                turned[number].append(-amount * r[b])
            elif axis == b:
                turned[number].append(amount * r[a])
    terms += [first + second for first, second in turned]
    # In one pass where launches count; elsewhere fields that are stacked would be stored.
    sums = (
        jnp.stack([jnp.sum(u) for u in terms])
        if stores_values()
        else jnp.sum(jnp.stack([jnp.ravel(u) for u in terms]), 1)
    )
    total = domain.total(sums)
    return total[:ndim], total[ndim:]
