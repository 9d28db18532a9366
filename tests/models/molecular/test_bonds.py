"""Bonds and angles: found by id wherever particles are, forces as those of a plain sum, and never lost in silence."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec
from particles import scattered

from simjax.errors import ConfigurationError
from simjax.models.molecular.bonds import (
    Bonds,
    BondTopology,
    FiniteExtensibleBond,
    HarmonicAngle,
    HarmonicBond,
    HarmonicCosine,
)
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params, State
from simjax.models.molecular.pair_potentials import ForceShifted, UserPotential
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, pack, unpack
from simjax.particles.id_lookup import ends_of, partners_of
from simjax.particles.neighbor_list import neighbours_within
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.particles.neighbor_slots import own_slot
from simjax.status import BOND_LOST
from simjax.stepping.simulate import Schedule, simulate

# In every run of the tests are those of the parts: test_cells_and_pairs, test_pair_potentials, test_particle_mesh.
pytestmark = pytest.mark.slow

LENGTHS = (6.4, 6.4, 3.4)
BEADS, CHAINS = 6, 12
CUTOFF, SKIN, LONGEST = 1.1, 0.45, 1.5


def chains(seed=0):
    """Chains of beads as random walks through the box, ids in no order along them: positions, bonds, angles."""
    rng = np.random.default_rng(seed)
    starts = scattered(CHAINS, LENGTHS, 1.4, seed)
    steps = rng.normal(size=(3, CHAINS, BEADS - 1))
    steps *= 0.97 / np.linalg.norm(steps, axis=0)
    walk = np.concatenate([starts[:, :, None], starts[:, :, None] + np.cumsum(steps, axis=2)], axis=2)
    names = rng.permutation(CHAINS * BEADS).reshape(CHAINS, BEADS)
    position = np.empty((3, CHAINS * BEADS))
    position[:, names.ravel()] = walk.reshape(3, -1)
    bonds = np.stack([names[:, :-1].ravel(), names[:, 1:].ravel()], axis=1)
    angles = np.stack([names[:, :-2].ravel(), names[:, 1:-1].ravel(), names[:, 2:].ravel()], axis=1)
    return position, bonds, angles


def links(count, bonds, angles) -> BondTopology:
    return BondTopology(jnp.asarray(partners_of(count, bonds)), jnp.asarray(ends_of(count, angles)))


def model_on(mesh, bonds: Bonds, rows=0, blocks=()):
    # Walks cross each other: a soft repulsion.
    soft = ForceShifted(UserPotential(lambda r, here, there, height: height * jnp.exp(-4 * r * r)), CUTOFF)
    grid = cells_for((0.0,) * 3, LENGTHS, CUTOFF + SKIN, (True,) * 3, blocks)
    cells = Cells(decompose(grid, mesh), 16, (True,) * 3)
    return MolecularDynamics(cells, NeighborPolicy(CUTOFF, SKIN, rows), soft, 5, bonds=bonds)


def apart(x, i, j):
    lengths = np.asarray(LENGTHS)[:, None]
    r = x[:, i] - x[:, j]
    return r - lengths * jnp.round(jax.lax.stop_gradient(r) / lengths)


ONE = jnp.asarray(1.0)
KINDS = {
    "FENE, cosine": (
        FiniteExtensibleBond(),
        HarmonicCosine(),
        ((30 * ONE, 1.5 * ONE, ONE, ONE), (3 * ONE, 2.0 * ONE)),
    ),
    "harmonic, angle": (HarmonicBond(), HarmonicAngle(), ((50 * ONE, 0.9 * ONE), (3 * ONE, 2.0 * ONE))),
}


def by_hand(name, x, strain, bonds, angles):
    """Energy of bonds and angles, written as in a textbook."""
    r = apart(x, bonds[:, 0], bonds[:, 1])
    r = jnp.sqrt(jnp.sum((r + strain @ r) ** 2, axis=0))
    a, b = (apart(x, angles[:, k], angles[:, 1]) for k in (0, 2))
    a, b = a + strain @ a, b + strain @ b
    cosine = jnp.sum(a * b, axis=0) / jnp.linalg.norm(a, axis=0) / jnp.linalg.norm(b, axis=0)
    if name == "harmonic, angle":
        return jnp.sum(25 * (r - 0.9) ** 2) + jnp.sum(1.5 * (jnp.arccos(cosine) - 2) ** 2)
    repulsion = jnp.where(r < 2 ** (1 / 6), 4 * (r**-12 - r**-6) + 1, 0)
    stretch = -15 * 1.5**2 * jnp.log(1 - (r / 1.5) ** 2)
    return jnp.sum(stretch + repulsion) + jnp.sum(1.5 * (cosine - np.cos(2.0)) ** 2)


@pytest.mark.parametrize("name", KINDS)
def test_energy_and_forces_are_those_of_a_plain_sum(name):
    """Each bond and angle once; forces are slopes; the virial is the slope in a strain. To some hundred roundings."""
    position, bonds, angles = chains()
    count = position.shape[1]
    bond, angle, params = KINDS[name]
    model = model_on(None, Bonds(bond, angle, LONGEST, SKIN))

    def run(position, links, params):
        zero = jnp.zeros_like(position)
        stored = pack_state(model, position, zero, links)
        slots, fault = model.bonds.find(model.cells, stored.position, stored.ids, stored.links)
        found = model.bonds.evaluate(model.cells, stored.position, stored.ids, stored.species, slots, params)
        return unpack(model.cells, stored.ids, found["force"], count), sums(found), fault

    force, (energy, virial), fault = jax.jit(run, compiler_options=QUICK)(
        jnp.asarray(position), links(count, bonds, angles), params
    )
    assert int(fault) == 0
    expected, (slope, stress) = jax.value_and_grad(functools.partial(by_hand, name), argnums=(0, 1))(
        jnp.asarray(position), jnp.zeros((3, 3)), bonds, angles
    )
    scale = float(jnp.max(jnp.abs(slope)))
    np.testing.assert_allclose(energy, expected, rtol=1e-12)
    np.testing.assert_allclose(force, -slope, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(virial, -stress, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(jnp.sum(force, axis=1), 0, atol=1e-12 * scale)


def pack_state(model, position, velocity, links):
    """A state without forces, which need the arrangement that a test makes itself."""
    species = jnp.zeros(position.shape[1:], jnp.int32)
    within, ids, (velocity, species, links), _ = pack(model.cells, position, (velocity, species, links))
    return State(within, jnp.zeros(within.shape, jnp.int32), ids, velocity, jnp.zeros_like(within), species, links)


def sums(found):
    return tuple(
        jnp.sum(found[name], axis=tuple(range(found[name].ndim - 4, found[name].ndim))) for name in ("energy", "virial")
    )


def test_a_bond_that_is_too_long_or_has_lost_a_partner_is_a_fault():
    position, bonds, angles = chains()
    count = position.shape[1]
    bond, angle, params = KINDS["harmonic, angle"]
    model = model_on(None, Bonds(bond, angle, LONGEST, SKIN))

    def fault(position, links):
        stored = pack_state(model, position, jnp.zeros_like(position), links)
        return model.bonds.find(model.cells, stored.position, stored.ids, stored.links)[1]

    run = jax.jit(fault, compiler_options=QUICK)
    given = links(count, bonds, angles)
    assert int(run(jnp.asarray(position), given)) == 0
    end, other = angles[0, 0], angles[0, 1]
    direction = position[:, end] - position[:, other]
    direction /= np.linalg.norm(direction)
    for length, expected in [(1.49, 0), (1.51, BOND_LOST), (3.1, BOND_LOST)]:
        moved = position.copy()
        moved[:, end] = moved[:, other] + length * direction
        assert int(run(jnp.asarray(moved), given)) == expected
    gone = position.copy()
    gone[0, end] = np.nan  # has no place in any cell
    assert int(run(jnp.asarray(gone), given)) == BOND_LOST


def test_bonded_particles_leave_each_other_out():
    position, bonds, angles = chains()
    bond, angle, _ = KINDS["harmonic, angle"]
    model = model_on(None, Bonds(bond, angle, LONGEST, SKIN, exclude=True), rows=32)

    def count(position, links):
        stored = pack_state(model, position, jnp.zeros_like(position), links)
        listed, fault = neighbours_within(model.cells, stored.position, stored.ids, model.skin.reach, 32)
        slots, _ = model.bonds.find(model.cells, stored.position, stored.ids, stored.links)
        fewer = model.bonds.excluded(model.cells, listed, slots)
        own = own_slot(model.cells).ravel()[listed.owner]
        return [jnp.sum(found.slot != own[None]) for found in (listed, fewer)], fault

    run = jax.jit(count, compiler_options=QUICK)
    (before, after), fault = run(jnp.asarray(position), links(position.shape[1], bonds, angles))
    assert int(fault) == 0
    assert int(before) - int(after) == 2 * len(bonds)


def test_bonds_that_cannot_be_are_refused():
    bond, angle, _ = KINDS["harmonic, angle"]
    with pytest.raises(ConfigurationError, match=r"bond \(3, 3\).*different particles"):
        partners_of(5, np.array([[0, 1], [3, 3]]))
    with pytest.raises(ConfigurationError, match=r"angle \(0, 1, 7\)"):
        ends_of(5, np.array([[0, 1, 7]]))
    with pytest.raises(ConfigurationError, match="at most 1.6.*longer NeighborPolicy.skin"):
        model_on(None, Bonds(bond, angle, 1.65, SKIN))
    with pytest.raises(ConfigurationError, match="max_neighbors = 0: expected lists"):
        model_on(None, Bonds(bond, angle, LONGEST, SKIN, exclude=True))


@functools.cache
def trajectory(mesh_sizes):
    """Chains with angles for 60 steps: final positions, images and partners, energy and momentum of frames, status."""
    position, bonds, angles = chains(3)
    count = position.shape[1]
    velocity = np.random.default_rng(1).normal(size=position.shape)
    velocity -= velocity.mean(axis=1, keepdims=True)
    bond, angle, _ = KINDS["harmonic, angle"]
    mesh = make_mesh(dict(mesh_sizes))
    model = model_on(mesh, Bonds(bond, angle, LONGEST, SKIN), blocks=(2, 2, 2))
    params = Params(ONE, jnp.ones(1), bonds=((100 * ONE, 0.95 * ONE), (3 * ONE, 2.0 * ONE)))
    schedule = Schedule(interval=0.04, dt=0.002)

    def run(position, velocity, links, params):
        state = pack_state(model, position, velocity, links)

        def observe(t, state, params):
            found = model.diagnostics(t, state, params)
            return [found[name] for name in ("energy", "momentum_x", "momentum_y", "momentum_z", "pressure")]

        end = simulate(model, None, params, state, schedule, frames=3, observe=observe)
        ordered = unpack(model.cells, end.state.ids, model.cells.absolute(end.state.position), count)
        partners = unpack(model.cells, end.state.ids, end.state.links.partners, count)
        image = unpack(model.cells, end.state.ids, end.state.image, count)
        return ordered, image, partners, end.observed, end.clock.status

    run = distribute(run, mesh, in_specs=(PartitionSpec(),) * 4, out_specs=PartitionSpec())
    arguments = jnp.asarray(position), jnp.asarray(velocity), links(count, bonds, angles), params
    return run.lower(*arguments).compile(QUICK)(*arguments)


@pytest.mark.long
def test_chains_keep_energy_momentum_and_bonds_on_any_devices():
    """Energy is compared from the first frame on: before the first step no forces are known."""
    one = trajectory(())
    ordered, image, partners, (energy, *momentum, _), status = one
    assert int(status) == 0
    # Velocity Verlet: (omega dt)^2 = 8e-4 with omega^2 = 200 of what moves to and fro within bonds.
    np.testing.assert_allclose(energy, energy[0], rtol=1e-3)
    np.testing.assert_allclose(momentum, 0, atol=1e-11)
    position, bonds, _ = chains(3)
    np.testing.assert_array_equal(partners, partners_of(position.shape[1], bonds))
    assert np.any(np.asarray(image) != 0)
    many = trajectory((("x", 2), ("y", 2), ("z", 2)))
    assert int(many[-1]) == 0
    # Sums in the same order on every decomposition but for the measured ones; compilers round differently.
    np.testing.assert_allclose(many[0], ordered, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(many[1], image)
    np.testing.assert_allclose(many[3], one[3], rtol=1e-11, atol=1e-10)
