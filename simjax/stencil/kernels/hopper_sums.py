"""Kernels for NVIDIA GPUs from Hopper on whose results are added up along lines: each sum is written once.

A thread block walks along one axis of the grid, row by row of 128 cells along the last axis. The copy engine brings the
next row of every operand into a ring while this one is computed; a row stays for as long as it is read.

Along the axis of the walk a result is added to sums that lie in a ring of shared memory, each in a column of its
thread. A sum is complete when the walk comes to its cell, and is written then. The walk begins as far before the first
sum of a thread block as results are moved. Along the last axis all results of a row lie in shared memory, and a thread
adds up those that come to its cell; rows of two thread blocks overlap.

Of what is added up over all cells each thread has a total, of the cells that its thread block writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from simjax.jaxpr.varying import mosaic_kernel
from simjax.stencil.kernels.fragments import computed
from simjax.stencil.kernels.hopper import AXES, corner_of
from simjax.stencil.kernels.operands import NotLowered, Operand, Program, Sums
from simjax.stencil.kernels.tiles import Sizes, aligned, memory_of, round_up, rows_of_16_bytes

THREADS = 128
LENGTHS = (32, 16, 64)
"""Cells of a walk to choose from. Of 32 cells, a gas computes three to five faces more."""


def tiles(program: Program, interior: Sizes, sums: Sums) -> dict[Sizes, int]:
    """Cells of a thread block to choose from, each with the bytes of shared memory that it takes.

    Raises:
        NotLowered: there is too little.
    """
    plan = _Plan.of(program, interior, sums)
    taken, room = plan.shared_memory, memory_of("gpu").capacity
    if taken > room:
        raise NotLowered(f"A row of this stencil takes {taken} bytes of fast memory for gpu, which has {room}.")
    found: dict[Sizes, int] = {}
    for length in LENGTHS:
        tile = [1] * len(interior)
        tile[-1] = plan.columns
        tile[plan.walk - plan.lifted] = min(length, interior[plan.walk - plan.lifted])
        found[tuple(tile)] = taken
    return found


def run(program: Program, arrays: Sequence[Array], interior: Sizes, sums: Sums, tile: Sizes) -> list[Array]:
    """The sums, of the results of `program` on an interior of two axes or three.

    Args:
        arrays: in step with `program.operands`.
        tile: one of `tiles`.
    """
    # Only here: it is slow to import, and needs packages that jax comes without.
    import jax.experimental.pallas.mosaic_gpu as gpu

    plan = _Plan.of(program, interior, sums)
    length = tile[plan.walk - plan.lifted]
    shapes = [plan.shape(k) for k in range(len(sums.terms))]
    stored = [rows_of_16_bytes(shape, dtype) for shape, dtype in zip(shapes, plan.types, strict=True)]
    grid = [0, 0, 0]
    grid[plan.walk] = pl.cdiv(max(shape[plan.walk] for shape in shapes), length)
    grid[1 - plan.walk] = shapes[0][1 - plan.walk]
    grid[2] = pl.cdiv(max(shape[2] for shape in shapes) - plan.before, plan.columns)
    by_thread = [jax.ShapeDtypeStruct((*grid[:2], THREADS * grid[2]), dtype) for dtype in plan.types_of_totals]

    def kernel(*refs, rings, arrived, **scratch) -> None:
        _Walk(gpu, plan, length, refs[: len(arrays)], refs[len(arrays) :], rings, arrived, **scratch).walk()

    rows = [gpu.SMEM((plan.slots, 1, THREADS), dtype) for dtype in plan.types]
    found = mosaic_kernel(
        gpu,
        kernel,
        [*(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(stored, plan.types, strict=True)), *by_thread],
        {
            "rings": {str(k): gpu.SMEM(box.ring(), box.dtype) for k, box in plan.boxes.items()},
            "arrived": gpu.Barrier(num_arrivals=sum(box.components for box in plan.boxes.values())),
            "sums": rows,
            "moved": [
                gpu.SMEM((len(terms), 1, THREADS + 2 * plan.before), dtype)
                for terms, dtype in zip(sums.terms, plan.types, strict=True)
                if plan.along_rows
            ],
            "totals": [gpu.SMEM((1, THREADS), dtype) for dtype in plan.types_of_totals],
        },
        grid=tuple(grid),
        grid_names=AXES,
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
    )(*(_readable(x, operand, plan) for x, operand in zip(arrays, program.operands, strict=True)))
    added, totals = found[: len(shapes)], found[len(shapes) :]
    return [
        *(lax.slice(u, (0, 0, 0), n).reshape(n[plan.lifted :]) for u, n in zip(added, shapes, strict=True)),
        *map(jnp.sum, totals),
    ]


def _readable(x: Array, operand: Operand, plan: "_Plan") -> Array:
    """An operand's array in three dimensions, with rows that the copy engine can address."""
    if operand.extents is None:
        return x[None]
    whole = [n + (e or 0) for n, e in zip(plan.interior[plan.lifted :], operand.extents, strict=True)]
    x = jnp.broadcast_to(x, (operand.components, *whole)).reshape(operand.components, *[1] * plan.lifted, *whole)
    missing = rows_of_16_bytes(x.shape, operand.dtype)[-1] - x.shape[-1]
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * 3 + [(0, missing, 0)]) if missing else x


@dataclass(frozen=True)
class _Box:
    """Cells of an operand that a program reads for one row.

    Attributes:
        first: displacement of its first cell along each axis, along the last one a multiple of 16 bytes; last: along
            the axis of the walk, and along the other one, of its last cell.
        columns: cells along the last axis.
    """

    components: int
    dtype: np.dtype
    first: Sizes
    last: tuple[int, int]
    walk: int
    columns: int

    @property
    def planes(self) -> int:
        """Rows of a ring: those that are read at once, and the next one."""
        return self.last[0] - self.first[self.walk] + 2

    @property
    def rows(self) -> int:
        """Rows beside each other that are read at once."""
        return self.last[1] - self.first[1 - self.walk] + 1

    def ring(self) -> Sizes:
        """Shape in shared memory."""
        return self.planes, self.components, *aligned((self.rows, self.columns), self.dtype)


@dataclass(frozen=True)
class _Plan:
    """The walk of a program in three dimensions.

    Attributes:
        lifted: axes of one cell that are put before those of an interior of fewer dimensions.
        interior: cells on which results are computed.
        boxes: by operand, what is read of it.
        before: cells of a row that other thread blocks write, as results come to them from there; 0 where results are
            moved along the walk.
    """

    program: Program
    interior: Sizes
    lifted: int
    sums: Sums
    walk: int
    boxes: dict[int, _Box]
    before: int

    @staticmethod
    def of(program: Program, interior: Sizes, sums: Sums) -> "_Plan":
        lifted = 3 - len(interior)
        axis = sums.axis + lifted
        sums, walk = replace(sums, axis=axis), lifted if axis == 2 else axis
        smallest = min(program.results, key=lambda dtype: dtype.itemsize)
        before = round_up(sums.longest, 16 // smallest.itemsize) if axis == 2 else 0
        boxes = _boxes(program, lifted, walk)
        return _Plan(program, (*[1] * lifted, *interior), lifted, sums, walk, boxes, before)

    @property
    def along_rows(self) -> bool:
        """Tell whether results are moved along the last axis."""
        return self.sums.axis == 2

    @property
    def columns(self) -> int:
        """Cells of a row that a thread block writes."""
        return THREADS - self.before

    @property
    def slots(self) -> int:
        """Rows of a sum to which results are added at once."""
        return 1 if self.along_rows else self.sums.longest + 1

    @property
    def types(self) -> list[np.dtype]:
        """Types of the sums."""
        return [self.program.results[terms[0][0]] for terms in self.sums.terms]

    @property
    def types_of_totals(self) -> list[np.dtype]:
        return [self.program.results[r] for r in self.sums.totals]

    @property
    def depth(self) -> int:
        """Rows that are brought before the first one is computed."""
        return max((box.planes - 2 for box in self.boxes.values()), default=0)

    @property
    def shared_memory(self) -> int:
        """Bytes that a thread block takes, each array in blocks of 1024."""
        rings = [(box.ring(), box.dtype) for box in self.boxes.values()]
        rows = [((self.slots, THREADS), dtype) for dtype in self.types]
        if self.along_rows:
            rows += [
                ((len(terms), THREADS + 2 * self.before), dtype)
                for terms, dtype in zip(self.sums.terms, self.types, strict=True)
            ]
        rows += [((1, THREADS), dtype) for dtype in self.types_of_totals]
        return sum(round_up(int(np.prod(shape)) * dtype.itemsize, 1024) for shape, dtype in rings + rows)

    def shape(self, k: int) -> Sizes:
        """Cells of a sum."""
        grown = max(moved for _, moved in self.sums.terms[k])
        return tuple(n + grown * (axis == self.sums.axis) for axis, n in enumerate(self.interior))


def _boxes(program: Program, lifted: int, walk: int) -> dict[int, _Box]:
    """By operand along the grid, what the program reads of it for a row of 128 cells."""
    offsets: dict[int, list[Sizes]] = {}

    def read(k: int, component: int = 0, offset: Sizes = ()) -> Array:
        if offset:
            offsets.setdefault(k, []).append((*[0] * lifted, *offset))
        return jnp.zeros((), program.operands[k].dtype)

    jax.eval_shape(lambda: program.evaluate(read))
    boxes = {}
    for k, seen in sorted(offsets.items()):
        operand = program.operands[k]
        first, last = ([pick(places) for places in zip(*seen, strict=True)] for pick in (min, max))
        unit = 16 // operand.dtype.itemsize
        first[2] -= first[2] % unit
        columns = round_up(THREADS + last[2] - first[2], unit)
        boxes[k] = _Box(operand.components, operand.dtype, tuple(first), (last[walk], last[1 - walk]), walk, columns)
    return boxes


@dataclass(frozen=True)
class _Walk:
    """A thread block on its way: in step i row `start + i - depth` is computed.

    Attributes:
        length: cells that it writes along the axis of the walk.
        sources: the operands in the device's memory; results: the sums there.
        rings: by operand, rows of it; arrived: whether a step's rows have come.
        sums: by sum, rows of it that are not yet written.
        moved: by sum along the last axis, results of a row that it is the sum of, with room for as many cells before
            and after them as these are moved.
        totals: by result that is added up over all cells, one for each thread.
    """

    gpu: Any
    plan: _Plan
    length: int
    sources: Sequence
    results: Sequence
    rings: dict
    arrived: Any
    sums: Sequence
    moved: Sequence
    totals: Sequence

    def walk(self) -> None:
        """Walk along the axis: bring rows, compute, add up, store."""
        plan = self.plan
        ahead = 0 if plan.along_rows else plan.sums.longest
        corner = corner_of(self._place(self.length, 1, plan.columns))
        start = corner[plan.walk] - np.int32(ahead)
        row, column = corner[1 - plan.walk], corner[2]
        steps = np.int32(plan.depth + self.length + ahead)
        self._clear()
        self._bring(np.int32(0), start, row, column)

        def step(i):
            self.gpu.barrier_wait(self.arrived)
            # Where the next rows come was read last in the step before, where all threads met after that.
            pl.when(i + np.int32(1) < steps)(lambda: self._bring(i + np.int32(1), start, row, column))
            done = i - np.int32(plan.depth)
            compute = self._add_along_row if plan.along_rows else self._add_along_walk
            pl.when(done >= np.int32(0))(lambda: compute(i, done, start + done, row, column))
            return i + np.int32(1)

        # A `fori_loop` counts in 64 bits where jax has them, which Mosaic cannot convert.
        lax.while_loop(lambda i: i < steps, step, np.int32(0))
        if self.totals:
            self._store_totals()
        self.gpu.wait_smem_to_gmem(0)

    @property
    def _layout(self):
        return self.gpu.Layout.WG_STRIDED((1, THREADS), vec_size=1)

    def _place(self, along_walk, along_other, along_row) -> tuple:
        """Order what belongs to the axis of the walk, to the other one and to rows by the axes of the grid."""
        place = (along_walk, along_other) if self.plan.walk == 0 else (along_other, along_walk)
        return *place, along_row

    def _bring(self, i, start, row, column) -> None:
        """Rows for step `i`; before the first row of an array the first one comes, and after the last one zeros."""
        plan = self.plan
        for k, box in plan.boxes.items():
            newest = jnp.maximum(start + i + np.int32(box.last[0] - plan.depth), np.int32(0))
            rows = pl.ds(row + np.int32(box.first[1 - plan.walk]), box.rows)
            cells = self._place(newest, rows, pl.ds(column + np.int32(box.first[2]), box.columns))
            ring = self.rings[str(k)]
            place = lax.rem(i, np.int32(box.planes))
            for c in range(box.components):
                self.gpu.copy_gmem_to_smem(
                    self.sources[k].at[(c, *cells)],
                    ring.at[place, c, pl.ds(0, box.rows), pl.ds(0, box.columns)],
                    self.arrived,
                )

    def _values(self, i) -> list[Array]:
        """Results on the row of step `i`."""
        plan, shape = self.plan, (1, THREADS)

        def read(k: int, component: int = 0, offset: Sizes = ()):
            if not offset:
                return self.sources[k][0]
            box = plan.boxes[k]
            offset = (*[0] * plan.lifted, *offset)
            back = np.int32(box.last[0] - offset[plan.walk])
            place = lax.rem(i - back, np.int32(box.planes))
            row, column = offset[1 - plan.walk] - box.first[1 - plan.walk], offset[2] - box.first[2]
            return self.rings[str(k)][place, component, pl.ds(row, 1), pl.ds(column, THREADS)]

        types = [operand.dtype for operand in plan.program.operands]
        return computed(self.gpu, plan.program, read, types, shape)

    # ------------------------------------------------------------------ results moved along the walk

    def _add_along_walk(self, i, done, cell, row, column) -> None:
        plan, count = self.plan, np.int32(self.plan.slots)

        def slot(sum_, moved: int):
            return sum_.at[lax.rem(done + np.int32(moved), count)]

        exists = (cell >= np.int32(0)) & (cell < np.int32(plan.interior[plan.walk]))

        def add() -> None:
            values = self._values(i)
            # Rows before the first one that is written are those of the thread block before.
            written = jnp.where(done >= np.int32(plan.sums.longest), np.int32(plan.interior[2]) - column, np.int32(0))
            self._add_totals(values, np.int32(0), written)
            # The rows of the step before are on their way until now; their place is used again.
            self.gpu.wait_smem_to_gmem(0, wait_read_only=True)
            for sum_, terms in zip(self.sums, plan.sums.terms, strict=True):
                farthest = max(moved for _, moved in terms)
                for result, moved in terms:
                    target = slot(sum_, moved)
                    # The farthest cell gets its first result.
                    others = None if moved == farthest else self.gpu.layout_cast(target[...], self._layout)
                    target[...] = values[result] if others is None else others + values[result]

        def clear() -> None:
            self.gpu.wait_smem_to_gmem(0, wait_read_only=True)
            for sum_, terms in zip(self.sums, plan.sums.terms, strict=True):
                target = slot(sum_, max(moved for _, moved in terms))
                target[...] = self._zeros(sum_.dtype)

        pl.when(exists)(add)
        pl.when(jnp.logical_not(exists))(clear)
        self.gpu.commit_smem()

        def store() -> None:
            cells = self._place(cell, pl.ds(row, 1), pl.ds(column, THREADS))
            for sum_, result in zip(self.sums, self.results, strict=False):
                self.gpu.copy_smem_to_gmem(slot(sum_, 0), result.at[cells])

        pl.when(done >= np.int32(plan.sums.longest))(store)

    def _zeros(self, dtype) -> Array:
        return self.gpu.layout_cast(jnp.zeros((1, THREADS), dtype), self._layout)

    @property
    def _columns(self) -> Array:
        """Each thread's cell of a row."""
        return self.gpu.layout_cast(lax.broadcasted_iota(jnp.int32, (1, THREADS), 1), self._layout)

    def _clear(self) -> None:
        """Zeros where totals begin, and before the first results of a row: nothing comes from there."""
        for total in self.totals:
            total[...] = self._zeros(total.dtype)
        for moved, terms in zip(self.moved, self.plan.sums.terms, strict=self.plan.along_rows):
            for j in range(len(terms)):
                moved[j, :, pl.ds(0, THREADS)] = self._zeros(moved.dtype)
        self.gpu.commit_smem()

    def _add_totals(self, values: Sequence[Array], first, end) -> None:
        """Add results in the cells of a row from `first` to before `end`."""
        for total, result in zip(self.totals, self.plan.sums.totals, strict=True):
            zeros = self._zeros(total.dtype)
            kept = jnp.where(self._columns < end, jnp.where(self._columns >= first, values[result], zeros), zeros)
            total[...] = self.gpu.layout_cast(total[...], self._layout) + kept

    def _store_totals(self) -> None:
        self.gpu.commit_smem()
        first, second, thread = corner_of((1, 1, THREADS))
        for total, result in zip(self.totals, self.results[len(self.sums) :], strict=True):
            self.gpu.copy_smem_to_gmem(total, result.at[first, pl.ds(second, 1), pl.ds(thread, THREADS)])

    # ------------------------------------------------------------------ results moved along the last axis

    def _add_along_row(self, i, done, cell, row, column) -> None:
        plan, before = self.plan, self.plan.before
        values = self._values(i)
        exists = self._columns < np.int32(plan.interior[2]) - column
        # Cells that the thread block before computes too, and writes.
        first = jnp.where(column == np.int32(0), np.int32(0), np.int32(before))
        end = jnp.where(cell < np.int32(plan.interior[plan.walk]), np.int32(plan.interior[2]) - column, np.int32(0))
        self._add_totals(values, first, end)
        for moved, terms in zip(self.moved, plan.sums.terms, strict=True):
            for j, (result, _) in enumerate(terms):
                kept = jnp.where(exists, values[result], self._zeros(moved.dtype))
                moved[j, :, pl.ds(before, THREADS)] = kept
        self.gpu.commit_smem()

        def write(first: int, size: int) -> None:
            """Sums of cells from the thread block's `first` one on."""
            self.gpu.wait_smem_to_gmem(0, wait_read_only=True)
            for sum_, moved, terms in zip(self.sums, self.moved, plan.sums.terms, strict=True):
                total = None
                for j, (_, by) in enumerate(terms):
                    part = moved[j, :, pl.ds(before + first - by, THREADS)]
                    part = self.gpu.layout_cast(part, self._layout)
                    total = part if total is None else total + part
                sum_.at[np.int32(0)][...] = total
            self.gpu.commit_smem()
            cells = self._place(cell, pl.ds(row, 1), pl.ds(column + np.int32(first), size))
            for sum_, result in zip(self.sums, self.results, strict=False):
                self.gpu.copy_smem_to_gmem(sum_.at[np.int32(0), :, pl.ds(0, size)], result.at[cells])

        if before:
            pl.when(column == np.int32(0))(lambda: write(0, before))
        write(before, plan.columns)
