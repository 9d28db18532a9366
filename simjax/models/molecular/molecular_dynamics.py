"""Molecular dynamics."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import require_at_least, require_count, require_kind
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.molecular.barostat import Dilated
from simjax.models.molecular.bonds import Bonds, BondSlots, BondTopology
from simjax.models.molecular.coulomb import Charges, Electrostatics
from simjax.models.molecular.interaction import Interaction
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.models.molecular.velocity_verlet import THERMOSTAT, Dynamics, DynamicsInParts, System, VelocityVerlet
from simjax.models.particle_balances import StepPart, StepsInParts
from simjax.notebook import all_in_a_line
from simjax.particles.cells import Cells, counted, pack, require_cells
from simjax.particles.neighbor_list import Neighbours
from simjax.particles.neighbor_policy import Arrangement, NeighborPolicy, Particles
from simjax.particles.pairs import Pairs
from simjax.status import BOX_SHRUNK, OK


class State(Particles):
    """Particles in motion, with variables of the thermostat and cached forces.

    velocity, force: `(ndim, *cells.shape)`. species: `cells.shape` int32. links: who is bonded to whom, if any.
    ensemble: scalars of the dynamics.
    """

    velocity: Array
    force: Array
    species: Array
    links: BondTopology | None = None
    ensemble: Any = None


class Params(eqx.Module):
    """potential: its parameters. mass: `(species,)`. dynamics, bonds: parameters of these. charges: of the species."""

    potential: Any
    mass: Array
    dynamics: Any = None
    bonds: Any = None
    charges: Charges | None = None

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("MolecularDynamics.Params", {"mass": self.mass}, strictly=True)


class LinkedArrangement(Arrangement):
    """Pairs and bonded particles found when particles stood at `position`.

    unbonded: the pairs without bonded ones, where these leave each other out of the pair potential.
    """

    links: BondSlots | None = None
    unbonded: Neighbours | None = None


class MolecularDynamics(StepsInParts):
    """Particles under forces F_i = -dU/dx_i that move by a dynamics; Newton's: m_i d^2 x_i/dt^2 = F_i.

    U is the energy of pairs nearer than the cutoff, or of another `Interaction`, of bonds and angles, and of charges
    with all their images, bonded ones too. `tail_corrections` adds to measured energy and pressure what pairs beyond
    the cutoff would give in a medium without structure. `reflecting`: along axes that do not close on themselves the
    box ends in smooth walls, where the velocity across changes its sign; without them, a particle that leaves is an
    error. Allen and Tildesley (2017), Computer Simulation of Liquids, ch. 2 and 3.

    Examples:
        >>> liquid = sj.configure(
        ...     "molecular_dynamics", physics={"potential": "lennard_jones"}, box={"upper": [6.0, 6.0, 6.0]},
        ...     particles={"placement": "fcc", "count": 108, "temperature": 1.0},
        ...     time={"end": 0.1, "output_every": 0.1, "dt": 0.005},
        ... )
        >>> isinstance(liquid.model, sj.MolecularDynamics)
        True
    """

    cells: Cells
    skin: NeighborPolicy
    potential: Interaction
    steps_per_arrangement: int = eqx.field(static=True)
    dynamics: Dynamics = VelocityVerlet()
    bonds: Bonds | None = None
    electrostatics: Electrostatics | None = None
    tail_corrections: bool = eqx.field(static=True, default=False)
    reflecting: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require_cells("MolecularDynamics", self.cells)
        require_kind("MolecularDynamics: skin", self.skin, NeighborPolicy, "a NeighborPolicy(cutoff=2.5, skin=0.3)")
        require_count("MolecularDynamics: steps_per_arrangement", self.steps_per_arrangement)
        if self.tail_corrections and not isinstance(self.potential, PairPotential):
            raise ConfigurationError(
                f"tail_corrections: expected a potential of pairs, got {type(self.potential).__name__}; "
                "write tail_corrections=False."
            )
        others = [x for x in (self.bonds, self.electrostatics) if x is not None]
        if self.dynamics.changes_scale and (others or not isinstance(self.potential, PairPotential)):
            what = type((others or [self.potential])[0]).__name__
            raise ConfigurationError(
                f"{type(self.dynamics).__name__}: expected a potential of pairs alone, got {what}; write a dynamics "
                "at constant volume."
            )
        if self.dynamics.changes_scale and self.reflecting:
            raise ConfigurationError(
                f"{type(self.dynamics).__name__}: expected a periodic box, got reflecting=True; write a dynamics at "
                "constant volume."
            )
        if self.bonds is not None:
            self.bonds.check(self.cells, self.skin)

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    def state_from(
        self, position: Array, velocity: Array, species: Array, params: Params, links: BondTopology | None = None
    ) -> tuple[State, Array]:
        """The state of particles given one after the other, `(ndim, particles)`, `(particles,)` and `(..., particles)`.

        Also returns how many found no place.
        """
        carried = {"velocity": velocity, "species": species, "links": links}
        position, ids, carried, lost = pack(self.cells, position, carried)
        image = jnp.zeros(position.shape, jnp.int32)
        state = State(position, image, ids, force=jnp.zeros_like(position), **carried)
        arrangement, _ = self._listed(state)
        system = self.system(state, params, arrangement)
        state = dataclasses.replace(state, ensemble=self.dynamics.start(system, state, params.dynamics))
        return dataclasses.replace(state, force=system.forces(state)), lost

    def arrange(self, state, params):
        # All that particles carry moves with them; what the ensemble holds does not.
        ensemble, scale = state.ensemble, self.dynamics.scale(state)
        state, fault = self.skin.sort(self.cells, dataclasses.replace(state, ensemble=None))
        arrangement, full = self._listed(state)
        fault = fault | full
        if scale is not None:
            # Written so that a scale that is not a number counts as too small.
            shrunk = ~(self.domain.min(scale) * self.skin.reach > self.skin.cutoff)
            fault = fault | jnp.where(shrunk, BOX_SHRUNK, OK).astype(jnp.int32)
        return dataclasses.replace(state, ensemble=ensemble), arrangement, fault

    def _listed(self, state: State) -> tuple[LinkedArrangement, Array]:
        """Pairs and bonded particles of a state as `NeighborPolicy.listed`, and bits of `status`."""
        found, fault = self.skin.listed(self.cells, state)
        if self.bonds is None:
            return LinkedArrangement(found.neighbours, found.position), fault
        assert state.links is not None
        slots, lost = self.bonds.find(self.cells, state.position, state.ids, state.links)
        unbonded = None
        if self.bonds.exclude:
            assert found.neighbours is not None
            unbonded = self.bonds.excluded(self.cells, found.neighbours, slots)
        return LinkedArrangement(found.neighbours, found.position, slots, unbonded), fault | lost

    def skin_used(self, state, arrangement):
        used, scale = self.skin.skin_used(state, arrangement), self.dynamics.scale(state)
        if scale is None:
            return used
        # In a smaller box the cutoff takes up some of the skin, in a larger one it leaves more.
        left = (self.skin.reach - self.skin.cutoff / scale) / self.skin.skin
        return jnp.where(left > 0, used / jnp.where(left > 0, left, 1), jnp.inf)

    def parts(self, number, t, dt, state, params, arrangement):
        system = self.system(state, params, arrangement)
        if isinstance(self.dynamics, DynamicsInParts):
            for part in self.dynamics.parts(system, number, dt, state, params.dynamics):
                yield part
                state = part.state
        else:
            state = self.dynamics.step(system, number, dt, state, params.dynamics)
        yield StepPart(dataclasses.replace(state, ensemble=jax.tree.map(self._agreed, state.ensemble)))

    def conserved(self):
        return conserved_names(self.cells.ndim)

    def made_by(self, name):
        return (THERMOSTAT,) if isinstance(self.dynamics, DynamicsInParts) and self.dynamics.thermal else ()

    def is_closed(self, axis):
        return self.cells.periodic[axis] or not self.reflecting

    def unbalanced(self, names):
        if isinstance(self.dynamics, DynamicsInParts):
            return ""
        return (
            f"outputs: the balance of {names[0]} does not know what {type(self.dynamics).__name__} gives and takes; "
            "leave it out"
        )

    def partition_specs(self, state, params):
        state_specs = jax.tree.map(
            lambda u: self.domain.spec(u.ndim) if u.ndim > self.domain.grid.ndim else PartitionSpec(), state
        )
        return state_specs, jax.tree.map(lambda _: PartitionSpec(), params)

    def _agreed(self, scalars: Array) -> Array:
        """Scalars that are the same on all devices, known to be so: parameters of which they are made are not."""
        if not self.domain.names:
            return scalars
        blocks = math.prod(self.domain.grid.shape) // math.prod(self.domain.block_shape)
        total = self.domain.total(scalars)
        return total / blocks if jnp.issubdtype(total.dtype, jnp.inexact) else total // blocks

    def system(self, state: State, params: Params, arrangement: LinkedArrangement) -> System:
        """Moving particles, with the forces of the neighbours listed for them."""

        def interactions(state):
            return self._interactions(state, params, arrangement)

        return System(self.cells, _mass(params, state.species), interactions, self.reflecting)

    def _interactions(self, state: State, params: Params, arrangement: LinkedArrangement) -> dict[str, Array]:
        """Energy, force and virial of every particle, as `Interaction.evaluate`."""
        scale = self.dynamics.scale(state)
        if scale is not None:
            assert isinstance(self.potential, PairPotential)
            pairs = Pairs(self.cells, state.position, state.ids, self.skin.reach, arrangement.neighbours)
            dilated = Dilated(self.potential, self.skin.cutoff)
            return dilated.evaluate(pairs, state.species, (params.potential, scale))
        pairs = self.skin.pairs(self.cells, state, arrangement)
        apart = pairs if arrangement.unbonded is None else dataclasses.replace(pairs, neighbours=arrangement.unbonded)
        found = self.potential.evaluate(apart, state.species, params.potential)
        if self.electrostatics is not None:
            assert params.charges is not None
            found = jax.tree.map(jnp.add, found, self.electrostatics.evaluate(pairs, state.species, params.charges))
        if self.bonds is not None:
            assert arrangement.links is not None
            bonded = self.bonds.evaluate(
                self.cells, state.position, state.ids, state.species, arrangement.links, params.bonds
            )
            found = jax.tree.map(jnp.add, found, bonded)
        return found

    def stable_dt(self, state, params):
        return jnp.asarray(jnp.inf, state.position.dtype)

    def diagnostics(self, t, state, params):
        """Energies, momentum, and temperature and pressure with Boltzmann's constant one.

        temperature: 2 K over `System.freedom`. pressure_ab: (sum of m v_a v_b + virial_ab) / volume; pressure: a third
        (in three dimensions) of its trace. status: bits of `status`, where there was too little room to measure.
        """
        # Between arrangements particles are where all pairs within the cutoff are found without sorting them again.
        arrangement, status = self._listed(state)
        status = status | self.skin.strayed(self.cells, state)
        system = self.system(state, params, arrangement)
        found = system.interactions(state)
        ndim, count = self.cells.ndim, counted(self.cells, state.ids)
        momentum = jnp.where(state.ids >= 0, system.mass * state.velocity, 0)
        flux = self._sums(momentum[:, None] * state.velocity[None])
        kinetic, potential = jnp.trace(flux) / 2, self.domain.sum(found["energy"])
        scale = self.dynamics.scale(state)
        volume = jnp.asarray(math.prod(self.domain.grid.lengths), kinetic.dtype)
        volume = volume if scale is None else volume * scale**ndim
        pressure = (flux + self._sums(found["virial"])) / volume
        if self.tail_corrections:
            energy, more = self._beyond(state, params)
            potential = potential + energy / volume
            pressure = pressure + more / volume**2 * jnp.eye(ndim, dtype=more.dtype)
        names = AXES[:ndim]
        return {
            "kinetic_energy": kinetic,
            "potential_energy": potential,
            "energy": kinetic + potential,
            "temperature": 2 * kinetic / jnp.maximum(system.freedom(state), 1),
            "pressure": jnp.trace(pressure) / ndim,
            **{f"pressure_{a}{b}": pressure[i, j] for i, a in enumerate(names) for j, b in enumerate(names) if i <= j},
            **{f"momentum_{a}": p for a, p in zip(names, self._sums(momentum), strict=True)},
            "particles": count,
            "status": status,
            **self.dynamics.diagnostics(system, state, params.dynamics, kinetic + potential),
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


MolecularDynamics.Params, MolecularDynamics.State = Params, State


def conserved_names(ndim: int) -> tuple[str, ...]:
    """Quantities that have balances."""
    return (*(f"momentum_{axis}" for axis in AXES[:ndim]), "energy")


def _mass(params: Params, species: Array) -> Array:
    """Mass of every slot, `(1, *cells.shape)`."""
    return params.mass.at[species].get(mode="promise_in_bounds")[None]
