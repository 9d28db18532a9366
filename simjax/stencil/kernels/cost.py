"""Cost of a kernel for each cell, counted from its program, and what makes a program another one."""

import hashlib
import math
import re
from collections.abc import Sequence

from simjax.stencil.kernels.expressions import Constant, Operation, PointProgram, Read, evaluated
from simjax.stencil.kernels.operands import Passes
from simjax.stencil.kernels.tiles import Sizes, by, bytes_of_blocks, memory_of, number_of_tiles

FREE = {"convert_element_type", "copy", "copy_p"}


def operations_per_cell(passes: Passes, tile: Sizes) -> float:
    """Operations on values at one cell, computed again for every cell that needs them.

    Passes before the last one compute cells around the tile too. An elementary function is one operation, an integer
    power the products that it takes; nothing is counted that is the same at all cells.
    """
    around = (math.prod(t + 2 * m for t, m in zip(tile, margin, strict=True)) for margin in passes.margins)
    counts = (_count(program) for program in _programs(passes))
    return sum(count * cells for count, cells in zip(counts, around, strict=True)) / math.prod(tile)


def _programs(passes: Passes) -> list[PointProgram]:
    return [program for program in passes.programs if isinstance(program, PointProgram)]


def _count(program: PointProgram) -> int:
    count = 0

    def apply(expression: Constant | Operation, _: Sequence) -> None:
        nonlocal count
        if isinstance(expression, Operation) and not expression.everywhere:
            count += _operations(expression)

    evaluated(program.points, lambda *_: None, apply)
    return count


def _operations(operation: Operation) -> int:
    name = operation.primitive.name
    if name == "integer_pow":  # squared again and again, and a product for every other bit
        power = abs(operation.params["y"])
        return power.bit_length() + power.bit_count() - 2 + (operation.params["y"] < 0)
    return 0 if name in FREE else 1


def bytes_per_cell(program: Passes, tile: Sizes, interior: Sizes, target: str) -> float:
    """Bytes read and written between the device's memory and its fast memory, overlaps of blocks included."""
    copied = bytes_of_blocks(program, tile, interior, target)[0]
    return number_of_tiles(tile, interior) * copied / math.prod(interior)


def explained(program: Passes, tile: Sizes, interior: Sizes, target: str, taken: int) -> str:
    """The cost model's account of a tile that takes `taken` bytes of fast memory."""
    capacity = memory_of(target).capacity
    unit, name = (2**20, "MiB") if capacity >= 2**20 else (2**10, "KiB")
    return (
        f"tiles of {by(tile)} cells: {bytes_per_cell(program, tile, interior, target):.3g} bytes moved and "
        f"{operations_per_cell(program, tile):.4g} operations per cell, {taken / unit:.3g} of {capacity / unit:.3g} "
        f"{name} of fast memory"
    )


def fingerprint(passes: Passes) -> str:
    """Fingerprint of the operations and what they read, the same in every process.

    Numbers in the stencil are left out, such as the grid's spacing: they change no time.
    """

    def read(expression: Read, offset: Sizes) -> str:
        return _digest("read", expression.operand, expression.component, offset)

    def apply(expression: Constant | Operation, arguments: Sequence[str]) -> str:
        if isinstance(expression, Constant):
            return _digest("number", expression.dtype)
        params = sorted((name, _named(value)) for name, value in expression.params.items())
        return _digest(expression.primitive.name, params, *arguments)

    digests = []
    for program in _programs(passes):
        values = evaluated(program.points, read, apply)
        digests += [program.results, *(values[point.expression, point.offset] for point in program.points)]
    return _digest(passes.operands, passes.kept, passes.margins, *digests)


def _named(value) -> str:
    """A parameter without its address, if it has one."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _digest(*parts) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
