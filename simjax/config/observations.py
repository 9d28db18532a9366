"""The observations of an inverse problem: what was measured, where, when and how well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simjax.config.sections import Surroundings, find_input, read_formula
from simjax.schema.config import AxisBoundary, GridConfig, TimeConfig
from simjax.schema.errors import Problems, closest, join
from simjax.schema.inverse import PLACES, ObservationConfig
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, OneOf, Real, Text, Unread

MOST_PLACES = 100_000

# What every observation takes besides its places.
COMMON: dict[str, Kind] = {
    "times": ListOf(Real(low=0.0, formula=True), 1, MOST_PLACES, optional=True, noun="numbers"),
    "every": Integer(1, optional=True),
    "deviation": Real(above=0.0, optional=True),
    "fraction": Real(above=0.0, optional=True),
    "noise": OneOf({"student": Real(above=0.0), "huber": Real(above=0.0)}, words=("gaussian",), optional=True),
}


def read_observation(
    where: str, value: Mapping[str, Any], found: Mapping[str, Any], around: Surroundings
) -> ObservationConfig | None:
    """One entry of `inverse.observations`; `found` is what the rest of the configuration was read as."""
    problems, before = around.problems, len(around.problems)
    named = [kind for kind in PLACES if kind in value]
    if len(named) != 1:
        meant = [closest(str(key), PLACES) for key in value if key not in COMMON and not named]
        hint = f"did you mean '{meant[0]}'?" if meant and meant[0] else f"such as {{snapshot: {around.variables[0]}}}"
        problems.add(where, dict(value), f"one of {', '.join(PLACES)} with what is observed", hint)
        return None
    kind = named[0]
    keys = _read_keys(where, kind, value, around)
    if len(problems) > before:
        return None
    _check_errors(where, kind, keys, problems)
    _check_times(where, keys, found["time"], problems)
    places = tuple(keys[place] for place in PLACES[kind])
    _check_places(where, kind, places, found["grid"], around)
    target = None if keys.get("target") is None else read_formula(f"{where}.target", keys["target"], around)
    if kind == "spectrum":
        _check_periodic(where, found["boundaries"], around)
    file = _find_sensors(where, keys[kind], around) if kind == "sensors" else None
    if len(problems) > before:
        return None
    noise = None if keys["noise"] in (None, ("gaussian", None)) else keys["noise"]
    return ObservationConfig(
        kind, None if file else keys[kind], places, keys.get("shells", 0), file, keys["times"],
        keys["every"] or 1, keys["deviation"], keys["fraction"], noise, target,
    )  # fmt: skip


def _read_keys(where: str, kind: str, value: Mapping[str, Any], around: Surroundings) -> dict[str, Any]:
    """Every key of this kind of observation, None for optional ones that are left out."""
    axes = " ".join(around.axes)
    point = ListOf(Real(formula=True), around.ndim, around.ndim, noun=f"numbers, one per axis {axes}")
    own: dict[str, Kind] = {kind: Text(described="a path") if kind == "sensors" else Choice(around.variables)}
    own |= {place: ListOf(point, 1, MOST_PLACES, noun="points") for place in PLACES[kind]}
    if kind == "spectrum":
        own["shells"] = Integer(1)
    optional = {**COMMON, "target": Unread("a number or a formula")} if kind == "snapshot" else COMMON
    kinds = {**own, **optional}
    meant = {around.problems.unknown(where, key, kinds) for key in value if key not in kinds}
    for key in own:
        if key not in value and key not in meant:
            path = join(where, key)
            around.problems.say(path, f"{path} is missing: expected {own[key].allowed}")
    read = {key: kinds[key].read(join(where, key), value[key], around.problems) for key in kinds if key in value}
    return {**dict.fromkeys(optional), **read}


def _check_errors(where: str, kind: str, keys: Mapping[str, Any], problems: Problems) -> None:
    """The size of the errors is given once; a file of sensors may tell it itself."""
    if keys["deviation"] is not None and keys["fraction"] is not None:
        problems.say(
            where,
            f"{where}: deviation={keys['deviation']:g} and fraction={keys['fraction']:g}: expected one of them",
        )
    elif keys["deviation"] is None and keys["fraction"] is None and kind != "sensors":
        problems.say(
            f"{where}.deviation",
            f"{where}.deviation is missing: expected a number > 0 in the variable's units, or fraction, that of the "
            "measured values' root mean square",
        )


def _check_times(where: str, keys: Mapping[str, Any], time: TimeConfig | None, problems: Problems) -> None:
    if keys["times"] is not None and keys["every"] is not None:
        problems.say(where, f"{where}: times={list(keys['times'])} and every={keys['every']}: expected one of them")
    if time is None:
        return
    for i, when in enumerate(keys["times"] or ()):
        if when > time.end:
            problems.add(f"{where}.times[{i}]", when, f"a time from 0 to time.end={time.end:g}")
    if time.frames is not None and (keys["every"] or 1) > time.frames:
        problems.add(f"{where}.every", keys["every"], f"at most {time.frames}, the frames to time.end={time.end:g}")


def _check_places(
    where: str,
    kind: str,
    places: Sequence[tuple[tuple[float, ...], ...]],
    grid: GridConfig | None,
    around: Surroundings,
) -> None:
    """Points lie in the grid's box; segments and boxes have a beginning and an end that fit."""
    names = PLACES[kind]
    if grid is not None and grid.lower is not None and grid.upper is not None:
        box = list(zip(around.axes, grid.lower, grid.upper, strict=True))
        expected = "a point in the grid's box, " + ", ".join(f"{a:g} <= {axis} <= {b:g}" for axis, a, b in box)
        for name, points in zip(names, places, strict=True):
            for i, point in enumerate(points):
                if not all(a <= number <= b for number, (_, a, b) in zip(point, box, strict=True)):
                    around.problems.add(f"{where}.{name}[{i}]", list(point), expected)
    if len(places) == 2:
        for path, sentence in _misfits(where, kind, *places):
            around.problems.say(path, sentence)


def _misfits(
    where: str, kind: str, firsts: Sequence[tuple[float, ...]], lasts: Sequence[tuple[float, ...]]
) -> Iterator[tuple[str, str]]:
    """What is wrong between the first and the last points of segments or boxes."""
    first, last = (join(where, name) for name in PLACES[kind])
    if len(firsts) != len(lasts):
        yield last, f"{last}: expected as many points as {first} has, {len(firsts)}; {len(lasts)} came"
        return
    for i, (a, b) in enumerate(zip(firsts, lasts, strict=True)):
        if kind == "line_of_sight" and a == b:
            yield f"{last}[{i}]", f"{last}[{i}] = {list(b)}: expected another point than {first}[{i}]"
        if kind == "box_average" and not all(low < high for low, high in zip(a, b, strict=True)):
            yield f"{last}[{i}]", f"{last}[{i}] = {list(b)}: expected a point above {first}[{i}]={list(a)} on each axis"


def _check_periodic(where: str, boundaries: Sequence[AxisBoundary] | None, around: Surroundings) -> None:
    walls = [axis for axis, sides in zip(around.axes, boundaries or (), strict=False) if not sides.periodic]
    if walls:
        path = f"{where}.spectrum"
        around.problems.say(
            path, f"{path}: expected periodic axes only, {', '.join(walls)} has walls; observe with box_average"
        )


def _find_sensors(where: str, file: str, around: Surroundings) -> Path | None:
    found = find_input(file, around.folders)
    if found is None:
        looked = ", ".join(str(folder) for folder in around.folders)
        around.problems.say(f"{where}.sensors", f"{where}.sensors = {file!r}: no such file (looked below {looked})")
    return found
