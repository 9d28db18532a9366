"""Potentials of pairs: reference values, slopes, what lies beyond the cutoff, mixtures, gradients, measurements."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from particles import fcc, scattered, separations, stored
from paths import REFERENCE
from scipy.integrate import quad

from simjax.errors import ConfigurationError
from simjax.models.molecular.many_body import StillingerWeber
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params, State
from simjax.models.molecular.pair_potentials import (
    ForceShifted,
    LennardJones,
    Morse,
    NetworkPotential,
    Shifted,
    SoftSphere,
    UserPotential,
    WeeksChandlerAndersen,
    Yukawa,
    between,
    lorentz_berthelot,
)
from simjax.particles.cells import pack, unpack
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.particles.pairs import Pairs

ONE = jnp.asarray(1.0), jnp.asarray(1.0)
CUTOFF = 2.5


def numbers(*values):
    return tuple(jnp.asarray(value) for value in values)


def gaussian(r, here, there, params):
    height, width = between(params, here, there)
    return height * jnp.exp(-((r / width) ** 2))


def lennard_jones(r, epsilon, sigma):
    return 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)


# The potential, its parameters, and the same energy written by hand.
POTENTIALS = {
    "Lennard-Jones": (LennardJones(), numbers(1.3, 0.9), lambda r: lennard_jones(r, 1.3, 0.9)),
    "shifted": (
        Shifted(LennardJones(), CUTOFF),
        numbers(1.3, 0.9),
        lambda r: lennard_jones(r, 1.3, 0.9) - lennard_jones(2.5, 1.3, 0.9),
    ),
    "WCA": (
        WeeksChandlerAndersen(),
        numbers(1.3, 1.1),
        lambda r: np.where(r < 2 ** (1 / 6) * 1.1, lennard_jones(r, 1.3, 1.1) + 1.3, 0),
    ),
    "soft, even": (SoftSphere(8), numbers(1.3, 0.9), lambda r: 1.3 * (0.9 / r) ** 8),
    "soft, odd": (SoftSphere(9), numbers(1.3, 0.9), lambda r: 1.3 * (0.9 / r) ** 9),
    "Morse": (
        Morse(),
        numbers(1.4, 3.0, 1.1),
        lambda r: 1.4 * (np.exp(-6.0 * (r - 1.1)) - 2 * np.exp(-3.0 * (r - 1.1))),
    ),
    "Yukawa": (Yukawa(), numbers(2.0, 1.5), lambda r: 2 * np.exp(-1.5 * r) / r),
    "user": (UserPotential(gaussian), numbers(2.0, 1.5), lambda r: 2 * np.exp(-((r / 1.5) ** 2))),
}
SPECIES = jnp.asarray(0, jnp.int32)


@pytest.mark.parametrize("name", POTENTIALS)
@pytest.mark.slow
def test_energies_are_those_written_by_hand_and_forces_their_slopes(name):
    potential, params, by_hand = POTENTIALS[name]
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(3, 40))
    direction /= np.linalg.norm(direction, axis=0)
    r = rng.uniform(0.9, 2.4, 40)
    species = jnp.zeros(40, jnp.int32)
    found = potential.pair(tuple(jnp.asarray(r * direction)), species, species, params)
    energy = by_hand(r)
    np.testing.assert_allclose(2 * found["energy"], energy, rtol=1e-12, atol=1e-13)
    h = 1e-5
    force = -(by_hand(r + h) - by_hand(r - h)) / (2 * h) * direction
    # Central differences: h^2 / 6 times a third derivative of up to 1e5 near the core, beside rounding / h.
    np.testing.assert_allclose(np.stack(found["force"]), force, rtol=1e-6, atol=1e-9)
    virial = r * direction[:, None] * np.stack(found["force"])[None] / 2
    np.testing.assert_allclose(np.stack([np.stack(row) for row in found["virial"]]), virial, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_a_force_shifted_potential_ends_without_a_step():
    potential = ForceShifted(LennardJones(), CUTOFF)
    energy, slope = jax.value_and_grad(lambda r: potential.energy(r * r, SPECIES, SPECIES, ONE))(jnp.asarray(CUTOFF))
    # Differences of numbers of order 1e-2.
    assert abs(energy) < 1e-16 and abs(slope) < 1e-15
    bare = jax.grad(lambda r: LennardJones().energy(r * r, SPECIES, SPECIES, ONE))
    shifted = jax.grad(lambda r: potential.energy(r * r, SPECIES, SPECIES, ONE))
    np.testing.assert_allclose(shifted(1.3) - bare(1.3), -bare(CUTOFF), rtol=1e-12)


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("name", ["Lennard-Jones", "soft, odd", "Morse", "Yukawa", "user", "shifted", "WCA"])
@pytest.mark.slow
def test_what_lies_beyond_the_cutoff_is_the_integral(name, ndim):
    potential, params, by_hand = POTENTIALS[name]
    energy, pressure = potential.tail(jnp.asarray(CUTOFF), ndim, SPECIES, SPECIES, params)
    if name in ("shifted", "WCA"):
        assert energy == pressure == 0
        return
    shell = {2: lambda r: 2 * np.pi * r, 3: lambda r: 4 * np.pi * r**2}[ndim]

    def slope(r):
        h = 1e-5 * r
        return (by_hand(r + h) - by_hand(r - h)) / (2 * h)

    # The quadrature's own error here; central differences below are good to 1e-8 or so.
    expected = quad(lambda r: by_hand(r) * shell(r), CUTOFF, np.inf, epsabs=1e-13, epsrel=1e-11)[0]
    np.testing.assert_allclose(energy, expected, rtol=1e-9)
    expected = quad(lambda r: -slope(r) * r / ndim * shell(r), CUTOFF, np.inf, epsabs=1e-9)[0]
    np.testing.assert_allclose(pressure, expected, rtol=1e-7, atol=1e-9)


def evaluated(potential, cells, within, ids, species, params, cutoff=CUTOFF):
    run = jax.jit(
        lambda within, params: potential.evaluate(Pairs(cells, within, ids, cutoff), species, params),
        compiler_options=QUICK,
    )
    return run(within, params)


@pytest.mark.slow
def test_nist_configuration():
    rows = np.loadtxt(REFERENCE / "lennard_jones_configuration_4.csv", delimiter=",", skiprows=4)
    position, force = rows[:, :3].T, rows[:, 3:].T
    cells, within, ids = stored(position, (8.0,) * 3, 3.0)
    found = evaluated(LennardJones(), cells, within, ids, jnp.zeros_like(ids), ONE, 3.0)
    np.testing.assert_allclose(jnp.sum(found["energy"]), -16.790321304625856, rtol=1e-12)
    np.testing.assert_allclose(jnp.trace(jnp.sum(found["virial"], axis=(2, 3, 4, 5))), -46.24919674630893, rtol=1e-12)
    # Forces are given to 13 digits, up to 10^2 large.
    np.testing.assert_allclose(unpack(cells, ids, found["force"], 30), force, rtol=1e-11, atol=1e-11)


DENSITY, TEMPERATURE = 0.8442, 1.44


@pytest.mark.slow
def test_measurements_of_a_lattice():
    """The initial state of a known example: energy -6.773368053 of a particle, pressure -5.019707259 of 32000 at 1.44.

    That pressure is (N - 1) / N density temperature, the kinetic energy having 3 N - 3 degrees of freedom, and the
    virial's part, which a lattice of any size has. Beside it stands what the literature gives beyond the cutoff.
    """
    position, length = fcc(4, DENSITY)
    count = position.shape[1]
    cells, within, ids = stored(position, (length,) * 3, CUTOFF, capacity=40)
    velocity = np.random.default_rng(0).normal(size=position.shape)
    velocity -= velocity.mean(axis=1, keepdims=True)
    velocity *= np.sqrt(TEMPERATURE * 3 * (count - 1) / np.sum(velocity**2))
    velocity += 0.1
    moving = pack(cells, jnp.asarray(position), jnp.asarray(velocity))[2]
    state = State(within, jnp.zeros(within.shape, jnp.int32), ids, moving, jnp.zeros_like(within), jnp.zeros_like(ids))
    model = MolecularDynamics(cells, NeighborPolicy(CUTOFF, 0.0), LennardJones(), 1, tail_corrections=True)
    params = Params(ONE, jnp.ones(1))
    found = jax.jit(model.diagnostics, compiler_options=QUICK)(0.0, state, params)
    energy = 8 / 3 * np.pi * DENSITY * (CUTOFF**-9 / 3 - CUTOFF**-3)
    pressure = 16 / 3 * np.pi * DENSITY**2 * (2 / 3 * CUTOFF**-9 - CUTOFF**-3)
    # The references have ten digits.
    np.testing.assert_allclose(found["potential_energy"] / count, -6.773368053 + energy, rtol=0, atol=1e-9)
    kinetic = np.sum(velocity**2) / 2
    np.testing.assert_allclose(found["kinetic_energy"], kinetic, rtol=1e-13)
    np.testing.assert_allclose(found["energy"], found["kinetic_energy"] + found["potential_energy"], rtol=1e-14)
    np.testing.assert_allclose(found["temperature"], 2 * kinetic / (3 * count - 3), rtol=1e-13)
    static = -5.019707259 - DENSITY * TEMPERATURE * 31999 / 32000 + pressure
    volume = length**3
    np.testing.assert_allclose(found["pressure"], static + 2 * kinetic / 3 / volume, rtol=0, atol=1e-9)
    # A cubic lattice has no shear and the same pressure along every axis.
    flux = velocity @ velocity.T / volume
    for name, i, j in [("xx", 0, 0), ("yy", 1, 1), ("zz", 2, 2), ("xy", 0, 1), ("xz", 0, 2), ("yz", 1, 2)]:
        expected = flux[i, j] + (static if i == j else 0)
        np.testing.assert_allclose(found[f"pressure_{name}"], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose([found[f"momentum_{a}"] for a in "xyz"], 0.1 * count, rtol=1e-11)
    assert int(found["particles"]) == count


MIXTURES = {
    # Lengths, periodic axes, particles: many cells, two, one, and in two dimensions.
    "2-D": ((8.0, 5.3), (True, True), 30),
    "3-D": ((2.7, 5.4, 8.1), (True, True, False), 60),
}


def all_pairs(potential, position, lengths, periodic, species, params, cutoff=CUTOFF):
    """Energy of all, forces and virial from a loop over all pairs and their images."""
    i, j, apart = separations(position, lengths, periodic, cutoff)

    def energy(shift, strain, params):
        r = jnp.asarray(apart) + shift[:, i] - shift[:, j]
        r = r + strain @ r
        return jnp.sum(potential.energy(jnp.sum(r * r, axis=0), species[i], species[j], params)) / 2

    rest = jnp.zeros(position.shape), jnp.zeros((len(lengths),) * 2), params
    value, slopes = jax.jit(jax.value_and_grad(energy, argnums=(0, 1, 2)))(*rest)
    return value, -slopes[0], -slopes[1], slopes[2]


@pytest.fixture(scope="module", params=["2-D", pytest.param("3-D", marks=pytest.mark.slow)])
def mixture(request):
    lengths, periodic, count = MIXTURES[request.param]
    position = scattered(count, lengths, 0.8, seed=4)
    species = jnp.asarray(np.random.default_rng(2).integers(0, 3, count), jnp.int32)
    params = lorentz_berthelot(jnp.asarray([1.0, 0.7, 1.4]), jnp.asarray([1.0, 0.8, 0.9]))
    cells, within, ids = stored(position, lengths, CUTOFF, periodic=periodic, capacity=24)
    kinds = pack(cells, jnp.asarray(position), species)[2]
    potential = LennardJones()

    @jax.jit
    def run(within, params):
        def energy(params):
            found = potential.evaluate(Pairs(cells, within, ids, CUTOFF), kinds, params)
            return jnp.sum(found["energy"]), found

        return jax.value_and_grad(energy, has_aux=True)(params)

    (_, found), slopes = run.lower(within, params).compile(QUICK)(within, params)
    found["force"] = unpack(cells, ids, found["force"], count)
    return found, slopes, all_pairs(potential, position, lengths, periodic, species, params)


@pytest.mark.slow
def test_a_mixture_is_that_of_all_pairs(mixture):
    """To some hundred roundings of the largest term."""
    found, _, (energy, force, virial, _) = mixture
    scale = float(jnp.max(jnp.abs(force)))
    np.testing.assert_allclose(jnp.sum(found["energy"]), energy, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["force"], force, rtol=0, atol=1e-12 * scale)
    axes = tuple(range(2, found["virial"].ndim))
    np.testing.assert_allclose(jnp.sum(found["virial"], axis=axes), virial, rtol=0, atol=1e-11 * scale)
    # Newton's third law.
    np.testing.assert_allclose(jnp.sum(found["force"], axis=1), 0, atol=1e-12 * scale)


@pytest.mark.slow
def test_gradients_of_tables(mixture):
    """A table counts by the mean with its transpose: the gradient is symmetric, and that of the loop over all pairs."""
    _, slopes, (*_, expected) = mixture
    for slope, other in zip(slopes, expected, strict=True):
        scale = float(jnp.max(jnp.abs(other)))
        np.testing.assert_allclose(slope, other, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(slope, slope.T, rtol=0, atol=1e-15 * scale)


@pytest.mark.slow
def test_a_network_is_a_potential():
    """Its forces are slopes of its energy, and gradients of a loss of forces with respect to weights are right."""
    lengths = (5.0, 7.5)
    position = scattered(24, lengths, 0.8, seed=5)
    cells, within, ids = stored(position, lengths, CUTOFF)
    network = eqx.nn.MLP(1, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    network = jax.tree.map(lambda w: w.astype(jnp.float64) if eqx.is_inexact_array(w) else w, network)
    bare, params = NetworkPotential.of(network)
    potential = ForceShifted(bare, CUTOFF)

    def loss(params):
        found = potential.evaluate(Pairs(cells, within, ids, CUTOFF), jnp.zeros_like(ids), params)
        return jnp.sum(found["force"] ** 2) + jnp.sum(found["energy"]), found["force"]

    (_, force), slopes = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=QUICK)(params)
    species = jnp.zeros(24, jnp.int32)

    def by_hand(params):
        energy, force, *_ = all_pairs(potential, position, lengths, (True, True), species, params)
        return jnp.sum(force**2) + energy, force

    expected, forces = jax.jit(jax.grad(by_hand, has_aux=True), compiler_options=QUICK)(params)
    np.testing.assert_allclose(unpack(cells, ids, force, 24), forces, rtol=0, atol=1e-12)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected), strict=True):
        # Some hundred roundings of terms of order one.
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


def test_tail_corrections_take_a_potential_of_pairs():
    cells, *_ = stored(np.ones((3, 1)), (4.0,) * 3, 2.0)
    with pytest.raises(ConfigurationError, match="tail_corrections=False"):
        MolecularDynamics(cells, NeighborPolicy(1.8, 0.2), StillingerWeber(), 5, tail_corrections=True)
