"""Plasmas of particles from a configuration."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtri

from simjax.grid import CENTER, FACE, Grid
from simjax.models.capacities import capacities_in, steps_in
from simjax.models.formulas import Values
from simjax.models.measures import of_particles
from simjax.models.particle_model import Files, ParticleFamily, particle_model, standard_normals
from simjax.models.placement import Start, evenly, require_room, species_of
from simjax.models.plasma.electrostatic import ElectrostaticPlasma, Params, conserved_names
from simjax.particles.cells import Cells
from simjax.particles.mesh import ParticleMesh
from simjax.schema.kinds import Choice, Integer, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema
from simjax.schema.particles import ParticlesSection, check_beside, check_mesh_cells, check_unlisted

LARGEST_STEP = 0.5  # of the inverse plasma frequency
PER_SPECIES = "numbers, one per species"


@dataclass(frozen=True)
class ChargedParticlesConfig(ParticlesSection):
    """Keys of the section `particles` of every plasma: how many, of which species, how warm.

    quiet: evenly spread places and velocities, of sequences of low discrepancy, each species for itself; random: with
    the noise of so many particles. `initial.displacement` and `initial.velocity` come on top.
    """

    count: int = key(Integer(1, 2**30), about="particles of all species")
    placement: str = key(Choice(("quiet", "random")), "quiet", about="how particles are placed")
    fractions: tuple[float, ...] = key(
        ListOf(Real(above=0.0, high=1.0), 1, 100, noun="shares, one per species"),
        (1.0,),
        about="shares of the species",
    )
    temperature: tuple[float, ...] = key(
        ListOf(Real(low=0.0), 1, 100, noun=PER_SPECIES), (0.0,), about="temperature of a species, an energy"
    )

    def check(self, box):
        assert box.periodic is not None
        for axis, periodic in enumerate(box.periodic):
            if not periodic:
                yield f"box.periodic[{axis}]", f"box.periodic[{axis}] = false: expected true for a plasma"
        if abs(sum(self.fractions) - 1) > 1e-9:
            total = f"{sum(self.fractions):g}"
            yield (
                "particles.fractions",
                f"particles.fractions = {list(self.fractions)}: expected a sum of 1, not {total}",
            )
        for name in ("temperature", "drift"):
            yield from one_per_species(f"particles.{name}", getattr(self, name), len(self.fractions))


@dataclass(frozen=True)
class PlasmaParticlesConfig(ChargedParticlesConfig):
    """The section `particles` of an electrostatic plasma: also how fast along x."""

    drift: tuple[float, ...] = key(ListOf(Real(), 1, 100, noun=PER_SPECIES), (0.0,), about="velocity along x")


@dataclass(frozen=True)
class ChargedPhysics:
    """Keys of the physics of every plasma."""

    mesh_cells: tuple[int, ...] = key(
        ListOf(Integer(2, 2**20), 1, 3, noun="cell counts, one per axis"), about="cells of the mesh of the field"
    )
    charge: tuple[float, ...] = key(ListOf(Real(), 1, 100, noun=PER_SPECIES), (-1.0,), about="charge of a particle")
    mass: tuple[float, ...] = key(ListOf(Real(above=0.0), 1, 100, noun=PER_SPECIES), (1.0,), about="mass of a particle")
    number_density: float = key(
        Real(above=0.0), 1.0, about="number density of all species, 1/length^ndim; a simulated particle stands for many"
    )
    permittivity: float = key(Real(above=0.0), 1.0, about="eps")
    magnetic_field: tuple[float, ...] | None = key(
        ListOf(Real(), 3, 3, optional=True, noun="components"), None, about="B, uniform; null: none"
    )


@dataclass(frozen=True)
class PlasmaPhysics(ChargedPhysics):
    """dx/dt = v, m dv/dt = q (E + v x B), E = -grad phi, eps lap(phi) = -(rho - mean of rho)."""

    assignment: str = key(
        Choice(("cic", "tsc")), "tsc", about="assignment of charges to the mesh: a cloud in cell or smoother"
    )


def one_per_species(path: str, given: tuple, species: int) -> Iterator[tuple[str, str]]:
    """A sentence about a list that has neither one entry nor as many as there are species."""
    if len(given) not in (1, species):
        yield path, f"{path} = {list(given)}: expected 1 or {species} number(s), one per species of particles.fractions"


def of_each(given: tuple, species: int) -> tuple:
    """Repeat a lone entry for each of the species."""
    return given if len(given) == species else given * species


def plasma_frequency(config: Any) -> float:
    """omega_p, with omega_p^2 = sum over species of n q^2 / (eps m)."""
    physics, shares = config.physics, config.particles.fractions
    charge, mass = (of_each(u, len(shares)) for u in (physics.charge, physics.mass))
    total = sum(s * q * q / m for s, q, m in zip(shares, charge, mass, strict=True))
    return math.sqrt(total * physics.number_density / physics.permittivity)


def fastest(config: Any) -> float:
    """About the largest of the speeds with which particles start."""
    physics, particles = config.physics, config.particles
    species = len(particles.fractions)
    mass, temperature, drift = (of_each(u, species) for u in (physics.mass, particles.temperature, particles.drift))
    largest = math.sqrt(2 * math.log(particles.count + 1))  # of so many normal numbers
    return max(abs(v) + largest * math.sqrt(t / m) for v, t, m in zip(drift, temperature, mass, strict=True))


def check_charged(config: Any) -> Iterator[tuple[str, str]]:
    """Check that lists fit the species, the mesh fits the box, and steps follow the waves of any plasma."""
    yield from check_beside(config)
    yield from check_unlisted(config)
    yield from check_mesh_cells(config)
    species = len(config.particles.fractions)
    charge, mass = config.physics.charge, config.physics.mass
    uneven = [
        *one_per_species("physics.charge", charge, species),
        *one_per_species("physics.mass", mass, species),
    ]
    yield from uneven
    dt = config.time.dt
    if uneven or dt is None:
        return
    frequency = plasma_frequency(config)
    if frequency * dt > LARGEST_STEP:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: a plasma of frequency {frequency:.3g} needs steps of at most {LARGEST_STEP:g} of its "
            f"inverse; write {LARGEST_STEP / frequency:.2g} or less",
        )


def _check(config: Any) -> Iterator[tuple[str, str]]:
    found = list(check_charged(config))
    yield from found
    dt, cells = config.time.dt, config.physics.mesh_cells
    uneven = {"physics.charge", "physics.mass", "physics.mesh_cells"} & {path for path, _ in found}
    if uneven or dt is None:
        return
    box = config.box
    cell = min((b - a) / n for a, b, n in zip(box.lower, box.upper, cells, strict=True))
    speed = fastest(config)
    if speed * dt > cell:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: particles as fast as {speed:.3g} cross more than a cell of {cell:.3g} in a step; write "
            f"{cell / speed:.2g} or less, or fewer physics.mesh_cells",
        )


def _steady(config: Any) -> tuple[str, ...]:
    """A magnetic field turns momenta."""
    return ("energy",) if config.physics.magnetic_field is not None else ("energy", "momentum")


STRAY = 0.5  # mesh cells out of their cells: costs nothing with these nodes
NODES = {"cic": CENTER, "tsc": FACE}
FEW = 8  # particles in a mesh cell, below which two along each axis share their slots
MARGIN = 1.2  # of the fastest at the start, which the field makes faster


class ChargedFamily(ParticleFamily):
    """Common part of plasmas on a periodic mesh."""

    advice = "Try a smaller time.dt, or fewer physics.mesh_cells."
    mass_keys = ("physics.number_density",)
    on_mesh = True

    @property
    def _particles(self) -> ChargedParticlesConfig:
        particles = self.config.particles
        assert isinstance(particles, ChargedParticlesConfig)
        return particles

    @property
    @abc.abstractmethod
    def _components(self) -> int:
        """Number of components of a velocity."""

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

    def first_capacities(self, start, parameters, blocks):
        config, bounds, cells = self.config, self.bounds, self.config.physics.mesh_cells
        few = start.count < FEW * math.prod(cells)
        pairs = all(n % (2 * k) == 0 for n, k in zip(cells, blocks, strict=True))
        shape = tuple(n // 2 for n in cells) if few and pairs else cells
        cell = min((b - a) / n for a, b, n in zip(bounds.lower, bounds.upper, cells, strict=True))
        grid = Grid(shape, bounds.lower, bounds.upper)
        return capacities_in(config, grid, start.position, blocks, max_neighbors=0, steps=self._steps(cell))

    def mass(self, start):
        weight = self.config.physics.number_density * self.bounds.volume / start.count
        return weight * np.asarray(self._of_each(self.config.physics.mass))[start.species]

    def _of_each(self, given: tuple) -> tuple:
        return of_each(given, len(self._particles.fractions))

    def _finer(self, cells: Cells) -> int:
        """Mesh cells in a cell of the particles, along each axis."""
        return self.config.physics.mesh_cells[0] // cells.domain.grid.shape[0]

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
        """Places of particles, and what is added to their velocities, by the formulas of `initial`."""
        moving, displaced = (self.formula(name, values, place) for name in ("velocity", "displacement"))
        assert moving is not None and displaced is not None
        return place + displaced, moving


@particle_model(
    "electrostatic_pic",
    fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True)),
    check=_check,
    balanced=lambda ndim, counts: conserved_names(ndim),
)
class PlasmaFamily(ChargedFamily):
    """Electrostatic plasmas."""

    Keys = PlasmaPhysics
    Section = PlasmaParticlesConfig

    seconds = (1e-7, 1e-9)

    @property
    def measures(self):
        shown = {"field_energy": "field energy", "kinetic_energy": "kinetic energy", "energy": "energy"}
        return of_particles(shown, _steady(self.config))

    @property
    def _components(self):
        # A magnetic field turns it out of a plane.
        return self.config.ndim if self.config.physics.magnetic_field is None else 3

    def _steps(self, cell):
        config, speed = self.config, MARGIN * fastest(self.config)
        assert config.time.dt is not None
        # The field is formed half a step before the places that are looked at.
        return steps_in(config, STRAY * cell + 0.5 * speed * config.time.dt, speed)

    def model(self, cells, capacities, values):
        assignment = self.config.physics.assignment
        mesh = ParticleMesh(cells, self._finer(cells), assignment, (NODES[assignment],) * cells.ndim, STRAY)
        # Its domain is a property, which the checker of types takes for a field.
        model = ElectrostaticPlasma(mesh, capacities.rebuild_every)  # pyright: ignore[reportCallIssue]
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
