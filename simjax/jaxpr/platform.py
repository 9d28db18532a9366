"""The platform that a program is traced for."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_absent: ContextVar[str | None] = ContextVar("absent", default=None)


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: that of the mesh inside `shard_map`, which may be of a machine that is not there."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return _absent.get() or jax.default_backend() if device is None else device.platform


@contextmanager
def tracing_for(name: str) -> Iterator[None]:
    """Trace for a platform that is not there, where no mesh of its devices says so."""
    token = _absent.set(name)
    try:
        yield
    finally:
        _absent.reset(token)
