"""Potentials between pairs of particles."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class PairPotential(eqx.Module):
    """An energy that depends on how far apart two particles are.

    Params are a tree of arrays; `here` and `there` the species of both, int32.
    """

    @abc.abstractmethod
    def energy(self, square: Array, here: Any, there: Any, params: Any) -> Array:
        """Energy of a pair at distance sqrt(square)."""

    def pair(self, separation, here, there, params) -> dict[str, Any]:
        """What a particle gets from one partner: half the energy, the force on it, and half the virial r . F."""
        square = sum((x * x for x in separation[1:]), separation[0] * separation[0])
        energy, slope = jax.vjp(lambda square: self.energy(square, here, there, params), square)
        (slope,) = slope(jnp.ones_like(energy))
        return {
            "energy": energy / 2,
            "force": tuple(-2 * slope * x for x in separation),
            "virial": -slope * square,
        }


class LennardJones(PairPotential):
    """U = 4 epsilon ((sigma / r)^12 - (sigma / r)^6), cut off. params: (epsilon, sigma), scalars, energy and length."""

    def energy(self, square, here, there, params):
        epsilon, sigma = params
        sixth = (sigma * sigma / square) ** 3
        return 4 * epsilon * (sixth * sixth - sixth)
