"""Molecular dynamics."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import DirectModel
from simjax.core.status import BOX_SHRUNK, OK
from simjax.models.barostats import Dilated
from simjax.models.dynamics import Dynamics, System, VelocityVerlet
from simjax.models.potentials import PairPotential
from simjax.particles.arrangement import Arrangement, Particles, Skin
from simjax.particles.cells import Cells, counted, pack
from simjax.particles.pairs import Pairs


class State(Particles):
    """velocity, force: `(ndim, *cells.shape)`; species: `cells.shape` int32. ensemble: scalars of the dynamics."""

    velocity: Array
    force: Array
    species: Array
    ensemble: Any = None


class Params(eqx.Module):
    """potential: parameters of the pair potential. mass: `(species,)`. dynamics: parameters of the dynamics."""

    potential: Any
    mass: Array
    dynamics: Any = None


class MolecularDynamics(DirectModel):
    """Particles under forces F_i = -dU/dx_i that move by a dynamics; Newton's: m_i d^2 x_i/dt^2 = F_i.

    U is a sum over pairs nearer than the cutoff. Allen and Tildesley (2017), Computer Simulation of Liquids, ch. 3.
    """

    cells: Cells
    skin: Skin
    potential: PairPotential
    steps_per_arrangement: int = eqx.field(static=True)
    dynamics: Dynamics = VelocityVerlet()

    @property
    def domain(self) -> Domain:
        return self.cells.domain

    def state_from(self, position: Array, velocity: Array, species: Array, params: Params) -> tuple[State, Array]:
        """The state of particles given one after the other, `(ndim, particles)` and `(particles,)`.

        Also returns how many found no place.
        """
        carried = {"velocity": velocity, "species": species}
        position, ids, carried, lost = pack(self.cells, position, carried)
        zero = jnp.zeros_like(position)
        state = State(
            position, jnp.zeros(position.shape, jnp.int32), ids, carried["velocity"], zero, carried["species"]
        )
        state, arrangement, _ = self.skin.arrange(self.cells, state)
        system = self.system(state, params, arrangement)
        state = dataclasses.replace(state, ensemble=self.dynamics.start(system, state, params.dynamics))
        return dataclasses.replace(state, force=system.forces(state)), lost

    def arrange(self, state, params):
        # All that particles carry moves with them; what the ensemble holds does not.
        ensemble, scale = state.ensemble, self.dynamics.scale(state)
        state, arrangement, fault = self.skin.arrange(self.cells, dataclasses.replace(state, ensemble=None))
        if scale is not None:
            # Written so that a scale that is not a number counts as too small.
            shrunk = ~(self.domain.min(scale) * self.skin.reach > self.skin.cutoff)
            fault = fault | jnp.where(shrunk, BOX_SHRUNK, OK).astype(jnp.int32)
        return dataclasses.replace(state, ensemble=ensemble), arrangement, fault

    def strain(self, state, arrangement):
        strain, scale = self.skin.strain(state, arrangement), self.dynamics.scale(state)
        if scale is None:
            return strain
        # In a smaller box the cutoff takes up some of the skin, in a larger one it leaves more.
        left = (self.skin.reach - self.skin.cutoff / scale) / self.skin.skin
        return jnp.where(left > 0, strain / jnp.where(left > 0, left, 1), jnp.inf)

    def step(self, number, t, dt, state, params, arrangement):
        system = self.system(state, params, arrangement)
        state = self.dynamics.step(system, number, dt, state, params.dynamics)
        return dataclasses.replace(state, ensemble=jax.tree.map(self._agreed, state.ensemble))

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

    def system(self, state: State, params: Params, arrangement: Arrangement) -> System:
        """What moves, with the forces of the pairs listed."""

        def interactions(state):
            return self._interactions(state, params, arrangement)

        return System(self.cells, _mass(params, state.species), interactions)

    def _interactions(self, state: State, params: Params, arrangement: Arrangement) -> dict[str, Any]:
        scale = self.dynamics.scale(state)
        if scale is None:
            pairs = self.skin.pairs(self.cells, state, arrangement)
            return pairs.sum(self.potential.pair, state.species, params.potential)
        pairs = Pairs(self.cells, state.position, state.ids, self.skin.reach, arrangement.neighbours)
        dilated = Dilated(self.potential, self.skin.cutoff)
        return pairs.sum(dilated.pair, state.species, (params.potential, scale))

    def stable_dt(self, state, params):
        return jnp.asarray(jnp.inf, state.position.dtype)

    def diagnostics(self, t, state, params):
        state, arrangement, _ = self.arrange(state, params)
        found = self._interactions(state, params, arrangement)
        system = self.system(state, params, arrangement)
        kinetic, potential = system.kinetic_energy(state), self.domain.sum(found["energy"])
        return {
            "kinetic_energy": kinetic,
            "potential_energy": potential,
            "energy": kinetic + potential,
            "particles": counted(self.cells, state.ids),
            **self.dynamics.diagnostics(system, state, params.dynamics, kinetic + potential),
        }


def _mass(params: Params, species: Array) -> Array:
    """Mass of every slot, `(1, *cells.shape)`."""
    return params.mass.at[species].get(mode="promise_in_bounds")[None]
