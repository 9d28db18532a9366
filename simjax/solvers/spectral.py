"""Separable transforms of decomposed fields: each axis is made whole by one `all_to_all` before its turn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.solvers.transforms import FOURIER, Transform, eigenvalue

Placement = tuple[tuple[str, ...], ...]
"""For each spatial axis, the mesh axes over which it is cut, outermost first."""


@dataclass(frozen=True)
class _Move:
    """Make `axis` whole by handing the mesh axes that cut it to axis `onto`."""

    axis: int
    onto: int
    names: tuple[str, ...]


class SpectralBasis:
    """Eigenvectors of the discrete Laplacian on a domain, and the way to them.

    Forward: transform the axes that are whole; then, for each cut axis, one `all_to_all` and its transform. The
    spectrum stays where it ends up (as in a pencil FFT without the transposition back), and `eigenvalues` are
    those of this device's block there. Real throughout. On one device, periodic axes are transformed together
    by one multidimensional real FFT.
    """

    def __init__(self, domain: Domain, transforms: Sequence[Transform]):
        self.domain = domain
        self.transforms = tuple(transforms)
        ndim = domain.grid.ndim
        sizes = {entry[0]: entry[1] for entry in domain.split if entry is not None}
        placement: list[tuple[str, ...]] = [() if entry is None else (entry[0],) for entry in domain.split]
        whole = [axis for axis in range(ndim) if not placement[axis]]
        self._joint = tuple(a for a in whole if not sizes and self.transforms[a] is FOURIER)
        self._first = tuple(a for a in whole if a not in self._joint)
        self._moves: list[_Move] = []
        done = list(whole)
        for axis in sorted(set(range(ndim)) - set(whole)):
            move = self._plan_move(axis, placement, done, sizes)
            placement[move.onto] += move.names
            placement[axis] = ()
            self._moves.append(move)
            done.append(axis)
        self._placement: Placement = tuple(placement)
        self._sizes = sizes

    def _plan_move(self, axis: int, placement, done: list[int], sizes: dict[str, int]) -> _Move:
        names = placement[axis]
        factor = math.prod(sizes[name] for name in names)
        # Axes already transformed first: they need not become whole again.
        candidates = sorted((a for a in range(self.domain.grid.ndim) if a != axis), key=lambda a: a not in done)
        for onto in candidates:
            blocks = factor * math.prod(sizes[name] for name in placement[onto])
            if self.domain.grid.shape[onto] % blocks == 0:
                return _Move(axis, onto, names)
        if self.domain.grid.ndim == 1:
            raise ConfigurationError(f"A one-dimensional solve cannot be decomposed (mesh {sizes}); set mesh.x=1.")
        raise ConfigurationError(
            f"The pressure solve on a mesh of {sizes} cannot hand the {factor} blocks of {AXES[axis]} to another axis "
            f"of Grid.shape={self.domain.grid.shape}; choose sizes divisible by {math.prod(sizes.values())}."
        )

    def forward(self, u: Array) -> Array:
        """Spectrum of this block's field."""
        ndim = self.domain.grid.ndim
        for axis in self._first:
            u = self.transforms[axis].forward(u, axis - ndim)
        if self._joint:
            return jnp.fft.rfftn(u, axes=[axis - ndim for axis in self._joint])
        for move in self._moves:
            u = self._exchange(u, move.names, split=move.onto, concatenate=move.axis)
            u = self.transforms[move.axis].forward(u, move.axis - ndim)
        return u

    def inverse(self, spectrum: Array) -> Array:
        """This block's field from its spectrum."""
        ndim = self.domain.grid.ndim
        u = spectrum
        if self._joint:
            sizes = [self.domain.grid.shape[axis] for axis in self._joint]
            u = jnp.fft.irfftn(u, sizes, axes=[axis - ndim for axis in self._joint])
        for move in reversed(self._moves):
            u = self.transforms[move.axis].inverse(u, move.axis - ndim)
            u = self._exchange(u, move.names, split=move.axis, concatenate=move.onto)
        for axis in self._first:
            u = self.transforms[axis].inverse(u, axis - ndim)
        return u

    def _exchange(self, u: Array, names: tuple[str, ...], *, split: int, concatenate: int) -> Array:
        leading = u.ndim - self.domain.grid.ndim
        return lax.all_to_all(u, names, leading + split, leading + concatenate, tiled=True)

    def eigenvalues(self, dtype) -> tuple[Array, ...]:
        """Eigenvalues per axis of the second difference for this block's part of the spectrum, shaped to broadcast."""
        result = []
        for axis, (n, h) in enumerate(zip(self.domain.grid.shape, self.domain.grid.spacing, strict=True)):
            names = self._placement[axis]
            if axis in self._joint:
                values = self._complex_eigenvalues(axis, n, h, dtype)
            else:
                block = n // math.prod(self._sizes[name] for name in names)
                first = lax.axis_index(names) * block if names else 0
                index = (first + jnp.arange(block, dtype=jnp.int32)).astype(dtype)
                values = self.transforms[axis].eigenvalues(index, n, h)
            result.append(values.reshape(tuple(-1 if k == axis else 1 for k in range(self.domain.grid.ndim))))
        return tuple(result)

    def _complex_eigenvalues(self, axis: int, n: int, h: float, dtype) -> Array:
        """In the order of a multidimensional real FFT: all wavenumbers, but half of them along its last axis."""
        count = n // 2 + 1 if axis == self._joint[-1] else n
        wavenumbers = jnp.arange(count, dtype=dtype)
        return eigenvalue(2 * wavenumbers, n, h)
