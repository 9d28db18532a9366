"""The tendency that a model's class computes, compared with the state; its mistakes told in sentences."""

import traceback
from typing import Any

import jax
import jax.numpy as jnp

from simjax.errors import ConfigurationError, SimjaxError
from simjax.jaxpr.jaxpr_parts import part


def tendency(model, method: str, state, *arguments) -> Any:
    """The result of `model.method(*arguments)`, which is a tree like `state` with arrays of its shapes and types.

    Raises:
        ConfigurationError: it is none, or a user's own method failed; the sentence names the class and the field.
    """
    with part("tendency"):
        found = call_own(model, method, *arguments)
    if not _is_like(found, state):
        raise ConfigurationError(f"{type(model).__name__}.{method}: {_difference(found, state)}.")
    return found


def call_own(model, method: str, *arguments) -> Any:
    """The result of `model.method(*arguments)`; an error in a class that is not of simjax becomes a sentence.

    Raises:
        ConfigurationError: with the class, the line of the user's file and what was wrong there.
    """
    function = getattr(model, method)
    if type(model).__module__.startswith("simjax."):
        return function(*arguments)
    try:
        return function(*arguments)
    except SimjaxError:
        raise
    except (KeyError, AttributeError, IndexError, NameError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{type(model).__name__}.{method}{_told(error)}") from error


def _told(error: Exception) -> str:
    """The line of the user's file where an error arose, and its message to the first empty line."""
    # The last line outside of the packages through which the error went.
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    lines = [frame for frame in lines if not _of_simjax(frame.filename)]
    where = f", line {lines[-1].lineno} of {lines[-1].filename}" if lines else ""
    if isinstance(error, KeyError):
        return (
            f"{where}: there is no key {error}; the state has the fields and params the keys that the class declares."
        )
    message = " ".join(str(error).split("\n\n")[0].split()).rstrip(".")
    return f"{where}: {type(error).__name__}: {message}."


def _of_simjax(filename: str) -> bool:
    return filename.startswith(__file__.removesuffix("core/tendency.py"))


def _is_like(found, state) -> bool:
    if jax.tree.structure(found) != jax.tree.structure(state):
        return False
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True)
    return all(_kind(a) == _kind(b) for a, b in pairs if hasattr(b, "dtype"))  # a state may also hold plain numbers


def _kind(u) -> tuple[tuple[int, ...] | None, Any]:
    """Shape and dtype of an array; of anything else none."""
    return (jnp.shape(u), jnp.result_type(u)) if hasattr(u, "dtype") else (None, type(u))


def _difference(found, state) -> str:
    """Name the first field by which `found` is no tree like `state`: missing, too much or of another kind."""
    got, expected = _by_field(found), _by_field(state)
    if isinstance(state, dict) and isinstance(found, dict):
        missing, more = [*{*state} - {*found}], [*{*found} - {*state}]
        if missing or more:
            what = f"{missing[0]!r} is missing" if missing else f"{more[0]!r} is no field of the state"
            keys = (", ".join(map(repr, tree)) or "none" for tree in (state, found))
            return "{}; expected tendencies of {}, got {}".format(what, *keys)
    for field, leaf in expected.items():
        if field in got and _kind(got[field]) != _kind(leaf):
            return f"the tendency of {field}: expected {_described(leaf)}, got {_described(got[field])}"
    if type(found) is not type(state):
        return f"expected {_tree(state)} as the state is, got {_tree(found)}"
    missing = [field for field in expected if field not in got]
    more = [field for field in got if field not in expected]
    return f"expected tendencies of {', '.join(expected)}, got {', '.join(got)}" + (
        f"; {missing[0]} is missing" if missing else f"; {more[0]} is too much" if more else ""
    )


def _by_field(tree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _described(u) -> str:
    if not hasattr(u, "dtype"):
        return f"{u!r}, which is no array" if jnp.ndim(u) == 0 else f"a {type(u).__name__}"
    return f"an array of shape {jnp.shape(u)} and type {u.dtype}"


def _tree(tree) -> str:
    return _described(tree) if hasattr(tree, "dtype") else f"a {type(tree).__name__}"
