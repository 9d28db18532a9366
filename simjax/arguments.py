"""Arguments of functions and models: checks, where values are known, and arrays of other libraries."""

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from simjax.errors import ConfigurationError

# A field of numbers is not fetched from the devices to be looked at.
MOST_CHECKED = 64
LONGEST_SHOWN = 60
HOST = 1  # the CPU among the devices of DLPack


def require_at_least(owner: str, numbers: Mapping[str, Any], least: float = 0.0, *, strictly: bool = False) -> None:
    """Raises ConfigurationError for a number that is below `least`, or not finite; None, and traced ones, pass.

    Args:
        owner: of the numbers, as a user writes it, such as "Incompressible.Params".
        numbers: by name.
        strictly: whether `least` itself is refused too.
    """
    for name, value in numbers.items():
        if isinstance(value, str):
            raise ConfigurationError(f"{owner}.{name}={shown(value)}: expected a number.")
        known = _known(value)
        if known is None:
            continue
        good = np.isfinite(known) & ((known > least) if strictly else (known >= least))
        if not good.all():
            relation = "above" if strictly else "at least"
            raise ConfigurationError(
                f"{owner}.{name}={float(known[~good][0]):g}: expected a finite number {relation} {least:g}."
            )


def require_one_of(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raises ConfigurationError for a choice that there is not.

    Args:
        name: of the choice, as a user writes it, such as "Transport.scheme".
        value: what was chosen.
        allowed: what there is.
    """
    allowed = tuple(allowed)
    # An array is equal to nothing as a whole.
    if not any(isinstance(value, type(one)) and value == one for one in allowed):
        raise ConfigurationError(f"{name}={shown(value)}: expected one of {', '.join(map(repr, allowed))}.")


def require_kind(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises ConfigurationError for an argument of another kind.

    Args:
        name: of the argument, as a user writes it, such as "Domain.grid".
        value: what was given.
        kind: its class, or one above it, or several.
        expected: what it is and what to write, such as "a Grid; write Grid((16, 16))".
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name}={shown(value)}: expected {expected}.")


def require_count(name: str, value: Any) -> None:
    """Raises ConfigurationError for an argument that is not a whole number of at least one.

    Args:
        name: of the argument, as a user writes it, such as "simulate: frames".
        value: what was given.
    """
    try:
        whole = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = 0
    if whole < 1:
        raise ConfigurationError(f"{name}={shown(value)}: expected a whole number of at least 1, such as 10.")


def require_function(name: str, value: Any, example: str) -> None:
    """Raises ConfigurationError for an argument that cannot be called.

    Args:
        name: of the argument, as a user writes it, such as "simulate: observe".
        value: what was given.
        example: how it is called, such as "observe(t, state, params)".
    """
    if not callable(value):
        raise ConfigurationError(f"{name}={shown(value)}: expected a function {example}.")


def require_path(name: str, value: Any) -> None:
    """Raises ConfigurationError for an argument that is no path of a folder.

    Args:
        name: of the argument, as a user writes it, such as "open_run: folder".
        value: what was given.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigurationError(f"{name}={shown(value)}: expected a folder's path, such as result.folder.")


def shown(value: Any) -> str:
    """An argument as a sentence shows it: the shape of an array, a text that is short, or else the class."""
    if hasattr(value, "dtype"):
        return f"an array of shape {np.shape(value)}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN and "\n" not in text else f"<{type(value).__name__}>"


def taken_over(value: Any) -> Any:
    """Convert an array of another library by DLPack: to NumPy, or from an accelerator to jax. Other values stay as is.

    Both share the memory of the array: nothing is copied, and nothing is written to it.

    Raises ConfigurationError where the other library does not give it away.
    """
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) or not hasattr(value, "__dlpack__"):
        return value
    try:
        on_host = int(value.__dlpack_device__()[0]) == HOST
        return np.from_dlpack(value) if on_host else jnp.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ConfigurationError(
            f"an array of {name} cannot be taken over by DLPack ({' '.join(str(error).split())}); write it as an array "
            "of NumPy."
        ) from None


def as_number(name: str, value: Any, dtype=None) -> jax.Array:
    """An argument as a number of jax.

    Args:
        name: of the argument, as a user writes it, such as "values['viscosity']".
        value: what was given.
        dtype: the kind of number; None: its own.

    Raises ConfigurationError for what is no number.
    """
    try:
        number = jnp.asarray(taken_over(value), dtype)
    except (TypeError, ValueError):
        number = None
    if number is None or number.ndim:
        raise ConfigurationError(f"{name}={shown(value)}: expected a number.")
    return number


def as_of_jax(value: Any) -> Any:
    """Convert an array of NumPy or of another library to one of jax. Return any other value as is."""
    value = taken_over(value)
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _known(value: Any) -> np.ndarray | None:
    if isinstance(value, Tracer) or not isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        return None
    if np.size(value) > MOST_CHECKED or (isinstance(value, jax.Array) and not value.is_fully_addressable):
        return None
    known = np.atleast_1d(np.asarray(value))
    return known if np.issubdtype(known.dtype, np.number) else None
