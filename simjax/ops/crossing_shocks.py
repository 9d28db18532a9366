"""Shocks that run across a face. Along those that are strong and lie in the grid, noise grows by an exact contact.

A cell within a shock has a state that no gas has. What differs between two such cells of one shock is a contact or a
shear layer to a flux that keeps these, so that nothing draws it together, and it grows: the "carbuncle" (Quirk 1994,
Int. J. Numer. Meth. Fluids 18, 555). The states at a face do not tell; the cells beside it do, along the other axes
(Pandolfi and D'Ambrosio 2001, J. Comput. Phys. 166, 271).
"""

import functools

import jax.numpy as jnp
from jax import Array, lax

from simjax.ops.riemann import Primitive, sound_speed

WEAK, STRONG = 0.25, 0.5
"""Strengths of a shock, from one cell before a cell to one cell behind it, from which it counts, and counts in full."""


def at_faces(padded: Primitive, axis: int, ndim: int, gamma: Array, width: int) -> Array:
    """The share, 0 to 1, of a shock across each of the n + 1 faces along `axis`, of a block padded along all axes.

    The strength along another axis is the drop of the velocity over the speed of sound, or the change of pressure over
    the mean one, whichever is less: shear layers have no change of pressure, and expansions have no drop. Of the two
    cells at the face, and of all other axes, the largest counts.
    """
    sound = sound_speed(padded, gamma)
    found = []
    for other in range(ndim):
        if other == axis:
            continue
        below, above = (
            [_beside(u, axis, other, by, ndim, width) for u in (padded.velocity[other], padded.pressure, sound)]
            for by in (-1, 1)
        )
        drop = (below[0] - above[0]) / jnp.maximum(below[2], above[2])
        rise = jnp.abs(below[1] - above[1]) * (2 / (below[1] + above[1]))
        found.append(jnp.clip((jnp.minimum(drop, rise) - WEAK) * (1 / (STRONG - WEAK)), 0, 1))
    cells = functools.reduce(jnp.maximum, found)
    along = cells.ndim - ndim + axis
    n = cells.shape[along]
    return jnp.maximum(*(lax.slice_in_dim(cells, k, k + n - 1, axis=along) for k in (0, 1)))


def _beside(u: Array, axis: int, other: int, by: int, ndim: int, width: int) -> Array:
    """The cells that lie so many cells further along another axis than those beside the faces along `axis`."""
    first, last = [width] * ndim, [width] * ndim
    first[axis], last[axis] = width - 1, width - 1
    first[other], last[other] = width + by, width - by
    leading = u.ndim - ndim
    ends = [n - k for n, k in zip(u.shape[leading:], last, strict=True)]
    return lax.slice(u, [0] * leading + first, [*u.shape[:leading], *ends])
