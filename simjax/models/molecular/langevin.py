"""Dynamics with random forces: Langevin's and Brownian motion."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_at_least
from simjax.models.molecular.part_registry import thermostat
from simjax.models.molecular.velocity_verlet import (
    Dynamics,
    DynamicsInParts,
    System,
    displaced,
    drift,
    kick,
    with_forces,
)
from simjax.models.particle_balances import StepPart
from simjax.notebook import all_in_a_line
from simjax.schema.kinds import Real, key


class BathParams(eqx.Module):
    """A bath that particles exchange heat with.

    temperature: k T, an energy. friction: gamma, 1/time. seed: of the random forces, int32. All are scalars.
    """

    temperature: Array
    friction: Array
    seed: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("BathParams", {"temperature": self.temperature, "friction": self.friction})


@dataclass(frozen=True)
class BathKeys:
    """Keys of a bath."""

    temperature: float = key(Real(above=0.0), 1.0, about="k T of the bath, an energy")
    friction: float = key(Real(above=0.0), 1.0, about="gamma, 1/time")


class Bath(Dynamics):
    """Dynamics in a bath. Params: `BathParams`."""

    Keys = BathKeys

    @classmethod
    def configured(cls, setup):
        seed = jnp.asarray(setup.config.seed, jnp.int32)
        temperature, friction = setup.in_order
        return cls(), BathParams(temperature, friction, seed)


@thermostat("langevin")
class Langevin(Bath, DynamicsInParts):
    """Langevin's equation: m dv/dt = F - m gamma v + sqrt(2 m gamma kT) dW/dt, at constant temperature.

    A half kick and a half drift, the exact Ornstein-Uhlenbeck process of velocities for a whole step, a half drift and
    a half kick (BAOAB). Leimkuhler and Matthews (2013), J. Chem. Phys. 138, 174102, eq. 8. Params: `BathParams`.
    """

    thermal: ClassVar[bool] = True

    def parts(self, system, number, dt, state, params):
        state = kick(system, state, 0.5 * dt)
        yield system.bounced(state, state := drift(system, state, 0.5 * dt))
        yield system.warmed(state, state := thermalised(system, number, dt, state, params))
        yield system.bounced(state, state := drift(system, state, 0.5 * dt))
        yield StepPart(kick(system, with_forces(system, state), 0.5 * dt))


@thermostat("brownian")
class Brownian(Bath):
    """Overdamped motion: dx/dt = F / (m gamma) + sqrt(2 kT / (m gamma)) dW/dt; velocities are not used.

    Ermak and McCammon (1978), J. Chem. Phys. 69, 1352, eq. 7 without hydrodynamic interactions: of first order in the
    mean. Params: `BathParams`.
    """

    def step(self, system, number, dt, state, params):
        mobility = 1 / (system.mass * params.friction)
        way = jnp.sqrt(2 * dt * params.temperature * mobility) * normal_by_id(params.seed, number, state)
        position, _ = displaced(system, state, dt * mobility * state.force + way)
        return with_forces(system, dataclasses.replace(state, position=position))


def thermalised(system: System, number: Array, dt: Array, state, params: BathParams):
    """Velocities after `dt` of friction and random forces alone, exactly."""
    kept = jnp.exp(-params.friction * dt)
    # 1 - exp(-2 gamma dt) without loss of digits where gamma dt is small.
    spread = jnp.sqrt(-jnp.expm1(-2 * params.friction * dt) * params.temperature / system.mass)
    return dataclasses.replace(
        state, velocity=kept * state.velocity + spread * normal_by_id(params.seed, number, state)
    )


def normal_by_id(seed: Array, number: Array, state) -> Array:
    """A standard normal number for each component of each particle, `(ndim, *cells.shape)`; 0 at empty slots.

    Drawn from (seed, number of the step, id of the particle): it depends neither on the decomposition nor on slots.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), number)
    components, dtype = state.velocity.shape[0], state.velocity.dtype

    def drawn(one):
        # Uniform numbers are exact in float32; the Gaussians are formed in the precision of the run.
        return jax.random.uniform(jax.random.fold_in(key, one), (components,), jnp.float32, -1 + 2**-24, 1.0)

    uniform = jax.vmap(drawn, out_axes=1)(state.ids.reshape(-1)).reshape(state.velocity.shape)
    return jnp.where(state.ids >= 0, 2**0.5 * lax.erf_inv(uniform.astype(dtype)), 0)
