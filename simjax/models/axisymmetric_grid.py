"""Cells as rings around an axis of symmetry: their radii, what they are as operands of stencils, and their sides."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.grid import AXES, FACE, Grid
from simjax.jaxpr.varying import vary_like
from simjax.models.sides import kind_of
from simjax.ops.axisymmetric_divergence import RADIAL, taper
from simjax.ops.spacing import Spacing, relative
from simjax.schema.exclusions import Feature


def radii(domain: Domain, layout: FieldLayout, dtype) -> Array:
    """Distances of this block's cells from the axis, midway between their faces: (n, 1)."""
    width = domain.spacing(layout, 0, dtype)[RADIAL]
    return lower_radii(domain, dtype) + 0.5 * width


def lower_radii(domain: Domain, dtype) -> Array:
    """Distances of the lower faces of this block's cells from the axis: (n, 1)."""
    return domain.coordinates((FACE, FACE), dtype)[RADIAL]


def tapers(domain: Domain, layout: FieldLayout, like: Array) -> Array:
    """h / (2 r) of every cell of this block: a field, as stencils take it."""
    width = domain.spacing(layout, 0, like.dtype)[RADIAL]
    share = taper(radii(domain, layout, like.dtype), width)
    return vary_like(jnp.broadcast_to(share, domain.block_shape), like)


def tapers_of(domain: Domain, layout: FieldLayout, like: Array) -> tuple[Array, ...]:
    """The `tapers` as operands of a stencil: none on a Cartesian grid."""
    return (tapers(domain, layout, like),) if domain.grid.axisymmetric else ()


def ring_volumes(share: float | Array, domain: Domain, layout: FieldLayout, dtype) -> float | Array:
    """Areas of cells times the lengths 2 pi r of the rings that they are; on a Cartesian grid the areas as given.

    Those around the faces across r where `layout` is of a field that lies on them.
    """
    if not domain.grid.axisymmetric:
        return share
    on_faces = layout.offset[RADIAL] == FACE
    return share * (2 * math.pi * (lower_radii(domain, dtype) if on_faces else radii(domain, layout, dtype)))


def relative_volumes(domain: Domain, layout: FieldLayout, widths: Sequence[Spacing], dtype) -> float | Array:
    """Volumes of cells of these widths over the mean volume; 1.0 on a uniform Cartesian grid."""
    share = math.prod(map(relative, widths, domain.grid.mean_spacing))
    if not domain.grid.axisymmetric:
        return share
    return ring_volumes(share, domain, layout, dtype) * (1 / mean_length(domain.grid))


def mean_length(grid: Grid) -> float:
    """The mean volume of a cell over its mean area: 2 pi times the mean radius, on a Cartesian grid one."""
    return math.pi * (grid.lower[RADIAL] + grid.upper[RADIAL]) if grid.axisymmetric else 1.0


def mean_volume(grid: Grid) -> float:
    """The mean volume of a cell; of a grid in a plane its area."""
    return math.prod(grid.mean_spacing) * mean_length(grid)


def widest(domain: Domain, layout: FieldLayout, dtype) -> Array:
    """The area of each lower face times the width of the cell below over that cell's volume, (n, 1): at most two.

    What passes the face outwards leaves the cell below at that multiple of the rate on a Cartesian grid.
    """
    radius = lower_radii(domain, dtype)
    width = domain.spacing(layout, 1, dtype)[RADIAL]
    below = width[:-2] if isinstance(width, Array) else width
    return radius / jnp.maximum(radius - 0.5 * below, 0.5 * below)


def dimensions(grid: Grid) -> int:
    """The number of axes of the space that a grid fills: three on an axisymmetric one."""
    return 3 if grid.axisymmetric else grid.ndim


def directions(grid: Grid) -> tuple[str, ...]:
    """The words before "velocity" in the names of its components."""
    return ("radial ", "axial ") if grid.axisymmetric else tuple(f"{axis}-" for axis in AXES)


def side_refusals(lower: str, at_axis: bool, mirror: str = "slip") -> Iterator[tuple[str, str]]:
    """Sentences on a lower side across r of the kind `lower`, each with its key path.

    at_axis: whether r begins at zero. mirror: the kind of side that mirrors fields.
    """
    if lower == "periodic":
        yield "boundaries.x", "boundaries.x: r does not wrap on an axisymmetric grid; write a side for each end"
    elif at_axis and lower != mirror:
        yield (
            "boundaries.x.lower",
            f"boundaries.x.lower = {lower}: expected {mirror}, as r begins at the axis, which mirrors the fields",
        )


RINGS = Feature("an axisymmetric grid (`grid.axisymmetric`)", without="a Cartesian grid")
ASKED = "grid.axisymmetric = true"
"""The key and value that ask for `RINGS`, as `Exclusions.refusals` takes them."""


@dataclass(frozen=True)
class Across:
    """The sides across r of an axisymmetric grid: their kinds, and whether r begins at zero."""

    kinds: tuple[str, str]
    at_axis: bool


def across_of(domain: Domain, sides: Sequence[tuple[Side, Side]], groups: Sequence[str]) -> Across | None:
    """The sides across r of a model, whose sides are of these groups; None on a Cartesian grid."""
    if not domain.grid.axisymmetric:
        return None
    lower, upper = (kind_of(side, groups) for side in sides[RADIAL])
    return Across((lower, upper), domain.grid.lower[RADIAL] == 0)


def across_of_configuration(config: Any) -> Across | None:
    """The sides across r of a configuration; None on a Cartesian grid."""
    if not config.grid.axisymmetric:
        return None
    across = config.boundaries[RADIAL]
    return Across((across.lower.kind, across.upper.kind), config.grid.lower[RADIAL] == 0)
