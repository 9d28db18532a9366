"""The energy that waves carry through planes and out of boxes: products of two fields, in time and by frequency."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.grid import AXES, FACE
from simjax.instruments.cell_places import cell_coordinates
from simjax.instruments.crossings import ENDS, Crossing
from simjax.instruments.instrument import Instrument, Layout
from simjax.instruments.sampling import shares
from simjax.schema.units import product_of_units


class FieldOnPlane(Instrument):
    """A component of a field on a plane of faces, by second order: `(cells,)` along each axis of the plane.

    field: its name. crossing: the plane. offset: of the component in its cells. times: the variable that it is
    multiplied by in the energy flux along the plane's axis, and sign: that of their product; "" of the other one.
    """

    variable: str = eqx.field(static=True)
    field: str = eqx.field(static=True)
    crossing: Crossing = eqx.field(static=True)
    offset: tuple[float, ...] = eqx.field(static=True)
    times: str = eqx.field(static=True, default="")
    sign: int = eqx.field(static=True, default=1)

    def read(self, view):
        u, domain, (axis, number) = view.variables[self.field], view.domain, self.crossing.plane
        n = domain.grid.shape[axis]
        if self.offset[axis] == FACE:
            return _cells_at(domain, u, axis, number % n)
        return 0.5 * (_cells_at(domain, u, axis, (number - 1) % n) + _cells_at(domain, u, axis, number % n))

    def shape(self, grid):
        return tuple(n for k, n in enumerate(grid.shape) if k != self.crossing.plane.axis)

    def spec(self, domain):
        return PartitionSpec(*(name for k, name in enumerate(domain.spec()) if k != self.crossing.plane.axis))

    def layout(self, source, output, grid, units):
        axis, number = self.crossing.plane
        along = tuple(k for k in range(grid.ndim) if k != axis)
        dims, coordinates = cell_coordinates(grid, output, along, units)
        place = [*grid.coordinates(axis, FACE), grid.upper[axis]][number]
        about = {"across": AXES[axis], "place": float(place)}
        if self.crossing.part is not None:  # a face of a box
            about |= {end: [ends[n] for ends in self.crossing.part] for n, end in enumerate(ENDS)}
            about["outwards"] = self.crossing.sign
        if self.times:
            about |= {"times": self.times, "sign": self.sign}
        return Layout(dims, tuple(coordinates), about)


def _cells_at(domain: Domain, u: Array, axis: int, number: int) -> Array:
    """The values of one number along an axis, which is left out, on all devices along it."""
    block = domain.block_shape[axis]
    if domain.split[axis] is None:
        return jnp.take(u, number, axis=axis)
    own = jnp.take(u, number % block, axis=axis)
    here = domain.block_index(axis) == number // block
    return _along(domain, [axis]).total(jnp.where(here, own, jnp.zeros_like(own)))


def _along(domain: Domain, axes: Sequence[int]) -> Domain:
    """The domain as devices along some axes share it."""
    return Domain(domain.grid, [entry if k in axes else None for k, entry in enumerate(domain.split)])


class Passage(NamedTuple):
    """A product of two fields that lie at the same places of a plane, with the sign that it counts with."""

    sign: int
    one: FieldOnPlane
    other: FieldOnPlane

    def total(self, domain: Domain, periodic: tuple[bool, ...], density: Any) -> Any:
        """The sum over the plane of a density (..., *plane) times the areas that lie in the crossing's part."""
        crossing, grid = self.one.crossing, domain.grid
        ends = crossing.part or tuple(zip(grid.lower, grid.upper, strict=True))
        along = [k for k in range(grid.ndim) if k != crossing.plane.axis]
        dtype = jax.dtypes.canonicalize_dtype(density.dtype)
        areas = jnp.ones((), dtype)
        for k in along:
            low, high = ends[k]
            part = np.asarray([low]), np.asarray([high])
            own = shares(domain, k, *part, self.one.offset[k], periodic[k], dtype)[0]
            areas = areas[..., None] * ((high - low) * own).reshape((1,) * areas.ndim + own.shape)
        areas = areas.reshape((1,) * (density.ndim - areas.ndim) + areas.shape)
        summed = (jnp.asarray(density, dtype) * areas).sum(axis=tuple(range(-len(along), 0)))
        return self.sign * _along(domain, along).total(summed)


class WavePower(Instrument):
    """The power of waves through planes: integrals of p u_n of sound, of (E x H)_n of light.

    By frequency it is 2 Re(A B*) with the Fourier integrals A and B of both fields in time: the energy that passes per
    frequency. Its integral over all frequencies above zero is all the energy that passes.
    """

    variable: str = eqx.field(static=True)
    passages: tuple[Passage, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    told: str = eqx.field(static=True)

    @classmethod
    def through(
        cls, variable: str, faces: tuple[Crossing, ...], model: Any, periodic: tuple[bool, ...], told: str
    ) -> "WavePower":
        """The power through these faces in a model of waves; told: where these are, as files have it."""
        offsets, passages = {output.name: output.offset for output in model.outputs()}, []
        for crossing in faces:
            suffix = _side_of(crossing) if len(faces) > 1 else ""
            for product in model.energy_flux_along(crossing.plane.axis):
                one = FieldOnPlane(f"{product.one}{suffix}", product.one, crossing, offsets[product.one])
                place = f"{product.other}{suffix}", product.other, crossing, offsets[product.other]
                other = FieldOnPlane(*place, one.variable, product.sign)
                passages.append(Passage(crossing.sign * product.sign, one, other))
        return cls(variable, tuple(passages), periodic, told)

    def read(self, view):
        found = {one.variable: one.read(view) for one in self._fields()}
        return self._total(view.domain, lambda one, other: found[one] * found[other])

    def layout(self, source, output, grid, units):
        return Layout(attributes={"through": self.told})

    def amplitudes(self, output, fields):
        return {one.variable: (one, replace(fields[one.field], name=one.variable)) for one in self._fields()}

    def spectra(self, output, time_units):
        units = product_of_units(output.units, product_of_units(time_units, time_units))
        return (Output(f"{self.variable}_spectrum", (), units, f"{output.long_name}, by frequency"),)

    def by_frequency(self, domain, integrals):
        def passed(one: str, other: str) -> Any:
            (a, b), (c, d) = integrals[one], integrals[other]
            return 2 * (a * c + b * d)

        return {f"{self.variable}_spectrum": self._total(domain, passed)}

    def _total(self, domain: Domain, density: Callable[[str, str], Any]) -> Any:
        """The power, of a density by the names of two fields on planes."""
        parts = [
            one.total(domain, self.periodic, density(one.one.variable, one.other.variable)) for one in self.passages
        ]
        return sum(parts[1:], start=parts[0])

    def _fields(self) -> list[FieldOnPlane]:
        return [*{field.variable: field for one in self.passages for field in (one.one, one.other)}.values()]


def _side_of(crossing: Crossing) -> str:
    """The side of a box that a crossing is, as the end of a name."""
    return f"_{AXES[crossing.plane.axis]}_{ENDS[(crossing.sign + 1) // 2]}"
