"""Geometry of bodies on the grid, from the distance of cell centres from their surface.

Distances are linear between the centres of cells, along stretched axes too. A block has n + 1 faces along an axis.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.core.given_values import called
from simjax.grid import CENTER, FACE
from simjax.jaxpr.linear_map import fixed_linear_map
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.difference import shift
from simjax.ops.extremes import least
from simjax.ops.spacing import Spacing, scaled
from simjax.ops.staggered import apart_along
from simjax.solvers.elliptic import cut
from simjax.stencil.formulation import gathers_in_reverse

REACH = 2.0
"""Ratio of distances from the surface up to which ghost values serve. With shares that fall along a line, no ghost
value counts more than that of a plane wall in the middle between both, so that the time step is that of the fluid."""

Neighbours = tuple[tuple[Array, Array], ...]
"""For each axis, one number for the neighbour below and one for that above."""


def mirrored(layout: FieldLayout) -> FieldLayout:
    """For coefficients: periodic where the flow is, else going on unchanged beyond sides."""
    ends = [
        (Periodic(), Periodic()) if layout.is_periodic(axis) else (Neumann(), Neumann())
        for axis in range(len(layout.boundaries))
    ]
    return center_layout(ends)


def face_offset(domain: Domain, axis: int) -> tuple[float, ...]:
    """The place in its cell of the lower face normal to an axis."""
    return tuple(FACE if k == axis else CENTER for k in range(domain.grid.ndim))


def on_block(given: float | Array | Callable, domain: Domain, offset: tuple[float, ...], t, dtype) -> Array:
    """An array of this block or a number, or the values there of a function `(t, *coordinates)`."""
    if callable(given):
        given = called(given, "f(t, *coordinates)", (t, *domain.coordinates(offset, dtype)), domain.block_shape)
    return jnp.broadcast_to(jnp.asarray(given, dtype), domain.block_shape)


def inverse(u: Array) -> Array:
    """1 / u, zero where u is not positive."""
    return jnp.where(u > 0, 1 / jnp.where(u > 0, u, 1.0), 0.0)


def peeled(padded: Array, axes: Iterable[int]) -> Array:
    """A block without its outermost cells along some axes, once for each time that an axis is named."""
    counts = Counter(axes)
    ends = [n - counts[axis] for axis, n in enumerate(padded.shape)]
    return jax.lax.slice(padded, [counts[axis] for axis in range(padded.ndim)], ends)


@dataclass(frozen=True)
class _Neighbours:
    """A sum over places along axes, in the cells that have all of them; its transpose gathers from the same places.

    places: for each the number of its first cell by axis, of which the least is zero, and its sign. Jax's own transpose
    of a slice is surrounded by zeros, and XLA on a CPU makes a loop of each.
    """

    places: tuple[tuple[tuple[int, ...], int], ...]

    def forward(self, u: Array, /) -> Array:
        reach = [max(first[axis] for first, _ in self.places) for axis in range(u.ndim)]
        terms = []
        for first, sign in self.places:
            ends = [n - far + at for n, far, at in zip(u.shape, reach, first, strict=True)]
            part = jax.lax.slice(u, first, ends)
            terms.append(part if sign == 1 else -part)
        return sum(terms[1:], terms[0])

    def transpose(self, cotangent: Array, /) -> Array:
        reach = [max(first[axis] for first, _ in self.places) for axis in range(cotangent.ndim)]
        zeros = jax.lax.pad(cotangent, jnp.zeros((), cotangent.dtype), [(far, far, 0) for far in reach])
        mirror = tuple(
            (tuple(far - at for far, at in zip(reach, first, strict=True)), sign) for first, sign in self.places
        )
        return _Neighbours(mirror).forward(zeros)

    def __call__(self, u: Array) -> Array:
        return fixed_linear_map(self, u) if gathers_in_reverse() else self.forward(u)


def _one_along(ndim: int, axis: int, by: int) -> tuple[int, ...]:
    return tuple(by if k == axis else 0 for k in range(ndim))


def pairs_of(u: Array, axis: int) -> Array:
    """Sums of neighbours along an axis: one fewer."""
    return _Neighbours(((_one_along(u.ndim, axis, 0), 1), (_one_along(u.ndim, axis, 1), 1)))(u)


def steps_of(u: Array, axis: int, over: int = 1) -> Array:
    """Differences of cells along an axis that are `over` cells apart: so many fewer."""
    return _Neighbours(((_one_along(u.ndim, axis, over), 1), (_one_along(u.ndim, axis, 0), -1)))(u)


def products(u: Array, axis: int) -> Array:
    """Products of neighbours along an axis: one fewer."""
    n = u.shape[axis]
    return cut(u, axis, 0, n - 1) * cut(u, axis, 1, n)


def neighbour_sum(padded: Array, ndim: int) -> Array:
    """The sum of the neighbours along all axes."""
    beside = ([1 + by * (k == axis) for k in range(ndim)] for axis in range(ndim) for by in (-1, 1))
    return _Neighbours(tuple((tuple(first), 1) for first in beside))(padded)


def followed(padded: Array, depth: Array) -> Array:
    """Sums over the neighbours in the fluid of a field times their depth; both with one cell more all around."""
    return neighbour_sum(jnp.maximum(depth, 0.0) * padded, depth.ndim)


def weights_below(domain: Domain, layout: FieldLayout, ghosts: int, dtype) -> tuple[Spacing, ...]:
    """Weights of the cells below in values at faces that are linear between centres, by axis.

    Each a number, or an array for the faces between the cells of a block with `ghosts` more at both ends. layout: says
    along which axes the fields are periodic.
    """
    ndim = domain.grid.ndim
    found: list[Spacing] = [0.5] * ndim
    wrapped = [axis for axis in domain.grid.stretched if layout.is_periodic(axis)]
    centres, faces = (domain.coordinates((at,) * ndim, dtype, (ghosts,) * ndim, wrapped) for at in (CENTER, FACE))
    for axis in domain.grid.stretched:
        width = domain.spacing(layout, ghosts, dtype)[axis]
        below, n = centres[axis] - faces[axis], centres[axis].shape[axis]
        before, behind = cut(width - below, axis, 0, n - 1), cut(below, axis, 1, n)
        found[axis] = behind / (before + behind)
    return tuple(found)


def between(u: Array, axis: int, below: Spacing) -> Array:
    """Values on the faces between neighbours along an axis: one fewer.

    below: as `weights_below`, for as many cells or more at both ends.
    """
    if not isinstance(below, Array):
        assert below == 0.5, "only stretched axes have other weights"
        return 0.5 * pairs_of(u, axis)
    n = u.shape[axis]
    beyond = (below.shape[axis] + 1 - n) // 2
    below = cut(below, axis, beyond, beyond + n - 1)
    return below * cut(u, axis, 0, n - 1) + (1 - below) * cut(u, axis, 1, n)


STEEPEST = 0.125
"""The most that `straightened` takes off, over what the distance changes by in a cell: more is no curvature that the
grid resolves, but an edge."""


class Bends(NamedTuple):
    """The curvature of a distance.

    distance: of cells. excess: for each axis what a mean of means of neighbours has more than it, h^2/4 times the
    second derivative. most: that `straightened` takes off.
    """

    distance: Array
    excess: tuple[Array, ...]
    most: Array

    def less(self, shares: Sequence[float]) -> Array:
        """The distance less shares of what it has more along each axis."""
        first, *others = (share * one for share, one in zip(shares, self.excess, strict=True) if share)
        return self.distance - jnp.clip(sum(others, first), -self.most, self.most)


def bends(distance: Array, below: Sequence[Spacing]) -> Bends:
    """The curvature of a distance, which has one cell more all around."""
    ndim, within = distance.ndim, shift(distance, distance.ndim)
    excess, steepness = [], jnp.zeros_like(within)
    for axis in range(ndim):
        line = peeled(distance, (k for k in range(ndim) if k != axis))
        excess.append(0.5 * pairs_of(between(line, axis, below[axis]), axis) - within)
        steepness = steepness + 0.5 * jnp.abs(steps_of(line, axis, 2))
    return Bends(within, tuple(excess), STEEPEST * steepness)


def straightened(distance: Array, below: Sequence[Spacing], shares: Sequence[float]) -> Array:
    """The distance less shares of what a mean of means of neighbours along each axis has more than it.

    That is h^2/4 times its second derivative. Linear interpolation to faces and corners adds half of it for each mean,
    and so makes round bodies smaller: by 5 % where they are six cells across. distance: with one cell more all around.
    """
    return bends(distance, below).less(shares)


def shares_of(ndim: int, axis: int, own: float, others: float) -> list[float]:
    """Shares for `straightened`: `own` along an axis, `others` along the others."""
    return [own if k == axis else others for k in range(ndim)]


OF_CELLS = 5 / 6
"""A cell's corners by means, and their mean, have h^2/4 of the second derivative more; the cell's mean has h^2/24."""


def at_faces(bent: Bends, axis: int, below: Sequence[Spacing]) -> Array:
    """The distance on the n + 1 faces of an axis with one more all around, curved as it is.

    bent: of the distance of centres, with two cells more all around. below: for three cells more.
    """
    straight, ndim = bent.less(shares_of(len(below), axis, 1 / 2, 0.0)), len(below)
    return peeled(between(straight, axis, below[axis]), (k for k in range(ndim) if k != axis))


def open_part(distance: Array, axis: int, below: Sequence[Spacing]) -> Array:
    """The part in the fluid of what lies within half a cell of the n + 1 faces of an axis.

    Of the distances at the corners of that volume the positive ones, over all. distance: with one cell more all around.
    """
    ndim = distance.ndim
    for k in range(ndim):
        if k != axis:
            distance = between(distance, k, below[k])
    positive, whole = jnp.maximum(distance, 0.0), jnp.abs(distance)
    for k in range(ndim):
        positive, whole = pairs_of(positive, k), pairs_of(whole, k)
    # One exactly where nothing is cut, which rounding would hide.
    return jnp.where((positive == whole) & (whole > 0), 1.0, positive * inverse(whole))


def mean_positive(distance: Array, axis: int, below: Sequence[Spacing]) -> tuple[Array, Array]:
    """The means of max(distance, 0) and of the distance over the n + 1 faces of an axis.

    Exact where the distance is linear; in 3-D along one axis, and by Simpson's rule along the other. distance: with one
    cell more all around.
    """
    first, *other = (k for k in range(distance.ndim) if k != axis)
    nodes = between(between(distance, axis, below[axis]), first, below[first])
    if not other:
        return means_along(nodes, first)
    # From the middle of a cell to its faces: the same mean of both where it is as far to either.
    ends = means_along(between(nodes, other[0], below[other[0]]), first)
    middle = means_along(peeled(nodes, other), first)
    positive, whole = ((pairs_of(end, other[0]) + 4 * half) / 6 for end, half in zip(ends, middle, strict=True))
    return positive, whole


def means_along(nodes: Array, axis: int) -> tuple[Array, Array]:
    """The means of the positive part and of all of what is linear between nodes along an axis."""
    n = nodes.shape[axis]
    a, b = cut(nodes, axis, 0, n - 1), cut(nodes, axis, 1, n)
    return _mean_of_positive(jnp.minimum(a, b), jnp.maximum(a, b)), 0.5 * (a + b)


def _mean_of_positive(low: Array, high: Array) -> Array:
    """The mean of the positive part of what is linear from `low` to `high`."""
    return jnp.where(low >= 0, 0.5 * (low + high), 0.5 * jnp.maximum(high, 0.0) ** 2 * inverse(high - low))


def inverse_squares(depth: Array) -> Array:
    """One over the sum of the squares of the depths of the neighbours in the fluid; zero where there are none.

    Times `followed` it is the slope from the surface that fits these neighbours best, by least squares.
    depth: the distance of places from the surface, with one more all around.
    """
    return inverse(neighbour_sum(jnp.maximum(depth, 0.0) ** 2, depth.ndim))


def ghost_depth(depth: Array, weight: Array) -> Array:
    """The depth that values in bodies follow the fluid with: below zero, at most `REACH` times that of the neighbours.

    Farther behind the surface nothing follows it, as `friction` takes the whole of what a body does to such neighbours.
    In the fluid it is the depth itself. weight: `inverse_squares` of the depth.
    """
    here = shift(depth, depth.ndim)
    most = jnp.where(weight > 0, jax.lax.rsqrt(jnp.where(weight > 0, weight, 1.0)), 0.0)
    return jnp.where(here > 0, here, -jnp.minimum(-here, REACH * most))


def ghost_weights(depth: Array) -> Array:
    """Weights of `followed` in values in bodies: `ghost_depth` times `inverse_squares`; zero in the fluid."""
    weight = inverse_squares(depth)
    return jnp.minimum(ghost_depth(depth, weight), 0.0) * weight


def held(depth: Array) -> Array:
    """Share in a value that the surface decides by itself: from zero, in the fluid, to one, beside it and in bodies.

    It rises where the nearest neighbour behind the surface is farther from it than the place is, and is one where it is
    `REACH` times as far.
    """
    here, ndim = shift(depth, depth.ndim), depth.ndim
    low = least([shift(depth, ndim, axis, by) for axis in range(ndim) for by in (-1, 1)])
    return jnp.where(here > 0, _share(-jnp.minimum(low, _behind_edges(depth)) * inverse(here)), 1.0)


def _behind_edges(depth: Array) -> Array:
    """The depth at which something holds a place, though all its neighbours may lie in the fluid.

    It is less by the root mean square, over the axes, of what the distance changes by to the nearer neighbour in depth:
    where one lies farther in, as at every resolved surface, that one is at least as deep. Beside an edge, or a body
    thinner than a cell, there may be none, and the value tends to that of the surface by this.
    """
    here, ndim, steepness = shift(depth, depth.ndim), depth.ndim, jnp.zeros((), depth.dtype)
    for axis in range(ndim):
        ways = (jnp.abs(shift(depth, ndim, axis, by) - here) for by in (-1, 1))
        steepness = steepness + jnp.minimum(*ways) ** 2
    # Zero where the distance is constant, whose root has no derivative.
    some = steepness > 0
    return here - jnp.where(some, jnp.sqrt(jnp.where(some, steepness, 1.0) / ndim), 0.0)


def _share(ratio: Array) -> Array:
    """The share of friction that is taken implicitly, of the ratio of distances from the surface."""
    return jnp.clip((ratio - 1) / (REACH - 1), 0.0, 1.0)


class Friction(NamedTuple):
    """Effect of bodies on values beside their surface along grid lines, over the viscosity.

    rate: of the decay towards the value of the body. explicit: for each axis what the neighbours below and above count
    with, less.
    """

    rate: Array
    explicit: Neighbours


def friction(
    depth: Array, spacing: Sequence[Spacing], component: int | None, rings: tuple[Spacing, ...] | None = None
) -> Friction:
    """The part of the Laplacian across the surface that is taken implicitly.

    On the line through a value at the depth d and a neighbour behind the surface, at -x d, what is linear is -x u at
    that neighbour (Gibou, Fedkiw, Cheng and Kang 2002, J. Comput. Phys. 176, 205). A ghost value serves while x is at
    most one. From there to `REACH` its share in the Laplacian falls to zero, and -x u, which grows without bound as
    d vanishes, takes its place: so a value tends to that of the surface before the surface passes it.

    depth, spacing: with one cell more all around. component: of a velocity on faces; None: at cell centres. rings: see
    `ring_geometry.shares_of_neighbours`.
    """
    ndim = depth.ndim
    here = shift(depth, ndim)
    near, rate, least, explicit = inverse(here), jnp.zeros_like(here), jnp.asarray(jnp.inf, depth.dtype), []
    most = 1 / float(jnp.finfo(depth.dtype).eps)

    def ratio_to(beside: Array) -> Array:
        return jnp.clip(-beside * near, 0.0, most)

    for axis in range(ndim):
        h = spacing[axis]
        h = jnp.broadcast_to(h, depth.shape) if isinstance(h, Array) else h
        below, own, above = apart_along(h, axis, ndim, axis == component)
        pair = []
        counts = rings if rings is not None and axis == RADIAL else (1.0, 1.0)
        for by, distance, count in ((-1, below, counts[0]), (1, above, counts[1])):
            strength = scaled(jnp.ones_like(here), 1 / distance, 1 / own)
            ratio = ratio_to(shift(depth, ndim, axis, by))
            pair.append(scaled(strength, count) * _share(ratio))
            rate, least = rate + pair[-1] * ratio, jnp.minimum(least, strength)
        explicit.append((pair[0], pair[1]))
    edge = ratio_to(_behind_edges(depth))
    return Friction(jnp.maximum(rate, least * _share(edge) * edge), tuple(explicit))


def counted(padded: Array, by: Friction) -> Array:
    """The sum of the neighbours of a field with one cell more all around, by their part in `Friction.explicit`."""
    terms = [
        share * shift(padded, padded.ndim, axis, to)
        for axis, pair in enumerate(by.explicit)
        for to, share in zip((-1, 1), pair, strict=True)
    ]
    return sum(terms[1:], terms[0])


def at_nodes(distance: Array, below: Sequence[Spacing]) -> Array:
    """The distance at the corners of cells, n + 1 along every axis. distance: with one cell more all around."""
    for axis in range(distance.ndim):
        distance = between(distance, axis, below[axis])
    return distance


def open_cells(nodes: Array, axes: Sequence[int]) -> Array:
    """The part in the fluid of cells, or of their faces, that reach from node to node along `axes`.

    nodes: the distance there. It is exact for plane surfaces; for cells in space by Simpson's rule along one axis.
    """
    middle, slopes = nodes, []
    for axis in axes:
        slopes = [0.5 * pairs_of(slope, axis) for slope in slopes]
        slopes.append(steps_of(middle, axis))
        middle = 0.5 * pairs_of(middle, axis)
    steep = jnp.sort(jnp.abs(jnp.stack(slopes)), axis=0)
    return _positive_part(middle, tuple(steep))


def _positive_part(middle: Array, slopes: tuple[Array, ...]) -> Array:
    """The part of a box where what is linear is positive; slopes: its differences across the box, the largest last."""
    if len(slopes) == 3:
        least, *others = slopes
        ends = (_positive_part(middle + by * least, tuple(others)) for by in (-0.5, 0.5))
        return (sum(ends) + 4 * _positive_part(middle, tuple(others))) / 6
    *less, largest = slopes
    step = jnp.where(largest > 0, largest, 1.0)
    reach, share = 0.5 * sum(less, largest), 0.5 + middle / step
    if less:
        low, high = (share + by * less[0] / step for by in (-0.5, 0.5))
        share = _mean_of_positive(low, high) - _mean_of_positive(low - 1, high - 1)
    return jnp.where(middle >= reach, jnp.where(middle > 0, 1.0, 0.0), jnp.where(middle <= -reach, 0.0, share))
