"""Plasmas of particles from a configuration."""

from __future__ import annotations

import abc
import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtri

from simjax.grid import CENTER, FACE, Grid
from simjax.models.capacities import room_in, steps_in
from simjax.models.formulas import Values
from simjax.models.particle_model import Files, ParticleFamily, standard_normals
from simjax.models.placement import Start, evenly, require_room, species_of
from simjax.models.plasma.electrostatic import ElectrostaticPlasma, Params
from simjax.models.plasma.keys import ChargedParticlesConfig, PlasmaParticlesConfig, fastest, of_each
from simjax.particles.cells import Cells
from simjax.particles.mesh import ParticleMesh

STRAY = 0.5  # mesh cells out of their cells: costs nothing with these nodes
NODES = {"cic": CENTER, "tsc": FACE}
FEW = 8  # particles in a mesh cell, below which two along each axis share their slots
MARGIN = 1.2  # of the fastest at the start, which the field makes faster


class ChargedFamily(ParticleFamily):
    """What plasmas on a periodic mesh have in common."""

    advice = "Try a smaller time.dt, or fewer physics.field_cells."
    on_mesh = True

    @property
    def _particles(self) -> ChargedParticlesConfig:
        particles = self.config.particles
        assert isinstance(particles, ChargedParticlesConfig)
        return particles

    @property
    @abc.abstractmethod
    def _components(self) -> int:
        """Of a velocity."""

    @abc.abstractmethod
    def _steps(self, cell: float) -> int:
        """Between two arrangements, with the least length of a mesh cell."""

    def start(self):
        require_room(self._particles.count)
        particles, bounds = self._particles, self.bounds
        lower, upper = np.asarray(bounds.lower)[:, None], np.asarray(bounds.upper)[:, None]
        species = species_of(particles.count, particles.fractions, self.config.seed)
        if particles.placement == "random":
            place = np.random.default_rng(self.config.seed).random((len(lower), particles.count))
            return Start(lower + place * (upper - lower), species)
        place = np.zeros((len(lower), particles.count))
        normal = np.zeros((self._components, particles.count))
        for kind in range(len(particles.fractions)):
            of_kind = species == kind
            even = evenly(int(of_kind.sum()), len(lower) + self._components)
            place[:, of_kind], normal[:, of_kind] = even[: len(lower)], ndtri(even[len(lower) :])
        return Start(lower + place * (upper - lower), species, {"normal": normal})

    def first_room(self, start, parameters, blocks):
        config, bounds, cells = self.config, self.bounds, self.config.physics.field_cells
        few = start.count < FEW * math.prod(cells)
        pairs = all(n % (2 * k) == 0 for n, k in zip(cells, blocks, strict=True))
        shape = tuple(n // 2 for n in cells) if few and pairs else cells
        cell = min((b - a) / n for a, b, n in zip(bounds.lower, bounds.upper, cells, strict=True))
        grid = Grid(shape, bounds.lower, bounds.upper)
        return room_in(config, grid, start.position, blocks, rows=0, steps=self._steps(cell))

    def mass(self, start):
        weight = self.config.physics.number_density * self.bounds.volume / start.count
        return weight * np.asarray(self._of_each(self.config.physics.mass))[start.species]

    def _of_each(self, given: tuple) -> tuple:
        return of_each(given, len(self._particles.fractions))

    def _finer(self, cells: Cells) -> int:
        """Mesh cells in a cell of the particles, along each axis."""
        return self.config.physics.field_cells[0] // cells.domain.grid.shape[0]

    def _charged(self, values: Values) -> tuple[Array, Array, Array, Array | None]:
        """Charge and mass of a particle of each species, permittivity, uniform magnetic field: parameters of models."""
        physics, dtype = self.config.physics, jnp.dtype(self.config.precision)
        weight = values["number_density"] * (self.bounds.volume / self._particles.count)
        charge, mass = (jnp.asarray(self._of_each(u), dtype) * weight for u in (physics.charge, physics.mass))
        magnetic = None if physics.magnetic_field is None else jnp.asarray(physics.magnetic_field, dtype)
        return charge, mass, values["permittivity"], magnetic

    def _warm(self, files: Files, member: Array) -> Array:
        """Velocities of species that do not drift, `(components, particles)`."""
        species, dtype = files["species"], files["position"].dtype
        normal = files.get("normal")
        if normal is None:
            normal = standard_normals(self.config, (self._components, self._particles.count), dtype, member)
        mass = jnp.asarray(self._of_each(self.config.physics.mass), dtype)
        thermal = jnp.sqrt(jnp.asarray(self._of_each(self._particles.temperature), dtype) / mass)
        return thermal[species][None] * normal

    def _disturbed(self, values: Values, place: Array) -> tuple[Array, Array]:
        """Where particles are, and what is added to their velocities, by the formulas of `initial`."""
        moving, displaced = (self.formula(name, values, place) for name in ("velocity", "displacement"))
        assert moving is not None and displaced is not None
        return place + displaced, moving


class PlasmaFamily(ChargedFamily):
    """Electrostatic plasmas."""

    seconds = (1e-7, 1e-9)
    shown = ("field_energy", "energy_drift")

    @property
    def _components(self):
        # A magnetic field turns it out of a plane.
        return self.config.ndim if self.config.physics.magnetic_field is None else 3

    def _steps(self, cell):
        config, speed = self.config, MARGIN * fastest(self.config)
        assert config.time.dt is not None
        # The field is formed half a step before the places that are looked at.
        return steps_in(config, STRAY * cell + 0.5 * speed * config.time.dt, speed)

    def model(self, cells, room, values):
        assignment = self.config.physics.assignment
        mesh = ParticleMesh(cells, self._finer(cells), assignment, (NODES[assignment],) * cells.ndim, STRAY)
        # Its domain is a property, which the checker of types takes for a field.
        model = ElectrostaticPlasma(mesh, room.steps)  # pyright: ignore[reportCallIssue]
        return model, Params(*self._charged(values))

    def state(self, model, params, values, files, member):
        particles, species = self._particles, files["species"]
        assert isinstance(particles, PlasmaParticlesConfig)
        place, moving = self._disturbed(values, files["position"])
        drift = jnp.asarray(self._of_each(particles.drift), place.dtype)
        velocity = self._warm(files, member)
        velocity = velocity.at[0].add(drift[species]).at[: len(moving)].add(moving)
        state, lost = model.state_from(place, velocity, species, params)
        return state, lost, jnp.zeros((), jnp.int32)
