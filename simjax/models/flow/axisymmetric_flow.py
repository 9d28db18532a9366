"""Incompressible flow in cylindrical coordinates (r, z) without swirl: volumes of its cells."""

import math
from collections.abc import Sequence

from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.models.axisymmetric_grid import lower_radii, mean_length, radii, widest
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing, lower_faces, relative, without_ends


def volumes_around(domain: Domain, layout: FieldLayout, on_faces: Sequence[int], dtype) -> list[Spacing]:
    """Factors of the volume around cell centres, or around lower faces `on_faces` of an axis, in the mean one.

    They are the widths along each axis, and on an axisymmetric grid the lengths of the rings.
    layout: periodic where the face in a lower side stands for that in the upper one too, which is not stored.
    """
    widths = domain.spacing(layout, 1, dtype)
    own = (lower_faces(h, axis) if axis in on_faces else without_ends(h, axis, 1) for axis, h in enumerate(widths))
    found = [relative(h, mean) for h, mean in zip(own, domain.grid.mean_spacing, strict=True)]
    if domain.grid.axisymmetric:
        radius = lower_radii(domain, dtype) if RADIAL in on_faces else radii(domain, layout, dtype)
        found.append(radius * (2 * math.pi / mean_length(domain.grid)))
    return found


def shares_of_faces(domain: Domain, layout: FieldLayout, dtype) -> tuple[float | Array, ...]:
    """Rates at which what passes lower faces leaves the cells below, over those on a Cartesian grid, by axis."""
    if not domain.grid.axisymmetric:
        return (1.0,) * domain.grid.ndim
    return widest(domain, layout, dtype), 1.0
