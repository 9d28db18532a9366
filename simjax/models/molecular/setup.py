"""Molecular dynamics from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.capacities import room_of_pairs, steps_in
from simjax.models.formulas import Values
from simjax.models.molecular import molecular_dynamics
from simjax.models.molecular.bond_setup import build_bonds, chain_links
from simjax.models.molecular.chain_keys import longest_bond
from simjax.models.molecular.charge_setup import build_charges, build_electrostatics, check_neutral
from simjax.models.molecular.keys import ENDS
from simjax.models.molecular.langevin import BathParams, Brownian, Langevin
from simjax.models.molecular.nose_hoover import NoseHooverChain, ThermostatParams
from simjax.models.molecular.potential_setup import build_potential
from simjax.models.molecular.velocity_verlet import Dynamics, VelocityVerlet, fixed_momenta
from simjax.models.particle_model import ParticleFamily, standard_normals
from simjax.models.placement import Start
from simjax.particles.cells import Cells
from simjax.particles.neighbor_policy import Skin
from simjax.schema.config import Config
from simjax.schema.particles import ParticlesConfig

SKIN = 0.12  # of the cutoff


def _newton(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return VelocityVerlet(), None


def _bath(config: Config, values: Values) -> BathParams:
    return BathParams(values["bath_temperature"], values["friction"], jnp.asarray(config.seed, jnp.int32))


def _langevin(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return Langevin(), _bath(config, values)


def _brownian(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return Brownian(), _bath(config, values)


def _nose_hoover(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return NoseHooverChain(), ThermostatParams(values["bath_temperature"], values["period"])


DYNAMICS: dict[str, Callable[[Config, Values], tuple[Dynamics, Any]]] = {
    "nve": _newton, "langevin": _langevin, "nose_hoover": _nose_hoover, "brownian": _brownian,
}  # fmt: skip
"""Name -> `(config, values)` -> (dynamics, its parameters)."""


def _molecular_dynamics(config: Config, cells: Cells, skin: Skin, steps: int, values: Values):
    physics, particles = config.physics, config.particles
    assert isinstance(particles, ParticlesConfig)
    potential, parameters = build_potential(physics, values)
    dynamics, moved_by = DYNAMICS[physics.dynamics](config, values)
    mass = np.broadcast_to(np.asarray(physics.mass), len(particles.fractions))
    charged = physics.charge is not None
    bonds, of_bonds = build_bonds(physics, cells, skin, values) if particles.chain_length is not None else (None, None)
    # Its domain is a property, which the checker of types takes for a field.
    model = molecular_dynamics.MolecularDynamics(  # pyright: ignore[reportCallIssue]
        cells=cells, skin=skin, potential=potential, steps_per_arrangement=steps, dynamics=dynamics,
        bonds=bonds, electrostatics=build_electrostatics(physics, cells, skin) if charged else None,
        reflecting=physics.walls == "reflecting",
    )  # fmt: skip
    return model, molecular_dynamics.Params(
        parameters, jnp.asarray(mass, jnp.dtype(config.precision)), moved_by,
        bonds=of_bonds, charges=build_charges(physics, values) if charged else None,
    )  # fmt: skip


def _skin_length(config: Config) -> float:
    """The length by which listed pairs may be further apart than the cutoff."""
    cutoff, given = config.physics.cutoff, config.arrangement.skin
    # Bonds are looked for in the cells around.
    return max(SKIN * cutoff, longest_bond(config.physics) - cutoff) if given is None else given


class MolecularFamily(ParticleFamily):
    """Particles that interact with their neighbours, at constant energy or temperature."""

    units = "atom-steps/s"
    advice = "Try a smaller time.dt, or another start: a lattice, or a larger particles.distance."
    at_start = (
        "two particles may stand at the same place: check the file, or write particles.placement=random"
    )  # fmt: skip
    shown = ("temperature", "energy_drift")

    @property
    def on_mesh(self):
        return self.config.physics.charge is not None and self.config.physics.electrostatics == "mesh"

    def start(self) -> Start:
        start = super().start()
        if self.config.physics.charge is not None:
            check_neutral(self.config.physics, start)
        return start

    def first_room(self, start, parameters, blocks):
        config = self.config
        baths = (
            ("start_temperature",) if config.physics.dynamics == "nve" else ("start_temperature", "bath_temperature")
        )
        temperature = max(float(np.max(parameters[name])) for name in baths)
        # The largest of so many normal speeds.
        fastest = math.sqrt(temperature / min(config.physics.mass))
        fastest *= math.sqrt(2 * math.log(start.count + 1) + config.ndim)
        skin = _skin_length(config)
        return room_of_pairs(
            config, self.bounds, start.position, blocks, reach=config.physics.cutoff + skin,
            number_density=start.count / self.bounds.volume, steps=steps_in(config, skin / 2, fastest),
        )  # fmt: skip

    def mass(self, start):
        assert isinstance(self.config.particles, ParticlesConfig)
        mass = np.broadcast_to(np.asarray(self.config.physics.mass), len(self.config.particles.fractions))
        return mass[start.species]

    def charge(self, start):
        charge = self.config.physics.charge
        return None if charge is None else np.asarray(charge)[start.species]

    def model(self, cells, room, values):
        skin = Skin(self.config.physics.cutoff, _skin_length(self.config), room.rows, room.columns)
        return _molecular_dynamics(self.config, cells, skin, room.steps, values)

    def state(self, model, params, values, files, member):
        species, velocity = files["species"], files.get("velocity")
        if velocity is None:
            fixed = fixed_momenta(model.cells, model.reflecting)
            velocity = start_velocity(self.config, values, params.mass[species], member, fixed)
        particles = self.config.particles
        assert isinstance(particles, ParticlesConfig)
        links = None
        if particles.chain_length is not None:
            links = chain_links(len(species), particles.chain_length, self.config.physics.angle != "none")
        state, lost = model.state_from(files["position"], velocity, species, params, links)
        # Its diagnostics tell where there is too little room for pairs.
        return state, lost, jnp.zeros((), jnp.int32)

    def fewer(self, most):
        """A part of the box, as densely filled."""
        config, particles, bounds = self.config, self.config.particles, self.bounds
        assert isinstance(particles, ParticlesConfig) and config.box is not None
        density = particles.density if particles.density is not None else (particles.count or 0) / bounds.volume
        count = density * bounds.volume
        if particles.file is not None or count <= most:
            return config
        lengths = np.subtract(bounds.upper, bounds.lower)
        upper = np.add(bounds.lower, lengths * (most / count) ** (1 / len(lengths)))
        return dataclasses.replace(
            config, box=dataclasses.replace(config.box, upper=tuple(upper.tolist())),
            particles=dataclasses.replace(particles, count=None, density=density),
        )  # fmt: skip

    def smooth(self):
        physics = self.config.physics
        if physics.mode == "force_shifted" or physics.potential in ENDS:
            return super().smooth()
        told = f"with mode=force_shifted in place of {physics.mode}, whose force has a step at the cutoff"
        return dataclasses.replace(self.config, physics=dataclasses.replace(physics, mode="force_shifted")), told

    def differentiable(self, name, value):
        """At rest the speed of particles, a root of the temperature, has no derivative."""
        return name != "start_temperature" or value > 0


def start_velocity(config: Config, values: Values, mass: Array, member: Array | int, fixed: int) -> Array:
    """Velocities `(ndim, particles)` at random, of no total momentum and exactly the temperature.

    mass: `(particles,)`. fixed: along how many axes the total momentum stays, as `fixed_momenta`. A particle's velocity
    follows from the seed, the member and its number alone.
    """
    dtype, count, ndim = mass.dtype, mass.shape[0], config.ndim
    velocity = standard_normals(config, (ndim, count), dtype, member) / jnp.sqrt(mass)[None]
    velocity = velocity - (jnp.sum(mass[None] * velocity, axis=1) / jnp.sum(mass))[:, None]
    twice = jnp.sum(mass[None] * velocity**2)
    wanted = values["start_temperature"] * (ndim * count - fixed)
    warm = (wanted > 0) & (twice > 0)
    # At rest no derivative is formed: that of the root is infinite.
    ratio = jnp.where(warm, wanted, 1) / jnp.where(warm, twice, 1)
    return velocity * jnp.where(warm, jnp.sqrt(ratio), 0)
