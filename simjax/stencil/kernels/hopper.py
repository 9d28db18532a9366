"""Kernels for NVIDIA GPUs from Hopper on: the copy engine brings overlapping blocks into shared memory.

In one dimension and two; in three, planes stream (`planes`).
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.jaxpr.varying import mosaic_kernel
from simjax.stencil.kernels.fragments import computed
from simjax.stencil.kernels.gpu_ghosts import columns_of, lines_of, write_lines
from simjax.stencil.kernels.operands import Operand, Passes, Unpadded, ghost_width
from simjax.stencil.kernels.register_tiles import Begin, for_pieces
from simjax.stencil.kernels.tiles import Sizes, block_of, kept_block, lead, rows_of_16_bytes

AXES = ("tile_x", "tile_y", "tile_z")
THREADS = 128


def run(passes: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes, tile: Sizes) -> list[Array]:
    """The results of `passes`. Rows of `arrays` are multiples of 16 bytes, as the copy engine needs them."""
    # Only here: it is slow to import, and needs packages that jax comes without.
    import jax.experimental.pallas.mosaic_gpu as gpu

    operands, ndim = passes.operands, len(interior)
    # Whole rows of 16 bytes; the engine writes nothing outside an array.
    stored = [rows_of_16_bytes(interior, dtype) for dtype in passes.results]
    blocks, columns = {}, {}
    for k, operand in enumerate(operands):
        if operand.extents is not None:
            blocks[str(k)] = gpu.SMEM((operand.components, *block_of(operand, tile, interior, "gpu")), operand.dtype)
        if isinstance(arrays[k], Unpadded):
            columns[str(k)] = gpu.SMEM(columns_of(operand, tile), operand.dtype)
    inputs = [inputs_of(x, operand, tile) for x, operand in zip(arrays, operands, strict=True)]
    leaves, structure = jax.tree.flatten(inputs)

    def kernel(*refs, **scratch) -> None:
        _compute_tile(
            gpu, passes, interior, tile, structure.unflatten(refs[: len(leaves)]), refs[len(leaves) :], **scratch
        )

    found = mosaic_kernel(
        gpu,
        kernel,
        [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(stored, passes.results, strict=True)],
        {
            "blocks": blocks,
            "columns": columns,
            "kept": [gpu.SMEM(kept_block(operand, tile, "gpu"), operand.dtype) for operand in passes.kept],
            "tiles": [gpu.SMEM(tile, dtype) for dtype in passes.results],
            "arrived": gpu.Barrier(num_arrivals=len(blocks) + len(columns)),
        },
        grid=tuple(pl.cdiv(n, t) for n, t in zip(interior, tile, strict=True)),
        grid_names=AXES[:ndim],
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
    )(*leaves)
    return [u[..., : interior[-1]] for u in found]


def inputs_of(x: Array | Unpadded, operand: Operand, tile: Sizes) -> list[Array]:
    """An operand's array, and its ghost lines where it has none itself."""
    if isinstance(x, Unpadded):
        return [x.field, *lines_of(x, operand, tile)]
    return [x[None] if x.ndim == 0 else x]


def corner_of(tile: Sizes) -> list:
    """First cell of the tile of this thread block."""
    return [lax.axis_index(name) * np.int32(size) for name, size in zip(AXES, tile, strict=False)]


def _compute_tile(
    gpu, passes: Passes, interior: Sizes, tile: Sizes, sources, results, *, blocks, columns, kept, tiles, arrived
) -> None:
    """Each of 128 threads computes one column of a row, or two where a pass takes more than the tile's 128."""
    operands = passes.operands
    corner = corner_of(tile)
    for k, block in blocks.items():
        place = _place(operands[int(k)], corner, block.shape, k in columns)
        gpu.copy_gmem_to_smem(sources[int(k)][0].at[place], block, arrived)
    for k, block in columns.items():
        place = *(pl.ds(c, n) for c, n in zip(corner[:-1], block.shape[1:-1], strict=True)), slice(None)
        gpu.copy_gmem_to_smem(sources[int(k)][-1].at[(slice(None), *place)], block, arrived)
    scalars = {k: sources[k][0][0] for k, operand in enumerate(operands) if operand.extents is None}
    gpu.barrier_wait(arrived)
    for k, column in columns.items():
        lines = sources[int(k)][1:]
        write_lines(gpu, blocks[k], lines, column, operands[int(k)], interior, tile, corner)
    seen = {**blocks, **{str(len(operands) + k): block for k, block in enumerate(kept)}}
    free = iter([block.at[np.int32(0)] for block in kept])
    piece = (1,) * (len(tile) - 1) + (THREADS,)
    types = [operand.dtype for operand in (*operands, *passes.kept)]

    for program, around in zip(passes.programs, passes.margins, strict=True):
        targets = tiles if program is passes.programs[-1] else [next(free) for _ in program.results]

        def compute(begin: Begin, shape: Sizes, program=program, around=around, targets=targets) -> None:
            def read(k: int, component: int = 0, offset: Sizes = ()):
                if k in scalars:
                    return scalars[k]
                extents = (*operands, *passes.kept)[k].extents
                assert extents is not None
                first = [
                    0 if e is None else b + o - m for b, o, e, m in zip(begin, offset, extents, around, strict=True)
                ]
                if extents[-1] is None:  # one number for the whole row
                    return seen[str(k)][(component, *first)]
                first[-1] += lead(operands[k]) if str(k) in columns else 0
                place = (pl.ds(b, 1 if e is None else n) for b, n, e in zip(first, shape, extents, strict=True))
                return seen[str(k)][(component, *place)]

            here = tuple(pl.ds(b, n) for b, n in zip(begin, shape, strict=True))
            for ref, value in zip(targets, computed(gpu, program, read, types, shape), strict=True):
                ref[here] = value

        for_pieces([t + 2 * m for t, m in zip(tile, around, strict=True)], piece, compute, equal=True)
        gpu.commit_smem()
    for ref, result in zip(tiles, results, strict=True):
        gpu.copy_smem_to_gmem(ref, result.at[tuple(pl.ds(c, t) for c, t in zip(corner, tile, strict=True))])
    gpu.wait_smem_to_gmem(0)


def _place(operand: Operand, corner: Sequence, block: Sizes, unpadded: bool) -> tuple:
    """Place of the block of a tile in its array; beyond the array, on either side, zeros are read."""
    extents = operand.extents or ()
    before = [ghost_width(operand) if unpadded else 0] * len(corner)
    before[-1] += lead(operand) if unpadded else 0
    return slice(None), *(
        pl.ds(0 if e is None else c - np.int32(b), n)
        for c, b, n, e in zip(corner, before, block[1:], extents, strict=True)
    )
