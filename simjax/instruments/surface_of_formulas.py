"""A check that bodies of formulas have a surface where an instrument looks for it."""

from typing import Any

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.schema.numbers import named_numbers

SLOPE = 1e-6
"""The least slope of a distance, whose slope is about one, that says where the surface is."""


def require_surface(name: str, points: Any, config: Any) -> None:
    """Refuse ways on which the bodies of a formula have no surface at the start; of those in files there is NaN.

    name: of the instrument. points: its `SurfacePoints`. config: the `Config` of the run.

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
            f"outputs: {name} finds no surface from {place} along {way} ({len(missed)} of {len(origin)} points)"
            ": expected a place in the body, or beside its surface; write another one."
        )
