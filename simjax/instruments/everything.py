"""The instruments that leave nothing out: every cell of a field, every particle."""

import equinox as eqx
import jax.numpy as jnp

from simjax.core.model import Output
from simjax.instruments.cell_places import cell_coordinates
from simjax.instruments.instrument import FieldInstrument, Instrument, Layout
from simjax.instruments.tracks import particle_layout
from simjax.particles.diffusion import closest_images
from simjax.schema.instrument_declarations import OF, instrument
from simjax.schema.model_schema import PARTICLES


@instrument("fields")
class Snapshot(FieldInstrument):
    """The field itself, every cell of it, cut over devices like the grid."""

    variable: str = eqx.field(static=True)

    at_kind = OF
    whole = True

    def measure(self, domain, field, offset, periodic):
        return field

    def shape(self, grid):
        return grid.shape

    def spec(self, domain):
        return domain.spec()

    @classmethod
    def along_cells(cls, source, ndim):
        return tuple(range(ndim))

    def layout(self, source, output, grid, units):
        return Layout(*cell_coordinates(grid, output, range(grid.ndim), units))


@instrument("particles", family=PARTICLES)
class EveryParticle(Instrument):
    """A variable of all particles by their numbers: `(particles,)`, of a vector `(axes, particles)`.

    Positions go on beyond the box where a particle passes through it; those that were measured may lie in any image.
    """

    variable: str = eqx.field(static=True)
    values: tuple[int, ...] = eqx.field(static=True)
    lengths: tuple[float, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    at_kind = OF
    of_fields = False

    def read(self, view):
        u = view.variables[self.variable]
        if self.variable != "position":
            return u
        return u + jnp.asarray(self.lengths, u.dtype)[:, None] * view.variables["image"].astype(u.dtype)

    def shape(self, grid):
        return self.values

    def nearest(self, measured, reading):
        return (
            closest_images(self.lengths, self.periodic, measured, reading) if self.variable == "position" else measured
        )

    def layout(self, source, output, grid, units):
        return particle_layout(range(self.values[-1]), grid.ndim if len(self.values) > 1 else 0)

    @classmethod
    def names(cls, site):
        # Counts of crossed periods have no errors; positions go on by them.
        return [name for name in site.written if name != "image"]

    @classmethod
    def readings(cls, source, written):
        return {name: () for name in source.of}

    @classmethod
    def made(cls, source, run):
        lead, shapes = int(run.members is not None), run.seen_shapes[0]
        lengths, periodic = run.domain.grid.lengths, run.family.bounds.periodic
        return {
            name: (cls(name, shapes[name].shape[lead:], lengths, periodic), Output(name, (), "1", name))
            for name in source.of
        }
