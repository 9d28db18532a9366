"""Memories for what reverse mode stores. The one home for what backends and jax versions say of them."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from simjax.errors import ConfigurationError
from simjax.jaxpr.platform import kind, platform
from simjax.jaxpr.varying import match_varying

Space = jax.memory.Space


def room(states: int, like: Array) -> Array:
    """Zeros for `states` arrays like `like`, in host memory."""

    def zeros(axis: int, like: Array) -> Array:
        # One zero goes over before it is spread, so that the array is never on the device.
        zero = jax.device_put(match_varying(jnp.zeros((), like.dtype), like), Space.Host)
        return lax.broadcast_in_dim(zero, (*like.shape[:axis], states, *like.shape[axis:]), ())

    return _over_members(zeros)(like)


def store(slots: Array, u: Array, slot: Array) -> Array:
    """`slots`, in host memory, with `u`, on the device, in place of number `slot`."""

    def put(axis: int, slots: Array, u: Array, slot: Array) -> Array:
        return lax.dynamic_update_index_in_dim(slots, jax.device_put(u, Space.Host), slot, axis)

    return _over_members(put)(slots, u, slot)


def load(slots: Array, slot: Array) -> Array:
    """Number `slot` of `slots`, in host memory, on the device."""

    def take(axis: int, slots: Array, slot: Array) -> Array:
        return jax.device_put(lax.dynamic_index_in_dim(slots, slot, axis, keepdims=False), Space.Device)

    return _over_members(take)(slots, slot)


def _over_members(function: Callable, axis: int = 0) -> Callable:
    """`function(axis, *arrays)` at this axis; mapped over members, at the next one.

    By itself jax would gather and scatter, which host memory cannot. Slot numbers are the same for all members.
    """
    run = custom_vmap(functools.partial(function, axis))

    @run.def_vmap
    def of_members(size, mapped, *arrays):
        each = zip(arrays, mapped, strict=True)
        spread = [u if here or not u.ndim else lax.broadcast(u, (size,)) for u, here in each]
        return _over_members(function, axis + 1)(*spread), True

    return run


def in_host(x: Array) -> bool:
    """Tell whether `x` is in host memory."""
    return x.aval.memory_space == Space.Host


def require_host_memory() -> None:
    """Refuse a backend whose host memory is the device's own.

    Raises:
        ConfigurationError: on such a backend.
    """
    target = platform()
    if target == "cpu":
        raise ConfigurationError(
            "checkpoint: host=True needs a device with memory apart from the host's, got cpu, where both are one; "
            "leave out host=True."
        )
    kinds = [memory.kind for memory in jax.devices()[0].addressable_memories()]
    if target == jax.default_backend() and "pinned_host" not in kinds:
        raise ConfigurationError(
            f"checkpoint: host=True needs memory of the kind pinned_host, {target} has {', '.join(kinds)}; leave out "
            "host=True."
        )


def device_memory() -> int | None:
    """Bytes of a device that jax may fill, those in use too, so that the answer stays; None where nobody can tell.

    Devices of several processes may differ, and all have to choose alike, so these do not ask. A CPU does not tell, and
    neither does a device that is not there.
    """
    target = platform()
    if target == "cpu" or target != kind(jax.default_backend()) or jax.process_count() > 1:
        return None
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def members_of(tree) -> int:
    """The number of members over which a function of these arrays is mapped by `vmap`, as far as that is known here.

    It is not where the function is in a `jit` that is mapped as a whole.
    """
    found = [1]

    # Numbers without derivatives, which no program keeps.
    def probe(*flags: Array) -> tuple[Array, ...]:
        same = custom_vmap(lambda *flags: flags)

        @same.def_vmap
        def of_members(size, mapped, *flags):
            found.append(size)
            return probe(*flags), tuple(mapped)

        return same(*flags)

    probe(*(jnp.ravel(leaf)[0] != 0 for leaf in jax.tree.leaves(tree) if jnp.size(leaf)))
    return math.prod(found)
