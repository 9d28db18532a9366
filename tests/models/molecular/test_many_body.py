"""Potentials of more than two particles: silicon's lattice, a plain sum over triples, gradients, many devices."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec
from particles import separations

from simjax.models.molecular.many_body import StillingerWeber, StillingerWeberParams
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, pack, unpack
from simjax.particles.pairs import Pairs

# In every run of the tests are those of the parts: test_cells_and_pairs, test_pair_potentials, test_particle_mesh.
pytestmark = pytest.mark.slow

CUTOFF = 1.8
# The nearest neighbours, sqrt(3) / 4 of a lattice constant away, are where the pair energy is least: 2^(1/6) sigma.
CONSTANT = 2 ** (1 / 6) * 4 / np.sqrt(3)
LENGTHS = (2 * CONSTANT,) * 3


def diamond(kick: float) -> np.ndarray:
    """64 atoms of a diamond lattice, each displaced by about `kick`."""
    face = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    corners = np.array(list(itertools.product(range(2), repeat=3)))
    basis = np.concatenate([face, face + 0.25]) + 0.1
    position = (corners[:, None] + basis).reshape(-1, 3).T * CONSTANT
    return position + kick * np.random.default_rng(1).normal(size=position.shape)


@functools.cache
def program(sizes):
    """Energy, forces in the order of ids, virial, and slopes of the energy with respect to positions and params."""
    mesh = make_mesh(dict(sizes))
    cells = Cells(decompose(cells_for((0.0,) * 3, LENGTHS, CUTOFF, (True,) * 3, (2, 2, 2)), mesh), 16, (True,) * 3)

    def evaluated(position, params):
        within, ids, _, lost = pack(cells, position, ())
        found = StillingerWeber().evaluate(Pairs(cells, within, ids, CUTOFF), jnp.zeros_like(ids), params)
        force = unpack(cells, ids, found["force"], position.shape[1])
        virial = cells.domain.total(jnp.sum(found["virial"], axis=(2, 3, 4, 5)))
        return cells.domain.sum(found["energy"]), force, virial, lost

    run = distribute(evaluated, mesh, in_specs=(PartitionSpec(),) * 2, out_specs=PartitionSpec())

    def energy(position, params):
        found = run(position, params)
        return found[0], found

    def everything(position, params):
        (_, found), slopes = jax.value_and_grad(energy, argnums=(0, 1), has_aux=True)(position, params)
        return found, slopes

    return jax.jit(everything, compiler_options=QUICK)


def triples(position, reach):
    """(energy of all, of shifts of atoms, a strain of space and parameters) from sums over all pairs and triples."""
    i, j, apart = separations(position, LENGTHS, (True,) * 3, reach)
    first, second = np.nonzero((i[:, None] == i[None]) & ~np.eye(len(i), dtype=bool))

    def energy(shift, strain, p):
        r = jnp.asarray(apart) + shift[:, i] - shift[:, j]
        r = (r + strain @ r) / p.sigma
        d = jnp.sqrt(jnp.sum(r * r, axis=0))
        two = p.epsilon * p.A * (p.B * d**-4 - 1) * jnp.exp(1 / (d - 1.8))
        h = jnp.exp(p.decay / (d - 1.8))
        cosine = jnp.sum(r[:, first] * r[:, second], axis=0) / (d[first] * d[second])
        three = p.epsilon * p.strength * (cosine + 1 / 3) ** 2 * h[first] * h[second]
        return jnp.sum(two) / 2 + jnp.sum(three) / 2

    return energy


@pytest.mark.slow
def test_silicon_in_its_lattice():
    """Four bonds of energy -epsilon, half each: -2 epsilon. A and B are given to ten digits."""
    (energy, force, virial, lost), _ = program(())(jnp.asarray(diamond(0)), StillingerWeberParams.silicon(2.0))
    assert int(lost) == 0
    np.testing.assert_allclose(energy / 64, -4.0, rtol=1e-9)
    np.testing.assert_allclose(force, 0, atol=1e-12)
    np.testing.assert_allclose(virial / 64, 0, atol=1e-8)


@pytest.mark.long
def test_everything_is_that_of_all_triples():
    """Energy, forces, virial, and slopes of the energy as derivatives of pair sums, to some hundred roundings."""
    position, params = diamond(0.1), StillingerWeberParams.silicon(1.3, 0.98)
    (energy, force, virial, _), slopes = program(())(jnp.asarray(position), params)
    plain = triples(position, CUTOFF * 0.98)
    zero = jnp.zeros(position.shape), jnp.zeros((3, 3)), params
    expected, (slope, stress, of_params) = jax.value_and_grad(plain, argnums=(0, 1, 2))(*zero)
    scale = float(jnp.max(jnp.abs(slope)))
    np.testing.assert_allclose(energy, expected, rtol=1e-12)
    np.testing.assert_allclose(force, -slope, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(virial, -stress, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(jnp.sum(force, axis=1), 0, atol=1e-12 * scale)

    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves((slope, of_params)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * float(jnp.max(jnp.abs(other))))


@pytest.mark.long
def test_many_devices_give_the_same():
    given = jnp.asarray(diamond(0.1)), StillingerWeberParams.silicon(1.3, 0.98)
    one, many = program(())(*given), program((("x", 2), ("y", 2), ("z", 2)))(*given)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * float(jnp.max(jnp.abs(a))))
