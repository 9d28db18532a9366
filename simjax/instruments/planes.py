"""The instrument that reads a field in a plane across an axis."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, place_attributes
from simjax.instruments.cell_places import cell_coordinates
from simjax.instruments.instrument import Coordinate, FieldInstrument, Layout
from simjax.instruments.places import beside
from simjax.instruments.sampling import corners
from simjax.schema.instrument_declarations import instrument
from simjax.schema.site import PlaceAlong


@instrument("slice")
class Slice(FieldInstrument):
    """The field in the plane across `axis` at `position`, in units of the domain, cut over devices along the others.

    Between values it is interpolated linearly; between the outermost ones and a wall the line goes on. Second order.
    """

    variable: str = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    position: float = eqx.field(static=True)

    at_given_places = True

    def measure(self, domain, field, offset, periodic):
        grid, axis = domain.grid, self.axis
        at = beside(domain, axis, np.asarray(self.position), offset[axis], periodic[axis], field.dtype)
        plane = jnp.zeros((), field.dtype)
        for cell, weight, inside in corners(domain, axis, *at, periodic[axis]):
            line = lax.dynamic_index_in_dim(field, cell, axis, keepdims=False)
            # Selected before it is weighted, so that a NaN elsewhere in this block stays there.
            plane = plane + weight * jnp.where(inside, line, 0)
        # Summed over the devices along the axis alone: the other axes stay cut.
        along = Domain(grid, [entry if k == axis else None for k, entry in enumerate(domain.split)])
        return along.total(plane)

    def check(self, grid):
        if not grid.lower[self.axis] <= self.position <= grid.upper[self.axis]:
            raise ConfigurationError(
                f"Slice.position={self.position:g} of '{self.variable}' lies outside of the domain; write a position "
                f"with {grid.lower[self.axis]:g} <= {AXES[self.axis]} <= {grid.upper[self.axis]:g}."
            )

    def shape(self, grid):
        return tuple(n for axis, n in enumerate(grid.shape) if axis != self.axis)

    def spec(self, domain):
        return PartitionSpec(*(name for axis, name in enumerate(domain.spec()) if axis != self.axis))

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def keys_for(cls, given, site):
        if site.ndim == 1:
            return "a grid of 2 or 3 axes; look at one of 1 with line"
        if len(given) != 1 and given.keys() <= {*site.axes}:
            return "one axis and where it is cut, such as {z: 0.5}"
        known = [axis for axis in site.axes if axis in given] or site.axes
        return {axis: PlaceAlong(axis, site) for axis in known}

    @classmethod
    def along_cells(cls, source, ndim):
        return tuple(axis for axis in range(ndim) if AXES[axis] not in source.given)

    @classmethod
    def made(cls, source, run):
        ((axis, position),) = source.given.items()
        return {one.name: (cls(one.name, AXES.index(axis), position), one) for one in cls.seen(source, run)}

    def layout(self, source, output, grid, units):
        dims, along = cell_coordinates(grid, output, self.along_cells(source, grid.ndim), units)
        about = {"units": units, **place_attributes(grid, self.axis, "plane")}
        return Layout(dims, (*along, Coordinate(AXES[self.axis], (), np.asarray(self.position), about)))
