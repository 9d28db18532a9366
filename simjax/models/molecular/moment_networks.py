"""Learned potentials of many particles: networks of what a particle sees of its partners."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.errors import ConfigurationError
from simjax.models.molecular.interaction import squared
from simjax.models.molecular.many_body import MomentPotential

SOFTNESS = 3
"""Power with which a term vanishes at the cutoff: energy, force and its slope are continuous there."""


class MomentNetwork(eqx.Module):
    """The networks of a `NetworkMoments`: one of the distance, and one of the sums over partners.

    channels: learned functions of the distance. order: 0, the sums are numbers, as in the embedded-atom method; 1, they
    are vectors too, along the direction of the partner; 2, also tensors, which tell angles. cutoff: beyond it nothing
    acts, a length. size: a typical distance, a length. hidden: size of the layers in between, two of the energy and one
    of the distance. key: for the first weights.

    Raises:
        ConfigurationError: an argument is none.
    """

    radial: eqx.nn.MLP
    embedding: eqx.nn.MLP
    order: int = eqx.field(static=True)
    cutoff: float = eqx.field(static=True)
    size: float = eqx.field(static=True)

    def __init__(self, *, channels: int, order: int, cutoff: float, size: float, hidden: int, key: Array):
        if order not in (0, 1, 2):
            raise ConfigurationError(f"MomentNetwork.order={order!r}: expected 0, 1 or 2; write 2 for angles.")
        given = {"channels": channels, "hidden": hidden, "cutoff": cutoff, "size": size}
        require_at_least("MomentNetwork", given, strictly=True)
        self.order, self.cutoff, self.size = order, cutoff, size
        radial, embedding = jax.random.split(key)
        self.radial = eqx.nn.MLP(1, channels, hidden, 1, activation=jnp.tanh, key=radial)
        self.embedding = eqx.nn.MLP((order + 1) * channels, 1, hidden, 2, activation=jax.nn.silu, key=embedding)


class NetworkMoments(MomentPotential):
    """A learned energy of many particles: U = sum over i of N(a_i) - N(0), N a network of invariants a_i.

    With learned functions f_k of the distance that vanish at the cutoff, and unit vectors n from i to its partners j,
    these are a = sum of f_k, |sum of f_k n|^2 and |sum of f_k n n|^2 to the order of the network: energies and forces
    turn with the particles, and which is which is of no importance. Order 0 is the form of the embedded-atom method
    (Daw and Baskes 1984, Phys. Rev. B 29, 6443), order 2 the first moment tensors (Shapeev 2016, Multiscale Model.
    Simul. 14, 1153). All species are alike. params: the arrays of a `MomentNetwork`.
    """

    fixed: Any = eqx.field(static=True)

    @staticmethod
    def of(network: MomentNetwork) -> tuple["NetworkMoments", Any]:
        """The potential of a network, and its params."""
        params, fixed = eqx.partition(network, eqx.is_inexact_array)
        return NetworkMoments(fixed), params

    def moments(self, separation, params):
        network = eqx.combine(params, self.fixed)
        r = jnp.sqrt(squared(separation))
        found = jax.vmap(network.radial)(r.reshape(-1, 1) / network.size - 1)
        end = jnp.where(r < network.cutoff, 1 - r / network.cutoff, 0) ** SOFTNESS
        f = end[None] * found.T.reshape(-1, *r.shape)
        normal = [x / r for x in separation]
        # A symmetric tensor: what stands beside the diagonal counts twice.
        twice = [(1 if b is a else 2**0.5) * a * b for k, a in enumerate(normal) for b in normal[k:]]
        along, twice = (f[None] * jnp.stack(components)[:, None] for components in (normal, twice))
        return [f, twice][: max(1, network.order)], [along][: network.order]

    def energy(self, even, odd, params):
        network = eqx.combine(params, self.fixed)
        cells = even[0].shape[1:]
        invariants = [even[0], *(_square(u, len(cells)) for u in (*odd, *even[1:]))]
        told = jnp.concatenate(invariants)
        told = told.reshape(told.shape[0], -1)
        energy = jax.vmap(network.embedding, in_axes=1)(told)[:, 0]
        nothing = network.embedding(jnp.zeros(told.shape[0], told.dtype))[0]
        return (energy - nothing).reshape(cells)


def _square(u: Array, axes: int) -> Array:
    """Sum of squares of all components of each channel, `(channels, *cells)`; axes: how many the cells have."""
    return jnp.sum(u * u, axis=tuple(range(u.ndim - axes - 1)))
