"""A plane wave that enters a box: inside are total fields, outside what bodies in the box scatter.

The wave goes along an axis of the grid. It is known from a line of cells of its own, of the grid's widths and steps, so
that it has the grid's dispersion and none of it is left outside of an empty box but roundings. The first value of the
line, one cell in front of the box, is the signal; behind the box it dies away in cells that conduct electric and
magnetic currents alike. Differences across a side of the box lack the wave on one of their ends, and get it there.
Taflove and Hagness (2005), Computational Electrodynamics, ch. 5.
"""

import functools
import operator
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER, FACE
from simjax.jaxpr.varying import cast_varying
from simjax.models.waves.staggered_waves import Terms

ENDING, STEEPNESS, CELLS = 4, 1.0, 60
"""The line's end: power of the depth with which the decay grows, its largest in one crossing of a cell, cells."""


class Line(eqx.Module):
    """The wave in front of the box, in it and behind: E at time t, H in its units at t - lag, as those of the state."""

    electric: Array
    magnetic: Array


class Speed(eqx.Module):
    """Numbers of the wave where the box begins.

    rate: speed over a cell's width. admittance: H over what the line keeps of it.
    """

    rate: Array
    admittance: Array


@dataclass(frozen=True)
class IncidentBox:
    """A box of cells and the wave that enters it.

    first, last: numbers of the faces that are its sides, along each axis; both are None along a periodic axis that it
    fills. axis, upwards: where the wave goes. electric, magnetic: numbers of the components of E and H that it has,
    among those of the model. sign: of H over what the line keeps of it.
    """

    first: tuple[int | None, ...]
    last: tuple[int | None, ...]
    axis: int
    upwards: bool
    electric: int
    magnetic: int
    sign: int

    @property
    def cells(self) -> int:
        """Cells of the line."""
        first, last = self.first[self.axis], self.last[self.axis]
        assert first is not None and last is not None
        return last - first + 2 + CELLS

    def start(self, dtype) -> Line:
        """The line without a wave."""
        return Line(jnp.zeros(self.cells + 1, dtype), jnp.zeros(self.cells, dtype))

    def kicked(self, dt, line: Line, rate: Array) -> Line:
        """The line after its H changed for dt; rate: speed over a cell's width."""
        decay = dt * rate * self._decay(CENTER, line.magnetic.dtype)
        change = dt * rate * (line.electric[1:] - line.electric[:-1])
        return Line(line.electric, _damped(line.magnetic, decay, change))

    def drifted(self, dt, line: Line, rate: Array, signal: Array) -> Line:
        """The line after its E changed for dt; signal: its first value then."""
        decay = dt * rate * self._decay(FACE, line.electric.dtype)[1:-1]
        change = dt * rate * (line.magnetic[1:] - line.magnetic[:-1])
        inner = _damped(line.electric[1:-1], decay, change)
        return Line(jnp.concatenate([signal[None], inner, line.electric[-1:]]), line.magnetic)

    def _decay(self, offset: float, dtype) -> Array:
        """Decay of both fields at the end of the line, over the crossing of a cell."""
        count = self.cells + (offset == FACE)
        depth = (np.arange(count) + offset - (self.cells - CELLS)) / CELLS
        return jnp.asarray(STEEPNESS * np.clip(depth, 0.0, 1.0) ** ENDING, dtype)

    # ------------------------------------------------------------------ on the grid

    def added(
        self, domain: Domain, component: FieldLayout, terms: Terms, number: int, wave: Array, offset: float
    ) -> list[Array]:
        """Amounts that the curl's terms lack in each cell, at the sides of the box: one array, or none.

        component: layout of the field that they advance. wave: E of the line (offset FACE) or its H (CENTER); number:
        of the component that it is.
        """
        total = None
        for axis, field, sign in terms:
            first, last = self.first[axis], self.last[axis]
            if field != number or first is None or last is None:
                continue
            h, inside = domain.grid.mean_spacing[axis], self._inside(domain, component, axis)
            # Outside, at centres, E on the box's side has too much of it; on its sides H outside has too little.
            lower = (first - 1, first) if offset == FACE else (first, first - 1)
            for (at, of), direction in ((lower, -1), ((last, last), 1)):
                value = self._values(domain, wave, axis, of, offset)
                part = jnp.where(inside & (places(domain, axis) == at), value * (direction * sign / h), 0.0)
                total = part if total is None else total + part
        return [] if total is None else [total]

    def _inside(self, domain: Domain, layout: FieldLayout, without: int) -> Array:
        """Cells where values of a layout are in the box along all axes but one."""
        found = jnp.ones((1,) * domain.grid.ndim, bool)
        for axis in range(domain.grid.ndim):
            first, last = self.first[axis], self.last[axis]
            if axis == without or first is None or last is None:
                continue
            place = places(domain, axis)
            found = found & (place >= first) & (place <= (last if layout.offset[axis] == FACE else last - 1))
        return found

    def _values(self, domain: Domain, wave: Array, axis: int, of: int, offset: float) -> Array:
        """Values of the line beside a side of the box across an axis: one, or those along the wave's axis."""
        own = jnp.asarray(of, jnp.int32) if axis == self.axis else places(domain, self.axis)
        first, last = self.first[self.axis], self.last[self.axis]
        assert first is not None and last is not None
        place = own - (first - 1) if self.upwards else (last + 1 if offset == FACE else last) - own
        return wave[jnp.clip(place, 0, len(wave) - 1)]

    def sides(self, domain: Domain, layout: FieldLayout) -> Array:
        """Cells where values of a layout are beside the sides of the box."""
        found = jnp.zeros((1,) * domain.grid.ndim, bool)
        for axis in range(domain.grid.ndim):
            first, last = self.first[axis], self.last[axis]
            if first is None or last is None:
                continue
            place, inside = places(domain, axis), self._inside(domain, layout, axis)
            found = found | inside & ((abs(place - first) <= 1) | (abs(place - last) <= 1))
        return found

    def corner(self, domain: Domain, u: Array) -> Array:
        """The value of a field, or of a number, where the box begins."""
        here = jnp.ones((1,) * domain.grid.ndim, bool)
        for axis, first in enumerate(self.first):
            here = here & (places(domain, axis) == (first or 0))
        return domain.sum(jnp.where(here, u, jnp.zeros_like(u)))


def shared(domain: Domain, value: Array) -> Array:
    """A number of which every device has its copy, typed as the same on all, as the line has to be."""
    if not domain.names:
        return value
    first = functools.reduce(operator.and_, (domain.first_index(axis) == 0 for axis in range(domain.grid.ndim)))
    return domain.total(cast_varying(jnp.where(first, value, jnp.zeros_like(value)), domain.names))


def places(domain: Domain, axis: int) -> Array:
    """Numbers of cells along an axis, shaped to broadcast."""
    count = domain.block_shape[axis]
    shape = [count if k == axis else 1 for k in range(domain.grid.ndim)]
    return (domain.first_index(axis) + lax.iota(jnp.int32, count)).reshape(shape)


def _damped(u: Array, decay: Array, change: Array) -> Array:
    """A field after a change and its decay, by the trapezoidal rule."""
    return ((1 - 0.5 * decay) * u + change) / (1 + 0.5 * decay)
