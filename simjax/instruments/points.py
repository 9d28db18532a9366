"""Instruments that read values at points, listed or along a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simjax.grid import AXES
from simjax.instruments.instrument import Coordinate, Layout, Places
from simjax.instruments.operators import PointSensors
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Integer, key
from simjax.schema.site import MOST_POINTS, Point, Points, Refusal

STATION, DISTANCE = "station", "distance"


@instrument("probe")
class Probe(PointSensors):
    """Values of fields at points; see `PointSensors`."""

    @dataclass(frozen=True)
    class Keys:
        """The points."""

        points: tuple[tuple[float, ...], ...] = key(Points(), units="m", about="points, a list of coordinates each")

    at_given_places = True

    @classmethod
    def made(cls, source, run):
        return {one.name: (cls(one.name, source.given["points"]), one) for one in cls.seen(source, run)}

    def layout(self, source, output, grid, units):
        points = np.asarray(source.given["points"])
        return Layout((STATION,), (*station_numbers(len(points)), *_places(points, STATION, units)))


@instrument("line")
class Line(PointSensors):
    """Values of fields at evenly spaced points of a line from end to end; see `PointSensors`."""

    at_given_places = True

    @classmethod
    def keys_for(cls, given, site):
        return {"from": Point(site), "to": Point(site), "points": Integer(2, MOST_POINTS)}

    @classmethod
    def refusals(cls, of, given, site):
        if given["from"] == given["to"]:
            yield Refusal("to", "another point than that of from", list(given["to"]))

    @classmethod
    def made(cls, source, run):
        points = line_points(source.given)
        return {one.name: (cls(one.name, points), one) for one in cls.seen(source, run)}

    def layout(self, source, output, grid, units):
        points = np.asarray(self.positions)
        length = np.linalg.norm(points - points[0], axis=1)
        about = {"long_name": "distance from the first point", "units": units}
        along = Coordinate(DISTANCE, (DISTANCE,), length, about)
        return Layout((DISTANCE,), (along, *_places(points, DISTANCE, units)))


def line_points(given: Mapping[str, Any]) -> Places:
    """Evenly spaced points of a line from end to end."""
    ends, count = list(zip(given["from"], given["to"], strict=True)), given["points"]
    inner = (tuple(a + number * ((b - a) / (count - 1)) for a, b in ends) for number in range(count - 1))
    return (*inner, tuple(given["to"]))


def station_numbers(count: int) -> tuple[Coordinate, ...]:
    """Numbers of points, the stations of a discrete sampling geometry of CF."""
    about: Mapping[str, Any] = {"cf_role": "timeseries_id", "long_name": "number of the point", "units": "1"}
    return (Coordinate(STATION, (STATION,), np.arange(count, dtype="i4"), about),)


def _places(points: np.ndarray, dim: str, units: str) -> list[Coordinate]:
    about = [{"units": units, "long_name": f"{axis} of the point"} for axis in AXES]
    return [Coordinate(AXES[k], (dim,), points[:, k], about[k]) for k in range(points.shape[1])]
