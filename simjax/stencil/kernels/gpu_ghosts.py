"""Ghost lines written around a block in the shared memory of a GPU.

The copy engine brings the block of an array that has no ghost cells, and zeros where it would have them. Tiles at the
rim then fetch theirs from the lines: a padded copy of the array is never made.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.stencil.kernels.operands import Operand, Unpadded, ghost_width
from simjax.stencil.kernels.register_tiles import Begin, for_pieces
from simjax.stencil.kernels.tiles import Sizes, lead, rows_of_16_bytes


def stays_unpadded(x: Unpadded) -> bool:
    """Tell whether the copy engine can read the field as it is: its rows are multiples of 16 bytes."""
    return rows_of_16_bytes(x.field.shape, x.field.dtype) == x.field.shape


def lines_of(x: Unpadded, operand: Operand, tile: Sizes) -> list[Array]:
    """Per axis, all ghost lines one after the other, long enough for whole tiles."""
    width, ndim = ghost_width(operand), len(tile)
    lines = []
    for axis, sides in enumerate(x.ghosts):
        both = _one_after_the_other(*sides, axis=1 + axis)
        around = [(0, 0, 0)] * ndim
        for k, (n, t) in enumerate(zip(both.shape[1:], tile, strict=True)):
            if k == axis:
                around[k] = (0, rows_of_16_bytes((n,), operand.dtype)[0] - n if k == ndim - 1 else 0, 0)
            elif axis == ndim - 2:  # the others are brought by the engine, which reads zeros beyond
                inner = n - 2 * width if k < axis else n
                # Along later axes there are no ghost cells yet; theirs are written over these.
                before = 0 if k < axis else width
                around[k] = (before, -(-inner // t) * t - inner + before, 0)
        lines.append(lax.pad(both, jnp.zeros((), both.dtype), [(0, 0, 0), *around]))
    return lines


def _one_after_the_other(lower: Array, upper: Array, axis: int) -> Array:
    """Both arrays along an axis, as a choice between padded ones.

    XLA forms those of several fields in one kernel. Of concatenations along the last axis each is a kernel.
    """
    count = lower.shape[axis]

    def with_room(line: Array, before: int, after: int) -> Array:
        room = [(before, after, 0) if k == axis else (0, 0, 0) for k in range(line.ndim)]
        return lax.pad(line, jnp.zeros((), line.dtype), room)

    first, second = with_room(lower, 0, upper.shape[axis]), with_room(upper, count, 0)
    return jnp.where(lax.broadcasted_iota(np.int32, first.shape, axis) < count, first, second)


def columns_of(operand: Operand, tile: Sizes) -> Sizes:
    """Cells of the last axis' ghost lines that are copied for a tile."""
    width = ghost_width(operand)
    shape = *(t + 2 * width for t in tile[:-1]), 2 * width
    return operand.components, *rows_of_16_bytes(shape, operand.dtype)


def write_lines(gpu, block, lines, columns, operand: Operand, interior: Sizes, tile: Sizes, corner: Sequence) -> None:
    """Fill the ghost cells of the block whose tile begins at `corner`."""
    width, ndim, first = ghost_width(operand), len(tile), lead(operand)

    def at_rim(axis: int, copy) -> None:
        """`copy(line, place)` for the lines of an axis that lie in the block."""
        for line in range(2 * width):
            cell = line if line < width else interior[axis] + line
            place = np.int32(cell) - corner[axis]
            inside = (place >= np.int32(0)) & (place < np.int32(tile[axis] + 2 * width))
            pl.when(inside)(lambda line=line, place=place: copy(line, place))

    for axis in range(ndim - 1):
        others = [t + 2 * width for t in tile]
        others[axis] = 1
        piece = (1,) * (ndim - 1) + tile[-1:]

        def rows(line, place, axis=axis, others=others, piece=piece):
            def copy(begin: Begin, shape: Sizes) -> None:
                source = [corner[k] + b for k, b in enumerate(begin)]
                target = list(begin)
                source[axis], target[axis], target[-1] = line, place, target[-1] + first
                for c in range(operand.components):
                    read = lines[axis][(c, *(pl.ds(b, n) for b, n in zip(source, shape, strict=True)))]
                    write = (c, *(pl.ds(b, n) for b, n in zip(target, shape, strict=True)))
                    block[write] = gpu.layout_cast(read, gpu.Layout.WG_STRIDED(shape, vec_size=1))

            for_pieces(others, piece, copy, equal=True)

        at_rim(axis, rows)
        gpu.commit_smem()  # the next axis' lines are written over these, by other threads

    def column(line, place):
        def copy(begin: Begin, _) -> None:
            for c in range(operand.components):
                block[(c, *begin, place + np.int32(first))] = columns[(c, *begin, line)]

        for_pieces([t + 2 * width for t in tile[:-1]], (1,) * (ndim - 1), copy)

    at_rim(ndim - 1, column)
    gpu.commit_smem()
