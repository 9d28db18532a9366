"""Cells as rings around an axis of symmetry: their radii, and what they are as operands of stencils and weights."""

import math

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.jaxpr.varying import vary_like
from simjax.ops.axisymmetric import taper

RADIAL = 0
"""The number of the axis along r."""


def radii(domain: Domain, layout: FieldLayout, dtype) -> Array:
    """Distances of this block's cells from the axis, midway between their faces: (n, 1)."""
    width = domain.spacing(layout, 0, dtype)[RADIAL]
    return domain.coordinates((FACE, FACE), dtype)[RADIAL] + 0.5 * width


def tapers(domain: Domain, layout: FieldLayout, like: Array) -> Array:
    """h / (2 r) of every cell of this block: a field, as stencils take it."""
    width = domain.spacing(layout, 0, like.dtype)[RADIAL]
    share = taper(radii(domain, layout, like.dtype), width)
    return vary_like(jnp.broadcast_to(share, domain.block_shape), like)


def ring_volumes(share: float | Array, domain: Domain, layout: FieldLayout, dtype) -> float | Array:
    """Areas of cells times the lengths 2 pi r of the rings that they are; on a Cartesian grid the areas as given."""
    return share * (2 * math.pi * radii(domain, layout, dtype)) if domain.grid.axisymmetric else share
