"""Sound and light in cylindrical coordinates (r, z): what they take there, and the curls of fields around the axis.

In (r, z, phi), a left-handed order, curls are those of (x, y, z) with the opposite sign, but for the component along z:
(curl F)_z = 1/r d(r F_phi)/dr. On the axis that is the circulation around half a cell's width over the area inside.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.models.axisymmetric_grid import ASKED, RINGS, Across, lower_radii, radii
from simjax.models.waves.pml import OpenFace
from simjax.models.waves.shot_setup import single_sources
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing
from simjax.schema.exclusions import Exclusion, Exclusions, Feature

ENDS = ("lower", "upper")
AXIAL, AROUND = 1, 2
"""Numbers of the components along the axis and around it."""

EXCLUSIONS = Exclusions(
    {
        "rings": RINGS,
        "fourth_order": Feature("waves of fourth order (`physics.order`)", instead="write 2"),
        "sources_along_r": Feature("sources of light along x (`physics.along`)", instead="write y"),
    },
    (
        Exclusion("fourth_order", "rings", "on which alone its differences are known"),
        Exclusion("sources_along_r", "rings", "as currents on an axis flow along it"),
    ),
)
ALONG_AXIS = {"rings": ASKED, "sources_along_r": "physics.along = x"}


def refusals(across: Across | None, order: int, wall: str) -> Iterator[tuple[str, str]]:
    """Sentences on what waves do not take, each with its key path; wall: the kind of side that reflects."""
    if across is None:
        return
    for end, kind in zip(ENDS, across.kinds, strict=True):
        if kind != wall:
            path = f"boundaries.x.{end}"
            yield path, f"{path} = {kind}: expected {wall} on an axisymmetric grid, at the axis and at sides across r"
    asked = {"fourth_order": f"physics.order = {order}"} if order > 2 else {}
    yield from EXCLUSIONS.refusals({"rings": ASKED, **asked})


def source_refusals(config: Any, rings: bool) -> Iterator[tuple[str, str]]:
    """Sentences on sources where none can be on an axisymmetric grid, each with its key path.

    rings: whether sources are currents around the axis, which have radii, and not points on it.
    """
    for number, source in enumerate(single_sources(config.physics)):
        radius = source.position[RADIAL]
        path = f"physics.sources[{number}].position[{RADIAL}]"
        if rings and radius <= 0:
            yield path, f"{path} = {radius:g}: expected a radius above 0, as sources are rings around the axis"
        elif not rings and radius != 0:
            yield path, f"{path} = {radius:g}: expected 0 on an axisymmetric grid, as points lie on the axis"


def misplaced(sources: Array, rings: bool) -> dict[str, Array]:
    """Tell whether a source is where none can be, by what is wrong; see `source_refusals`."""
    radius = sources[:, RADIAL]
    return {"a ring on the axis": jnp.any(radius <= 0)} if rings else {"a source off the axis": jnp.any(radius != 0)}


# ------------------------------------------------------------------ light


def on_axis(component: int, offset: float) -> Boundary:
    """Mirror images beyond the axis: even of a component along it, which has a value of its own there; else odd."""
    if component != AXIAL:
        return Dirichlet(0.0)
    return OpenFace() if offset == FACE else Neumann(0.0)


def with_radii(domain: Domain, field: Array, layout: FieldLayout) -> Array:
    """A field times its distance from the axis."""
    on_faces = layout.offset[RADIAL] == FACE
    return field * (lower_radii(domain, field.dtype) if on_faces else radii(domain, layout, field.dtype))


def per_radius(domain: Domain, slope: Array, layout: FieldLayout) -> Array:
    """d(r F)/dr over r: at centres where F with this layout is on faces, and the other way round.

    On the axis r F and its image differ by 2 r F across a whole cell, of which a quarter as the radius makes the
    circulation over the area.
    """
    if layout.offset[RADIAL] == FACE:
        return slope / radii(domain, layout, slope.dtype)
    return slope / _radii_of_faces(domain, layout, slope.dtype, 1 / 4)


def lengths(domain: Domain, layout: FieldLayout, dtype) -> Array:
    """Volumes around values of a field over their areas, 2 pi r; around the axis there is half of a cell."""
    if layout.offset[RADIAL] != FACE:
        return 2 * math.pi * radii(domain, layout, dtype)
    return 2 * math.pi * _radii_of_faces(domain, layout, dtype, 1 / 8)


def _radii_of_faces(domain: Domain, layout: FieldLayout, dtype, share: float) -> Array:
    """Radii of lower faces, and of the one on the axis a share of its cell's width."""
    radius, width = lower_radii(domain, dtype), domain.spacing(layout, 0, dtype)[RADIAL]
    return jnp.where(radius > 0, radius, share * width)


def stiffest_square(domain: Domain, layout: FieldLayout, axial: bool, dtype) -> float | Array:
    """Bound on the square of the largest wavenumber of light; axial: whether E has a component on the axis.

    Gershgorin's theorem. Rows of rings are those of a Cartesian grid, 4 / h^2 along each axis with the least widths,
    but two: those of E_z on the axis, 8 / h^2 along r, and on the next face. Scaled by three, a value on the axis has
    16 / 3 / h^2, and the next one no more.
    """
    at_axis = axial and domain.grid.lower[RADIAL] == 0

    def least(width: Spacing) -> float | Array:
        return domain.min(width) if isinstance(width, Array) else width

    across, along = (1 / least(width) ** 2 for width in domain.spacing(layout, 0, dtype))
    return (16 / 3 if at_axis else 4) * across + 4 * along
