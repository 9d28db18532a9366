"""The platform that a program is traced for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax import Array, lax

# Jax keeps traced functions by it too: what was traced for one platform does not serve another.
_told = jax.make_user_context(None)


def platform() -> str:
    """`cpu`, `gpu` or `tpu`, the last two for devices of any maker.

    The one that `tracing_for` says; else that of the mesh inside `shard_map`, which may be of a machine that is not
    there; else that of the device on which jax computes.
    """
    if _told.value is not None:
        return _told.value
    settings: Any = jax.config
    device = jax.sharding.get_abstract_mesh().abstract_device or settings.jax_default_device
    name = jax.default_backend() if device is None else getattr(device, "platform", device)
    return kind(name)


def kind(name: str) -> str:
    """The platform of a backend, whose own name may be that of the maker's: `cuda` and `rocm` are GPUs."""
    return "gpu" if name in ("cuda", "rocm") else name


def one_pass() -> bool:
    """Tell whether a loop of many short iterations is written as one operation over all of them.

    On a GPU it is: every turn would be some launches, and would load and store what the loop carries. A CPU keeps that
    in its cache, and a TPU is slow where the one operation looks up values.
    """
    return platform() == "gpu"


def launches_count() -> bool:
    """Tell whether each operation takes time of its own however little it does, as a launch on a GPU: 2 microseconds.

    In loops over short steps those on single numbers and lines are then a good part of the time.
    """
    return platform() == "gpu"


def tracing_for(name: str) -> AbstractContextManager[None]:
    """Trace for the platform of a backend that is not there, or that is one of several."""
    return _told(kind(name))


def where_needed(
    needed: Array, do: Callable[..., Any], instead: Callable[..., Any], *operands: Any, always: bool = False
) -> Any:
    """`do(*operands)`, or on a CPU `instead(*operands)` where it is not needed and both give the same.

    Accelerators always do it: the host, which decides what they do next, would wait for the answer. always: so does a
    CPU, as for members of an ensemble on several devices, for which a condition computes both, and jax cannot batch
    one whose branches cast (`varying.varies_beyond`).
    """
    return do(*operands) if always or platform() != "cpu" else lax.cond(needed, do, instead, *operands)
