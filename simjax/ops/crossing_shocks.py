"""Shocks that run across a face. Along those that are strong and lie in the grid, noise grows by an exact contact.

A cell within a shock has a state that no gas has. What differs between two such cells of one shock is a contact or a
shear layer to a flux that keeps these, so that nothing draws it together, and it grows: the "carbuncle" (Quirk 1994,
Int. J. Numer. Meth. Fluids 18, 555). The states at a face do not tell; the cells beside it do, along the other axes
(Pandolfi and D'Ambrosio 2001, J. Comput. Phys. 166, 271).
"""

import functools

import jax.numpy as jnp
from jax import Array, lax

from simjax.ops.riemann import Primitive
from simjax.stencil.materialise import transposed_anew

WEAK, STRONG = 0.3, 0.6
"""Strengths of a shock, from one cell before a cell to one cell behind it, from which it counts, and counts in full."""
RISE = 1.4
"""Weight of the change of pressure beside the drop of the velocity. In the last cell of a shock the pressure is the high
one behind it, of which its change is a small share: without the weight the bow shock of a cylinder at Mach 10 is uneven
by 0.11 of a cell, with it by 0.02."""


def across_faces(padded: Primitive, ndim: int) -> tuple[Array, ...]:
    """For each axis the share, 0 to 1, in cells of shocks along other axes, which run across the faces along this one.

    The strength of a shock along an axis is the drop of the velocity over sqrt(p / rho), or `RISE` times the change of
    pressure over p, whichever is less: shear layers have no change of pressure, and expansions have no drop. Of all other axes the
    largest counts. The block is padded along all axes; the outermost cells along the others are left out.
    """

    def found(density: Array, velocity: tuple[Array, ...], pressure: Array) -> tuple[Array, ...]:
        strengths = [_strengths(density, u, pressure, axis, ndim) for axis, u in enumerate(velocity)]
        return tuple(_beside(strengths, axis, ndim) for axis in range(ndim))

    return transposed_anew(found, padded.density, padded.velocity, padded.pressure)


def strength(drop: Array, change: Array, density: Array, pressure: Array) -> Array:
    """Share, 0 to 1, of a shock in a cell, from the drop of the velocity and the change of pressure across it."""
    found = jnp.minimum(drop * jnp.sqrt(density / pressure), RISE * jnp.abs(change) / pressure)
    return jnp.clip((found - WEAK) * (1 / (STRONG - WEAK)), 0, 1)


def _strengths(density: Array, u: Array, pressure: Array, axis: int, ndim: int) -> Array:
    """Share of a shock along an axis, in all cells but the outermost ones along it."""

    def change(v: Array) -> Array:
        return _cut(v, axis, ndim, 0, 2) - _cut(v, axis, ndim, 2, 0)

    return strength(change(u), change(pressure), _cut(density, axis, ndim, 1, 1), _cut(pressure, axis, ndim, 1, 1))


def _beside(strengths: list[Array], axis: int, ndim: int) -> Array:
    """The largest of all axes but one, in all cells but the outermost ones along these."""
    found = []
    for other, cells in enumerate(strengths):
        if other != axis:
            for k in range(ndim):
                cells = cells if k in (axis, other) else _cut(cells, k, ndim, 1, 1)
            found.append(cells)
    return functools.reduce(jnp.maximum, found)


def _cut(u: Array, axis: int, ndim: int, first: int, last: int) -> Array:
    """All cells but so many first and last ones along an axis."""
    along = u.ndim - ndim + axis
    return lax.slice_in_dim(u, first, u.shape[along] - last, axis=along)
