"""Separable transforms of decomposed fields: each axis is made whole by one exchange before its turn, or is left."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.jaxpr.platform import platform
from simjax.solvers import dft
from simjax.solvers.exchange import block_index, exchange_then, then_exchange
from simjax.solvers.modes import Modes
from simjax.solvers.transforms import FOURIER, Transform, eigenvalue, factored

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

    Forward: transform the axes that are whole; then, for each cut axis, one exchange and its transform. The
    spectrum stays where it ends up (as in a pencil FFT without the transposition back), and `eigenvalues` are
    those of this device's block there. Real throughout. On one device, periodic axes are transformed together
    by one multidimensional real FFT; on TPUs, where transforms are products with matrices, one by one.

    Args:
        transforms: one per axis; of a stretched axis its `Modes`.
        left: an axis that is cut and stays so, without a transform: see `solvers.lines`.
    """

    def __init__(self, domain: Domain, transforms: Sequence[Transform | Modes], left: int | None = None):
        self.domain = domain
        self.transforms = tuple(transforms)
        ndim = domain.grid.ndim
        sizes = {entry[0]: entry[1] for entry in domain.split if entry is not None}
        placement: list[tuple[str, ...]] = [() if entry is None else (entry[0],) for entry in domain.split]
        whole = [axis for axis in range(ndim) if not placement[axis]]
        together = not sizes and platform() != "tpu"
        self._joint = tuple(a for a in whole if together and self.transforms[a] is FOURIER)
        self._first = tuple(a for a in whole if a not in self._joint)
        self._moves: list[_Move] = []
        done = list(whole)
        for axis in sorted(set(range(ndim)) - {*whole, left}):
            move = self._plan_move(axis, placement, done, sizes)
            placement[move.onto] += move.names
            placement[axis] = ()
            self._moves.append(move)
            done.append(axis)
        self.placement: Placement = tuple(placement)
        """For each axis, the mesh axes over which its waves, or what is left of it, are cut."""
        self._left, self._sizes = left, sizes
        # Waves that stay on one device may keep the order in which products with matrices leave them.
        moved = {move.onto for move in self._moves if move.onto in whole}
        self.transforms = tuple(
            factored(n) if kind is FOURIER and not placement[a] and a not in moved and dft.by_matrices(n) else kind
            for a, (kind, n) in enumerate(zip(self.transforms, domain.grid.shape, strict=True))
        )

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
            u = self._forward(u, axis)
        if self._joint:
            return jnp.fft.rfftn(u, axes=[axis - ndim for axis in self._joint])
        for move in self._moves:
            transform = functools.partial(self._forward, axis=move.axis)
            u = exchange_then(transform, u, move.names, split=move.onto - ndim, concatenate=move.axis - ndim)
        return u

    def inverse(self, spectrum: Array) -> Array:
        """This block's field from its spectrum."""
        ndim = self.domain.grid.ndim
        u = spectrum
        if self._joint:
            sizes = [self.domain.grid.shape[axis] for axis in self._joint]
            u = jnp.fft.irfftn(u, sizes, axes=[axis - ndim for axis in self._joint])
        for move in reversed(self._moves):
            transform = functools.partial(self._inverse, axis=move.axis)
            u = then_exchange(transform, u, move.names, split=move.axis - ndim, concatenate=move.onto - ndim)
        for axis in self._first:
            u = self._inverse(u, axis)
        return u

    @property
    def exchanges(self) -> tuple[tuple[int, ...], ...]:
        """For each exchange of a field, the sizes of the mesh axes that are handed on."""
        return tuple(tuple(self._sizes[name] for name in move.names) for move in self._moves)

    def _forward(self, u: Array, axis: int) -> Array:
        return self.transforms[axis].forward(u, axis - self.domain.grid.ndim)

    def _inverse(self, u: Array, axis: int) -> Array:
        return self.transforms[axis].inverse(u, axis - self.domain.grid.ndim)

    def eigenvalues(self, dtype) -> tuple[Array, ...]:
        """Eigenvalues per axis of the second difference for this block's part of the spectrum, shaped to broadcast.

        Without those of the axis that is left.
        """
        result = []
        for axis, (n, h) in enumerate(zip(self.domain.grid.shape, self.domain.grid.mean_spacing, strict=True)):
            names = self.placement[axis]
            if axis == self._left:
                continue
            if axis in self._joint:
                values = self._complex_eigenvalues(axis, n, h, dtype)
            else:
                block = self.transforms[axis].count(n) // math.prod(self._sizes[name] for name in names)
                first = block_index(names) * block
                index = (first + jnp.arange(block, dtype=jnp.int32)).astype(dtype)
                values = self.transforms[axis].eigenvalues(index, n, h)
            result.append(values.reshape(tuple(-1 if k == axis else 1 for k in range(self.domain.grid.ndim))))
        return tuple(result)

    def _complex_eigenvalues(self, axis: int, n: int, h: float, dtype) -> Array:
        """In the order of a multidimensional real FFT: all wavenumbers, but half of them along its last axis."""
        count = n // 2 + 1 if axis == self._joint[-1] else n
        wavenumbers = jnp.arange(count, dtype=dtype)
        return eigenvalue(2 * wavenumbers, n, h)
