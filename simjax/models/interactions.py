"""What particles do to each other: an energy of every particle, and what follows from it."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.particles.pairs import Pairs


class Interaction(eqx.Module):
    """An energy of particles that is made of sums over their partners."""

    @abc.abstractmethod
    def energies(self, total: Callable, species: Array, params: Any) -> Array:
        """Energy of every particle, `cells.shape`; together they are the energy of all.

        `total(pair, values, params)` sums over partners as `Pairs.sum` does; species: `cells.shape` int32.
        """

    def evaluate(self, pairs: Pairs, species: Array, params: Any) -> dict[str, Array]:
        """Everything that steps and measurements need, per particle.

        Returns:
            energy: `cells.shape`. force: `(ndim, *cells.shape)`, minus the slope of the energy of all particles.
            virial: `(ndim, ndim, *cells.shape)`, energy; summed over all particles it is minus the slope of their
            energy in a strain of space, sum over pairs of r_a F_b.
        """
        ndim = pairs.cells.ndim
        strain = jnp.zeros((ndim, ndim, *pairs.cells.shape), pairs.position.dtype)

        def energies(position, strain):
            return self.energies(_strained(dataclasses.replace(pairs, position=position), strain), species, params)

        energy, pull = jax.vjp(energies, pairs.position, strain)
        slope, stress = pull(jnp.ones_like(energy))
        return {"energy": energy, "force": -slope, "virial": -stress}


def _strained(pairs: Pairs, strain: Array) -> Callable:
    """`pairs.sum` in a space that is deformed around every particle: r_a + strain_ab r_b in the place of r_a."""

    def total(pair: Callable, values: Any = (), params: Any = ()):
        def deformed(separation, here, there, params):
            here, bent = here
            apart = tuple(
                x + sum(bent[a, b] * y for b, y in enumerate(separation)) for a, x in enumerate(separation)
            )  # fmt: skip
            return pair(apart, here, there[0], params)

        return pairs.sum(deformed, (values, strain), params)

    return total


def squared(separation: Sequence[Array]) -> Array:
    """Square of the length of vectors given by their components."""
    return functools.reduce(jnp.add, [x * x for x in separation])
