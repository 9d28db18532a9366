"""Incompressible flow in cylindrical coordinates (r, z) without swirl: what it takes there, volumes of its cells."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax import Array

from simjax.core.boundary import FieldLayout, Outflow, Side
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import LOWER
from simjax.models.axisymmetric_grid import kind_across, lower_radii, mean_length, radii, side_refusals, widest
from simjax.models.flow.sides.openings import OpenSide
from simjax.models.scalar.axisymmetric_scalar import scheme_refusals
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing, lower_faces, relative, without_ends

CARTESIAN = {
    "coefficients.solid": "bodies",
    "coefficients.eddy_viscosity": "an eddy viscosity",
    "physics.turbulence": "turbulence models",
    "physics.rotation": "a frame that turns",
}
"""Features of a flow that need a Cartesian grid, by the key that asks for each."""

ALONG_AXIS = "physics.gravity: expected 0 along r on an axisymmetric grid; write [0, g]"


def refusals(lower: str, at_axis: bool, opened: Sequence[bool], asked: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Sentences on what a flow does not take on an axisymmetric grid, each with its key path.

    Args:
        lower: the kind of the lower side across r. at_axis: whether r begins at zero.
        opened: which sides across r, lower and upper, are an outflow or open.
        asked: which keys of `CARTESIAN` are in use.
    """
    yield from side_refusals(lower, at_axis)
    for end, found in zip(("lower", "upper"), opened, strict=True):
        if found and not (at_axis and end == "lower"):
            path = f"boundaries.x.{end}"
            yield (
                path,
                f"{path}: expected a wall or an inflow on an axisymmetric grid, where flows are open along z only",
            )
    yield from _unknown(asked)


def _unknown(asked: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    for path in (path for path, found in asked.items() if found):
        yield path, f"{path}: {CARTESIAN[path]} expected a Cartesian grid, and this one is axisymmetric; leave it out"


def check_configuration(config: Any) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration."""
    if not config.grid.axisymmetric:
        return
    across, keys = config.boundaries[RADIAL], config.physics
    asked = {
        "coefficients.solid": "solid" in config.coefficients,
        "coefficients.eddy_viscosity": "eddy_viscosity" in config.coefficients,
        "physics.turbulence": keys.turbulence != "none",
        "physics.rotation": keys.rotation is not None,
    }
    opened = [side.kind in ("outflow", "open") for side in (across.lower, across.upper)]
    yield from refusals(across.lower.kind, config.grid.lower[RADIAL] == 0, opened, asked)


def check(domain: Domain, sides: Sequence[tuple[Side, Side]], solid: object, turbulence: str) -> None:
    """Refuse what a flow does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: see `refusals`.
    """
    if domain.grid.axisymmetric:
        opened = [isinstance(side, Outflow | OpenSide) for side in sides[RADIAL]]
        asked = {"coefficients.solid": solid is not None, "physics.turbulence": turbulence != "none"}
        _refuse(refusals(kind_across(sides), domain.grid.lower[RADIAL] == 0, opened, asked))


def scalar_refusals(scheme: str, given: bool) -> Iterator[tuple[str, str]]:
    """Sentences on what a carried scalar does not take, each with its key path; given: whether it is on the axis."""
    yield from scheme_refusals(scheme)
    if given:
        path = "boundaries.x.lower"
        yield (
            path,
            f"{path}: expected slip alone, as r begins at the axis, where a scalar has no value or slope to give",
        )


def check_scalar_configuration(config: Any) -> Iterator[tuple[str, str]]:
    """The `scalar_refusals` of a configuration."""
    if config.grid.axisymmetric:
        given = config.grid.lower[RADIAL] == 0 and bool(config.boundaries[RADIAL].lower.fields)
        yield from scalar_refusals(config.physics.scheme, given)


def check_scalar(domain: Domain, sides: Sequence[tuple[Side, Side]], scheme: str) -> None:
    """Refuse what a carried scalar does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: see `scalar_refusals`.
    """
    if domain.grid.axisymmetric:
        wall = sides[RADIAL][LOWER]
        held = any(getattr(wall, name, None) is not None for name in ("scalar", "scalars"))
        given = domain.grid.lower[RADIAL] == 0 and held
        _refuse(scalar_refusals(scheme, given))


def check_params(domain: Domain, params: Any) -> None:
    """Refuse parameters of what a flow does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: there is an eddy viscosity or a rotation.
    """
    if domain.grid.axisymmetric:
        given = {"coefficients.eddy_viscosity": params.eddy_viscosity, "physics.rotation": params.rotation}
        _refuse(_unknown({path: value is not None for path, value in given.items()}))


def _refuse(sentences: Iterator[tuple[str, str]]) -> None:
    for _, sentence in sentences:
        raise ConfigurationError(f"{sentence}.")


# ------------------------------------------------------------------ volumes


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
