"""Divergences in cylindrical coordinates (r, z) without swirl: cells are rings, faces across r are as large as r.

A cell of width h around the radius r has the volume r h and the areas r - h / 2 and r + h / 2, per radian and per
length along z. Its *taper* h / (2 r) is all that a stencil has to know: areas over r are 1 - taper and 1 + taper. It
is one beside the axis, whose area vanishes.
"""

import jax.numpy as jnp
from jax import Array, lax

from simjax.ops.difference import shift
from simjax.ops.reconstruction import difference_of_faces
from simjax.ops.spacing import Spacing

RADIAL = 0
"""The number of the axis along r."""


def taper(radius: Array, width: Spacing) -> Array:
    """h / (2 r) of cells around `radius`; of those beyond the axis, which stand for none, one."""
    return 0.5 * width / jnp.maximum(radius, 0.5 * width)


def areas(taper: Array, ndim: int, by: int = 0) -> tuple[Array, Array]:
    """Areas of the lower and the upper face across r of the cells i + by, over their radii; `taper` padded by one."""
    share = shift(taper, ndim, RADIAL, by)
    return 1 - share, 1 + share


def divergence_along(flux: Array, axis: int, ndim: int, spacing: Spacing, taper: Array | None = None) -> Array:
    """Divergence in the n cells by fluxes on n + 1 faces along an axis; `taper`: None where cells are no rings."""
    if taper is None or axis != RADIAL:
        return difference_of_faces(flux, axis, ndim, spacing)
    return ring_divergence(flux, taper, axis, ndim, spacing)


def ring_divergence(flux: Array, taper: Array, axis: int, ndim: int, spacing: Spacing, source: Array | None = None):
    """1/r d(r flux)/dr on the n cells between n + 1 faces, less source / r where there is one.

    The source is taken from both fluxes before they are weighed, so that nothing is left where all three are equal.
    """
    array_axis = flux.ndim - ndim + axis
    n = flux.shape[array_axis] - 1
    below, above = (lax.slice_in_dim(flux, k, k + n, axis=array_axis) for k in (0, 1))
    if source is not None:
        below, above = below - source, above - source
    return ((1 + taper) * above - (1 - taper) * below) * (1 / spacing)
