"""Widths of cells in stencils: one number along a uniform axis, an array of widths along a stretched one.

An array has as many ghost cells along its own axis as the fields that it stands beside. Along the other axes it has
the size of these too, or one.
"""

import jax.numpy as jnp
from jax import Array, lax

from simjax.ops.difference import shift

Spacing = float | Array


def scaled(u: Array, *factors: float | Array) -> Array:
    """`u` times the factors, of which the number 1.0 costs nothing."""
    for factor in factors:
        u = u if not isinstance(factor, Array) and factor == 1.0 else u * fitted(factor, u)
    return u


def fitted(factor: float | Array, u: Array) -> float | Array:
    """A factor with as many axes as `u`, of which those before the spatial ones have length one."""
    if not isinstance(factor, Array) or factor.ndim >= u.ndim:
        return factor
    return factor.reshape((1,) * (u.ndim - factor.ndim) + factor.shape)


def relative(spacing: Spacing, mean: float) -> Spacing:
    """Widths over the mean one: 1.0 along a uniform axis."""
    return spacing * (1 / mean) if isinstance(spacing, Array) else 1.0


def along(spacing: Spacing, axis: int, ndim: int, width: int) -> Spacing:
    """Widths without the `width` ghost cells along all axes but `axis`, in place of a padded block of them."""
    if not isinstance(spacing, Array):
        return spacing
    for k in range(ndim):
        n = spacing.shape[k]
        if k != axis and n > 1:
            spacing = lax.slice_in_dim(spacing, width, n - width, axis=k)
    return spacing


def without_ends(spacing: Spacing, axis: int, cut: int) -> Spacing:
    """Widths without `cut` cells at both ends of `axis`."""
    if not isinstance(spacing, Array):
        return spacing
    return lax.slice_in_dim(spacing, cut, spacing.shape[axis] - cut, axis=axis)


def pairs(spacing: Spacing, axis: int) -> tuple[Spacing, Spacing]:
    """Widths of the cells below and above each face between two cells; along a uniform axis 1.0, the share of one."""
    if not isinstance(spacing, Array):
        return 1.0, 1.0
    n = spacing.shape[axis]
    return lax.slice_in_dim(spacing, 0, n - 1, axis=axis), lax.slice_in_dim(spacing, 1, n, axis=axis)


def between_centers(spacing: Spacing, axis: int) -> Spacing:
    """Distances between the centres of neighbours, one on each face between two cells."""
    if not isinstance(spacing, Array):
        return spacing
    below, above = pairs(spacing, axis)
    return 0.5 * (below + above)


def lower_faces(spacing: Spacing, axis: int) -> Spacing:
    """Distances between centres across the lower face of each cell; `spacing` has one ghost cell along `axis`."""
    if not isinstance(spacing, Array):
        return spacing
    below, own = pairs(lax.slice_in_dim(spacing, 0, spacing.shape[axis] - 1, axis=axis), axis)
    return 0.5 * (below + own)


def width_of(spacing: Spacing, axis: int, ndim: int, by: int = 0) -> Spacing:
    """Widths along `axis` of cells i + by, on the interior of a block of widths padded by one."""
    return shift(spacing, ndim, axis, by) if isinstance(spacing, Array) else spacing


def apart(spacing: Spacing, axis: int, ndim: int, by: int = 0) -> Spacing:
    """Distances between the centres of cells i + by - 1 and i + by along `axis`, on the interior as `width_of`."""
    if not isinstance(spacing, Array):
        return spacing
    return 0.5 * (shift(spacing, ndim, axis, by - 1) + shift(spacing, ndim, axis, by))


def smallest(spacing: Spacing, axis: int) -> Spacing:
    """The least width of a cell and its two neighbours; `spacing` has one ghost cell along `axis`."""
    if not isinstance(spacing, Array):
        return spacing
    n = spacing.shape[axis]
    parts = [lax.slice_in_dim(spacing, k, n - 2 + k, axis=axis) for k in range(3)]
    return jnp.minimum(jnp.minimum(parts[0], parts[1]), parts[2])


def around_centers(spacing: Spacing, axis: int) -> Spacing:
    """Half the distances between the centres of the two neighbours of each cell; one ghost cell along `axis`."""
    return between_centers(between_centers(spacing, axis), axis)
