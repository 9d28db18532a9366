"""Kernels for NVIDIA GPUs from Hopper on: the copy engine brings overlapping blocks into shared memory."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.kernels.operands import Operand, Program
from simjax.kernels.pieces import Begin, for_pieces
from simjax.kernels.tiles import Sizes, block_of, rows_of_16_bytes

AXES = ("tile_x", "tile_y", "tile_z")
THREADS = 128


def run(program: Program, arrays: Sequence[Array], interior: Sizes, tile: Sizes, target: str) -> list[Array]:
    """The results of `program`. Rows of `arrays` are multiples of 16 bytes, as the copy engine needs them."""
    # Only here: it is slow to import, and needs packages that jax comes without.
    import jax.experimental.pallas.mosaic_gpu as gpu

    operands, ndim = program.operands, len(interior)
    # Whole rows of 16 bytes; the engine writes nothing outside an array.
    stored = [rows_of_16_bytes(interior, dtype) for dtype in program.results]
    blocks = {
        str(k): gpu.SMEM((o.components, *block_of(o, tile, interior, target)), o.dtype)
        for k, o in enumerate(operands)
        if o.extents is not None
    }
    found = gpu.kernel(
        lambda *refs, **scratch: _kernel(gpu, program, tile, refs, **scratch),
        out_type=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(stored, program.results, strict=True)],
        grid=tuple(pl.cdiv(n, t) for n, t in zip(interior, tile, strict=True)),
        grid_names=AXES[:ndim],
        scratch_types={
            "blocks": blocks,
            "tiles": [gpu.SMEM(tile, dtype) for dtype in program.results],
            "arrived": gpu.Barrier(num_arrivals=len(blocks)),
        },
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
    )(*(x[None] if x.ndim == 0 else x for x in arrays))
    return [u[..., : interior[-1]] for u in found]


def _kernel(gpu, program: Program, tile: Sizes, refs, *, blocks, tiles, arrived) -> None:
    """One tile; each of 128 threads computes one column of it."""
    operands = program.operands
    sources, results = refs[: len(operands)], refs[len(operands) :]
    corner = [lax.axis_index(name) * np.int32(size) for name, size in zip(AXES, tile, strict=False)]
    for name, block in blocks.items():
        gpu.copy_gmem_to_smem(sources[int(name)].at[_place(operands[int(name)], corner, block.shape)], block, arrived)
    scalars = {k: sources[k][0] for k, operand in enumerate(operands) if operand.extents is None}
    gpu.barrier_wait(arrived)
    piece = (1,) * (len(tile) - 1) + (THREADS,)
    per_register = gpu.Layout.WG_STRIDED(piece, vec_size=1)

    def compute(begin: Begin, shape: Sizes) -> None:
        def read(k: int, component: int = 0, offset: Sizes = ()):
            extents = operands[k].extents
            if extents is None:
                return scalars[k]
            first = [0 if e is None else b + o for b, o, e in zip(begin, offset, extents, strict=True)]
            if extents[-1] is None:  # one number for the whole row
                return blocks[str(k)][(component, *first)]
            place = (pl.ds(b, 1 if e is None else n) for b, n, e in zip(first, shape, extents, strict=True))
            return gpu.layout_cast(blocks[str(k)][(component, *place)], per_register)

        here = tuple(pl.ds(b, n) for b, n in zip(begin, shape, strict=True))
        for ref, value in zip(tiles, program.evaluate(read), strict=True):
            ref[here] = jnp.broadcast_to(value, shape)

    for_pieces(tile, piece, compute)
    gpu.commit_smem()
    for ref, result in zip(tiles, results, strict=True):
        gpu.copy_smem_to_gmem(ref, result.at[tuple(pl.ds(c, t) for c, t in zip(corner, tile, strict=True))])
    gpu.wait_smem_to_gmem(0)


def _place(operand: Operand, corner: Sequence, block: Sizes) -> tuple:
    """Where the block of a tile lies in its array; beyond the array, zeros are read."""
    extents = operand.extents or ()
    return slice(None), *(pl.ds(0 if e is None else c, n) for c, n, e in zip(corner, block[1:], extents, strict=True))
