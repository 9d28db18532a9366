"""Surroundings of instruments: the box of a run, its sides and cells, and the kinds of keys that depend on these."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Choice, Kind, ListOf, Plain, Real
from simjax.schema.model_schema import ModelSchema

MOST_POINTS = 100_000


@dataclass(frozen=True)
class Site:
    """The surroundings of an instrument in a configuration; None for a section that is wrong, which is told already.

    axes: names of those of the run. lower, upper: corners of the grid's or the particles' box. shape: cells of the
    grid. periodic: by axis. stretched: axes whose cells are not of one width. counts: components of free fields.
    sections: all sections as they are written.
    """

    schema: ModelSchema
    axes: tuple[str, ...]
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None
    shape: tuple[int, ...] | None = None
    periodic: tuple[bool, ...] | None = None
    stretched: tuple[str, ...] = ()
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sections: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def written(self) -> dict[str, tuple[str, ...]]:
        """Names that `of` takes, each with its variables."""
        return self.schema.written(self.ndim, self.counts)

    def is_periodic(self, axis: str) -> bool:
        """Tell whether an axis is periodic, or its sides are not known."""
        return self.periodic is None or self.periodic[self.axes.index(axis)]

    def outside(self, point: Sequence[float]) -> str:
        """A sentence on the place expected for a point outside of the box; "" inside, and without a known box."""
        if self.lower is None or self.upper is None:
            return ""
        box = list(zip(self.axes, self.lower, self.upper, strict=True))
        if all(a <= number <= b for number, (_, a, b) in zip(point, box, strict=True)):
            return ""
        return "a point in the grid's box, " + ", ".join(f"{a:g} <= {axis} <= {b:g}" for axis, a, b in box)


class Refusal(NamedTuple):
    """Why an instrument cannot be as it is written: what is expected at a key, in place of a `value` that is given.

    key: of those of the kind; "" for the kind itself, "of" for the names.
    """

    key: str
    expected: str
    value: Any = None
    hint: str = ""


def vectors_refusals(of: Sequence[str], site: Site) -> Iterator[Refusal]:
    """Refuse names of several variables that are no vector with a component for each axis."""
    for name in of:
        parts = site.written.get(name, (name,))
        if len(parts) > 1 and parts != tuple(f"{name}_{axis}" for axis in site.axes):
            yield Refusal("of", f"a scalar or a vector; write one of {', '.join(parts)}", name)


class OfSite(Plain):
    """A kind of value that depends on the site of the run."""

    def within(self: Any, site: Site) -> Kind:
        """The kind of value at a site."""
        return dataclasses.replace(self, site=site)


@dataclass(frozen=True)
class PerAxis(OfSite):
    """A list of one value for each axis of the run.

    Examples:
        >>> sj.PerAxis(sj.Integer(1), "numbers of cells").allowed
        'a list of 1 to 3 numbers of cells, one per axis, each a whole number >= 1'
    """

    element: Kind
    noun: str = "numbers"
    site: Site | None = None

    @property
    def _values(self) -> ListOf:
        least, most = (1, 3) if self.site is None else (self.site.ndim,) * 2
        return ListOf(self.element, least, most, noun=f"{self.noun}, one per axis")

    @property
    def allowed(self) -> str:
        return self._values.allowed

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple | None:
        return self._values.read(path, value, problems)


@dataclass(frozen=True)
class Point(OfSite):
    """The coordinates of a point in the box of the run.

    Examples:
        >>> sj.Point().allowed
        'the coordinates of a point in the box'
    """

    site: Site | None = None

    @property
    def _numbers(self) -> ListOf:
        number, site = Real(formula=True), self.site
        if site is None:
            return ListOf(number, 1, 3, noun="numbers")
        return ListOf(number, site.ndim, site.ndim, noun=f"numbers, one per axis {' '.join(site.axes)}")

    @property
    def allowed(self) -> str:
        return "the coordinates of a point in the box" if self.site is None else self._numbers.allowed

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple[float, ...] | None:
        point = self._numbers.read(path, value, problems)
        if point is None or self.site is None:
            return point
        if expected := self.site.outside(point):
            problems.add(path, list(point), expected)
            return None
        return point


@dataclass(frozen=True)
class Points(OfSite):
    """A list of points in the box of the run.

    Examples:
        >>> sj.Points().allowed
        'a list of 1 to 100000 points, each the coordinates of a point in the box'
    """

    site: Site | None = None

    @property
    def _points(self) -> ListOf:
        return ListOf(Point(self.site), 1, MOST_POINTS, noun="points")

    @property
    def allowed(self) -> str:
        return self._points.allowed

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple | None:
        return self._points.read(path, value, problems)


@dataclass(frozen=True)
class PlaceAlong(OfSite):
    """A place along an axis of the run, within its box."""

    axis: str
    site: Site | None = None

    @property
    def allowed(self) -> str:
        return Real(formula=True).allowed

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | None:
        place, site = Real(formula=True).read(path, value, problems), self.site
        if place is None or site is None or site.lower is None or site.upper is None:
            return place
        number = site.axes.index(self.axis)
        a, b = site.lower[number], site.upper[number]
        if not a <= place <= b:
            problems.add(path, place, f"a place in the grid's box, {a:g} <= {self.axis} <= {b:g}")
            return None
        return place


@dataclass(frozen=True)
class AxisName(OfSite):
    """The name of an axis of the run; `even`: of a periodic one with cells of one width.

    Examples:
        >>> sj.AxisName(even=True).allowed
        'the name of a periodic axis with cells of one width'
    """

    even: bool = False
    site: Site | None = None

    @property
    def allowed(self) -> str:
        if self.site is not None:
            return Choice(self.site.axes).allowed
        return "the name of a periodic axis with cells of one width" if self.even else "the name of an axis"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> str | None:
        site = self.site
        axis = Choice(("x", "y", "z") if site is None else site.axes).read(path, value, problems)
        if axis is None or site is None or not self.even:
            return axis
        if not site.is_periodic(axis):
            problems.add(path, axis, "a periodic axis", "look across walls with line or slice")
            return None
        if axis in site.stretched:
            found = f"expected cells of one width, the grid is stretched along {', '.join(site.stretched)}"
            problems.say(path, f"{path}: {found}; look along it with line or histogram")
            return None
        return axis


def bound(kind: Kind, site: Site) -> Kind:
    """A kind of a key as it is at a site."""
    return kind.within(site) if isinstance(kind, OfSite) else kind
