"""Forces of a potential in stored configurations, and how far they are from those that were measured there.

A potential is learned from forces alone: those of a finer model, of quantum mechanics, or, of a coarse-grained one,
the sums of forces on the atoms of a group. The mean square error is least for the potential whose forces are the mean
of the measured ones where particles stand: that of mean force, as far as the form of the potential allows (Ercolessi
and Adams 1994, Europhys. Lett. 26, 583; Izvekov and Voth 2005, J. Phys. Chem. B 109, 2469).
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.models.molecular.interaction import Interaction
from simjax.particles.pair_table import PairTable


class Configuration(eqx.Module):
    """Energy and forces of particles at given places.

    energy: that of all, a scalar. force: `(ndim, particles)`. virial: the sum over pairs of r_a F_b, `(ndim, ndim)`.
    complete: whether all pairs were looked at.
    """

    energy: Array
    force: Array
    virial: Array
    complete: Array


class StoredForces(eqx.Module):
    """Forces of a potential on particles that are given by their coordinates in a periodic box.

    potential: it may be any, also one that is learned. cutoff: beyond it pairs do not act, a length; boxes are twice as
    long or longer. most: partners that a particle has at most. One device evaluates a configuration, with a table of
    the pairs in place of cells; to move particles, or for many of them, put the potential into `MolecularDynamics`.
    """

    potential: Interaction
    cutoff: float = eqx.field(static=True)
    most: int = eqx.field(static=True)

    def __call__(self, params: Any, position: Array, lengths: Array, species: Array | None = None) -> Configuration:
        """Energy, forces and virial at `position` `(ndim, particles)`, in a box of `lengths` `(ndim,)`.

        species: `(particles,)` int32; None: all alike.
        """
        species = jnp.zeros(position.shape[1], jnp.int32) if species is None else species
        pairs = PairTable.of(position, lengths, self.cutoff, self.most)
        found = self.potential.evaluate(pairs, species, params)
        return Configuration(
            jnp.sum(found["energy"]), found["force"], jnp.sum(found["virial"], axis=-1), pairs.complete
        )


class ForceMatching(eqx.Module):
    """The mean square error of the components of forces, force^2: `loss(module, sample, key)`.

    A sample has "position" and "force", both `(states, ndim, particles)`, as windows of saved states have them, and
    "lengths" `(ndim,)` of the box. The loss is infinite where not all pairs were looked at.

    forces: with the potential that is sought. params: from the module that is sought to the potential's parameters.
    """

    forces: StoredForces
    params: Callable[[Any], Any]

    def __call__(self, module: Any, sample: Mapping[str, Array], key: Array | None = None) -> Array:
        params = self.params(module)
        found = jax.vmap(lambda position: self.forces(params, position, sample["lengths"]))(sample["position"])
        error = jnp.mean((found.force - sample["force"]) ** 2)
        return jnp.where(jnp.all(found.complete), error, jnp.inf)
