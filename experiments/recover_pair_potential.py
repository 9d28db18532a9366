"""Recovers the pair potential of a Lennard-Jones liquid, as two numbers or as a network.

    python experiments/recover_pair_potential.py trajectories            # epsilon and sigma from noisy motions
    python experiments/recover_pair_potential.py radial_distribution     # the same from g(r) alone
    python experiments/recover_pair_potential.py trajectories --as network
    python experiments/recover_pair_potential.py radial_distribution --as network

The liquid is simulated with the true potential; what it shows (positions and velocities by number at two times after
known starts, with noise, or its radial distribution) is all that the search is given. Printed are truth, start, what
was found and the error; the picture is recover_pair_potential.png.

From trajectories the gradient passes through the run. The liquid is chaotic, so this works over windows of a few tenths
of a unit of time and fails over long ones: the gradient grows exponentially and points nowhere. From g(r), an average
over long times, it therefore passes through weights of stored frames instead (`simjax.models.molecular.reweighting`),
and frames are drawn anew where too few of them count.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from function_figure import Function, write_functions

from simjax.core.domain import Domain
from simjax.inverse.methods.gauss_newton import GaussNewton
from simjax.inverse.methods.laplace import number_sensitivity, uncertainty_of_numbers
from simjax.inverse.methods.least_squares import Evaluation, LeastSquares
from simjax.inverse.methods.noise import GaussianNoise
from simjax.inverse.methods.optimise import minimise
from simjax.models.molecular.langevin import BathParams, Langevin
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import (
    ForceShifted,
    LennardJones,
    NetworkPotential,
    PairPotential,
    SoftSphere,
    Sum,
)
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
from simjax.models.molecular.trajectories import Motion, follow, motion_of
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.particles.cells import Cells, cells_for
from simjax.particles.diffusion import closest_images
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.inverse import NORMAL_95
from simjax.status import reasons
from simjax.stepping.clock import Clock, Schedule

PARTICLES, DENSITY, TEMPERATURE = 108, 0.6, 1.2
CUTOFF, SKIN = 2.5, 0.32
TRUTH = {"epsilon": 1.0, "sigma": 1.0}
START = {"epsilon": 0.7, "sigma": 0.95}
DT, EVERY = 0.005, 0.1  # of a step, and between two frames of a sampling run
WINDOWS, WINDOW_FRAMES, WINDOW = 3, 2, 0.1
POSITION_NOISE, VELOCITY_NOISE = 1e-3, 1e-2
SETTLING = 50  # frames of a sampling run that still remember other parameters
RADII, WIDTH = np.linspace(0.8, 2.7, 32), 0.1
LEAST_COUNTING = 0.3  # of the frames, or they are drawn anew
SPECIES = np.zeros(PARTICLES, np.int32)


class Unknown(NamedTuple):
    """What is sought: a potential, the first latent, and what the latent stands for.

    params: from the latent to the potential's. prior: residuals of the latent by itself.
    """

    potential: PairPotential
    guess: Any
    params: Callable[[Any], Any]
    prior: Callable[[Any], Any]


def two_numbers() -> Unknown:
    """epsilon and sigma, by their logarithms."""
    guess = {name: jnp.log(jnp.asarray(value)) for name, value in START.items()}
    params = lambda latent: (jnp.exp(latent["epsilon"]), jnp.exp(latent["sigma"]))  # noqa: E731
    return Unknown(ForceShifted(LennardJones(), CUTOFF), guess, params, lambda latent: ())


def _scaled(r):
    """Distances between particles in units of order one."""
    return (r - 1.6) / 0.4


def network() -> Unknown:
    """A layer of twelve beside a repulsive core, which alone acts where particles never are and nothing is observed.

    Without the core the network may attract at distances that it has not seen, and a run with it collapses.
    """
    layers = eqx.nn.MLP(1, 1, 12, 1, activation=jnp.tanh, key=jax.random.key(0), dtype=jnp.float64)
    last = layers.layers[-1]
    layers = eqx.tree_at(lambda net: net.layers[-1], layers, jax.tree.map(jnp.zeros_like, last))
    module = eqx.nn.Sequential([eqx.nn.Lambda(_scaled), layers])
    learned, guess = NetworkPotential.of(module)
    core = jnp.asarray(1.0), jnp.asarray(0.95)

    def prior(weights):
        # Weights of order one, within a factor of some: what neither data nor the core tell stays small.
        return jax.tree.map(lambda w: w / 5, weights)

    return Unknown(ForceShifted(Sum((SoftSphere(12), learned)), CUTOFF), guess, lambda latent: (core, latent), prior)


def liquid(potential: PairPotential, dynamics) -> MolecularDynamics:
    length = (PARTICLES / DENSITY) ** (1 / 3)
    grid = cells_for((0.0,) * 3, (length,) * 3, CUTOFF + SKIN, (True,) * 3)
    return MolecularDynamics(
        Cells(Domain(grid), 32, (True,) * 3), NeighborPolicy(CUTOFF, SKIN, 88), potential, 4, dynamics
    )


def with_bath(potential_params, seed: int = 0) -> Params:
    bath = BathParams(jnp.asarray(TEMPERATURE), jnp.asarray(1.0), jnp.asarray(seed, jnp.int32))
    return Params(potential_params, jnp.ones(1), bath)


class Sampler:
    """Draws frames of the liquid with some potential, each run from where the last one ended."""

    def __init__(self, potential: PairPotential, frames: int, seed: int):
        self.model = liquid(potential, Langevin())
        self.frames, self.seed = frames, seed
        self.state, self.clock = None, Clock.zero(jnp.float64)
        self._draw = eqx.filter_jit(self._drawn)

    def _first(self, params):
        """A face-centred crystal, which melts while the first frames are dropped."""
        cells = round((PARTICLES / 4) ** (1 / 3))
        basis = np.array([[0.25, 0.25, 0.25], [0.75, 0.75, 0.25], [0.75, 0.25, 0.75], [0.25, 0.75, 0.75]])
        corners = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
        position = (corners + basis).reshape(-1, 3).T / cells * (PARTICLES / DENSITY) ** (1 / 3)
        velocity = TEMPERATURE**0.5 * np.random.default_rng(self.seed).normal(size=position.shape)
        return self.model.state_from(jnp.asarray(position), jnp.asarray(velocity), jnp.asarray(SPECIES), params)[0]

    def _drawn(self, params, state, clock):
        schedule = Schedule(EVERY, dt=DT)
        samples, run = sample(self.model, params, state, schedule, frames=SETTLING + self.frames, clock=clock)
        samples = jax.tree.map(lambda leaf: leaf[SETTLING:], samples)
        radial = radial_distributions(self.model, samples, RADII, WIDTH)
        return samples, radial, run.state, run.clock

    def draw(self, potential_params) -> tuple[Samples, jax.Array]:
        """Frames at these parameters, and g(r) of each, `(frames, radii)`."""
        params = with_bath(potential_params, self.seed)
        if self.state is None:
            self.state = jax.jit(self._first)(params)
        samples, radial, self.state, self.clock = self._draw(params, self.state, self.clock)
        if int(self.clock.status):
            raise SystemExit(f"The liquid could not be simulated: {reasons(int(self.clock.status))}.")
        return samples, radial


def search(problem: LeastSquares, step: Callable, solver: GaussNewton, latent, most: int, tell=lambda iterate: None):
    """At most so many steps of the solver from `latent`, fewer where it has settled; each is told of."""
    iterate = solver.begin(latent)
    for number in range(most):
        before, iterate = iterate, step(problem, iterate)
        tell(iterate)
        # The first step has nothing to be compared with.
        if number and solver.settled(iterate, before, 1e-10):
            break
    return iterate


# ---------------------------------------------------------------------- from trajectories


def trajectory_problem(unknown: Unknown, starts: Motion, measured: Motion, noise: tuple[float, float]) -> LeastSquares:
    """Measured motions `(windows, frames, 3, particles)` after the starts `(windows, 3, particles)`."""
    model = liquid(unknown.potential, VelocityVerlet())
    position, velocity = GaussianNoise(noise[0]), GaussianNoise(noise[1])

    def residuals(latent, given):
        starts, measured = given
        found, status = motions(model, Params(unknown.params(latent), jnp.ones(1)), starts)
        lengths, periodic = model.cells.domain.grid.lengths, model.cells.periodic
        there = closest_images(lengths, periodic, measured.position, found.position)
        whitened = position.residuals(found.position, there), velocity.residuals(found.velocity, measured.velocity)
        return Evaluation((whitened, unknown.prior(latent)), status)

    return LeastSquares((starts, measured), residuals, jax.vmap(residuals, (0, None)))


def motions(model: MolecularDynamics, params: Params, starts: Motion):
    """The motion in every window, and what went wrong in any."""
    schedule = Schedule(WINDOW, dt=DT)
    found, status = jax.vmap(
        lambda start: follow(model, params, start, jnp.asarray(SPECIES), schedule, frames=WINDOW_FRAMES)
    )(starts)
    return found, jax.lax.reduce(status, jnp.zeros((), status.dtype), jax.lax.bitwise_or, (0,))


def observed_motions(samples: Samples, seed: int, noise: tuple[float, float]) -> tuple[Motion, Motion]:
    """Starts far apart in time, and motions from there with the true potential and noise."""
    model = liquid(two_numbers().potential, VelocityVerlet())
    frames = samples.energy.shape[0]
    chosen = jax.tree.map(lambda leaf: leaf[:: max(1, frames // WINDOWS)][:WINDOWS], samples.state)
    starts = jax.jit(jax.vmap(lambda state: motion_of(model.cells, state, PARTICLES)))(chosen)
    params = Params(tuple(jnp.asarray(v) for v in TRUTH.values()), jnp.ones(1))
    motion, status = jax.jit(lambda starts: motions(model, params, starts))(starts)
    assert int(status) == 0, reasons(int(status))
    keys = jax.random.split(jax.random.key(seed), 2)
    position = motion.position + noise[0] * jax.random.normal(keys[0], motion.position.shape)
    velocity = motion.velocity + noise[1] * jax.random.normal(keys[1], motion.velocity.shape)
    return starts, Motion(position, velocity)


def from_trajectories(unknown: Unknown, samples: Samples, seed: int, iterations: int, noise=None):
    """The latent found, and standard deviations of its numbers."""
    noise = (POSITION_NOISE, VELOCITY_NOISE) if noise is None else noise
    problem = trajectory_problem(unknown, *observed_motions(samples, seed, noise), noise)
    solver = GaussNewton()
    size = sum(r.size for r in jax.tree.leaves(jax.eval_shape(problem.residuals, unknown.guess)))

    def tell(iterate):
        number, before = int(iterate.iteration), 2 * float(iterate.loss) / size
        print(f"step {number}: chi^2 per residual was {before:.4g}, now {shown(iterate.latent)}", flush=True)

    iterate = search(problem, eqx.filter_jit(solver.step), solver, unknown.guess, iterations, tell)
    if not isinstance(iterate.latent, dict):
        return iterate.latent, {}
    sensitivity = eqx.filter_jit(number_sensitivity)(problem, iterate.latent, tuple(START))
    return iterate.latent, uncertainty_of_numbers(sensitivity, tuple(START)).deviations


# ---------------------------------------------------------------------- from the radial distribution


def radial_problem(unknown: Unknown, model: MolecularDynamics, samples: Samples, radial, measured) -> LeastSquares:
    """g(r) of frames `(frames, radii)`, reweighted, against what was measured: means and deviations `(radii,)`."""

    def residuals(latent, given):
        samples, radial, (mean, deviation) = given
        energy = pair_energies(model, with_bath(unknown.params(latent)), samples)
        weights = frame_weights(energy, samples.energy, TEMPERATURE)
        whitened = GaussianNoise(1.0).residuals(reweighted_mean(weights, radial) / deviation, mean / deviation)
        return Evaluation((whitened, unknown.prior(latent)), sample_status(weights, LEAST_COUNTING))

    return LeastSquares((samples, radial, measured), residuals, jax.vmap(residuals, (0, None)))


def mean_and_deviation(radial: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean of g over frames, and its standard deviation from ten blocks of them."""
    blocks = radial[: radial.shape[0] // 10 * 10].reshape(10, -1, radial.shape[1]).mean(axis=1)
    # Where particles never are there is no scatter, and no certainty either.
    return blocks.mean(axis=0), jnp.maximum(blocks.std(axis=0, ddof=1) / 10**0.5, 2e-3)


def of_mean_force(unknown: Unknown, mean: jax.Array):
    """The latent whose potential is closest to -kT ln g, that of mean force: the usual first guess from g(r)."""
    seen = mean > 0.05
    target = -TEMPERATURE * jnp.log(jnp.where(seen, mean, 1))

    def loss(latent):
        here = jnp.zeros(RADII.shape, jnp.int32)
        energy = unknown.potential.energy(jnp.asarray(RADII) ** 2, here, here, unknown.params(latent))
        prior = sum(jnp.sum(r * r) for r in jax.tree.leaves(unknown.prior(latent)))
        return jnp.sum(jnp.where(seen, energy - target, 0) ** 2) + 1e-3 * prior

    return jax.jit(lambda latent: minimise(loss, latent, optax.lbfgs(), iterations=200).unknowns)(unknown.guess)


def from_radial_distribution(unknown: Unknown, sampler: Sampler, measured_radial: jax.Array, samplings: int):
    """The latent found from g(r), without standard deviations."""
    mean, deviation = mean_and_deviation(measured_radial)
    # The frames of the search are as uncertain as those of the measurement.
    measured = mean, 2**0.5 * deviation
    solver, latent = GaussNewton(damping=1.0, cg_iterations=10), unknown.guess
    step, problem = eqx.filter_jit(solver.step), None
    for number in range(samplings):
        samples, radial = sampler.draw(unknown.params(latent))
        given = samples, radial, measured
        if problem is None:
            problem = radial_problem(unknown, sampler.model, *given)
            counting = eqx.filter_jit(_counting)
        problem = eqx.tree_at(lambda p: p.given, problem, given)
        iterate = search(problem, step, solver, latent, 8)
        before, latent = latent, iterate.latent
        whitened = (radial.mean(axis=0) - mean) / measured[1]
        share = float(counting(problem, unknown.params(latent), sampler.model)) / sampler.frames
        print(
            f"sampling {number + 1}: chi^2 of g(r) per radius {float(jnp.mean(whitened**2)):8.2f}, "
            f"{share:.0%} of the frames count after the search, moved by {distance(before, latent):.3g}, "
            f"{shown(latent)}"
        )
    # No intervals: g at neighbouring radii errs together, and those that took radii as independent were too narrow.
    return latent, {}


def _counting(problem: LeastSquares, potential_params, model: MolecularDynamics):
    samples = problem.given[0]
    energy = pair_energies(model, with_bath(potential_params), samples)
    return effective_samples(frame_weights(energy, samples.energy, TEMPERATURE))


def shown(latent) -> str:
    """Numbers in words, a network by the size of its weights."""
    if isinstance(latent, dict):
        return ", ".join(f"{name} {float(jnp.exp(value)):.4f}" for name, value in latent.items())
    return f"weights {distance(latent, jax.tree.map(jnp.zeros_like, latent)):.3g}"


def distance(a, b) -> float:
    return float(sum(jnp.sum((x - y) ** 2) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))) ** 0.5


# ---------------------------------------------------------------------- what was found


def energy_at(unknown: Unknown, latent, r: np.ndarray) -> np.ndarray:
    """The potential at distances `(k,)`."""
    here = jnp.zeros(r.shape, jnp.int32)
    return np.asarray(unknown.potential.energy(jnp.asarray(r) ** 2, here, here, unknown.params(latent)))


def report(unknown: Unknown, latent, deviations, true_radial, radial) -> dict[str, float]:
    """Prints what was found, and returns the errors."""
    errors = {}
    for name in latent if isinstance(latent, dict) else ():
        found = float(jnp.exp(latent[name]))
        errors[name] = found - TRUTH[name]
        within = f" +- {found * NORMAL_95 * float(deviations[name]):.6f} (95 %)" if name in deviations else ""
        print(
            f"{name:8s} truth {TRUTH[name]:.6f}  start {START[name]:.6f}  found {found:.6f}{within}  "
            f"error {errors[name]:+.2e}"
        )
    r = np.linspace(0.95, CUTOFF, 200)
    true = two_numbers()
    truth = energy_at(true, {name: np.log(value) for name, value in TRUTH.items()}, r)
    for name, latent_then in (("start", unknown.guess), ("found", latent)):
        off = energy_at(unknown, latent_then, r) - truth
        errors[f"potential, {name}"] = float(np.sqrt(np.mean(off**2)))
        print(f"U(r), {name}: off by {errors[f'potential, {name}']:.4f} (root mean square over 0.95 < r < {CUTOFF})")
    errors["radial"] = float(jnp.sqrt(jnp.mean((radial - true_radial) ** 2)))
    print(f"g(r), found: off by {errors['radial']:.4f} (root mean square)")
    return errors


def draw_picture(path: Path, unknown: Unknown, latent, true_radial, radial, subtitle: str) -> None:
    r = np.linspace(0.85, CUTOFF, 300)
    truth = energy_at(two_numbers(), {name: np.log(value) for name, value in TRUTH.items()}, r)
    start, found = energy_at(unknown, unknown.guess, r), energy_at(unknown, latent, r)
    functions = [
        Function("r", "U(r)", r, truth, found, (-1.3, 3.0), start),
        Function("r", "g(r)", RADII, np.asarray(true_radial), np.asarray(radial), (0.0, 2.6)),
    ]
    heading = "Pair potential, and the radial distribution that it makes"
    write_functions(functions, path, title="A pair potential recovered", subtitle=subtitle, heading=heading)


def recover(observed: str, sought: str, frames: int = 400, seed: int = 0, picture: Path | None = None):
    """Errors of what was found; see `report`."""
    unknown = {"numbers": two_numbers, "network": network}[sought]()
    true = Sampler(two_numbers().potential, frames, seed)
    samples, measured = true.draw(tuple(jnp.asarray(v) for v in TRUTH.values()))
    # The liquid with two numbers is the same program, and its next frames are far from those that were measured.
    sampler = true if sought == "numbers" else Sampler(unknown.potential, frames, seed + 1)
    if observed == "trajectories":
        latent, deviations = from_trajectories(unknown, samples, seed, 20 if sought == "network" else 15)
    else:
        if sought == "network":
            unknown = unknown._replace(guess=of_mean_force(unknown, measured.mean(axis=0)))
        latent, deviations = from_radial_distribution(unknown, sampler, measured, 8 if sought == "network" else 10)
    _, radial = sampler.draw(unknown.params(latent))
    means = measured.mean(axis=0), radial.mean(axis=0)
    errors = report(unknown, latent, deviations, *means)
    if picture is not None:
        what = "epsilon and sigma" if sought == "numbers" else "a network beside a repulsive core"
        subtitle = f"{PARTICLES} particles, density {DENSITY}, temperature {TEMPERATURE}; {what} from "
        draw_picture(picture, unknown, latent, *means, subtitle + observed.replace("_", " "))
        print(f"{picture} shows it.")
    return errors


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("observed", nargs="?", choices=("trajectories", "radial_distribution"), default="trajectories")
    parser.add_argument("--as", dest="sought", choices=("numbers", "network"), default="numbers")
    parser.add_argument("--frames", type=int, default=400, help="of a sampling run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("recover_pair_potential.png"))
    chosen = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    recover(chosen.observed, chosen.sought, chosen.frames, chosen.seed, chosen.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
