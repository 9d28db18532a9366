"""Sums over all pairs of particles, in tiles of partners: no table of pairs is ever stored."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.parts import part
from simjax.jaxpr.platform import one_pass
from simjax.jaxpr.varying import steady_carry
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.pairs import Pair

PAIRS = 2**22
"""Pairs that are looked at together on a GPU, for which a tile is too little work to wait for. From the particles of
all devices, so that the order of sums does not depend on the decomposition.
"""


class AllPairs(eqx.Module):
    """All pairs of a set of particles, in a box without images.

    cells: where particles are stored; which cell holds one is of no importance. position: `(ndim, *cells.shape)` from
    the centre of the cell, of any length. ids: `cells.shape` int32. tile: partners taken at once; on a GPU at
    least.
    """

    cells: Cells
    position: Array
    ids: Array
    tile: int = eqx.field(static=True, default=64)

    @part("sums over pairs")
    def sum(self, pair: Pair, values: Any = (), params: Any = ()):
        """Sums of `pair` over the partners of each particle.

        Every device takes the partners of all; memory, also that of the derivative, is that of the particles and of a
        tile.

        Args:
            pair: what one partner gives, as for `Pairs.sum`.
            values: tree of per-particle arrays `(..., *cells.shape)`.
            params: tree of arrays that all pairs share.

        Returns:
            The tree that `pair` returns, with arrays `(..., *cells.shape)`; zero at empty slots.
        """
        shape = self.cells.shape
        particles = (self.position, self._centres(), self.ids, values)
        here = jax.tree.map(lambda u: u.reshape(*_lead(u, shape), 1, -1), particles)
        tiles = jax.tree.map(self._tiles, particles)
        tiles = (*tiles[:2], jnp.where(self._padding(), EMPTY, tiles[2]), tiles[3])
        far = self.cells.domain.grid.lengths[0] / 2

        def take(here, there):
            (x, cx, own, a), (y, cy, other, b) = here, there
            inside = (own >= 0) & (other >= 0) & (own != other)
            # Between centres first: near particles keep the digits of their difference.
            apart = [(p - q) + (c - d) for p, q, c, d in zip(x, y, cx, cy, strict=True)]
            away = [far, *(0.0,) * (len(apart) - 1)]
            separation = tuple(jnp.where(inside, r, jnp.asarray(f, r.dtype)) for r, f in zip(apart, away, strict=True))
            found = pair(separation, a, b, params)
            return jax.tree.map(lambda f: jnp.sum(jnp.where(inside, f, jnp.zeros_like(f)), axis=-2), found)

        # What a tile computes is computed again for its derivative.
        again = jax.checkpoint(take, prevent_cse=False)

        def turn(total, there):
            return jax.tree.map(jnp.add, total, again(here, there)), None

        first = jax.tree.map(lambda u: u[0], tiles)
        start = jax.tree.map(lambda f: jnp.zeros(f.shape, f.dtype), jax.eval_shape(take, here, first))
        _, start = steady_carry(lambda total: turn(total, first)[0], start)
        found = lax.scan(turn, start, tiles)[0]
        return jax.tree.map(lambda r: r.reshape(*r.shape[:-1], *shape), found)

    def _centres(self) -> Array:
        """Coordinates of the centres of each slot's cell, `(ndim, *cells.shape)`."""
        centres = self.cells.centres(self.position.dtype)
        return jnp.stack([jnp.broadcast_to(c, self.cells.shape) for c in centres])

    @property
    def _count(self) -> tuple[int, int]:
        """Tiles, and partners in each, for the slots of all devices."""
        slots = self.cells.capacity * self.cells.domain.grid.cells
        size = min(max(self.tile, PAIRS // slots) if one_pass() else self.tile, slots)
        return -(-slots // size), size

    def _tiles(self, u: Array) -> Array:
        """The values of all devices' particles, tile by tile: `(tiles, ..., partners, 1)`."""
        count, size = self._count
        lead = _lead(u, self.cells.shape)
        whole = self.cells.domain.gather(u).reshape(*lead, -1)
        whole = jnp.pad(whole, [(0, 0)] * len(lead) + [(0, count * size - whole.shape[-1])])
        return jnp.moveaxis(whole.reshape(*lead, count, size, 1), len(lead), 0)

    def _padding(self) -> Array:
        """Tell whether an entry of the tiles is beyond all slots: `(tiles, partners, 1)`."""
        count, size = self._count
        slots = self.cells.capacity * self.cells.domain.grid.cells
        return (jnp.arange(count * size, dtype=jnp.int32) >= slots).reshape(count, size, 1)


def _lead(u: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    return u.shape[: u.ndim - len(shape)]
