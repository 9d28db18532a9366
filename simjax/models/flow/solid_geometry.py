"""Geometry of bodies on the grid, from the distance of cell centres from their surface.

Distances are linear between the centres of cells, along stretched axes too. A block has n + 1 faces along an axis.
"""

from collections.abc import Callable, Iterable, Sequence

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import CENTER, FACE
from simjax.ops.difference import shift
from simjax.ops.spacing import Spacing
from simjax.solvers.elliptic import cut

Neighbours = tuple[tuple[Array, Array], ...]
"""For each axis, one number for the neighbour below and one for that above."""


def mirrored(layout: FieldLayout) -> FieldLayout:
    """For coefficients: periodic where the flow is, else going on unchanged beyond sides."""
    ends = [(Periodic(), Periodic()) if layout.is_periodic(axis) else (Neumann(), Neumann())
            for axis in range(len(layout.boundaries))]  # fmt: skip
    return center_layout(ends)


def face_offset(domain: Domain, axis: int) -> tuple[float, ...]:
    """The place in its cell of the lower face normal to an axis."""
    return tuple(FACE if k == axis else CENTER for k in range(domain.grid.ndim))


def on_block(given: Array | Callable, domain: Domain, offset: tuple[float, ...], t, dtype) -> Array:
    """An array of this block, or the values there of a function `(t, *coordinates)`."""
    if callable(given):
        given = given(t, *domain.coordinates(offset, dtype))
    return jnp.broadcast_to(jnp.asarray(given, dtype), domain.block_shape)


def inverse(u: Array) -> Array:
    """1 / u, zero where u is not positive."""
    return jnp.where(u > 0, 1 / jnp.where(u > 0, u, 1.0), 0.0)


def peeled(padded: Array, axes: Iterable[int]) -> Array:
    """A block without its outermost cells along some axes."""
    for axis in axes:
        padded = cut(padded, axis, 1, padded.shape[axis] - 1)
    return padded


def pairs_of(u: Array, axis: int) -> Array:
    """Sums of neighbours along an axis: one fewer."""
    n = u.shape[axis]
    return cut(u, axis, 0, n - 1) + cut(u, axis, 1, n)


def products(u: Array, axis: int) -> Array:
    """Products of neighbours along an axis: one fewer."""
    n = u.shape[axis]
    return cut(u, axis, 0, n - 1) * cut(u, axis, 1, n)


def neighbour_sum(padded: Array, ndim: int) -> Array:
    """The sum of the neighbours along all axes."""
    return jnp.asarray(sum(shift(padded, ndim, axis, by) for axis in range(ndim) for by in (-1, 1)))


def combined(
    domain: Domain, fields: Sequence[Array], layouts: Sequence[FieldLayout], t, shares: Sequence[Array],
    follows: Sequence[Array], weights: Sequence[Array], more: Sequence[Array] | None,
) -> tuple[Array, ...]:  # fmt: skip
    """For each field its share, the sum of the neighbours that it follows times their weight, and `more`.

    shares: numbers, or whether there is one. follows, weights: see `interpolation`.
    """
    ndim, total = domain.grid.ndim, []
    padded = domain.pad(tuple(fields), tuple(layouts), 1, t)
    for u, around, share, marks, weight in zip(fields, padded, shares, follows, weights, strict=True):
        followed = jnp.zeros((), u.dtype)
        for axis in range(ndim):
            for number, by in enumerate((-1, 1)):
                marked = marks & (1 << (2 * axis + number)) != 0
                followed = followed + jnp.where(marked, shift(around, ndim, axis, by), 0.0)
        own = jnp.where(share, u, 0.0) if share.dtype == bool else share * u
        total.append(own + weight * followed)
    return tuple(total) if more is None else tuple(map(jnp.add, total, more))


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
    n = u.shape[axis]
    if isinstance(below, Array):
        beyond = (below.shape[axis] + 1 - n) // 2
        below = cut(below, axis, beyond, beyond + n - 1)
    return below * cut(u, axis, 0, n - 1) + (1 - below) * cut(u, axis, 1, n)


def at_faces(distance: Array, axis: int, below: Spacing) -> Array:
    """The distance on the n + 1 faces of an axis with one more all around, from that with two cells more."""
    return peeled(between(distance, axis, below), (k for k in range(distance.ndim) if k != axis))


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


def mean_positive(distance: Array, axis: int, below: Sequence[Spacing]) -> Array:
    """The mean of max(distance, 0) over the n + 1 faces of an axis. distance: with one cell more all around.

    Exact where the distance is linear; in 3-D along one axis, and by Simpson's rule along the other.
    """
    first, *other = (k for k in range(distance.ndim) if k != axis)
    nodes = between(between(distance, axis, below[axis]), first, below[first])
    if not other:
        return mean_along(nodes, first)
    # From the middle of a cell to its faces: the same mean of both where it is as far to either.
    ends = pairs_of(mean_along(between(nodes, other[0], below[other[0]]), first), other[0])
    return (ends + 4 * mean_along(peeled(nodes, other), first)) / 6


def mean_along(nodes: Array, axis: int) -> Array:
    """The mean of the positive part of what is linear between nodes along an axis."""
    n = nodes.shape[axis]
    a, b = cut(nodes, axis, 0, n - 1), cut(nodes, axis, 1, n)
    return _mean_of_positive(jnp.minimum(a, b), jnp.maximum(a, b))


def _mean_of_positive(low: Array, high: Array) -> Array:
    """The mean of the positive part of what is linear from `low` to `high`."""
    return jnp.where(low >= 0, 0.5 * (low + high), 0.5 * jnp.maximum(high, 0.0) ** 2 * inverse(high - low))


def interpolation(distance: Array) -> tuple[Array, Array, Array]:
    """Tell whether faces are free; where not, which neighbours they follow, and one over the sum of their distances.

    A face in the fluid is free where it is no nearer to the surface than its nearest neighbour, behind the surface, is.
    Else it follows the neighbour on the other side, with the ratio of the distances. A face in a body follows its
    neighbour that is farthest out where that one is free in this sense, else the body alone. Of the neighbours that it
    follows the one below along an axis has the bit 2 axis of a byte, and the one above the next bit. distance: on
    faces, with one more all around.
    """
    ndim = distance.ndim
    here = shift(distance, ndim)
    beside = [tuple(shift(distance, ndim, axis, by) for by in (-1, 1)) for axis in range(ndim)]
    every = jnp.stack([one for pair in beside for one in pair])
    low, high = every.min(0), every.max(0)
    # Of what is equal but for rounding, as along diagonals and midway between faces, rounding decides nothing.
    equal = jnp.sqrt(jnp.finfo(distance.dtype).eps) * (high - low)
    free = (here > 0) & (here + low >= -equal)
    ghost, forced = (here <= 0) & (high > 0) & (here + high >= -equal), (here > 0) & ~free

    def follows(out: Array, behind: Array) -> Array:
        return (ghost & (out >= high - equal)) | (forced & (behind <= low + equal) & (out > 0))

    marks, total = jnp.zeros(here.shape, jnp.uint8), jnp.zeros_like(here)
    for axis, (below, above) in enumerate(beside):
        for number, (out, behind) in enumerate(((below, above), (above, below))):
            mark = follows(out, behind)
            marks = marks | jnp.where(mark, 1 << (2 * axis + number), 0).astype(jnp.uint8)
            total = total + jnp.where(mark, jnp.maximum(out, jnp.abs(here)), 0.0)
    return free, marks, inverse(total)


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
        n = middle.shape[axis]
        slopes = [0.5 * pairs_of(slope, axis) for slope in slopes]
        slopes.append(cut(middle, axis, 1, n) - cut(middle, axis, 0, n - 1))
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
