"""Interactions of particles: an energy of every particle, and what follows from it."""

import abc
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.particles.pair_table import PairTable
from simjax.particles.pairs import Pairs
from simjax.schema.parts import Part


class Interaction(eqx.Module, Part):
    """An energy of particles that depends on where their partners are."""

    @classmethod
    def end(cls, keys: Any) -> float | None:
        """Distance at which the energy ends smoothly by itself, for the values of its `Keys`; None: it does not."""
        return None

    @classmethod
    def diameters(cls, keys: Any) -> tuple[float, ...] | None:
        """Sizes of the species relative to each other, for the values of its `Keys`; None: they are alike."""
        return None

    @abc.abstractmethod
    def evaluate(self, pairs: Pairs | PairTable, species: Array, params: Any) -> dict[str, Array]:
        """Forces, energies and virials per particle; species: `cells.shape` int32.

        Returns:
            energy: `cells.shape`; together they are the energy of all. force: `(ndim, *cells.shape)`, minus the slope
            of the energy of all. virial: `(ndim, ndim, *cells.shape)`, energy; together they are the sum over pairs of
            r_a F_b, minus the slope of the energy in a strain of space.
        """


class Superposition(Interaction):
    """Several interactions at once: their energies, forces and virials add up. params: a tuple, those of each."""

    interactions: tuple[Interaction, ...]

    def evaluate(self, pairs, species, params):
        each = zip(self.interactions, params, strict=True)
        return jax.tree.map(lambda *u: sum(u[1:], u[0]), *(one.evaluate(pairs, species, its) for one, its in each))


def squared(vector: Sequence[Array]) -> Array:
    """Square of the length of vectors given by their components."""
    return functools.reduce(jnp.add, [x * x for x in vector])


def per_particle(found: dict[str, Any]) -> dict[str, Array]:
    """Force and virial, given as tuples of components, as arrays."""
    virial = jnp.stack([jnp.stack(row) for row in found["virial"]])
    return {**found, "force": jnp.stack(found["force"]), "virial": virial}
