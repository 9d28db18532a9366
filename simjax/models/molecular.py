"""Molecular dynamics."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.grid import AXES
from simjax.core.model import DirectModel
from simjax.models.potentials import PairPotential
from simjax.particles.arrangement import Arrangement, Particles, Skin
from simjax.particles.cells import Cells, counted, pack


class State(Particles):
    """velocity, force: `(ndim, *cells.shape)`; species: `cells.shape` int32."""

    velocity: Array
    force: Array
    species: Array


class Params(eqx.Module):
    """potential: parameters of the pair potential. mass: `(species,)`."""

    potential: Any
    mass: Array


class MolecularDynamics(DirectModel):
    """Newton's equations of particles: m_i d^2 x_i/dt^2 = F_i = -dU/dx_i, by velocity Verlet.

    U is a sum over pairs nearer than the cutoff. Swope et al. (1982), J. Chem. Phys. 76, 637, eq. 1-2.
    """

    cells: Cells
    skin: Skin
    potential: PairPotential
    steps_per_arrangement: int = eqx.field(static=True)

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
        state, arrangement, _ = self.arrange(state, params)
        return eqx.tree_at(lambda s: s.force, state, self._forces(state, params, arrangement)), lost

    def arrange(self, state, params):
        return self.skin.arrange(self.cells, state)

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

    def _interactions(self, state: State, params: Params, arrangement: Arrangement) -> dict[str, Any]:
        pairs = self.skin.pairs(self.cells, state, arrangement)
        return pairs.sum(self.potential.pair, state.species, params.potential)

    def _forces(self, state: State, params: Params, arrangement: Arrangement) -> Array:
        return jnp.stack(self._interactions(state, params, arrangement)["force"])

    def stable_dt(self, state, params):
        return jnp.asarray(jnp.inf, state.position.dtype)

    def diagnostics(self, t, state, params):
        state, arrangement, status = self.arrange(state, params)
        found = self._interactions(state, params, arrangement)
        mass = _mass(params, state.species)
        moving = jnp.where(state.ids >= 0, 0.5 * jnp.sum(mass * state.velocity**2, axis=0), 0)
        kinetic, potential = self.domain.sum(moving), self.domain.sum(found["energy"])
        carried = jnp.where(state.ids >= 0, mass * state.velocity, 0)
        momentum = self.domain.total(jnp.sum(carried, axis=tuple(range(1, carried.ndim))))
        count = counted(self.cells, state.ids)
        freedom = jnp.maximum(self.cells.ndim * (count - 1), 1).astype(kinetic.dtype)
        return {
            "kinetic_energy": kinetic,
            "potential_energy": potential,
            "energy": kinetic + potential,
            "temperature": 2 * kinetic / freedom,
            **{f"momentum_{axis}": p for axis, p in zip(AXES, momentum, strict=False)},
            "particles": count,
            "status": status,
        }


def _mass(params: Params, species: Array) -> Array:
    """Mass of every slot, `(1, *cells.shape)`."""
    return params.mass.at[species].get(mode="promise_in_bounds")[None]
