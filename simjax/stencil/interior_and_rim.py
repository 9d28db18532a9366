"""Stencils in two parts: the interior, which needs no ghost cells, and the rim, from thin strips."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import LOWER, UPPER
from simjax.stencil.padding import Sides


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
