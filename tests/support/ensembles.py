"""Particles that tests of dynamics share: a fluid, springs, free particles, and runs of them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simjax.core.domain import Domain
from simjax.models.molecular.molecular_dynamics import MolecularDynamics
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.particles.cells import Cells, cells_for, unpack
from simjax.particles.diffusion import unwrapped
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import CELL_FULL, OK, SKIN_PASSED, reasons

EACH = 5
"""Steps of an arrangement."""


class ShiftedForce(PairPotential):
    """Lennard-Jones less its value and slope at a cutoff of 2.5: smooth enough for Verlet to be of second order."""

    def energy(self, square, here, there, params):
        epsilon, sigma = params
        limit = 2.5
        # Cut-off candidates stand at half the cutoff: the root is never that of zero.
        distance = jnp.sqrt(square)
        sixth, last = (sigma * sigma / square) ** 3, (sigma * sigma / limit**2) ** 3
        slope = -24 * (2 * last * last - last) / limit
        return epsilon * (4 * (sixth * sixth - sixth) - 4 * (last * last - last) - slope * (distance - limit))


class Spring(PairPotential):
    """U = k r^2 / 2 between two particles of one species. params: k."""

    def energy(self, square, here, there, params):
        return jnp.where(here == there, 0.5 * params * square, 0)


class Free(PairPotential):
    """No forces."""

    def energy(self, square, here, there, params):
        return 0 * square


def lattice(count: int, density: float) -> tuple[np.ndarray, float]:
    """The face-centred cubic lattice of `count**3` cells of four: coordinates `(3, particles)` and the box's length."""
    edge = (4 / density) ** (1 / 3)
    base = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    corners = np.stack(np.meshgrid(*[np.arange(count)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    return ((corners + base).reshape(-1, 3) * edge + 0.25 * edge).T, count * edge


def square_lattice(count: int, density: float) -> tuple[np.ndarray, float]:
    """The square lattice of `count**2` particles: coordinates `(2, particles)` and the box's length."""
    edge = density**-0.5
    corners = np.stack(np.meshgrid(*[np.arange(count)] * 2, indexing="ij")).reshape(2, -1)
    return (corners + 0.5) * edge, count * edge


def at_rest(velocity: np.ndarray, temperature: float) -> np.ndarray:
    """Velocities of particles of mass 1 with no total momentum and just this kT, as N - 1 particles would have."""
    velocity = velocity - velocity.mean(axis=1, keepdims=True)
    freedom = velocity.shape[0] * (velocity.shape[1] - 1)
    return velocity * np.sqrt(temperature * freedom / np.sum(velocity**2))


class Experiment:
    """A model in a cubic periodic box, and a compiled run of it whose step and length are arguments.

    A run is `frames` times as many arrangements as asked, each of `EACH` steps; at the end of each frame it looks at
    what `observe(model, state, params, system)` gives, by default the energies. compiled_for: compiler options.
    """

    def __init__(
        self,
        length,
        ndim,
        cutoff,
        skin,
        potential,
        dynamics,
        *,
        rows,
        capacity,
        columns=0,
        most=10**6,
        frames=1,
        observe=None,
        species=None,
        dtype=jnp.float64,
        compiled_for=None,
    ):
        grid = cells_for((0,) * ndim, (length,) * ndim, cutoff + skin, (True,) * ndim, most=most)
        self.cells = Cells(Domain(grid), capacity, (True,) * ndim)
        self.model = MolecularDynamics(
            self.cells, NeighborPolicy(cutoff, skin, rows, columns), potential, EACH, dynamics
        )
        self.dtype, self.species, self.frames = dtype, species, frames
        self.observe = energies if observe is None else observe
        self._run = jax.jit(self._whole, compiler_options=compiled_for)
        self.members = jax.jit(jax.vmap(self._whole, in_axes=(None, None, 0, None, None)))

    def run(self, position, velocity, params, dt, groups):
        """What was observed, frames leading, and by id: coordinates without images, velocities."""
        observed, where, velocity, status = self._run(
            jnp.asarray(position, self.dtype),
            jnp.asarray(velocity, self.dtype),
            params,
            jnp.asarray(dt, self.dtype),
            jnp.asarray(groups, jnp.int32),
        )
        assert reasons(int(status)) == "no fault"
        return jax.tree.map(np.asarray, (observed, where, velocity))

    def _whole(self, position, velocity, params, dt, groups):
        model, count = self.model, position.shape[1]
        species = jnp.zeros((count,), jnp.int32) if self.species is None else jnp.asarray(self.species, jnp.int32)
        state, lost = model.state_from(position, velocity, species, params)

        def group(number, carry):
            state, status = carry
            state, arrangement, fault = model.arrange(state, params)

            def step(carry, within):
                state, used = carry
                state = model.step(number * EACH + within, 0 * dt, dt, state, params, arrangement)
                return (state, jnp.maximum(used, model.skin_used(state, arrangement))), None

            (state, used), _ = lax.scan(step, (state, 0 * dt), jnp.arange(EACH, dtype=jnp.int32))
            fault = fault | jnp.where(used <= 1, OK, SKIN_PASSED).astype(jnp.int32)
            return state, status | fault

        def frame(carry, number):
            state, status = lax.fori_loop(number * groups, (number + 1) * groups, group, carry)
            return (state, status), self.observe(model, state, params)

        begin = state, jnp.where(lost > 0, CELL_FULL, OK).astype(jnp.int32)
        (state, status), observed = lax.scan(frame, begin, jnp.arange(self.frames, dtype=jnp.int32))
        by_id = tuple(unpack(self.cells, state.ids, u, count) for u in (unwrapped(self.cells, state), state.velocity))
        return observed, *by_id, status


def energies(model, state, params):
    return model.diagnostics(0.0, state, params)
