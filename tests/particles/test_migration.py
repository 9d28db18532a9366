"""A liquid whose particles pass between devices: the same particles in the same slots, and the same gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from ensembles import EACH, ShiftedForce, at_rest, lattice
from jax.sharding import PartitionSpec

from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, unpack
from simjax.particles.diffusion import unwrapped
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import OK
from simjax.stepping.simulate import Schedule, simulate

CUTOFF, SKIN, DT = 2.5, 0.4, 0.005
BLOCKS = (4, 4, 2)  # of the grid of cells, whatever the mesh
MESHES = {"2x2x2": {"x": 2, "y": 2, "z": 2}, "4x2": {"x": 4, "y": 2}}


class Liquid:
    """2048 particles of a melting, moving crystal on a mesh: `run(positions, velocities, params)` for some steps."""

    def __init__(self, sizes, steps: int, capacity: int = 48):
        self.position, self.length = lattice(8, 0.8442)
        # All of it flows across the sides of blocks.
        drift = np.array([[1.0], [-0.7], [0.5]])
        self.velocity = at_rest(np.random.default_rng(0).normal(size=self.position.shape), 2.0) + drift
        self.count, self.steps = self.position.shape[1], steps
        self.mesh = make_mesh(sizes)
        grid = cells_for((0,) * 3, (self.length,) * 3, CUTOFF + SKIN, (True,) * 3, BLOCKS)
        self.cells = Cells(decompose(grid, self.mesh), capacity, (True,) * 3)
        # Rows for the partners of the crystal and of the liquid, and some more.
        self.model = MolecularDynamics(self.cells, NeighborPolicy(CUTOFF, SKIN, 116), ShiftedForce(), EACH)
        self.params = Params((jnp.asarray(1.0), jnp.asarray(1.0)), jnp.ones(1))

    def run(self, position, velocity, params):
        species = jnp.zeros((self.count,), jnp.int32)
        state, lost = self.model.state_from(position, velocity, species, params)
        schedule = Schedule(interval=DT * self.steps, dt=DT)
        end = simulate(self.model, None, params, state, schedule, frames=1)
        where = unpack(self.cells, end.state.ids, unwrapped(self.cells, end.state), self.count)
        moving = unpack(self.cells, end.state.ids, end.state.velocity, self.count)
        image = unpack(self.cells, end.state.ids, end.state.image, self.count)
        return (where, moving, image), end.state.ids, end.clock.status + lost

    def distributed(self, fn, out_specs):
        return distribute(fn, self.mesh, in_specs=(PartitionSpec(),) * 3, out_specs=out_specs)

    @property
    def whole(self):
        """`run`, with the box cut over the mesh."""
        return self.distributed(self.run, (PartitionSpec(), self.cells.domain.spec(4), PartitionSpec()))

    @property
    def given(self):
        return jnp.asarray(self.position), jnp.asarray(self.velocity), self.params


def passed(mesh: str | None, before, after) -> int:
    """How many particles are in another device's block than before."""
    length = Liquid({}, 0).length
    blocks = np.array([MESHES[mesh].get(axis, 1) if mesh else 1 for axis in "xyz"])[:, None]
    first, last = (np.floor(np.mod(np.asarray(x), length) / length * blocks) for x in (before, after))
    return int(np.any(first != last, axis=0).sum())


@functools.cache
def end_of(mesh: str | None):
    """Positions, velocities and images by number, and the ids in all slots, after 200 steps."""
    liquid = Liquid(MESHES[mesh] if mesh else {}, 200)
    particles, slots, status = jax.tree.map(np.asarray, jax.jit(liquid.whole)(*liquid.given))
    assert status == OK
    return particles, slots


@pytest.mark.parametrize(
    "mesh", [pytest.param(mesh, marks=pytest.mark.slow if mesh == "4x2" else pytest.mark.long) for mesh in MESHES]
)
def test_two_hundred_steps_are_those_of_one_device(mesh):
    """Bit for bit in which particle is in which slot and how often it went round; to rounding in where it is there."""
    (where, velocity, image), slots = end_of(mesh)
    (where_one, velocity_one, image_one), slots_one = end_of(None)
    np.testing.assert_array_equal(slots, slots_one)
    np.testing.assert_array_equal(image, image_one)
    # Sums in another order round to 1e-15 of forces of 100, which chaos makes e^3 as large within one unit of time;
    # velocities change ten times as fast.
    assert np.abs(where - where_one).max() < 1e-11
    assert np.abs(velocity - velocity_one).max() < 1e-10
    assert passed(mesh, Liquid({}, 0).position, where) > 200


@functools.cache
def slopes_of(mesh: str | None):
    """Gradient of a function of the positions after ten steps, arranged twice: in starts and the two parameters."""
    liquid = Liquid(MESHES[mesh] if mesh else {}, 2 * EACH)
    weights = np.random.default_rng(3).normal(size=liquid.position.shape)

    def loss(position, velocity, potential):
        params = Params(potential, liquid.params.mass)
        (where, moving, _), _, status = liquid.run(position, velocity, params)
        value = jnp.sum(jnp.asarray(weights) * (jnp.sin(where) + moving)) / liquid.count
        return jnp.where(status == OK, value, jnp.nan)

    run = liquid.distributed(loss, PartitionSpec())
    position, velocity, params = liquid.given
    slopes = jax.jit(jax.grad(run, (0, 1, 2)), compiler_options=QUICK)
    # Off the lattice, where forces cancel, and with planes of particles on the sides of blocks.
    edge = liquid.length / 8
    start = position - 0.25 * edge + 0.05 * np.random.default_rng(4).normal(size=position.shape)
    start = jnp.mod(start, liquid.length)
    (where, _, _), _, status = jax.jit(liquid.whole, compiler_options=QUICK)(start, velocity, params)
    assert int(status) == OK
    return jax.tree.map(np.asarray, slopes(start, velocity, params.potential)), passed(mesh, start, where)


@pytest.mark.parametrize(
    "mesh", [pytest.param("2x2x2", marks=pytest.mark.long), pytest.param("4x2", marks=pytest.mark.slow)]
)
def test_gradients_of_a_liquid_are_those_of_one_device(mesh):
    (slopes, moved), (slopes_one, _) = slopes_of(mesh), slopes_of(None)
    assert moved > 100
    for found, expected in zip(jax.tree.leaves(slopes), jax.tree.leaves(slopes_one), strict=True):
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
