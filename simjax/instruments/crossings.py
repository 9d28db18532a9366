"""Planes of faces through which quantities pass: sides of the grid, planes inside it, the faces of a box."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane
from simjax.errors import ConfigurationError
from simjax.grid import AXES, FACE, LOWER, UPPER, Grid
from simjax.instruments.sampling import shares
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Choice, ListOf
from simjax.schema.site import OfSite, PlaceAlong, Point, Site

ENDS = ("lower", "upper")
ON_A_FACE = 1e-6
"""Share of a cell's width by which a place may miss a face."""


class Crossing(NamedTuple):
    """Faces in a plane through which a flux is read.

    sign: 1 where it counts towards larger coordinates, -1 towards smaller ones. part: lower and upper ends along each
    axis, that of the plane unused; None: all of the plane.
    """

    plane: FacePlane
    sign: int
    part: tuple[tuple[float, float], ...] | None = None

    def share(self, domain: Domain, offset: tuple[float, ...], periodic: tuple[bool, ...], dtype) -> Array | float:
        """The share of each face's area that lies in the part, for a flux at this offset in its cells."""
        found: Array | float = 1.0
        if self.part is None:
            return found
        grid = domain.grid
        for k, (low, high) in enumerate(self.part):
            if k == self.plane.axis:
                continue
            ends = ((low, high), (grid.lower[k], grid.upper[k]))
            inside, whole = (
                (b - a) * shares(domain, k, np.asarray([a]), np.asarray([b]), offset[k], periodic[k], dtype)[0]
                for a, b in ends
            )
            found = found * (inside / whole).reshape([-1 if axis == k else 1 for axis in range(grid.ndim)])
        return found


@dataclass(frozen=True)
class Through(OfSite):
    """A side, such as y_lower; the plane across an axis, {y: 0.5}; or the faces of a box, {lower, upper}."""

    box: bool = True
    inside: bool = True
    site: Site | None = None

    @property
    def allowed(self) -> str:
        found = "a side, such as y_lower"
        found += ", or the plane across an axis, such as {y: 0.5}" * self.inside
        return found + ", or a box, {lower: [...], upper: [...]}" * self.box

    def read(self, path: str, value: Any, problems: ConfigErrors) -> str | dict[str, Any] | None:
        site = self.site
        assert site is not None
        if isinstance(value, str):
            return self._side(path, value, site, problems)
        if not self.inside or not isinstance(value, Mapping):
            problems.add(path, dict(value) if isinstance(value, Mapping) else value, self.allowed)
            return None
        if len(value) == 1 and value.keys() <= {*site.axes}:
            ((axis, place),) = value.items()
            place = PlaceAlong(axis, site).read(f"{path}.{axis}", place, problems)
            return None if place is None else {axis: place}
        if not self.box or value.keys() != {*ENDS}:
            problems.add(path, dict(value), self.allowed)
            return None
        lower, upper = (Point(site).read(f"{path}.{end}", value[end], problems) for end in ENDS)
        if lower is None or upper is None:
            return None
        if not all(a < b for a, b in zip(lower, upper, strict=True)):
            problems.add(f"{path}.upper", value["upper"], f"a point above lower={value['lower']} on each axis")
            return None
        return {"lower": list(lower), "upper": list(upper)}

    def _side(self, path: str, value: str, site: Site, problems: ConfigErrors) -> str | None:
        sides = [f"{axis}_{end}" for axis in site.axes for end in ENDS]
        if value in sides and site.is_periodic(value[0]):
            instead = f"; write {{{value[0]}: PLACE}}" if self.inside else ""
            problems.say(path, f"{path}: expected a side, and {value[0]} is periodic and has none{instead}")
            return None
        return Choice(sides).read(path, value, problems)


@dataclass(frozen=True)
class Part(OfSite):
    """A part of a plane: two ends along some of its axes, such as {x: [0.2, 0.5]}."""

    site: Site | None = None

    @property
    def allowed(self) -> str:
        return "two ends along axes of the plane, such as {x: [0.2, 0.5]}"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> dict[str, list[float]] | None:
        site = self.site
        assert site is not None
        if not isinstance(value, Mapping) or not value or not value.keys() <= {*site.axes}:
            problems.add(path, dict(value) if isinstance(value, Mapping) else value, self.allowed)
            return None
        found = {}
        for axis, ends in value.items():
            ends = ListOf(PlaceAlong(axis, site), 2, 2, noun="places").read(f"{path}.{axis}", ends, problems)
            if ends is None:
                return None
            if not ends[0] < ends[1]:
                problems.add(f"{path}.{axis}", list(ends), "two ends, the lower one first")
                return None
            found[axis] = list(ends)
        return found


def crossings(name: str, grid: Grid, through: Any, part: Mapping[str, Any] | None = None) -> tuple[Crossing, ...]:
    """The faces that a configuration names: into the grid through a side, along the axis of a plane, out of a box.

    Raises:
        ConfigurationError: a place lies on no faces of cells.
    """
    ends = None if part is None else _part_of(grid, part)
    if isinstance(through, str):
        axis, end = AXES.index(through[0]), ENDS.index(through[2:])
        number = grid.shape[axis] if end == UPPER else 0
        return (Crossing(FacePlane(axis, number), 1 if end == LOWER else -1, ends),)
    if through.keys() != {*ENDS}:
        ((axis, place),) = through.items()
        return (Crossing(FacePlane(AXES.index(axis), _number(name, grid, AXES.index(axis), place)), 1, ends),)
    box = tuple(zip(through["lower"], through["upper"], strict=True))
    outward = ((LOWER, -1), (UPPER, 1))
    planes = ((axis, sign, _number(name, grid, axis, box[axis][n])) for axis in range(grid.ndim) for n, sign in outward)
    return tuple(Crossing(FacePlane(axis, number), sign, box) for axis, sign, number in planes)


def _part_of(grid: Grid, part: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """The ends of a part of a plane along each axis; all of those that are not named."""
    whole = zip(AXES, grid.lower, grid.upper, strict=False)
    return tuple((float(a), float(b)) for a, b in (part.get(axis, (low, high)) for axis, low, high in whole))


def _number(name: str, grid: Grid, axis: int, place: float) -> int:
    """The number of the faces at a place along an axis."""
    faces = np.append(grid.coordinates(axis, FACE), grid.upper[axis])
    number = int(np.argmin(np.abs(faces - place)))
    beside = min(max(number - 1, 0), grid.shape[axis] - 1)
    if abs(faces[number] - place) > ON_A_FACE * (faces[beside + 1] - faces[beside]):
        around = sorted(faces[np.argsort(np.abs(faces - place))[:2]])
        raise ConfigurationError(
            f"{name}: expected a place on faces of cells, through which the scheme's fluxes pass, and got "
            f"{AXES[axis]}={place:g}; write {around[0]:.10g} or {around[1]:.10g}."
        )
    return number
