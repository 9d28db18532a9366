"""A stencil, as a model wrote it, traced to what it computes at one point."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from simjax.jaxpr.linear_map import linear_map_p
from simjax.stencil.kernels.expressions import Constant, Expression, Kept, Operation, Point, PointProgram, Read
from simjax.stencil.kernels.operands import NotLowered, Operand, Unpadded, operands_of


@dataclass(frozen=True)
class Points:
    """An array in which the points of the grid are not told apart: an expression for each of its other entries.

    `values` has the array's rank, and length one along axes of the grid.
    """

    values: np.ndarray
    shape: tuple[int, ...]

    def along_grid(self) -> list[bool]:
        return [have != n for have, n in zip(self.values.shape, self.shape, strict=True)]


@dataclass(frozen=True)
class Traced:
    """A stencil's points, the operands that they read, which of its arguments these are, and its results' shapes.

    Of an argument without spatial axes, every entry that is read is an operand of its own.
    """

    points: tuple[Point, ...]
    operands: tuple[Operand, ...]
    sources: tuple[tuple[int, tuple[int, ...] | None], ...]
    results: tuple[np.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]
    ndim: int

    def program(self, target: str) -> PointProgram:
        return PointProgram(self.operands, self.points, self.results, target)

    def arrays(self, arguments: Sequence[Array | Unpadded]) -> list[Array | Unpadded]:
        """The operands, from the arguments."""

        return operands_of(self.sources, arguments, self.ndim)


def trace(closed: ClosedJaxpr, interior: tuple[int, ...]) -> Traced:
    """The program of a stencil.

    Slices of what it reads and of what it computes become displacements of the point, so that all that is left are
    operations on single values. Entries along the axes before the spatial ones are expressions of their own.

    Args:
        closed: the stencil of arrays whose last axes are the spatial ones, or of arrays without any; its results have
            the shape `interior` along theirs.

    Raises:
        NotLowered: it holds an operation that mixes cells in another way.
    """
    tracer = Tracer(interior, _longest(closed, interior))
    arguments = [tracer.argument(variable.aval) for variable in closed.jaxpr.invars]
    outputs = tracer.run(closed.jaxpr, [tracer.known(value) for value in closed.consts], arguments)
    shapes = tuple(variable.aval.shape for variable in closed.jaxpr.outvars)
    for shape in shapes:
        if shape[max(len(shape) - len(interior), 0) :] != interior:
            raise NotLowered(f"a result of shape {shape}, where the interior has {interior}")
    points = [point for output in outputs for point in output.values.ravel()]
    dtypes = [v.aval.dtype for v, o in zip(closed.jaxpr.outvars, outputs, strict=True) for _ in range(o.values.size)]
    points, operands, sources = tracer.reading(points)
    return Traced(points, operands, sources, tuple(dtypes), shapes, len(interior))


def _longest(closed: ClosedJaxpr, interior: tuple[int, ...]) -> int:
    """By how many cells the longest argument is longer than the interior."""
    ndim = len(interior)
    shapes = [v.aval.shape[-ndim:] for v in closed.jaxpr.invars if len(v.aval.shape) >= ndim]
    return max((m - n for shape in shapes for m, n in zip(shape, interior, strict=True)), default=0)


class Tracer:
    """Evaluates a jaxpr on `Points`."""

    def __init__(self, interior: tuple[int, ...], longest: int):
        self.interior, self.longest, self.ndim = interior, longest, len(interior)
        self.here = (0,) * self.ndim
        self.inputs: list[tuple] = []
        self.keeping: dict[Operation, Kept] = {}

    # ------------------------------------------------------------------ what goes in and comes out

    def argument(self, aval) -> Points:
        """The points of an argument of the stencil: of a grid where its last axes fit one, else a number per entry."""
        k = len(self.inputs)
        self.inputs.append((aval.shape, aval.dtype))
        grid = self.grid_axes(aval.shape)
        shape = tuple(1 if along else n for n, along in zip(aval.shape, grid, strict=True))
        values = np.empty(shape, object)
        for place, entry in enumerate(np.ndindex(shape)):
            values[entry] = Point(Read(k, place), self.here)
        return Points(values, aval.shape)

    def known(self, value) -> Points:
        """A constant array, entry by entry."""
        array = np.asarray(value)
        if any(self.grid_axes(array.shape)):
            raise NotLowered(f"a constant array of shape {array.shape}; pass it as a field")
        values = np.empty(array.shape, object)
        for entry in np.ndindex(array.shape):
            values[entry] = Point(Constant(array[entry], array.dtype), self.here)
        return Points(values, array.shape)

    def grid_axes(self, shape: tuple[int, ...]) -> list[bool]:
        """Axes of an array that are axes of the grid; axes of length one are not, as they are repeated."""
        leading = len(shape) - self.ndim
        if leading < 0:
            return [False] * len(shape)
        last = shape[leading:]
        fits = [n == 1 or 0 <= n - m <= self.longest for n, m in zip(last, self.interior, strict=True)]
        return [False] * leading + [all(fits) and n != 1 for n in last]

    def reading(self, points: Sequence[Point]) -> tuple[tuple[Point, ...], tuple[Operand, ...], tuple]:
        """The points in terms of operands, of which there are only those that they read."""
        places: dict[tuple, int] = {}
        operands: list[Operand] = []
        renamed: dict = {}

        def of_operand(read: Read) -> Read:
            shape, dtype = self.inputs[read.operand]
            grid = self.grid_axes(shape)
            entry = None if any(grid) else tuple(int(i) for i in np.unravel_index(read.component, shape))
            place = places.setdefault((read.operand, entry), len(operands))
            if place == len(operands):
                last = (
                    list(zip(shape[-self.ndim :], grid[-self.ndim :], self.interior, strict=True))
                    if entry is None
                    else []
                )
                extents = tuple(n - m if along else None for n, along, m in last) if entry is None else None
                operands.append(Operand(math.prod(shape[: -self.ndim]) if entry is None else 1, extents, dtype))
            return Read(place, read.component) if entry is None else Read(place, everywhere=True)

        for expression in in_order(points):
            match expression:
                case Operation():
                    arguments = tuple(Point(renamed[a.expression], a.offset) for a in expression.arguments)
                    renamed[expression] = replace(expression, arguments=arguments)
                case Kept():
                    inner = renamed[expression.expression]
                    renamed[expression] = inner if inner.everywhere else Kept(inner)
                case Read():
                    renamed[expression] = of_operand(expression)
                case Constant():
                    renamed[expression] = expression
        # Now it is known what is the same everywhere.
        found = tuple(Point(renamed[p.expression], p.offset) for p in points)
        return found, tuple(operands), tuple(places)

    # ------------------------------------------------------------------ evaluation

    def run(self, jaxpr: Jaxpr, consts: Sequence[Points], arguments: Sequence[Points]) -> list[Points]:
        environment = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))

        def read(variable) -> Points:
            if isinstance(variable, Literal):  # a number of Python has a type only there
                kind: Any = variable.aval
                return self.known(np.asarray(variable.val, kind.dtype))
            return environment[variable]

        for equation in jaxpr.eqns:
            inputs = [read(variable) for variable in equation.invars]
            environment.update(zip(equation.outvars, self.result(equation, inputs), strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def result(self, equation, inputs: list[Points]) -> list[Points]:
        name, parameters = equation.primitive.name, equation.params
        inner = parameters.get("jaxpr", parameters.get("call_jaxpr")) if name in CALLS else None
        if inner is not None:
            return self.run(inner.jaxpr, [self.known(value) for value in inner.consts], inputs)
        shape = equation.outvars[0].aval.shape
        if name == "unstack":
            axis, (x,) = parameters["axis"], inputs
            if x.along_grid()[axis]:
                raise NotLowered("cells taken apart")
            return [Points(np.asarray(np.take(x.values, k, axis), object), shape) for k in range(x.shape[axis])]
        if name == "optimization_barrier":
            return inputs
        if name == "linear_map":
            of_values = jax.make_jaxpr(functools.partial(linear_map_p.impl, **parameters))(
                *(variable.aval for variable in equation.invars)
            )
            return self.run(of_values.jaxpr, [self.known(value) for value in of_values.consts], inputs)
        if name in RULES:
            return [Points(RULES[name](self, equation, inputs, shape), shape)]
        if name not in POINTWISE:
            raise NotLowered(f"the operation {name}")
        return [Points(self.pointwise(equation, inputs), shape)]

    def pointwise(self, equation, inputs: list[Points]) -> np.ndarray:
        primitive, params = equation.primitive, dict(equation.params)
        if "sharding" in params:
            params["sharding"] = None
        if primitive.name == "add_any":  # of cotangents; kernels know no other sum
            primitive = jax.lax.add_p

        def operation(*points: Point) -> Point:
            return Point(Operation(primitive, params, points, equation.outvars[0].aval.dtype), self.here)

        # Scalars of a select or a clamp go with arrays.
        found = np.frompyfunc(operation, len(inputs), 1)(*(x.values for x in inputs))
        return np.asarray(found, object)

    # ------------------------------------------------------------------ rules of single operations

    def sliced(self, equation, inputs: list[Points], shape) -> np.ndarray:
        (x,), parameters = inputs, equation.params
        strides = parameters["strides"] or (1,) * len(shape)
        starts, stops, grid = parameters["start_indices"], parameters["limit_indices"], x.along_grid()
        offset, entries = [0] * self.ndim, []
        for axis, along in enumerate(grid):
            if not along:
                entries.append(slice(starts[axis], stops[axis], strides[axis]))
                continue
            place = axis - len(grid) + self.ndim
            if strides[axis] != 1 or not 0 <= shape[axis] - self.interior[place] <= self.longest:
                raise NotLowered(f"a slice of {x.shape} to {shape}, which leaves out cells of the interior")
            entries.append(slice(None))
            offset[place] = starts[axis]
        values = x.values[tuple(entries)]
        return _displaced(values, offset) if any(offset) else values

    def reshaped(self, equation, inputs: list[Points], shape) -> np.ndarray:
        (x,) = inputs
        grid = x.along_grid()
        if any(grid):
            last = len(shape) - self.ndim
            if last < 0 or shape[last:] != x.shape[len(grid) - self.ndim :]:
                raise NotLowered(f"a reshape of {x.shape} to {shape}, which moves axes of the grid")
            return x.values.reshape(*shape[:last], *x.values.shape[len(grid) - self.ndim :])
        return x.values.reshape(shape)

    def broadcast(self, equation, inputs: list[Points], shape) -> np.ndarray:
        (x,), places = inputs, equation.params["broadcast_dimensions"]
        along = dict(zip(places, x.along_grid(), strict=True))
        have = dict(zip(places, x.values.shape, strict=True))
        moved = [
            p for p, q in zip(places, range(len(shape) - len(places), len(shape)), strict=True) if along[p] and p != q
        ]
        if moved:
            raise NotLowered(f"a broadcast of {x.shape} to {shape}, which moves axes of the grid")
        values = x.values.reshape([have.get(axis, 1) for axis in range(len(shape))])
        # Repeated along an axis of the grid, a value is the same at every point.
        grid = self.grid_axes(shape)
        repeated = [1 if g or along.get(axis) else n for axis, (g, n) in enumerate(zip(grid, shape, strict=True))]
        if any(have not in (1, want) for have, want in zip(values.shape, repeated, strict=True)):
            raise NotLowered(f"a broadcast of {x.shape} to {shape}, which is not of cells")
        return np.broadcast_to(values, repeated)

    def transposed(self, equation, inputs: list[Points], shape) -> np.ndarray:
        (x,), order = inputs, equation.params["permutation"]
        if any(along and order[axis] != axis for axis, along in enumerate(x.along_grid())):
            raise NotLowered("a transpose of axes of the grid")
        return x.values.transpose(order)

    def joined(self, equation, inputs: list[Points], shape) -> np.ndarray:
        axis = equation.params["dimension"]
        if any(x.along_grid()[axis] for x in inputs):
            raise NotLowered("a concatenation of cells")
        return np.concatenate([x.values for x in inputs], axis=axis)

    def stacked(self, equation, inputs: list[Points], shape) -> np.ndarray:
        axis = equation.params["axis"]
        if axis > len(shape) - 1 - self.ndim and any(any(x.along_grid()) for x in inputs):
            raise NotLowered("a stack of cells")
        return np.stack([x.values for x in inputs], axis=axis)

    def padded(self, equation, inputs: list[Points], shape) -> np.ndarray:
        x, value = inputs
        config = equation.params["padding_config"]
        if any(any(sides) for sides, along in zip(config, x.along_grid(), strict=True) if along):
            raise NotLowered("a padding with cells")
        if any(low < 0 or high < 0 or between for low, high, between in config):
            raise NotLowered("a padding that takes away or spreads entries")
        result = np.full(
            [n + low + high for n, (low, high, _) in zip(x.values.shape, config, strict=True)], value.values[()]
        )
        result[tuple(slice(low, low + n) for n, (low, _, _) in zip(x.values.shape, config, strict=True))] = x.values
        return result

    def written(self, equation, inputs: list[Points], shape) -> np.ndarray:
        """`dynamic_update_slice` at a known place before the spatial axes."""
        x, update, *starts = inputs
        places = [start.values.item().expression for start in starts]
        if not all(isinstance(place, Constant) for place in places):
            raise NotLowered("a dynamic_update_slice at a place that is computed")
        begins = [int(place.value) for place in places]
        grid = self.grid_axes(shape)
        if any(b or n != m for b, n, m, g in zip(begins, update.shape, shape, grid, strict=True) if g):
            raise NotLowered("a dynamic_update_slice of some of the cells")
        # The whole of a constant may stand where an array of the grid goes in.
        result = np.broadcast_to(x.values, [1 if g else n for n, g in zip(shape, grid, strict=True)]).copy()
        entries = [slice(None) if g else slice(b, b + n) for b, n, g in zip(begins, update.shape, grid, strict=True)]
        result[tuple(entries)] = update.values
        return result

    def summed(self, equation, inputs: list[Points], shape) -> np.ndarray:
        (x,), axes = inputs, equation.params["axes"]
        if any(x.along_grid()[axis] for axis in axes):
            raise NotLowered("a sum over cells")
        primitive = jax.lax.add_p

        def add(a: Point, b: Point) -> Point:
            return Point(Operation(primitive, {}, (a, b), equation.outvars[0].aval.dtype), self.here)

        values = x.values
        for axis in sorted(axes, reverse=True):
            parts = [np.take(values, k, axis) for k in range(values.shape[axis])]
            total = parts[0]
            for part in parts[1:]:
                total = np.asarray(np.frompyfunc(add, 2, 1)(total, part), object)
            values = total
        return np.asarray(values, object)

    def same(self, equation, inputs: list[Points], shape) -> np.ndarray:
        return inputs[0].values

    def widened(self, equation, inputs: list[Points], shape) -> np.ndarray:
        return _displaced(inputs[0].values, [-equation.params["width"]] * self.ndim)

    def kept(self, equation, inputs: list[Points], shape) -> np.ndarray:
        def one(point: Point) -> Point:
            expression = point.expression
            if not isinstance(expression, Operation) or expression.everywhere:
                return point
            return Point(self.keeping.setdefault(expression, Kept(expression)), point.offset)

        return np.asarray(np.frompyfunc(one, 1, 1)(inputs[0].values), object)


def _displaced(values: np.ndarray, offset: Sequence[int]) -> np.ndarray:
    return np.asarray(np.frompyfunc(lambda point: point.displaced(offset), 1, 1)(values), object)


def in_order(points: Sequence[Point]) -> list[Expression]:
    """Every expression that the points need, each after its arguments."""
    found: dict = {}
    waiting = [point.expression for point in reversed(points)]
    while waiting:
        expression = waiting[-1]
        arguments = () if isinstance(expression, Read | Constant) else expression.arguments
        missing = [a.expression for a in arguments if a.expression not in found]
        if expression in found or not missing:
            found.setdefault(waiting.pop())
        else:
            waiting.extend(missing)
    return list(found)


CALLS = {"jit", "pjit", "custom_jvp_call"}
POINTWISE = {
    "abs",
    "acos",
    "acosh",
    "add",
    "add_any",
    "and",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "clamp",
    "complex",
    "conj",
    "convert_element_type",
    "cos",
    "cosh",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "imag",
    "integer_pow",
    "is_finite",
    "le",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "not",
    "or",
    "pow",
    "real",
    "rem",
    "round",
    "rsqrt",
    "select_n",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "xor",
}
RULES: dict[str, Callable] = {
    "slice": Tracer.sliced,
    "squeeze": Tracer.reshaped,
    "reshape": Tracer.reshaped,
    "expand_dims": Tracer.reshaped,
    "broadcast_in_dim": Tracer.broadcast,
    "transpose": Tracer.transposed,
    "concatenate": Tracer.joined,
    "stack": Tracer.stacked,
    "pad": Tracer.padded,
    "dynamic_update_slice": Tracer.written,
    "reduce_sum": Tracer.summed,
    "widened": Tracer.widened,
    "kept": Tracer.kept,
    "copy": Tracer.same,
    "copy_p": Tracer.same,
    "pcast": Tracer.same,
    "pvary": Tracer.same,
    "stop_gradient": Tracer.same,
    "name": Tracer.same,
}
