"""The section `outputs`: instruments of a run, each with what it looks at, where, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simjax.config.observations import check_inside, check_periodic, check_uniform, kind_of, read_along
from simjax.config.particle_instruments import KINDS_OF_PARTICLES, read_on_mesh, read_particle_keys
from simjax.config.read_along_bodies import read_along_bodies
from simjax.config.read_balances import check_balance, read_quantities
from simjax.config.read_instruments_of_several import check_fields, read_pairs_apart, read_surface
from simjax.config.sections import Context
from simjax.schema.config import NAME, GridConfig, TimeConfig
from simjax.schema.config_errors import ConfigErrors, closest, join
from simjax.schema.instruments import FRAME, STEP, InstrumentConfig, Instruments
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, Real, Text

MOST_POINTS, MOST_BINS = 100_000, 100_000
APART = ("structure_function", "correlation")
"""Kinds that look at pairs of points."""
MOST_SAMPLES = 2**31 - 1
COMMON = ("of", "every", "name")
BESIDE = {
    "balance": (),
    "spectrum": ("shells", "along"),
    "radial_distribution": ("width",),
    "mean_square_displacement": (),
    "tracks": (),
    "density": ("of",),
    "structure_function": ("along", "order", "separations"),
    "correlation": ("along", "normalised", "separations"),
}
"""Keys beside that of the kind, where these are others than `of`."""


def read_instruments(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> Instruments | None:
    """The instruments; `keys`: all sections as written, `found`: what they were read as. None after telling why not."""
    problems, before = context.problems, len(context.problems)
    given, read = keys["outputs"] or (), []
    for number, value in enumerate(given):
        where = f"outputs[{number}]"
        one = _read_one(where, value, keys, found, context)
        if one is not None:
            _check_cadence(where, one, keys, found, problems)
            if one.kind == "balance":
                check_balance(join(where, one.kind), keys, problems)
            read.append((where, one))
    if len(problems) > before:
        return None
    return Instruments(_named(read, problems))


def _read_one(
    where: str, value: Mapping[str, Any], keys: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> InstrumentConfig | None:
    problems, before = context.problems, len(context.problems)
    schema = context.schema
    example = schema.instrument_example
    kind = kind_of(where, value, schema.instruments, COMMON, "what is looked at", example, problems)
    if kind is None:
        return None
    beside = BESIDE.get(kind, ("of",))
    for key in value:
        if key not in (kind, "every", "name", *beside):
            problems.unknown(where, key, (kind, *beside, "every", "name"))
    variables: tuple[str, ...] = ()
    if kind == "balance":
        variables, given = read_quantities(join(where, kind), value[kind], context), {}
    elif kind == "body_surface":
        variables, given = read_along_bodies(where, value, keys, found, context)
    elif kind in KINDS_OF_PARTICLES:
        given = read_particle_keys(where, kind, value, found, context)
        variables = read_on_mesh(join(where, "of"), value.get("of"), problems) if kind == "density" else ()
    else:
        variables = _read_variables(where, kind, value, context)
        if len(problems) == before and kind in (*APART, "surface_integral"):
            check_fields(where, kind, variables, context)
        given = (
            read_surface(where, value, variables, found, context)
            if kind == "surface_integral"
            else read_pairs_apart(where, kind, value, found, context)
            if kind in APART
            else _read_places(where, kind, value, found, context)
        )
    every = read_every(join(where, "every"), value.get("every", FRAME), problems)
    name = ""
    if "name" in value:
        name = Text(pattern=NAME, described="a name of letters, digits, _ . -").read(
            join(where, "name"), value["name"], problems
        )
    if len(problems) > before:
        return None
    return InstrumentConfig(kind, name or "", variables, every, given)


def _read_variables(where: str, kind: str, value: Mapping[str, Any], context: Context) -> tuple[str, ...]:
    """Variables, or whole fields, by the names that `output.fields` takes too."""
    of_kind = kind in ("spectrum", *APART)
    path = join(where, kind if of_kind else "of")
    known = Choice(tuple(context.schema.written(context.ndim, context.counts)))
    given = value.get(kind) if of_kind else value.get("of")
    given = [given] if isinstance(given, str) else given
    if given is None or (isinstance(given, (list, tuple)) and not given):
        such = f"{kind}: {known.options[0]}" if of_kind else f"of: [{known.options[0]}]"  # pyright: ignore[reportIndexIssue]
        context.problems.say(path, f"{path} is missing: expected variables, such as {such}")
        return ()
    read = ListOf(known, 1, 100, noun="variables").read(path, given, context.problems) or ()
    return tuple(dict.fromkeys(read))


def read_every(path: str, value: Any, problems: ConfigErrors) -> float | str:
    """Read how often an instrument samples: a time above zero, or a word such as `step`."""
    if value in (FRAME, STEP):
        return value
    expected = f"a time > 0, {STEP} for every step, or {FRAME} for every output time"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        problems.add(path, value, expected)
        return FRAME
    if isinstance(value, str) and (close := closest(value, (FRAME, STEP))):
        problems.add(path, value, expected, f"did you mean '{close}'?")
        return FRAME
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        problems.add(path, value, expected)
        return FRAME
    return number


# ---------------------------------------------------------------------- places


def _read_places(
    where: str, kind: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """The keys of the kind itself, typed and inside of the grid."""
    grid: GridConfig | None = found["grid"]
    if kind == "spectrum":
        given: dict[str, Any] = {}
        if "along" in value:
            given["along"] = read_along(where, value["along"], found["boundaries"], grid, context)
        else:
            instead = "write along: AXIS for one that is periodic and uniform, or look at it with line or histogram"
            check_periodic(join(where, kind), found["boundaries"], instead, context)
            check_uniform(join(where, kind), grid, instead, context)
        if "shells" in value:
            given["shells"] = Integer(1, MOST_BINS).read(join(where, "shells"), value["shells"], context.problems)
        return given
    own, path = value[kind], join(where, kind)
    wanted = _keys_of(kind, context)
    if not isinstance(own, Mapping) or not own:
        context.problems.add(path, own, f"keys {', '.join(wanted)}")
        return {}
    for key in own:
        if key not in wanted:
            context.problems.unknown(path, key, wanted)
            return {}
    missing = [key for key in wanted if key not in own and kind != "slice"]
    for key in missing:
        context.problems.say(join(path, key), f"{join(path, key)} is missing: expected {wanted[key].allowed}")
    read = {key: wanted[key].read(join(path, key), own[key], context.problems) for key in own}
    if missing or any(entry is None for entry in read.values()):
        return read
    if kind == "slice" and (len(own) != 1 or context.ndim == 1):
        across = "one axis and where it is cut, such as {z: 0.5}"
        across = "a grid of 2 or 3 axes; look at one of 1 with line" if context.ndim == 1 else across
        context.problems.add(path, dict(own), across)
    if grid is not None and grid.lower is not None and grid.upper is not None:
        _check_ends(path, kind, read, grid, context)
    return read


def _keys_of(kind: str, context: Context) -> dict[str, Kind]:
    ndim, axes = context.ndim, " ".join(context.axes)
    number = Real(formula=True)
    point = ListOf(number, ndim, ndim, noun=f"numbers, one per axis {axes}")
    return {
        "slice": dict.fromkeys(context.axes, number),
        "probe": {"points": ListOf(point, 1, MOST_POINTS, noun="points")},
        "line": {"from": point, "to": point, "points": Integer(2, MOST_POINTS)},
        "box_mean": {"lower": point, "upper": point},
        "histogram": {"bins": Integer(1, MOST_BINS), "lower": number, "upper": number},
    }[kind]


def _check_ends(path: str, kind: str, read: Mapping[str, Any], grid: GridConfig, context: Context) -> None:
    """Points lie in the grid's box, and what has two ends has them in order."""
    assert grid.lower is not None and grid.upper is not None
    problems = context.problems
    places: dict[str, Sequence[float]] = {}
    match kind:
        case "slice":
            for axis, a, b in zip(context.axes, grid.lower, grid.upper, strict=True):
                if axis in read and not a <= read[axis] <= b:
                    problems.add(join(path, axis), read[axis], f"a place in the grid's box, {a:g} <= {axis} <= {b:g}")
        case "probe":
            places = {f"points[{i}]": point for i, point in enumerate(read["points"])}
        case "line" | "box_mean":
            places = {key: point for key, point in read.items() if key != "points"}
    for key, point in places.items():
        check_inside(join(path, key), point, grid, context)
    if kind == "line" and read["from"] == read["to"]:
        problems.add(join(path, "to"), list(read["to"]), f"another point than {path}.from")
    if kind == "box_mean" and not all(a < b for a, b in zip(read["lower"], read["upper"], strict=True)):
        expected = f"a point above {path}.lower={list(read['lower'])} on each axis"
        problems.add(join(path, "upper"), list(read["upper"]), expected)
    if kind == "histogram" and not read["lower"] < read["upper"]:
        problems.add(join(path, "upper"), read["upper"], f"a number above {path}.lower={read['lower']:g}")


# ---------------------------------------------------------------------- cadences and names


def _check_cadence(
    where: str, one: InstrumentConfig, keys: Mapping[str, Any], found: Mapping[str, Any], problems: ConfigErrors
) -> None:
    """A cadence of its own is no finer than a step, and needs steps whose states are whole and known to all members."""
    time: TimeConfig | None = found["time"]
    if one.at_frames or time is None:
        return
    path, every = join(where, "every"), one.every
    if time.dt is not None and not isinstance(every, str) and every < time.dt * (1 - 1e-9):
        problems.add(path, every, f"at least time.dt={time.dt:g}", f"write every: {STEP} for each step")
    elif not isinstance(every, str) and time.end / every > MOST_SAMPLES:
        problems.add(path, every, f"at most {MOST_SAMPLES} samples to time.end={time.end:g}")
    ensemble = found["ensemble"]
    if time.dt is None and ensemble is not None and ensemble.several:
        problems.add(
            path,
            every,
            f"{FRAME} in an ensemble without time.dt, as each member has its own steps",
            f"write every: {FRAME}, or time.dt",
        )
    if ensemble is not None and ensemble.retry:
        problems.add(
            path,
            every,
            f"{FRAME} with ensemble.retry, as members that failed are run again with steps of their own",
            f"write every: {FRAME}, or ensemble.retry=false",
        )
    if keys["steps_per_exchange"] not in (0, None):
        problems.add(
            path,
            every,
            f"{FRAME} with steps_per_exchange={keys['steps_per_exchange']}, which leave no field whole",
            "write steps_per_exchange=0",
        )


def _named(read: Sequence[tuple[str, InstrumentConfig]], problems: ConfigErrors) -> list[InstrumentConfig]:
    """Give every instrument without a name that of its kind, numbered from the second of a kind on."""
    taken = [one.name for _, one in read if one.name]
    for where, one in read:
        if taken.count(one.name) > 1:
            problems.add(join(where, "name"), one.name, "a name that no other of outputs has")
    result, used = [], set(taken)
    for _, one in read:
        name, number = one.name or one.kind, 2
        while not one.name and name in used:
            name, number = f"{one.kind}_{number}", number + 1
        used.add(name)
        result.append(InstrumentConfig(one.kind, name, one.of, one.every, one.given))
    return result
