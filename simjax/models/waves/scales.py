"""Scales of derivatives on a staggered grid along a stretched axis."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.models.stretching import require_widths
from simjax.ops import staggered_wave


class Scales(eqx.Module):
    """The mean spacing over the widths along one axis, shaped to broadcast.

    face, center: of what lies around the lower face of each cell, and of cells. top: around the last cell's upper face.
    """

    face: Array
    center: Array
    top: Array


AxisScales = tuple[Scales | None, ...]
"""One entry per axis; None where it is uniform."""


def scales_of(domain: Domain, layout: FieldLayout, order: int, dtype) -> AxisScales:
    """Scales of derivatives of this order; `layout` of a field at centres, which says what lies beyond the sides."""
    found: list[Scales | None] = [None] * domain.grid.ndim
    width = staggered_wave.halo(order)
    spacing = domain.spacing(layout, width, dtype)
    for axis in domain.grid.stretched:
        mean, n = domain.grid.mean_spacing[axis], domain.block_shape[axis]
        around = jnp.asarray(spacing[axis])
        face = mean / staggered_wave.combined(around, axis, staggered_wave.FACE_WIDTHS[order])
        outer = width - len(staggered_wave.CENTER_WIDTHS[order]) // 2
        own = lax.slice_in_dim(around, outer, around.shape[axis] - outer, axis=axis)
        center = mean / staggered_wave.combined(own, axis, staggered_wave.CENTER_WIDTHS[order])
        lower, top = (lax.slice_in_dim(face, a, b, axis=axis) for a, b in ((0, n), (n, n + 1)))
        found[axis] = Scales(lower, center, top)
    return tuple(found)


def check_scales(domain: Domain, layout: FieldLayout, order: int) -> None:
    """Refuse widths that change so abruptly that derivatives of this order would be divided by nothing."""
    for weights in (staggered_wave.FACE_WIDTHS[order], staggered_wave.CENTER_WIDTHS[order]):
        require_widths(f"physics.order={order}", domain, layout, weights, "2")


def along(scales: AxisScales, axis: int, offset: float) -> Array | float:
    """The scale along one axis of values at this offset; 1.0 where it is uniform."""
    one = scales[axis]
    return 1.0 if one is None else one.face if offset == FACE else one.center


def per_volume(scales: AxisScales, offset: Sequence[float]) -> Array | float:
    """The mean volume of a cell over that which each value at `offset` stands for; 1.0 on a uniform grid."""
    return math.prod(along(scales, axis, place) for axis, place in enumerate(offset))
