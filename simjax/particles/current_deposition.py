"""Currents of particles that keep the law of continuity on the mesh, so that Gauss's law is kept too.

A particle's way from one position to the next is cut into moves along the axes, in all orders, averaged. Esirkepov
(2001), Comput. Phys. Commun. 135, 144, eq. 23 and 31; dense over nodes, as deposition is.
"""

import itertools

import jax.numpy as jnp
from jax import Array

from simjax.particles.mesh import ParticleMesh


def transported(mesh: ParticleMesh, before: Array, after: Array, ids: Array, values: Array) -> tuple[Array, ...]:
    """Charge that passes from each node to the next one along each axis while particles move.

    Args:
        mesh: with a stray that holds before and after.
        before, after: positions within the same cells, `(ndim, *cells.shape)`.
        ids: `cells.shape` int32.
        values: `cells.shape`, what particles carry.

    Returns:
        One `mesh.domain.block_shape` array per axis; entry i is what passes from node i to node i + 1. Its difference
        along the axis, summed over axes, is what the deposit has lost, to rounding.
    """
    means, changes = _means_and_changes(mesh, before, after, ids)
    found = []
    for axis in range(mesh.cells.ndim):
        # What has gone from the nodes up to i is beyond them.
        weights = list(means)
        weights[axis] = -jnp.cumsum(changes[axis], axis=0)
        found.append(_averaged(mesh, weights, changes, ids, values, without=axis))
    return tuple(found)


def on_the_way(mesh: ParticleMesh, before: Array, after: Array, ids: Array, values: Array) -> Array:
    """The deposit of `values` averaged over the same ways, `mesh.domain.block_shape`: for currents out of the mesh."""
    means, changes = _means_and_changes(mesh, before, after, ids)
    return _averaged(mesh, means, changes, ids, values)


def _means_and_changes(mesh: ParticleMesh, before: Array, after: Array, ids: Array):
    slopes = (0,) * mesh.cells.ndim
    first, last = (mesh.weights(position, ids, slopes) for position in (before, after))
    pairs = list(zip(first, last, strict=True))
    return [0.5 * (a + b) for a, b in pairs], [b - a for a, b in pairs]


def _averaged(mesh: ParticleMesh, weights: list[Array], changes, ids, values, without: int = -1) -> Array:
    """Products of the mean weights, and a twelfth of the products of two changes in their place."""
    total = mesh.spread(weights, ids, values)
    others = [axis for axis in range(mesh.cells.ndim) if axis != without]
    for pair in itertools.combinations(others, 2):
        changed = [changes[axis] if axis in pair else w for axis, w in enumerate(weights)]
        total = total + mesh.spread(changed, ids, values / 12)
    return total
