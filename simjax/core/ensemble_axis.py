"""Statistics over the members of an ensemble, wherever the members are: the only reductions over the ensemble axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.varying import vary_like


@dataclass(frozen=True)
class Members:
    """Statistics over the first axis of arrays, of which every device along the mesh axis `axis` has an equal part.

    count: number of those devices; axis is None where there is one. Values that are NaN are left out, value by value;
    where all are, so is the statistic. Results are the same on all devices along the axis.

    Examples:
        >>> from simjax.core.ensemble_axis import Members
        >>> u = jnp.asarray([[1.0, 2.0], [3.0, jnp.nan]])
        >>> Members().mean(u).tolist(), Members().quantiles(u, [0.5]).tolist()
        ([2.0, 2.0], [[2.0, 2.0]])
    """

    axis: str | None = None
    count: int = 1

    def total(self, u: Array) -> Array:
        """The sum over members."""
        partial = jnp.sum(u, axis=0)
        return partial if self.axis is None else lax.psum(partial, self.axis)

    def mean(self, u: Array) -> Array:
        """The mean over members."""
        known = ~jnp.isnan(u)
        # Without members it is 0 / 0.
        return self.total(jnp.where(known, u, 0)) / self.total(known.astype(u.dtype))

    def variance(self, u: Array) -> Array:
        """The mean square of the distance from the mean."""
        return self.mean((u - self.mean(u)[None]) ** 2)

    def min(self, u: Array) -> Array:
        """The smallest value."""
        least = jnp.min(jnp.where(jnp.isnan(u), jnp.inf, u), axis=0)
        return self._known(least if self.axis is None else lax.pmin(least, self.axis), u)

    def max(self, u: Array) -> Array:
        """The largest value."""
        most = jnp.max(jnp.where(jnp.isnan(u), -jnp.inf, u), axis=0)
        return self._known(most if self.axis is None else lax.pmax(most, self.axis), u)

    def quantiles(self, u: Array, shares: Sequence[float]) -> Array:
        """Quantiles `(shares, ...)`, linear between members in order (method 7 of Hyndman and Fan 1996).

        With several devices, each orders the values of all members in its part of the places, so that no device needs
        more memory than its own members take.
        """
        places = u.shape[1:]
        size = math.prod(places)
        flat = u.reshape(u.shape[0], size)
        if self.axis is None:
            return _in_order(flat, shares).reshape(len(shares), *places)
        own = -(-size // self.count)
        flat = jnp.pad(flat, ((0, 0), (0, own * self.count - size)))
        mine = _in_order(lax.all_to_all(flat, self.axis, 1, 0, tiled=True), shares)
        whole = jnp.zeros((len(shares), own * self.count), u.dtype)
        whole = lax.psum(
            lax.dynamic_update_slice_in_dim(vary_like(whole, mine), mine, own * lax.axis_index(self.axis), 1), self.axis
        )
        return whole[:, :size].reshape(len(shares), *places)

    def _known(self, result: Array, u: Array) -> Array:
        return jnp.where(self.total((~jnp.isnan(u)).astype(u.dtype)) > 0, result, jnp.nan)


def _in_order(u: Array, shares: Sequence[float]) -> Array:
    """Quantiles `(shares, places)` of `(members, places)`; NaN is left out."""
    known = jnp.sum(~jnp.isnan(u), axis=0)
    ordered = jnp.sort(u, axis=0)  # NaN last
    last = jnp.maximum(known - 1, 0)

    def one(share: float) -> Array:
        position = share * last.astype(u.dtype)
        below = jnp.floor(position).astype(jnp.int32)
        above = jnp.minimum(below + 1, last.astype(jnp.int32))
        low, high = (jnp.take_along_axis(ordered, index[None], axis=0)[0] for index in (below, above))
        return low + (high - low) * (position - below.astype(u.dtype))

    return jnp.stack([one(share) for share in shares])
