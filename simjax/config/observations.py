"""The observations of an inverse problem: what was measured, where, when and how well."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from simjax.config.sections import Context, find_told, read_formula
from simjax.schema.config import AxisBoundary, GridConfig, TimeConfig
from simjax.schema.config_errors import ConfigErrors, closest, join
from simjax.schema.formula import Formula
from simjax.schema.inverse import PLACES, MeasuredFile, ObservationConfig
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, OneOf, Plain, Real, Text, Unread, key, write
from simjax.schema.model_schema import AXES
from simjax.schema.particles import BoxConfig

MOST_PLACES = 100_000
MOST_RADII = 1000


@dataclass(frozen=True)
class NumberOrName(Plain):
    """A number above zero, or a text."""

    allowed: str

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | str | None:
        kind = Text() if isinstance(value, str) and not _is_number(value) else Real(above=0.0, optional=True)
        return kind.read(path, value, problems)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ObservationKeys:
    """The keys of every observation besides its places."""

    times: tuple[float, ...] | None = key(
        ListOf(Real(low=0.0, formula=True), 1, MOST_PLACES, optional=True, noun="numbers"),
        None,
        units="s",
        about="when it is measured",
    )
    every: int | None = key(
        Integer(1, optional=True), None, about="frames between measurements, in place of times; null: 1"
    )
    deviation: float | str | None = key(
        NumberOrName("a finite number > 0, the name of a variable of the file, or null"),
        None,
        about="standard deviation of the errors, in the variable's units",
    )
    fraction: float | None = key(
        Real(above=0.0, optional=True), None, about="the same over the root mean square of what was measured"
    )
    noise: tuple[str, Any] | None = key(
        OneOf({"student": Real(above=0.0), "huber": Real(above=0.0)}, words=("gaussian",), optional=True),
        None,
        about="distribution of the errors; of student its degrees of freedom, of huber its threshold",
    )


@dataclass(frozen=True)
class FileKeys:
    """The keys of an observation whose measurements lie in a file."""

    file: str | None = key(
        Text(optional=True, described="a path"), None, about="NetCDF, HDF5, NPZ or Zarr, with the measurements"
    )
    variable: str | None = key(
        Text(optional=True, described="the name of a variable"),
        None,
        about="that of the file; null: the name of what is observed",
    )
    mask: str | None = key(
        Text(optional=True, described="the name of a variable"),
        None,
        about="variable of the file that is 0 where nothing was measured; null: mask, if there is one",
    )
    member: int | None = key(
        Integer(0, optional=True), None, about="of the file of an ensemble the member that was measured, by its number"
    )
    order: tuple[str, ...] | None = key(
        ListOf(Choice(AXES), 1, 3, optional=True, noun="axes"),
        None,
        about="of a snapshot, the axes of an array without names, first to last; null: z, y, x, where the shape tells",
    )


COMMON: dict[str, Kind] = {field.name: field.metadata["kind"] for field in fields(ObservationKeys)}
OF_FILES: dict[str, Kind] = {field.name: field.metadata["kind"] for field in fields(FileKeys)}


def read_observation(
    where: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> ObservationConfig | None:
    """One entry of `inverse.observations`; `found` is what the rest of the configuration was read as."""
    problems, before = context.problems, len(context.problems)
    example = f"such as {{snapshot: {context.variables[0]}}}"
    kind = kind_of(
        where, value, context.schema.observations, {**COMMON, **OF_FILES}, "what is observed", example, problems
    )
    if kind is None:
        return None
    keys = _read_keys(where, kind, value, found, context)
    if len(problems) > before:
        return None
    _check_errors(where, kind, keys, problems)
    data = _find_measurements(where, keys, context)
    _check_times(where, keys, found["time"], problems)
    places = tuple(keys[place] for place in PLACES[kind] if place in keys)
    _check_places(where, kind, places, found["grid"], context)
    target = _read_target(f"{where}.target", kind, keys, context)
    if kind == "spectrum":
        check_periodic(f"{where}.spectrum", found["boundaries"], "observe with box_average", context)
        check_uniform(f"{where}.spectrum", found["grid"], "observe with box_average", context)
    if kind == "radial_distribution":
        check_radii(where, keys, found["box"], problems)
    file = find_told(f"{where}.sensors", keys[kind], context) if kind == "sensors" else None
    if len(problems) > before:
        return None
    noise = None if keys["noise"] in (None, ("gaussian", None)) else keys["noise"]
    radii = keys[kind] if kind == "radial_distribution" else ()
    deviation = None if isinstance(keys["deviation"], str) else keys["deviation"]
    variable = keys["of"] if kind == "output" else keys[kind]
    instrument = None if kind != "output" else next(one for one in found["outputs"] if one.name == keys[kind])
    return ObservationConfig(
        kind,
        None if file or radii else variable,
        places,
        keys.get("shells", 0),
        file,
        keys["times"],
        keys["every"] or 1,
        deviation,
        keys["fraction"],
        noise,
        target,
        radii,
        keys.get("width", 0.0),
        data,
        instrument,
    )


def _read_target(path: str, kind: str, keys: Mapping[str, Any], context: Context) -> Formula | None:
    """Read what a snapshot or a diagnostic is wanted to be, if it is given; a diagnostic has no place."""
    if keys.get("target") is None:
        return None
    known = context if kind == "snapshot" else dataclasses.replace(context, known=("t", *context.parameters))
    return read_formula(path, keys["target"], known)


def _read_keys(
    where: str, kind: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Every key of this kind of observation, None for optional ones that are left out."""
    axes = " ".join(context.axes)
    point = ListOf(Real(formula=True), context.ndim, context.ndim, noun=f"numbers, one per axis {axes}")
    own: dict[str, Kind] = {kind: _what(kind, context)}
    # A file of points has their places.
    of_file = kind == "points" and value.get("file") is not None and "at" not in value
    own |= {place: ListOf(point, 1, MOST_PLACES, noun="points") for place in PLACES[kind] if not of_file}
    if kind == "output":
        own["of"] = Text()  # one of those that the instrument has, for which `as_observations` cares
    if kind == "spectrum":
        own["shells"] = Integer(1, MOST_PLACES)
    if kind == "radial_distribution":
        own["width"] = Real(above=0.0)
    optional = COMMON if kind == "sensors" else {**COMMON, **OF_FILES}
    if kind in context.schema.with_target:
        optional = {**optional, "target": Unread("a number or a formula")}
    kinds = {**own, **optional}
    meant = {context.problems.unknown(where, key, kinds) for key in value if key not in kinds}
    for name in own:
        if name not in value and name not in meant:
            path = join(where, name)
            context.problems.say(path, f"{path} is missing: expected {own[name].allowed}")
    read = {key: kinds[key].read(join(where, key), value[key], context.problems) for key in kinds if key in value}
    return {**dict.fromkeys(optional), **read}


def _what(kind: str, context: Context) -> Kind:
    """Value at the kind itself: a variable, a file, a diagnostic, or radii."""
    match kind:
        case "sensors":
            return Text(described="a path")
        case "output":
            return Text(described="the name of an entry of outputs")
        case "diagnostic":
            return Text(described="the name of a diagnostic")
        case "radial_distribution":
            return ListOf(Real(above=0.0), 1, MOST_RADII, noun="distances")
    # Counts of crossed periods have no errors.
    return Choice([name for name in context.variables if name != "image"])


def check_radii(where: str, keys: Mapping[str, Any], box: BoxConfig | None, problems: ConfigErrors) -> None:
    """Check that distances are no smaller than their width, and that the box has no sides."""
    path = f"{where}.radial_distribution"
    near = [r for r in keys["radial_distribution"] if r < keys["width"]]
    if near:
        problems.say(path, f"{path}: {near[0]:g}: expected distances of at least width={keys['width']:g}")
    if box is not None and box.periodic is not None and not all(box.periodic):
        problems.say(path, f"{path}: expected a box that is periodic along every axis; observe positions")


def _check_errors(where: str, kind: str, keys: Mapping[str, Any], problems: ConfigErrors) -> None:
    """Check that the size of the errors is given once; a file of sensors may hold it."""
    deviation, fraction, file = keys["deviation"], keys["fraction"], keys.get("file")
    if deviation is not None and fraction is not None:
        shown = deviation if isinstance(deviation, str) else f"{deviation:g}"
        problems.say(where, f"{where}: deviation={shown} and fraction={fraction:g}: expected one of them")
    elif isinstance(deviation, str) and file is None:
        path = f"{where}.deviation"
        problems.add(path, deviation, "a number > 0; the name of a variable goes with a file of measurements")
    elif deviation is None and fraction is None and kind != "sensors" and file is None:
        problems.say(
            f"{where}.deviation",
            f"{where}.deviation is missing: expected a number > 0 in the variable's units, or fraction, that of the "
            "measured values' root mean square",
        )


def _check_times(where: str, keys: Mapping[str, Any], time: TimeConfig | None, problems: ConfigErrors) -> None:
    if keys["times"] is not None and keys["every"] is not None:
        problems.say(where, f"{where}: times={list(keys['times'])} and every={keys['every']}: expected one of them")
    if keys.get("file") is not None and keys["every"] is not None:
        problems.add(
            f"{where}.every",
            keys["every"],
            "none with a file, whose coordinate time says when",
            "write times where it has no such coordinate",
        )
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
    context: Context,
) -> None:
    """Check that points lie in the grid's box, and that both ends of segments and boxes fit."""
    names = PLACES[kind] if places else ()
    if grid is not None and grid.lower is not None and grid.upper is not None:
        for name, points in zip(names, places, strict=True):
            for i, point in enumerate(points):
                check_inside(f"{where}.{name}[{i}]", point, grid, context)
    if len(places) == 2:
        for path, sentence in _misfits(where, kind, *places):
            context.problems.say(path, sentence)


def _misfits(
    where: str, kind: str, firsts: Sequence[tuple[float, ...]], lasts: Sequence[tuple[float, ...]]
) -> Iterator[tuple[str, str]]:
    """Find what is wrong between the first and the last points of segments or boxes."""
    first, last = (join(where, name) for name in PLACES[kind])
    if len(firsts) != len(lasts):
        yield last, f"{last}: expected as many points as {first} has, {len(firsts)}; got {len(lasts)}"
        return
    for i, (a, b) in enumerate(zip(firsts, lasts, strict=True)):
        if kind == "line_of_sight" and a == b:
            yield f"{last}[{i}]", f"{last}[{i}] = {list(b)}: expected another point than {first}[{i}]"
        if kind == "box_average" and not all(low < high for low, high in zip(a, b, strict=True)):
            yield f"{last}[{i}]", f"{last}[{i}] = {list(b)}: expected a point above {first}[{i}]={list(a)} on each axis"


def kind_of(
    where: str,
    value: Mapping[str, Any],
    kinds: Iterable[str],
    common: Iterable[str],
    seen: str,
    example: str,
    problems: ConfigErrors,
) -> str | None:
    """The kind, among `kinds`, whose key an entry has beside the `common` keys; None after adding a problem."""
    kinds = tuple(kinds)
    named = [kind for kind in kinds if kind in value]
    if len(named) == 1:
        return named[0]
    meant = [closest(str(key), kinds) for key in value if key not in common and not named]
    hint = f"did you mean '{meant[0]}'?" if meant and meant[0] else example
    problems.add(where, dict(value), f"one of {', '.join(kinds)} with {seen}", hint)
    return None


def check_inside(path: str, point: Sequence[float], grid: GridConfig, context: Context) -> None:
    """Check that a point lies in the grid's box."""
    assert grid.lower is not None and grid.upper is not None
    box = list(zip(context.axes, grid.lower, grid.upper, strict=True))
    if not all(a <= number <= b for number, (_, a, b) in zip(point, box, strict=True)):
        expected = "a point in the grid's box, " + ", ".join(f"{a:g} <= {axis} <= {b:g}" for axis, a, b in box)
        context.problems.add(path, list(point), expected)


def check_periodic(path: str, boundaries: Sequence[AxisBoundary] | None, instead: str, context: Context) -> None:
    """Check that a spectrum has no walls; instead: what to write where there are some."""
    walls = [axis for axis, sides in zip(context.axes, boundaries or (), strict=False) if not sides.periodic]
    if walls:
        context.problems.say(path, f"{path}: expected periodic axes only, {', '.join(walls)} has walls; {instead}")


def check_uniform(path: str, grid: GridConfig | None, instead: str, context: Context, along: str | None = None) -> None:
    """Check that there are cells of one width, `along` an axis or all; instead: what to write where there are not."""
    if grid is None or grid.stretch is None:
        return
    stretched = [axis for axis in context.axes if getattr(grid.stretch, axis) is not None]
    if along in (None, *stretched) and stretched:
        found = f"expected cells of one width, the grid is stretched along {', '.join(stretched)}"
        context.problems.say(path, f"{path}: {found}; {instead}")


def read_along(
    where: str, given: Any, boundaries: Sequence[AxisBoundary] | None, grid: GridConfig | None, context: Context
) -> str | None:
    """Read the name of a periodic axis with cells of one width; None after adding a problem."""
    path, problems, before = join(where, "along"), context.problems, len(context.problems)
    axis = Choice(context.axes).read(path, given, problems)
    if axis is None:
        return None
    if boundaries is not None and not boundaries[context.axes.index(axis)].periodic:
        problems.add(path, axis, "a periodic axis", "look across walls with line or slice")
    check_uniform(path, grid, "look along it with line or histogram", context, along=axis)
    return axis if len(problems) == before else None


def _find_measurements(where: str, keys: Mapping[str, Any], context: Context) -> MeasuredFile | None:
    """Find the file of measurements of an observation, or None; what goes with a file alone is refused where there is
    none."""
    problems, file = context.problems, keys.get("file")
    if file is None:
        for name in ("variable", "mask", "member", "order"):
            if keys.get(name) is not None:
                problems.add(
                    f"{where}.{name}", write(keys[name]), "none without a file of measurements", "write file: PATH"
                )
        return None
    if keys.get("target") is not None:
        problems.say(where, f"{where}: target and file: expected one of them, as what is wanted is not measured")
    found = find_told(f"{where}.file", file, context, or_folder=True)
    if found is None:
        return None
    order = keys["order"]
    if order is not None and sorted(order) != list(context.axes):
        problems.add(f"{where}.order", list(order), f"the axes of the grid, such as {list(context.axes[::-1])}")
    named = keys["deviation"] if isinstance(keys["deviation"], str) else None
    return MeasuredFile(found, keys["variable"], keys["mask"], named, keys["member"], order)
