"""Instruments that see a whole field as a few numbers: the energy of a vector by wavenumber, a histogram."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from simjax.errors import ConfigurationError
from simjax.instruments.operators import Instrumental, Operator, Spectrum
from simjax.instruments.places import extents_along, require_cartesian
from simjax.instruments.sampling import own


class VectorSpectrum(Instrumental):
    """The sum of the spectra of `components`, fields at places of their own: (shells,). See `Spectrum`."""

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    shells: int = eqx.field(static=True)

    @property
    def _each(self) -> tuple[Spectrum, ...]:
        return tuple(Spectrum(name, self.shells) for name in self.components)

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
            volumes = jnp.broadcast_to(self._volumes(domain, offset, periodic, field.dtype), field.shape)
            amounts = jnp.zeros(self.bins + 2, field.dtype).at[number].add(volumes.ravel())
            return domain.total(amounts)[1:-1] / domain.grid.cells
        # What is not a number lies beyond the last edge: numbers 0 and bins + 1 stand for what is in no bin.
        counts = jnp.zeros(self.bins + 2, jnp.int32).at[number].add(1)
        return domain.total(counts)[1:-1].astype(field.dtype) / domain.grid.cells

    def _volumes(self, domain, offset, periodic, dtype):
        """Volumes that this block's values stand for, over the mean of all."""
        product = jnp.ones((), dtype)
        for axis in range(domain.grid.ndim):
            extents = extents_along(domain, axis, offset[axis], periodic[axis])
            if extents is not None:
                shape = tuple(-1 if k == axis else 1 for k in range(domain.grid.ndim))
                product = product * own(domain, axis, extents, dtype).reshape(shape)
        return product

    def check(self, grid):
        require_cartesian(f"Histogram of '{self.variable}'", grid)

    def shape(self, grid):
        return (self.bins,)
