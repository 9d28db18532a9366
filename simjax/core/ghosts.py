"""Blocks and the ghost lines around them, on one device; reverse mode touches only edges."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.linear import linear_map

Sides = tuple[Array, Array]
"""Lines at the lower and at the upper end of an axis."""


def with_edges(fields: list[Array], axes: Sequence[int], ndim: int, width: int) -> tuple[list[Array], list[list[Sides]]]:
    """The fields, and the outermost lines of each at both ends of each of the `axes`, at most `width` thick."""

    def thickness(u: Array, axis: int) -> int:
        return min(width, u.shape[axis - ndim])

    def take(fields):
        return fields, [[_ends(u, axis - ndim, thickness(u, axis)) for axis in axes] for u in fields]

    def put(cotangents):
        # In place, line by line: transposed one by one, each would become an array of the block's size.
        fields, edges = cotangents
        return [_with_ends_added(u, pieces, axes, ndim) for u, pieces in zip(fields, edges, strict=True)]

    return linear_map(take, put, fields) if _flows(fields) else take(fields)


def _ends(u: Array, axis: int, width: int) -> Sides:
    n = u.shape[axis]
    return lax.slice_in_dim(u, 0, width, axis=axis), lax.slice_in_dim(u, n - width, n, axis=axis)


def _with_ends_added(u: Array, pieces: list[Sides], axes: Sequence[int], ndim: int) -> Array:
    for axis, sides in zip(axes, pieces, strict=True):
        for side, line in enumerate(sides):
            start = [0] * u.ndim
            if side:
                start[axis - ndim] = u.shape[axis - ndim] - line.shape[axis - ndim]
            there = lax.dynamic_slice(u, start, line.shape)
            u = lax.dynamic_update_slice(u, there + line, start)
    return u


def lines(edge: Array, ghosts: list[Sides], axis: int, ndim: int, begin: int, end: int) -> Array:
    """Lines `edge` of a block, `begin` to `end` along `axis`, with the ghost lines of the axes before it around them."""
    for k, sides in enumerate(ghosts):
        lower, upper = (lax.slice_in_dim(v, begin, end, axis=axis - ndim) for v in sides)
        edge = jnp.concatenate([lower, edge, upper], axis=k - ndim)
    return edge


def assembled(fields: list[Array], ghosts: list[list[Sides]], width: int) -> list[Array]:
    """The padded blocks."""

    def put(pieces):
        return [_assembled(u, around, width) for u, around in zip(*pieces, strict=True)]

    def take(blocks):
        parts = [_disassembled(block, len(around), width) for block, around in zip(blocks, ghosts, strict=True)]
        return [u for u, _ in parts], [around for _, around in parts]

    pieces = fields, ghosts
    return linear_map(put, take, pieces) if _flows(fields) else put(pieces)


def _assembled(u: Array, ghosts: list[Sides], width: int) -> Array:
    """Interior first, ghost lines written into place.

    XLA fuses a concatenation into every neighbour read of the stencil that follows and pays index arithmetic per
    cell; written this way the block is formed once and the stencil vectorises (2 to 4 times faster on a CPU,
    `benchmarks/stencil.py`).
    """
    ndim = len(ghosts)
    leading = u.ndim - ndim
    block = lax.pad(u, jnp.zeros((), u.dtype), [(0, 0, 0)] * leading + [(width, width, 0)] * ndim)
    for axis, (lower, upper) in enumerate(ghosts):
        start = [0] * (leading + axis + 1) + [width] * (ndim - axis - 1)
        block = lax.dynamic_update_slice(block, lower, start)
        start[leading + axis] = block.shape[leading + axis] - width
        block = lax.dynamic_update_slice(block, upper, start)
    return block


def _disassembled(block: Array, ndim: int, width: int) -> tuple[Array, list[Sides]]:
    """What `_assembled` put together."""
    leading = block.ndim - ndim
    inner = [slice(width, n - width) for n in block.shape[leading:]]

    def cut(*spatial: slice) -> Array:
        return block[(slice(None),) * leading + spatial]

    ghosts = []
    for axis in range(ndim):
        before, after = [slice(None)] * axis, inner[axis + 1 :]
        n = block.shape[leading + axis]
        ghosts.append((cut(*before, slice(0, width), *after), cut(*before, slice(n - width, n), *after)))
    return cut(*inner), ghosts


def _flows(fields: list[Array]) -> bool:
    """Whether gradients flow through them."""
    return all(jnp.issubdtype(u.dtype, jnp.inexact) for u in fields)
