"""Sources and receivers at any place: spreading to the grid and interpolating from it are adjoint to each other."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.boundary import Dirichlet, FieldLayout
from simjax.core.domain import Domain
from simjax.core.stretched import as_array, places_around
from simjax.errors import ConfigurationError
from simjax.grid import AXES, FACE, LOWER, UPPER
from simjax.ops.samples import between

HALF_WIDTH, STEEPNESS = 4, 6.31
"""Cells that a point reaches to either side, and the steepness of the Kaiser window best for that reach."""


class PointSources(eqx.Module):
    """Cells of this block that `count` points touch, (count, taps) along each axis, and (count, taps, ...) weights.

    Weights of cells that belong to other blocks are zero.
    """

    cells: tuple[Array, ...]
    weights: Array


class SampledSignal(eqx.Module):
    """A signal through `values` at increasing `times`, linear between them and zero before and after.

    values: (samples,), or (signals, samples) of several with the same times.
    """

    times: Array
    values: Array

    def __call__(self, t) -> Array:
        inside = (t >= self.times[0]) & (t <= self.times[-1])
        found = between(self.times, self.values, jnp.asarray(t))
        return jnp.where(inside, found, jnp.zeros_like(found))


def kernel(distance: Array) -> Array:
    """The Kaiser-windowed sinc at a distance in cells: sinc(d) I0(b sqrt(1 - (d/r)^2)) / I0(b) for |d| < r.

    Errors are below 1e-3 for waves of four cells or longer. Hicks (2002), Geophysics 67, 156.
    """
    square = 1 - (distance / HALF_WIDTH) ** 2
    window = _bessel(square) / _bessel(1.0)
    return jnp.where(square > 0, _sinc(distance) * window, jnp.zeros_like(distance))


def _sinc(distance: Array) -> Array:
    """sin(x) / x with x = pi distance; near zero by its power series, so that every derivative is right there."""
    x = math.pi * distance
    small = jnp.abs(x) < 0.1
    y = jnp.where(small, x * x, jnp.zeros_like(x))
    series = 1 - y / 6 * (1 - y / 20 * (1 - y / 42 * (1 - y / 72)))
    return jnp.where(small, series, jnp.sin(x) / jnp.where(small, jnp.ones_like(x), x))


def _bessel(square: Array | float) -> Array | float:
    """I0(b sqrt(square)) by its power series, which has no root in it; the terms left out are below 1e-18."""
    total = 1.0
    for k in range(22, 0, -1):
        total = 1.0 + square * (STEEPNESS / (2 * k)) ** 2 * total
    return total


def locate(domain: Domain, layout: FieldLayout, positions: Array) -> PointSources:
    """The cells and weights of points at `positions` (count, axes) in fields of `layout`; differentiable in them.

    Beyond a wall the field goes on as the even or odd image that its boundary makes of it, so a point may lie
    anywhere in the box.
    """
    if positions.ndim != 2 or positions.shape[1] != domain.grid.ndim:
        raise ConfigurationError(f"Points need positions of shape (points, {domain.grid.ndim}); got {positions.shape}.")
    along = [_locate_along(domain, layout, axis, positions[:, axis]) for axis in range(domain.grid.ndim)]
    ndim, count, taps = len(along), *along[0][1].shape
    weights = jnp.ones((count, *(1,) * ndim), positions.dtype)
    for axis, (_, line) in enumerate(along):
        weights = weights * line.reshape((count, *(taps if k == axis else 1 for k in range(ndim))))
    return PointSources(tuple(cells for cells, _ in along), weights)


def _locate_along(domain: Domain, layout: FieldLayout, axis: int, x: Array) -> tuple[Array, Array]:
    """Cells of this block, (count, taps), and weights of points at positions `x` (count,) along one axis."""
    grid, offset = domain.grid, layout.offset[axis]
    n = grid.shape[axis]
    if n < HALF_WIDTH + 1:
        raise ConfigurationError(
            f"grid.shape[{axis}]={n}: points reach {HALF_WIDTH} cells to either side; use more than {HALF_WIDTH} "
            f"cells along {AXES[axis]}."
        )
    place = _number(domain, layout, axis, x)
    below = jnp.floor(place)
    taps = jnp.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, dtype=jnp.int32)
    weights = kernel((below - place)[:, None] + taps.astype(x.dtype)[None, :])
    cells = below.astype(jnp.int32)[:, None] + taps[None, :]
    if layout.is_periodic(axis):
        cells = jnp.mod(cells, n)
    else:
        cells, signs = _fold(cells, n, offset, layout.boundaries[axis])
        weights = weights * signs.astype(x.dtype)
    mine = cells - domain.block_index(axis) * domain.block_shape[axis]
    here = (mine >= 0) & (mine < domain.block_shape[axis])
    weights = jnp.where(here, weights, jnp.zeros_like(weights))
    return jnp.clip(mine, 0, domain.block_shape[axis] - 1), weights


def _number(domain: Domain, layout: FieldLayout, axis: int, x: Array) -> Array:
    """Positions in numbers of the values beside them: linear between the places of values on a stretched axis."""
    grid, offset, wraps = domain.grid, layout.offset[axis], layout.is_periodic(axis)
    line = grid.stretch[axis]
    if line is None:
        return (x - grid.lower[axis]) / grid.mean_spacing[axis] - offset
    faces, centers = domain.lines[axis] or (np.asarray(line.faces), np.asarray(line.centers))
    values = centers if offset != FACE else faces[:-1] if wraps else faces
    around = as_array(places_around(values, faces, 1, wraps), x.dtype)
    below = jnp.clip(jnp.searchsorted(around, x, side="right") - 1, 0, grid.shape[axis])
    return below.astype(x.dtype) - 1 + (x - around[below]) / (around[below + 1] - around[below])


def _fold(cells: Array, n: int, offset: float, boundaries) -> tuple[Array, Array]:
    """Cells beyond the walls as their images inside, and the images' signs (0 on an upper wall face, not stored)."""
    lower, upper = (-1 if isinstance(boundaries[side], Dirichlet) else 1 for side in (LOWER, UPPER))
    before, after = cells < 0, cells >= n
    shift = 0 if offset == FACE else 1
    folded = jnp.where(before, -shift - cells, jnp.where(after, 2 * n - shift - cells, cells))
    signs = jnp.where(before, lower, jnp.where(after, upper, 1))
    return folded, jnp.where(folded == n, 0, signs) if offset == FACE else signs


def _index(points: PointSources) -> tuple[Array, ...]:
    """`points.cells` shaped to broadcast to the weights."""
    ndim = len(points.cells)
    shapes = [[1] * ndim for _ in range(ndim)]
    for axis, cells in enumerate(points.cells):
        shapes[axis][axis] = cells.shape[1]
    return tuple(c.reshape((c.shape[0], *shape)) for c, shape in zip(points.cells, shapes, strict=True))


def gather(points: PointSources, field: Array) -> Array:
    """The field's values at the points' cells, (count, taps, ...)."""
    return field[_index(points)]


def heard(points: PointSources, field: Array) -> Array:
    """The part of this block in the field at the points, (count,): all blocks add up to it."""
    return jnp.sum(points.weights * gather(points, field), axis=tuple(range(1, points.weights.ndim)))


def receive(domain: Domain, points: PointSources, field: Array) -> Array:
    """The field at the points, (count,)."""
    return domain.total(heard(points, field))


def per_volume(domain: Domain, points: PointSources, scale: Array | float) -> PointSources:
    """Amounts at points as densities in the cells around them.

    scale: the mean volume of a cell over that of each, 1.0 on a uniform grid.
    """
    weights = points.weights
    if isinstance(scale, Array):
        weights = weights * gather(points, jnp.broadcast_to(scale, domain.block_shape))
    return PointSources(points.cells, weights * (1 / math.prod(domain.grid.mean_spacing)))


def spread(points: PointSources, amounts: Array, field: Array) -> Array:
    """The field with the amounts (count,) of the points added to the cells around them."""
    count = amounts.reshape((-1, *(1,) * len(points.cells)))
    return field.at[_index(points)].add(count * points.weights)


def marks_of(params: Any) -> dict[str, Array]:
    """Places of the sources and receivers of a wave problem, for pictures."""
    places = {"source": params.sources, "receiver": params.receivers}
    return {name: where for name, where in places.items() if where is not None}
