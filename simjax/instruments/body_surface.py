"""An instrument that reads what a flow is along the surface of bodies in it."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx

from simjax.errors import ConfigurationError
from simjax.instruments.operators import Instrumental, Places, as_places, require_inside
from simjax.instruments.places import require_cartesian


class SurfacePoints(NamedTuple):
    """Points on the surface of bodies: the first one on the way from each of `origins` (points, axes).

    directions: of the ways, unit vectors (points, axes); None: along the gradient of the distance from bodies, so that
    the surface is reached at the point nearest to the origin.
    """

    origins: Places
    directions: Places | None = None


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
    if len(origin) != 2 or count < 1:
        raise ConfigurationError(
            f"rays_around({list(origin)}, {count}): expected the two coordinates of a point in a plane and at least "
            "one ray; in space write nearest_points(places)."
        )
    angles = [2 * math.pi * number / count for number in range(count)]
    return SurfacePoints((origin,) * count, tuple((math.cos(angle), math.sin(angle)) for angle in angles))


class BodySurface(Instrumental):
    """A reading of a model by name along the surface of its bodies: (points,).

    variable: of `CompiledRun.view`'s `surface`: position_x, pressure, shear_stress_x, ...
    """

    variable: str = eqx.field(static=True)
    points: SurfacePoints = eqx.field(static=True)

    def read(self, view):
        found: Mapping = view.surface(self.points)
        return found[self.variable]

    def check(self, grid):
        require_cartesian("An instrument along bodies", grid)
        require_inside("body_surface", self.variable, self.points.origins, grid)

    def shape(self, grid):
        return (len(self.points.origins),)
