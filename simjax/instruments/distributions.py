"""Instruments that see a whole field as a few numbers: the energy of a vector by wavenumber, a histogram."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.operators import Instrumental, Operator, Spectrum
from simjax.instruments.places import require_cartesian
from simjax.instruments.sampling import volumes, waves


class LineSpectrum(Operator):
    """The energy |u_j|^2 / 2 of the wavenumbers j = 1..`shells` along a periodic axis: (shells,), means over all lines.

    u_j and u_-j are the coefficients of u = sum of u_j exp(2 pi i j x / L) on a line of length L, and both count; all
    wavenumbers and the means of lines add up to the mean of u^2 / 2. A line counts with the area that it stands for.
    """

    variable: str = eqx.field(static=True)
    shells: int = eqx.field(static=True)
    axis: int = eqx.field(static=True)

    def measure(self, domain, field, offset, periodic):
        axis, ndim = self.axis, domain.grid.ndim
        if not periodic[axis]:
            raise ConfigurationError(f"Spectrum of '{self.variable}' along {AXES[axis]}: expected a periodic axis.")
        along, across = (
            Domain(domain.grid, [entry if (k == axis) == own else None for k, entry in enumerate(domain.split)])
            for own in (True, False)
        )
        lines = jnp.moveaxis(field, axis, -1)
        rows = waves(domain, axis, self.shells, field.dtype)
        amplitudes = jnp.einsum("...n,kn->...k", lines, rows, precision=lax.Precision.HIGHEST)
        energy = 0.5 * (along.total(amplitudes) if along.names else amplitudes) ** 2
        areas = volumes(domain, offset, periodic, field.dtype, but=axis)
        if areas is not None:
            energy = energy * jnp.moveaxis(areas, axis, -1)
        sums = jnp.sum(energy, axis=tuple(range(ndim - 1)))
        means = (across.total(sums) if across.names else sums) * (domain.grid.shape[axis] / domain.grid.cells)
        return means[1 : self.shells + 1] + means[self.shells + 1 :]

    def check(self, grid):
        name, axis = f"Spectrum of '{self.variable}' along {AXES[self.axis]}", self.axis
        require_cartesian(name, grid)
        if axis in grid.stretched:
            raise ConfigurationError(f"{name}: expected cells of one width along it, and the grid is stretched there.")
        most = (grid.shape[axis] - 1) // 2
        if not 1 <= self.shells <= most:
            raise ConfigurationError(f"{name}: expected 1 to {most} shells, got {self.shells}; write shells={most}.")

    def shape(self, grid):
        return (self.shells,)


class VectorSpectrum(Instrumental):
    """The sum of the spectra of `components`, fields at places of their own: (shells,).

    See `Spectrum`, and with an axis `LineSpectrum`.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    shells: int = eqx.field(static=True)
    axis: int | None = eqx.field(static=True, default=None)

    @property
    def _each(self) -> tuple[Spectrum | LineSpectrum, ...]:
        if self.axis is None:
            return tuple(Spectrum(name, self.shells) for name in self.components)
        return tuple(LineSpectrum(name, self.shells, self.axis) for name in self.components)

    def length(self, grid: Grid) -> float:
        """The length of which a wave of number one is as long."""
        return max(grid.lengths) if self.axis is None else grid.lengths[self.axis]

    def read(self, view):
        return sum((one.read(view) for one in self._each[1:]), self._each[0].read(view))

    def check(self, grid):
        self._each[0].check(grid)

    def shape(self, grid):
        return (self.shells,)


class Histogram(Operator):
    """The share of the volume whose value lies in each of `bins` equal bins from `lower` to `upper`: (bins,).

    On a uniform grid that is the share of the cells; on a stretched one each counts with its volume. A bin holds its
    lower edge, the last one also its upper. What lies outside counts and is in no bin.
    """

    variable: str = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __check_init__(self):
        if self.bins < 1 or not (math.isfinite(self.lower) and self.lower < self.upper < math.inf):
            raise ConfigurationError(
                f"Histogram.bins={self.bins} from lower={self.lower:g} to upper={self.upper:g}: expected at least one "
                "bin between two numbers; write Histogram(variable, bins=50, lower=0.0, upper=1.0)."
            )

    @property
    def edges(self) -> np.ndarray:
        """Edges of the bins, `(bins + 1,)`."""
        return np.linspace(self.lower, self.upper, self.bins + 1)

    def measure(self, domain, field, offset, periodic):
        edges = jnp.asarray(self.edges, field.dtype)
        number = jnp.searchsorted(edges, field.ravel(), side="right").astype(jnp.int32)
        number = jnp.where(field.ravel() == edges[-1], self.bins, number)
        if domain.grid.stretched:
            each = volumes(domain, offset, periodic, field.dtype)
            assert each is not None
            amounts = jnp.zeros(self.bins + 2, field.dtype).at[number].add(jnp.broadcast_to(each, field.shape).ravel())
            return domain.total(amounts)[1:-1] / domain.grid.cells
        # What is not a number lies beyond the last edge: numbers 0 and bins + 1 stand for what is in no bin.
        counts = jnp.zeros(self.bins + 2, jnp.int32).at[number].add(1)
        return domain.total(counts)[1:-1].astype(field.dtype) / domain.grid.cells

    def check(self, grid):
        require_cartesian(f"Histogram of '{self.variable}'", grid)

    def shape(self, grid):
        return (self.bins,)
