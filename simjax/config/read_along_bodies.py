"""Keys of the instrument that reads along the surface of bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.config.observations import check_inside
from simjax.config.sections import Context
from simjax.schema.config import GridConfig
from simjax.schema.config_errors import join
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, Real

MOST_POINTS = 100_000


def read_along_bodies(
    where: str, value: Mapping[str, Any], keys: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of what is read along bodies, and the points; nothing after telling why not."""
    problems, path, ndim = context.problems, join(where, "body_surface"), context.ndim
    names = context.schema.along_bodies
    if not names:
        instead = "write probe, line or slice"
        problems.say(path, f"{path}: model {context.schema.name} has no bodies whose surface could be read; {instead}")
        return (), {}
    bodies = next(field.name for field in context.schema.coefficients if field.distance)
    if bodies not in (keys["coefficients"] or {}):
        problems.say(
            path,
            f"{path}: expected bodies, whose surface is read; write coefficients.{bodies}, such as {{ball: {{center: "
            f"{[0.5] * ndim}, radius: 0.1}}}}, or leave this out",
        )
        return (), {}
    given, of = value["body_surface"], value.get("of")
    variables = ListOf(Choice(names), 1, len(names), noun="names").read(
        join(where, "of"), [of] if isinstance(of, str) else list(names) if of is None else of, problems
    )
    number = Real(formula=True)
    point = ListOf(number, ndim, ndim, noun=f"numbers, one per axis {' '.join(context.axes)}")
    rays: dict[str, Kind] = {"around": point, "points": Integer(1, MOST_POINTS)}
    listed: dict[str, Kind] = {"points": ListOf(point, 1, MOST_POINTS, noun="points")}
    wanted = "{points: [[...], ...]}, places of which each is taken to the nearest point of the surface"
    if ndim == 2:
        wanted = f"{{around: [x, y], points: 64}}, rays at equal angles from a point, or {wanted}"
    kinds = rays if ndim == 2 and isinstance(given, Mapping) and "around" in given else listed
    if not isinstance(given, Mapping) or set(given) != set(kinds):
        problems.add(path, dict(given) if isinstance(given, Mapping) else given, wanted)
        return (), {}
    read = {key: kind.read(join(path, key), given[key], problems) for key, kind in kinds.items()}
    grid: GridConfig | None = found["grid"]
    if grid is not None and grid.lower is not None and None not in read.values():
        places = (
            {"around": read["around"]}
            if "around" in read
            else {f"points[{number}]": place for number, place in enumerate(read["points"])}
        )
        for key, place in places.items():
            check_inside(join(path, key), place, grid, context)
    return tuple(dict.fromkeys(variables or ())), read
