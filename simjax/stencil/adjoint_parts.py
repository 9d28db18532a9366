"""The adjoint of a stencil in parts: of the fields by one kernel, of the ghost lines from thin strips.

A gather reads cotangents beyond the fields, where they are zero, and fields beyond their ghost cells, where these only
meet zeros. With both as thin lines beside the arrays, none of them is copied to be surrounded.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import LOWER, UPPER
from simjax.stencil.adjoint import gathering, surrounded_by_zeros
from simjax.stencil.kernels.operands import Unpadded
from simjax.stencil.padding import Sides, assembled_within, further, reach_of, strip

Leaves = list[Array]


def blocks_read(fields: Leaves, ghosts: list[list[Sides]], width: int) -> list[Leaves]:
    """Blocks that the gather of each part reads, with cells around them: of the fields, and along each axis."""
    inner = assembled_within(fields, ghosts, width, width)
    return [inner, *(_strips(fields, ghosts, axis, LOWER, width) for axis in range(len(ghosts[0])))]


def gathered_in_parts(
    stencils: list[Callable[..., Leaves]],
    fields: Leaves,
    ghosts: list[list[Sides]],
    cotangents: Leaves,
    width: int,
    fused: Callable,
) -> tuple[Leaves, list[list[Sides]]]:
    """Cotangents of the fields and of their ghost lines.

    Args:
        stencils: the stencil as a function of each of `blocks_read`.
        fused: `fused(function, ndim)` is the function as a kernel.
    """
    ndim = len(ghosts[0])
    around = _surrounded(fields, ghosts, width)
    gather = gathering(stencils[0], len(fields), ndim, width)
    inner = fused(gather, ndim)(*around, *(_beside_zeros(c, ndim, width) for c in cotangents))
    found: list[list[Sides]] = [[] for _ in fields]
    for axis in range(ndim):
        gather = gathering(stencils[1 + axis], len(fields), ndim, width)
        sides = []
        for side in (LOWER, UPPER):
            first = 0 if side == LOWER else cotangents[0].shape[axis - ndim] - width
            lines = [lax.slice_in_dim(c, first, first + width, axis=c.ndim + axis - ndim) for c in cotangents]
            known = [surrounded_by_zeros(line, reach_of(2 * width, ndim)) for line in lines]
            blocks = gather(*_strips(fields, ghosts, axis, side, width), *known)
            sides.append([_ghost_lines(block, axis, side, ndim, width) for block in blocks])
        for pieces, lower, upper in zip(found, *sides, strict=True):
            pieces.append((lower, upper))
    return inner, found


def _surrounded(fields: Leaves, ghosts: list[list[Sides]], width: int) -> list[Unpadded]:
    """The fields with twice as many ghost cells, of which the outer ones repeat the inner ones."""
    return [Unpadded(u, further(lines, width)) for u, lines in zip(fields, ghosts, strict=True)]


def _beside_zeros(u: Array, ndim: int, width: int) -> Unpadded:
    def zeros(axis: int) -> Array:
        spatial = u.shape[u.ndim - ndim :]
        sizes = [n + 2 * width if k < axis else width if k == axis else n for k, n in enumerate(spatial)]
        return jnp.zeros((*u.shape[: u.ndim - ndim], *sizes), u.dtype)

    return Unpadded(u, [(zeros(axis), zeros(axis)) for axis in range(ndim)])


def _strips(fields: Leaves, ghosts: list[list[Sides]], axis: int, side: int, width: int) -> Leaves:
    """The outermost lines along an axis with what is around them, and cells beyond that repeat the last ones."""
    found = []
    for u, lines in zip(fields, ghosts, strict=True):
        ndim = len(lines)
        block = strip(u, lines, axis, 0 if side == LOWER else u.shape[axis - ndim] - width, width)
        around = [(0, 0)] * (u.ndim - ndim) + [(2 * width, 2 * width)] * ndim
        found.append(jnp.pad(block, around, mode="edge"))
    return found


def _ghost_lines(block: Array, axis: int, side: int, ndim: int, width: int) -> Array:
    """Ghost lines of a strip's block along the axis, with ghost cells along those before it."""
    place = [slice(None)] * (block.ndim - ndim + axis)
    place.append(slice(0, width) if side == LOWER else slice(block.shape[axis - ndim] - width, None))
    place += [slice(width, block.shape[k - ndim] - width) for k in range(axis + 1, ndim)]
    return block[tuple(place)]
