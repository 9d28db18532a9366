"""Compiled programs that several runs of one structure share."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

# Programs kept for others of the same structure.
MOST_SHARED = 64
_SHARED: OrderedDict[Hashable, Any] = OrderedDict()
Shared = TypeVar("Shared")


def share(key: Hashable, make: Callable[[], Shared]) -> Shared:
    """Return what `make` made for this key the first time; the least recently used of too many is forgotten.

    A key that cannot be compared, as one that holds arrays, shares nothing.
    """
    try:
        hash(key)
    except TypeError:
        return make()
    if key not in _SHARED:
        _SHARED[key] = make()
        while len(_SHARED) > MOST_SHARED:
            _SHARED.popitem(last=False)
    _SHARED.move_to_end(key)
    return _SHARED[key]


def forget_programs() -> None:
    """Drop every shared program, and with it the memory of what was compiled for it."""
    _SHARED.clear()


@jax.jit
def copies(*trees):
    """Copies of trees of arrays."""
    return jax.tree.map(jnp.copy, trees)
