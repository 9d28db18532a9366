"""Geometry of bodies on the grid where its cells may be rings around an axis: parts and means count with the radius.

Across a ring of the width h around the radius r_0 the radius is r_0 (1 + k s), with s from -1 to 1 and the taper
k = h / (2 r_0), which is one beside the axis. So a mean over rings is the plain one plus k times that of s times what
the mean is of.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.models.axisymmetric_grid import radii
from simjax.models.flow.bodies.solid_geometry import (
    between,
    inverse,
    mean_positive,
    means_along,
    open_cells,
    pairs_of,
    steps_of,
)
from simjax.ops.axisymmetric_divergence import RADIAL, taper
from simjax.ops.spacing import Spacing, between_centers, without_ends
from simjax.solvers.elliptic import cut


class Rings(NamedTuple):
    """Tapers of this block's cells, `(n, 1)`, and of rings from centre to centre around its n + 1 faces across r."""

    cells: Array
    faces: Array

    def around(self, axis: int | None) -> Array:
        """Tapers of the volumes around the faces of an axis; None: of cells."""
        return self.faces if axis == RADIAL else self.cells


def rings_of(domain: Domain, layout: FieldLayout, dtype) -> Rings | None:
    """The rings of this block; None on a Cartesian grid. layout: tells along which axes fields are periodic."""
    if not domain.grid.axisymmetric:
        return None
    width = domain.spacing(layout, 1, dtype)[RADIAL]
    radius = domain.coordinates((FACE, FACE), dtype, (1, 0))[RADIAL][1:]
    cells = taper(radii(domain, layout, dtype), without_ends(width, RADIAL, 1))
    return Rings(cells, taper(radius, between_centers(width, RADIAL)))


def shares_of_neighbours(
    domain: Domain, layout: FieldLayout, component: int | None, dtype
) -> tuple[Array, Array] | None:
    """Weights of neighbours below and above along r in the Laplacian, over those on a Cartesian grid.

    component: of a velocity on faces; None: at cell centres. None on a Cartesian grid. See `staggered.laplacian`.
    """
    if not domain.grid.axisymmetric:
        return None
    width = domain.spacing(layout, 1, dtype)[RADIAL]
    radius = domain.coordinates((FACE, FACE), dtype, (1, 0))[RADIAL]
    own = without_ends(width, RADIAL, 1)
    n = domain.block_shape[RADIAL]
    here = taper(radii(domain, layout, dtype), own)
    if component != RADIAL:
        return 1 - here, 1 + here
    before = cut(width, RADIAL, 0, n) if isinstance(width, Array) else width
    return 1 - taper(cut(radius, RADIAL, 1, n + 1) - 0.5 * before, before), 1 + here


def open_part_of(nodes: Array, axes: Sequence[int], taper: Array | None) -> Array:
    """`solid_geometry.open_cells`, of rings where they have a taper: exact for surfaces that are cones."""
    part = open_cells(nodes, axes)
    if taper is None or RADIAL not in axes:
        return part
    middle, across, along = nodes, jnp.zeros((), nodes.dtype), jnp.zeros((), nodes.dtype)
    for axis in axes:
        slope, middle = steps_of(middle, axis), 0.5 * pairs_of(middle, axis)
        across, along = (slope, along) if axis == RADIAL else (0.5 * pairs_of(across, axis), slope)
    return part + taper * moment_of_open(middle, across, along)


def means_over_faces(distance: Array, axis: int, below: Sequence[Spacing], rings: Rings | None) -> tuple[Array, Array]:
    """`solid_geometry.mean_positive`, over rings where cells are some."""
    if rings is None or axis == RADIAL:
        return mean_positive(distance, axis, below)
    nodes = between(between(distance, axis, below[axis]), RADIAL, below[RADIAL])
    positive, whole = means_along(nodes, RADIAL)
    n = nodes.shape[RADIAL]
    low, high = cut(nodes, RADIAL, 0, n - 1), cut(nodes, RADIAL, 1, n)
    return positive + rings.cells * moment_of_positive(low, high), whole + rings.cells * (high - low) / 6


def moment_of_positive(low: Array, high: Array) -> Array:
    """The mean of s max(d, 0), with d linear from `low` at s = -1 to `high` at s = 1."""
    least, most = jnp.minimum(low, high), jnp.maximum(high, low)
    part = jnp.maximum(most, 0.0) * inverse(most - least)
    cut_off = jnp.where(high > low, 1.0, -1.0) * part * jnp.maximum(most, 0.0) * (0.5 - part / 3)
    return jnp.where(least >= 0, (high - low) / 6, cut_off)


def moment_of_open(middle: Array, across: Array, along: Array) -> Array:
    """The mean of s where d is positive, zero elsewhere, over a plane cell.

    d is linear: `middle` in the middle of the cell; it changes by `across` from side to side along s, by `along` along
    the other axis.
    """
    steep = jnp.abs(along) >= jnp.abs(across)
    # Open from a level to the upper end along the other axis: that level is linear in s.
    step = jnp.where(steep & (along != 0), jnp.abs(along), 1.0)
    first, last = (0.5 + (middle + by * across) / step for by in (-0.5, 0.5))
    by_levels = moment_of_positive(first, last) - moment_of_positive(first - 1, last - 1)
    # Open from s_0 to the end: the mean of s is (1 - s_0^2) / 4, with s_0 linear along the other axis.
    step = jnp.where(steep, 1.0, across)
    ends = [-(2 * middle + by * along) / step for by in (-1, 1)]
    whole = jnp.abs(ends[1] - ends[0])
    ends = [jnp.clip(end, -1.0, 1.0) for end in ends]
    within = jnp.where(whole > 0, jnp.abs(ends[1] - ends[0]) * inverse(whole), 1.0)
    a, b, c = ((1 - s * s) / 4 for s in (ends[0], 0.5 * (ends[0] + ends[1]), ends[1]))
    by_ends = jnp.sign(across) * within * (a + 4 * b + c) / 6
    cuts = jnp.abs(middle) < 0.5 * (jnp.abs(across) + jnp.abs(along))
    return jnp.where(cuts, jnp.where(steep, by_levels, by_ends), 0.0)
