"""Sums and products whose rounding error is kept: a number as an unevaluated sum of two of its own type.

A compiler may simplify `(a + b) - a`. `lax.reduce_precision` to the type's own precision changes no value, and no pass
that reorders arithmetic looks through it.
"""

import jax.numpy as jnp
from jax import Array, lax

Pair = tuple[Array, Array]
"""A number rounded to its type, and what that rounding left out."""


def _rounded(x: Array, bits: int | None = None) -> Array:
    """`x` with `bits` bits after the leading one, by default all that its type has."""
    kind = jnp.finfo(x.dtype)
    return lax.reduce_precision(x, kind.nexp, kind.nmant if bits is None else bits)


def pair_of(x, dtype) -> Pair:
    """`x` in `dtype`: a Python number to twice its digits, an array to the digits it has."""
    rounded = jnp.asarray(x, dtype)
    if not isinstance(x, int | float):
        return rounded, jnp.zeros_like(rounded)
    with_error = float(jnp.finfo(dtype).dtype.type(x))
    return rounded, jnp.asarray(float(x) - with_error, dtype)


def two_sum(a: Array, b: Array) -> Pair:
    """a + b and its rounding error, exactly. Knuth (1998), The Art of Computer Programming 2, section 4.2.2."""
    total = _rounded(a + b)
    of_b = _rounded(total - a)
    of_a = _rounded(total - of_b)
    return total, (a - of_a) + (b - of_b)


def added(pair: Pair, x: Array) -> Pair:
    """`pair` + x: its error is a rounding of the second number alone."""
    total, error = two_sum(pair[0], x)
    return two_sum(total, error + pair[1])


def product(count: Array, pair: Pair) -> Pair:
    """An integer `count` times `pair`, to half as many digits again as the type has, if the type holds `count`."""
    x, rest = pair
    # Factors of half the digits each, whose products are exact.
    half = (jnp.finfo(x.dtype).nmant + 1) // 2
    high = _rounded(x, half - 1)
    low = x - high
    last = count & (2**half - 1)
    whole, first, last = (n.astype(x.dtype) for n in (count, count - last, last))
    total, error = two_sum(first * high, last * high)
    return two_sum(total, error + (whole * low + whole * rest))


def total_of(*pairs: Pair) -> Array:
    """The sum of `pairs`, largest first, to about one rounding."""
    total, rest = pairs[0]
    for number, more in pairs[1:]:
        total, error = two_sum(total, number)
        rest = rest + (error + more)
    return total + rest
