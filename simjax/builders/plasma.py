"""Plasmas of particles from a configuration."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from simjax.builders.particle_family import ParticleFamily, standard_normals
from simjax.builders.placement import Start, evenly, species_of
from simjax.builders.room import room_in, steps_in
from simjax.config.families.plasma import PlasmaParticlesConfig, fastest, of_each
from simjax.core.grid import CENTER, FACE, Grid
from simjax.models.particle_in_cell import ElectrostaticPlasma, Params
from simjax.particles.mesh import ParticleMesh

STRAY = 0.5  # mesh cells out of their cells: costs nothing with these nodes
NODES = {"cic": CENTER, "tsc": FACE}
FEW = 8  # particles in a mesh cell, below which two along each axis share their slots
MARGIN = 1.2  # of the fastest at the start, which the field makes faster


class PlasmaFamily(ParticleFamily):
    """Electrostatic plasmas on a periodic mesh."""

    seconds = (1e-7, 1e-9)
    advice = "Try a smaller time.dt, or fewer physics.field_cells."
    on_mesh = True
    shown = ("field_energy", "energy_drift")

    @property
    def _particles(self) -> PlasmaParticlesConfig:
        particles = self.config.particles
        assert isinstance(particles, PlasmaParticlesConfig)
        return particles

    @property
    def _components(self) -> int:
        """Of a velocity: a magnetic field turns it out of a plane."""
        return self.config.ndim if self.config.physics.magnetic_field is None else 3

    def start(self):
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
        assert config.time.dt is not None
        speed = MARGIN * fastest(config)
        # The field is formed half a step before the places that are looked at.
        steps = steps_in(config, STRAY * cell + 0.5 * speed * config.time.dt, speed)
        return room_in(config, Grid(shape, bounds.lower, bounds.upper), start.position, blocks, rows=0, steps=steps)

    def mass(self, start):
        weight = self.config.physics.number_density * self.bounds.volume / start.count
        return weight * np.asarray(self._of_each(self.config.physics.mass))[start.species]

    def _of_each(self, given: tuple[float, ...]) -> tuple[float, ...]:
        return of_each(given, len(self._particles.fractions))

    def model(self, cells, room, values):
        physics, dtype = self.config.physics, jnp.dtype(self.config.precision)
        offset = (NODES[physics.assignment],) * cells.ndim
        mesh = ParticleMesh(cells, physics.field_cells[0] // room.cells[0], physics.assignment, offset, STRAY)
        weight = values["number_density"] * (self.bounds.volume / self._particles.count)
        charge, mass = (jnp.asarray(self._of_each(u), dtype) * weight for u in (physics.charge, physics.mass))
        magnetic = None if physics.magnetic_field is None else jnp.asarray(physics.magnetic_field, dtype)
        # Its domain is a property, which the checker of types takes for a field.
        model = ElectrostaticPlasma(mesh, room.steps)  # pyright: ignore[reportCallIssue]
        return model, Params(charge, mass, values["permittivity"], magnetic)

    def state(self, model, params, values, files, member):
        particles, species, place = self._particles, files["species"], files["position"]
        dtype = place.dtype
        normal = files.get("normal")
        if normal is None:
            normal = standard_normals(self.config, (self._components, particles.count), dtype, member)
        mass = jnp.asarray(self._of_each(self.config.physics.mass), dtype)
        thermal = jnp.sqrt(jnp.asarray(self._of_each(particles.temperature), dtype) / mass)
        drift = jnp.asarray(self._of_each(particles.drift), dtype)
        moving, displaced = (self.formula(name, values, place) for name in ("velocity", "displacement"))
        assert moving is not None and displaced is not None
        velocity = thermal[species][None] * normal
        velocity = velocity.at[0].add(drift[species]).at[: len(moving)].add(moving)
        state, lost = model.state_from(place + displaced, velocity, species, params)
        return state, lost, jnp.zeros((), jnp.int32)
