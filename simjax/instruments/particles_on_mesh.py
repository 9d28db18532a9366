"""The instrument that reads properties of particles on a mesh."""

import functools
import itertools
import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, Grid
from simjax.instruments.instrument import Coordinate, Instrument, Layout
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Integer, key
from simjax.schema.model_schema import PARTICLES
from simjax.schema.site import PerAxis

MOST_CELLS = 4096
PROPERTIES = ("number_density", "velocity", "temperature")


@instrument("density", family=PARTICLES)
class OnMesh(Instrument):
    """A property of the particles on a mesh of `cells` over the box: `(cells along x, along y, ...)`.

    Each particle is shared linearly among the cells whose centres are around it; beyond the outermost centres of an
    axis with walls all of it is in the last cell. Particles outside of the box are in none. Hockney and Eastwood
    (1988), Computer Simulation Using Particles, sec. 5.3.
    """

    cells: eqx.AbstractVar[tuple[int, ...]]

    @dataclass(frozen=True)
    class Keys:
        """The mesh."""

        shape: tuple[int, ...] = key(PerAxis(Integer(1, MOST_CELLS), "numbers of cells"), about="cells by axis")

    noun = "properties"
    of_fields = False

    def shape(self, grid):
        return self.cells

    def sums(self, view, values):
        """Sums over particles of `values`, `(rows, particles)`, times their shares: `(rows, *cells)`."""
        grid, position = view.domain.grid, view.variables["position"]
        ndim, dtype = grid.ndim, position.dtype
        around, inside = [], jnp.ones(position.shape[1:], bool)
        for axis, n in enumerate(self.cells):
            share = (position[axis] - jnp.asarray(grid.lower[axis], dtype)) / jnp.asarray(grid.lengths[axis], dtype)
            inside &= (share >= 0) & (share <= 1)  # also not those that are no numbers
            place = jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 0) * n - 0.5
            below = jnp.floor(place)
            fraction, first = place - below, below.astype(jnp.int32)
            pair = []
            for cell, weight in ((first, 1 - fraction), (first + 1, fraction)):
                pair.append((jnp.mod(cell, n) if view.periodic[axis] else jnp.clip(cell, 0, n - 1), weight))
            around.append(pair)
        found = jnp.zeros((len(values), *self.cells), dtype)
        for corner in itertools.product((0, 1), repeat=ndim):
            chosen = [pair[k] for pair, k in zip(around, corner, strict=True)]
            weight = functools.reduce(jnp.multiply, (w for _, w in chosen))
            added = jnp.where(inside[None], weight[None] * values, 0)
            found = found.at[:, *(cell for cell, _ in chosen)].add(added)
        return found

    def layout(self, source, output, grid, units):
        mesh, found = Grid(self.cells, grid.lower, grid.upper), []
        for k in reversed(range(grid.ndim)):
            about = {"axis": AXES[k].upper(), "units": units, "long_name": f"{AXES[k]} of the cell centre"}
            found.append(Coordinate(AXES[k], (AXES[k],), mesh.coordinates(k, CENTER), about))
        return Layout(tuple(one.name for one in found), tuple(found))

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def names(cls, site):
        return PROPERTIES

    @classmethod
    def default_names(cls, site):
        return PROPERTIES[:1]

    @classmethod
    def readings(cls, source, written):
        vector = [f"mean_velocity_{axis}" for axis in AXES[: len(source.given["shape"])]]
        return {one: () for name in source.of for one in (vector if name == "velocity" else [name])}

    @classmethod
    def made(cls, source, run):
        cells, family, of = source.given["shape"], run.family, source.of
        varied = [one.path for one in run.config.ensemble.vary if one.path in family.mass_keys]
        if varied and "temperature" in of:
            raise ConfigurationError(
                f"outputs: {source.name} of temperature expects masses that are the same in all members, and "
                f"{varied[0]} varies; leave temperature out."
            )
        mass = family.mass(run.start_of)
        found: list[OnMesh] = [NumberDensity(cells=cells)] if "number_density" in of else []
        if "velocity" in of:
            names = [f"mean_velocity_{axis}" for axis in AXES[: len(cells)]]
            found += [MeshVelocity(cells=cells, axis=k, mass=mass, variable=name) for k, name in enumerate(names)]
        if "temperature" in of:
            found.append(MeshTemperature(cells=cells, mass=mass))
        about = {"number_density": "particles per volume", "temperature": "temperature of velocities about their mean"}
        texts = {one.variable: about.get(one.variable, one.variable.replace("_", " ")) for one in found}
        return {
            one.variable: (one, Output(one.variable, (), "1", f"{texts[one.variable]}, by clouds in cells"))
            for one in found
        }


class NumberDensity(OnMesh):
    """Particles per volume; see `OnMesh`."""

    cells: tuple[int, ...] = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="number_density")

    def read(self, view):
        position = view.variables["position"]
        count = self.sums(view, jnp.ones((1, position.shape[1]), position.dtype))[0]
        return count * (math.prod(self.cells) / math.prod(view.domain.grid.lengths))


class MeshVelocity(OnMesh):
    """A component of sum(m v) / sum(m), zero where no particle is; see `OnMesh`. mass: of every particle."""

    cells: tuple[int, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    mass: np.ndarray
    variable: str = eqx.field(static=True)

    def read(self, view):
        velocity = view.variables["velocity"][self.axis]
        mass = jnp.asarray(self.mass, velocity.dtype)
        total, momentum = self.sums(view, jnp.stack([mass, mass * velocity]))
        return _share_of(momentum, total)


class MeshTemperature(OnMesh):
    """sum(m (v - V)^2) / (d sum(1)) with V as `MeshVelocity` and d components of v: k T where particles move at random
    about V. Zero where no particle is, and where one is alone; see `OnMesh`. mass: of every particle.
    """

    cells: tuple[int, ...] = eqx.field(static=True)
    mass: np.ndarray
    variable: str = eqx.field(static=True, default="temperature")

    def read(self, view):
        velocity = view.variables["velocity"]
        mass = jnp.asarray(self.mass, velocity.dtype)
        # About the mean velocity of all: a common motion would leave few digits of the rest.
        v = velocity - (jnp.sum(mass[None] * velocity, axis=1) / jnp.sum(mass))[:, None]
        one, total, square, *momenta = self.sums(
            view, jnp.stack([jnp.ones_like(mass), mass, mass * jnp.sum(v**2, axis=0), *(mass[None] * v)])
        )
        ordered = sum((p * _share_of(p, total) for p in momenta), jnp.zeros_like(total))
        return _share_of(jnp.maximum(square - ordered, 0), len(v) * one)


def _share_of(part: Array, whole: Array) -> Array:
    """`part` / `whole`, zero where there is nothing."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)
