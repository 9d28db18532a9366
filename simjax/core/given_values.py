"""Values that users give as numbers, arrays or functions of time and place, and sentences on what is none of these."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.arguments import shown, taken_over
from simjax.errors import ConfigurationError

Value = float | Array | Callable[..., Array]
"""A number, a scalar array, or a function `value(t, *coordinates)` of time and of the positions on the side."""


def require_value(name: str, value: Any) -> None:
    """Raises ConfigurationError for what is neither a number, nor an array, nor a function.

    Args:
        name: of the argument, as a user writes it, such as "Dirichlet.value".
        value: what was given.
    """
    if not (isinstance(value, (int, float)) or hasattr(value, "dtype") or callable(value)):
        raise ConfigurationError(
            f"{name}={shown(value)}: expected a number, a scalar array or a function value(t, *coordinates)."
        )


def require_arguments(name: str, function: Any, example: str, count: int) -> None:
    """Raises ConfigurationError for what is no function of so many arguments.

    Args:
        name: of the argument, as a user writes it, such as "simulate: observe".
        function: what was given.
        example: how it is called, such as "observe(t, state, params)".
        count: of its arguments.
    """
    if not callable(function) or not _takes(function, count):
        raise ConfigurationError(f"{name}={_described(function)}: expected a function {example}.")


def called(function: Callable, example: str, arguments: Sequence[Any], shape: Sequence[int]) -> Any:
    """The result of a function that a user gave: a number, or an array that broadcasts to `shape`.

    Raises ConfigurationError where it takes other arguments or gives something else; what goes wrong within it stays as
    it is.
    """
    try:
        found = function(*arguments)
    except TypeError:
        if _takes(function, len(arguments)):
            raise
        raise ConfigurationError(f"{_described(function)}: expected a function {example}.") from None
    if not (isinstance(found, (int, float)) or hasattr(found, "dtype")):
        raise ConfigurationError(f"{_described(function)} gives {shown(found)}: expected a number or an array.")
    _require_fit(f"{_described(function)} gives", jnp.shape(found), shape)
    return found


def evaluate(value: Value, t, positions: Callable[[], tuple[Array, ...]], like: Array) -> Array:
    """`value` on the side, in the dtype of the field and with its rank (or a scalar)."""
    if callable(value):
        found = called(value, "value(t, *coordinates)", (t, *positions()), like.shape)
    else:
        found = taken_over(value)
        _require_fit("a value on a side is", jnp.shape(found), like.shape)
    result = jnp.asarray(found, like.dtype)
    return result if result.ndim == 0 else result.reshape((1,) * (like.ndim - result.ndim) + result.shape)


def _require_fit(what: str, found: Sequence[int], shape: Sequence[int]) -> None:
    last = tuple(shape)[len(shape) - len(found) :]
    if len(found) > len(shape) or any(n not in (1, m) for n, m in zip(found, last, strict=True)):
        raise ConfigurationError(
            f"{what} an array of shape {tuple(found)}: expected a number, or an array that broadcasts to "
            f"{tuple(shape)}."
        )


def _takes(function: Callable, count: int) -> bool:
    """Tell whether a function takes so many arguments; True where nobody knows."""
    try:
        inspect.signature(function).bind(*(None,) * count)
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return True
    return True


def _described(function: Any) -> str:
    """A function by its name, and where it is written."""
    code = getattr(function, "__code__", None)
    if code is None:
        return shown(function)
    written = f"{function.__name__}{inspect.signature(function)}"
    return f"the function {written}, line {code.co_firstlineno} of {code.co_filename}"
