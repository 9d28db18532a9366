"""Molecular dynamics."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.errors import ConfigurationError
from simjax.core.grid import AXES
from simjax.core.model import DirectModel
from simjax.models.bonds import Bonds, Links, LinkSlots
from simjax.models.interactions import Interaction
from simjax.models.potentials import PairPotential
from simjax.particles.arrangement import Arrangement, Particles, Skin
from simjax.particles.cells import Cells, counted, pack


class State(Particles):
    """velocity, force: `(ndim, *cells.shape)`; species: `cells.shape` int32; links: who is bonded to whom, if any."""

    velocity: Array
    force: Array
    species: Array
    links: Links | None = None


class Params(eqx.Module):
    """potential: parameters of the potential. mass: `(species,)`. bonds: those of `Bonds`."""

    potential: Any
    mass: Array
    bonds: Any = None


class LinkedArrangement(Arrangement):
    """Pairs and bonded particles found when particles stood at `position`."""

    links: LinkSlots | None


class MolecularDynamics(DirectModel):
    """Newton's equations of particles: m_i d^2 x_i/dt^2 = F_i = -dU/dx_i, by velocity Verlet.

    U is the energy of pairs nearer than the cutoff, or of another `Interaction`, and of bonds and angles.
    `tail_corrections` adds to measured energy and pressure what pairs beyond the cutoff would give in a medium without
    structure. Swope et al. (1982), J. Chem. Phys. 76, 637, eq. 1-2.
    """

    cells: Cells
    skin: Skin
    potential: Interaction
    steps_per_arrangement: int = eqx.field(static=True)
    bonds: Bonds | None = None
    tail_corrections: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.tail_corrections and not isinstance(self.potential, PairPotential):
            raise ConfigurationError(
                f"tail_corrections: expected a potential of pairs, {type(self.potential).__name__} came; "
                "write tail_corrections=False."
            )
        if self.bonds is None:
            return
        if self.bonds.exclude and not self.skin.rows:
            raise ConfigurationError("Bonds.exclude takes a list of neighbours, Skin.rows is 0; write rows > 0.")
        grid = self.domain.grid
        for axis, (h, n) in enumerate(zip(grid.spacing, grid.shape, strict=True)):
            most = min(h, n * h / 2) if self.cells.periodic[axis] else h
            if self.bonds.longest > most:
                raise ConfigurationError(
                    f"Bonds.longest={self.bonds.longest:g}: expected at most {most:g}, the length of a cell or half "
                    f"that of the box along {AXES[axis]}; write a longer Skin.skin or shorter bonds."
                )

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    def state_from(
        self, position: Array, velocity: Array, species: Array, params: Params, links: Links | None = None
    ) -> tuple[State, Array]:
        """The state of particles given one after the other, `(ndim, particles)`, `(particles,)` and `(..., particles)`.

        Also returns how many found no place.
        """
        carried = {"velocity": velocity, "species": species, "links": links}
        position, ids, carried, lost = pack(self.cells, position, carried)
        zero = jnp.zeros_like(position)
        image = jnp.zeros(position.shape, jnp.int32)
        state = State(position, image, ids, force=zero, **carried)
        state, arrangement, _ = self.arrange(state, params)
        return eqx.tree_at(lambda s: s.force, state, self._forces(state, params, arrangement)), lost

    def arrange(self, state, params):
        state, found, fault = self.skin.arrange(self.cells, state)
        if self.bonds is None:
            return state, LinkedArrangement(found.neighbours, found.position, None), fault
        slots, lost = self.bonds.find(self.cells, state.position, state.ids, state.links)
        neighbours = found.neighbours
        if self.bonds.exclude:
            assert neighbours is not None
            neighbours = self.bonds.excluded(self.cells, neighbours, slots)
        return state, LinkedArrangement(neighbours, found.position, slots), fault | lost

    def strain(self, state, arrangement):
        return self.skin.strain(state, arrangement)

    def step(self, number, t, dt, state, params, arrangement):
        mass = _mass(params, state.species)
        velocity = state.velocity + 0.5 * dt * state.force / mass
        position = state.position + dt * velocity
        state = eqx.tree_at(lambda s: s.position, state, position)
        force = self._forces(state, params, arrangement)
        velocity = velocity + 0.5 * dt * force / mass
        return eqx.tree_at(lambda s: (s.velocity, s.force), state, (velocity, force))

    def _interactions(self, state: State, params: Params, arrangement: LinkedArrangement) -> dict[str, Array]:
        """Energy, force and virial of every particle, as `Interaction.evaluate`."""
        pairs = self.skin.pairs(self.cells, state, arrangement)
        found = self.potential.evaluate(pairs, state.species, params.potential)
        if self.bonds is None:
            return found
        assert arrangement.links is not None
        bonded = self.bonds.evaluate(
            self.cells, state.position, state.ids, state.species, arrangement.links, params.bonds
        )  # fmt: skip
        return jax.tree.map(jnp.add, found, bonded)

    def _forces(self, state: State, params: Params, arrangement: LinkedArrangement) -> Array:
        return self._interactions(state, params, arrangement)["force"]

    def stable_dt(self, state, params):
        return jnp.asarray(jnp.inf, state.position.dtype)

    def diagnostics(self, t, state, params):
        """Energies, momentum, and temperature and pressure with Boltzmann's constant one.

        temperature: 2 K / (ndim N - ndim), as the total momentum is fixed. pressure_ab: (sum of m v_a v_b + virial_ab)
        / volume; pressure: a third (in three dimensions) of its trace.
        """
        state, arrangement, _ = self.arrange(state, params)
        found = self._interactions(state, params, arrangement)
        ndim, count = self.cells.ndim, counted(self.cells, state.ids)
        mass = _mass(params, state.species)
        momentum = jnp.where(state.ids >= 0, mass * state.velocity, 0)
        flux = self._sums(momentum[:, None] * state.velocity[None])
        kinetic, potential = jnp.trace(flux) / 2, self.domain.sum(found["energy"])
        volume = math.prod(self.domain.grid.lengths)
        pressure = (flux + self._sums(found["virial"])) / volume
        if self.tail_corrections:
            energy, more = self._beyond(state, params)
            potential, pressure = (
                potential + energy / volume,
                pressure + more / volume**2 * jnp.eye(ndim, dtype=more.dtype),
            )
        names = AXES[:ndim]
        return {
            "kinetic_energy": kinetic,
            "potential_energy": potential,
            "energy": kinetic + potential,
            "temperature": 2 * kinetic / jnp.maximum(ndim * (count - 1), 1).astype(kinetic.dtype),
            "pressure": jnp.trace(pressure) / ndim,
            **{f"pressure_{a}{b}": pressure[i, j] for i, a in enumerate(names) for j, b in enumerate(names) if i <= j},
            **{f"momentum_{a}": p for a, p in zip(names, self._sums(momentum), strict=True)},
            "particles": count,
        }

    def _sums(self, values: Array) -> Array:
        """Per-particle values `(..., *cells.shape)` added up over all particles."""
        return self.domain.total(jnp.sum(values, axis=tuple(range(-self.cells.ndim - 1, 0))))

    def _beyond(self, state: State, params: Params) -> tuple[Array, Array]:
        """Energy times volume, and pressure times volume squared, of pairs beyond the cutoff."""
        assert isinstance(self.potential, PairPotential)
        species = jnp.arange(params.mass.shape[0], dtype=jnp.int32)
        alike = (state.species[None] == species.reshape(-1, *(1,) * state.ids.ndim)) & (state.ids >= 0)[None]
        count = self._sums(alike.astype(state.position.dtype))
        here, there = jnp.meshgrid(species, species, indexing="ij")
        cutoff = jnp.asarray(self.skin.cutoff, count.dtype)
        found = self.potential.tail(cutoff, self.cells.ndim, here, there, params.potential)
        energy, pressure = (jnp.sum(count[:, None] * count[None] * integral) / 2 for integral in found)
        return energy, pressure


def _mass(params: Params, species: Array) -> Array:
    """Mass of every slot, `(1, *cells.shape)`."""
    return params.mass.at[species].get(mode="promise_in_bounds")[None]
