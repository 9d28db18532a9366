"""Blocks put together in the vector memory of a TPU, from a field without ghost cells and the lines beside it.

A padded copy of the field is never made. Tiles cut the first axis only: rows begin at multiples of 8, and columns at
multiples of 128, where registers do, so that the tile lies behind margins of so many cells; ghost cells are next to it.
The last axis' ghost lines come transposed, since 128 columns are stored where there is one.

In three dimensions every plane is brought once: it stays for the tiles after it that read it, and a tile is computed
when the planes behind it have come, `lag` steps of the grid later. In two, the few rows beside a tile are brought with
it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.stencil.kernels.operands import Operand, Passes, Unpadded, ghost_width
from simjax.stencil.kernels.tiles import Sizes, best_tile, round_up, sizes_to_try

ROWS, COLUMNS = 8, 128


def margins(operand: Operand, ndim: int) -> Sizes:
    """Cells of a block before and after the tile; whole planes are as good as any number of them."""
    return (ROWS, COLUMNS) if ndim == 2 else (ghost_width(operand), ROWS, COLUMNS)


def unit_of_tiles(ndim: int) -> int:
    """Divisor of a tile that cuts the first axis; in two dimensions the transposed columns are cut too."""
    return COLUMNS if ndim == 2 else 1


def stays_unpadded(operand: Operand, tile: Sizes, interior: Sizes, target: str) -> bool:
    """Tell whether the block of such a tile can be assembled: only the first axis is cut, numbers have four bytes."""
    if len(tile) == 1 or tile[1:] != interior[1:] or ghost_width(operand) > ROWS:
        return False
    whole = tile[0] >= interior[0] or tile[0] % unit_of_tiles(len(tile)) == 0
    return whole and (target == "interpret" or operand.dtype.itemsize == 4)


def lag(operand: Operand, tile: Sizes) -> int:
    """Number of steps of the grid between the arrival of a tile's own planes and its computation."""
    return -(-ghost_width(operand) // tile[0]) if len(tile) == 3 else 0


def tile_of(program: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes) -> Sizes | None:
    """The best tile for which blocks can be assembled, if there is one."""
    ndim = len(interior)
    bare = [o for x, o in zip(arrays, program.operands, strict=True) if isinstance(x, Unpadded)]
    if not bare or ndim == 1 or any(not stays_unpadded(o, interior, interior, "tpu") for o in bare):
        return None
    tiles = [(size, *interior[1:]) for size in sizes_to_try(interior[0], unit_of_tiles(ndim), interior[0])]

    def scratch(tile: Sizes) -> int:
        lines = (2 * o.components * ghost_width(o) * math.prod(tile[1:]) * o.dtype.itemsize for o in bare)
        return sum(math.prod(block_shape(o, tile)) * o.dtype.itemsize for o in bare) + sum(lines)

    if ndim == 3:
        once = [
            replace(o, extents=(0,) * ndim) if isinstance(x, Unpadded) else o
            for x, o in zip(arrays, program.operands, strict=True)
        ]
        program = replace(program, operands=tuple(once))
    return best_tile(program, interior, "tpu", tiles, scratch)


def block_shape(operand: Operand, tile: Sizes) -> Sizes:
    """A tile and its margins."""
    sizes = [t + 2 * m for t, m in zip(tile, margins(operand, len(tile)), strict=True)]
    if len(tile) == 3:  # planes of the tiles that come before this one is computed
        sizes[0] = ghost_width(operand) + (lag(operand, tile) + 1) * tile[0]
    return operand.components, *sizes[:-1], round_up(sizes[-1], COLUMNS)


def parts(x: Unpadded, operand: Operand, tile: Sizes, interior: Sizes) -> list[tuple[Array, pl.BlockSpec]]:
    """Parts of a block, and the piece of it that a step of the grid needs.

    The tile, in two dimensions what lies before and after it, the ghost lines of the first axis, in three those of the
    axis between, and those of the last axis.
    """
    width, ndim, c, (size, *rest) = ghost_width(operand), len(tile), operand.components, tile
    tiles = -(-interior[0] // size)
    zero, step = np.int32(0), np.int32(size if tiles > 1 else 0)
    zeros = (zero,) * (ndim - 1)
    lines = [jnp.concatenate(sides, axis=1 + axis) for axis, sides in enumerate(x.ghosts)]

    def blocked(array, sizes, index):
        return array, pl.BlockSpec((c, *sizes), lambda k, *_: (zero, index(k), *zeros))

    # The same in every step of the grid: one buffer is enough.
    first = (
        lines[0],
        pl.BlockSpec((c, 2 * width, *rest), lambda *_: (zero,) * (ndim + 1), pipeline_mode=pl.Buffered(1)),
    )
    # Row r of the block is the transposed lines' column r, rows before the ghost cells included.
    columns = jnp.swapaxes(lines[-1], -1, -2)
    reach = round_up((tile[-2] if tiles > 1 or ndim == 3 else interior[-2]) + 2 * ROWS, COLUMNS)
    whole = reach + (tiles - 1) * size if ndim == 2 else reach
    columns = _padded(columns, -1, ROWS - width, whole)
    columns = _padded(columns, -2, 0, round_up(2 * width, ROWS))
    if ndim == 2:
        last, per_tile = np.int32(-(-interior[0] // ROWS) - 1), np.int32(size // ROWS)
        spec = pl.BlockSpec(
            tuple(pl.Element(n) for n in (c, columns.shape[-2], reach)), lambda k, *_: (zero, zero, k * step)
        )
        return [
            blocked(x.field, tile, lambda k: k),
            first,
            (columns, spec),
            blocked(x.field, (ROWS, *rest), lambda k: jnp.maximum(k * per_tile - np.int32(1), zero)),
            blocked(x.field, (ROWS, *rest), lambda k: jnp.minimum((k + np.int32(1)) * per_tile, last)),
        ]
    later, last = np.int32(lag(operand, tile)), np.int32(tiles - 1)
    found = [blocked(x.field, tile, lambda k: jnp.minimum(k, last)), first]
    for array in (columns, lines[1]):
        array = _padded(array, 1, 0, tiles * size + 2 * width)
        sizes = (c, size + 2 * width, *array.shape[2:])
        spec = pl.BlockSpec(
            tuple(pl.Element(n) for n in sizes), lambda k, *_: (zero, jnp.maximum(k - later, zero) * step, zero, zero)
        )
        found.append((array, spec))
    return found


def _padded(x: Array, axis: int, before: int, size: int) -> Array:
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (before, size - before - x.shape[axis], 0)
    return lax.pad(x, jnp.zeros((), x.dtype), config)


def assemble(sources: Sequence, block, operand: Operand, tile: Sizes, interior: Sizes) -> None:
    """Fill a tile's block from its parts."""
    here, first, columns, *others = sources
    width, ndim, size = ghost_width(operand), len(tile), tile[0]
    margin, *sides = margins(operand, ndim)
    later, rows = lag(operand, tile), block.shape[-2]
    inner = tuple(pl.ds(m, t) for m, t in zip(sides, tile[1:], strict=True))
    place = pl.program_id(0)
    if ndim == 2:
        before, after = others
        for begin, part in ((margin, here), (0, before), (margin + size, after)):
            block[(slice(None), pl.ds(begin, part.shape[1]), *inner)] = part[...]
    else:
        kept = block.shape[1] - size
        _for_each(kept, lambda p: _copy_plane(block, p + np.int32(size), p))
        block[(slice(None), pl.ds(kept, size), *inner)] = here[...]
    _write_lines(block, first, place, inner, (width, margin, size, later, interior[0]))
    if ndim == 3:
        for begin, side in ((ROWS - width, 0), (ROWS + tile[1], width)):
            block[:, : size + 2 * width, begin : begin + width, inner[-1]] = others[0][:, :, side : side + width]
    for c in range(operand.components):
        if ndim == 2:
            _write_columns(block.at[c], columns[c], rows, width, tile[-1])
        else:
            _for_each(
                size + 2 * width,
                lambda p, c=c: _write_columns(block.at[c, p], columns[c, p], rows, width, tile[-1]),
            )


def _write_lines(block, first, place, inner, sizes: Sizes) -> None:
    """Ghost lines of the first axis, before the first and after the last tile."""
    width, margin, size, later, n = sizes

    @pl.when(place == later)
    def _():
        block[(slice(None), pl.ds(margin - width, width), *inner)] = first[:, :width]

    for k in range(-(-n // size) + later):
        begin = n - (k - later) * size + margin
        seen = min(width, block.shape[1] - begin)
        if seen > 0:

            @pl.when(place == k)
            def _(begin=begin, seen=seen):
                block[(slice(None), pl.ds(begin, seen), *inner)] = first[:, width : width + seen]


def _copy_plane(block, source, target) -> None:
    block[:, target] = block[:, source]


def _for_each(count: int, body: Callable) -> None:
    """`body(k)` for k below `count`, one after the other."""

    def step(k):
        body(k)
        return k + np.int32(1)

    lax.while_loop(lambda k: k < np.int32(count), step, np.int32(0))


def _write_columns(block, transposed: Array, rows: int, width: int, columns: int) -> None:
    lines = transposed.T
    block[:, COLUMNS - width : COLUMNS] = lines[:rows, :width]
    block[:, COLUMNS + columns : COLUMNS + columns + width] = lines[:rows, width : 2 * width]
