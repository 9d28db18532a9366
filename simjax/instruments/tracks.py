"""Instruments that follow particles by their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.instruments.instrument import Coordinate, Instrument, Layout
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Integer, ListOf, key
from simjax.schema.model_schema import PARTICLES

MOST_TRACKS = 100_000


@instrument("tracks", family=PARTICLES)
class Tracks(Instrument):
    """A vector of the particles with these numbers: `(axes, particles)`; positions go on beyond the box."""

    variable: str = eqx.field(static=True)
    ids: tuple[int, ...] = eqx.field(static=True)
    lengths: tuple[float, ...] = eqx.field(static=True)

    @dataclass(frozen=True)
    class Keys:
        """The particles."""

        ids: tuple[int, ...] = key(ListOf(Integer(0), 1, MOST_TRACKS, noun="numbers"), about="numbers of particles")

    of_fields = False

    def read(self, view):
        chosen = np.asarray(self.ids)
        u = view.variables[self.variable][..., chosen]
        if self.variable != "position":
            return u
        return u + jnp.asarray(self.lengths, u.dtype)[:, None] * view.variables["image"][..., chosen].astype(u.dtype)

    def shape(self, grid):
        return (grid.ndim, len(self.ids))

    def layout(self, source, output, grid, units):
        return particle_layout(self.ids, grid.ndim)

    @classmethod
    def readings(cls, source, written):
        return {"position": (), "velocity": ()}

    @classmethod
    def made(cls, source, run):
        ids = source.given["ids"]
        if max(ids) >= run.size:
            raise ConfigurationError(
                f"outputs: {source.name} has ids with {max(ids)}: expected numbers from 0 to {run.size - 1}, as there "
                f"are {run.size} particles."
            )
        about = {"position": "place, beyond the box where it went on", "velocity": "velocity"}
        return {
            name: (cls(name, ids, run.domain.grid.lengths), Output(name, (), "1", text))
            for name, text in about.items()
            if name in run.variable_names
        }


@instrument("mean_square_displacement", family=PARTICLES)
class MeanSquareDisplacement(Instrument):
    """The mean over particles of the squared distance from where each started, beyond the box where it went on."""

    lengths: tuple[float, ...] = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="mean_square_displacement")

    fitted, of_fields = False, False

    def read(self, view):
        u = view.variables["position"]
        assert view.start is not None
        lengths = jnp.asarray(self.lengths, u.dtype)[:, None]
        # The differences first: they are small against positions far outside.
        moved = u - view.start.astype(u.dtype) + lengths * view.variables["image"].astype(u.dtype)
        return jnp.mean(jnp.sum(moved**2, axis=0))

    @classmethod
    def readings(cls, source, written):
        return {"mean_square_displacement": ()}

    @classmethod
    def made(cls, source, run):
        about = "mean over particles of the squared distance from where each started"
        operator = cls(lengths=run.domain.grid.lengths)
        return {operator.variable: (operator, Output(operator.variable, (), "1", about))}


def particle_layout(ids: Sequence[int], components: int) -> Layout:
    """The dimensions of what particles with these numbers have; components: of a vector, 0 of a number."""
    numbers = {"long_name": "number of the particle", "units": "1"}
    along = Coordinate("particle", ("particle",), np.asarray(ids, "i8"), numbers)
    if not components:
        return Layout(("particle",), (along,))
    axes = {"long_name": "axis of space", "units": "1"}
    space = Coordinate("space", ("space",), np.arange(components, dtype="i4"), axes)
    return Layout(("particle", "space"), (along, space))
