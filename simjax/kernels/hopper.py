"""Kernels for NVIDIA GPUs from Hopper on: the copy engine brings overlapping blocks into shared memory."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.kernels.operands import Operand, Program
from simjax.kernels.pieces import for_pieces
from simjax.kernels.tiles import Sizes, block_of

AXES = ("tile_x", "tile_y", "tile_z")
THREADS = 128


def run(program: Program, arrays: Sequence[Array], interior: Sizes, tile: Sizes, target: str) -> list[Array]:
    """The results of `program`. The rows of `arrays` are multiples of 16 bytes, as the copy engine needs them.

    Each of 128 threads computes one column of a tile.
    """
    # Only here: it is slow to import, and needs packages that jax comes without.
    import jax.experimental.pallas.mosaic_gpu as gpu

    ndim = len(interior)
    operands = program.operands
    fields = [k for k, operand in enumerate(operands) if operand.extents is not None]
    piece = (1,) * (ndim - 1) + (THREADS,)
    per_register = gpu.Layout.WG_STRIDED(piece, vec_size=1)

    def kernel(*refs, blocks, tiles, arrived):
        sources, results = refs[: len(operands)], refs[len(operands) :]
        corner = [lax.axis_index(name) * jnp.int32(size) for name, size in zip(AXES, tile, strict=False)]
        for k in fields:
            gpu.copy_gmem_to_smem(sources[k].at[_place(operands[k], corner, blocks[k])], blocks[k], arrived)
        scalars = [None if k in fields else source[0] for k, source in enumerate(sources)]
        gpu.barrier_wait(arrived)

        def compute(begin, shape):
            def read(k, component=None, offset=None):
                if component is None:
                    return scalars[k]
                extents = operands[k].extents
                if extents[-1] is None:
                    at = (0 if e is None else b + o for b, o, e in zip(begin, offset, extents, strict=True))
                    return blocks[k][(component, *at)]
                at = (
                    pl.ds(0, 1) if e is None else pl.ds(b + o, n)
                    for b, o, n, e in zip(begin, offset, shape, extents, strict=True)
                )  # fmt: skip
                return gpu.layout_cast(blocks[k][(component, *at)], per_register)

            here = tuple(pl.ds(b, n) for b, n in zip(begin, shape, strict=True))
            for ref, value in zip(tiles, program.evaluate(read), strict=True):
                ref[here] = jnp.broadcast_to(value, shape)

        for_pieces(tile, piece, compute)
        gpu.commit_smem()
        for ref, result in zip(tiles, results, strict=True):
            gpu.copy_smem_to_gmem(ref, result.at[tuple(pl.ds(c, t) for c, t in zip(corner, tile, strict=True))])
        gpu.wait_smem_to_gmem(0)

    rows = [_rounded(interior, dtype) for dtype in program.results]
    found = gpu.kernel(
        kernel,
        out_type=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(rows, program.results, strict=True)],
        grid=tuple(pl.cdiv(n, t) for n, t in zip(interior, tile, strict=True)),
        grid_names=AXES[:ndim],
        scratch_types={
            "blocks": {k: gpu.SMEM((o.components, *block_of(o, tile, interior, target)), o.dtype)
                       for k, o in enumerate(operands) if k in fields},
            "tiles": [gpu.SMEM(tile, dtype) for dtype in program.results],
            "arrived": gpu.Barrier(num_arrivals=len(fields)),
        },
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
    )(*(x[None] if x.ndim == 0 else x for x in arrays))  # fmt: skip
    return [u[..., : interior[-1]] for u in found]


def _place(operand: Operand, corner, block) -> tuple:
    extents = operand.extents or ()
    return slice(None), *(
        pl.ds(0 if e is None else c, n) for c, n, e in zip(corner, block.shape[1:], extents, strict=True)
    )


def _rounded(interior: Sizes, dtype) -> Sizes:
    unit = 16 // dtype.itemsize
    return *interior[:-1], -(-interior[-1] // unit) * unit
