"""The least and the greatest of some values, whose derivatives are always numbers."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def least(values: Float[Array, "n *shape"]) -> Float[Array, "*shape"]:
    """The least along the first axis, by selecting one of two at a time; its derivative is that of the value selected.

    The derivative of `jnp.min` is a mean over the values that equal its result. A compiler may form these values twice,
    in two kernels and rounded in two ways. Then none equals the result, and the mean is 0 / 0.
    """
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        first, second, rest = values[:half], values[half : 2 * half], values[2 * half :]
        values = jnp.where(first < second, first, second)
        if rest.shape[0]:
            values = jnp.concatenate([values, rest])
    return values[0]


def greatest(values: Float[Array, "n *shape"]) -> Float[Array, "*shape"]:
    """The greatest along the first axis, selected as `least` does."""
    return -least(-values)
