"""Separable transforms of decomposed fields: each axis is made whole by one exchange before its turn, or is left."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

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
class _Stage:
    """A transform along `axes`, which are whole, or of which one is made so: it hands `names` to axis `onto`.

    order: the spatial axes as they stand in the array meanwhile; those of an FFT are the last. pads: tells that `onto`
    has half of its waves and takes over blocks for the first time.
    """

    axes: tuple[int, ...]
    order: tuple[int, ...]
    names: tuple[str, ...] = ()
    onto: int = 0
    pads: bool = False

    def place(self, axis: int) -> int:
        """The array axis, counted from the last."""
        return self.order.index(axis) - len(self.order)


class SpectralBasis:
    """Eigenvectors of the discrete Laplacian on a domain, and the way to them.

    Forward: transform the axes that are whole; then, for each cut axis, one exchange and its transform. The spectrum
    stays where it ends up (as in a pencil FFT without the transposition back), and `eigenvalues` are those of this
    device's block there.

    By FFTs, periodic axes that are whole are transformed together; others are moved to the end of the array before
    their turn, and stay there. The first transform is of real numbers: its last axis keeps half of the waves, and a few
    zeros behind them where it takes over blocks. On TPUs, where transforms are products with matrices, and where an
    axis is left, axes stay in their places and all numbers are real.

    Args:
        transforms: one per axis; of a stretched axis its `Modes`.
        left: an axis that is cut and stays so, without a transform: see `solvers.lines`.
    """

    def __init__(self, domain: Domain, transforms: Sequence[Transform | Modes], left: int | None = None):
        self.domain, self._left = domain, left
        self._sizes = {entry[0]: entry[1] for entry in domain.split if entry is not None}
        by_fft = platform() != "tpu" and left is None
        self._waves = [axis for axis, kind in enumerate(transforms) if by_fft and kind is FOURIER]
        self._half: int | None = None
        """The axis that keeps half of its waves."""
        self._stages, self.placement = self._plan()
        # Waves that stay on one device may keep the order in which products with matrices leave them.
        self.transforms = tuple(
            factored(n) if kind is FOURIER and not self.placement[a] and dft.by_matrices(n) else kind
            for a, (kind, n) in enumerate(zip(transforms, domain.grid.shape, strict=True))
        )

    def _plan(self) -> tuple[tuple[_Stage, ...], Placement]:
        """Stages, and for each axis the mesh axes over which its waves, or what is left of it, are cut."""
        axes = tuple(range(self.domain.grid.ndim))
        placement: list[tuple[str, ...]] = [() if entry is None else (entry[0],) for entry in self.domain.split]
        whole = [axis for axis in axes if not placement[axis]]
        together = tuple(axis for axis in whole if axis in self._waves)
        stages = [_Stage((axis,), axes) for axis in whole if axis not in together]
        order = axes
        if together:
            order = _with_last(order, together)
            stages.append(_Stage(together, order))
            self._half = together[-1]
        done = list(whole)
        for axis in sorted({*axes} - {*whole, self._left}):
            names = placement[axis]
            onto = self._receiver(axis, placement, done)
            pads = onto == self._half and not placement[onto]
            placement[onto] += names
            placement[axis] = ()
            if axis in self._waves:
                order = _with_last(order, (axis,))
                self._half = axis if self._half is None else self._half
            stages.append(_Stage((axis,), order, names, onto, pads))
            done.append(axis)
        return tuple(stages), tuple(placement)

    def _receiver(self, axis: int, placement: Sequence[tuple[str, ...]], done: Sequence[int]) -> int:
        """The axis that takes over the blocks of `axis`."""
        shape = self.domain.grid.shape
        factor = self._blocks(placement[axis])
        # Axes already transformed first: they need not become whole again. Half an axis rarely divides into blocks.
        others = (a for a in range(self.domain.grid.ndim) if a != axis)
        for onto in sorted(others, key=lambda a: (a not in done, a == self._half)):
            if shape[onto] % (factor * self._blocks(placement[onto])) == 0:
                return onto
        if self.domain.grid.ndim == 1:
            raise ConfigurationError(
                f"A one-dimensional solve cannot be decomposed (mesh {self._sizes}); set mesh.x=1."
            )
        raise ConfigurationError(
            f"The pressure solve on a mesh of {self._sizes} cannot hand the {factor} blocks of {AXES[axis]} to another "
            f"axis of Grid.shape={shape}; choose sizes divisible by {math.prod(self._sizes.values())}."
        )

    def _blocks(self, names: Sequence[str]) -> int:
        return math.prod(self._sizes[name] for name in names)

    def forward(self, u: Array) -> Array:
        """Spectrum of this block's field."""
        before = tuple(range(self.domain.grid.ndim))
        for stage in self._stages:
            u, before = self._padded(_reordered(u, before, stage.order), stage), stage.order
            transform = functools.partial(self._forward, stage)
            if stage.names:
                split, joined = stage.place(stage.onto), stage.place(stage.axes[0])
                u = exchange_then(transform, u, stage.names, split=split, concatenate=joined)
            else:
                u = transform(u)
        return u

    def inverse(self, spectrum: Array) -> Array:
        """This block's field from its spectrum."""
        u = spectrum
        before = [tuple(range(self.domain.grid.ndim)), *(stage.order for stage in self._stages[:-1])]
        for stage, order in zip(reversed(self._stages), reversed(before), strict=True):
            transform = functools.partial(self._inverse, stage)
            if stage.names:
                split, joined = stage.place(stage.axes[0]), stage.place(stage.onto)
                u = then_exchange(transform, u, stage.names, split=split, concatenate=joined)
            else:
                u = transform(u)
            u = _reordered(self._unpadded(u, stage), stage.order, order)
        return u

    def inverse_within(self, spectrum: Array, start: Sequence[int], stop: Sequence[int]) -> Array:
        """The field of the cells from `start` to before `stop`, by a product with a matrix along each axis.

        For grids of which no axis is cut. A GPU starts one kernel for each product, and three or more for each
        transform of an axis and its order.
        """
        order, u = self._stages[-1].order, spectrum
        for axis in order:
            matrix = self._waves_at(axis, start[axis], stop[axis], spectrum.dtype)
            # The axis goes to the end, so that after all of them the order is the same.
            u = lax.dot_general(u, matrix, (((0,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
        return _reordered(u.real, order, tuple(range(len(order))))

    def _waves_at(self, axis: int, start: int, stop: int, dtype) -> Array:
        """Waves along an axis in cells, `(waves, cells)`; their real part counts where half of them are kept."""
        n, real = self.domain.grid.shape[axis], jnp.zeros((), dtype).real.dtype
        if axis not in self._waves:
            columns = self.transforms[axis].inverse(jnp.eye(n, dtype=real), 0)
            return lax.slice_in_dim(columns, start, stop, axis=0).T.astype(dtype)
        waves = jnp.arange(self._count(axis), dtype=jnp.int32)[:, None]
        # Whole turns go before anything is rounded.
        angle = (2 * math.pi / n) * ((waves * jnp.arange(start, stop, dtype=jnp.int32)[None, :]) % n).astype(real)
        weight = jnp.full(waves.shape, 1 / n, real)
        if axis == self._half:
            weight = jnp.where((waves == 0) | (2 * waves == n), 1 / n, 2 / n).astype(real)
        return lax.complex(weight * jnp.cos(angle), weight * jnp.sin(angle))

    def _forward(self, stage: _Stage, u: Array) -> Array:
        axis, places = stage.axes[-1], [stage.place(axis) for axis in stage.axes]
        if axis == self._half:
            return jnp.fft.rfftn(u, axes=places)
        if axis in self._waves:
            return jnp.fft.fft(u, axis=places[-1])
        return _of_parts(functools.partial(self.transforms[axis].forward, axis=places[-1]), u)

    def _inverse(self, stage: _Stage, u: Array) -> Array:
        axis, places = stage.axes[-1], [stage.place(axis) for axis in stage.axes]
        if axis == self._half:
            sizes = [self.domain.grid.shape[axis] for axis in stage.axes]
            return jnp.fft.irfftn(u, sizes, axes=places)
        if axis in self._waves:
            return jnp.fft.ifft(u, axis=places[-1])
        return _of_parts(functools.partial(self.transforms[axis].inverse, axis=places[-1]), u)

    def _padded(self, u: Array, stage: _Stage) -> Array:
        """`u` with zeros behind half of the waves, as many as make it a multiple of the blocks."""
        if not stage.pads:
            return u
        axis = u.ndim + stage.place(stage.onto)
        more = self._count(stage.onto) - u.shape[axis]
        return lax.pad(u, jnp.zeros((), u.dtype), [(0, more * (k == axis), 0) for k in range(u.ndim)])

    def _unpadded(self, u: Array, stage: _Stage) -> Array:
        if not stage.pads:
            return u
        return lax.slice_in_dim(u, 0, self.domain.grid.shape[stage.onto] // 2 + 1, axis=stage.place(stage.onto))

    @property
    def exchanges(self) -> tuple[tuple[int, ...], ...]:
        """For each exchange of a field, the sizes of the mesh axes that are handed on."""
        return tuple(tuple(self._sizes[name] for name in stage.names) for stage in self._stages if stage.names)

    def eigenvalues(self, dtype) -> tuple[Array, ...]:
        """Eigenvalues per axis of the second difference for this block's part of the spectrum, shaped to broadcast.

        Without those of the axis that is left.
        """
        result = []
        order = self._stages[-1].order
        for axis, (n, h) in enumerate(zip(self.domain.grid.shape, self.domain.grid.mean_spacing, strict=True)):
            if axis == self._left:
                continue
            block = self._count(axis) // self._blocks(self.placement[axis])
            first = block_index(self.placement[axis]) * block
            index = (first + jnp.arange(block, dtype=jnp.int32)).astype(dtype)
            waves = axis in self._waves
            values = eigenvalue(2 * index, n, h) if waves else self.transforms[axis].eigenvalues(index, n, h)
            result.append(values.reshape(tuple(-1 if k == axis else 1 for k in order)))
        return tuple(result)

    def _count(self, axis: int) -> int:
        """Numbers along an axis of the spectrum of the whole grid."""
        n = self.domain.grid.shape[axis]
        if axis == self._half:
            blocks = self._blocks(self.placement[axis])
            return -(-(n // 2 + 1) // blocks) * blocks
        return n if axis in self._waves else self.transforms[axis].count(n)


def _with_last(order: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*(axis for axis in order if axis not in axes), *axes)


def _reordered(u: Array, before: tuple[int, ...], order: tuple[int, ...]) -> Array:
    """`u`, whose last axes are the spatial ones in the order `before`, with them in another order."""
    if before == order:
        return u
    lead = u.ndim - len(order)
    return jnp.transpose(u, (*range(lead), *(lead + before.index(axis) for axis in order)))


def _of_parts(transform: Callable[[Array], Array], u: Array) -> Array:
    """A transform of real numbers of the real and the imaginary part, if there are both."""
    if not jnp.iscomplexobj(u):
        return transform(u)
    return lax.complex(transform(u.real), transform(u.imag))
