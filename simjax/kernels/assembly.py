"""Blocks put together in the vector memory of a TPU, from a field without ghost cells and the lines beside it.

A padded copy of the field is never made. Tiles cut the first axis only: rows begin at multiples of 8, and columns at
multiples of 128, where registers do, so that the tile lies behind margins of so many cells; ghost cells are next to it.
The last axis' ghost lines come transposed, since 128 columns are stored where there is one.
"""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.kernels.operands import Operand, Passes, Unpadded, ghost_width
from simjax.kernels.tiles import Sizes, best_tile, round_up, sizes_to_try

ROWS, COLUMNS = 8, 128


def margins(operand: Operand, ndim: int) -> Sizes:
    """Cells of a block before and after the tile; whole planes are as good as any number of them."""
    return (ROWS, COLUMNS) if ndim == 2 else (ghost_width(operand), ROWS, COLUMNS)


def unit_of_tiles(operand: Operand, ndim: int) -> int:
    """Of what a tile that cuts the first axis is a multiple; in two dimensions the transposed columns are cut too."""
    return COLUMNS if ndim == 2 else ghost_width(operand)


def stays_unpadded(operand: Operand, tile: Sizes, interior: Sizes, target: str) -> bool:
    """Whether the block of such a tile can be assembled: only the first axis is cut, and numbers have four bytes."""
    if len(tile) == 1 or tile[1:] != interior[1:] or ghost_width(operand) > ROWS:
        return False
    whole = tile[0] >= interior[0] or tile[0] % unit_of_tiles(operand, len(tile)) == 0
    return whole and (target == "interpret" or operand.dtype.itemsize == 4)


def tile_of(program: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes) -> Sizes | None:
    """The best tile for which blocks can be assembled, if there is one."""
    bare = [o for x, o in zip(arrays, program.operands, strict=True) if isinstance(x, Unpadded)]
    if not bare or len(interior) == 1:
        return None
    unit = max(unit_of_tiles(operand, len(interior)) for operand in bare)
    tiles = [(size, *interior[1:]) for size in sizes_to_try(interior[0], unit, interior[0])]

    def scratch(tile: Sizes) -> int:
        return sum(math.prod(block_shape(operand, tile)) * operand.dtype.itemsize for operand in bare)

    return best_tile(program, interior, "tpu", tiles, scratch)


def block_shape(operand: Operand, tile: Sizes) -> Sizes:
    """A tile and its margins."""
    sizes = [t + 2 * m for t, m in zip(tile, margins(operand, len(tile)), strict=True)]
    return operand.components, *sizes[:-1], round_up(sizes[-1], COLUMNS)


def parts(x: Unpadded, operand: Operand, tile: Sizes, interior: Sizes) -> list[tuple[Array, pl.BlockSpec]]:
    """What a block is made of, and the piece of it that a tile needs.

    The tile, what lies before and after it, the ghost lines of the first axis, those of the axis between, and those of
    the last axis.
    """
    width, ndim, c, (size, *rest) = ghost_width(operand), len(tile), operand.components, tile
    margin = margins(operand, ndim)[0]
    tiles = -(-interior[0] // size)
    zero, step = np.int32(0), np.int32(size if tiles > 1 else 0)
    zeros = (zero,) * (ndim - 1)
    last = np.int32(-(-interior[0] // margin) - 1)
    per_tile = np.int32(size // margin)
    lines = [jnp.concatenate(sides, axis=1 + axis) for axis, sides in enumerate(x.ghosts)]

    def blocked(array, sizes, index):
        return array, pl.BlockSpec((c, *sizes), lambda k, *_: (zero, index(k), *zeros))

    found = [
        blocked(x.field, tile, lambda k: k),
        blocked(x.field, (margin, *rest), lambda k: jnp.maximum(k * per_tile - np.int32(1), zero)),
        blocked(x.field, (margin, *rest), lambda k: jnp.minimum((k + np.int32(1)) * per_tile, last)),
        blocked(lines[0], (2 * width, *rest), lambda k: zero),
    ]
    # Row r of the block is the transposed lines' column r, rows before the ghost cells included.
    columns = jnp.swapaxes(lines[-1], -1, -2)
    reach = round_up((tile[-2] if tiles > 1 or ndim == 3 else interior[-2]) + 2 * ROWS, COLUMNS)
    whole = reach + (tiles - 1) * size if ndim == 2 else reach
    columns = _padded(columns, -1, ROWS - width, whole)
    columns = _padded(columns, -2, 0, round_up(2 * width, ROWS))
    if ndim == 2:
        spec = pl.BlockSpec(
            tuple(pl.Element(n) for n in (c, columns.shape[-2], reach)), lambda k, *_: (zero, zero, k * step)
        )
        return [*found, (columns, spec)]
    for array in (lines[1], columns):
        array = _padded(array, 1, 0, tiles * size + 2 * width)
        sizes = (c, size + 2 * width, *array.shape[2:])
        spec = pl.BlockSpec(tuple(pl.Element(n) for n in sizes), lambda k, *_: (zero, k * step, zero, zero))
        found.append((array, spec))
    return found


def _padded(x: Array, axis: int, before: int, size: int) -> Array:
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (before, size - before - x.shape[axis], 0)
    return lax.pad(x, jnp.zeros((), x.dtype), config)


def assemble(sources: Sequence, block, operand: Operand, tile: Sizes, interior: Sizes) -> None:
    """Fill a tile's block from its parts."""
    here, before, after, first, *lines = sources
    width, ndim, n, size = ghost_width(operand), len(tile), interior[0], tile[0]
    margin, *others = margins(operand, ndim)
    inner = tuple(pl.ds(m, t) for m, t in zip(others, tile[1:], strict=True))
    for begin, part in ((margin, here), (0, before), (margin + size, after)):
        block[(slice(None), pl.ds(begin, part.shape[1]), *inner)] = part[...]
    place = pl.program_id(0)

    @pl.when(place == 0)
    def _():
        block[(slice(None), pl.ds(margin - width, width), *inner)] = first[:, :width]

    for k in range(-(-n // size)):
        begin = n - k * size + margin
        seen = min(width, size + 2 * margin - begin)
        if seen > 0:

            @pl.when(place == k)
            def _(begin=begin, seen=seen):
                block[(slice(None), pl.ds(begin, seen), *inner)] = first[:, width : width + seen]

    if ndim == 3:
        for begin, side in ((ROWS - width, 0), (ROWS + tile[1], width)):
            block[:, :, begin : begin + width, inner[-1]] = lines[0][:, :, side : side + width]
    rows = block.shape[-2]
    for c in range(operand.components):
        if ndim == 2:
            _write_columns(block.at[c], lines[-1][c], rows, width, tile[-1])
        else:

            def plane(p, c=c):
                _write_columns(block.at[c, p], lines[-1][c, p], rows, width, tile[-1])
                return p + np.int32(1)

            count = np.int32(block.shape[1])
            lax.while_loop(lambda p, count=count: p < count, plane, np.int32(0))


def _write_columns(block, transposed: Array, rows: int, width: int, columns: int) -> None:
    lines = transposed.T
    block[:, COLUMNS - width : COLUMNS] = lines[:rows, :width]
    block[:, COLUMNS + columns : COLUMNS + columns + width] = lines[:rows, width : 2 * width]
