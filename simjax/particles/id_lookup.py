"""Particles that belong together by their ids, wherever they move."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.errors import ConfigurationError
from simjax.jaxpr.platform import one_pass
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.neighbor_list import GROUP, interior, nearby, placed, turns
from simjax.particles.neighbor_slots import cell_strides, displacements, own_slot, slots_around
from simjax.particles.one_pass import Table, by_cell


def slots_of(cells: Cells, position: Array, ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Slots of the particles with the ids `wanted` `(count, *cells.shape)`, in the cells around each particle.

    Returns:
        Their slots in the flattened padded block `(count, *cells.shape)` int32, the particle's own where none is wanted
        or none was found; and how far away they are, squared, infinite where none was found. Of several periodic
        images it is the nearest.
    """
    coordinates, _ = placed(cells, position, ids)
    names = cells.pad(ids + 1) - 1
    flat = jnp.arange(names.size, dtype=jnp.int32).reshape(names.shape)
    here = interior(cells, coordinates)
    wanted = jnp.where((ids >= 0)[None] & (wanted >= 0), wanted, EMPTY - 1)
    if one_pass():
        return _looked_up_at_once(cells, coordinates, names, wanted)

    def look(found, turn):
        nearest, slot = found
        there, name, number = (nearby(cells, u, turn) for u in (coordinates, names, flat))
        for k in range(GROUP):
            square = sum((x - y[k][None]) ** 2 for x, y in zip(here, there, strict=True))
            square = jnp.asarray(square)[None]
            nearer = (wanted == name[k][None, None]) & (square < nearest)
            nearest = jnp.where(nearer, square, nearest)
            slot = jnp.where(nearer, number[k][None, None], slot)
        return (nearest, slot), None

    # As the block's own values are: the same on all devices or not.
    nearest = jnp.full(wanted.shape, jnp.inf, position.dtype) + 0 * wanted.astype(position.dtype)
    slot = jnp.broadcast_to(own_slot(cells)[None], wanted.shape) + 0 * wanted
    nearest, slot = lax.scan(look, (nearest, slot), jnp.arange(turns(cells), dtype=jnp.int32))[0]
    return slot, nearest


def _looked_up_at_once(cells: Cells, coordinates: Array, names: Array, wanted: Array) -> tuple[Array, Array]:
    """`slots_of` as one operation on all slots of the cells around."""
    table = Table(cells, (coordinates, names))
    here = own_slot(cells).ravel()
    own = by_cell(cells, here)[:, None]
    index = own - own % cells.capacity + jnp.asarray(slots_around(cells))
    (mine, _), (theirs, name) = table.at(own), table.at(index)
    square = sum((x - y) ** 2 for x, y in zip(mine, theirs, strict=True))
    found = name[None] == wanted.reshape(-1, here.size, 1)
    square = jnp.where(found, jnp.asarray(square)[None], jnp.inf)
    # The first of several as near.
    candidate = jnp.argmin(square, axis=-1).astype(jnp.int32)
    nearest = jnp.min(square, axis=-1)
    cells_padded = math.prod(cells.padded_shape[1:])
    around, number = candidate // cells.capacity, candidate % cells.capacity
    displaced = jnp.asarray((displacements(cells.ndim) @ cell_strides(cells)).astype(np.int32))
    slot = (here % cells_padded)[None] + displaced.at[around].get(mode="promise_in_bounds") + number * cells_padded
    slot = jnp.where(nearest < jnp.inf, slot, here[None])
    return slot.reshape(wanted.shape), nearest.reshape(wanted.shape)


def partners_of(count: int, bonds: np.ndarray) -> np.ndarray:
    """Bonds `(bonds, 2)` of ids as the partners of each of `count` particles: `(most, count)` int32, else `EMPTY`."""
    bonds = np.asarray(bonds, np.int32).reshape(-1, 2)
    _check(count, bonds, "bond")
    return listed(count, np.concatenate([bonds[:, 0], bonds[:, 1]]), np.concatenate([bonds[:, 1:], bonds[:, :1]]))[:, 0]


def ends_of(count: int, angles: np.ndarray) -> np.ndarray:
    """Angles `(angles, 3)` of ids, the vertex in the middle, as the ends of each vertex: `(most, 2, count)` int32."""
    angles = np.asarray(angles, np.int32).reshape(-1, 3)
    _check(count, angles, "angle")
    return listed(count, angles[:, 1], angles[:, ::2])


def listed(count: int, owner: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` `(entries, n)` by the particle that owns each: `(most, n, count)`, `EMPTY` where there are fewer."""
    order = np.argsort(owner, kind="stable")
    owner, values = owner[order], values[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    result = np.full((int(rank.max(initial=-1)) + 1, values.shape[1], count), EMPTY, np.int32)
    result[rank, :, owner] = values
    return result


def _check(count: int, groups: np.ndarray, what: str) -> None:
    wrong = [g for g in groups.tolist() if min(g) < 0 or max(g) >= count or len(set(g)) < len(g)]
    if wrong:
        raise ConfigurationError(
            f"{what} {tuple(wrong[0])}: expected different particles of 0 to {count - 1}; leave it out or name others."
        )
