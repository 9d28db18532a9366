"""The computation of a kernel for NVIDIA GPUs, written operation by operation for the registers of its threads.

Pallas infers a layout for each operation, which takes it longer than in proportion to their number: two minutes for the
nine thousand of a gas in space. Here all arrays have the one layout of a piece.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from simjax.jaxpr.replay import replayed
from simjax.stencil.kernels.operands import NotLowered, Program
from simjax.stencil.kernels.tracing import CALLS

Fragment = Any
"""A `FragmentedArray` of `jax.experimental.mosaic.gpu`: an array, or a number, that lies in registers."""


def computed(
    gpu: Any, program: Program, read: Callable[..., Array], types: list[np.dtype], shape: tuple[int, ...]
) -> list[Array]:
    """The results of a program on a piece of the interior.

    Args:
        gpu: `jax.experimental.pallas.mosaic_gpu`.
        read: as `Program.evaluate` takes it, of arrays of the piece's `shape` or scalars.
        types: of the operands' values.

    Raises:
        NotLowered: it holds an operation that has no rule here.
    """
    places: dict[tuple, int] = {}

    def place(k: int, *where) -> Array:
        places.setdefault((k, *where), len(places))
        return jnp.zeros(shape if where else (), types[k])

    jax.eval_shape(lambda: program.evaluate(place))
    layout = gpu.Layout.WG_STRIDED(shape, vec_size=1)
    found = [read(*where) for where in places]
    found = [gpu.layout_cast(x, layout) if x.shape else x for x in found]
    closed = jax.make_jaxpr(lambda *found: program.evaluate(lambda *where: found[places[where]]))(*found)
    _require_rules(closed)

    def write(_, *fragments: Fragment) -> list[Fragment]:
        results = replayed(closed, _result)(*fragments)
        return [
            _spread(_fragment(x, variable.aval), shape, layout.to_mgpu())
            for x, variable in zip(results, closed.jaxpr.outvars, strict=True)
        ]

    kinds = [gpu.ShapeDtypeStruct(shape, dtype, layout=layout) for dtype in program.results]
    return gpu.inline_mgpu(arg_types=(layout,) * len(found), return_type=kinds)(write)(*found)


def _require_rules(closed: ClosedJaxpr) -> None:
    for equation in closed.jaxpr.eqns:
        name = equation.primitive.name
        if name in CALLS:
            _require_rules(_inner(equation))
        elif name not in RULES:
            raise NotLowered(f"No kernel for a GPU computes {name}.")


def _inner(equation: JaxprEqn) -> ClosedJaxpr:
    return equation.params.get("jaxpr") or equation.params["call_jaxpr"]


def _result(equation: JaxprEqn, inputs: list) -> list[Fragment]:
    """The result of an operation; numbers that stand in the program become fragments."""
    inputs = [_fragment(x, variable.aval) for x, variable in zip(inputs, equation.invars, strict=True)]
    name = equation.primitive.name
    if name in CALLS:
        return replayed(_inner(equation), _result)(*inputs)
    return [RULES[name](equation, *inputs)]


def _registers() -> Any:
    """The module of fragments. Imported here only: it needs packages that jax comes without."""
    from jax.experimental.mosaic import gpu

    return gpu


def _fragment(x: Any, aval: Any) -> Fragment:
    """A number of the program as a fragment; fragments as they are."""
    registers = _registers()
    if isinstance(x, registers.FragmentedArray):
        return x
    dtype = np.dtype(aval.dtype)
    number = np.asarray(x).item() if jnp.issubdtype(dtype, np.floating) else int(x)
    number = registers.c(number, registers.utils.dtype_to_ir_type(dtype))
    return registers.FragmentedArray.splat(number, (), is_signed=_is_signed(dtype))


def _is_signed(dtype: np.dtype) -> bool | None:
    """Sign of a type as fragments have it: None for floating-point numbers."""
    return None if jnp.issubdtype(dtype, np.floating) else dtype.kind == "i"


def _spread(x: Fragment, shape: tuple[int, ...], layout: Any = None) -> Fragment:
    """An array of a number."""
    if x.shape == shape and layout in (None, x.layout):
        return x
    return type(x).splat(x.registers.flat[0], shape, layout, is_signed=x.is_signed)


# ---------------------------------------------------------------------- rules: of an equation and its inputs


def _plain(function: Callable) -> Callable:
    return lambda equation, *inputs: function(*inputs)


def _method(name: str) -> Callable:
    return lambda equation, *inputs: getattr(inputs[0], name)(*inputs[1:])


def _out(equation: JaxprEqn) -> Any:
    """Shape and type of the result of an operation."""
    return equation.outvars[0].aval


def _divided(equation: JaxprEqn, x: Fragment, y: Fragment) -> Fragment:
    """The quotient, of integers rounded towards zero."""
    return x / y if jnp.issubdtype(_out(equation).dtype, np.floating) else x.trunc_div(y)


def _power(equation: JaxprEqn, x: Fragment) -> Fragment:
    """The power x^y for y > 0, by squares."""
    result, square, y = None, x, equation.params["y"]
    while y:
        if y & 1:
            result = square if result is None else result * square
        y >>= 1
        square = square * square if y else square
    return result


def _rounded(equation: JaxprEqn, x: Fragment) -> Fragment:
    to_even = equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return x.round_even() if to_even else x.round()


def _converted(equation: JaxprEqn, x: Fragment) -> Fragment:
    dtype = np.dtype(equation.params["new_dtype"])
    given: Any = equation.invars[0].aval
    if given.dtype == bool:
        one, zero = (_fragment(n, _out(equation)) for n in (1, 0))
        return x.select(*(_spread(n, x.shape) for n in (one, zero)))
    return x.astype(_registers().utils.dtype_to_ir_type(dtype), is_signed=_is_signed(dtype))


def _shaped(equation: JaxprEqn, x: Fragment) -> Fragment:
    return _spread(x, _out(equation).shape)


RULES: dict[str, Callable[..., Fragment]] = {
    **{name: _plain(getattr(operator, name)) for name in ("sub", "mul", "neg", "xor")},
    **{name: _plain(getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{name: _method(name) for name in ("max", "min", "abs", "exp", "exp2", "log", "rsqrt", "sin", "cos", "tanh")},
    "add": _plain(operator.add),
    "add_any": _plain(operator.add),
    "and": _plain(operator.and_),
    "or": _plain(operator.or_),
    "square": _plain(lambda x: x * x),
    "round": _rounded,
    "clamp": _plain(lambda low, x, high: x.max(low).min(high)),
    "select_n": _plain(lambda which, otherwise, chosen: which.select(chosen, otherwise)),
    "div": _divided,
    "integer_pow": _power,
    "convert_element_type": _converted,
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "expand_dims"), _shaped),
    **dict.fromkeys(("copy", "copy_p", "pvary", "pcast", "stop_gradient", "optimization_barrier"), _plain(lambda x: x)),
}
