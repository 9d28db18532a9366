"""Pairs of a few particles in a table: stored configurations by the thousand, each in a box of its own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.particles.pairs import Pair


class PairTable(eqx.Module):
    """The pairs of particles of a periodic box that are nearer than a cutoff, by a search among all pairs.

    It takes the place of `Pairs` where configurations are small and many, as in learning: on one device, without cells,
    quick to compile, and every length may be another one in each configuration.

    separation: x_i - x_j of the nearest images, `(ndim, most, particles)`. partner: the numbers j, `(most, particles)`
    int32. inside: which entries are pairs, `(most, particles)`. complete: whether all pairs are there, a scalar.
    """

    separation: Array
    partner: Array
    inside: Array
    complete: Array

    @property
    def ndim(self) -> int:
        return self.separation.shape[0]

    @staticmethod
    def of(position: Array, lengths: Array, cutoff: float, most: int) -> "PairTable":
        """The table of particles at `position` `(ndim, particles)` in a box of `lengths` `(ndim,)`.

        most: the most partners of a particle. The table is not complete where there are more, or where the box is
        shorter than two cutoffs. Differentiable in position and lengths.
        """
        ndim, count = position.shape
        most = min(most, count - 1)

        def nearest(apart, lengths):
            return apart - jnp.round(lax.stop_gradient(apart / lengths)) * lengths

        along = lengths.reshape(ndim, 1, 1)
        square = jnp.sum(nearest(lax.stop_gradient(position[:, None] - position[:, :, None]), along) ** 2, axis=0)
        square = jnp.where(jnp.eye(count, dtype=bool), jnp.inf, square)
        partner = jnp.argsort(square, axis=1)[:, :most].T.astype(jnp.int32)
        apart = nearest(position[:, None] - position[:, partner], along)
        inside = jnp.sum(apart * apart, axis=0) < cutoff**2
        # Nothing is singular where there is no pair.
        away = jnp.asarray([cutoff / 2, *(0.0,) * (ndim - 1)], position.dtype).reshape(ndim, 1, 1)
        full = jnp.sum(square < cutoff**2) > jnp.sum(inside)
        complete = ~full & jnp.all(lengths >= 2 * cutoff)
        return PairTable(jnp.where(inside, apart, away), partner, inside, complete)

    def sum(self, pair: Pair, values: Any = (), params: Any = (), signs: Any = None):
        """Sums of `pair` over the partners of each particle, `(..., particles)`; see `Pairs.sum`."""
        del signs
        here = jax.tree.map(lambda u: u[..., None, :], values)
        there = jax.tree.map(lambda u: u[..., self.partner], values)
        found = pair(tuple(self.separation), here, there, params)
        return jax.tree.map(lambda f: jnp.sum(jnp.where(self.inside, f, jnp.zeros_like(f)), axis=-2), found)
