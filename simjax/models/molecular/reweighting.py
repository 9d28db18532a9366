"""Averages over a canonical ensemble at parameters near those it was sampled with, and their gradients.

The mean of O at parameters theta is sum_k w_k O_k over frames k of a run at theta_0 and temperature T, with weights
w_k proportional to exp(-(U_theta(x_k) - U_theta_0(x_k)) / kT) (Zwanzig 1954, J. Chem. Phys. 22, 1420). The gradient
passes through U_theta of stored frames and not through the run, whose own gradient chaos makes useless after a few
Lyapunov times. Where few of the frames count any more, it is time to sample anew: Thaler and Zavadlav (2021), Nature
Communications 12, 6884.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.errors import ConfigurationError
from simjax.jaxpr.varying import vary_like
from simjax.models.molecular.interaction import squared
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.particles.pairs import Pairs
from simjax.particles.radial_distribution import smooth_radial_distribution
from simjax.status import FEW_SAMPLES, OK
from simjax.stepping.clock import Clock, Schedule
from simjax.stepping.simulate import Trajectory, simulate


class Samples(eqx.Module):
    """Frames of a run at constant temperature, every leaf with a leading axis of frames.

    state: the particles of each frame. arrangement: their pairs. energy: `(frames,)`, that of `pair_energies` at the
    parameters of the run.
    """

    state: Any
    arrangement: Any
    energy: Array


def sample(
    model: MolecularDynamics, params: Params, state: Any, schedule: Schedule, *, frames: int, clock: Clock | None = None
) -> tuple[Samples, Trajectory]:
    """`frames` frames of a run from `state`, and the run's end, where the next samples may start with its clock.

    model: of a dynamics at constant temperature, such as `Langevin`. No gradient flows through samples.
    """
    # Without gradient: nothing of the run is kept for reverse mode.
    params, state = jax.lax.stop_gradient((vary_like(params, state), state))
    run = simulate(
        model,
        None,
        params,
        state,
        schedule,
        frames=frames,
        clock=clock,
        on_fault="keep",
        observe=lambda t, state, params: model.arrange(state, params),
    )
    states, arrangements, faults = run.observed
    fault = jax.lax.reduce(faults, jnp.zeros((), faults.dtype), jax.lax.bitwise_or, (0,))
    run = eqx.tree_at(lambda run: run.clock.status, run, run.clock.status | fault)
    found = Samples(states, arrangements, jnp.zeros((frames,), run.clock.elapsed.dtype))
    return eqx.tree_at(lambda s: s.energy, found, pair_energies(model, params, found)), run


def pair_energies(model: MolecularDynamics, params: Params, samples: Samples) -> Array:
    """U_theta of the frames: `(frames,)`, the same on all devices, differentiable in `params`.

    Of pairs alone: what other forces there are does not depend on what is sought, and cancels in weights.

    Raises:
        ConfigurationError: the model's forces are not those of pairs.
    """
    potential = model.potential
    if not isinstance(potential, PairPotential):
        raise ConfigurationError(
            f"Reweighting takes a potential of pairs, got {type(potential).__name__}; write one such as LennardJones."
        )
    params = vary_like(params, samples.state)

    def half(separation, here, there, shared):
        return potential.energy(squared(separation), here, there, shared) / 2

    def energy(state, arrangement):
        pairs = model.skin.pairs(model.cells, state, arrangement)
        return model.domain.sum(pairs.sum(half, state.species, params.potential))

    # All frames at once: a pair sum holds a few numbers per particle.
    return jax.vmap(energy)(samples.state, samples.arrangement)


def radial_distributions(model: MolecularDynamics, samples: Samples, radii: np.ndarray, width: float) -> Array:
    """g of every frame at `radii`, as `smooth_radial_distribution` tells it: `(frames, radii)`.

    radii: up to the cutoff and the skin of the model, less `width`.

    Raises:
        ConfigurationError: as `smooth_radial_distribution`, or radii reach beyond the pairs that frames list.
    """
    reach = model.skin.reach
    if np.max(radii) + width > reach:
        raise ConfigurationError(
            f"radii and width reach to {np.max(radii) + width:g}: expected at most {reach:g}, the cutoff and the skin "
            "of the samples; use smaller radii or a larger skin."
        )

    def one(state, arrangement):
        # Frames stand where their pairs were listed, so nothing within the skin is missing.
        pairs = Pairs(model.cells, state.position, state.ids, reach, arrangement.neighbours)
        return smooth_radial_distribution(model.cells, state, radii, width, pairs)

    return jax.vmap(one)(samples.state, samples.arrangement)


def frame_weights(energy: Array, reference: Array, temperature: Array | float) -> Array:
    """w_k, proportional to exp(-(energy - reference) / temperature), with the sum one: `(frames,)`.

    energy: of the frames at the parameters asked about. reference: at those they were sampled with. temperature: k T,
    in units of energy.
    """
    return jax.nn.softmax((reference - energy) / temperature)


def effective_samples(weights: Array) -> Array:
    """exp(-sum w ln w): how many of the frames count, from 1 to all of them."""
    some = weights > 0
    return jnp.exp(-jnp.sum(jnp.where(some, weights * jnp.log(jnp.where(some, weights, 1)), 0)))


def sample_status(weights: Array, least: float) -> Array:
    """`FEW_SAMPLES` where less than the fraction `least` of the frames counts, else zero: for an `Evaluation`.

    A solver takes no step there, and so stays where the samples still say something.
    """
    few = effective_samples(weights) < least * weights.shape[0]
    return jnp.where(few, FEW_SAMPLES, OK).astype(jnp.int32)


def reweighted_mean(weights: Array, values: Array) -> Array:
    """The mean of `(frames, ...)` with weights `(frames,)`."""
    return jnp.tensordot(weights, values, 1)
