"""Trajectories of particles from known starts, by particle number, to be compared with observed ones.

Trajectories of liquids are chaotic: what starts a distance d apart is d exp(lambda t) apart later, and the gradient of
a position with respect to parameters grows as fast. So observations are cut into windows of a few 1/lambda, each from a
start of its own; many short windows tell more than one long one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.jaxpr.varying import cast_varying
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.particles.cells import Cells, unpack
from simjax.status import CELL_FULL, OK
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.clock import Schedule
from simjax.stepping.simulate import simulate


class Motion(eqx.Module):
    """Coordinates in the box and velocities of particles by their numbers, both `(..., ndim, particles)`."""

    position: Array
    velocity: Array


def motion_of(cells: Cells, state: Any, count: int) -> Motion:
    """Places and velocities of the `count` particles of all devices: a `Motion` of `(ndim, count)`, on every device.

    state: any that has velocities. The derivative is a gather.
    """
    position, velocity = (unpack(cells, state.ids, u, count) for u in (cells.absolute(state.position), state.velocity))
    return Motion(position, velocity)


def follow(
    model: MolecularDynamics,
    params: Params,
    start: Motion,
    species: Array,
    schedule: Schedule,
    *,
    frames: int,
    checkpoint: Checkpoint = "auto",
) -> tuple[Motion, Array]:
    """The motion from `start` at the end of each of `frames` frames, differentiable in `params` and `start`.

    Several windows are `jax.vmap` over a leading axis of starts, inside `distribute`.

    Args:
        model: the particles' forces and dynamics.
        params: its parameters.
        start: `(ndim, particles)`, of the particles of all devices.
        species: `(particles,)` int32.
        schedule: frames, and steps of a fixed length.
        frames: how many to follow.
        checkpoint: what reverse mode keeps, as of `simulate`.

    Returns:
        A `Motion` of `(frames, ndim, particles)` and bits of `status`, the same on all devices.
    """
    # Cast once, so that gradients are summed over devices once and not in every step.
    params = jax.tree.map(lambda p: cast_varying(p, model.domain.names), params)
    state, lost = model.state_from(start.position, start.velocity, species, params)
    run = simulate(
        model,
        None,
        params,
        state,
        schedule,
        frames=frames,
        checkpoint=checkpoint,
        on_fault="keep",
        observe=lambda t, state, params: motion_of(model.cells, state, species.shape[0]),
    )
    return run.observed, run.clock.status | jnp.where(lost > 0, CELL_FULL, OK).astype(jnp.int32)
