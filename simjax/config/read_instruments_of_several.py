"""Keys of the instruments that read several variables at once, at pairs of points and over surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.config.observations import check_inside, read_along
from simjax.config.sections import Context
from simjax.schema.config import GridConfig
from simjax.schema.config_errors import join
from simjax.schema.kinds import Choice, Flag, Integer, Kind, ListOf, Real

MOST_SEPARATIONS, MOST_ORDER = 100_000, 20
SAME = 1e-6
"""Part of a cell by which a separation may miss a multiple of it."""


def read_pairs_apart(
    where: str, kind: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """The keys of a structure function or a correlation: along which axis, at which separations, and which mean."""
    problems, before, grid = context.problems, len(context.problems), found["grid"]
    kinds: dict[str, Kind] = {
        "separations": ListOf(Real(low=0.0, formula=True), 1, MOST_SEPARATIONS, optional=True, noun="lengths"),
    }
    kinds |= {"order": Integer(1, MOST_ORDER)} if kind == "structure_function" else {"normalised": Flag()}
    if "along" not in value:
        path = join(where, "along")
        problems.say(path, f"{path} is missing: expected {Choice(context.axes).allowed}")
    given: dict[str, Any] = {"order": 2} if kind == "structure_function" else {"normalised": True}
    given |= {key: one.read(join(where, key), value[key], problems) for key, one in kinds.items() if key in value}
    if len(problems) > before:
        return given
    along = read_along(where, value["along"], found["boundaries"], grid, context)
    if along is None:
        return given
    given["along"], axis = along, context.axes.index(along)
    if grid is not None and grid.lower is not None and grid.upper is not None:
        given["separations"] = _separations(join(where, "separations"), given.get("separations"), axis, grid, context)
    return given


def _separations(path: str, given: Any, axis: int, grid: GridConfig, context: Context) -> tuple[float, ...]:
    """Separations that are whole cells; where none are given, all up to half of the axis."""
    assert grid.lower is not None and grid.upper is not None
    count = grid.shape[axis]
    width = (grid.upper[axis] - grid.lower[axis]) / count
    if given is None:
        return tuple(number * width for number in range(count // 2 + 1))
    for i, length in enumerate(given):
        number = round(length / width)
        if abs(length - number * width) > SAME * width or number > count:
            context.problems.add(
                f"{path}[{i}]",
                length,
                f"a multiple of the {width:g} of a cell up to {count * width:g}",
                f"the nearest is {min(number, count) * width:g}",
            )
    return given


def check_fields(where: str, kind: str, of: tuple[str, ...], context: Context) -> None:
    """Check that fields are scalars or vectors with a component for each axis, as the instrument wants them."""
    written = context.schema.written(context.ndim, context.counts)
    path = join(where, kind if kind != "surface_integral" else "of")
    for name in of:
        parts = written.get(name, (name,))
        of_axes = tuple(f"{name}_{axis}" for axis in context.axes)
        if kind == "correlation" and len(parts) > 1:
            context.problems.add(path, name, f"a scalar, or one component such as {parts[0]}")
        elif len(parts) > 1 and parts != of_axes:
            context.problems.add(path, name, f"a scalar or a vector; write one of {', '.join(parts)}")
    if kind == "correlation" and len(of) > 2:
        context.problems.say(path, f"{path}: expected one field or two, got {len(of)}")


def read_surface(
    where: str, value: Mapping[str, Any], of: tuple[str, ...], found: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """A plane, such as {x: 0.5}, or a box, {lower: [...], upper: [...]}, whose faces are meant."""
    problems, grid, path = context.problems, found["grid"], join(where, "surface_integral")
    own, axes = value["surface_integral"], context.axes
    expected = "one axis and where it is cut, such as {x: 0.5}, or a box, {lower: [...], upper: [...]}"
    if not isinstance(own, Mapping) or (len(own) != 1 and set(own) != {"lower", "upper"}):
        problems.add(path, own, expected)
        return {}
    point = ListOf(Real(formula=True), context.ndim, context.ndim, noun=f"numbers, one per axis {' '.join(axes)}")
    kinds: dict[str, Kind] = {**dict.fromkeys(axes, Real(formula=True)), "lower": point, "upper": point}
    for key in own:
        if key not in kinds or (len(own) == 1 and key not in axes):
            problems.add(path, dict(own), expected)
            return {}
    read = {key: kinds[key].read(join(path, key), given, problems) for key, given in own.items()}
    if grid is None or grid.lower is None or grid.upper is None or any(given is None for given in read.values()):
        return read
    if "lower" in read:
        for key, corner in read.items():
            check_inside(join(path, key), corner, grid, context)
        if not all(a < b for a, b in zip(read["lower"], read["upper"], strict=True)):
            above = f"a point above {path}.lower={list(read['lower'])} on each axis"
            problems.add(join(path, "upper"), list(read["upper"]), above)
    places = dict(zip(axes, read["upper"], strict=True)) if "upper" in read else read
    written = context.schema.written(context.ndim, context.counts)
    is_flux = any(len(written.get(name, ())) > 1 for name in of)
    for k, axis in enumerate(axes):
        if axis not in places:
            continue
        if not grid.lower[k] <= places[axis] <= grid.upper[k]:
            problems.add(
                join(path, axis),
                places[axis],
                f"a place in the grid's box, {grid.lower[k]:g} <= {axis} <= {grid.upper[k]:g}",
            )
        elif is_flux and places[axis] == grid.upper[k] and found["boundaries"] and not found["boundaries"][k].periodic:
            problems.say(
                path,
                f"{path}: a flux at {axis}={places[axis]:g}, in the upper wall, where no values are kept: expected a "
                "plane below it; what goes through the wall is what its side says",
            )
    return read
