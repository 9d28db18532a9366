"""Tiles of the interior: what their blocks take of a fast memory, and which move the fewest bytes."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from simjax.stencil.kernels.operands import NotLowered, Operand, Passes, Program, as_passes

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Memory:
    """The fast memory of a target.

    Attributes:
        capacity: bytes for the blocks of one tile, those of the next included where they are copied meanwhile.
        shared: bytes of a tile beside which there is room for another one, that is computed while this one is copied.
        buffers: how many of every block there are.
        at_work: tiles that are on the device at once. The first ones come before anything is computed, so that their
            bytes are paid for once more.
        start: bytes that could be moved in the time that it takes to begin a tile.
        longest: cells of a tile along the last axis, at most.
        processors: tiles of three axes that come at the same pace, as their planes stream; 0 where they do not.
    """

    capacity: int
    shared: int
    buffers: int
    at_work: int
    start: int
    longest: int
    processors: int = 0


# Bytes for each core of a TPU, by the kind of device (`pltpu.get_tpu_info`). Others, from the fifth generation on, have
# 64 MiB at least.
VECTOR_MEMORY = dict.fromkeys(("TPU v5 lite", "TPU v5e", "TPU v6 lite", "TPU v6e"), 128 << 20)
LEAST_VECTOR_MEMORY = 64 << 20

_MEMORY = {
    # A step of the grid takes 0.35 us (Pallas' guide to TPUs), in which a v5e moves 280 kB.
    "tpu": Memory(LEAST_VECTOR_MEMORY, LEAST_VECTOR_MEMORY, buffers=2, at_work=1, start=280_000, longest=8192),
    # Of 227 KiB on each of 132 multiprocessors, some for barriers.
    "gpu": Memory(220 << 10, 112 << 10, buffers=1, at_work=2 * 132, start=0, longest=128, processors=132),
    "interpret": Memory(1 << 30, 1 << 30, buffers=1, at_work=1, start=0, longest=1 << 30),
}


def vector_memory() -> int:
    """Bytes that a kernel may take on the TPU that is compiled for: three quarters, as XLA keeps some itself."""
    device = jax.sharding.get_abstract_mesh().abstract_device or jax.devices()[0]
    return VECTOR_MEMORY.get(device.device_kind, LEAST_VECTOR_MEMORY) * 3 // 4


def memory_of(target: str) -> Memory:
    """The fast memory of a target, for a TPU that of the one that is compiled for."""
    memory = _MEMORY[target]
    if target != "tpu":
        return memory
    blocks = vector_memory() * 3 // 4  # the rest is for values on their way
    return replace(memory, capacity=blocks, shared=blocks)


def granule(target: str, ndim: int, itemsize: int) -> Sizes:
    """Divisor of the sizes of a tile along each axis that it cuts; `itemsize` is the smallest there is."""
    if target == "interpret":
        return (1,) * ndim
    if target == "gpu":
        return (1,) * (ndim - 1) + (128,)
    # Registers hold 8 x 128 values of four bytes.
    return (1024 * 4 // itemsize,) if ndim == 1 else (1,) * (ndim - 2) + (8 * 4 // itemsize, 128)


def block_of(operand: Operand, tile: Sizes, interior: Sizes, target: str) -> Sizes:
    """Cells of an operand that are copied for a tile, per spatial axis."""
    assert operand.extents is not None
    sizes = [1 if e is None else t + e for t, e in zip(tile, operand.extents, strict=True)]
    ndim = len(tile)
    if target == "gpu":
        sizes = rows_of_16_bytes([*sizes[:-1], lead(operand) + sizes[-1]], operand.dtype)
        return (*sizes[:2], aligned(sizes[1:], operand.dtype)[1]) if ndim == 3 else sizes
    if target == "tpu":
        if operand.extents[-1] is not None and tile[-1] < interior[-1]:
            sizes[-1] = round_up(sizes[-1], 128)
        if ndim > 1 and operand.extents[-2] is not None:
            rows = granule(target, ndim, operand.dtype.itemsize)[-2]
            sizes[-2] = tile[-2] + round_up(operand.extents[-2], rows)
    return tuple(sizes)


def lead(operand: Operand) -> int:
    """Columns of a GPU's block before its first ghost cell: a multiple of 16 bytes with the ghost cells.

    The block of a field that has none itself begins that much before the tile. The copy engine reads from multiples of
    16 bytes along the last axis only, and faults elsewhere ("illegal instruction").
    """
    extents = {*(operand.extents or ())}
    extent = extents.pop() if len(extents) == 1 else None
    return 0 if extent is None or extent % 2 else -(extent // 2) % (16 // operand.dtype.itemsize)


def reach(operand: Operand, tile: Sizes, interior: Sizes, target: str) -> Sizes:
    """Cells that the operand's array must have for every block to lie inside, per spatial axis.

    `launch` copies arrays that are smaller.
    """
    assert operand.extents is not None
    block = block_of(operand, tile, interior, target)
    sizes = operand.shape(interior)[1:]
    if target == "gpu":  # beyond an array, the copy engine reads zeros
        return rows_of_16_bytes(sizes, operand.dtype)
    if not any(operand.extents):  # blocks that do not overlap may be cut off at the end
        return sizes
    lasts = (0 if e is None else (-(-n // t) - 1) * t for n, t, e in zip(interior, tile, operand.extents, strict=True))
    return tuple(max(size, last + b) for size, last, b in zip(sizes, lasts, block, strict=True))


def bytes_of_blocks(program: Program | Passes, tile: Sizes, interior: Sizes, target: str) -> tuple[int, int]:
    """Bytes that are copied for one tile, with its results, and bytes of fast memory that it takes."""
    blocks = [
        ((operand.components, *block_of(operand, tile, interior, target)), operand.dtype)
        for operand in program.operands
        if operand.extents is not None
    ]
    blocks += [(tile, dtype) for dtype in program.results]
    copied = sum(math.prod(shape) * dtype.itemsize for shape, dtype in blocks)
    if target == "gpu" and len(tile) == 3:
        return copied, _bytes_of_rings(as_passes(program, 3), tile)
    between = sum(_stored(kept_block(o, tile, target)[1:], o.dtype, target) for o in as_passes(program, len(tile)).kept)
    return copied, memory_of(target).buffers * sum(_stored(shape, dtype, target) for shape, dtype in blocks) + between


def kept_block(operand: Operand, tile: Sizes, target: str) -> Sizes:
    """Shape of what a pass keeps for those after it: as many rows and columns as registers have."""
    assert operand.extents is not None
    sizes = [t + e for t, e in zip(tile, operand.extents, strict=True) if e is not None]
    if target == "gpu":
        return operand.components, *rows_of_16_bytes(sizes, operand.dtype)
    units = granule(target, len(tile), operand.dtype.itemsize)
    return operand.components, *(round_up(n, unit) for n, unit in zip(sizes, units, strict=True))


def longest(passes: Passes) -> int:
    """By how many planes the longest operand is longer than the interior."""
    return max((o.extents[0] or 0 for o in passes.operands if o.extents is not None), default=0)


def ring(operand: Operand, tile: Sizes) -> Sizes:
    """Shape of a GPU's planes of an operand: those that are read at once, and the next one."""
    assert operand.extents is not None
    rows, columns = block_of(operand, tile, tile, "gpu")[1:]
    return (operand.extents[0] or 0) + 2, operand.components, *aligned((rows, columns), operand.dtype)


def kept_ring(operand: Operand, tile: Sizes) -> Sizes:
    """Shape of the planes of what a pass keeps that later ones read at once."""
    components, planes, *plane = kept_block(operand, tile, "gpu")
    return planes - tile[0] + 1, components, *plane


def aligned(plane: Sequence[int], dtype: np.dtype) -> Sizes:
    """A plane in rows of 16 bytes, of which the next one begins at 128 bytes, where the copy engine can write.

    Longer rows take less room than more of them, and few more bytes from a memory that is read by 32 bytes.
    """
    first, unit = rows_of_16_bytes(plane, dtype)[-1], 16 // dtype.itemsize
    sizes = [
        (round_up(plane[0], 128 // math.gcd(128, columns * dtype.itemsize)), columns)
        for columns in range(first, first + 8 * unit, unit)
    ]
    return min(sizes, key=math.prod)


def _bytes_of_rings(passes: Passes, tile: Sizes) -> int:
    planes = [(ring(o, tile), o.dtype) for o in passes.operands if o.extents is not None]
    planes += [(kept_ring(o, tile), o.dtype) for o in passes.kept] + [(tile[1:], dtype) for dtype in passes.results]
    return sum(_stored(shape, dtype, "gpu") for shape, dtype in planes)


def tile_of(program: Program | Passes, interior: Sizes, target: str) -> Sizes:
    """The tile that moves the fewest bytes.

    Raises:
        NotLowered: the fast memory is too small for the smallest tile.
    """
    if target == "interpret":  # two along each axis, the second one smaller
        return tuple(n // 2 + 1 for n in interior)
    tiles = tiles_to_try(program, interior, target)
    best = best_tile(program, interior, target, tiles)
    if best is None:
        smallest = min(bytes_of_blocks(program, tile, interior, target)[1] for tile in tiles)
        raise NotLowered(f"The smallest tile of this stencil {_too_much(smallest, target)}")
    return best


def tiles_to_try(program: Program | Passes, interior: Sizes, target: str) -> list[Sizes]:
    """All tiles that the cost model compares."""
    units = granule(target, len(interior), _smallest(program))
    longest = memory_of(target).longest * (8 if len(interior) == 1 else 1)  # as many registers as for eight rows
    candidates = [sizes_to_try(n, unit, n) for n, unit in zip(interior[:-1], units[:-1], strict=True)]
    candidates.append([units[-1]] if target == "gpu" else sizes_to_try(interior[-1], units[-1], longest))
    return list(itertools.product(*candidates))


def best_tile(
    program: Program | Passes,
    interior: Sizes,
    target: str,
    tiles: Sequence[Sizes],
    beside: Callable[[Sizes], int] = lambda _: 0,
) -> Sizes | None:
    """The first of `ranked_tiles`, if any fits."""
    return next(iter(ranked_tiles(program, interior, target, tiles, beside)), None)


def ranked_tiles(
    program: Program | Passes,
    interior: Sizes,
    target: str,
    tiles: Sequence[Sizes],
    beside: Callable[[Sizes], int] = lambda _: 0,
) -> list[Sizes]:
    """Tiles that fit the fast memory, with `beside` bytes beside their blocks, by the bytes that they move.

    Those bytes that are moved before the first and after the last computation count twice, as do those of tiles that
    have no other one beside them. Where planes stream, they come while others are computed; then what counts is the
    processor that is done last.
    """
    memory = memory_of(target)
    found = []
    for tile in tiles:
        copied, stored = bytes_of_blocks(program, tile, interior, target)
        taken = stored + beside(tile)
        if taken <= memory.capacity:
            count = number_of_tiles(tile, interior)
            if memory.processors and len(tile) == 3:
                found.append((round_up(count, memory.processors) * copied, tile))
                continue
            moved = (count + memory.at_work) * copied * (1 if taken <= memory.shared else 2)
            found.append((moved + count * memory.start, tile))
    return [tile for _, tile in sorted(found, key=lambda pair: pair[0])]


def number_of_tiles(tile: Sizes, interior: Sizes) -> int:
    """Number of tiles that cover the interior."""
    return math.prod(-(-n // t) for n, t in zip(interior, tile, strict=True))


def check_fits(tile: Sizes, taken: int, target: str) -> None:
    """Refuse a tile that takes more bytes of fast memory than there are.

    Raises:
        NotLowered: with both numbers.
    """
    if taken > memory_of(target).capacity:
        raise NotLowered(f"A tile of {by(tile)} cells of this stencil {_too_much(taken, target)}")


def by(sizes: Sequence[int]) -> str:
    """Sizes in words, such as "8 x 128"."""
    return " x ".join(map(str, sizes))


def _too_much(taken: int, target: str) -> str:
    return f"takes {taken} bytes of fast memory for {target}, which has {memory_of(target).capacity}."


def rows_of_16_bytes(shape: Sequence[int], dtype: np.dtype) -> Sizes:
    """The shape with rows that the copy engine of a GPU can address."""
    return *shape[:-1], round_up(shape[-1], 16 // dtype.itemsize)


def sizes_to_try(n: int, unit: int, longest: int) -> list[int]:
    """Sizes to try along an axis of `n` cells: the whole axis, or `unit` doubled and doubled again."""
    powers = [unit << k for k in range((n // unit).bit_length())]
    return [size for size in powers if size < n and size <= longest] + ([n] if n <= longest else [])


def _smallest(program: Program | Passes) -> int:
    arrays = [operand.dtype for operand in program.operands if operand.extents is not None]
    return min(dtype.itemsize for dtype in (*arrays, *program.results))


def _stored(shape: Sequence[int], dtype: np.dtype, target: str) -> int:
    """Bytes of an array in the fast memory, which keeps whole registers (TPU) or aligned blocks (GPU)."""
    if target == "tpu":
        rows = 32 // dtype.itemsize if shape[-2:-1] != (1,) and len(shape) > 1 else 1
        shape = *shape[:-2], *(round_up(n, rows) for n in shape[-2:-1]), round_up(shape[-1], 128)
    size = math.prod(shape) * dtype.itemsize
    return round_up(size, 1024) if target == "gpu" else size


def round_up(size: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-size // unit) * unit
