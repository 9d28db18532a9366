"""Learned potentials and forces in stored configurations: slopes of the energy, many devices, what matching finds."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from case import QUICK
from jax.sharding import PartitionSpec
from particles import scattered, separations

import simjax as sj
from simjax.errors import ConfigurationError
from simjax.models.molecular.force_matching import ForceMatching, StoredForces
from simjax.models.molecular.interaction import Superposition
from simjax.models.molecular.moment_networks import MomentNetwork, NetworkMoments
from simjax.models.molecular.pair_potentials import ForceShifted, NetworkPotential, SoftSphere, Sum
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, pack, unpack
from simjax.particles.pairs import Pairs

CUTOFF, MOST, COUNT = 1.6, 16, 32
LENGTHS = (6.6, 7.0)
POSITION = scattered(COUNT, LENGTHS, 0.9)


@functools.cache
def network():
    """A known repulsion beside a network that sees directions, and their parameters."""
    module = MomentNetwork(channels=3, order=2, cutoff=CUTOFF, size=1.2, hidden=6, key=jax.random.key(1))
    learned, params = NetworkMoments.of(module)
    core = jnp.asarray(0.1), jnp.asarray(1.0)
    return Superposition((ForceShifted(SoftSphere(12), CUTOFF), learned)), (core, params)


@functools.cache
def stored():
    """Compiled: what is felt at positions in a box, and the slopes of the energy with respect to both."""
    forces = StoredForces(network()[0], CUTOFF, MOST)

    def energy(position, lengths, params):
        found = forces(params, position, lengths)
        return found.energy, found

    def everything(*at):
        (_, found), slopes = jax.value_and_grad(energy, argnums=(0, 1), has_aux=True)(*at)
        return found, slopes

    return jax.jit(everything, compiler_options=QUICK)


def felt(position=POSITION, lengths=LENGTHS):
    return stored()(jnp.asarray(position), jnp.asarray(lengths), network()[1])


@pytest.mark.slow
def test_forces_are_slopes_of_the_energy_and_turn_with_the_particles():
    found, (slope, _) = felt()
    assert bool(found.complete)
    scale = float(jnp.max(jnp.abs(found.force)))
    # Sums over a dozen partners: some roundings.
    np.testing.assert_allclose(found.force, -slope, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(jnp.sum(found.force, axis=1), 0, atol=1e-12 * scale)
    # With x and y exchanged, the particles in another order and one a box further on.
    order = np.random.default_rng(0).permutation(COUNT)
    moved = POSITION[::-1, order] + np.eye(COUNT)[3] * np.asarray(LENGTHS)[::-1, None]
    turned, _ = felt(moved, LENGTHS[::-1])
    np.testing.assert_allclose(turned.energy, found.energy, rtol=1e-12)
    np.testing.assert_allclose(turned.force, found.force[::-1, order], rtol=0, atol=1e-12 * scale)


def test_the_virial_is_the_slope_of_the_energy_in_a_strain():
    found, (slope, of_lengths) = felt()
    strained = [jnp.sum(slope[a] * POSITION[a]) + of_lengths[a] * LENGTHS[a] for a in range(2)]
    np.testing.assert_allclose(jnp.diag(found.virial), -jnp.stack(strained), rtol=1e-11)


def decomposed(sizes):
    """Energy, forces in the order of ids and the slope of their squares with respect to the network's weights."""
    mesh, (potential, params) = make_mesh(sizes), network()
    cells = Cells(decompose(cells_for((0.0,) * 2, LENGTHS, CUTOFF, (True,) * 2, (2, 2)), mesh), 16, (True,) * 2)

    def evaluated(position, params):
        within, ids, _, _ = pack(cells, position, ())
        found = potential.evaluate(Pairs(cells, within, ids, CUTOFF), jnp.zeros_like(ids), params)
        return cells.domain.sum(found["energy"]), unpack(cells, ids, found["force"], COUNT)

    run = distribute(evaluated, mesh, in_specs=(PartitionSpec(),) * 2, out_specs=PartitionSpec())

    def squares(params, position):
        energy, force = run(position, params)
        return jnp.mean(force**2), (energy, force)

    program = jax.jit(jax.value_and_grad(squares, has_aux=True), compiler_options=QUICK)
    (_, found), slope = program(params, jnp.asarray(POSITION))
    return *found, slope


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{}, {"x": 2, "y": 2}], ids=["one device", "four devices"])
def test_forces_and_slopes_are_those_of_cells_on_any_mesh(sizes):
    found, _ = felt()
    loss = ForceMatching(StoredForces(network()[0], CUTOFF, MOST), lambda params: params)
    nothing = {"position": POSITION[None], "force": np.zeros((1, *POSITION.shape)), "lengths": jnp.asarray(LENGTHS)}
    expected = jax.jit(jax.grad(loss), compiler_options=QUICK)(network()[1], nothing)
    energy, force, slope = decomposed(sizes)
    scale = float(jnp.max(jnp.abs(force)))
    # Sums in another order.
    np.testing.assert_allclose(energy, found.energy, rtol=1e-12)
    np.testing.assert_allclose(force, found.force, rtol=0, atol=1e-12 * scale)
    for one, other in zip(jax.tree.leaves(slope), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * float(jnp.max(jnp.abs(other))))


SPHERES = ForceShifted(Sum((SoftSphere(12), SoftSphere(6), SoftSphere(3))), CUTOFF)
TRUTH = np.array([0.8, -1.1, 0.3])


def spheres(strengths):
    return tuple((strength, jnp.asarray(1.0)) for strength in strengths)


def plain_forces(position):
    """Forces of `SPHERES` from a sum over all pairs, with U'(r) - U'(cutoff)."""
    i, _, apart = separations(position, LENGTHS, (True, True), CUTOFF)
    r = np.sqrt(np.sum(apart**2, axis=0))
    slope = sum(-c * n * (r ** (-n - 1) - CUTOFF ** (-n - 1)) for c, n in zip(TRUTH, (12, 6, 3), strict=True))
    return np.stack([np.bincount(i, -slope * x / r, COUNT) for x in apart])


@functools.cache
def samples():
    """Three states and the forces there."""
    position = np.stack([scattered(COUNT, LENGTHS, 0.9, seed) for seed in range(3)])
    force = np.stack([plain_forces(x) for x in position])
    return {"position": position, "force": force, "lengths": np.asarray(LENGTHS)}


@functools.cache
def loss_of_spheres(most):
    """Compiled: the loss of strengths, its slope and curvature."""
    loss = ForceMatching(StoredForces(SPHERES, CUTOFF, most), spheres)

    def everything(strengths, sample):
        def slopes(strengths):
            value, slope = jax.value_and_grad(loss)(strengths, sample)
            return slope, value

        slope, push, value = jax.linearize(slopes, strengths, has_aux=True)
        return value, slope, jax.vmap(push)(jnp.eye(3))

    return jax.jit(everything, compiler_options=QUICK)


def test_matching_finds_the_potential_that_is_in_the_basis():
    """The loss is a square of what is linear in the strengths: one step of Newton's method finds the truth."""
    _, slope, curvature = loss_of_spheres(MOST)(jnp.zeros(3), samples())
    # Rounding times the condition of the three powers, some thousand.
    np.testing.assert_allclose(-np.linalg.solve(curvature, slope), TRUTH, rtol=1e-10)


def test_a_loss_without_all_pairs_is_infinite():
    # Forces from r^-13 lose some digits in sums.
    assert float(loss_of_spheres(MOST)(TRUTH, samples())[0]) < 1e-20
    short = samples() | {"lengths": np.asarray([2 * CUTOFF - 0.1, 7.0])}
    assert float(loss_of_spheres(MOST)(TRUTH, short)[0]) == np.inf
    assert float(loss_of_spheres(3)(TRUTH, samples())[0]) == np.inf


@pytest.mark.slow
def test_a_learner_finds_the_forces_of_a_pair_potential_by_a_network():
    network = eqx.nn.MLP(1, 1, 12, 1, activation=jnp.tanh, key=jax.random.key(0))
    potential = ForceShifted(Sum((SoftSphere(12), NetworkPotential.of(network)[0])), CUTOFF)
    core = jnp.asarray(1.0), jnp.asarray(0.9)
    loss = ForceMatching(
        StoredForces(potential, CUTOFF, MOST), lambda module: (core, eqx.filter(module, eqx.is_inexact_array))
    )
    learner = sj.Learner(network, optax.adam(optax.cosine_decay_schedule(2e-2, 400)))
    whole = {name: np.asarray(u)[None] for name, u in samples().items()}
    training = sj.train(learner, [sj.Stage(400, sj.WindowLoss(loss))], iter(lambda: whole, None), every=400)
    first, left = (np.sqrt(float(loss(one, samples()))) for one in (network, training.module))
    # Measured: 0.066 of the forces are left, of twelve steep functions after so few updates.
    assert left < first / 5 and left < 0.1 * np.sqrt(np.mean(samples()["force"] ** 2))


def test_networks_that_cannot_be_are_refused():
    given = {"channels": 3, "order": 2, "cutoff": CUTOFF, "size": 1.0, "hidden": 4, "key": jax.random.key(0)}
    with pytest.raises(ConfigurationError, match=r"MomentNetwork.order=3: expected 0, 1 or 2; write 2 for angles."):
        MomentNetwork(**given | {"order": 3})
    with pytest.raises(ConfigurationError, match=r"MomentNetwork.cutoff=0: expected a finite number above 0."):
        MomentNetwork(**given | {"cutoff": 0.0})
