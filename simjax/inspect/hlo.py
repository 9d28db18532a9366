"""The text of a compiled program (HLO): its computations, its instructions and the shapes of their values.

Only what counting bytes, operations and collectives needs. The text of an optimised program is scheduled: instructions
of a computation run in the order in which they stand.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128, "token": 0}
HOST_SPACE = 5
# What a name in the text is made of, after %.
_NAME = r"[\w.\-]+"
_SHAPE = re.compile(r"\b(pred|token|bf16|[sufc]\d+\w*)\[([\d,<= ]*)\](?:\{([^}]*)\})?")
_HEAD = re.compile(rf"^(ENTRY )?%?({_NAME}) \(.*\) -> .*{{$")
_LINE = re.compile(rf"^\s+(ROOT )?%?({_NAME}) = ")


@dataclass(frozen=True)
class Shape:
    """An array of the program. minor_to_major: its layout; tile: of its last axes; space: 0 is the main memory."""

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    space: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        return self.size * _bits(self.dtype) // 8

    @property
    def padded_bytes(self) -> int:
        """Bytes in memory, where the axes along which a tile lies are padded to it."""
        order = self.minor_to_major or tuple(reversed(range(len(self.dims))))
        padded = {axis: self.dims[axis] for axis in order}
        for axis, length in zip(order, reversed(self.tile), strict=False):
            padded[axis] = -(-padded[axis] // length) * length
        return math.prod(padded.values()) * _bits(self.dtype) // 8


def _bits(dtype: str) -> int:
    if dtype in BITS:
        return BITS[dtype]
    found = re.match(r"[a-z]+(\d+)", dtype)
    return int(found[1]) if found else 0


def shapes_in(text: str) -> tuple[Shape, ...]:
    """All arrays of a type as it is written, such as `(f32[8,128]{1,0:T(8,128)}, s32[])`."""
    return tuple(_shape(*found.groups(default="")) for found in _SHAPE.finditer(text))


def _shape(dtype: str, dims: str, layout: str) -> Shape:
    order, _, rest = layout.partition(":")
    tile, space = re.match(r"T\(([\d,]+)\)", rest), re.search(r"S\((\d+)\)", rest)
    return Shape(
        dtype, _numbers(dims), _numbers(order), _numbers(tile[1]) if tile else (), int(space[1]) if space else 0
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


@dataclass(frozen=True)
class Instruction:
    """A line of a computation. operands: names of those it reads; attributes: all that is written after them."""

    name: str
    op: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    arguments: str
    attributes: str
    is_root: bool

    @property
    def calls(self) -> tuple[str, ...]:
        """Names of the computations that it calls: of a fusion, of a loop its condition and body, of a branch all."""
        found = re.findall(rf"(?:calls|to_apply|condition|body)=%?({_NAME})", self._own)
        branches = re.search(r"branch_computations=\{([^}]*)\}", self._own)
        sides = re.findall(rf"(?:true|false)_computation=%?({_NAME})", self._own)
        return (*found, *sides, *(re.findall(_NAME, branches[1]) if branches else ()))

    def called(self, attribute: str) -> str | None:
        """Name of the computation of one attribute, such as `body`."""
        found = re.search(rf"\b{attribute}=%?({_NAME})", self._own)
        return found[1] if found else None

    @functools.cached_property
    def _own(self) -> str:
        """The attributes of an instruction without its metadata (source lines and names)."""
        return self.attributes.split(", metadata={")[0]

    @property
    def cycles(self) -> int | None:
        """The compiler's own estimate of the cycles it takes, on a TPU."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.attributes)
        return int(found[1]) if found else None

    @property
    def is_synchronous(self) -> bool:
        """Tell whether a pair of start and end is one only by name, as the text for a GPU says."""
        return '"is_sync":true' in self.attributes

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Sender and receiver of each message of a permutation."""
        found = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", self.attributes)
        return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", found[1])) if found else ()

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Devices that take part in a collective together; none written: all."""
        found = re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", self.attributes)
        if found:
            return tuple(_numbers(group) for group in re.findall(r"\{([\d,]+)\}", found[1]))
        short = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", self.attributes)
        return _tiled_groups(*short.groups(default="")) if short else ()


def _tiled_groups(groups: str, dims: str, order: str) -> tuple[tuple[int, ...], ...]:
    """Groups as `[rows,columns]<=[dims]T(order)`: the numbers of `dims`, transposed, in rows."""
    shape, (_, columns) = _numbers(dims), _numbers(groups)
    axes = _numbers(order) or tuple(range(len(shape)))
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    devices = [0]
    for axis in axes:
        devices = [device + step * strides[axis] for device in devices for step in range(shape[axis])]
    return tuple(tuple(devices[start : start + columns]) for start in range(0, len(devices), columns))


@dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they run, of a function without arguments of its own but `parameter`s."""

    name: str
    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the result."""
        return next(one for one in self.instructions if one.is_root)

    def operand_shapes(self, instruction: Instruction) -> Iterator[Shape]:
        """Arrays that an instruction reads."""
        for name in instruction.operands:
            yield from self.by_name[name].shapes


@dataclass(frozen=True)
class Program:
    """All computations of a program by name, and the name of the one that is run."""

    computations: dict[str, Computation]
    entry: str

    def __getitem__(self, name: str) -> Computation:
        return self.computations[name]

    def trip_count(self, loop: Instruction) -> int | None:
        """Number of runs of the body of a `while`: told in the text, or counted from 0 to a constant; None: unknown."""
        told = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        if told:
            return int(told[1])
        condition = self[loop.called("condition") or ""]
        root = condition.root
        bounds = [condition.by_name[name] for name in root.operands if condition.by_name[name].op == "constant"]
        if root.op == "fusion":  # the comparison is inside, and its bound an operand or inside as well
            inner = self[root.calls[0]]
            bounds += [one for one in inner.instructions if one.op == "constant"]
            root = inner.root
        if root.op != "compare" or "direction=LT" not in root.attributes or len(bounds) != 1:
            return None
        return int(bounds[0].arguments)


def parse(text: str) -> Program:
    """The program that a text describes (`Compiled.as_text()`)."""
    computations: dict[str, Computation] = {}
    entry, name, lines = "", "", []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            name, lines = head[2], []
            entry = name if head[1] else entry
        elif line.startswith("}"):
            computations[name] = Computation(name, tuple(lines))
        elif found := _LINE.match(line):
            lines.append(_instruction(line[found.end() :], found[2], bool(found[1])))
    return Program(computations, entry)


def _instruction(text: str, name: str, is_root: bool) -> Instruction:
    """An instruction from what stands behind `=`: type, operation, operands, attributes."""
    split = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    rest = text[split:].lstrip()
    begin = rest.index("(")
    end = _closing(rest, begin)
    arguments = rest[begin + 1 : end]
    operands = tuple(re.findall(rf"%({_NAME})", arguments))
    return Instruction(name, rest[:begin], shapes_in(text[:split]), operands, arguments, rest[end + 1 :], is_root)


def _closing(text: str, begin: int) -> int:
    """The place of the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"no closing parenthesis in {text[begin : begin + 60]!r}")
