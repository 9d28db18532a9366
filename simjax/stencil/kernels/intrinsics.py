"""Elementary functions that a target's compiler lacks, from those that it has."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def sqrt(x: Array, **_) -> Array:
    """x / sqrt(x), but 0 and infinity as they are."""
    return jnp.where((x == 0) | (x == np.inf), x, x * lax.rsqrt(x))


def power(x: Array, y: Array, **_) -> Array:
    """exp(y log x) for x >= 0; its relative error is |y log x| roundings."""
    return jnp.where(y == 0, jnp.ones_like(x), jnp.exp(y * jnp.log(x)))


def integer_power(x: Array, *, y: int, **_) -> Array:
    """x^y."""
    return lax.integer_pow(x, y) if y >= 0 else 1 / lax.integer_pow(x, -y)


def expm1(x: Array, **_) -> Array:
    """exp(x) - 1 = (u - 1) x / log u with u = exp(x) rounded: both differences are wrong alike (Kahan, in Higham 2002,
    Accuracy and Stability of Numerical Algorithms, section 1.14.1).
    """
    u = jnp.exp(x)
    return jnp.where((u == 1) | (u == np.inf), x * u, jnp.where(u == 0, u - 1, (u - 1) * (x / jnp.log(u))))


def log1p(x: Array, **_) -> Array:
    """log(1 + x) = x log u / (u - 1) with u = 1 + x rounded (Higham 2002, problem 1.5)."""
    u = 1 + x
    return jnp.where((u == 1) | (u == np.inf), x, jnp.log(u) * (x / (u - 1)))


def cbrt(x: Array, **_) -> Array:
    """exp(log|x| / 3) with the sign of x."""
    return jnp.sign(x) * jnp.exp(jnp.log(jnp.abs(x)) / 3)


def floor(x: Array, **_) -> Array:
    """Numbers that an integer of four bytes cannot hold have no fraction."""
    whole = x.astype(jnp.int32).astype(x.dtype)
    return jnp.where(jnp.abs(x) < 2.0**24, jnp.where(whole > x, whole - 1, whole), x)


def ceil(x: Array, **_) -> Array:
    """-floor(-x)."""
    return -floor(-x)


def is_finite(x: Array, **_) -> Array:
    """Tell whether |x| is below infinity."""
    return jnp.abs(x) < np.inf


def negation(x: Array, **_) -> Array:
    """Not x, or its bits inverted."""
    return x ^ True if x.dtype == bool else ~x


def sign(x: Array, **_) -> Array:
    """One, minus one, or x itself where it is zero or not a number."""
    one = jnp.ones_like(x)
    return jnp.where(x > 0, one, jnp.where(x < 0, -one, x))


def logistic(x: Array, **_) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + jnp.exp(-x))


SUBSTITUTES: dict[str, dict[str, Callable[..., Array]]] = {
    "interpret": {},
    "tpu": {"expm1": expm1, "cbrt": cbrt},
    "gpu": {
        "sqrt": sqrt,
        "pow": power,
        "integer_pow": integer_power,
        "expm1": expm1,
        "log1p": log1p,
        "cbrt": cbrt,
        "floor": floor,
        "ceil": ceil,
        "is_finite": is_finite,
        "not": negation,
        "sign": sign,
        "logistic": logistic,
    },
}
"""Per target and name of a primitive: what to call instead, with the primitive's operands and parameters.

Nothing stands for erf, atan2 and rem on a GPU.
"""
