"""Host memory for what reverse mode stores. The one home for what backends and jax versions say of memories."""

import jax
from jax import Array

from simjax.core.errors import ConfigurationError

Space = jax.memory.Space


def to_host(x: Array) -> Array:
    return jax.device_put(x, Space.Host)


def to_device(x: Array) -> Array:
    """`x` on the device; as it is if it is there."""
    return jax.device_put(x, Space.Device) if _in_host(x) else x


def beside(x: Array, other: Array) -> Array:
    """`x` in the memory that `other` is in."""
    return to_host(x) if _in_host(other) else x


def _in_host(x: Array) -> bool:
    return jax.typeof(x).memory_space == Space.Host


def require_host_memory() -> None:
    """Refuse a backend whose host memory is the device's own.

    Raises:
        ConfigurationError: on such a backend.
    """
    # Inside `shard_map` the mesh knows what it is compiled for; that may be a machine which is not there.
    device = jax.sharding.get_abstract_mesh().abstract_device
    platform = jax.default_backend() if device is None else device.platform
    if platform == "cpu":
        raise ConfigurationError(
            "checkpoint: host=True needs a device with memory apart from the host's, cpu came, where both are one; "
            "leave out host=True."
        )
    kinds = [memory.kind for memory in jax.devices()[0].addressable_memories()]
    if platform == jax.default_backend() and "pinned_host" not in kinds:
        raise ConfigurationError(
            f"checkpoint: host=True needs memory of the kind pinned_host, {platform} has {', '.join(kinds)}; leave out "
            "host=True."
        )
