"""Kernels in three dimensions for NVIDIA GPUs from Hopper on: planes stream through shared memory.

A thread block walks along x through its tile. The copy engine brings the next plane of every operand into a ring while
this one is computed; a plane stays for as long as it is read. What passes keep lies in rings too: in one step of the
walk each pass computes one plane, as far ahead of the results' as later ones read.

Of a block that is longer than the tile by e planes the walk's step i has plane i + e - longest, with the longest e of
all; the results' plane is i - longest, and that of a pass on m planes around the tile i - longest + m. In rings of r
planes, plane p has its place at (p + longest) mod r.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.jaxpr.varying import mosaic_kernel
from simjax.stencil.kernels.fragments import computed
from simjax.stencil.kernels.gpu_ghosts import columns_of, write_lines
from simjax.stencil.kernels.hopper import AXES, corner_of, inputs_of
from simjax.stencil.kernels.operands import Operand, Passes, Unpadded, ghost_width
from simjax.stencil.kernels.register_tiles import Begin, for_pieces
from simjax.stencil.kernels.tiles import (
    Sizes,
    aligned,
    block_of,
    kept_ring,
    lead,
    longest,
    ring,
    rows_of_16_bytes,
)

PIECE = (1, 128)


def run(passes: Passes, arrays: Sequence[Array | Unpadded], interior: Sizes, tile: Sizes) -> list[Array]:
    """The results of `passes`. Rows of `arrays` are multiples of 16 bytes, as the copy engine needs them."""
    # Only here: it is slow to import, and needs packages that jax comes without.
    import jax.experimental.pallas.mosaic_gpu as gpu

    operands = passes.operands
    rings = {str(k): gpu.SMEM(ring(o, tile), o.dtype) for k, o in enumerate(operands) if o.extents is not None}
    columns = {
        str(k): gpu.SMEM(_columns_ring(o, tile), o.dtype)
        for k, (x, o) in enumerate(zip(arrays, operands, strict=True))
        if isinstance(x, Unpadded)
    }
    # Whole rows of 16 bytes; the engine writes nothing outside an array.
    stored = [rows_of_16_bytes(interior, dtype) for dtype in passes.results]
    leaves, structure = jax.tree.flatten([inputs_of(x, o, tile) for x, o in zip(arrays, operands, strict=True)])

    def kernel(*refs, rings, columns, kept, tiles, arrived) -> None:
        sources, results = structure.unflatten(refs[: len(leaves)]), refs[len(leaves) :]
        _Walk(gpu, passes, interior, tile, sources, results, rings, columns, kept, tiles, arrived).walk()

    found = mosaic_kernel(
        gpu,
        kernel,
        [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(stored, passes.results, strict=True)],
        {
            "rings": rings,
            "columns": columns,
            "kept": [gpu.SMEM(kept_ring(operand, tile), operand.dtype) for operand in passes.kept],
            "tiles": [gpu.SMEM(tile[1:], dtype) for dtype in passes.results],
            "arrived": gpu.Barrier(num_arrivals=sum(operands[int(k)].components for k in (*rings, *columns))),
        },
        grid=tuple(pl.cdiv(n, t) for n, t in zip(interior, tile, strict=True)),
        grid_names=AXES,
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
    )(*leaves)
    return [u[..., : interior[-1]] for u in found]


def _columns_ring(operand: Operand, tile: Sizes) -> Sizes:
    """Two planes of the last axis' ghost lines: of the plane that has come, and of the next one."""
    components, _, *plane = columns_of(operand, tile)
    return 2, components, *aligned(plane, operand.dtype)


@dataclass(frozen=True)
class _Walk:
    """A thread block on its way.

    Attributes:
        sources: by operand, its array in the device's memory, and ghost lines beside it; results: likewise.
        rings: by operand, (planes, components, rows, columns) in shared memory; columns: the last axis' ghost lines.
        kept: rings of what passes keep; tiles: a plane of each result; arrived: whether a step's planes have come.
    """

    gpu: Any
    passes: Passes
    interior: Sizes
    tile: Sizes
    sources: list
    results: Sequence
    rings: dict
    columns: dict
    kept: Sequence
    tiles: Sequence
    arrived: Any

    def walk(self) -> None:
        """Walk through the tile: bring planes, compute, store."""
        corner = corner_of(self.tile)
        wait = np.int32(longest(self.passes))
        steps = np.int32(self.tile[0]) + wait
        self._bring(np.int32(0), corner)

        def step(i):
            self.gpu.barrier_wait(self.arrived)
            # Where the next planes come was read last in the step before, after which all threads met.
            pl.when(i + np.int32(1) < steps)(lambda: self._bring(i + np.int32(1), corner))
            for k in self.columns:
                self._write_lines(k, i, corner)
            self._compute(i)
            pl.when(i >= wait)(lambda: self._store(corner[0] + i - wait, corner))
            return i + np.int32(1)

        # A `fori_loop` counts in 64 bits where jax has them, which Mosaic cannot convert.
        lax.while_loop(lambda i: i < steps, step, np.int32(0))
        self.gpu.wait_smem_to_gmem(0)

    # ------------------------------------------------------------------ planes come and go

    def _newest(self, k: str, i, corner: Sequence) -> tuple:
        """Plane of an operand's array that arrives for step `i`, and its place in the ring.

        Before the first plane there is none to be read: the first one comes then, too.
        """
        extent = _along_x(self.passes.operands[int(k)])
        place = lax.rem(i + np.int32(extent or 0), np.int32(self.rings[k].shape[0]))
        if extent is None:
            return np.int32(0), place
        return jnp.maximum(corner[0] + i + np.int32(extent - longest(self.passes)), np.int32(0)), place

    def _bring(self, i, corner: Sequence) -> None:
        """Planes for step `i`: of an array, or of its ghost lines before and after it."""
        for k, block in self.rings.items():
            operand, arrays = self.passes.operands[int(k)], self.sources[int(k)]
            plane, place = self._newest(k, i, corner)
            if k not in self.columns:
                self._copy(arrays[0], plane, _cells(operand, corner, self.tile), block, place)
                continue
            width, n = ghost_width(operand), self.interior[0]
            first, last = np.int32(width), np.int32(n + width)
            cells = _cells(operand, corner, self.tile, width)
            line = jnp.where(plane < first, plane, plane - np.int32(n))
            pl.when((plane >= first) & (plane < last))(
                lambda f=arrays[0], p=plane - first, c=cells, b=block, s=place: self._copy(f, p, c, b, s)
            )
            pl.when((plane < first) | (plane >= last))(
                lambda f=arrays[1], p=line, c=cells, b=block, s=place: self._copy(f, p, c, b, s)
            )
            rows = pl.ds(corner[1], self.tile[1] + 2 * width), pl.ds(0, self.columns[k].shape[-1])
            self._copy(arrays[-1], plane, rows, self.columns[k], lax.rem(i, np.int32(2)))

    def _copy(self, array, plane, cells: tuple, block, place) -> None:
        rows = cells[0].size
        for c in range(block.shape[1]):
            self.gpu.copy_gmem_to_smem(array.at[(c, plane, *cells)], block.at[place, c, pl.ds(0, rows)], self.arrived)

    def _write_lines(self, k: str, i, corner: Sequence) -> None:
        plane, place = self._newest(k, i, corner)
        lines, columns = self.sources[int(k)][2].at[:, plane], self.columns[k].at[lax.rem(i, np.int32(2))]
        operand, around = self.passes.operands[int(k)], (self.interior[1:], self.tile[1:], corner[1:])
        write_lines(self.gpu, self.rings[k].at[place], [lines], columns, operand, *around)

    def _store(self, plane, corner: Sequence) -> None:
        for ref, result in zip(self.tiles, self.results, strict=True):
            cells = (pl.ds(c, t) for c, t in zip(corner[1:], self.tile[1:], strict=True))
            self.gpu.copy_smem_to_gmem(ref, result.at[(plane, *cells)])

    # ------------------------------------------------------------------ computing

    def _compute(self, i) -> None:
        """A plane of every pass, by 128 threads along its rows."""
        passes, operands = self.passes, (*self.passes.operands, *self.passes.kept)
        seen = {**self.rings, **{str(len(passes.operands) + k): block for k, block in enumerate(self.kept)}}
        scalars = {k: self.sources[k][0][0] for k, operand in enumerate(operands) if operand.extents is None}
        free, types = iter(self.kept), [operand.dtype for operand in operands]
        for program, around in zip(passes.programs, passes.margins, strict=True):
            last = program is passes.programs[-1]
            if last:  # the results of the step before are on their way
                self.gpu.wait_smem_to_gmem(0, wait_read_only=True)
            targets = self.tiles if last else [self._next(next(free), i) for _ in program.results]

            def compute(begin: Begin, shape: Sizes, program=program, around=around, targets=targets) -> None:
                def read(k: int, component: int = 0, offset: Sizes = ()):
                    if k in scalars:
                        return scalars[k]
                    block, extents = seen[str(k)], operands[k].extents
                    assert extents is not None
                    # Of what is the same in all planes, the one that has come.
                    plane = i if extents[0] is None else i + np.int32(around[0] + offset[0])
                    place = lax.rem(plane, np.int32(block.shape[0]))
                    row, column = (
                        0 if e is None else b + o - m
                        for b, o, e, m in zip(begin, offset[1:], extents[1:], around[1:], strict=True)
                    )
                    if extents[2] is None:  # one number for the whole row
                        return block[place, component, row, column]
                    column += lead(operands[k]) if str(k) in self.columns else 0
                    return block[place, component, pl.ds(row, 1), pl.ds(column, shape[1])]

                here = tuple(pl.ds(b, n) for b, n in zip(begin, shape, strict=True))
                for ref, value in zip(targets, computed(self.gpu, program, read, types, shape), strict=True):
                    ref[here] = value

            cells = [t + 2 * m for t, m in zip(self.tile[1:], around[1:], strict=True)]
            # Before that, nothing that it reads was brought.
            first = np.int32(longest(passes) - 2 * around[0])
            pl.when(i >= first)(lambda cells=cells, compute=compute: for_pieces(cells, PIECE, compute, equal=True))
            self.gpu.commit_smem()

    def _next(self, block, i):
        """Place of a pass's plane of step `i`."""
        newest = i + np.int32(block.shape[0] - 1)
        return block.at[lax.rem(newest, np.int32(block.shape[0])), np.int32(0)]


def _along_x(operand: Operand) -> int | None:
    assert operand.extents is not None
    return operand.extents[0]


def _cells(operand: Operand, corner: Sequence, tile: Sizes, before: int = 0) -> tuple:
    """Cells of a plane that are brought, `before` of them before the tile; beyond an array zeros are read."""
    assert operand.extents is not None
    sizes = block_of(operand, tile, tile, "gpu")[1:]
    befores = before, before + lead(operand) if before else 0
    return tuple(
        pl.ds(0 if e is None else c - np.int32(b), n)
        for c, b, n, e in zip(corner[1:], befores, sizes, operand.extents[1:], strict=True)
    )
