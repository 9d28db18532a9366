"""What a kernel computes at one point of the grid, and the arrays that it reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Primitive


class NotLowered(Exception):
    """A stencil, or an array it reads, that cannot become a kernel; the text names what stands in the way."""


@dataclass(frozen=True)
class Operand:
    """An array that a program reads.

    `extents` says for each spatial axis by how many cells it is longer than the interior (`2 width` of a block with
    its ghost cells, one of values at all faces), or None where the array has length one and is repeated. An array of
    a grid has the shape (components, *spatial axes). A scalar has no extents at all.
    """

    dtype: np.dtype
    components: int = 1
    extents: tuple[int | None, ...] | None = None


@dataclass(frozen=True, eq=False)
class Read:
    """A component of operand `operand` at the index of the point, or a scalar operand, the same `everywhere`."""

    operand: int
    component: int = 0
    everywhere: bool = False


@dataclass(frozen=True, eq=False)
class Constant:
    value: Any
    dtype: np.dtype
    everywhere = True


@dataclass(frozen=True, eq=False)
class Operation:
    """`primitive` of other expressions, each at an offset from the point."""

    primitive: Primitive
    params: dict[str, Any]
    arguments: tuple["Point", ...]
    everywhere: bool = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "everywhere", all(point.expression.everywhere for point in self.arguments))


Expression = Read | Constant | Operation


@dataclass(frozen=True)
class Point:
    """An expression at the point displaced by `offset` cells."""

    expression: Expression
    offset: tuple[int, ...]

    def displaced(self, by: Sequence[int]) -> "Point":
        if self.expression.everywhere:
            return self
        return Point(self.expression, tuple(a + b for a, b in zip(self.offset, by, strict=True)))


@dataclass(frozen=True)
class Program:
    """Expressions of the results, one per component, and the operands that they read."""

    operands: tuple[Operand, ...]
    points: tuple[Point, ...]
    results: tuple[np.dtype, ...]
    reads: frozenset[tuple[int, int, tuple[int, ...]]] = field(init=False)
    operations: int = field(init=False)

    def __post_init__(self):
        values = _evaluated(self.points, lambda *place: place, lambda *_: None)
        places = (place for place in values.values() if place is not None)
        object.__setattr__(self, "reads", frozenset(p for p in places if self.operands[p[0]].extents is not None))
        count = sum(isinstance(expression, Operation) for expression, _ in values)
        object.__setattr__(self, "operations", count)

    def evaluate(self, read: Callable) -> list[Array]:
        """The results on a tile.

        Args:
            read: `read(k, component, offset)` is operand k at the points of the tile displaced by `offset`, counted
                from its first cell: an array of the tile's shape, or of length one along axes where it is repeated;
                `read(k)` a scalar.
        """

        def value(operand: int, component: int, offset: tuple[int, ...]):
            return read(operand) if self.operands[operand].extents is None else read(operand, component, offset)

        values = _evaluated(self.points, value, _applied)
        return [_array(values[point.expression, point.offset]) for point in self.points]


def _evaluated(points: Sequence[Point], read: Callable, apply: Callable) -> dict:
    """Every expression that the points need, once at each offset: what it reads, and operations after these."""
    values: dict[tuple[Expression, tuple[int, ...]], Any] = {}
    waiting = list(reversed(points))
    while waiting:
        point = waiting[-1]
        expression, key = point.expression, (point.expression, point.offset)
        if key in values:
            waiting.pop()
        elif isinstance(expression, Read):
            values[key] = read(expression.operand, expression.component, point.offset)
        elif isinstance(expression, Constant):
            values[key] = apply(expression, ())
        else:
            arguments = [argument.displaced(point.offset) for argument in expression.arguments]
            missing = [a for a in arguments if (a.expression, a.offset) not in values]
            if missing:
                waiting.extend(reversed(missing))
            else:
                values[key] = apply(expression, [values[a.expression, a.offset] for a in arguments])
    return values


def _applied(expression: Constant | Operation, arguments: Sequence):
    """An operation on arrays that broadcast against each other; a constant stays a number until its shape is known."""
    if isinstance(expression, Constant):
        return expression
    shape = jnp.broadcast_shapes(*(() if isinstance(x, Constant) else jnp.shape(x) for x in arguments))
    return expression.primitive.bind(*(_array(x, shape) for x in arguments), **expression.params)


def _array(x, shape: tuple[int, ...] = ()) -> Array:
    if isinstance(x, Constant):
        return lax.full(shape, x.value, x.dtype)
    return x if not shape or jnp.shape(x) == shape else jnp.broadcast_to(x, shape)
