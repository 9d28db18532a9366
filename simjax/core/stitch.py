"""Stencils in two parts: the interior, which needs no ghost cells, and the rim, from thin strips."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.grid import LOWER, UPPER


def stitch_interior_and_rim(function: Callable, inner, padded, ndim: int, width: int):
    """`function(padded)`, given `inner`, which is `function` of the fields alone: all but the outermost `width` cells.

    These do not depend on the ghost cells, so they can be computed while those are on their way. The rim is added
    axis by axis, from the last spatial axis to the first, from strips `3 width` thick; each cell's arithmetic is the
    same as in `function(padded)`.
    """
    result = inner
    for axis in reversed(range(ndim)):

        def rim(side: int, axis: int = axis):
            return function(jax.tree.map(lambda p: _strip(p, ndim, axis, side, width), padded))

        def join(*parts: Array, axis: int = axis) -> Array:
            return jnp.concatenate(parts, axis=axis - ndim)

        result = jax.tree.map(join, rim(LOWER), result, rim(UPPER))
    return result


def _strip(p: Array, ndim: int, axis: int, side: int, width: int) -> Array:
    """The strip `3 width` thick at one end of `axis`; bare along the axes before it, padded along those after."""
    for k in range(ndim):
        array_axis = p.ndim - ndim + k
        n = p.shape[array_axis]
        if k < axis:
            p = lax.slice_in_dim(p, width, n - width, axis=array_axis)
        elif k == axis:
            start = 0 if side == LOWER else n - 3 * width
            p = lax.slice_in_dim(p, start, start + 3 * width, axis=array_axis)
    return p
