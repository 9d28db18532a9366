"""Discrete Fourier transforms along one axis: `jnp.fft`, or on TPUs products with small matrices.

A TPU multiplies matrices fast, and its compiler expands long FFTs: at 16 384 points it does not finish. With n = a b,
x = b s + t and k = a q + r, the transform is one of a points over s, a factor exp(-2 pi i r t / n) and one of b points
over t (Cooley and Tukey 1965, Math. Comp. 19, 297). Real and imaginary parts are side by side, so each of both is one
real product, in full precision.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.jaxpr.platform import platform

# Up to this many points, one product with the whole matrix: two with shorter ones do not fill a matrix unit.
WHOLE = 128
# A factor with more points is no small matrix.
LARGEST_FACTOR = 512


def factors(n: int) -> tuple[int, int] | None:
    """(a, b) with n = a b, as equal as can be, or (n, 1) if n is small; None if one would be above LARGEST_FACTOR."""
    if n <= WHOLE:
        return n, 1
    b = next(k for k in range(int(np.sqrt(n)), 0, -1) if n % k == 0)
    return (n // b, b) if n // b <= LARGEST_FACTOR else None


def by_matrices(n: int) -> bool:
    """Tell whether n points are transformed by products with matrices: on TPUs, where n has factors for it."""
    return platform() == "tpu" and factors(n) is not None


def reason(n: int) -> str:
    """The kind of transform of n points and why, as a sentence."""
    if platform() != "tpu":
        return f"{n} points by an FFT: on {platform()} it is the fastest."
    pair = factors(n)
    if pair is None:
        return f"{n} points by XLA's FFT: they have no two factors up to {LARGEST_FACTOR}; choose a size that does."
    return f"{n} points by products with matrices of {' and '.join(str(k) for k in pair if k > 1) or '1'} points."


def fft(u: Array, axis: int = -1) -> Array:
    """Sums over x of u[x] exp(-2 pi i k x / n), k = 0 .. n - 1."""
    n = u.shape[axis]
    if not by_matrices(n):
        return jnp.fft.fft(u, axis=axis)
    lines, back = lines_along(u, axis)
    return back(_complex(_complex_factors(_parts(lines), *_pair(n), -1)))


def ifft(u: Array, axis: int = -1) -> Array:
    """Inverse of `fft`."""
    n = u.shape[axis]
    if not by_matrices(n):
        return jnp.fft.ifft(u, axis=axis)
    lines, back = lines_along(u, axis)
    return back(_complex(_complex_factors(_parts(lines), *_pair(n), 1) * (1 / n)))


def rfft(u: Array, axis: int = -1) -> Array:
    """Waves 0 .. n / 2 of `fft` of a real array."""
    n = u.shape[axis]
    if not by_matrices(n):
        return jnp.fft.rfft(u, axis=axis)
    lines, back = lines_along(u, axis)
    a, b = _pair(n)
    half = real_factors(lines, a, b)
    # Waves a q + r with r > a / 2 mirror waves n - k = a (b - 1 - q) + (a - r).
    mirrored = _conjugate(jnp.flip(half[:, :, :, 1 : (a + 1) // 2], (2, 3)))
    whole = jnp.concatenate([half, mirrored], axis=3)
    whole = whole.reshape(*whole.shape[:2], n, whole.shape[-1])
    return back(_complex(whole[:, :, : n // 2 + 1]))


def irfft(u: Array, n: int, axis: int = -1) -> Array:
    """Inverse of `rfft` of n real numbers; imaginary parts of waves 0 and n / 2 count for nothing."""
    if not by_matrices(n):
        return jnp.fft.irfft(u, n, axis=axis)
    lines, back = lines_along(u, axis)
    a, b = _pair(n)
    parts = _parts(lines)
    whole = jnp.concatenate([parts, _conjugate(jnp.flip(parts[:, :, 1 : (n + 1) // 2], 2))], axis=2)
    whole = whole.reshape(*whole.shape[:2], b, a, whole.shape[-1])
    return back(inverse_real_factors(whole[:, :, :, : a // 2 + 1], a, b))


def real_factors(u: Array, a: int, b: int) -> Array:
    """Transform of real `(lines, n, rest)`: `(lines, 2, b, a // 2 + 1, rest)`.

    Real and imaginary parts of the waves k = a q + r stand at [q, r], as the products leave them; those with r > a / 2
    are the conjugates of others. Where r is 0 or a / 2, waves and their conjugates are both there.
    """
    u = u.reshape(u.shape[0], a, b, u.shape[-1])
    half = a // 2 + 1
    c, s = _circle(jnp.arange(half)[:, None] * jnp.arange(a)[None, :], a, u.dtype)
    z = _product("rps,lstz->lrptz", jnp.stack([c, -s], axis=1), u)
    return _second_factor(_turned(z, a * b, -1, axis=2), b)


def inverse_real_factors(z: Array, a: int, b: int) -> Array:
    """Inverse of `real_factors`: `(lines, n, rest)`."""
    c, s = _circle(jnp.arange(b)[:, None] * jnp.arange(b)[None, :], b, z.dtype)
    matrix = jnp.stack([jnp.stack([c, -s], axis=2), jnp.stack([s, c], axis=2)])
    z = _product("mtqp,lpqrz->lrmtz", matrix, z) if b > 1 else jnp.moveaxis(z, 3, 1)
    z = _turned(z, a * b, 1, axis=2)
    r = jnp.arange(a // 2 + 1)
    c, s = _circle(jnp.arange(a)[:, None] * r[None, :], a, z.dtype)
    # Waves that stand for their conjugates too.
    weight = (jnp.where((r == 0) | (2 * r == a), 1, 2) / (a * b)).astype(z.dtype)
    u = _product("srp,lrptz->lstz", weight[None, :, None] * jnp.stack([c, -s], axis=2), z)
    return u.reshape(u.shape[0], a * b, u.shape[-1])


def _complex_factors(u: Array, a: int, b: int, sign: int) -> Array:
    """Sums with exp(sign 2 pi i k x / n) of parts `(lines, 2, n, rest)`, like these."""
    lines, _, n, rest = u.shape
    c, s = _circle(jnp.arange(a)[:, None] * jnp.arange(a)[None, :], a, u.dtype)
    matrix = jnp.stack([jnp.stack([c, -sign * s], axis=1), jnp.stack([sign * s, c], axis=1)], axis=1)
    z = _product("rmps,lpstz->lrmtz", matrix, u.reshape(lines, 2, a, b, rest))
    return _second_factor(_turned(z, n, sign, axis=2), b, sign).reshape(lines, 2, n, rest)


def _second_factor(z: Array, b: int, sign: int = -1) -> Array:
    """`(lines, r, part, t, rest)` transformed over t: `(lines, part, q, r, rest)`."""
    if b == 1:
        return jnp.moveaxis(z, 1, 3)
    c, s = _circle(jnp.arange(b)[:, None] * jnp.arange(b)[None, :], b, z.dtype)
    matrix = jnp.stack([jnp.stack([c, -sign * s], axis=1), jnp.stack([sign * s, c], axis=1)])
    return _product("mqpt,lrptz->lmqrz", matrix, z)


def _turned(z: Array, n: int, sign: int, axis: int) -> Array:
    """`(lines, r, part, t, rest)` times exp(sign 2 pi i r t / n)."""
    r, t = z.shape[1], z.shape[3]
    if t == 1:
        return z
    c, s = _circle(jnp.arange(r)[:, None] * jnp.arange(t)[None, :], n, z.dtype)
    c, s = c[None, :, :, None], sign * s[None, :, :, None]
    real, imaginary = (lax.index_in_dim(z, k, axis, keepdims=False) for k in range(2))
    return jnp.stack([c * real - s * imaginary, s * real + c * imaginary], axis=axis)


def _circle(turns: Array, n: int, dtype) -> tuple[Array, Array]:
    """Cosines and sines of 2 pi `turns` / n, from integers: no angle above a quarter of pi is rounded.

    Formed from iotas, which the compiler folds, as in `transforms`.
    """
    quarter = 4 * (turns % n)
    return _cosine(quarter, 4 * n, dtype), _cosine((quarter - n) % (4 * n), 4 * n, dtype)


def _cosine(turns: Array, n: int, dtype) -> Array:
    """cos(2 pi turns / n), 0 <= turns < n."""
    double = 2 * jnp.minimum(turns, n - turns)
    behind = 2 * double > n
    double = jnp.where(behind, n - double, double)
    near = jnp.cos(np.pi / n * double.astype(dtype))
    far = jnp.sin(np.pi / (2 * n) * (n - 2 * double).astype(dtype))
    value = jnp.where(4 * double > n, far, near)
    return jnp.where(behind, -value, value)


def _product(letters: str, matrix: Array, u: Array) -> Array:
    return jnp.einsum(letters, matrix, u, precision=lax.Precision.HIGHEST)


def _pair(n: int) -> tuple[int, int]:
    pair = factors(n)
    assert pair is not None
    return pair


def lines_along(u: Array, axis: int):
    """`u` as `(lines, n, rest)` with the axis in the middle, and the way back."""
    axis %= u.ndim
    before, after = u.shape[:axis], u.shape[axis + 1 :]

    def back(lines: Array) -> Array:
        return lines.reshape(*before, lines.shape[1], *after)

    return u.reshape(int(np.prod(before)), u.shape[axis], int(np.prod(after))), back


def _parts(u: Array) -> Array:
    """Real and imaginary parts as a second axis."""
    return jnp.stack([u.real, u.imag], axis=1)


def _conjugate(parts: Array) -> Array:
    return jnp.stack([parts[:, 0], -parts[:, 1]], axis=1)


def _complex(parts: Array) -> Array:
    return lax.complex(parts[:, 0], parts[:, 1])
