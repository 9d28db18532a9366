"""Cells in bodies beside their surface, which follow the gas at points mirrored in it: a ghost-fluid method.

Fluxes read a few cells beyond a face, so each cell of a body that one of them reads is given the state that makes the
surface a wall: that of the gas at an image point on the normal through it, with the velocity turned round (Mittal et
al. 2008, J. Comput. Phys. 227, 4825). An image lies no nearer to the surface than the diagonal of a cell, so that the
cells around it lie in the gas; what vanishes at the surface is linear up to it. The state there is that of the
quadratic nearest to the cells of the gas around, by weights that are formed once, within the range of the next ones:
errors of linear interpolation would add up in what the gas carries along a wall. Along walls that slip and are curved
the pressure rises away from the centre of the curve: entropy and total enthalpy stay the same along the normal, and a
velocity along the wall falls as that of a flow without vorticity (Dadone and Grossman 1994, AIAA J. 32, 285). All of it
is of second order where the wall is smooth.

Cut cells would conserve what passes the surface, but merge or mix small ones, by rules that change with the shape; here
every cell of the gas is whole, the time step is that without bodies, and derivatives by the shape are those of weights.

Bodies that move have ghost cells in the gas too, which have a share of their own state: `moving_surface`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import Boundary, FieldLayout, Periodic, center_layout, lines
from simjax.core.domain import Domain
from simjax.grid import CENTER, Grid
from simjax.models.flow.bodies.solid_geometry import inverse, mirrored
from simjax.models.gas.bodies.ghost_room import MOST_RATIO, behind_surface, moved
from simjax.ops.extremes import greatest, least
from simjax.ops.riemann import smooth_root, squared_norm

MOST_GROWTH = 1.0
"""The most by which the velocity along a wall grows from image to ghost cell, over itself: more is an edge."""
SLOW, FAST = 0.25, 0.5
"""Mach numbers across the surface at an image up to which, and from which on, a flow is smooth or has met no wall."""
LEAST_HEAT = 0.5
"""The least p / rho of a ghost cell beside a curved wall over that at its image."""
AROUND = (-1, 0, 1, 2)
"""Cells that an image is interpolated from, along each axis, from the next one below on."""
RIDGE = 1e-3
"""Weight of the slopes and curvatures of a quadratic where too few cells decide on them; the next cells have one."""
MOST_SURFACE = 8
"""Surface of bodies that there is room for, over a face of a cube of as many cells, where it is not known before."""
OFF_MOVING = 1.25
"""Distance of images from bodies that move, at least, in diagonals of a cell: cells nearer to them count little."""
IN_RANGE = 4.0
"""Share of the range of the next cells that one is allowed, over its share of its own state: a value between it and
others is not to be cut off."""
MOST_STEEP = 0.5
"""The most by which the logarithm of the pressure rises from image to ghost cell as a wall that gas sticks to gains
speed."""
MOST_FOLD = 0.02
"""The most by which a slope differs from that towards the nearer surface, over the largest: twice it has two
surfaces."""


Lift = Callable[[Sequence[Array]], Array] | None
"""The acceleration along the normal of gas with a velocity beyond the wall's, by the wall's motion; None: it rests."""


class GhostCells(eqx.Module):
    """The places of ghost cells, and how they follow from the gas. K: the number that there is room for in a block.

    fluid: whether a cell of this block lies in the gas. own: the share of its own state with which a ghost cell is
    read, (K,); None: it has none, as beside bodies at rest, whose ghost cells all lie in them. index: numbers of the
    ghost cells in the block, (K,); those of unused ones lie beyond it. at: number of the cell below each image in a
    block with `halo` ghost cells, (K,). weights: of the cells around it, (cells, K). beside: how far these are next to
    the image and in the gas, 0 to 1. normal: into the gas. depth: of the ghost cell behind the surface, below zero in
    the gas. image: distance of the image in front of it. bend: second derivatives of the distance from the
    surface. enough: whether there is room for all of them.
    """

    fluid: Array
    own: Array | None
    index: Array
    at: Array
    weights: Array
    beside: Array
    normal: tuple[Array, ...]
    depth: Array
    image: Array
    bend: tuple[tuple[Array, ...], ...]
    enough: Array
    halo: int = eqx.field(static=True)

    def turned(self, velocity: Array, through: Array, sound: Array) -> Array:
        """A velocity that vanishes at the surface, in the ghost cells: linear up to it, or just turned round.

        through: the velocity at the images along the normal, which is small beside that of `sound` where the flow is
        smooth. Of gas that has not yet met the wall it is not: linear, it would pass on into ghost cells near the
        surface as if there were no wall, and for ever so faster than sound.
        """
        ratio, share = self.depth / self.image, (jnp.abs(through) / sound - SLOW) / (FAST - SLOW)
        return -(ratio + (1 - ratio) * jnp.clip(share, 0.0, 1.0)) * velocity

    def at_images(self, padded: Array) -> Array:
        """A padded field at the images, (K,)."""
        values = _at(padded, self.at[None] + _steps(_around(padded.ndim), padded.shape)[:, None])
        low, high = self._ranges(values)
        found = jnp.clip(jnp.sum(self.weights * values, 0), least([*low]), greatest([*high]))
        # Not a number where there is no room for a ghost cell: it would be missed without a word.
        return jnp.where(self.enough, found, jnp.nan)

    def _ranges(self, values: Array) -> tuple[Array, Array]:
        """Values of the cells around images whose least and greatest are those of the next ones."""
        if self.own is None:
            next_ones = self.beside > 0
            return jnp.where(next_ones, values, jnp.inf), jnp.where(next_ones, values, -jnp.inf)
        # As a body moves, each falls out of the range as it counts less.
        mean = jnp.sum(self.beside * values, 0, keepdims=True) / jnp.sum(self.beside, 0, keepdims=True)
        drawn = mean + self.beside * (values - mean)
        return drawn, drawn

    def of_cells(self, u: Array) -> Array:
        """A field of this block in the ghost cells, (K,)."""
        return _at(u, jnp.minimum(self.index, u.size - 1))

    def put(self, u: Array, values: Array) -> Array:
        """A field of this block with these values in the ghost cells, as far as they have no state of their own."""
        if self.own is not None:
            values = values + self.own * (self.of_cells(u) - values)
        flat = u.ravel().at[self.index].set(values, mode="drop", unique_indices=True)
        return flat.reshape(u.shape)

    def across(self, velocity: Sequence[Array]) -> Array:
        """The part of a velocity along the normal."""
        return sum((n * u for n, u in zip(self.normal, velocity, strict=True)), jnp.zeros((), self.depth.dtype))

    def slipping(
        self, heat: Array, velocity: Sequence[Array], pressure: Array, gamma: Array, lift: Lift
    ) -> tuple[Array, tuple[Array, ...], Array]:
        """p / rho, velocity and pressure in the ghost cells of walls that slip, from those at the images.

        Velocities are beyond that of the wall.
        """
        through = self.across(velocity)
        along = [u - n * through for u, n in zip(velocity, self.normal, strict=True)]
        apart = self.depth + self.image
        grown = [
            u + apart * sum((b * v for b, v in zip(row, along, strict=True)), jnp.zeros((), apart.dtype))
            for u, row in zip(along, self.bend, strict=True)
        ]
        gained = 0.5 * (squared_norm(tuple(along)) - squared_norm(tuple(grown)))
        back = self.turned(through, through, jnp.sqrt(gamma * heat))
        moving = tuple(u + back * n for u, n in zip(grown, self.normal, strict=True))
        if lift is not None:
            gained = gained + apart * lift(along)
        there = jnp.maximum(heat + (gamma - 1) / gamma * gained, LEAST_HEAT * heat)
        return there, moving, pressure * (there / heat) ** (gamma / (gamma - 1))

    def sticking(
        self, heat: Array, velocity: Sequence[Array], pressure: Array, gamma: Array, lift: Lift
    ) -> tuple[tuple[Array, ...], Array]:
        """Velocity and pressure in the ghost cells of walls that the gas sticks to; arguments as of `slipping`."""
        through, sound = self.across(velocity), jnp.sqrt(gamma * heat)
        if lift is not None:
            still = [jnp.zeros_like(u) for u in velocity]
            steep = (self.depth + self.image) * lift(still) / heat
            pressure = pressure * jnp.exp(jnp.clip(steep, -MOST_STEEP, MOST_STEEP))
        return tuple(self.turned(u, through, sound) for u in velocity), pressure

    def mirrored(self, heat: Array, wall: Array) -> Array:
        """p / rho of gas as far from a wall where it is `wall` as the ghost cell: of one density with it."""
        return wall * (heat / wall) ** jnp.minimum(jnp.abs(self.depth) / self.image, 1.0)

    def at_temperature(self, heat: Array, wall: Array) -> Array:
        """p / rho in the ghost cells of walls where it is `wall`, to second order; positive."""
        return wall * (wall / heat) ** (self.depth / self.image)


def halo_of(grid: Grid, reach: int, off: float) -> int:
    """Cells along an axis from a ghost cell to the farthest cell that its image is interpolated from.

    off: distance of images from the surface, at least, in diagonals of a cell.
    """
    h = (MOST_RATIO, *(1.0,) * (grid.ndim - 1)) if grid.stretched else grid.mean_spacing
    widest, image = max(h), off * math.hypot(*h)
    return math.ceil((reach * widest + max(reach * widest, image)) / min(h)) + AROUND[-1]


def _apart(domain: Domain, layout: FieldLayout, halo: int, dtype) -> list[Array]:
    """Distances between the centres of neighbours along each axis, of this block with `halo` more at both ends."""
    grid, found = domain.grid, []
    wrapped = [axis for axis in grid.stretched if layout.is_periodic(axis)]
    centres = domain.coordinates((CENTER,) * grid.ndim, dtype, (halo,) * grid.ndim, wrapped)
    for axis, (n, h, x) in enumerate(zip(domain.block_shape, grid.mean_spacing, centres, strict=True)):
        steps = jnp.diff(x.ravel()) if axis in grid.stretched else jnp.full(n + 2 * halo - 1, h, dtype)
        found.append(jnp.mod(steps, grid.lengths[axis]) if axis in wrapped else steps)
    return found


def _offsets(apart: Array, place: Array, halo: int) -> Array:
    """Places of the centres of the 2 halo + 1 cells around each cell along an axis, from its own, (2 halo + 1, K)."""
    steps = apart[place[None] + jnp.arange(2 * halo, dtype=jnp.int32)[:, None]]
    above = jnp.cumsum(steps[halo:], 0)
    below = -jnp.cumsum(steps[:halo][::-1], 0)[::-1]
    return jnp.concatenate([below, jnp.zeros_like(above[:1]), above])


def ghost_cells(
    domain: Domain, layout: FieldLayout, distance: Array, own: Array | None, reach: int, most: int | None
) -> GhostCells:
    """The ghost cells of bodies, and their images.

    layout: says along which axes fields are periodic. distance: from the surface at the centres of this block's cells,
    positive in the gas, up to a factor. own: share of its own state with which each cell is read, `own_share`; None:
    all in the gas. reach: cells that a flux reads beyond a face. most: room for ghost cells in a block; None: for those
    beside `MOST_SURFACE` times the faces of a cube of as many cells.
    """
    off = 1.0 if own is None else OFF_MOVING
    ndim, halo = domain.grid.ndim, halo_of(domain.grid, reach, off)
    block, kinds = distance.shape, (mirrored(layout), _going_on(layout))
    share = (distance > 0).astype(distance.dtype) if own is None else own
    share, padded = domain.pad((share, distance), kinds, halo)
    size = distance.size
    most = math.ceil(MOST_SURFACE * reach * size ** (1 - 1 / ndim)) if most is None else most
    room, behind = min(most, size), behind_surface(share, reach, halo)
    found = jnp.nonzero(behind.ravel(), size=room, fill_value=size)[0].astype(jnp.int32)
    used = found < size
    places = jnp.unravel_index(jnp.minimum(found, size - 1), block)
    steps = _apart(domain, layout, halo, distance.dtype)
    offsets = [_offsets(apart, place, halo) for apart, place in zip(steps, places, strict=True)]
    near = _Near(padded, [place + halo for place in places], [(-u[halo - 1], u[halo + 1]) for u in offsets])
    h = [0.5 * (above + below) for below, above in near.apart]

    slopes = [near.slope(axis) for axis in range(ndim)]
    steepness = smooth_root(squared_norm(tuple(slopes)))
    per = inverse(steepness)
    normal = tuple(slope * per for slope in slopes)
    depth = jnp.minimum(-near.value({}) * per, reach * functools.reduce(jnp.maximum, h))
    image = jnp.maximum(depth, off * functools.reduce(jnp.hypot, h))
    apart = depth + image
    flat = 1 - functools.reduce(jnp.maximum, (near.folded(axis) for axis in range(ndim)))
    bend = [[flat * near.bend(a, b) * per for b in range(ndim)] for a in range(ndim)]
    curved = smooth_root(sum((b * b for row in bend for b in row), jnp.zeros((), apart.dtype)))
    kept = 1 / jnp.maximum(1.0, apart * curved / MOST_GROWTH)

    at, places, near_enough = _around_images(places, offsets, [slope * apart for slope in normal], halo)
    # Beyond a side the gas is that of the cells mirrored in it, where these are no body.
    ways, known = _around(ndim), jnp.where(padded > 0, share, 0.0)
    number = _number(at, padded.shape)
    inside = _at(known, number[None] + _steps(ways, padded.shape)[:, None])
    if own is None:
        beside = inside * jnp.asarray([set(way) <= {0, 1} for way in ways], inside.dtype)[:, None]
    else:
        # As a body moves, cells come and go at the distance of two, where they count for nothing.
        near_by = functools.reduce(jnp.multiply, jnp.clip(2 - jnp.abs(places), 0.0, 1.0))
        inside, beside = inside * near_by, jnp.minimum(inside * IN_RANGE, 1.0) * near_by
    # In bodies thinner than the reach of an image, and deep in them, it may lie in no gas.
    enough = (jnp.sum(behind) <= room) & (near_enough | ~used).all()
    used = used & (jnp.sum(beside, 0) > 0)
    # Where nothing is used, one cell counts: a state of zero would have no derivative.
    only = jnp.asarray([way == (0,) * ndim for way in ways])[:, None]
    beside = jnp.where(used[None], beside, only.astype(beside.dtype))
    weights = _weights(places, inside)
    weights = jnp.where(used[None], weights, only.astype(weights.dtype))
    index = jnp.where(used, found, size + jnp.arange(room, dtype=jnp.int32))
    bend = tuple(tuple(kept * b for b in row) for row in bend)
    ghosts = None if own is None else _at(own, jnp.minimum(found, size - 1))
    known = ghosts, index, number, weights, beside, normal, depth, image, bend
    fluid = moved(share, (0,) * ndim, halo) > 0
    return GhostCells(fluid, *known, enough, halo)


def _around_images(
    places: Sequence[Array], offsets: Sequence[Array], targets: Sequence[Array], halo: int
) -> tuple[list[Array], Array, Array]:
    """Numbers along each axis of the cell below each image, places of the cells around it from it, in cells,
    (ndim, cells, K), and whether all of these lie within the halo, (K,).

    places: numbers of ghost cells along each axis. offsets: `_offsets` there. targets: of images from ghost cells.
    """
    at, around, near_enough = [], [], jnp.ones(targets[0].shape, bool)
    for place, u, target in zip(places, offsets, targets, strict=True):
        below = jnp.sum(u <= target[None], 0, dtype=jnp.int32) - 1
        first, last = -AROUND[0], 2 * halo - AROUND[-1]
        near_enough &= (below >= first) & (below <= last)
        below = jnp.clip(below, first, last)
        at.append(place + below)
        beside = [jnp.take_along_axis(u, (below + by)[None], 0)[0] for by in AROUND]
        width = beside[2] - beside[1]
        around.append(dict(zip(AROUND, [(v - target) / width for v in beside], strict=True)))
    ways = _around(len(around))
    return at, jnp.stack([jnp.stack([line[way[k]] for way in ways]) for k, line in enumerate(around)]), near_enough


def _weights(places: Array, inside: Array) -> Array:
    """Weights of cells in the value at a point of the quadratic nearest to those inside of the gas, (cells, K).

    places: of the cells from the point, in cells, (ndim, cells, K). inside: how far each counts, 0 to 1. The constant
    is orthogonalised against all other terms, by the modified method of Gram and Schmidt: what is left of it gives the
    value.
    """
    ndim, count = places.shape[:2]
    near = inside * jnp.exp(-0.5 * jnp.sum(places**2, 0))
    terms = [*places, *(places[a] * places[b] for a, b in itertools.combinations_with_replacement(range(ndim), 2))]
    rows = jnp.stack([near * term for term in (*terms, jnp.ones_like(near))])
    ridge = RIDGE * jnp.eye(len(terms) + 1, len(terms), dtype=rows.dtype)
    rows = jnp.concatenate([rows, jnp.broadcast_to(ridge[..., None], (*ridge.shape, rows.shape[-1]))], 1)
    for _ in terms:
        first, rows = rows[0], rows[1:]
        unit = first / jnp.sum(first * first, 0, keepdims=True)
        rows = rows - unit[None] * jnp.sum(first[None] * rows, 1, keepdims=True)
    left = rows[0]
    size = jnp.sum(left * left, 0, keepdims=True)
    return near * left[:count] / jnp.where(size > 0, size, 1.0)


class _Further(Boundary):
    """A distance that goes on beyond a side with its slope there, so that the normal has no kink in the side."""

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        where = axis - len(spacing)
        first, second = lines(edge, where, 0, 1), lines(edge, where, 1, 1)
        number = jnp.arange(width, dtype=edge.dtype).reshape(
            [width if k == where % edge.ndim else 1 for k in range(edge.ndim)]
        )
        # From the side, of the ghosts as of the cells that they mirror.
        away = (number + 0.5) * spacing[axis]
        nearest, next_one = lines(away, where, 0, 1), lines(away, where, 1, 1)
        return first + (nearest + away) / (next_one - nearest) * (first - second)


def _going_on(layout: FieldLayout) -> FieldLayout:
    """Periodic where the gas is, else going on with its slope beyond sides."""
    axes = range(len(layout.boundaries))
    return center_layout([(Periodic(),) * 2 if layout.is_periodic(axis) else (_Further(),) * 2 for axis in axes])


class _Near:
    """Differences of a padded distance around some of its cells, of which `places` are the numbers along each axis.

    apart: of each axis the distances to the centre of the cell below and of the one above.
    """

    def __init__(self, padded: Array, places: Sequence[Array], apart: Sequence[tuple[Array, Array]]):
        self.apart = apart
        ways: list[tuple[int, ...]] = [*itertools.product((-1, 0, 1), repeat=padded.ndim)]
        ways += [
            tuple(by if k == axis else 0 for k in range(padded.ndim)) for axis in range(padded.ndim) for by in (-2, 2)
        ]
        found = _at(padded, _number(places, padded.shape)[None] + _steps(ways, padded.shape)[:, None])
        self.values = dict(zip(ways, found, strict=True))

    def value(self, moved: Mapping[int, int]) -> Array:
        """The distance in the cells that are moved by so many along axes."""
        return self.values[tuple(moved.get(axis, 0) for axis in range(len(self.apart)))]

    def _slopes(self, axis: int) -> tuple[Array, Array]:
        """Slopes to the cell below and to the one above."""
        below, above = self.apart[axis]
        middle = self.value({})
        return (middle - self.value({axis: -1})) / below, (self.value({axis: 1}) - middle) / above

    def slope(self, axis: int) -> Array:
        """The slope there; in a thin body that of the way to the nearer surface, of second order like it."""
        middle = self._central(axis)
        return middle + self.folded(axis) * (self._towards_surface(axis) - middle)

    def folded(self, axis: int) -> Array:
        """The degree, 0 to 1, to which another surface is as near: slopes differ by more than those of a curve."""
        every = [jnp.abs(slope) for k in range(len(self.apart)) for slope in self._slopes(k)]
        change = jnp.abs(self._central(axis) - self._towards_surface(axis))
        largest = functools.reduce(jnp.maximum, every)
        return jnp.clip(change * inverse(MOST_FOLD * largest) - 1, 0.0, 1.0)

    def _central(self, axis: int) -> Array:
        (below, above), (first, second) = self.apart[axis], self._slopes(axis)
        return (above * first + below * second) / (below + above)

    def _towards_surface(self, axis: int) -> Array:
        """The slope by three cells, to the side on which the distance is the larger."""
        (below, above), (first, second) = self.apart[axis], self._slopes(axis)
        up, down = self.value({axis: 1}), self.value({axis: -1})
        # The widths of the next cell but one are about those of the next one.
        beyond = (self.value({axis: 2}) - up) / above, (down - self.value({axis: -2})) / below
        return jnp.where(up > down, second + 0.5 * (second - beyond[0]), first + 0.5 * (first - beyond[1]))

    def bend(self, a: int, b: int) -> Array:
        """A second derivative."""
        if a == b:
            first, second = self._slopes(a)
            return (second - first) * (2 / sum(self.apart[a]))
        alike = self.value({a: 1, b: 1}) + self.value({a: -1, b: -1})
        apart = self.value({a: 1, b: -1}) + self.value({a: -1, b: 1})
        return (alike - apart) / (sum(self.apart[a]) * sum(self.apart[b]))


def _around(ndim: int) -> list[tuple[int, ...]]:
    return list(itertools.product(AROUND, repeat=ndim))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _steps(ways: Sequence[Sequence[int]], shape: Sequence[int]) -> Array:
    """Changes of the number of a cell in a block of this shape on ways of so many cells along the axes."""
    steps = [sum(a * stride for a, stride in zip(way, _strides(shape), strict=True)) for way in ways]
    return jnp.asarray(steps, jnp.int32)


def _number(places: Sequence[Array], shape: Sequence[int]) -> Array:
    """The number of a cell in a block of this shape, from those along the axes."""
    first, *others = (place * stride for place, stride in zip(places, _strides(shape), strict=True))
    return sum(others, first)


def _at(u: Array, number: Array) -> Array:
    return u.ravel().at[number].get(mode="promise_in_bounds")
