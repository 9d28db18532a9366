"""The observations of an inverse problem: what an output reads, beside what was measured or is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from simjax.config.sections import Context, find_told, read_formula
from simjax.schema.config import TimeConfig
from simjax.schema.config_errors import ConfigErrors, closest, join, show
from simjax.schema.formula import Formula
from simjax.schema.instrument_declarations import OF, STANDING, instrument_class, kinds_of
from simjax.schema.instruments import FRAME, InstrumentConfig
from simjax.schema.inverse import TABLE, MeasuredFile, ObservationConfig
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, OneOf, Plain, Real, Text, Unread, key, write
from simjax.schema.model_schema import AXES

OUTPUT = "output"
MOST_TIMES = 100_000
MOST_NAMES = 100
OLD_KINDS = (
    "snapshot",
    "points",
    "line_of_sight",
    "box_average",
    "spectrum",
    "sensors",
    "diagnostic",
    "radial_distribution",
)
"""Keys at which observations once said what they read."""


@dataclass(frozen=True)
class NumberOrName(Plain):
    """A number above zero, or a text."""

    allowed: str

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | str | None:
        kind = Text() if isinstance(value, str) and not _is_number(value) else Real(above=0.0, optional=True)
        return kind.read(path, value, problems)


@dataclass(frozen=True)
class TimeOrFrame(Plain):
    """A time above zero, or the word for output times."""

    allowed: str = f"a time > 0, {FRAME} for every output time, or null"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | str | None:
        if value == FRAME:
            return FRAME
        if isinstance(value, str) and not _is_number(value):
            problems.add(path, value, self.allowed)
            return None
        return Real(above=0.0, optional=True).read(path, value, problems)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ObservationKeys:
    """The keys of an observation."""

    output: str = key(
        Text(described="the name of an entry of outputs, or of what every run writes"),
        about="what reads it: the name of an entry of outputs; fields, or particles; diagnostics",
    )
    of: Any = key(
        Unread("a name or a list of names"),
        None,
        about="those of its variables that were measured; null: all that an entry of outputs reads",
    )
    times: tuple[float, ...] | None = key(
        ListOf(Real(low=0.0, formula=True), 1, MOST_TIMES, optional=True, noun="numbers"),
        None,
        units="s",
        about="when it is measured",
    )
    every: float | str | None = key(
        TimeOrFrame(), None, units="s", about="time between measurements, in place of times; null: that of the output"
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
    target: Any = key(
        Unread("a number or a formula"), None, about="what it is wanted to be, in place of what was measured"
    )


@dataclass(frozen=True)
class FileKeys:
    """The keys of an observation whose measurements lie in a file."""

    file: str | None = key(
        Text(optional=True, described="a path"),
        None,
        about="NetCDF, HDF5, NPZ or Zarr, with the measurements; of fields also a table of readings, .csv",
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
        about="of fields, the axes of an array without names, first to last; null: z, y, x, where the shape tells",
    )


KINDS: dict[str, Kind] = {
    field.name: field.metadata["kind"] for keys in (ObservationKeys, FileKeys) for field in fields(keys)
}


def read_observations(
    where: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> list[ObservationConfig]:
    """One entry of `inverse.observations`: an observation of each variable that it names, or of all that its output
    reads; none after telling why not. `found` is what the rest of the configuration was read as."""
    problems, before = context.problems, len(context.problems)
    if OUTPUT not in value:
        _tell_missing(where, value, context)
        return []
    for name in (name for name in value if name not in KINDS):
        problems.unknown(where, name, KINDS)
    keys = dict.fromkeys(KINDS) | {
        name: KINDS[name].read(join(where, name), value[name], problems) for name in KINDS if name in value
    }
    if len(problems) > before or found["outputs"] is None:  # what is wrong with outputs is told already
        return []
    sources = _outputs_of(where, keys, found, context)
    _check_errors(where, keys, problems)
    data = _find_measurements(where, keys, context)
    if len(problems) > before:
        return []
    kind = sources[0][0].kind_class
    if data is not None:
        _check_file(where, keys, kind, problems)
    _check_times(where, keys, found["time"], problems)
    target = _read_target(f"{where}.target", keys["target"], kind, context)
    if len(problems) > before:
        return []
    own = sources[0][0]
    every = FRAME if own.at_frames or not own.interval else own.interval
    return [
        ObservationConfig(
            source,
            variable,
            keys["times"],
            keys["every"] or every,
            None if isinstance(keys["deviation"], str) else keys["deviation"],
            keys["fraction"],
            None if keys["noise"] in (None, ("gaussian", None)) else keys["noise"],
            target,
            data,
        )
        for source, variable in sources
    ]


# ---------------------------------------------------------------------- what reads it


def _outputs_of(
    where: str, keys: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> list[tuple[InstrumentConfig, str | None]]:
    """Find the output of each of the variables that are observed; a table of readings may name them itself."""
    name, path, problems = keys[OUTPUT], join(where, OUTPUT), context.problems
    chosen, standing = _chosen(name, found), STANDING[context.schema.family]
    if chosen is None and name not in standing:
        known = [*(one.name for one in found["outputs"]), *standing]
        close = closest(str(name), known)
        hint = f"did you mean '{close}'?" if close else ""
        problems.add(
            path, name, f"the name of an entry of outputs, or of what is always there: {', '.join(known)}", hint
        )
        return []
    if chosen is not None and not chosen.kind_class.fitted:
        fitted = [kind for kind in kinds_of(context.schema.family) if instrument_class(kind).fitted]
        problems.add(path, name, f"an instrument of kind {', '.join(fitted)}; {name} is of kind {chosen.kind}")
        return []
    wanted = None
    if keys[OF] is not None:
        given = [keys[OF]] if isinstance(keys[OF], str) else keys[OF]
        wanted = ListOf(Text(), 1, MOST_NAMES, noun="names").read(join(where, OF), given, problems)
        if wanted is None:
            return []
    if chosen is None:
        return _standing(where, name, standing[name], wanted, keys, context)
    readings = chosen.readings(context.schema.written(context.ndim, context.counts))
    if not _are_known(join(where, OF), wanted or (), readings, f"what {name} reads", problems):
        return []
    return [(chosen, variable) for variable in wanted or readings]


def _chosen(name: Any, found: Mapping[str, Any]) -> InstrumentConfig | None:
    return next((one for one in found["outputs"] if one.name == name), None)


def _standing(
    where: str, name: str, kind: str, wanted: tuple[str, ...] | None, keys: Mapping[str, Any], context: Context
) -> list[tuple[InstrumentConfig, str | None]]:
    """The variables of what every run writes without an entry of `outputs`."""
    path, written = join(where, OF), context.schema.written(context.ndim, context.counts)
    known = None if kind == "diagnostic" else [one for one in written if one != "image"]
    if wanted is None:
        if kind == "fields" and _is_table(keys):
            return [(InstrumentConfig(kind, name, (), FRAME, {}), None)]
        first = "NAME" if known is None else known[0]
        context.problems.say(path, f"{path} is missing: expected what was measured, such as of: {first}")
        return []
    if known is not None and not _are_known(path, wanted, known, "variables", context.problems):
        return []
    variables = [own for one in wanted for own in ((one,) if known is None else written[one])]
    return [(InstrumentConfig(kind, name, (own,), FRAME, {}), own) for own in dict.fromkeys(variables)]


def _are_known(path: str, names: tuple[str, ...], known: Any, what: str, problems: ConfigErrors) -> bool:
    unknown = [name for name in names if name not in known]
    for name in unknown:
        close = closest(name, known)
        hint = f"did you mean '{close}'?" if close else ""
        problems.add(path, name, f"one of {what}, {', '.join(known)}", hint)
    return not unknown


def _tell_missing(where: str, value: Mapping[str, Any], context: Context) -> None:
    """Tell that an observation names no output; of the kinds that observations once were, what to write now."""
    problems, standing = context.problems, STANDING[context.schema.family]
    old = next((kind for kind in OLD_KINDS if kind in value), None)
    if old is None:
        meant = next((str(name) for name in value if name not in KINDS and closest(str(name), (OUTPUT,))), None)
        hint = f"did you mean '{join(where, OUTPUT)}'?" if meant else f"such as {{output: {next(iter(standing))}, of: "
        hint += "" if meant else f"{context.variables[0]}}}"
        path = join(where, OUTPUT)
        problems.say(
            path, f"{path} is missing: expected the name of an entry of outputs, or of {', '.join(standing)}; {hint}"
        )
        return
    path = join(where, old)
    entry, now = _successor(old, value, next(iter(standing)))
    there = f" and outputs: [{entry}]" if entry else ""
    problems.say(path, f"{path}: what is observed is an output now; write {now} here{there}")


def _successor(old: str, value: Mapping[str, Any], whole: str) -> tuple[str, str]:
    """The entry of `outputs`, if one is needed, and the observation that stand for an old kind of observation."""
    of = value[old]

    def places(*names: str) -> str:
        return ", ".join(f"{name}: {_flow(value.get(name, '[[...]]'))}" for name in names)

    match old:
        case "diagnostic":
            return "", f"{{output: diagnostics, of: {of}}}"
        case "sensors":
            return "", f"{{output: {whole}, file: {of}}}"
        case "points" if "at" in value:
            return f"{{probe: {{points: {_flow(value['at'])}}}, of: {of}}}", "{output: probe}"
        case "line_of_sight":
            return f"{{line_of_sight: {{{places('from', 'to')}}}, of: {of}}}", "{output: line_of_sight}"
        case "box_average":
            entries = [f"{{box_mean: {{{box}}}, of: {of}}}" for box in _boxes(value)]
            return ", ".join(entries), "{output: box_mean}" + ", and {output: box_mean_2}, ..." * (len(entries) > 1)
        case "spectrum":
            return f"{{spectrum: {of}, shells: {value.get('shells', 'NUMBER')}}}", "{output: spectrum}"
        case "radial_distribution":
            width = value.get("width", "NUMBER")
            return f"{{radial_distribution: {_flow(of)}, width: {width}}}", "{output: radial_distribution}"
    return "", f"{{output: {whole}, of: {of}}}"


def _boxes(value: Mapping[str, Any]) -> list[str]:
    """The corners of each box of an old `box_average`, as keys of `box_mean` have them."""
    corners = [value.get(name) for name in ("lower", "upper")]
    if not all(isinstance(points, (list, tuple)) and points for points in corners):
        return ["lower: [...], upper: [...]"]
    return [f"lower: {_flow(low)}, upper: {_flow(high)}" for low, high in zip(*corners, strict=False)]


def _flow(value: Any) -> str:
    """A list of points in a message, cut where it is long."""
    return show(write(value)) if not isinstance(value, str) else value


# ---------------------------------------------------------------------- errors, times, files


def _read_target(path: str, given: Any, kind: Any, context: Context) -> Formula | None:
    """Read what is wanted, if it is given; places are those of a field's values."""
    if given is None:
        return None
    known = context if kind.whole else dataclasses.replace(context, known=("t", *context.parameters))
    return read_formula(path, given, known)


def _check_errors(where: str, keys: Mapping[str, Any], problems: ConfigErrors) -> None:
    """Check that the size of the errors is given once; a file may hold it."""
    deviation, fraction, file = keys["deviation"], keys["fraction"], keys["file"]
    if deviation is not None and fraction is not None:
        shown = deviation if isinstance(deviation, str) else f"{deviation:g}"
        problems.say(where, f"{where}: deviation={shown} and fraction={fraction:g}: expected one of them")
    elif isinstance(deviation, str) and (file is None or _is_table(keys)):
        path = f"{where}.deviation"
        problems.add(path, deviation, "a number > 0; the name of a variable goes with a file of measurements")
    elif deviation is None and fraction is None and file is None:
        problems.say(
            f"{where}.deviation",
            f"{where}.deviation is missing: expected a number > 0 in the variable's units, or fraction, that of the "
            "measured values' root mean square",
        )


def _check_times(where: str, keys: Mapping[str, Any], time: TimeConfig | None, problems: ConfigErrors) -> None:
    times, every, path = keys["times"], keys["every"], f"{where}.every"
    if times is not None and every is not None:
        problems.say(where, f"{where}: times={list(times)} and every={every}: expected one of them")
    if keys["file"] is not None and every is not None:
        expected = "none with a file, whose coordinate time says when"
        problems.add(path, every, expected, "write times where it has no such coordinate")
    if time is None:
        return
    for i, when in enumerate(times or ()):
        if when > time.end:
            problems.add(f"{where}.times[{i}]", when, f"a time from 0 to time.end={time.end:g}")
    if isinstance(every, float) and every > time.end:
        # Once it was a count of frames.
        meant = every * time.output_every
        counted = every == int(every) and meant <= time.end * (1 + 1e-9)
        hint = f"it is a time, of {every:g} frames write every: {meant:g}" if counted else ""
        problems.add(path, every, f"a time up to time.end={time.end:g}", hint)


def _is_table(keys: Mapping[str, Any]) -> bool:
    return str(keys["file"]).lower().endswith(TABLE)


def _check_file(where: str, keys: Mapping[str, Any], kind: Any, problems: ConfigErrors) -> None:
    """Check that a table of readings, which has places and times of its own, goes with fields alone."""
    if not _is_table(keys):
        return
    if not kind.whole:
        expected = "no table of readings, as this output has places of its own"
        problems.add(f"{where}.file", keys["file"], expected, "write output: fields, or a file with one variable")
    for name in ("times", "variable", "mask", "member", "order"):
        if keys[name] is not None:
            problems.add(f"{where}.{name}", write(keys[name]), "none with a table of readings, whose columns tell it")


def _find_measurements(where: str, keys: Mapping[str, Any], context: Context) -> MeasuredFile | None:
    """Find the file of measurements of an observation, or None; what goes with a file alone is refused where there is
    none."""
    problems, file = context.problems, keys["file"]
    if file is None:
        for name in ("variable", "mask", "member", "order"):
            if keys[name] is not None:
                expected = "none without a file of measurements"
                problems.add(f"{where}.{name}", write(keys[name]), expected, "write file: PATH")
        return None
    if keys["target"] is not None:
        problems.say(where, f"{where}: target and file: expected one of them, as what is wanted is not measured")
    found = find_told(f"{where}.file", file, context, or_folder=True)
    if found is None:
        return None
    order = keys["order"]
    if order is not None and sorted(order) != list(context.axes):
        problems.add(f"{where}.order", list(order), f"the axes of the grid, such as {list(context.axes[::-1])}")
    named = keys["deviation"] if isinstance(keys["deviation"], str) else None
    return MeasuredFile(found, keys["variable"], keys["mask"], named, keys["member"], order)
