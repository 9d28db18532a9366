"""Fourier coefficients of periodic fields on a decomposed grid, truncated as dealiasing asks."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.ops.scaling import scaled
from simjax.solvers import dft
from simjax.solvers.exchange import exchange, exchange_then, then_exchange


@dataclass(frozen=True)
class _Step:
    """One axis on its way to the spectrum: made whole by handing `names` to array axis `onto`, then transformed."""

    axis: int
    names: tuple[str, ...]
    onto: int


class FourierBasis:
    """u(x) = sum over k of u_k exp(i k . x), with the coefficients u_k that dealiasing keeps.

    A field is `(..., nx, ny, nz)`; its spectrum `(..., kz, ky, kx)`, the other way round: every axis is transformed
    while it is the last one, which saves half of the transpositions. Real fields keep the modes k >= 0 of their last
    axis, transformed first; the other axes keep all n wavenumbers, in the order of an FFT. Coefficients that are
    not kept are zero: those with |k| >= `kept` n/2 (in units of 2 pi / L), and the Nyquist mode always. Shape and
    order do not depend on the decomposition. Samples are taken where they are given, at cell centres: position 0 of
    the exponentials is the first one.

    Cut axes are made whole by one exchange each and direction (`solvers.exchange`), as late as possible: a slab's one,
    a pencil's two; the spectrum stays where it ends up.

    Args:
        domain: periodic along every axis.
        kept: 2/3 for quadratic nonlinearities (Orszag 1971), 1/2 for cubic ones, 1 for all but Nyquist.
        real: whether fields are real; complex ones keep all modes of every axis.
    """

    def __init__(self, domain: Domain, kept: float = 2 / 3, real: bool = True):
        self.domain, self.real = domain, real
        share = Fraction(kept).limit_denominator(64)
        n = domain.grid.shape
        self.cutoff = tuple(max(0, math.ceil(share * size / 2) - 1) for size in n)
        """Largest wavenumber kept along each axis of the grid, in units of 2 pi / L."""
        self._counts = (*n[:-1], half_count(n[-1], self.cutoff[-1] + 1) if real else n[-1])
        self._sizes = {entry[0]: entry[1] for entry in domain.split if entry is not None}
        self._steps, self._placement = self._plan()

    # ------------------------------------------------------------------ layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a spectrum of the whole grid."""
        return self._counts[::-1]

    @property
    def spec(self) -> PartitionSpec:
        """Partition of a spectrum without leading axes."""
        return PartitionSpec(*(names or None for names in self._placement[::-1]))

    def indices(self) -> tuple[Array, ...]:
        """This block's wavenumbers in units of 2 pi / L, int32: one array per axis of the grid, shaped to broadcast."""
        ndim, result = self.domain.grid.ndim, []
        for axis, (count, n) in enumerate(zip(self._counts, self.domain.grid.shape, strict=True)):
            names = self._placement[axis]
            block = count // self._blocks(names)
            first = lax.axis_index(names) * block if names else 0
            index = first + jnp.arange(block, dtype=jnp.int32)
            if count == n:
                index = jnp.where(index < (n + 1) // 2, index, index - n)
            result.append(index.reshape(tuple(-1 if k == ndim - 1 - axis else 1 for k in range(ndim))))
        return tuple(result)

    def wavenumbers(self, dtype) -> tuple[Array, ...]:
        """This block's k along each axis of the grid, radians per length, shaped to broadcast against a spectrum."""
        lengths = self.domain.grid.lengths
        return tuple(2 * np.pi / length * i.astype(dtype) for i, length in zip(self.indices(), lengths, strict=True))

    def kept(self) -> Array:
        """Tell whether each coefficient of this block is kept."""
        below = [jnp.abs(i) <= c for i, c in zip(self.indices(), self.cutoff, strict=True)]
        return functools.reduce(jnp.logical_and, below)

    def weights(self, dtype) -> Array:
        """Number of modes that each coefficient stands for: two, but one in the plane k = 0 of the half axis.

        The mean of u v over the grid is the sum of weight Re(conj(u_k) v_k).
        """
        index = self.indices()[-1]
        return jnp.where((index == 0) | (not self.real), 1.0, 2.0).astype(dtype)

    def shell_sums(self, values: Array) -> Array:
        """Sums of a spectrum of real numbers over the shells j - 1/2 <= |k| < j + 1/2, j = 0, 1, ...

        |k| is in units of 2 pi over the longest side of the box, and all complete shells are returned: those up to
        the largest wavenumber that is kept along every axis.
        """
        lengths = self.domain.grid.lengths
        k = [i.astype(values.dtype) * (max(lengths) / side) for i, side in zip(self.indices(), lengths, strict=True)]
        square = sum((v * v for v in k[1:]), k[0] * k[0])
        count = 1 + min(int(c * max(lengths) / side) for c, side in zip(self.cutoff, lengths, strict=True))
        shell = jnp.minimum(jnp.floor(jnp.sqrt(square) + 0.5).astype(jnp.int32), count)
        shell = jnp.broadcast_to(shell, values.shape)
        sums = jnp.zeros(count + 1, values.dtype).at[shell].add(values)[:count]
        names = self.domain.names
        return lax.psum(sums, names) if names else sums

    def _blocks(self, names) -> int:
        return math.prod(self._sizes[name] for name in names)

    # ------------------------------------------------------------------ plan

    def _plan(self) -> tuple[tuple[_Step, ...], tuple[tuple[str, ...], ...]]:
        ndim = self.domain.grid.ndim
        placement: list[tuple[str, ...]] = [() if entry is None else (entry[0],) for entry in self.domain.split]
        if ndim == 1 and placement[0]:
            raise ConfigurationError(
                f"A spectrum along one axis cannot be cut over devices (mesh.x={self._blocks(placement[0])}); "
                "set mesh.x=1, and mesh.ensemble for many runs at once."
            )
        found = self._plan_from(ndim - 1, tuple(placement))
        if found is None:
            raise ConfigurationError(self._unfit())
        return found

    def _plan_from(self, axis: int, placement: tuple[tuple[str, ...], ...]):
        """Steps for `axis` and those before it, and the final placement; None if nothing fits."""
        ndim = self.domain.grid.ndim
        if axis < 0:
            # `make_real` makes the middle axis of a plane whole in exchange for the first.
            fits = self.domain.grid.shape[0] % self._blocks(placement[1] if ndim == 3 else ()) == 0
            return ((), placement) if fits else None
        names = placement[axis]
        # Axes already transformed first, as they need not become whole again.
        done, waiting = [*reversed(range(axis + 1, ndim))], [*range(axis)]
        for target in (*done, *waiting) if names else (axis,):
            size = self._counts[target] if target in done else self.domain.grid.shape[target]
            taken = placement[target] + names if target != axis else ()
            if size % self._blocks(taken):
                continue
            moved = tuple(taken if a == target else () if a == axis else p for a, p in enumerate(placement))
            rest = self._plan_from(axis - 1, moved)
            if rest is not None:
                onto = [*done, *range(axis + 1)].index(target) - ndim
                return (_Step(axis, names, onto), *rest[0]), rest[1]
        return None

    def _unfit(self) -> str:
        devices = math.prod(self._sizes.values())
        last, size = self.domain.grid.ndim - 1, self.domain.grid.shape[-1]
        fit = next(
            n for n in range(size, 100 * devices * size) if n % devices == 0 and self._kept_modes(n) % devices == 0
        )
        return (
            f"A spectrum on a mesh of {self._sizes} cannot hand blocks from axis to axis: Grid.shape="
            f"{self.domain.grid.shape} keeps {self._counts[last]} modes along {AXES[last]}; use sizes divisible by "
            f"{devices} and Grid.shape[{last}]={fit}, or fewer devices."
        )

    def _kept_modes(self, n: int) -> int:
        share = Fraction(2 * self.cutoff[-1] + 2, self.domain.grid.shape[-1])
        return half_count(n, math.ceil(share * n / 2)) if self.real else n

    # ------------------------------------------------------------------ transforms

    def forward(self, u: Array) -> Array:
        """Coefficients of this block's part of a field: one FFT, a real one if fields are."""
        ndim = self.domain.grid.ndim
        for number, step in enumerate(self._steps):
            transform = functools.partial(self._forward_last, axis=step.axis)
            exchanged = functools.partial(exchange_then, transform, names=step.names, split=step.onto, concatenate=-1)
            u = jnp.moveaxis(exchanged(u) if step.names else transform(u), -1, number - ndim)
        return u

    def _forward_last(self, u: Array, axis: int) -> Array:
        n, count = self.domain.grid.shape[axis], self._counts[axis]
        if axis != self.domain.grid.ndim - 1:
            return jnp.where(_kept(n, self.cutoff[axis], u.ndim), dft.fft(u), 0)
        # The factor 1 / N and the truncation ride on the transposition that follows.
        size = 1 / self.domain.grid.cells
        if self.real:
            spectrum = lax.slice_in_dim(dft.rfft(u), 0, count, axis=-1)
            factor = jnp.where(jnp.arange(count) <= self.cutoff[axis], size, 0.0)
        else:
            spectrum, factor = dft.fft(u), jnp.where(_kept(n, self.cutoff[axis], 1), size, 0.0)
        return scaled(factor.reshape((1,) * (u.ndim - 1) + (-1,)), spectrum)

    def inverse(self, spectrum: Array) -> Array:
        """This block's part of the field with the given coefficients: one inverse FFT."""
        ndim, u = self.domain.grid.ndim, spectrum
        for number, step in reversed([*enumerate(self._steps)]):
            transform = functools.partial(self._inverse_last, axis=step.axis)
            u = jnp.moveaxis(u, number - ndim, -1)
            exchanged = functools.partial(then_exchange, transform, names=step.names, split=-1, concatenate=step.onto)
            u = exchanged(u) if step.names else transform(u)
        return u

    def _inverse_last(self, u: Array, axis: int) -> Array:
        if axis != self.domain.grid.ndim - 1:
            return dft.ifft(u)
        u = u * self.domain.grid.cells
        if not self.real:
            return dft.ifft(u)
        n = self.domain.grid.shape[axis]
        missing = n // 2 + 1 - u.shape[-1]
        padded = lax.pad(u, jnp.zeros((), u.dtype), [(0, 0, 0)] * (u.ndim - 1) + [(0, missing, 0)])
        return dft.irfft(padded, n)

    # ------------------------------------------------------------------ real fields

    def make_real(self, spectrum: Array) -> Array:
        """The spectrum of the real part of the field.

        Only the plane k = 0 of the half axis can be at fault, u(-k) = conj(u(k)) there to rounding; transforms do
        not see the fault, but an unstable linear part would let it grow for ever.
        """
        ndim = self.domain.grid.ndim
        if not self.real or ndim == 1:
            return spectrum
        plane = lax.slice_in_dim(spectrum, 0, 1, axis=-ndim)
        mirrored = jnp.conj(_turned(plane, -1))
        if ndim == 3:
            mirrored = self._turn_middle(mirrored)
        half = jnp.where(self.indices()[-1].ravel()[0] == 0, 0.5 * (plane + mirrored), plane)
        return lax.dynamic_update_slice_in_dim(spectrum, half, 0, axis=spectrum.ndim - ndim)

    def _turn_middle(self, plane: Array) -> Array:
        names = self._placement[1]
        if not names:
            return _turned(plane, -2)
        whole = exchange(plane, names, split=-1, concatenate=-2)
        return exchange(_turned(whole, -2), names, split=-2, concatenate=-1)


class MeshBasis(FourierBasis):
    """All waves of a mesh of particles. A line of cells is short: cut over devices it is transformed whole on each."""

    def __init__(self, domain: Domain):
        self._line = domain if domain.grid.ndim == 1 and domain.split[0] is not None else None
        super().__init__(domain if self._line is None else domain.unsplit(), kept=1.0)

    def forward(self, u: Array) -> Array:
        return super().forward(u if self._line is None else self._line.gather(u))

    def inverse(self, spectrum: Array) -> Array:
        u = super().inverse(spectrum)
        return u if self._line is None else self._line.scatter(u)


def half_count(n: int, modes: int) -> int:
    """Number of modes of a half axis that are stored, at least `modes`: divisible by as many devices as can be.

    Rounded up to a multiple of the largest power of two that divides n, is at most max(8, n/8), and keeps the
    Nyquist mode out: 3n/8 of n = 64, 128, 256, ... where 2/3 is kept.
    """
    power = n & -n
    while power > 1 and (power > max(8, n // 8) or -(-modes // power) * power > n // 2):
        power //= 2
    return -(-modes // power) * power


def _kept(n: int, cutoff: int, rank: int) -> Array:
    """Tell whether the n modes of a whole axis are kept, shaped to broadcast as the last of `rank` axes."""
    index = jnp.arange(n)
    return (jnp.minimum(index, n - index) <= cutoff).reshape((1,) * (rank - 1) + (n,))


def _turned(u: Array, axis: int) -> Array:
    """Mode k in the place of mode -k along a whole axis."""
    return jnp.roll(jnp.flip(u, axis), 1, axis)
