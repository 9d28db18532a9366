"""Ewald sums and particle-mesh sums of charges: crystals, other sums, forces against energies, decompositions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ewald import ewald
from jax.sharding import PartitionSpec

from simjax.core.errors import ConfigurationError
from simjax.core.grid import Grid
from simjax.models.electrostatics import Charges, Electrostatics
from simjax.models.periodic_sums import ewald_sum, mesh_sum
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, pack, unpack
from simjax.particles.pairs import Pairs

REPLICATED = PartitionSpec()


def box(shape, lengths, capacity, mesh=None):
    return Cells(decompose(Grid(shape, (0,) * 3, lengths), mesh), capacity, (True,) * 3)


def evaluated(cells, sum_over_images, cutoff, position, charge, species=None):
    """Energies and forces in the order of the particles; `charge` by species, else by particle."""
    species = jnp.arange(position.shape[1], dtype=jnp.int32) if species is None else jnp.asarray(species)
    position, ids, species, lost = pack(cells, jnp.asarray(position), species)
    params = Charges(jnp.asarray(charge), jnp.asarray(1.0, position.dtype))
    found = Electrostatics(sum_over_images).evaluate(Pairs(cells, position, ids, cutoff), species, params)
    count = params.charge.size
    return {name: unpack(cells, ids, u, count) for name, u in found.items()}, lost


@pytest.fixture(scope="module")
def charges():
    """100 charges in a box, not neutral, and their energies and forces."""
    rng = np.random.default_rng(1)
    lengths = np.array([2.0, 1.0, 1.0])
    position, charge = rng.uniform(0, 1, (3, 100)) * lengths[:, None], rng.normal(size=100)
    # exp(-(12 pi / 2 / 4)^2) and erfc(8): far below what is compared.
    potential, field = ewald(position, charge, lengths, alpha=4.0, images=2)
    return position, charge, lengths, 0.5 * charge * potential, charge * field


@pytest.mark.parametrize(
    ("name", "at", "box_length", "nearest", "madelung"),
    [
        # Madelung's constants for distances to the nearest neighbour; Sakamoto (1958), J. Chem. Phys. 28, 164.
        ("NaCl", [[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]], 2.0, 1.0, 1.747564594633),
        ("CsCl", [[0, 0, 0]], 2.0, math.sqrt(3), 1.762674773070),
    ],
)
def test_madelung_constants(name, at, box_length, nearest, madelung):
    cation = np.array(at, float).T + 0.3
    position = np.concatenate([cation, cation + 1], axis=1)
    charge = np.repeat([1.0, -1.0], len(at))
    # A box of one cell: all partners are images, also those of the particle itself.
    cells = box((1, 1, 1), (box_length,) * 3, 8)
    found, _ = jax.jit(lambda x: evaluated(cells, ewald_sum(2.0, 1e-12), 2.0, x, charge))(position)
    # Both parts are cut off at 1e-12, and the shells beyond hold about a hundred terms of that size and sign.
    assert abs(-2 * np.sum(found["energy"]) / len(charge) * nearest - madelung) < 1e-10
    # Each ion is a centre of symmetry.
    assert np.abs(found["force"]).max() < 1e-10


@pytest.fixture(scope="module")
def plain(charges):
    """Plain Ewald summation of the charges, and the gradient of the energy in their positions."""
    position, charge, lengths, _, _ = charges
    cells = box((4, 2, 2), lengths, 24)

    def energy(x):
        found, lost = evaluated(cells, ewald_sum(0.5, 1e-11), 0.5, x, charge)
        return jnp.sum(found["energy"]), (found, lost)

    (_, (found, lost)), slope = jax.jit(jax.value_and_grad(energy, has_aux=True))(position)
    return found, int(lost), np.asarray(slope)


def test_plain_sum_is_that_of_another_splitting(charges, plain):
    found, lost, _ = plain
    assert lost == 0
    # Cut off at 1e-11 of charges of order one at distances of half a box, a hundred of them.
    assert np.abs(found["energy"] - charges[3]).max() < 1e-9
    assert np.abs(found["force"] - charges[4]).max() < 1e-8


def test_forces_are_the_slope_of_the_energy(plain):
    found, _, slope = plain
    force = np.asarray(found["force"])
    # The formulas of both parts are differentiated: rounding only.
    assert np.abs(force + slope).max() < 1e-12 * np.abs(force).max()
    assert np.abs(force.sum(axis=1)).max() < 1e-12 * np.abs(force).sum()


def rms_error(charges, finer, assignment):
    position, charge, lengths, energy, force = charges
    cells = box((4, 2, 2), lengths, 24)
    total = mesh_sum(0.5, 1e-4, finer, assignment)
    found, _ = jax.jit(lambda x: evaluated(cells, total, 0.5, x, charge))(position)
    wrong = np.asarray(found["force"]) - force
    assert np.abs(wrong.sum(axis=1)).max() < 1e-12 * np.abs(force).sum()  # opposite and equal, whatever the mesh
    return math.sqrt(np.mean(wrong**2) / np.mean(force**2)), abs(float(np.sum(found["energy"])) - energy.sum())
