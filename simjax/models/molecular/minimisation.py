"""Minima of the potential energy, reached by motion."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.models.molecular.velocity_verlet import Dynamics, move

GROWTH, CUT, MIXING, FADING, PATIENCE, FIRST = 1.1, 0.5, 0.1, 0.99, 5, 0.1


class Descent(eqx.Module):
    """length: of the next step, in steps of the schedule. mixing: alpha. downhill: steps with positive power, int32."""

    length: Array
    mixing: Array
    downhill: Array


class Fire(Dynamics):
    """Fast inertial relaxation: Newton's equations whose velocities are turned along the forces, and stopped uphill.

    Where F . v > 0, v <- (1 - alpha) v + alpha |v| F / |F|, and after five such steps the next ones grow by 1.1 and
    alpha falls by 0.99; else v <- 0, the steps are halved and alpha is 0.1 again. |.| and . are those of all particles
    together. The step of the schedule is the longest; the first is a tenth of it. Bitzek et al. (2006), Phys. Rev.
    Lett. 97, 170201. Params: none.
    """

    def start(self, system, state, params):
        dtype = state.velocity.dtype
        return Descent(jnp.asarray(FIRST, dtype), jnp.asarray(MIXING, dtype), jnp.asarray(0, jnp.int32))

    def step(self, system, number, dt, state, params):
        before = state.ensemble
        power, speed, strength = (
            system.sum(state, jnp.sum(a * b, axis=0))
            for a, b in (
                (state.force, state.velocity),
                (state.velocity, state.velocity),
                (state.force, state.force),
            )
        )
        downhill = power > 0
        # Where power is positive, so is the force.
        ratio = jnp.sqrt(jnp.where(downhill, speed, 0) / jnp.where(downhill, strength, 1))
        turned = (1 - before.mixing) * state.velocity + before.mixing * ratio * state.force
        grows = downhill & (before.downhill > PATIENCE)
        length = jnp.where(grows, jnp.minimum(GROWTH * before.length, 1), before.length)
        mixing = jnp.where(grows, FADING * before.mixing, before.mixing)
        # At rest, as at the start, nothing goes uphill.
        uphill = power < 0
        descent = Descent(
            jnp.where(uphill, CUT * length, length),
            jnp.where(uphill, MIXING, mixing),
            jnp.where(downhill, before.downhill + 1, 0),
        )
        state = dataclasses.replace(state, velocity=jnp.where(downhill, turned, 0), ensemble=descent)
        return move(system, state, descent.length * dt)

    def diagnostics(self, system, state, params, energy):
        square = jnp.where(state.ids >= 0, jnp.sum(state.force**2, axis=0), 0)
        return {"largest_force": jnp.sqrt(system.cells.domain.max(square))}
