"""Molecular dynamics from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.capacities import capacities_of_pairs, steps_in
from simjax.models.formulas import Values
from simjax.models.measures import of_particles
from simjax.models.molecular import molecular_dynamics
from simjax.models.molecular.bond_setup import build_bonds, check_bonds, links_of, longest_bond
from simjax.models.molecular.charge_setup import (
    ChargeKeys,
    build_charges,
    build_electrostatics,
    check_charges,
    check_neutral,
)
from simjax.models.molecular.interaction import Interaction
from simjax.models.molecular.molecules_of_file import start_from_file
from simjax.models.molecular.pair_potentials import ENDINGS, PairPotential
from simjax.models.molecular.part_registry import ANGLES, BONDS, POTENTIALS, THERMOSTATS
from simjax.models.molecular.velocity_verlet import Dynamics, VelocityVerlet, fixed_momenta
from simjax.models.particle_model import ParticleFamily, particle_model, standard_normals
from simjax.models.placement import Start, place
from simjax.particles.cells import Cells
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.config import Config
from simjax.schema.kinds import Choice, ListOf, Nested, Real, key
from simjax.schema.particles import ParticlesConfig, check_beside
from simjax.schema.parts import Chosen, PartOf, PartSetup, part_places


@dataclass(frozen=True)
class MolecularDynamicsPhysics:
    """m_i d^2 x_i/dt^2 = -dU/dx_i, U a sum over pairs nearer than the cutoff."""

    potential: Chosen = key(
        PartOf(POTENTIALS), POTENTIALS.chosen("lennard_jones"), about="potential between particles nearer than cutoff"
    )
    mode: str = key(Choice(("truncated", *ENDINGS)), "truncated", about="what stays continuous at the cutoff")
    cutoff: float = key(Real(above=0.0), 2.5, about="distance beyond which pairs do not act, a length", fixed=True)
    thermostat: Chosen | None = key(
        PartOf(THERMOSTATS, optional=True),
        None,
        about="bath of a given temperature; null: constant energy; brownian: overdamped, velocities stay",
    )
    mass: tuple[float, ...] = key(
        ListOf(Real(above=0.0), 1, 100, noun="masses, one per species"), (1.0,), about="mass of a particle"
    )
    walls: str = key(
        Choice(("open", "reflecting")),
        "open",
        about="ends of axes that are not periodic; open: a particle that leaves is an error",
    )
    bond: Chosen | None = key(
        PartOf(BONDS, optional=True),
        None,
        about="potential between neighbours in chains of particles.chain_length, or of the bonds in particles.file, "
        "which leave each other out of potential; null: no bonds",
    )
    angle: Chosen | None = key(
        PartOf(ANGLES, optional=True), None, about="potential of the angle between two bonds; null: none"
    )
    charges: ChargeKeys | None = key(
        Nested(ChargeKeys, optional=True),
        None,
        about="charges that act as constant q_i q_j / r, with all images; null: none",
    )


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences of any model of particles, and about lists that have one entry per species."""
    physics = config.physics
    yield from check_beside(config)
    mass, species = physics.mass, len(config.particles.fractions)
    if len(mass) not in (1, species):
        yield "physics.mass", f"physics.mass = {list(mass)}: expected 1 or {species} number(s), one per species"
    if physics.walls == "reflecting" and all(config.box.periodic):
        yield (
            "physics.walls",
            "physics.walls = reflecting: expected an axis that is not periodic; write box.periodic with false for it",
        )
    for key_of_part in part_places(type(physics)):
        chosen = getattr(physics, key_of_part)
        if chosen is not None:
            yield from chosen.part.check(chosen.keys, f"physics.{key_of_part}.{chosen.name}", config)
    yield from _check_end(physics)
    if physics.charges is not None:
        yield from check_charges(config)
    yield from check_bonds(config)


def _check_end(physics: MolecularDynamicsPhysics) -> Iterator[tuple[str, str]]:
    """A cutoff that does not suit a potential which ends by itself, or is not of pairs."""
    name, end = physics.potential.name, _end(physics)
    pairs = issubclass(physics.potential.part, PairPotential)
    if physics.mode != "truncated" and (end is not None or not pairs):
        why = "is smooth where it ends" if end is not None else "is not of pairs"
        yield "physics.mode", f"physics.mode = {physics.mode}: expected truncated for a potential {name}, which {why}"
    if end is not None and physics.cutoff < end * (1 - 1e-9):
        yield (
            "physics.cutoff",
            f"physics.cutoff = {physics.cutoff:g}: a potential {name} reaches {end:g}; write that or more",
        )


def _end(physics: MolecularDynamicsPhysics) -> float | None:
    """Distance at which the potential ends smoothly by itself, if it does."""
    potential = physics.potential.part
    assert issubclass(potential, Interaction)
    return potential.end(physics.potential.keys)


def _steady(config: Any) -> tuple[str, ...]:
    """Without a thermostat the energy, and in a periodic box the momentum."""
    if config.physics.thermostat is not None:
        return ()
    return ("energy", "momentum") if all(config.box.periodic) else ("energy",)


def build_potential(config: Config, values: Values) -> tuple[Interaction, Any]:
    """The potential of a configuration, ended at its cutoff as that says, and its parameters."""
    potential, parameters = PartSetup(config, "potential", values).built()
    if config.physics.mode != "truncated":
        potential = ENDINGS[config.physics.mode](potential=potential, cutoff=config.physics.cutoff)
    return potential, parameters


def build_dynamics(config: Config, values: Values) -> tuple[Dynamics, Any]:
    """The dynamics of a configuration and its parameters: Newton's where there is no thermostat."""
    dynamics, parameters = PartSetup(config, "thermostat", values).built()
    return dynamics or VelocityVerlet(), parameters


SKIN = 0.12  # of the cutoff
MOVED = 0.1  # of the spacing of particles: how far those of a solid move before it melts (Lindemann 1910)


def _molecular_dynamics(config: Config, cells: Cells, skin: NeighborPolicy, steps: int, values: Values):
    physics, particles = config.physics, config.particles
    assert isinstance(particles, ParticlesConfig)
    potential, parameters = build_potential(config, values)
    dynamics, moved_by = build_dynamics(config, values)
    mass = np.broadcast_to(np.asarray(physics.mass), len(particles.fractions))
    charged = physics.charges is not None
    bonds, of_bonds = build_bonds(config, cells, skin, values) if physics.bond is not None else (None, None)
    # Its domain is a property, which the checker of types takes for a field.
    model = molecular_dynamics.MolecularDynamics(  # pyright: ignore[reportCallIssue]
        cells=cells,
        skin=skin,
        potential=potential,
        steps_per_arrangement=steps,
        dynamics=dynamics,
        bonds=bonds,
        electrostatics=build_electrostatics(physics, cells, skin) if charged else None,
        reflecting=physics.walls == "reflecting",
    )
    return model, molecular_dynamics.Params(
        parameters,
        jnp.asarray(mass, jnp.dtype(config.precision)),
        moved_by,
        bonds=of_bonds,
        charges=build_charges(physics, values) if charged else None,
    )


def _skin_length(config: Config) -> float:
    """The length by which listed pairs may be further apart than the cutoff."""
    cutoff, given = config.physics.cutoff, config.neighbor_list.skin
    # Bonds are looked for in the cells around.
    return max(SKIN * cutoff, longest_bond(config.physics) - cutoff) if given is None else given


@particle_model(
    "molecular_dynamics",
    fields=(),
    least_axes=2,
    check=_check,
    balanced=lambda ndim, counts: molecular_dynamics.conserved_names(ndim),
    given_at_start=("position", "velocity"),
)
class MolecularFamily(ParticleFamily):
    """Particles that interact with their neighbours, at constant energy or temperature."""

    Keys = MolecularDynamicsPhysics
    Section = ParticlesConfig

    units = "atom-steps/s"
    advice = "Try a smaller time.dt, or another start: a lattice, or a larger particles.distance."
    at_start = "two particles may stand at the same place: check the file, or write particles.placement=random"

    @property
    def measures(self):
        thermostat = self.config.physics.thermostat
        kept = getattr(thermostat.part, "conserves", "") if thermostat else ""
        energy = {kept: kept.replace("_", " ")} if kept else {"energy": "energy"}
        shown = {"temperature": "temperature", **energy, "potential_energy": "potential energy"}
        return of_particles(shown, (kept,) if kept else _steady(self.config))

    @property
    def on_mesh(self):
        charges = self.config.physics.charges
        return charges is not None and charges.method == "mesh"

    def start(self) -> Start:
        physics, particles = self.config.physics, self.config.particles
        assert isinstance(particles, ParticlesConfig)
        if particles.file is not None:
            start = start_from_file(self.config)
        else:
            start = place(self.config, 1.0 if physics.bond is None else physics.bond.part.natural(physics.bond.keys))
        if physics.charges is not None:
            check_neutral(physics.charges, start)
        return start

    def first_capacities(self, start, parameters, blocks):
        config = self.config
        baths = ("start_temperature", "thermostat_temperature")
        temperature = max(float(np.max(parameters[name])) for name in baths if name in parameters)
        # The largest of so many normal speeds.
        fastest = math.sqrt(temperature / min(config.physics.mass))
        fastest *= math.sqrt(2 * math.log(start.count + 1) + config.ndim)
        skin = _skin_length(config)
        return capacities_of_pairs(
            config,
            self.bounds,
            start.position,
            blocks,
            reach=config.physics.cutoff + skin,
            number_density=start.count / self.bounds.volume,
            steps=steps_in(config, skin / 2, fastest),
        )

    def diameters(self):
        potential = self.config.physics.potential
        return potential.part.diameters(potential.keys)

    def mass(self, start):
        assert isinstance(self.config.particles, ParticlesConfig)
        mass = np.broadcast_to(np.asarray(self.config.physics.mass), len(self.config.particles.fractions))
        return mass[start.species]

    def charge(self, start):
        charges = self.config.physics.charges
        return None if charges is None else np.asarray(charges.species)[start.species]

    def energy_of_jumps(self, parameters):
        """That of pairs in a shell at the cutoff, as thick as particles of a solid move: all may pass it one way.

        Each gains or loses U(cutoff) there, and no force acts.
        """
        physics, particles, bounds = self.config.physics, self.config.particles, self.bounds
        assert isinstance(particles, ParticlesConfig)
        count = self.start().count
        pairs = issubclass(physics.potential.part, PairPotential)
        if physics.mode != "truncated" or not pairs or _end(physics) is not None:
            return 0.0
        largest = {name: np.float32(np.max(value)) for name, value in parameters.items()}

        @jax.jit  # one program, not one for each operation
        def largest_jump(numbers):
            potential, inner = build_potential(self.config, numbers)
            assert isinstance(potential, PairPotential)
            kinds = jnp.arange(len(particles.fractions), dtype=jnp.int32)
            here, there = jnp.meshgrid(kinds, kinds, indexing="ij")
            square = jnp.full(here.shape, physics.cutoff**2, jnp.float32)
            return jnp.max(jnp.abs(potential.energy(square, here, there, inner)))

        jump = float(largest_jump(largest))
        ndim, density = len(bounds.lower), count / bounds.volume
        surface = 2 * math.pi ** (ndim / 2) / math.gamma(ndim / 2) * physics.cutoff ** (ndim - 1)
        return jump * count / 2 * density * surface * MOVED * density ** (-1 / ndim)

    def model(self, cells, capacities, values):
        skin = NeighborPolicy(
            self.config.physics.cutoff, _skin_length(self.config), capacities.max_neighbors, capacities.max_particles
        )
        return _molecular_dynamics(self.config, cells, skin, capacities.rebuild_every, values)

    def state(self, model, params, values, files, member):
        species, velocity = files["species"], files.get("velocity")
        if velocity is None:
            fixed = fixed_momenta(model.cells, model.reflecting)
            velocity = start_velocity(self.config, values, params.mass[species], member, fixed)
        state, lost = model.state_from(files["position"], velocity, species, params, links_of(self.config, files))
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
            config,
            box=dataclasses.replace(config.box, upper=tuple(upper.tolist())),
            particles=dataclasses.replace(particles, count=None, density=density),
        )

    def smooth(self):
        physics = self.config.physics
        if physics.mode == "force_shifted" or _end(physics) is not None:
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
