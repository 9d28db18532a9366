"""Sums over a decomposed field that operators are made of: values between cells, shares of cells, waves."""

import functools
import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.core.stretched import Places
from simjax.errors import ConfigurationError
from simjax.instruments.places import edges_along, extents_along, line_of, module_of


def interpolate(
    domain: Domain, field: Array, below: Sequence[Array], fraction: Sequence[Array], periodic: Sequence[bool]
) -> Array:
    """The field at `fraction` of the way from value `below` to the next, both (...) along each axis, one per point.

    Each block adds what it holds of the values around a point.
    """
    require_axes("periodic", periodic, domain.grid.ndim)
    along = [corners(domain, axis, below[axis], fraction[axis], periodic[axis]) for axis in range(domain.grid.ndim)]
    partial = jnp.zeros(below[0].shape, field.dtype)
    for corner in itertools.product((0, 1), repeat=domain.grid.ndim):
        cells, weights, inside = zip(*(pair[k] for pair, k in zip(along, corner, strict=True)), strict=True)
        # Selected before it is weighted, so that a NaN elsewhere in this block stays there.
        held = jnp.where(functools.reduce(jnp.logical_and, inside), field[cells], 0)
        partial = partial + functools.reduce(jnp.multiply, weights) * held
    return domain.total(partial)


def corners(domain: Domain, axis: int, below: Array, fraction: Array, wraps: bool):
    """(cell of this block, weight, whether the block holds it) of the values below and above points along `axis`.

    below: number of the value below each point; fraction: of the way from there to the next.
    """
    n, block = domain.grid.shape[axis], domain.block_shape[axis]
    if not wraps:
        last = max(n - 2, 0)
        # Beyond the outermost values the line through the last two goes on; a single value is a constant.
        inner = jnp.clip(below, 0, last)
        fraction = fraction + (below - inner).astype(fraction.dtype) if n > 1 else jnp.zeros_like(fraction)
        below = inner
    result = []
    for cell, weight in ((below, 1 - fraction), (below + 1, fraction)):
        mine = (jnp.mod(cell, n) if wraps else cell) - domain.block_index(axis) * block
        result.append((jnp.clip(mine, 0, block - 1), weight, (mine >= 0) & (mine < block)))
    return result


def shares(
    domain: Domain, axis: int, lowers: np.ndarray, uppers: np.ndarray, offset: float, wraps: bool, dtype
) -> Array:
    """The share of each of this block's values in the averages over the intervals along `axis`: (intervals, cells)."""
    grid, line = domain.grid, line_of(domain, axis)
    if line is not None:
        edges = edges_along(line, offset, wraps)
        images = (0.0, -grid.lengths[axis]) if wraps else (0.0,)
        module = module_of(edges)
        ends = [(lowers[:, None] + image, uppers[:, None] + image) for image in images]
        overlap = sum(
            module.clip(module.minimum(upper, edges[None, 1:]) - module.maximum(lower, edges[None, :-1]), 0.0, None)
            for lower, upper in ends
        )
        return own(domain, axis, overlap / (uppers - lowers)[:, None], dtype)
    # Value i stands for [i, i + 1] in these coordinates.
    shift = 0.5 - offset
    lowers, uppers = ((x - grid.lower[axis]) / grid.mean_spacing[axis] + shift for x in (lowers, uppers))
    n, block = grid.shape[axis], domain.block_shape[axis]
    index = domain.block_index(axis) * block + jnp.arange(block, dtype=jnp.int32)

    def below(edges: np.ndarray, image: int) -> Array:
        # Whole spacings are counted in integers, so that float32 resolves the fractions on long axes.
        whole = np.floor(edges)
        distance = (jnp.asarray(whole, jnp.int32)[:, None] - index[None, :] - image).astype(dtype)
        extent = jnp.where(index == n - 1, 1 if wraps else 2, 1).astype(dtype)[None, :]
        return jnp.clip(distance + jnp.asarray(edges - whole, dtype)[:, None], 0, extent)

    images = (0, n) if wraps else (0,)
    overlap = sum(below(uppers, image) - below(lowers, image) for image in images)
    return overlap / jnp.asarray(uppers - lowers, dtype)[:, None]


def own(domain: Domain, axis: int, values: Places, dtype) -> Array:
    """Cut this block's part from `values` (..., n), which has a value for each cell along `axis`."""
    whole, block = jnp.asarray(values, dtype), domain.block_shape[axis]
    if domain.split[axis] is None:
        return whole
    return lax.dynamic_slice_in_dim(whole, domain.block_index(axis) * block, block, axis=whole.ndim - 1)


def volumes(
    domain: Domain, offset: Sequence[float], periodic: Sequence[bool], dtype, but: int | None = None
) -> Array | None:
    """Volumes that this block's values stand for, over the mean of all, of axes `but` one; None: all are the same."""
    product = None
    for axis in range(domain.grid.ndim):
        extents = None if axis == but else extents_along(domain, axis, offset[axis], periodic[axis])
        if extents is not None:
            shape = tuple(-1 if k == axis else 1 for k in range(domain.grid.ndim))
            factor = own(domain, axis, extents, dtype).reshape(shape)
            product = factor if product is None else product * factor
    return product


def waves(domain: Domain, axis: int, largest: int, dtype) -> Array:
    """cos(k x), k = 0..`largest`, then sin(k x), k = 1..`largest`, at this block's values along `axis`: (waves, cells).

    Scaled such that the squares of a field's products with all waves up to half the grid's add up to its mean square.
    """
    n, block = domain.grid.shape[axis], domain.block_shape[axis]
    index = domain.block_index(axis) * block + jnp.arange(block, dtype=jnp.int32)
    row = jnp.arange(2 * largest + 1, dtype=jnp.int32)[:, None]
    even = row <= largest
    # Whole turns are taken off in integers, before any rounding.
    angle = (2 * math.pi / n) * ((jnp.where(even, row, row - largest) * index[None, :]) % n).astype(dtype)
    scale = jnp.where(row == 0, 1 / n, math.sqrt(2) / n).astype(dtype)
    return scale * jnp.where(even, jnp.cos(angle), jnp.sin(angle))


def require_axes(name: str, periodic: Sequence[bool], ndim: int) -> None:
    """Refuse `periodic` unless it has one entry for each of the grid's axes."""
    if len(periodic) != ndim:
        raise ConfigurationError(
            f"{name}={tuple(periodic)} has {len(periodic)} entries for a grid of {ndim} axes; "
            "write one True or False per axis."
        )
