"""Kernels for TPUs, and interpreted ones: the compiler copies overlapping blocks while the one before is computed."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from simjax.stencil.kernels.operands import Operand, Passes, Unpadded, ghost_width
from simjax.stencil.kernels.register_tiles import Begin, for_pieces
from simjax.stencil.kernels.tiles import Sizes, block_of, granule, kept_block, vector_memory
from simjax.stencil.kernels.tpu_blocks import assemble, block_shape, lag, margins, parts

LANES = 1024


def run(passes: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes, tile: Sizes, target: str) -> list[Array]:
    """The results of `passes`; every block of a tile lies inside `arrays`."""
    operands, ndim = passes.operands, len(tile)
    bare = {k: operand for k, operand in enumerate(operands) if isinstance(arrays[k], Unpadded)}
    margin = {k: margins(operand, ndim) for k, operand in bare.items()}
    # An assembled block is one with wide margins, of which the ghost cells are the inner part.
    seen = [replace(o, extents=tuple(2 * m for m in margin[k])) if k in bare else o for k, o in enumerate(operands)]
    seen += passes.kept
    wait = max((lag(operand, tile) for operand in bare.values()), default=0)
    inputs = [
        parts(x, operand, tile, interior)
        if isinstance(x, Unpadded)
        else [(x.reshape(1, 1) if x.ndim == 0 else x, _later(_spec(operand, tile, interior, target), wait))]
        for x, operand in zip(arrays, operands, strict=True)
    ]
    leaves, structure = jax.tree.flatten([[array for array, _ in group] for group in inputs])
    count = len(leaves), len(leaves) + len(passes.results), len(leaves) + len(passes.results) + len(bare)

    def kernel(*refs):
        sources, results = structure.unflatten(refs[: count[0]]), refs[count[0] : count[1]]
        assembled, kept = refs[count[1] : count[2]], refs[count[2] :]
        blocks = [group[0] for group in sources]
        for (k, operand), block in zip(bare.items(), assembled, strict=True):
            assemble(sources[k], block, operand, tile, interior)
            blocks[k] = block
        # Displacements are counted from the first ghost cell, which lies behind the rest of a margin.
        skipped = {k: [m - ghost_width(bare[k]) for m in sizes] for k, sizes in margin.items()}

        compute = functools.partial(_compute_tile, passes, seen, skipped, [*blocks, *kept], results, tile, target)
        if wait:
            pl.when(pl.program_id(0) >= wait)(compute)
        else:
            compute()

    scratch = [pltpu.VMEM(block_shape(operand, tile), operand.dtype) for operand in bare.values()]
    scratch += [pltpu.VMEM(kept_block(operand, tile, target), operand.dtype) for operand in passes.kept]
    tiles = tuple(pl.cdiv(n, t) for n, t in zip(interior, tile, strict=True))
    count_of_tiles = math.prod(tiles)
    # What every tile reads the whole of is brought once.
    moved = sum(
        array.dtype.itemsize * (array.size if _size(spec) == array.size else count_of_tiles * _size(spec))
        for group in inputs
        for array, spec in group
    )
    moved += count_of_tiles * sum(dtype.itemsize * math.prod(tile) for dtype in passes.results)
    return pl.pallas_call(
        kernel,
        grid=(tiles[0] + wait, *tiles[1:]),
        in_specs=[spec for group in inputs for _, spec in group],
        out_specs=[_later(pl.BlockSpec(tile, lambda *at: at), wait)] * len(passes.results),
        out_shape=[jax.ShapeDtypeStruct(interior, dtype) for dtype in passes.results],
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=vector_memory()),
        cost_estimate=pl.CostEstimate(flops=0, transcendentals=0, bytes_accessed=moved),
        interpret=target == "interpret",
    )(*leaves)


def _compute_tile(
    passes: Passes,
    seen: list[Operand],
    skipped: dict[int, list[int]],
    blocks: list,
    results: Sequence,
    tile: Sizes,
    target: str,
) -> None:
    """All passes on a tile. `blocks` are those of the operands, and what passes keep; `seen` says what these are."""
    scalars = {k: blocks[k][0, 0] for k, operand in enumerate(passes.operands) if operand.extents is None}
    free = iter([ref.at[np.int32(0)] for ref in blocks[len(passes.operands) :]])
    for program, around in zip(passes.programs, passes.margins, strict=True):
        targets = results if program is passes.programs[-1] else [next(free) for _ in program.results]

        def compute(begin: Begin, shape: Sizes, program=program, around=around, targets=targets) -> None:
            views = [_view(ref, o, around, begin, shape, target) for o, ref in zip(seen, blocks, strict=True)]

            def read(k: int, component: int = 0, offset: Sizes = ()):
                if k in scalars:
                    return scalars[k]
                more = skipped.get(k, [0] * len(tile))
                offset = tuple(o + s - m for o, s, m in zip(offset, more, around, strict=True))
                return _displaced(views[k], seen[k], component, offset, begin, shape)

            here = tuple(pl.ds(b, n) for b, n in zip(begin, shape, strict=True))
            for ref, value in zip(targets, program.evaluate(read), strict=True):
                ref[here] = jnp.broadcast_to(value, shape)

        for_pieces([t + 2 * m for t, m in zip(tile, around, strict=True)], _piece(passes, tile), compute)


def _later(spec: pl.BlockSpec, wait: int) -> pl.BlockSpec:
    """The block of the tile that is computed, `wait` steps of the grid after its planes have come."""
    if not wait or spec.index_map is None:
        return spec
    index = spec.index_map
    return pl.BlockSpec(
        spec.block_shape,
        lambda k, *at: index(jnp.maximum(k - np.int32(wait), np.int32(0)), *at),
        memory_space=spec.memory_space,
    )


def _size(spec: pl.BlockSpec) -> int:
    """Cells of a block."""
    return math.prod(n.block_size if isinstance(n, pl.Element) else cast(int, n) for n in spec.block_shape or ())


def _spec(operand: Operand, tile: Sizes, interior: Sizes, target: str) -> pl.BlockSpec:
    extents = operand.extents
    zero = np.int32(0)  # Mosaic has no indices of 64 bits
    if extents is None:
        return pl.BlockSpec((1, 1), lambda *_: (zero, zero), memory_space=pltpu.SMEM)
    sizes = operand.components, *block_of(operand, tile, interior, target)
    # Mosaic wants to see that the first row and column are multiples of a register's, also where there is one tile.
    moves = [e is not None and t < n for e, t, n in zip(extents, tile, interior, strict=True)]
    if not any(extents):  # blocks that do not overlap may be cut off at the end
        return pl.BlockSpec(sizes, lambda *at: (zero, *(k if cut else zero for k, cut in zip(at, moves, strict=True))))
    return pl.BlockSpec(
        tuple(pl.Element(size) for size in sizes),
        lambda *at: (zero, *(k * t if cut else zero for k, t, cut in zip(at, tile, moves, strict=True))),
    )


def _piece(program: Passes, tile: Sizes) -> Sizes:
    """Eight registers, whose rows hold two values of two bytes where one of four bytes would be."""
    ndim = len(tile)
    if ndim == 1:
        return (8 * LANES,)
    sizes = [dtype.itemsize for dtype in (*program.results, *(o.dtype for o in program.operands if o.extents))]
    return (1,) * (ndim - 2) + (8 * 4 // min(4, *sizes), LANES)


def _view(ref, operand: Operand, around: Sizes, begin: Begin, shape: Sizes, target: str):
    """Slice that a piece reads of a block along the axes where its begin is only known when the kernel runs.

    Rows are read at any displacement from a multiple of eight, but the compiler must know the displacement. `around`:
    cells around the tile that are computed too; as many fewer are read beyond them.
    """
    if operand.extents is None:
        return None
    units = granule(target, len(shape), operand.dtype.itemsize)
    place: list = [slice(None)]
    for b, n, e, m, unit in zip(begin, shape, operand.extents, around, units, strict=True):
        if e is None or isinstance(b, int):
            place.append(slice(None))
        else:
            place.append(pl.ds(pl.multiple_of(b, n), n + -(-(e - 2 * m) // unit) * unit))
    return ref.at[tuple(place)]


def _displaced(view, operand: Operand, component: int, offset: Sizes, begin: Begin, shape: Sizes) -> Array:
    place: list = [component]
    for b, o, n, e in zip(begin, offset, shape, operand.extents or (), strict=True):
        place.append(pl.ds(0, 1) if e is None else pl.ds(o + (b if isinstance(b, int) else 0), n))
    return view[tuple(place)]
