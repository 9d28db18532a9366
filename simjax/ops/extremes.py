"""The least and the greatest of some values, whose derivatives are always numbers.

The derivative of `jnp.min` is a mean over the values that equal its result. A compiler may form these values twice, in
two kernels and rounded in two ways. Then none equals the result, and the mean is 0 / 0. Here one of two values is
selected at a time, and the derivative is that of the value selected.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array


def least(values: Sequence[Array]) -> Array:
    """The least of some arrays of one shape, place by place."""
    return functools.reduce(lambda a, b: jnp.where(a < b, a, b), values)


def greatest(values: Sequence[Array]) -> Array:
    """The greatest of some arrays of one shape, place by place."""
    return functools.reduce(lambda a, b: jnp.where(a > b, a, b), values)
