"""Unknown forces of particles: runs from known starts, reweighted averages, and what both tell of a potential."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from ensembles import Spring, at_rest, square_lattice
from jax.sharding import PartitionSpec
from particles import separations
from scipy.optimize import minimize

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.inverse.methods.gauss_newton import GaussNewton
from simjax.inverse.methods.laplace import number_sensitivity, uncertainty_of_numbers
from simjax.inverse.methods.least_squares import Evaluation, LeastSquares, half_square
from simjax.models.molecular.langevin import BathParams, Langevin
from simjax.models.molecular.many_body import StillingerWeber
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import ForceShifted, LennardJones, SoftSphere, Sum
from simjax.models.molecular.reweighting import (
    Samples,
    effective_samples,
    frame_weights,
    pair_energies,
    radial_distributions,
    reweighted_mean,
    sample,
    sample_status,
)
from simjax.models.molecular.trajectories import Motion, follow
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for
from simjax.particles.diffusion import closest_images
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import FEW_SAMPLES, OK
from simjax.stepping.clock import Clock, Schedule

CUTOFF, SKIN, COUNT = 2.0, 0.3, 64
TRUTH = np.log([1.1, 0.97])
POSITION, LENGTH = square_lattice(8, 0.7)
SHOWN, WIDTH = np.array([0.95, 1.2, 1.8]), 0.2


def box_of(cells):
    return cells.domain.grid.lengths, cells.periodic


def liquid(mesh=None, dynamics=None):
    """64 particles in two dimensions in 4 x 4 cells."""
    grid = cells_for((0.0,) * 2, (LENGTH,) * 2, CUTOFF + SKIN, (True,) * 2)
    cells = Cells(decompose(grid, mesh), 16, (True,) * 2)
    potential = ForceShifted(LennardJones(), CUTOFF)
    return MolecularDynamics(cells, NeighborPolicy(CUTOFF, SKIN, 32), potential, 5, dynamics or VelocityVerlet())


def start():
    rng = np.random.default_rng(3)
    where = POSITION + 0.1 * rng.normal(size=POSITION.shape)
    return Motion(jnp.asarray(where), jnp.asarray(at_rest(rng.normal(size=where.shape), 1.0)))


def followed(mesh=None):
    """The motion after (log epsilon, log sigma) from a start: two frames of ten steps, arranged four times."""
    model = liquid(mesh)

    def run(latent, start):
        params = Params((jnp.exp(latent[0]), jnp.exp(latent[1])), jnp.ones(1))
        species = jnp.zeros(COUNT, jnp.int32)
        return follow(model, params, start, species, Schedule(0.05, dt=0.005), frames=2)

    return model, distribute(run, mesh, in_specs=(PartitionSpec(),) * 2, out_specs=PartitionSpec())


def problem_of(measured, mesh=None, deviation=1.0):
    """Motions from one start against measured ones, in units of a deviation."""
    model, run = followed(mesh)

    def residuals(latent, given):
        start, measured = given
        found, status = run(latent, start)
        apart = found.position - closest_images(
            model.cells.domain.grid.lengths, model.cells.periodic, measured.position, found.position
        )
        return Evaluation((apart / deviation, (found.velocity - measured.velocity) / deviation), status)

    return LeastSquares((start(), measured), residuals, jax.vmap(residuals, (0, None)))


@pytest.fixture(scope="module")
def observed():
    """The true motion, with positions moved by whole boxes, as an instrument might tell them."""
    motion, status = jax.jit(followed()[1], compiler_options=QUICK)(jnp.asarray(TRUTH), start())
    assert int(status) == OK
    rng = np.random.default_rng(0)
    return Motion(motion.position + LENGTH * rng.integers(-1, 2, motion.position.shape), motion.velocity)


def slopes(problem):
    """Compiled: the loss and its gradient in (log epsilon, log sigma) and in the start."""

    def loss(latent, start, measured):
        evaluation = problem.function(latent, (start, measured))
        return half_square(evaluation.residuals), evaluation.status

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), compiler_options=QUICK)


@pytest.fixture(scope="module")
def on_one_device(observed):
    return slopes(problem_of(observed))


GUESS = np.log([0.7, 0.9])


@pytest.mark.slow
def test_reverse_mode_recovers_epsilon_and_sigma(observed, on_one_device):
    """By quasi-Newton steps from 9 % and 2 % off: one compiled gradient through the run."""
    near = np.log([1.0, 0.95])

    def loss(moved):
        # The first step of a search along a gradient is one unit long: here 1 %.
        (value, status), (gradient, _) = on_one_device(jnp.asarray(near + 0.01 * moved), start(), observed)
        assert int(status) == OK
        return float(value), 0.01 * np.asarray(gradient)

    found = near + 0.01 * minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    # Without noise the least square is zero and its curvature at least of order one: so a gradient of 1e-9, in units of
    # 1 %, allows an error of some 1e-7.
    np.testing.assert_allclose(found, TRUTH, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_gradient_is_the_same_on_four_devices(observed, on_one_device):
    mesh = make_mesh({"x": 2, "y": 2})
    (value, status), gradient = on_one_device(jnp.asarray(GUESS), start(), observed)
    (other, fault), decomposed = slopes(problem_of(observed, mesh))(jnp.asarray(GUESS), start(), observed)
    assert int(status) == int(fault) == OK
    # Rounding of sums in another order, grown by the motion's own instability over 20 steps.
    np.testing.assert_allclose(other, value, rtol=1e-12)
    for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(decomposed), strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-10 * float(jnp.max(jnp.abs(one))))
    # And it is the slope: central differences, h^2 beside rounding / h.
    h = 1e-5
    for axis in range(2):
        ends = [on_one_device(jnp.asarray(GUESS + s * h * np.eye(2)[axis]), start(), observed)[0][0] for s in (1, -1)]
        np.testing.assert_allclose(gradient[0][axis], (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


@pytest.mark.long
def test_gauss_newton_recovers_epsilon_and_sigma_and_knows_how_well(observed):
    """Without noise to rounding; with noise, the errors of many draws are as large as Laplace's deviations."""
    noise = 1e-3
    problem, solver = problem_of(observed, deviation=noise), GaussNewton()

    def solved(problem, latent, steps):
        step = jax.jit(solver.step, compiler_options=QUICK)
        iterate = solver.begin(latent)
        for _ in range(steps):
            iterate = step(problem, iterate)
        assert int(iterate.status) == OK
        return iterate.latent

    as_numbers = LeastSquares(
        problem.given,
        lambda latent, given: problem.function(jnp.stack([latent["epsilon"], latent["sigma"]]), given),
        problem.of_members,
    )
    guess = dict(zip(("epsilon", "sigma"), jnp.asarray(GUESS), strict=True))
    found = solved(as_numbers, guess, 12)
    # Steps converge quadratically to where residuals are rounding.
    np.testing.assert_allclose([found["epsilon"], found["sigma"]], TRUTH, rtol=0, atol=1e-12)
    names = list(found)
    sensitivity = jax.jit(lambda p, u: number_sensitivity(p, u, names), compiler_options=QUICK)(as_numbers, found)
    deviations = uncertainty_of_numbers(sensitivity, names).deviations
    scores, step = [], jax.jit(solver.step, compiler_options=QUICK)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        noisy = jax.tree.map(lambda u: u + noise * rng.normal(size=u.shape), observed)  # noqa: B023
        iterate = solver.begin(found)
        noisy_problem = eqx.tree_at(lambda p: p.given, as_numbers, (start(), noisy))
        for _ in range(3):
            iterate = step(noisy_problem, iterate)
        scores += [
            (iterate.latent[name] - truth) / deviations[name]
            for name, truth in zip(("epsilon", "sigma"), TRUTH, strict=True)
        ]
    # 24 normal scores, pairs of them correlated: their mean square is 1 +- 0.41 at most, and none beyond 4 is likely.
    assert 0.2 < np.mean(np.square(scores)) < 2.3, scores
    assert np.max(np.abs(scores)) < 4


def test_closest_images_stay_beside_walls():
    cells = Cells(Domain(cells_for((0.0,) * 2, (4.0, 6.0), 2.0, (True, False))), 8, (True, False))
    near, position = jnp.asarray([[0.5, 3.9], [0.5, 5.9]]), jnp.asarray([[3.9, 8.2], [5.9, 0.1]])
    found = closest_images(
        cells.domain.grid.lengths, cells.periodic, jnp.stack([position, position + 4]), jnp.stack([near, near])
    )
    expected = np.array([[-0.1, 4.2], [5.9, 0.1]])
    # Sums of a few numbers below ten.
    np.testing.assert_allclose(found[0], expected, atol=1e-14)
    np.testing.assert_allclose(found[1], expected + [[0], [4]], atol=1e-14)


# ---------------------------------------------------------------------- reweighting


@pytest.mark.slow
def test_weights_are_uniform_where_nothing_changed():
    energy = jnp.asarray(np.random.default_rng(0).normal(size=50)) * 1e3
    weights = frame_weights(energy, energy, 0.7)
    assert np.all(np.asarray(weights) == 1 / 50)
    np.testing.assert_allclose(effective_samples(weights), 50, rtol=1e-14)
    # Nor is there a limit to how far energies may be off: one frame is left, and its derivative is finite.
    shifted = frame_weights(energy - 1e6 * energy, energy, 0.7)
    np.testing.assert_allclose(effective_samples(shifted), 1, rtol=1e-14)
    slope = jax.grad(lambda e: effective_samples(frame_weights(e, energy, 0.7)))(energy - 1e6 * energy)
    assert np.all(np.isfinite(slope))


def spring_frames(count, stiffness, temperature):
    """Squares of the distance of two particles on a spring in two dimensions: exponential, at even probabilities."""
    u = (np.arange(count) + 0.5) / count
    return jnp.asarray(-2 * temperature / stiffness * np.log1p(-u))


@pytest.mark.slow
def test_a_spring_reweighted_is_another_spring():
    """Mean square distance 2 kT / k, and the frames that count: the exponential of a relative entropy."""
    temperature, sampled, asked = 0.8, 2.0, 2.6
    square = spring_frames(20000, sampled, temperature)

    def mean(stiffness):
        weights = frame_weights(stiffness * square / 2, sampled * square / 2, temperature)
        return reweighted_mean(weights, square), weights

    (found, weights), slope = jax.value_and_grad(mean, has_aux=True)(jnp.asarray(asked))
    # Midpoints in probability: the tail beyond the last is worth log(count) / count of the mean, some 5e-4, and
    # weights make it less.
    np.testing.assert_allclose(found, 2 * temperature / asked, rtol=2e-4)
    np.testing.assert_allclose(slope, -2 * temperature / asked**2, rtol=2e-3)
    entropy = np.log(asked / sampled) + sampled / asked - 1
    np.testing.assert_allclose(effective_samples(weights) / 20000, np.exp(-entropy), rtol=2e-3)
    assert int(sample_status(weights, 0.9)) == OK
    assert int(sample_status(weights, 0.99)) == FEW_SAMPLES


@pytest.fixture(scope="module")
def drawn():
    """Frames of the liquid at constant temperature, what is measured of each, and energies told otherwise."""
    model = liquid(dynamics=Langevin())
    bath = BathParams(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(0, jnp.int32))

    def run(latent, start):
        params = Params((jnp.exp(latent[0]), jnp.exp(latent[1])), jnp.ones(1), bath)
        state, _ = model.state_from(start.position, start.velocity, jnp.zeros(COUNT, jnp.int32), params)
        samples, run = sample(model, params, state, Schedule(0.05, dt=0.005), frames=4, clock=Clock.zero(jnp.float64))
        radial = radial_distributions(model, samples, SHOWN, WIDTH)
        return samples, radial, run.clock

    return model, jax.jit(run, compiler_options=QUICK)(jnp.asarray(TRUTH), start())


@pytest.mark.slow
def test_frames_know_their_energies_and_distributions(drawn):
    """Those of a loop over all pairs."""
    model, (samples, radial, clock) = drawn
    assert int(clock.status) == OK and int(clock.step) == 40
    last = jax.tree.map(lambda leaf: leaf[-1], samples.state)
    there = np.asarray(last.ids) >= 0
    position = np.asarray(model.cells.absolute(last.position))[:, there]
    assert position.shape == (2, COUNT)
    apart = separations(position, (LENGTH,) * 2, (True,) * 2, CUTOFF + SKIN)[2]
    r = np.sqrt(np.sum(apart**2, axis=0))
    epsilon, sigma = np.exp(TRUTH)

    def bare(r):
        return 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)

    slope = -24 * epsilon * (2 * (sigma / CUTOFF) ** 12 - (sigma / CUTOFF) ** 6) / CUTOFF
    energy = np.sum(np.where(r < CUTOFF, bare(r) - bare(CUTOFF) - (r - CUTOFF) * slope, 0)) / 2
    # Sums over pairs in another order, of some hundred numbers of order one.
    np.testing.assert_allclose(samples.energy[-1], energy, rtol=1e-12)
    u = (r[:, None] - SHOWN) / WIDTH
    kernel = np.sum(35 / 32 * np.where(u * u < 1, 1 - u * u, 0) ** 3 / WIDTH, axis=0)
    expected = kernel / COUNT / ((COUNT - 1) * 2 * np.pi * SHOWN / LENGTH**2)
    np.testing.assert_allclose(radial[-1], expected, rtol=1e-12)
    assert np.ptp(samples.energy) > 0.1


@pytest.mark.slow
def test_gradients_of_reweighted_means(drawn):
    """Of g(r), in epsilon and sigma: against central differences, and zero weight of what all frames share."""
    model, (samples, radial, _) = drawn

    @jax.jit
    def mean(latent):
        params = Params((jnp.exp(latent[0]), jnp.exp(latent[1])), jnp.ones(1))
        energy = pair_energies(model, params, samples)
        weights = frame_weights(energy, samples.energy, 1.0)
        return reweighted_mean(weights, radial), weights

    (_, weights), slope = mean(jnp.asarray(TRUTH)), jax.jacrev(lambda u: mean(u)[0])(jnp.asarray(TRUTH))
    # At the parameters of the run: rounding of energies of order 1e2.
    np.testing.assert_allclose(weights, 0.25, rtol=1e-12)
    h = 1e-5
    for axis in range(2):
        ends = [mean(jnp.asarray(TRUTH + s * h * np.eye(2)[axis]))[0] for s in (1, -1)]
        # Third derivatives of up to 1e5 times h^2 / 6, beside rounding / h.
        np.testing.assert_allclose(slope[:, axis], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-7)


def test_what_cannot_be_reweighted_is_refused():
    cells = liquid().cells
    model = MolecularDynamics(cells, NeighborPolicy(1.8, 0.2), StillingerWeber(), 5)
    nothing = Samples(None, None, jnp.zeros(1))
    with pytest.raises(ConfigurationError, match="write one such as LennardJones"):
        pair_energies(model, Params((), jnp.ones(1)), nothing)
    with pytest.raises(ConfigurationError, match="use smaller radii or a larger skin"):
        radial_distributions(model, nothing, np.array([1.9]), 0.2)


def test_potentials_add_up():
    both = Sum((SoftSphere(12), Spring()))
    square, species = jnp.asarray([0.9, 1.7]), jnp.zeros(2, jnp.int32)
    core, stiffness = (jnp.asarray(1.3), jnp.asarray(0.9)), jnp.asarray(2.0)
    expected = SoftSphere(12).energy(square, species, species, core) + square
    assert np.all(np.asarray(both.energy(square, species, species, (core, stiffness))) == np.asarray(expected))
