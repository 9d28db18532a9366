"""Work of the instructions of a compiled program: bytes of main memory, arithmetic operations.

All of it is counted from shapes, so it is the least that the instruction does: an operation per element whatever its
kind, each byte once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simjax.inspect.hlo import Computation, Instruction, Program, Shape


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# No work of its own: names, views, and what only calls others.
FREE = _names(
    "parameter constant tuple get-tuple-element bitcast after-all while conditional call partition-id replica-id "
    "opt-barrier async-start async-done async-update"
)
# On a GPU one may run beside others.
FUSIONS = ("fusion", "fusion-start")
# Element by element, one operation for each element of the result.
ELEMENTWISE = _names(
    "add subtract multiply divide maximum minimum negate abs power sqrt rsqrt cbrt exponential exponential-minus-one "
    "log log-plus-one tanh sine cosine tan atan2 logistic erf sign floor ceil round-nearest-even round-nearest-afz "
    "remainder compare select clamp and or xor not shift-left shift-right-logical shift-right-arithmetic"
)
# Passes of a matrix unit that multiplies bfloat16, for factors of float32.
PASSES = {"highest": 6, "high": 3}


@dataclass(frozen=True)
class Work:
    """bytes: of main memory, read and written; vector: operations on single elements; matrix: of matrix products, a
    multiplication and an addition counted as two, as often as passes are made; cycles: by the compiler's own estimate.
    """

    bytes: float = 0
    vector: float = 0
    matrix: float = 0
    cycles: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.vector + other.vector,
            self.matrix + other.matrix,
            self.cycles + other.cycles,
        )

    def __mul__(self, times: float) -> Work:
        return Work(self.bytes * times, self.vector * times, self.matrix * times, self.cycles * times)


def work_of(program: Program, within: Computation, one: Instruction) -> Work:
    """The work of one instruction, without that of loops and branches that it runs."""
    if one.op in FREE or is_collective(one.op):
        return Work()
    vector, matrix = _operations(program, within, one)
    return Work(_bytes(program, within, one), vector, matrix, one.cycles or 0)


def is_collective(op: str) -> bool:
    """Tell whether an operation exchanges something between devices, or ends an exchange."""
    return op.removesuffix("-start").removesuffix("-done") in COLLECTIVES


COLLECTIVES = _names(
    "collective-permute all-to-all ragged-all-to-all all-gather all-reduce reduce-scatter collective-broadcast"
)


# ------------------------------------------------------------------ bytes


def _bytes(program: Program, within: Computation, one: Instruction) -> int:
    if one.op.endswith("-done"):
        return 0
    if (
        one.op.endswith("-start") and one.op != "fusion-start"
    ):  # between main memory and the chip's own: (to, from, mark), of a slice all of `to`
        return one.shapes[0].padded_bytes
    if 'custom_call_target="AllocateBuffer"' in one.attributes:
        return 0
    inner = program[one.calls[0]] if one.op in FUSIONS else None
    if inner is None:
        return _plain_bytes(within, one)
    parameters = [other for other in inner.instructions if other.op == "parameter"]
    parameters.sort(key=lambda other: int(other.arguments))
    read = sum(_read(inner, parameter) for parameter in parameters)
    return read + sum(_written(inner, name) for name in _results(inner))


def _plain_bytes(within: Computation, one: Instruction) -> int:
    written = sum(map(_main, one.shapes))
    if one.op in ("slice", "dynamic-slice", "gather"):
        return 2 * written
    read = [*within.operand_shapes(one)]
    if one.op == "dynamic-update-slice":
        return 2 * _main(read[1])
    return written + sum(map(_main, read))


def _main(shape: Shape) -> int:
    """Bytes that a value takes in the main memory: none if it stays on the chip."""
    return shape.padded_bytes if shape.space == 0 else 0


def _read(inner: Computation, parameter: Instruction) -> int:
    """Bytes that a fusion reads of one operand: of a sliced one the slices only, of one updated in place none."""
    if not parameter.shapes or parameter.shapes[0].space:
        return 0
    whole = sum(map(_main, parameter.shapes))
    read = 0
    for user in inner.instructions:
        if parameter.name not in user.operands:
            continue
        if user.op in ("slice", "dynamic-slice"):
            read += sum(shape.padded_bytes for shape in user.shapes)
        elif not (user.op == "dynamic-update-slice" and user.operands[0] == parameter.name):
            return whole
    return min(read, whole)


def _results(inner: Computation) -> tuple[str, ...]:
    root = inner.root
    return root.operands if root.op == "tuple" else (root.name,)


def _written(inner: Computation, name: str) -> int:
    """Bytes that a fusion writes of one of its results."""
    result = inner.by_name[name]
    while result.op == "bitcast":
        result = inner.by_name[result.operands[0]]
    if result.op == "dynamic-update-slice" and result.shapes[0].space == 0:
        return sum(shape.padded_bytes for shape in inner.by_name[result.operands[1]].shapes)
    return sum(map(_main, result.shapes))


# ------------------------------------------------------------------ operations


def _operations(program: Program, within: Computation, one: Instruction) -> tuple[int, int]:
    """Operations on elements and those of matrix products, with all that a fusion holds."""
    if one.op in FUSIONS:
        inner = program[one.calls[0]]
        found = [_operations(program, inner, other) for other in inner.instructions]
        return sum(vector for vector, _ in found), sum(matrix for _, matrix in found)
    if one.op in ("dot", "convolution"):
        return 0, _product(within, one)
    if one.op in ("reduce", "reduce-window", "map"):
        return sum(shape.size for shape in within.operand_shapes(one)), 0
    if one.op in ELEMENTWISE:
        return one.shapes[0].size, 0
    return 0, 0


def _product(within: Computation, one: Instruction) -> int:
    """Operations of a product of matrices, or of the convolution as which a TPU writes it."""
    left, right = (within.by_name[name].shapes[0] for name in one.operands[:2])
    if one.op == "dot":
        axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.attributes)
        terms = 1
        for axis in re.findall(r"\d+", axes[1]) if axes else ():
            terms *= left.dims[int(axis)]
    else:
        labels = re.search(r"dim_labels=\w+_(\w+)->", one.attributes)
        terms = right.dims[labels[1].index("i")] if labels else 1
        window = re.search(r"window=\{size=([\dx]+)([^}]*)\}", one.attributes)
        # A batch of products is written as a window that meets one entry alone.
        if window and "lhs_dilate" not in window[2]:
            for size in window[1].split("x"):
                terms *= int(size)
    precision = re.search(r"operand_precision=\{(\w+)", one.attributes)
    passes = PASSES.get(precision[1], 1) if precision else 1
    return 2 * one.shapes[0].size * terms * (passes if left.dtype == "f32" else 1)
