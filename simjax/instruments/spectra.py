"""Instruments that read the energy of fields by wavenumber."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.instrument import Coordinate, FieldInstrument, Instrument, Layout
from simjax.instruments.operators import Spectrum, complete_shells
from simjax.instruments.places import require_cartesian
from simjax.instruments.sampling import volumes, waves
from simjax.schema.instrument_declarations import OF, instrument
from simjax.schema.kinds import Integer, key
from simjax.schema.site import AxisName, Refusal
from simjax.schema.units import squared

WAVENUMBER = "wavenumber"
MOST_SHELLS = 100_000


class LineSpectrum(FieldInstrument):
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


@instrument("spectrum")
class VectorSpectrum(Instrument):
    """The sum of the spectra of `components`, fields at places of their own: (shells,).

    See `Spectrum`, and with an axis `LineSpectrum`.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    shells: int = eqx.field(static=True)
    axis: int | None = eqx.field(static=True, default=None)

    @dataclass(frozen=True)
    class Keys:
        """The waves that count."""

        shells: int | None = key(Integer(1, MOST_SHELLS), None, about="number of shells; null: all that are resolved")
        along: str | None = key(AxisName(even=True), None, about="axis along which it is taken; null: all")

    at_kind = OF

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

    def layout(self, source, output, grid, units):
        about = {"long_name": "wavenumber", "units": "1" if units == "1" else f"{units}-1"}
        # The middle of shells that are 2 pi over the longest side wide.
        numbers = 2 * np.pi / self.length(grid) * np.arange(1, self.shells + 1)
        return Layout((WAVENUMBER,), (Coordinate(WAVENUMBER, (WAVENUMBER,), numbers, about),))

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def refusals(cls, of, given, site):
        if "along" in given:
            return
        instead = "write along: AXIS for one that is periodic and uniform, or look at it with line or histogram"
        walls = [axis for axis in site.axes if not site.is_periodic(axis)]
        if walls:
            yield Refusal("", f"periodic axes only, {', '.join(walls)} has walls", hint=instead)
        if site.stretched:
            found = f"cells of one width, the grid is stretched along {', '.join(site.stretched)}"
            yield Refusal("", found, hint=instead)

    @classmethod
    def readings(cls, source, written):
        return {f"{name}_spectrum": written[name] for name in source.of}

    @classmethod
    def made(cls, source, run):
        grid, along = run.domain.grid, source.given.get("along")
        axis = None if along is None else AXES.index(along)
        complete = complete_shells(grid) if axis is None else (grid.shape[axis] - 1) // 2
        which = "wavenumber" if along is None else f"wavenumber along {along}"
        found: dict[str, tuple[Instrument, Output]] = {}
        for name in source.of:
            own, key = run.outputs_named([name]), f"{name}_spectrum"
            text = f"energy of {name.replace('_', ' ')} by {which}, half the square in each shell"
            parts = tuple(output.name for output in own)
            operator = cls(key, parts, source.given.get("shells") or complete, axis)
            found[key] = operator, Output(key, own[0].offset, squared(own[0].units), text)
        return found
