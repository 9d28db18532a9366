"""Particles that tests of dynamics share: a fluid, springs, free particles, and runs of them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.integrators.table import INTEGRATORS
from simjax.models.molecular import MolecularDynamics, Params
from simjax.models.potentials import PairPotential
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.arrangement import Skin
from simjax.particles.cells import Cells, cells_for, unpack
from simjax.stepping import Schedule, simulate


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


def at_rest(velocity: np.ndarray, temperature: float) -> np.ndarray:
    """Velocities of particles of mass 1 with no total momentum and just this kT, as N - 1 particles would have."""
    velocity = velocity - velocity.mean(axis=1, keepdims=True)
    freedom = velocity.shape[0] * (velocity.shape[1] - 1)
    return velocity * np.sqrt(temperature * freedom / np.sum(velocity**2))


class Experiment:
    """A model in a cubic periodic box and its compiled runs.

    `run(position, velocity, params)` gives the trajectory's observed values, the final state by id (coordinates in the
    box, velocities, images), its status, and its ensemble.
    """

    def __init__(
        self, length, cutoff, skin, potential, dynamics, *, particles, rows, capacity, dt, steps, frames, mesh=None,
        blocks=(), arrangement=5, species=None, observe=None, dtype=jnp.float64,
    ):  # fmt: skip
        mesh = make_mesh(mesh or {})
        grid = cells_for((0,) * 3, (length,) * 3, cutoff + skin, (True,) * 3, blocks)
        cells = Cells(decompose(grid, mesh), capacity, (True,) * 3)
        self.model = MolecularDynamics(cells, Skin(cutoff, skin, rows), potential, arrangement, dynamics)
        self.dtype = dtype
        species = jnp.zeros((particles,), jnp.int32) if species is None else jnp.asarray(species, jnp.int32)

        def look(t, state, params):
            found = self.model.diagnostics(t, state, params)
            return found | ({} if observe is None else observe(self.model, state, params))

        def by_id(state, values):
            return unpack(cells, state.ids, values, particles)

        def whole(position, velocity, params, dt):
            # Lengths in steps, so that one program serves every step.
            state, lost = self.model.state_from(position, velocity, species, params)
            first = look(0.0, state, params)
            schedule = Schedule(interval=steps * dt, dt=dt)
            end = simulate(self.model, INTEGRATORS["direct"], params, state, schedule, frames=frames, observe=look)
            final = end.state
            particles = tuple(
                by_id(final, u) for u in (cells.absolute(final.position), final.velocity, final.image)
            )  # fmt: skip
            return first, end.observed, particles, end.clock.status, lost, final.ensemble

        self._run = distribute(
            lambda *given: whole(*given, dt), mesh, in_specs=(PartitionSpec(),) * 3, out_specs=PartitionSpec()
        )

    def run(self, position, velocity, potential, dynamics=None, masses=1):
        kinds = jnp.ones((masses,), self.dtype)
        params = Params(potential, kinds, dynamics)
        params = jax.tree.map(lambda p: p if jnp.issubdtype(p.dtype, jnp.integer) else p.astype(self.dtype), params)
        found = self._run(jnp.asarray(position, self.dtype), jnp.asarray(velocity, self.dtype), params)
        first, observed, (where, speed, image), status, lost, ensemble = jax.tree.map(np.asarray, found)
        assert lost == 0
        return first, observed, where, speed, image, int(status), ensemble
