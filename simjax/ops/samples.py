"""Values between samples."""

import jax.numpy as jnp
from jax import Array


def between(times: Array, values: Array, t: Array) -> Array:
    """Values (..., samples) at increasing `times`, interpolated linearly to times t, () or (n,), between them.

    Before the first and after the last one the values go on linearly.
    """
    last = jnp.searchsorted(times, t, side="right", method="compare_all").astype(jnp.int32)
    below = jnp.clip(last - 1, 0, times.shape[0] - 2)
    part = (t - times[below]) / (times[below + 1] - times[below])
    first, second = (jnp.take(values, k, axis=-1) for k in (below, below + 1))
    return first + part.reshape((1,) * (first.ndim - part.ndim) + part.shape) * (second - first)
