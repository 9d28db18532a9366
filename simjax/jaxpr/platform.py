"""The platform that a program is traced for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
from jax import Array, lax

_absent: ContextVar[str | None] = ContextVar("absent", default=None)


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: as `tracing_for` says, or that of the mesh inside `shard_map`, which may be of a machine
    that is not there.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return _absent.get() or (jax.default_backend() if device is None else device.platform)


def one_pass() -> bool:
    """Tell whether what could be a loop of many short turns is written as one operation on all of them at once.

    On a GPU it is: every turn would be some launches, and would load and store what the loop carries. A CPU keeps that
    in its cache, and a TPU is slow where the one operation looks up values.
    """
    return platform() == "gpu"


def launches_count() -> bool:
    """Tell whether each operation takes time of its own however little it does, as a launch on a GPU: 2 microseconds.

    In loops over short steps those on single numbers and lines are then a good part of the time.
    """
    return platform() == "gpu"


@contextmanager
def tracing_for(name: str) -> Iterator[None]:
    """Trace for a platform that is not there, whatever devices the mesh has."""
    token = _absent.set(name)
    try:
        yield
    finally:
        _absent.reset(token)


def where_needed(needed: Array, do: Callable[..., Any], instead: Callable[..., Any], *operands: Any) -> Any:
    """`do(*operands)`, or on a CPU `instead(*operands)` where it is not needed and both give the same.

    Accelerators always do it: the host, which decides what they do next, would wait for the answer.
    """
    return lax.cond(needed, do, instead, *operands) if platform() == "cpu" else do(*operands)
