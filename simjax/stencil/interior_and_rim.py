"""Stencils in two parts: the interior, which needs no ghost cells, and the rim, from thin strips."""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import LOWER, UPPER
from simjax.stencil.materialise import held
from simjax.stencil.padding import Sides

# Where a CPU is faster with `select_interior_and_rim` than with padded blocks (`benchmarks/cpu.py`): planes far larger
# than the caches, beside which the strips are small, and stencils that take longer to read than to compute: every
# expression that reads a result computes it. A fifth of the time at 2048 x 2048, nothing at 1024 x 1024; in a box of
# 256 cells a side padded blocks are as fast or faster.
LEAST_CELLS, MOST_IN_STRIPS, MOST_OPERATIONS = 2**21, 1 / 32, 64


def worth_selecting(block: Sequence[int], width: int, operations: int) -> bool:
    """Tell whether `select_interior_and_rim` is faster on a CPU for so many operations on such a block."""
    if math.prod(block) < LEAST_CELLS or operations > MOST_OPERATIONS or min(block) <= 2 * width:
        return False
    return sum(6 * width / n for n in block) <= MOST_IN_STRIPS


def stitch_interior_and_rim(
    function: Callable, inner: list[Array], fields: list[Array], ghosts: list[list[Sides]], width: int
) -> list[Array]:
    """`function` of the padded fields, given `inner`, its values of the fields alone: all but the outermost cells.

    These do not depend on the ghost cells, so they can be computed while those are on their way. The rim is added
    axis by axis, from the last spatial axis to the first, from strips `3 width` thick; each cell's arithmetic is the
    same as in `function` of padded fields.
    """
    ndim = len(ghosts[0])
    for axis in reversed(range(ndim)):
        lower, upper = _rims(function, fields, ghosts, axis, width)
        inner = [jnp.concatenate(parts, axis=axis - ndim) for parts in zip(lower, inner, upper, strict=True)]
    return inner


def select_interior_and_rim(
    function: Callable, fields: list[Array], ghosts: list[list[Sides]], width: int
) -> list[Array]:
    """Like `stitch_interior_and_rim`, in one loop over the cells, which reads the rim where it has come to it.

    No block is padded, and a compiler takes what is computed cell by cell with the results into the same loop: in a
    step of a wave the state passes through memory once. What the loop reads is held in memory, or it would be
    computed anew in each displaced read.
    """
    ndim = len(ghosts[0])
    fields = held(fields)
    results = [_surrounded(x, range(ndim), ndim, width) for x in function(*fields)]
    for axis in reversed(range(ndim)):
        rims = [
            [_surrounded(x, range(axis), ndim, width) for x in rim]
            for rim in _rims(function, fields, ghosts, axis, width)
        ]
        results = [_with_ends(*parts, axis, ndim) for parts in zip(results, *held(rims), strict=True)]
    return results


def _rims(function: Callable, fields: list[Array], ghosts: list[list[Sides]], axis: int, width: int):
    """`function` on the outermost `width` lines at both ends of `axis`, without the rim along the axes before it."""

    def rim(side: int) -> list[Array]:
        return function(*(_strip(u, around, axis, side, width) for u, around in zip(fields, ghosts, strict=True)))

    return rim(LOWER), rim(UPPER)


def _strip(u: Array, ghosts: list[Sides], axis: int, side: int, width: int) -> Array:
    """The strip `3 width` thick at one end of `axis`; bare along the axes before it, padded along those after."""
    ndim = len(ghosts)
    n = u.shape[axis - ndim]

    def bare(line: Array) -> Array:
        for k in range(axis):
            line = lax.slice_in_dim(line, width, line.shape[k - ndim] - width, axis=k - ndim)
        return line

    first = 0 if side == LOWER else n - 2 * width
    parts = [bare(ghosts[axis][side]), lax.slice_in_dim(u, first, first + 2 * width, axis=axis - ndim)]
    strip = jnp.concatenate(parts if side == LOWER else parts[::-1], axis=axis - ndim)
    for k in range(axis + 1, ndim):
        # Along `axis` these lines have ghost cells, so that the strip begins there or a width before the field's end.
        begin = 0 if side == LOWER else n - width
        lower, upper = (bare(lax.slice_in_dim(v, begin, begin + 3 * width, axis=axis - ndim)) for v in ghosts[k])
        strip = jnp.concatenate([lower, strip, upper], axis=k - ndim)
    return strip


def _surrounded(x: Array, axes: Sequence[int], ndim: int, width: int) -> Array:
    """An array with `width` zeros at both ends of some of its spatial axes."""
    spatial = [(width, width, 0) if axis in axes else (0, 0, 0) for axis in range(ndim)]
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - ndim) + spatial)


def _with_ends(x: Array, lower: Array, upper: Array, axis: int, ndim: int) -> Array:
    """`x` with the lines at both ends of `axis` taken from elsewhere."""
    n, width = x.shape[axis - ndim], lower.shape[axis - ndim]
    index = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim + axis - ndim)
    for line in range(width):
        for lines, place in ((lower, line), (upper, n - width + line)):
            # Line by line: a loop that looks into a strip, or writes into place, is not vectorised.
            x = jnp.where(index == place, lax.slice_in_dim(lines, line, line + 1, axis=axis - ndim), x)
    return x
