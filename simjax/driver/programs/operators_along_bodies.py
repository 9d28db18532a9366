"""Operators of the instrument that reads along the surface of bodies."""

from __future__ import annotations

import numpy as np

from simjax.core.model import Output
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.body_surface import BodySurface, SurfacePoints, nearest_points, rays_around
from simjax.instruments.operators import Instrumental
from simjax.models.measures import product_of_units
from simjax.schema.config import Config
from simjax.schema.instruments import InstrumentConfig
from simjax.schema.numbers import named_numbers

SLOPE = 1e-6
"""The least slope of a distance, whose slope is about one, that says where the surface is."""


def along_bodies(
    source: InstrumentConfig, programs: CompiledFields
) -> tuple[dict[str, Instrumental], dict[str, Output]]:
    """The operator of each reading, and how it is described."""
    points, schema = points_of(source), programs.config.schema
    _require_surface(source, points, programs.config)
    known = {output.name: output for output in programs.model.outputs()}
    operators: dict[str, Instrumental] = {}
    outputs: dict[str, Output] = {}
    for name in source.readings({}):
        root, _, axis = name.rpartition("_")
        units, about = {
            "position": (schema.length_units, f"{axis} of the point on the surface"),
            "normal": ("1", f"{axis}-component of the normal into the fluid"),
            "shear_stress": ("m2 s-2", f"{axis}-component of the friction on the body, per area and density"),
        }.get(root, ("1", name))
        own = programs.model.readings_along_bodies()
        if name in own:
            units, about = own[name]
        elif root in own:
            units, about = own[root][0], f"{axis}-component of the {own[root][1]}"
        elif name in known:
            units, about = known[name].units, f"{known[name].long_name or name} at the surface"
        elif axis == "flux":
            units, about = product_of_units(known[root].units, "m s-1"), f"flux of {root} from the body into the fluid"
        operators[name], outputs[name] = BodySurface(name, points), Output(name, (), units, about)
    return operators, outputs


def points_of(source: InstrumentConfig) -> SurfacePoints:
    """The points of an instrument."""
    given = source.given
    return rays_around(given["around"], given["points"]) if "around" in given else nearest_points(given["points"])


def _require_surface(source: InstrumentConfig, points: SurfacePoints, config: Config) -> None:
    """Refuse ways on which the bodies of a formula have no surface at the start; of those in files there is NaN.

    Raises:
        ConfigurationError: there is one.
    """
    field = next(field for field in config.schema.coefficients if field.distance)
    given, numbers = config.coefficients[field.name], {**named_numbers(config), "t": 0.0}
    if not isinstance(given, tuple) or not given[0].names <= {*numbers, *AXES}:
        return

    def distance(x: np.ndarray) -> np.ndarray:
        places = dict(zip(AXES, np.moveaxis(x, -1, 0), strict=False))
        with np.errstate(all="ignore"):
            return np.broadcast_to(given[0]({**numbers, **places}), x.shape[:-1])

    grid = config.grid
    assert grid is not None  # of a model of fields
    lower, upper, origin = np.asarray(grid.lower), np.asarray(grid.upper), np.asarray(points.origins)
    h = (upper - lower) / np.asarray(grid.shape)
    if points.directions is None:
        slopes = [distance(origin + e) - distance(origin - e) for e in 0.5 * np.diag(h)]
        towards = np.where(distance(origin) > 0, -1, 1)[:, None] * np.stack(slopes, -1) / h
        size = np.linalg.norm(towards, axis=1, keepdims=True)
        towards = np.where(size > SLOPE, towards / np.maximum(size, SLOPE), 0.0)
    else:
        towards = np.asarray(points.directions)
    step = towards / np.maximum(np.max(np.abs(towards) / h, 1, keepdims=True), 1 / np.linalg.norm(upper - lower))
    places = origin[:, None] + np.arange(max(grid.shape) + 1)[:, None] * step[:, None]
    wraps = np.asarray([walls.periodic for walls in config.boundaries])
    within = (((places >= lower) & (places <= upper)) | wraps).all(-1)
    fluid = distance(np.where(wraps, lower + np.mod(places - lower, upper - lower), places)) > 0
    missed = np.flatnonzero(~((fluid[:, 1:] != fluid[:, :-1]) & within[:, 1:]).any(1))
    if len(missed):
        place = [round(float(x), 6) for x in origin[missed[0]]]
        way = (
            "the gradient of the distance"
            if points.directions is None
            else f"a ray at {360 * missed[0] / len(origin):g} degrees"
        )
        raise ConfigurationError(
            f"outputs: {source.name} finds no surface from {place} along {way} ({len(missed)} of {len(origin)} points)"
            ": expected a place in the body, or beside its surface; write another one."
        )
