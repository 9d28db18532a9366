"""Real trigonometric transforms that diagonalise the second difference, one per kind of boundary.

Each maps n real numbers to n real numbers, so blocks keep their shape and can be redistributed between devices
whatever the boundaries. Strang (1999), SIAM Review 41, 135, lists the eigenvectors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float


def fourier(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Real discrete Fourier transform, packed: real parts of wavenumbers 0..n/2, then imaginary parts of 1..(n-1)/2."""
    n = u.shape[axis]
    spectrum = jnp.fft.rfft(u, axis=axis)
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
    return jnp.fft.irfft(spectrum, n, axis=axis)


def _index(u: Array, axis: int) -> Array:
    """0, 1, 2, ... along `axis`, shaped to broadcast against `u`.

    An iota rather than a table: a constant captured by `custom_linear_solve`, or by a conditional under `vmap`,
    is cast to varying twice inside `shard_map`, which jax 0.10 to 0.12 refuse.
    """
    shape = tuple(n if k == axis % u.ndim else 1 for k, n in enumerate(u.shape))
    return jnp.arange(u.shape[axis], dtype=u.dtype).reshape(shape)


def _twiddle(u: Array, axis: int) -> tuple[Array, Array]:
    """cos and sin of pi k / 2n along `axis`."""
    angle = (np.pi / (2 * u.shape[axis])) * _index(u, axis)
    return jnp.cos(angle), jnp.sin(angle)


def cosine(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Cosine transform: U[k] = sum_j u[j] cos(pi k (j + 1/2) / n) (half a DCT-II), by one real FFT of length n.

    Makhoul (1980), IEEE Trans. ASSP 28, 27.
    """
    n, axis = u.shape[axis], axis % u.ndim
    if n == 1:
        return u
    even = lax.slice_in_dim(u, 0, n, 2, axis)
    odd = lax.rev(lax.slice_in_dim(u, 1, n, 2, axis), (axis,))
    spectrum = jnp.fft.rfft(jnp.concatenate([even, odd], axis=axis), axis=axis)
    # The FFT is Hermitian, so wavenumbers above n/2 are conjugates of those below.
    upper = lax.rev(lax.slice_in_dim(spectrum, 1, (n + 1) // 2, axis=axis), (axis,))
    real = jnp.concatenate([spectrum.real, upper.real], axis=axis)
    imaginary = jnp.concatenate([spectrum.imag, -upper.imag], axis=axis)
    c, s = _twiddle(u, axis)
    return real * c + imaginary * s


def inverse_cosine(packed: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Inverse of `cosine`."""
    n, axis = packed.shape[axis], axis % packed.ndim
    if n == 1:
        return packed
    # V[k] = exp(i pi k / 2n) (U[k] - i U[n - k]) with U[n] = 0.
    mirrored = lax.rev(lax.slice_in_dim(packed, 1, n, axis=axis), (axis,))
    ends = [(1, 0, 0) if k == axis else (0, 0, 0) for k in range(packed.ndim)]
    mirrored = lax.pad(mirrored, jnp.zeros((), packed.dtype), ends)
    c, s = _twiddle(packed, axis)
    half = n // 2 + 1
    spectrum = lax.slice_in_dim(lax.complex(packed * c + mirrored * s, packed * s - mirrored * c), 0, half, axis=axis)
    v = jnp.fft.irfft(spectrum, n, axis=axis)
    evens = (n + 1) // 2
    even = lax.slice_in_dim(v, 0, evens, axis=axis)
    odd = lax.rev(lax.slice_in_dim(v, evens, n, axis=axis), (axis,))
    return _spread(even, axis, n, 0) + _spread(odd, axis, n, 1)


def _spread(part: Array, axis: int, n: int, first: int) -> Array:
    """`part` at every second of `n` places along `axis`, from place `first` on; zeros between."""
    after = n - first - 2 * part.shape[axis] + 1
    ends = [(first, after, 1) if k == axis else (0, 0, 0) for k in range(part.ndim)]
    return lax.pad(part, jnp.zeros((), part.dtype), ends)


def _alternate(u: Array, axis: int) -> Array:
    return u * (1 - 2 * (_index(u, axis) % 2))


def sine(u: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Sine transform: U[k - 1] = sum_j u[j] sin(pi k (j + 1/2) / n), k = 1..n, through `cosine`."""
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

    def eigenvalues(self, index: Array, n: int, spacing: float) -> Array:
        """Eigenvalues of (u[i-1] - 2 u[i] + u[i+1]) / h^2 at packed positions `index`, an array of reals."""
        return eigenvalue(self.half_waves(index, n), n, spacing)


def eigenvalue(half_waves: Array, n: int, spacing: float) -> Array:
    """-(2/h sin(pi m / 2n))^2."""
    return -((2 / spacing * jnp.sin(np.pi / (2 * n) * half_waves)) ** 2)


def _fourier_half_waves(index: Array, n: int) -> Array:
    return 2 * jnp.where(index <= n // 2, index, index - n // 2)


FOURIER = Transform(fourier, inverse_fourier, _fourier_half_waves)
COSINE = Transform(cosine, inverse_cosine, lambda index, n: index)
SINE = Transform(sine, inverse_sine, lambda index, n: index + 1)
