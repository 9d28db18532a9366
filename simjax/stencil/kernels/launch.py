"""A program evaluated at every point of an interior by one kernel."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from simjax.stencil.kernels import gpu_ghosts, hopper, hopper_planes, hopper_sums, tpu, tpu_blocks
from simjax.stencil.kernels.cost import explained
from simjax.stencil.kernels.operands import (
    NotLowered,
    Operand,
    Passes,
    Program,
    Sums,
    Unpadded,
    as_passes,
    ghost_width,
)
from simjax.stencil.kernels.tiles import (
    Sizes,
    bytes_of_blocks,
    check_fits,
    memory_of,
    ranked_tiles,
    reach,
    tile_of,
    tiles_to_try,
)
from simjax.stencil.padding import assembled

# What registers compute with; Pallas has no complex numbers.
TYPES = {
    "tpu": ("float32", "bfloat16", "int32"),
    "gpu": ("float32", "bfloat16", "float16", "int32"),
    "interpret": ("float64", "float32", "bfloat16", "float16", "int32", "int64"),
}
CANDIDATES = 6


class Candidates(NamedTuple):
    """Computation on an interior, and tiles for it, each with the cost model's account."""

    program: Passes
    interior: Sizes
    tiles: dict[Sizes, str]


def launch(
    program: Program | Passes,
    arrays: Sequence[Array | Unpadded],
    interior: Sizes,
    *,
    target: str,
    tile: Sizes | None = None,
    sums: Sums | None = None,
) -> list[Array]:
    """The results of `program`, each of shape `interior`, or their `sums`.

    Args:
        arrays: in step with `program.operands`, of the shapes that these say. They are copied where a block would lie
            outside (`tiles.reach`), and so are fields without their ghost cells if the target cannot put these around
            them in its fast memory.
        target: "tpu", "gpu" (Hopper and newer), or "interpret", which runs everywhere.
        tile: cells that are computed from one block of every operand; the cost model's `best` where it is not given.
        sums: added up in the kernel by a GPU where there are two axes or three; else by XLA, from results in memory.

    Raises:
        NotLowered: the target has no such numbers or too little fast memory.
    """
    if sums is not None and _walks(interior, target):
        return _by_walks(program, arrays, interior, sums, target, tile)
    program, operands = as_passes(program, len(interior)), program.operands
    _check_types(program, target)
    first = best(program, arrays, interior, target)
    if tile not in (None, first):
        check_fits(tile, fast_memory(program, arrays, tile, interior, target), target)
    tile = tile or first
    arrays = [_padded(x, o, tile, interior, target) for x, o in zip(arrays, operands, strict=True)]
    _check(program, arrays, interior)
    arrays = [_reaching(x, o, tile, interior, target) for x, o in zip(arrays, operands, strict=True)]
    if target == "gpu":
        found = (hopper_planes if len(interior) == 3 else hopper).run(program, arrays, interior, tile)
    else:
        found = tpu.run(program, arrays, interior, tile, target)
    return sums.of(found, len(interior)) if sums else found


def _walks(interior: Sizes, target: str) -> bool:
    """Tell whether a kernel adds up results as it walks along lines."""
    return target == "gpu" and len(interior) > 1


def _by_walks(
    program: Program | Passes,
    arrays: Sequence[Array | Unpadded],
    interior: Sizes,
    sums: Sums,
    target: str,
    tile: Sizes | None,
) -> list[Array]:
    assert not isinstance(program, Passes)
    _check_types(as_passes(program, len(interior)), target)
    whole = [x for x in arrays if not isinstance(x, Unpadded)]
    assert len(whole) == len(arrays)
    first = next(iter(hopper_sums.tiles(program, interior, sums)))
    return hopper_sums.run(program, whole, interior, sums, tile or first)


def best(program: Program | Passes, arrays: Sequence[Array | Unpadded], interior: Sizes, target: str) -> Sizes:
    """The tile that the cost model takes.

    Raises:
        NotLowered: the target has too little fast memory.
    """
    program = as_passes(program, len(interior))
    assembled_tile = tpu_blocks.tile_of(program, arrays, interior) if target == "tpu" else None
    return assembled_tile or tile_of(program, interior, target)


def candidates(
    program: Program | Passes,
    arrays: Sequence[Array | Unpadded],
    interior: Sizes,
    target: str,
    sums: Sums | None = None,
) -> Candidates:
    """Tiles to choose from by measurement, the cost model's best one first, each with its account (`explained`).

    sums: of the results, where they are what is wanted.

    Raises:
        NotLowered: as `launch` does.
    """
    if sums is not None and _walks(interior, target):
        assert not isinstance(program, Passes)
        accounts = {
            tile: f"walks of {max(tile[:-1])} cells, {size / 1024:.0f} KiB of fast memory"
            for tile, size in hopper_sums.tiles(program, interior, sums).items()
        }
        return Candidates(as_passes(program, len(interior)), interior, accounts)
    program = as_passes(program, len(interior))
    _check_types(program, target)
    others = ranked_tiles(program, interior, target, tiles_to_try(program, interior, target))
    tiles = list(dict.fromkeys([best(program, arrays, interior, target), *others]))[:CANDIDATES]
    taken = [fast_memory(program, arrays, tile, interior, target) for tile in tiles]
    accounts = {
        tile: explained(program, tile, interior, target, size)
        for tile, size in zip(tiles, taken, strict=True)
        if size <= memory_of(target).capacity or tile == tiles[0]
    }
    return Candidates(program, interior, accounts)


def fast_memory(
    program: Program | Passes, arrays: Sequence[Array | Unpadded], tile: Sizes, interior: Sizes, target: str
) -> int:
    """Bytes of fast memory that the blocks of a tile take, those that are assembled there included."""
    program, beside = as_passes(program, len(interior)), 0
    operands = list(program.operands)
    for k, (x, o) in enumerate(zip(arrays, program.operands, strict=True)):
        if not isinstance(x, Unpadded) or target == "gpu" or not tpu_blocks.stays_unpadded(o, tile, interior, target):
            continue
        lines = 2 * o.components * ghost_width(o) * math.prod(tile[1:])
        beside += (math.prod(tpu_blocks.block_shape(o, tile)) + lines) * o.dtype.itemsize
        if len(tile) == 3:  # every plane is brought once
            operands[k] = replace(o, extents=(0,) * 3)
    return bytes_of_blocks(replace(program, operands=tuple(operands)), tile, interior, target)[1] + beside


def _padded(x: Array | Unpadded, operand: Operand, tile: Sizes, interior: Sizes, target: str) -> Array | Unpadded:
    if not isinstance(x, Unpadded):
        return x
    stays = (
        gpu_ghosts.stays_unpadded(x) if target == "gpu" else tpu_blocks.stays_unpadded(operand, tile, interior, target)
    )
    if stays:
        return x
    return assembled([x.field], [x.ghosts], ghost_width(operand))[0]


def _check(program: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes) -> None:
    for k, (x, operand) in enumerate(zip(arrays, program.operands, strict=True)):
        if isinstance(x, Unpadded):
            x, operand = x.field, replace(operand, extents=(0,) * len(interior))
        if x.shape != operand.shape(interior) or x.dtype != operand.dtype:
            raise ValueError(
                f"Operand {k} of a kernel is {_spoken(x.dtype, x.shape)}; expected "
                f"{_spoken(operand.dtype, operand.shape(interior))}."
            )


def _check_types(program: Passes, target: str) -> None:
    for dtype in (*(operand.dtype for operand in (*program.operands, *program.kept)), *program.results):
        if dtype.name not in TYPES[target]:
            raise NotLowered(
                f"No kernel for {target} computes with {dtype.name}; it may be {', '.join(TYPES[target])}."
            )


def _reaching(x: Array | Unpadded, operand: Operand, tile: Sizes, interior: Sizes, target: str) -> Array | Unpadded:
    if operand.extents is None or isinstance(x, Unpadded):
        return x
    missing = [n - m for n, m in zip(reach(operand, tile, interior, target), x.shape[1:], strict=True)]
    if not any(missing):
        return x
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((0, n, 0) for n in missing)])


def _spoken(dtype, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"
