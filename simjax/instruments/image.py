"""An instrument that sees a field on a grid of its own, such as the pixels of a picture."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.instrument import FieldInstrument
from simjax.instruments.places import beside
from simjax.instruments.sampling import corners, require_axes


class Image(FieldInstrument):
    """The field at every point of a grid of its own, by multilinear interpolation: (points along x, along y, ...).

    lines: positions along each axis, in units of the domain and in any order; of a plane a single one across it.
    Between the outermost values and a wall the interpolation goes on linearly. Second order.
    """

    variable: str = eqx.field(static=True)
    lines: tuple[tuple[float, ...], ...] = eqx.field(static=True)

    def __init__(self, variable: str, lines):
        self.variable = variable
        self.lines = tuple(tuple(np.asarray(line, np.float64).tolist()) for line in lines)

    def measure(self, domain, field, offset, periodic):
        grid = domain.grid
        require_axes("periodic", periodic, grid.ndim)
        for axis, line in enumerate(self.lines):
            at = beside(domain, axis, np.asarray(line), offset[axis], periodic[axis], field.dtype)
            along = tuple(-1 if k == axis else 1 for k in range(grid.ndim))
            # Selected before it is weighted, so that a NaN elsewhere in this block stays there.
            below, above = (
                weight.reshape(along) * jnp.where(inside.reshape(along), jnp.take(field, cell, axis), 0)
                for cell, weight, inside in corners(domain, axis, *at, periodic[axis])
            )
            field = below + above
        return domain.total(field)

    def check(self, grid):
        if len(self.lines) != grid.ndim:
            raise ConfigurationError(
                f"Image of '{self.variable}' has lines along {len(self.lines)} axes for a grid of {grid.ndim}; write "
                f"positions along {', '.join(AXES[: grid.ndim])}."
            )
        for axis, line in enumerate(self.lines):
            outside = [x for x in line if not grid.lower[axis] <= x <= grid.upper[axis]]
            if outside:
                raise ConfigurationError(
                    f"Image of '{self.variable}' has {AXES[axis]}={outside[0]:g} outside of the domain; cut it to "
                    f"{grid.lower[axis]:g} <= {AXES[axis]} <= {grid.upper[axis]:g}."
                )

    def shape(self, grid):
        return tuple(len(line) for line in self.lines)
