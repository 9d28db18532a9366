"""Molecular dynamics from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.capacities import room_of_pairs, steps_in
from simjax.models.formulas import Values
from simjax.models.molecular import molecular_dynamics
from simjax.models.molecular.bond_setup import build_bonds, chain_links, check_chains, longest_bond, natural_bond
from simjax.models.molecular.charge_setup import build_charges, build_electrostatics, check_charges, check_neutral
from simjax.models.molecular.langevin import BathParams, Brownian, Langevin
from simjax.models.molecular.nose_hoover import NoseHooverChain, ThermostatParams
from simjax.models.molecular.potential_setup import build_potential
from simjax.models.molecular.velocity_verlet import Dynamics, VelocityVerlet, fixed_momenta
from simjax.models.particle_model import ParticleFamily, particle_model, standard_normals
from simjax.models.placement import Start, place
from simjax.particles.cells import Cells
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.config import Config
from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Real, key
from simjax.schema.particles import ParticlesConfig, check_beside, left_over

_MIXED = {"epsilon", "sigma", "species_epsilon", "species_sigma", "cross_epsilon", "cross_sigma"}
USED: dict[str, set[str]] = {
    "lennard_jones": _MIXED,
    "weeks_chandler_andersen": _MIXED,
    "soft_sphere": _MIXED | {"power"},
    "morse": {"epsilon", "steepness", "bond_length"},
    "yukawa": {"strength", "screening"},
    "stillinger_weber": {"epsilon", "sigma", "tetrahedrality"},
}
"""Potential -> the keys that it has."""
MIXED = tuple(name for name, keys in USED.items() if keys >= _MIXED)
"""Potentials of pairs with epsilon and sigma."""
OF_POTENTIALS = set[str]().union(*USED.values())
ENDS = {"weeks_chandler_andersen": 2 ** (1 / 6), "stillinger_weber": 1.8}
"""Potential that ends smoothly by itself -> where, in units of sigma."""


@dataclass(frozen=True)
class MolecularDynamicsPhysics:
    """m_i d^2 x_i/dt^2 = -dU/dx_i, U a sum over pairs nearer than the cutoff.

    Keys that the chosen potential has not are refused.
    """

    potential: str = key(Choice(tuple(USED)), "lennard_jones")
    epsilon: float = key(Real(low=0.0), 1.0, about="depth or scale of the potential, an energy")
    sigma: float = key(Real(above=0.0), 1.0, about="scale of distances, a length: where lennard_jones vanishes")
    power: int = key(Integer(1, 100), 12, about="of soft_sphere: epsilon (sigma / r)^power")
    steepness: float = key(Real(above=0.0), 6.0, about="a of morse: epsilon ((1 - exp(-a (r - r_0)))^2 - 1), 1/length")
    bond_length: float = key(Real(above=0.0), 1.0, about="r_0 of morse, a length")
    strength: float = key(Real(), 1.0, about="of yukawa: strength exp(-screening r) / r, energy times length")
    screening: float = key(Real(low=0.0), 1.0, about="of yukawa, 1/length")
    tetrahedrality: float = key(Real(low=0.0), 21.0, about="of stillinger_weber: lambda, 21 for silicon")
    species_epsilon: tuple[float, ...] | None = key(
        ListOf(Real(low=0.0), 1, 100, optional=True, noun="numbers, one per species"),
        None,
        about="of each species with itself, in units of epsilon; null: alike",
    )
    species_sigma: tuple[float, ...] | None = key(
        ListOf(Real(above=0.0), 1, 100, optional=True, noun="numbers, one per species"),
        None,
        about="of each species with itself, in units of sigma; null: alike",
    )
    cross_epsilon: tuple[float, ...] | None = key(
        ListOf(Real(low=0.0), 1, 4950, optional=True, noun="numbers, one per pair of species"),
        None,
        about="of unlike species 01, 02, ..., 12, ..., in units of epsilon; null: geometric means",
    )
    cross_sigma: tuple[float, ...] | None = key(
        ListOf(Real(above=0.0), 1, 4950, optional=True, noun="numbers, one per pair of species"), None,
        about="of unlike species, in units of sigma; null: means",
    )  # fmt: skip
    mode: str = key(
        Choice(("truncated", "shifted", "force_shifted")), "truncated", about="what stays continuous at the cutoff"
    )
    cutoff: float = key(Real(above=0.0), 2.5, about="a length", fixed=True)
    dynamics: str = key(
        Choice(("nve", "langevin", "nose_hoover", "brownian")), "nve",
        about="nve: at constant energy; else at constant temperature; brownian: overdamped, velocities stay",
    )  # fmt: skip
    bath_temperature: float = key(Real(above=0.0), 1.0, about="of a thermostat, in units of energy")
    friction: float = key(Real(above=0.0), 1.0, about="of langevin and brownian, 1/time")
    period: float = key(Real(above=0.0), 0.5, about="in which nose_hoover responds, a time")
    mass: tuple[float, ...] = key(ListOf(Real(above=0.0), 1, 100, noun="masses, one per species"), (1.0,))
    walls: str = key(
        Choice(("open", "reflecting")), "open",
        about="of axes that are not periodic; open: a particle that leaves is an error",
    )  # fmt: skip
    bond: str = key(
        Choice(("none", "fene", "harmonic")), "none",
        about="between neighbours in chains of particles.chain_length, which leave each other out of the potential",
    )  # fmt: skip
    bond_stiffness: float = key(
        Real(above=0.0), 30.0, about="k of fene, -k R_0^2 ln(1 - (r / R_0)^2) / 2 with WCA, or of k (r - r_0)^2 / 2"
    )
    bond_extension: float = key(Real(above=0.0), 1.5, about="R_0 of fene, a length that no bond reaches")
    bond_rest_length: float = key(Real(above=0.0), 1.0, about="r_0 of harmonic bonds, a length")
    angle: str = key(
        Choice(("none", "bending", "harmonic")), "none",
        about="of two bonds; bending: k (1 + cos theta); harmonic: k (theta - theta_0)^2 / 2",
    )  # fmt: skip
    angle_stiffness: float = key(Real(low=0.0), 1.0, about="k of angles, an energy")
    rest_angle: float = key(
        Real(low=0.0, high=math.pi, formula=True), math.pi, about="theta_0 of harmonic, in radians"
    )  # fmt: skip
    charge: tuple[float, ...] | None = key(
        ListOf(Real(), 1, 100, optional=True, noun="charges, one per species"), None, about="null: none"
    )
    coulomb_constant: float = key(
        Real(above=0.0), 1.0, about="1 / (4 pi eps): charges attract as coulomb_constant q_i q_j / r, with all images"
    )
    electrostatics: str = key(
        Choice(("mesh", "ewald")), "mesh", about="of charges beyond the cutoff; ewald: wave by wave, for small boxes"
    )
    ewald_tolerance: float = key(
        Real(1e-12, 0.1), 1e-3, about="erfc(alpha cutoff); waves and mesh are as fine as that asks for", fixed=True
    )
    background: bool = key(Flag(), False, about="whether a uniform one may neutralise a net charge")


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences of any model of particles, and about lists that have one entry per species."""
    yield from check_beside(config)
    mass, species = config.physics.mass, len(config.particles.fractions)
    if len(mass) not in (1, species):
        yield "physics.mass", f"physics.mass = {list(mass)}: expected 1 or {species} number(s), one per species"
    if config.physics.walls == "reflecting" and all(config.box.periodic):
        yield (
            "physics.walls",
            "physics.walls = reflecting: expected an axis that is not periodic; write box.periodic with false for it",
        )
    yield from _check_potential(config.physics)
    yield from _check_mixture(config.physics, species)
    yield from check_charges(config)
    yield from check_chains(config, config.physics.potential in MIXED)


def _check_potential(physics: MolecularDynamicsPhysics) -> Iterator[tuple[str, str]]:
    """Keys of other potentials than the chosen one, and a cutoff that does not suit it."""
    used = USED[physics.potential]
    own = f"a potential {physics.potential} has no such number, but {', '.join(sorted(used))}; write one of these"
    yield from left_over(physics, sorted(OF_POTENTIALS - used), own)
    ends = ENDS.get(physics.potential)
    if ends is None:
        return
    if physics.mode != "truncated":
        yield (
            "physics.mode",
            f"physics.mode = {physics.mode}: expected truncated for a potential {physics.potential}, which is smooth "
            "where it ends",
        )
    reach = ends * physics.sigma * max(*(physics.species_sigma or (1.0,)), *(physics.cross_sigma or (0.0,)))
    if physics.cutoff < reach * (1 - 1e-9):
        yield (
            "physics.cutoff",
            f"physics.cutoff = {physics.cutoff:g}: a potential {physics.potential} reaches {reach:g}; write that or "
            "more",
        )


def _check_mixture(physics: MolecularDynamicsPhysics, species: int) -> Iterator[tuple[str, str]]:
    """Lists of as many entries as there are species, or pairs of them."""
    pairs = species * (species - 1) // 2
    mixed = physics.species_epsilon is not None or physics.species_sigma is not None
    for name, count in (("species", species), ("cross", pairs)):
        for of in ("epsilon", "sigma"):
            value = getattr(physics, f"{name}_{of}")
            if value is None:
                continue
            if len(value) != count:
                what = "species" if name == "species" else "pair of species"
                yield (
                    f"physics.{name}_{of}",
                    f"physics.{name}_{of} = {list(value)}: expected {count} number(s), one per {what} of "
                    "particles.fractions",
                )
            elif name == "cross" and not mixed:
                yield (
                    f"physics.{name}_{of}",
                    f"physics.{name}_{of} = {list(value)}: expected with physics.species_{of}; write "
                    f"species_{of}={[1.0] * species} for species that are alike",
                )


def _steady(config: Any) -> tuple[str, ...]:
    """Without a thermostat the energy, and in a periodic box the momentum."""
    if config.physics.dynamics != "nve":
        return ()
    return ("energy", "momentum") if all(config.box.periodic) else ("energy",)


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


def _molecular_dynamics(config: Config, cells: Cells, skin: NeighborPolicy, steps: int, values: Values):
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
    cutoff, given = config.physics.cutoff, config.neighbor_list.skin
    # Bonds are looked for in the cells around.
    return max(SKIN * cutoff, longest_bond(config.physics) - cutoff) if given is None else given


@particle_model(
    "molecular_dynamics",
    fields=(),
    least_axes=2,
    check=_check,
    steady=_steady,
    given_at_start=("position", "velocity"),
)
class MolecularFamily(ParticleFamily):
    """Particles that interact with their neighbours, at constant energy or temperature."""

    Keys = MolecularDynamicsPhysics
    Section = ParticlesConfig

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
        start = place(self.config, natural_bond(self.config.physics))
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
        skin = NeighborPolicy(self.config.physics.cutoff, _skin_length(self.config), room.rows, room.columns)
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
