"""Observables of particles: distributions of distances, displacements, moments of velocities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ensembles import EACH, Experiment, Free, lattice
from jax.sharding import PartitionSpec

from simjax.errors import ConfigurationError
from simjax.models.molecular.molecular_dynamics import Params
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for, pack
from simjax.particles.diffusion import diffusion_coefficient, mean_square_displacement, velocity_moments
from simjax.particles.neighbor_policy import Particles
from simjax.particles.radial_distribution import partners_within, radial_distribution, smooth_radial_distribution

# In every run of the tests are those of the parts: test_cells_and_pairs, test_pair_potentials, test_particle_mesh.
pytestmark = pytest.mark.slow

LENGTH, COUNT, REACH = 8.0, 1500, 2.0
EDGES = np.linspace(0.2, REACH, 10)
RADII, WIDTH = np.array([0.5, 1.0, 1.6]), 0.3


def packed(cells, position):
    where, ids, _, _ = pack(cells, position, ())
    return Particles(where, jnp.zeros(where.shape, jnp.int32), ids)


def cells_of(length, reach, capacity, mesh=None, ndim=3):
    grid = cells_for((0,) * ndim, (length,) * ndim, reach, (True,) * ndim, (2,) * ndim)
    return Cells(decompose(grid, mesh), capacity, (True,) * ndim)


def distributions(mesh):
    """A compiled program from coordinates to both radial distributions."""
    cells = cells_of(LENGTH, REACH, 56, mesh)

    def found(position):
        particles = packed(cells, position)
        sharp = radial_distribution(cells, particles, EDGES)
        return sharp, smooth_radial_distribution(cells, particles, RADII, WIDTH)

    return distribute(found, mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec())


@pytest.fixture(scope="module")
def ideal_gas():
    position = np.random.default_rng(4).uniform(0, LENGTH, (3, COUNT))
    return position, distributions(None)(jnp.asarray(position))


@pytest.mark.slow
def test_distances_of_an_ideal_gas(ideal_gas):
    _, (sharp, smooth) = ideal_gas
    pairs = COUNT * (COUNT - 1) / 2
    # Pairs of independent particles in a periodic box are counted as independently: the number in a shell is Poisson's.
    expected = pairs * 4 / 3 * np.pi * np.diff(EDGES**3) / LENGTH**3
    # Four deviations for each of nine shells: once in 1700 times by chance; a bias of 5.6 of them is found 19 times
    # out of 20, in the outermost shell of 27 000 pairs 3.4 %.
    assert np.all(np.abs(np.asarray(sharp) - 1) < 4 / np.sqrt(expected))
    # The kernel's mean square over its squared mean, 350/429 over the width, counts pairs in shells that wide.
    surface = 4 * np.pi * (RADII**2 + WIDTH**2 / 9)
    counted = pairs * surface / LENGTH**3 * WIDTH * 429 / 350
    assert np.all(np.abs(np.asarray(smooth) - 1) < 4 / np.sqrt(counted))


def test_distances_are_those_of_all_pairs(ideal_gas):
    position, (sharp, smooth) = ideal_gas
    apart = position[:, :, None] - position[:, None]
    apart -= LENGTH * np.round(apart / LENGTH)
    distance = np.sqrt(np.sum(apart**2, axis=0))[np.triu_indices(COUNT, 1)]
    pairs = COUNT * (COUNT - 1) / 2
    counts = np.histogram(distance, EDGES)[0] / (pairs * 4 / 3 * np.pi * np.diff(EDGES**3) / LENGTH**3)
    # The same counts; rounding of the quotients.
    assert np.allclose(sharp, counts, rtol=1e-13)
    u = (distance[:, None] - RADII) / WIDTH
    kernel = np.where(u * u < 1, 35 / 32 * (1 - u * u) ** 3 / WIDTH, 0).sum(axis=0)
    # Sums of some thousand terms.
    assert np.allclose(smooth, kernel / (pairs * 4 * np.pi * (RADII**2 + WIDTH**2 / 9) / LENGTH**3), rtol=1e-12)


@pytest.mark.slow
def test_distances_on_several_devices(ideal_gas):
    position, (sharp, smooth) = ideal_gas
    other = distributions(make_mesh({"x": 2, "y": 2, "z": 2}))(jnp.asarray(position))
    # The same counts, over the same numbers by another compiled program.
    assert np.allclose(other[0], sharp, rtol=1e-14)
    # Sums in another order.
    assert np.allclose(other[1], smooth, rtol=1e-13)


def test_partners_in_a_lattice():
    position, length = lattice(4, 4.0)  # cubes of edge 1: shells at sqrt(1/2), 1, sqrt(3/2), sqrt(2)
    cells = cells_of(length, 1.5, 64)
    edges = np.array([0, 0.6, 0.9, 1.1, 1.3, 1.5])
    found = jax.jit(lambda x: partners_within(cells, packed(cells, x), edges))(jnp.asarray(position))
    assert np.array_equal(found, [0, 12, 6, 24, 12])


@pytest.mark.long
def test_smooth_distribution_is_differentiable():
    cells = cells_of(6.0, 2.0, 16, ndim=2)
    generator = np.random.default_rng(0)
    position, direction = jnp.asarray(generator.uniform(0, 6, (2, 30))), jnp.asarray(generator.normal(size=(2, 30)))
    radii = np.linspace(0.5, 1.5, 5)

    def misfit(step):
        found = smooth_radial_distribution(cells, packed(cells, position + step * direction), radii, 0.4)
        return jnp.sum((found - 1) ** 2)

    value_and_slope = jax.jit(jax.value_and_grad(misfit))
    slope = value_and_slope(0.0)[1]
    steps = (1e-3, 5e-4)
    errors = [abs((value_and_slope(h)[0] - value_and_slope(-h)[0]) / (2 * h) - slope) for h in steps]
    assert abs(slope) > 0.1
    # Central differences of a function with three continuous derivatives but for a few pairs: of second order.
    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 1e-3 * abs(slope)


def test_free_flight():
    """Straight on through periodic sides: |x - x_0|^2 = v^2 t^2, and moments of the velocities given."""
    generator = np.random.default_rng(2)
    length, count = 6.0, 50
    position, velocity = generator.uniform(0, length, (2, count)), generator.normal(size=(2, count))
    mass = np.array([2.0])

    def look(model, state, params):
        moments = velocity_moments(model.cells, state, state.velocity, 2 * jnp.ones((1, *model.cells.shape)))
        return mean_square_displacement(model.cells, state, jnp.asarray(position)), moments

    free = Experiment(length, 2, 0.5, 1.5, Free(), VelocityVerlet(), rows=0, capacity=32, frames=4, observe=look)
    (displacement, moments), where, _ = free.run(position, velocity, Params((), jnp.asarray(mass)), 0.03, 20)
    times = 0.03 * EACH * 20 * np.arange(1, 5)
    assert np.abs(velocity).max() * times[-1] > 2 * length  # round the box more than once
    # Sums of 400 steps, each rounded to 1e-16 of a few.
    assert np.abs(where - position - velocity * times[-1]).max() < 1e-12
    assert np.allclose(displacement, np.sum(velocity**2, axis=0).mean() * times**2, rtol=1e-12)
    scaled = np.sqrt(2) * velocity
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    variance = np.mean(centred**2, axis=1)
    assert np.allclose(moments["mean"], scaled.mean(axis=1), rtol=1e-12)
    assert np.allclose(moments["temperature"], variance, rtol=1e-12)
    assert np.allclose(moments["skewness"], np.mean(centred**3, axis=1) / variance**1.5, rtol=1e-11)
    assert np.allclose(moments["kurtosis"], np.mean(centred**4, axis=1) / variance**2, rtol=1e-12)


def test_diffusion_coefficient_is_a_slope():
    times = jnp.linspace(1.0, 5.0, 9)
    # 2 ndim D t and a constant from the ballistic beginning.
    assert abs(diffusion_coefficient(times, 6 * 0.7 * times + 0.3, 3) - 0.7) < 1e-14


def test_impossible_distances_are_refused():
    cells = cells_of(8.0, 2.0, 8)
    particles = packed(cells, jnp.ones((3, 2)))
    for edges in (np.array([0, 3.0]), np.array([1.0, 0.5]), np.array([-1.0, 1.0])):
        with pytest.raises(ConfigurationError, match="the length of a cell"):
            radial_distribution(cells, particles, edges)
    with pytest.raises(ConfigurationError, match="the length of a cell"):
        smooth_radial_distribution(cells, particles, np.array([0.2, 1.0]), 0.3)
    walls = Cells(cells.domain, 8, (True, True, False))
    with pytest.raises(ConfigurationError, match="periodic along all axes"):
        radial_distribution(walls, particles, np.array([0, 1.0]))
