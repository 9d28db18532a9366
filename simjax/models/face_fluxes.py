"""Fluxes through the faces of cells in a plane, with the areas that a scheme has."""

import math

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux
from simjax.models.axisymmetric_grid import lower_radii
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing


def through_cells(domain: Domain, density: Array, widths: tuple[Spacing, ...], plane: FacePlane) -> Flux:
    """The flux through the faces of cells with these `widths`, as the scheme has them."""
    grid, dtype, areas = domain.grid, density.dtype, jnp.ones((), density.dtype)
    for k, h in enumerate(widths):
        if k != plane.axis:
            areas = areas * h
    if grid.axisymmetric and plane.axis == RADIAL:
        ends = {0: grid.lower[RADIAL], grid.shape[RADIAL]: grid.upper[RADIAL]}
        radius = ends.get(plane.number)
        areas = areas * 2 * math.pi * (plane.faces(domain, lower_radii(domain, dtype)) if radius is None else radius)
    elif grid.axisymmetric:
        areas = areas * circumferences(domain, widths, dtype)
    return Flux(density, areas)


def circumferences(domain: Domain, widths: tuple[Spacing, ...], dtype) -> Array:
    """Lengths 2 pi r of the rings that this block's cells are, (n, 1)."""
    return 2 * math.pi * (lower_radii(domain, dtype) + 0.5 * widths[RADIAL])
