"""Leaves of a module by path, such as "module.layers.0.weight": which of them are trained."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import keystr

from simjax.arguments import shown
from simjax.errors import ConfigurationError


def array_paths(module: Any) -> list[str]:
    """Paths of the floating-point arrays in a module.

    Examples:
        >>> sj.array_paths(sj.Closure(sj.LocalNetwork(1, 2, [4], key=jax.random.key(0))))
        ['module.weights.0', 'module.weights.1', 'module.biases.0', 'module.biases.1']
    """
    return [_path(keys) for keys, leaf in jax.tree_util.tree_leaves_with_path(module) if eqx.is_inexact_array(leaf)]


def matching(module: Any, patterns: Sequence[str], argument: str) -> set[str]:
    """Paths of arrays that one of the patterns fits, with * and ? as in names of files.

    Raises ConfigurationError for a pattern that fits none.
    """
    if not isinstance(patterns, (str, tuple, list)) or not all(isinstance(one, str) for one in patterns):
        raise ConfigurationError(f"{argument}={shown(patterns)}: expected a list of paths, such as ['weights.*'].")
    known = array_paths(module)
    found = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        fitting = [path for path in known if fnmatchcase(path, pattern)]
        if not fitting:
            raise ConfigurationError(f"{argument}: {pattern!r} fits no array; expected some of {', '.join(known)}.")
        found.update(fitting)
    return found


def replaced(module: Any, arrays: dict[str, Any]) -> Any:
    """The module with its arrays at these paths replaced."""
    return jax.tree_util.tree_map_with_path(lambda keys, leaf: arrays.get(_path(keys), leaf), module)


def without(module: Any, frozen: set[str]) -> Any:
    """A tree like the module that is True at each array which is trained."""

    def is_trained(keys, leaf) -> bool:
        return eqx.is_inexact_array(leaf) and _path(keys) not in frozen

    return jax.tree_util.tree_map_with_path(is_trained, module)


def arrays_at(module: Any, paths: set[str]) -> dict[str, Any]:
    """The arrays at these paths."""
    leaves = jax.tree_util.tree_leaves_with_path(module)
    return {path: leaf for keys, leaf in leaves if (path := _path(keys)) in paths}


def _path(keys) -> str:
    return keystr(keys, simple=True, separator=".")
