"""An instrument that reads what a flow is along the surface of bodies in it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from simjax.arguments import require_count
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.instrument import Coordinate, Instrument, Layout, Places
from simjax.instruments.operators import as_places, require_inside
from simjax.instruments.places import require_cartesian
from simjax.instruments.points import STATION, station_numbers
from simjax.instruments.surface_of_formulas import require_surface
from simjax.notebook import numbers_in_a_line
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Integer
from simjax.schema.site import MOST_POINTS, Point, Points
from simjax.schema.units import product_of_units

ANGLE = "angle"
VECTORS = ("position", "normal", "shear_stress")
"""Readings that have a component for each axis."""


class SurfacePoints(NamedTuple):
    """Points on the surface of bodies: the first one on the way from each of `origins` (points, axes).

    directions: of the ways, unit vectors (points, axes); None: along the gradient of the distance from bodies, so that
    the surface is reached at the point nearest to the origin.
    """

    origins: Places
    directions: Places | None = None

    def __repr__(self) -> str:
        return numbers_in_a_line("SurfacePoints", self._asdict())


def nearest_points(places) -> SurfacePoints:
    """The points of the surface that are nearest to `places` (points, axes).

    Examples:
        >>> sj.nearest_points([[0.3, 0.5], [0.5, 0.3]]).directions is None
        True
    """
    return SurfacePoints(as_places("nearest_points.places", places))


def rays_around(point: Sequence[float], count: int) -> SurfacePoints:
    """The points of the surface on `count` rays from a point of a plane, at equal angles from that along x.

    Examples:
        >>> sj.rays_around((0.5, 0.5), 4).directions[0]
        (1.0, 0.0)
    """
    (origin,) = as_places("rays_around.point", [point])
    require_count("rays_around: count", count)
    if len(origin) != 2:
        raise ConfigurationError(
            f"rays_around({list(origin)}, {count}): expected the two coordinates of a point in a plane; in space write "
            "nearest_points(places)."
        )
    angles = [2 * math.pi * number / count for number in range(count)]
    return SurfacePoints((origin,) * count, tuple((math.cos(angle), math.sin(angle)) for angle in angles))


@instrument("body_surface")
class BodySurface(Instrument):
    """A reading of a model by name along the surface of its bodies: (points,).

    variable: of a view's `surface`: position_x, pressure, shear_stress_x, ...
    """

    variable: str = eqx.field(static=True)
    points: SurfacePoints = eqx.field(static=True)

    noun = "names"
    at_given_places, of_fields = True, False

    def read(self, view):
        found: Mapping = view.surface(self.points)
        return found[self.variable]

    def check(self, grid):
        require_cartesian("An instrument along bodies", grid)
        require_inside("body_surface", self.variable, self.points.origins, grid)

    def shape(self, grid):
        return (len(self.points.origins),)

    def layout(self, source, output, grid, units):
        count = len(self.points.origins)
        if "around" not in source.given:
            return Layout((STATION,), station_numbers(count))
        about = {"long_name": "angle of the ray, counterclockwise from x", "units": "radian"}
        angles = Coordinate(ANGLE, (ANGLE,), 2 * np.pi * np.arange(count) / count, about)
        return Layout((ANGLE,), (angles,), {"around": source.given["around"]})

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def unavailable(cls, site):
        if not site.schema.along_bodies:
            instead = "write probe, line or slice"
            return f"model {site.schema.name} has no bodies whose surface could be read; {instead}"
        bodies = next(field.name for field in site.schema.coefficients if field.distance)
        if bodies in (site.sections["coefficients"] or {}):
            return ""
        ball = f"{{ball: {{center: {[0.5] * site.ndim}, radius: 0.1}}}}"
        found = f"expected bodies, whose surface is read; write coefficients.{bodies}, such as {ball}"
        return f"{found}, or leave this out"

    @classmethod
    def names(cls, site):
        return site.schema.along_bodies

    @classmethod
    def default_names(cls, site):
        return site.schema.along_bodies

    @classmethod
    def keys_for(cls, given, site):
        if site.ndim == 2 and given.keys() == {"around", "points"}:
            return {"around": Point(site), "points": Integer(1, MOST_POINTS)}
        if given.keys() == {"points"}:
            return {"points": Points(site)}
        wanted = "{points: [[...], ...]}, places of which each is taken to the nearest point of the surface"
        if site.ndim == 2:
            wanted = f"{{around: [x, y], points: 64}}, rays at equal angles from a point, or {wanted}"
        return wanted

    @classmethod
    def readings(cls, source, written):
        given = source.given
        axes = AXES[: len(given["around"] if "around" in given else given["points"][0])]
        parts = ([f"{n}_{axis}" for axis in axes] if n in VECTORS else [n] for n in ("position", *source.of))
        return {variable: () for part in parts for variable in part}

    @classmethod
    def made(cls, source, run):
        given = source.given
        points = rays_around(given["around"], given["points"]) if "around" in given else nearest_points(given["points"])
        require_surface(source.name, points, run.config)
        units = run.config.schema.length_units
        return {name: (cls(name, points), _described(name, run.model, units)) for name in cls.readings(source, {})}


def _described(name: str, model: Any, length_units: str) -> Output:
    """The description of a reading along bodies: that of the model, or of the variable or the flux that it is."""
    root, _, axis = name.rpartition("_")
    known, own = {output.name: output for output in model.outputs()}, model.readings_along_bodies()
    units, about = {
        "position": (length_units, f"{axis} of the point on the surface"),
        "normal": ("1", f"{axis}-component of the normal into the fluid"),
        "shear_stress": ("m2 s-2", f"{axis}-component of the friction on the body, per area and density"),
    }.get(root, ("1", name))
    if name in own:
        units, about = own[name]
    elif root in own:
        units, about = own[root][0], f"{axis}-component of the {own[root][1]}"
    elif name in known:
        units, about = known[name].units, f"{known[name].long_name or name} at the surface"
    elif axis == "flux":
        units, about = product_of_units(known[root].units, "m s-1"), f"flux of {root} from the body into the fluid"
    return Output(name, (), units, about)
