"""Real trigonometric transforms that diagonalise the second difference, one per kind of boundary.

Each maps n real numbers to n real numbers, so blocks keep their shape and can be redistributed between devices
whatever the boundaries; only `factored` transforms have a few more. Where there are FFTs, `solvers.spectral` takes
complex ones along periodic axes instead. Strang (1999), SIAM Review 41, 135, lists the eigenvectors.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from simjax.solvers import dft

# Points up to which a cosine transform is a product with its matrix.
LONGEST_PRODUCT = 1024


def fourier(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Real discrete Fourier transform, packed: real parts of wavenumbers 0..n/2, then imaginary parts of 1..(n-1)/2."""
    n = u.shape[axis]
    spectrum = dft.rfft(u, axis=axis)
    imaginary = lax.slice_in_dim(spectrum.imag, 1, (n + 1) // 2, axis=axis % u.ndim)
    return jnp.concatenate([spectrum.real, imaginary], axis=axis)


def inverse_fourier(packed: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Inverse of `fourier`."""
    n, axis = packed.shape[axis], axis % packed.ndim
    half = n // 2 + 1
    imaginary = lax.slice_in_dim(packed, half, n, axis=axis)
    ends = [(1, half - 1 - imaginary.shape[axis], 0) if k == axis else (0, 0, 0) for k in range(packed.ndim)]
    imaginary = lax.pad(imaginary, jnp.zeros((), packed.dtype), ends)
    spectrum = lax.complex(lax.slice_in_dim(packed, 0, half, axis=axis), imaginary)
    return dft.irfft(spectrum, n, axis=axis)


def _index(u: Array, axis: int) -> Array:
    """Consecutive integers 0, 1, 2, ... along an axis. along `axis`, shaped to broadcast against `u`."""
    shape = tuple(n if k == axis % u.ndim else 1 for k, n in enumerate(u.shape))
    return jnp.arange(u.shape[axis], dtype=u.dtype).reshape(shape)


def cosine(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Cosine transform: sums over j of u[j] cos(pi k (j + 1/2) / n) (half a DCT-II); even k first, then odd k.

    Folded at the middle, it is one dense product of half the size for even k and one for odd k. On two CPU
    cores these beat the transform by way of an FFT (Makhoul 1980) in a 2-D solve: 1.8x at 128 points, 1.4x at 256,
    equal at 512; and matrix units like them. An odd number of points is not folded. Above `LONGEST_PRODUCT` points the
    way is by a real Fourier transform, and the order is that of its packed parts.
    """
    n, axis = u.shape[axis], axis % u.ndim
    if n > LONGEST_PRODUCT:
        return _cosine_by_fourier(u, axis)
    if n % 2:
        return product(_cosines(n, jnp.arange(n), n, u.dtype), u, axis)
    half = n // 2
    front = lax.slice_in_dim(u, 0, half, axis=axis)
    back = lax.rev(lax.slice_in_dim(u, half, n, axis=axis), (axis,))
    even, odd = 2 * jnp.arange(half), 2 * jnp.arange(half) + 1
    return jnp.concatenate(
        [
            product(_cosines(n, even, half, u.dtype), front + back, axis),
            product(_cosines(n, odd, half, u.dtype), front - back, axis),
        ],
        axis=axis,
    )


def inverse_cosine(packed: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Inverse of `cosine`: u[j] = 2/n (U[0] / 2 + sum over k > 0 of U[k] cos(pi k (j + 1/2) / n))."""
    n, axis = packed.shape[axis], axis % packed.ndim
    if n > LONGEST_PRODUCT:
        return _inverse_cosine_by_fourier(packed, axis)
    index = _index(packed, axis)
    weighted = packed * jnp.where(index == 0, 1 / n, 2 / n).astype(packed.dtype)
    if n % 2:
        return product(_cosines(n, jnp.arange(n), n, packed.dtype).T, weighted, axis)
    half = n // 2
    even, odd = 2 * jnp.arange(half), 2 * jnp.arange(half) + 1
    symmetric = product(_cosines(n, even, half, packed.dtype).T, lax.slice_in_dim(weighted, 0, half, axis=axis), axis)
    antisymmetric = product(
        _cosines(n, odd, half, packed.dtype).T, lax.slice_in_dim(weighted, half, n, axis=axis), axis
    )
    back = lax.rev(symmetric - antisymmetric, (axis,))
    return jnp.concatenate([symmetric + antisymmetric, back], axis=axis)


def _cosine_by_fourier(u: Array, axis: int) -> Array:
    """A Fourier transform of the even points and the odd ones backwards, turned by a quarter wave (Makhoul 1980)."""
    n = u.shape[axis]
    even = lax.slice_in_dim(u, 0, n, stride=2, axis=axis)
    odd = lax.slice_in_dim(u, 1, n, stride=2, axis=axis)
    real, imaginary = _parts(fourier(jnp.concatenate([even, lax.rev(odd, (axis,))], axis=axis), axis), axis)
    c, s = _quarter_turns(real, n, axis)
    rest = lax.slice_in_dim(s * real - c * imaginary, 1, (n + 1) // 2, axis=axis)
    return jnp.concatenate([c * real + s * imaginary, rest], axis=axis)


def _inverse_cosine_by_fourier(packed: Array, axis: int) -> Array:
    n = packed.shape[axis]
    real, mirrored = _parts(packed, axis)
    c, s = _quarter_turns(real, n, axis)
    ends = lax.slice_in_dim(c * real + s * mirrored, 0, n // 2 + 1, axis=axis)
    if n % 2 == 0:  # the middle wave mirrors itself: it comes with both of its parts
        last = lax.slice_in_dim(real, n // 2, n // 2 + 1, axis=axis) * np.sqrt(2)
        ends = jnp.concatenate([lax.slice_in_dim(ends, 0, n // 2, axis=axis), last], axis=axis)
    rest = lax.slice_in_dim(s * real - c * mirrored, 1, (n + 1) // 2, axis=axis)
    u = inverse_fourier(jnp.concatenate([ends, rest], axis=axis), axis)
    even = lax.slice_in_dim(u, 0, (n + 1) // 2, axis=axis)
    odd = lax.rev(lax.slice_in_dim(u, (n + 1) // 2, n, axis=axis), (axis,))
    odd = lax.pad(odd, jnp.zeros((), u.dtype), [(0, n % 2 if k == axis else 0, 0) for k in range(u.ndim)])
    pairs = jnp.stack([even, odd], axis=axis + 1).reshape(*u.shape[:axis], -1, *u.shape[axis + 1 :])
    return lax.slice_in_dim(pairs, 0, n, axis=axis)


def _parts(packed: Array, axis: int) -> tuple[Array, Array]:
    """The first n / 2 + 1 entries, and the others in the places of 1 .. (n - 1) / 2, with zeros around them."""
    n = packed.shape[axis]
    half = n // 2 + 1
    rest = lax.slice_in_dim(packed, half, n, axis=axis)
    ends = [(1, half - 1 - rest.shape[axis], 0) if k == axis else (0, 0, 0) for k in range(packed.ndim)]
    return lax.slice_in_dim(packed, 0, half, axis=axis), lax.pad(rest, jnp.zeros((), packed.dtype), ends)


def _quarter_turns(u: Array, n: int, axis: int) -> tuple[Array, Array]:
    """cos(pi k / 2n) and sin(pi k / 2n), shaped to broadcast along `axis`."""
    angle = np.pi / (2 * n) * _index(u, axis)
    return jnp.cos(angle), jnp.sin(angle)


def _cosines(n: int, waves: Array, points: int, dtype) -> Array:
    """cos(pi k (j + 1/2) / n), `(waves, points)`.

    The angle's integer part is reduced exactly before any rounding. Formed from iotas, which the compiler folds:
    a constant captured by `custom_linear_solve`, or by a conditional under `vmap`, is cast to varying twice inside
    `shard_map`, which jax 0.10 to 0.12 refuse.
    """
    odd = 2 * jnp.arange(points)[None, :] + 1
    turns = (waves[:, None] * odd) % (4 * n)
    return jnp.cos(np.pi / (2 * n) * turns.astype(dtype))


def product(matrix: Array, u: Array, axis: int) -> Array:
    """`matrix` applied along `axis` of `u`, counted from the first."""
    letters = "abcdefgh"[: u.ndim]
    result = letters.replace(letters[axis], "k")
    return jnp.einsum(f"k{letters[axis]},{letters}->{result}", matrix, u, precision=lax.Precision.HIGHEST)


def _alternate(u: Array, axis: int) -> Array:
    return u * (1 - 2 * (_index(u, axis) % 2))


def _cosine_half_waves(index: Array, n: int) -> Array:
    """Wave of each packed entry of `cosine`: even ones first, or those up to n / 2 and then from n - 1 down."""
    if n > LONGEST_PRODUCT:
        return jnp.where(index <= n // 2, index, n + n // 2 - index)
    if n % 2:
        return index
    return jnp.where(index < n // 2, 2 * index, 2 * index - n + 1)


def sine(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Sine transform: sums over j of u[j] sin(pi k (j + 1/2) / n), k = 1..n: the cosine transform of u with every
    other sign changed holds them as waves n - k, read backwards here."""
    return lax.rev(cosine(_alternate(u, axis), axis), (axis % u.ndim,))


def inverse_sine(packed: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Inverse of `sine`."""
    return _alternate(inverse_cosine(lax.rev(packed, (axis % packed.ndim,)), axis), axis)


@dataclass(frozen=True)
class Transform:
    """A transform, its inverse, and the eigenvalues it gives the second difference."""

    forward: Callable[[Array, int], Array]
    inverse: Callable[[Array, int], Array]
    half_waves: Callable[[Array, int], Array]
    """(packed index, n) -> half-wavelengths m in the axis; the eigenvalue is -(2/h sin(pi m / 2n))^2."""
    count: Callable[[int], int] = lambda n: n
    """n -> the count of numbers in the transform of n."""

    def eigenvalues(self, index: Array, n: int, spacing: float) -> Array:
        """Eigenvalues of (u[i-1] - 2 u[i] + u[i+1]) / h^2 at packed positions `index`, an array of reals."""
        return eigenvalue(self.half_waves(index, n), n, spacing)


def eigenvalue(half_waves: Array, n: int, spacing: float) -> Array:
    """-(2/h sin(pi m / 2n))^2."""
    return -((2 / spacing * jnp.sin(np.pi / (2 * n) * half_waves)) ** 2)


def _fourier_half_waves(index: Array, n: int) -> Array:
    return 2 * jnp.where(index <= n // 2, index, index - n // 2)


@functools.cache
def factored(n: int) -> Transform:
    """Real discrete Fourier transform of n points as products with matrices leave it (`dft`): waves out of order."""
    pair = dft.factors(n)
    assert pair is not None
    a, b = pair
    half = a // 2 + 1

    def forward(u: Array, axis: int) -> Array:
        lines, back = dft.lines_along(u, axis)
        return back(dft.real_factors(lines, a, b).reshape(lines.shape[0], 2 * b * half, -1))

    def inverse(packed: Array, axis: int) -> Array:
        lines, back = dft.lines_along(packed, axis)
        return back(dft.inverse_real_factors(lines.reshape(lines.shape[0], 2, b, half, -1), a, b))

    def half_waves(index: Array, n: int) -> Array:
        place = index.astype(jnp.int32) % (b * half)
        wave = a * (place // half) + place % half
        return (2 * jnp.minimum(wave, n - wave)).astype(index.dtype)

    return Transform(forward, inverse, half_waves, lambda n: 2 * b * half)


FOURIER = Transform(fourier, inverse_fourier, _fourier_half_waves)
COSINE = Transform(cosine, inverse_cosine, _cosine_half_waves)
SINE = Transform(sine, inverse_sine, lambda index, n: n - _cosine_half_waves(n - 1 - index, n))
