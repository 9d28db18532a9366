"""The platform that a program is traced for."""

import jax


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: that of the mesh inside `shard_map`, which may be of a machine that is not there."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform
