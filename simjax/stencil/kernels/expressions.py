"""Computation of a stencil at one point of the grid."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Primitive

from simjax.stencil.kernels.intrinsics import SUBSTITUTES
from simjax.stencil.kernels.operands import Operand


@dataclass(frozen=True, eq=False)
class Read:
    """A component of operand `operand` at the index of the point, or a scalar operand, the same `everywhere`."""

    operand: int
    component: int = 0
    everywhere: bool = False


@dataclass(frozen=True, eq=False)
class Constant:
    """A number in the stencil."""

    value: Any
    dtype: np.dtype
    everywhere = True


@dataclass(frozen=True, eq=False)
class Operation:
    """`primitive` of other expressions, each at an offset from the point, of type `dtype`."""

    primitive: Primitive
    params: dict[str, Any]
    arguments: tuple["Point", ...]
    dtype: np.dtype
    everywhere: bool = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "everywhere", all(point.expression.everywhere for point in self.arguments))


@dataclass(frozen=True, eq=False)
class Kept:
    """`expression`, computed once at every cell that reads it and then kept in fast memory."""

    expression: "Operation"
    everywhere = False

    @property
    def arguments(self) -> tuple["Point", ...]:
        return (Point(self.expression, ()),)


Expression = Read | Constant | Operation | Kept


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
class PointProgram:
    """Expressions of the results, one per component, and the operands that they read: a `Program`."""

    operands: tuple[Operand, ...]
    points: tuple[Point, ...]
    results: tuple[np.dtype, ...]
    target: str

    def evaluate(self, read: Callable) -> list[Array]:
        """The results on a piece of the interior; see `Program`."""

        def value(expression: Read | Kept, offset: tuple[int, ...]):
            assert isinstance(expression, Read)
            operand, component = expression.operand, expression.component
            extents = self.operands[operand].extents
            if extents is None:
                return read(operand)
            # Where it is repeated, it is the same at every displacement.
            return read(operand, component, tuple(0 if e is None else o for o, e in zip(offset, extents, strict=True)))

        values = evaluated(self.points, value, functools.partial(_applied, SUBSTITUTES[self.target]))
        return [_array(values[point.expression, point.offset]) for point in self.points]


def evaluated(points: Sequence[Point], read: Callable, apply: Callable) -> dict:
    """Every expression that the points need, once at each offset, after those that it needs.

    Args:
        read: `read(expression, offset)` of what is read or kept.
        apply: `apply(expression, values)` of an operation, or of a constant and nothing.
    """
    values: dict[tuple[Expression, tuple[int, ...]], Any] = {}
    waiting = list(reversed(points))
    while waiting:
        point = waiting[-1]
        expression, key = point.expression, (point.expression, point.offset)
        if key in values:
            waiting.pop()
        elif isinstance(expression, Read | Kept):
            values[key] = read(expression, point.offset)
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


def _applied(substitutes: dict[str, Callable], expression: Constant | Operation, arguments: Sequence):
    """An operation on arrays that broadcast against each other; a constant stays a number until its shape is known."""
    if isinstance(expression, Constant):
        return expression
    shape = jnp.broadcast_shapes(*(() if isinstance(x, Constant) else jnp.shape(x) for x in arguments))
    apply = substitutes.get(expression.primitive.name, expression.primitive.bind)
    return apply(*(_array(x, shape) for x in arguments), **expression.params)


def _array(x, shape: tuple[int, ...] = ()) -> Array:
    if isinstance(x, Constant):
        return lax.full(shape, x.value, x.dtype)
    return x if not shape or jnp.shape(x) == shape else jnp.broadcast_to(x, shape)
