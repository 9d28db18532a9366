"""Reflecting walls of a box of particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from configurations import refusal
from ensembles import EACH, Free, ShiftedForce, at_rest, square_lattice
from jax.sharding import PartitionSpec

from simjax.errors import ConfigurationError
from simjax.models.molecular.barostat import StochasticCellRescaling
from simjax.models.molecular.langevin import BathParams, Brownian, Langevin
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, unpack
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import ESCAPED, OK
from simjax.stepping.simulate import Schedule, simulate

WALLED = (False, True)
LENGTH = 8.0


class Box:
    """Particles between two walls along x, around which y closes on itself; `run(position, velocity, dynamics)`."""

    def __init__(self, potential, dynamics, steps, dt, sizes=None, cutoff=1.0, reflecting=True):
        self.mesh = make_mesh(sizes or {})
        grid = cells_for((0.0, 0.0), (LENGTH, LENGTH), cutoff + 0.6, WALLED, (2, 1))
        self.cells = Cells(decompose(grid, self.mesh), 32, WALLED)
        self.model = MolecularDynamics(
            self.cells, NeighborPolicy(cutoff, 0.6, 48), potential, EACH, dynamics, reflecting=reflecting
        )
        self.schedule = Schedule(interval=dt * steps, dt=dt)

    def whole(self, position, velocity, dynamics=None):
        params = Params((jnp.asarray(1.0), jnp.asarray(1.0)), jnp.ones(1), dynamics)
        count = position.shape[1]
        state, lost = self.model.state_from(position, velocity, jnp.zeros((count,), jnp.int32), params)
        end = simulate(self.model, None, params, state, self.schedule, frames=1)
        energy = [self.model.diagnostics(0.0, s, params)["energy"] for s in (state, end.state)]
        where = unpack(self.cells, end.state.ids, self.cells.absolute(end.state.position), count)
        return where, unpack(self.cells, end.state.ids, end.state.velocity, count), energy, end.clock.status + lost

    def run(self, *given):
        everywhere = PartitionSpec()
        program = distribute(self.whole, self.mesh, in_specs=(everywhere,) * len(given), out_specs=everywhere)
        return jax.jit(program, compiler_options=QUICK)(*given)


def reflected(x):
    """Where a free particle between walls at 0 and LENGTH is that would be at x without them."""
    return LENGTH - np.abs(np.mod(x, 2 * LENGTH) - LENGTH)


def thrown():
    """Places and velocities of 40 particles."""
    random = np.random.default_rng(3)
    return random.uniform(0, LENGTH, (2, 40)), random.uniform(-4, 4, (2, 40))


@pytest.mark.parametrize("sizes", [{}, pytest.param({"x": 2}, marks=pytest.mark.slow)], ids=["1", "2"])
@pytest.mark.slow
def test_free_particles_fly_to_and_fro(sizes):
    position, velocity = thrown()
    where, now, _, status = Box(Free(), VelocityVerlet(), 400, 0.01, sizes).run(*map(jnp.asarray, thrown()))
    assert int(status) == OK
    far = position[0] + 4.0 * velocity[0]
    bounces = np.floor(far / LENGTH).astype(int)
    assert np.abs(bounces).max() >= 2 and (bounces == 0).any()
    # 400 steps of at most 0.04, each rounded where x is below 8.
    np.testing.assert_allclose(where[0], reflected(far), rtol=0, atol=400 * 8 * np.finfo(float).eps)
    np.testing.assert_array_equal(now[0], np.where(bounces % 2 == 0, 1, -1) * velocity[0])
    np.testing.assert_array_equal(now[1], velocity[1])


@pytest.mark.slow
def test_the_derivative_changes_its_sign_at_every_bounce():
    position, velocity = thrown()
    box = Box(Free(), VelocityVerlet(), 400, 0.01)

    def total(velocity):
        return jnp.sum(box.whole(jnp.asarray(position), velocity)[0][0])

    slope = jax.jit(jax.grad(total), compiler_options=QUICK)(jnp.asarray(velocity))
    back = np.floor((position[0] + 4.0 * velocity[0]) / LENGTH).astype(int) % 2 == 1
    assert 10 < back.sum() < 30  # of 40
    # 400 sums of 0.01.
    np.testing.assert_allclose(slope[0][~back], 4.0, rtol=1e-12)
    np.testing.assert_allclose(slope[0][back], -4.0, rtol=1e-12)
    np.testing.assert_array_equal(slope[1], np.zeros_like(slope[1]))


def fluid():
    position, length = square_lattice(6, 36 / LENGTH**2)
    assert length == LENGTH
    return jnp.asarray(position), jnp.asarray(at_rest(np.random.default_rng(1).normal(size=position.shape), 1.5))


@pytest.mark.slow
def test_a_fluid_keeps_its_energy_and_goes_back_the_way_it_came():
    """Mirrored positions are those of a mirrored fluid: the walls are as reversible as the forces."""
    position, velocity = fluid()
    box = Box(ShiftedForce(), VelocityVerlet(), 400, 0.004, cutoff=2.5)
    where, now, (first, last), status = box.run(position, velocity)
    assert int(status) == OK
    # A bounce within a step shifts it by up to F v dt, either way: forces of 10, velocities of 2, some twenty bounces.
    assert abs(float(last - first)) < 20**0.5 * 10 * 2 * 0.004
    back, before, _, status = box.run(where, -now)
    assert int(status) == OK
    # Rounding, which collisions in 1.6 units of time make a thousand times as large.
    np.testing.assert_allclose(back, position, rtol=0, atol=1e-11)
    np.testing.assert_allclose(before, -velocity, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", [Langevin(), Brownian()], ids=["langevin", "brownian"])
def test_no_one_leaves_under_random_forces(dynamics):
    params = BathParams(jnp.asarray(0.5), jnp.asarray(1.0), jnp.asarray(0, jnp.int32))
    position, velocity = thrown()
    start = jnp.asarray(position), 0 * velocity, params
    where, _, _, status = Box(Free(), dynamics, 400, 0.0005).run(*start)
    assert int(status) == OK
    assert float(where[0].min()) >= 0 and float(where[0].max()) < LENGTH
    # Without walls some would.
    assert int(Box(Free(), dynamics, 400, 0.0005, reflecting=False).run(*start)[-1]) & ESCAPED


@pytest.mark.slow
def test_without_walls_what_leaves_is_told():
    *_, status = Box(Free(), VelocityVerlet(), 400, 0.01, reflecting=False).run(*map(jnp.asarray, thrown()))
    assert int(status) & ESCAPED


@pytest.mark.slow
def test_momentum_across_walls_is_a_degree_of_freedom():
    position, velocity = map(jnp.asarray, thrown())
    model, params = Box(Free(), VelocityVerlet(), 1, 0.01).model, Params((), jnp.ones(1))
    state, _ = model.state_from(position, velocity, jnp.zeros((40,), jnp.int32), params)
    found = jax.jit(model.diagnostics, compiler_options=QUICK)(0.0, state, params)["temperature"]
    # Of 80 components one is that of the total momentum along y. A sum of 80 squares.
    assert float(found) == pytest.approx(float(jnp.sum(velocity**2)) / 79, rel=1e-14)


def test_mistakes_are_refused():
    with pytest.raises(ConfigurationError, match="write a dynamics at constant volume"):
        Box(ShiftedForce(), StochasticCellRescaling(), 1, 0.01)
    liquid = {
        "model": "molecular_dynamics",
        "physics": {"walls": "reflecting"},
        "box": {"upper": [8.0, 8.0]},
        "particles": {"count": 16},
        "time": {"end": 1.0, "output_every": 0.1, "dt": 0.005},
    }
    assert "write box.periodic with false for it" in refusal(liquid)
