"""Deterministic dynamics at constant temperature."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.models.molecular.part_registry import thermostat
from simjax.models.molecular.velocity_verlet import DynamicsInParts, System, moves
from simjax.notebook import all_in_a_line
from simjax.schema.kinds import Real, key


class ThermostatParams(eqx.Module):
    """temperature: k T, an energy. period: tau, the time in which thermostats respond. Scalars."""

    temperature: Array
    period: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("ThermostatParams", {"temperature": self.temperature, "period": self.period}, strictly=True)


class Chain(eqx.Module):
    """position: xi, `(thermostats,)`. velocity: its rate of change, 1/time."""

    position: Array
    velocity: Array


@thermostat("nose_hoover")
class NoseHooverChain(DynamicsInParts):
    """Newton's equations with friction that a chain of thermostats sets: m dv/dt = F - m v dxi_1/dt.

    Q_1 d^2xi_1/dt^2 = sum(m v^2) - g kT - Q_1 dxi_1/dt dxi_2/dt and
    Q_k d^2xi_k/dt^2 = Q_(k-1) (dxi_(k-1)/dt)^2 - kT - Q_k dxi_k/dt dxi_(k+1)/dt, with Q_1 = g kT tau^2, Q_k = kT tau^2
    and g degrees of freedom. Energy + sum Q_k (dxi_k/dt)^2 / 2 + kT (g xi_1 + xi_2 + ...) is conserved. Martyna,
    Tuckerman, Tobias and Klein (1996), Mol. Phys. 87, 1117, eq. 2.2-2.5 and 4.7. Params: `ThermostatParams`.

    thermostats: the length of the chain. momentum_conserved: whether forces leave the total momentum as it is, which
    then must be zero and takes one degree of freedom for each axis but those with walls; not so with external forces.
    """

    @dataclass(frozen=True)
    class Keys:
        temperature: float = key(Real(above=0.0), 1.0, about="k T of the bath, an energy")
        period: float = key(Real(above=0.0), 0.5, about="tau, in which the thermostats respond, a time")

    conserves: ClassVar[str] = "conserved_energy"
    thermal: ClassVar[bool] = True

    thermostats: int = eqx.field(static=True, default=3)
    momentum_conserved: bool = eqx.field(static=True, default=True)

    @classmethod
    def configured(cls, setup):
        return cls(), ThermostatParams(*setup.in_order)

    def start(self, system, state, params):
        zero = jnp.zeros((self.thermostats,), state.velocity.dtype)
        return Chain(zero, zero)

    def parts(self, system, number, dt, state, params):
        yield system.warmed(state, state := self._half(system, dt, state, params))
        for part in moves(system, state, dt):
            yield part
            state = part.state
        yield system.warmed(state, self._half(system, dt, state, params))

    def diagnostics(self, system, state, params, energy):
        chain, freedom = state.ensemble, self._freedom(system, state)
        inertia = self._inertia(freedom, params)
        stored = 0.5 * jnp.sum(inertia * chain.velocity**2)
        heat = params.temperature * (freedom * chain.position[0] + jnp.sum(chain.position[1:]))
        return {"conserved_energy": energy + stored + heat}

    def _freedom(self, system: System, state) -> Array:
        return system.freedom(state) if self.momentum_conserved else system.cells.ndim * system.count(state)

    def _inertia(self, freedom: Array, params: ThermostatParams) -> Array:
        """Q, `(thermostats,)`."""
        one = params.temperature * params.period**2
        return jnp.stack([freedom * one] + [one] * (self.thermostats - 1))

    def _half(self, system: System, dt: Array, state, params: ThermostatParams):
        """The chain and the friction for half a step: the thermostats from the last to the first and back."""
        freedom = self._freedom(system, state)
        inertia = self._inertia(freedom, params)
        velocity, position = list(state.ensemble.velocity), state.ensemble.position
        last, target = self.thermostats - 1, params.temperature

        def pushed(k: int, twice_kinetic: Array) -> Array:
            """Velocity of thermostat k after a quarter of the step."""
            excess = inertia[k - 1] * velocity[k - 1] ** 2 - target if k else twice_kinetic - freedom * target
            slowed = jnp.exp(-dt / 8 * velocity[k + 1]) if k < last else 1
            return (velocity[k] * slowed + dt / 4 * excess / inertia[k]) * slowed

        twice = 2 * system.kinetic_energy(state)
        for k in reversed(range(self.thermostats)):
            velocity[k] = pushed(k, twice)
        factor = jnp.exp(-dt / 2 * velocity[0])
        position = position + dt / 2 * jnp.stack(velocity)
        for k in range(self.thermostats):
            velocity[k] = pushed(k, twice * factor**2)
        chain = Chain(position, jnp.stack(velocity))
        return dataclasses.replace(state, velocity=factor * state.velocity, ensemble=chain)
