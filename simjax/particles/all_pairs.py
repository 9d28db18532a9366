"""Sums over all pairs of particles, in tiles of partners: no table of pairs is ever stored."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.platform import one_pass
from simjax.jaxpr.varying import steady_carry
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.one_pass import summed
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
        # On a GPU partners come last, as the candidates of `one_pass.summed`.
        mine, theirs = ((-1, 1), (1, -1)) if one_pass() else ((1, -1), (-1, 1))
        here = jax.tree.map(lambda u: u.reshape(*_lead(u, shape), *mine), particles)
        tiles = jax.tree.map(lambda u: self._tiles(u, theirs), particles)
        tiles = (*tiles[:2], jnp.where(self._padding(theirs), EMPTY, tiles[2]), tiles[3])
        far = self.cells.domain.grid.lengths[0] / 2

        def masked(distinct, here, there, params):
            (x, cx, own, a), (y, cy, other, b) = here, there
            inside = (own >= 0) & (other >= 0) & distinct
            # Between centres first: near particles keep the digits of their difference.
            apart = [(p - q) + (c - d) for p, q, c, d in zip(x, y, cx, cy, strict=True)]
            away = [far, *(0.0,) * (len(apart) - 1)]
            separation = tuple(jnp.where(inside, r, jnp.asarray(f, r.dtype)) for r, f in zip(apart, away, strict=True))
            found = pair(separation, a, b, params)
            return jax.tree.map(lambda f: jnp.where(inside, f, jnp.zeros_like(f)), found)

        def take(here, there):
            if one_pass():
                return _at_once(masked, here, there, params)
            found = masked(here[2] != there[2], here, there, params)
            return jax.tree.map(lambda f: jnp.sum(f, axis=-2), found)

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

    def _tiles(self, u: Array, form: tuple[int, int]) -> Array:
        """The values of all devices' particles, tile by tile: `(tiles, ..., *form)`, the partners where that is -1."""
        count, size = self._count
        lead = _lead(u, self.cells.shape)
        whole = self.cells.domain.gather(u).reshape(*lead, -1)
        whole = jnp.pad(whole, [(0, 0)] * len(lead) + [(0, count * size - whole.shape[-1])])
        return jnp.moveaxis(whole.reshape(*lead, count, *form), len(lead), 0)

    def _padding(self, form: tuple[int, int]) -> Array:
        """Tell whether an entry of the tiles is beyond all slots: `(tiles, *form)`."""
        count, size = self._count
        slots = self.cells.capacity * self.cells.domain.grid.cells
        return (jnp.arange(count * size, dtype=jnp.int32) >= slots).reshape(count, *form)


def _at_once(masked: Callable, here, there, params):
    """The sums of `masked` over the partners, which come last, in one kernel that stores nothing of a pair.

    Its derivative is that of plain sums: those in copies would each have one of their own.
    """

    @jax.custom_jvp
    def total(here, there, params):
        return summed(lambda difference: masked(difference != 0, here, there, params), here[2] - there[2])

    def plain(here, there, params):
        found = masked(here[2] != there[2], here, there, params)
        return jax.tree.map(lambda f: jnp.sum(f, axis=-1), found)

    @total.defjvp
    def _(primals, tangents):
        return total(*primals), jax.jvp(plain, primals, tangents)[1]

    return total(here, there, params)


def _lead(u: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    return u.shape[: u.ndim - len(shape)]
