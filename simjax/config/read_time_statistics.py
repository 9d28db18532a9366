"""The section `statistics`: moments, extremes and Fourier integrals in time, of which variables, from when on and over
which axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.config.read_instruments import MOST_SAMPLES, check_end, read_every
from simjax.config.sections import Context
from simjax.schema.config import NAME, GridConfig, TimeConfig
from simjax.schema.config_errors import join
from simjax.schema.instruments import FRAME, STEP, Instruments
from simjax.schema.kinds import Choice, Integer, Kind, ListOf, Real, Text
from simjax.schema.time_statistics import (
    COVARIANCE,
    DEFAULT_KINDS,
    FOURIER,
    KINDS,
    PhaseConfig,
    StatisticsConfig,
    TimeStatistics,
)

KEYS = ("of", "kinds", "from", "every", "over", "window", "phase", "frequencies", "reference", "name")
PHASE = {"period": Real(above=0.0, formula=True), "bins": Integer(2, 10_000)}
RANGE = {"from": Real(low=0.0, formula=True), "to": Real(above=0.0, formula=True), "count": Integer(2, 10_000)}
QUANTITY = "quantities of the run, such as temperature, or the name of an instrument"
EXAMPLE = "such as {of: [velocity], kinds: [mean, variance], from: 2.0}"


def read_statistics(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> TimeStatistics | None:
    """The statistics in time; `keys`: all sections as written, `found`: what they were read as. None after telling why
    not."""
    problems, before = context.problems, len(context.problems)
    given = keys["statistics"] or ()
    if given:
        _check_run(keys, found, context)
        if not isinstance(found["outputs"], Instruments):  # what is wrong there is told, and names are not known
            return None
    read = [(f"statistics[{i}]", _read_one(f"statistics[{i}]", one, found, context)) for i, one in enumerate(given)]
    if len(problems) > before:
        return None
    outputs = found["outputs"] if isinstance(found["outputs"], Instruments) else ()
    return _named([(where, one) for where, one in read if one is not None], [one.name for one in outputs], context)


def _check_run(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> None:
    """The whole state is there after every step."""
    if keys["steps_per_exchange"] not in (0, None):
        context.problems.say(
            "statistics",
            f"statistics: expected steps_per_exchange=0, got {keys['steps_per_exchange']}, which leave no field whole "
            "between two exchanges; write steps_per_exchange=0",
        )


def _read_one(
    where: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> StatisticsConfig | None:
    problems, before = context.problems, len(context.problems)
    for key in value:
        if key not in KEYS:
            problems.unknown(where, key, KEYS)
    variables = context.schema.averaged(context.ndim, context.counts)
    written = variables or {}
    instruments = {one.name: one for one in found["outputs"]}
    known = Text(described=QUANTITY) if variables is None else Choice(tuple(dict.fromkeys((*written, *instruments))))
    if value.get("of") in (None, [], ()):
        path = join(where, "of")
        expected = QUANTITY if variables is None else f"variables or the name of an instrument, {EXAMPLE}"
        problems.say(path, f"{path} is missing: expected {expected}")
        of: tuple[str, ...] | None = None
    else:
        of = _names(join(where, "of"), value["of"], known, context)
    default = (FOURIER,) if value.get("frequencies") is not None else DEFAULT_KINDS
    kinds = _names(join(where, "kinds"), value.get("kinds", default), Choice(KINDS), context)
    frequencies = _read_frequencies(join(where, "frequencies"), value.get("frequencies"), kinds, context)
    over = value.get("over")
    over = () if over in (None, [], ()) else _names(join(where, "over"), over, Choice(tuple(context.axes)), context)
    start = Real(low=0.0, formula=True).read(join(where, "from"), value.get("from", 0.0), problems)
    every = read_every(join(where, "every"), value.get("every", STEP), problems)
    window = Real(above=0.0, formula=True, optional=True).read(join(where, "window"), value.get("window"), problems)
    phase = _read_phase(join(where, "phase"), value.get("phase"), context)
    name = ""
    if "name" in value:
        text = Text(pattern=NAME, described="a name of letters, digits, _ . -")
        name = text.read(join(where, "name"), value["name"], problems) or ""
    if len(problems) > before or of is None or kinds is None or over is None or start is None:
        return None
    named = [one for one in of if one in instruments and one not in written]
    if named and not _is_alone(where, named[0], of, over, context):
        return None
    if variables is None and over:
        problems.add(join(where, "over"), list(over), "no axes of particles", "leave over out")
        return None
    kinds = tuple(sorted(kinds, key=KINDS.index))
    reference = _read_reference(join(where, "reference"), value.get("reference"), frequencies, window, context)
    one = StatisticsConfig(
        name, of, kinds, start, every, tuple(sorted(over)), window, bool(named), phase, frequencies, reference
    )
    _check_times(where, one, found["time"], context)
    _check_stretched(where, one, found["grid"], context)
    _check_frequencies(where, one, context)
    if named:
        instrument = instruments[named[0]]
        # A balance has several numbers of each quantity.
        few = not instrument.kind_class.accounts and len(instrument.readings(written)) < 2
    elif variables is None:
        few = len(of) < 2
    else:
        few = len({variable for name in of for variable in written[name]}) < 2
    if COVARIANCE in kinds and few:
        expected = "at least two variables for kinds=covariance"
        problems.add(join(where, "of"), list(of), expected, "write variance for one")
    return one


def _read_phase(where: str, value: Any, context: Context) -> PhaseConfig | None:
    """A period and its parts; None where there is none, or after telling what is wrong."""
    problems, before = context.problems, len(context.problems)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        problems.add(where, value, "keys period and bins, such as {period: 0.5, bins: 16}, or null")
        return None
    found = _read_keys(where, value, PHASE, context)
    return PhaseConfig(**found) if len(problems) == before else None


def _read_keys(where: str, value: Mapping[str, Any], kinds: Mapping[str, Kind], context: Context) -> dict[str, Any]:
    """The values of keys that all have to be there; what is missing, unknown or wrong is told."""
    problems = context.problems
    for key in value:
        if key not in kinds:
            problems.unknown(where, key, tuple(kinds))
    for key in (key for key in kinds if key not in value):
        problems.say(join(where, key), f"{join(where, key)} is missing: expected {kinds[key].allowed}")
    return {key: kind.read(join(where, key), value[key], problems) for key, kind in kinds.items() if key in value}


def _read_frequencies(where: str, value: Any, kinds: tuple[str, ...] | None, context: Context) -> tuple[float, ...]:
    """Frequencies of Fourier integrals; none where none are given, or after telling what is wrong."""
    problems, before = context.problems, len(context.problems)
    if value is None:
        if kinds is not None and FOURIER in kinds:
            expected = "a list such as [0.5, 1.0], or {from: 0.5, to: 1.5, count: 21}, for kinds=fourier"
            problems.say(where, f"{where} is missing: expected {expected}")
        return ()
    if kinds is not None and FOURIER not in kinds:
        problems.say(where, f"{where}: expected fourier among kinds, got {', '.join(kinds)}; write kinds: [fourier]")
    if not isinstance(value, Mapping):
        read = ListOf(Real(low=0.0, formula=True), 1, 10_000, noun="frequencies").read(where, value, problems)
        return () if read is None else read
    found = _read_keys(where, value, RANGE, context)
    if len(problems) > before:
        return ()
    if found["to"] <= found["from"]:
        problems.add(join(where, "to"), found["to"], f"a frequency above from={found['from']:g}")
        return ()
    apart = (found["to"] - found["from"]) / (found["count"] - 1)
    return tuple(found["from"] + number * apart for number in range(found["count"]))


def _read_reference(
    where: str, value: Any, frequencies: tuple[float, ...], window: float | None, context: Context
) -> Mapping[str, Any] | None:
    """Values by key path of a reference run; None where there is none, or after telling what is wrong."""
    problems = context.problems
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value or not all(isinstance(path, str) for path in value):
        problems.add(where, value, "values by key path, such as {coefficients.permittivity: 1}, or null")
        return None
    if not frequencies:
        problems.say(where, f"{where}: expected frequencies beside it, as Fourier integrals alone are compared")
    if window is not None:
        problems.say(where, f"{where}: expected one set over the whole run beside it; leave window out")
    return dict(value)


def _check_frequencies(where: str, one: StatisticsConfig, context: Context) -> None:
    """Refuse what Fourier integrals have no sense with, or would have to guess at."""
    if not one.frequencies:
        return
    problems = context.problems
    if one.phase is not None:
        problems.say(join(where, "phase"), f"{join(where, 'phase')}: expected none beside frequencies; leave it out")
    largest = max(one.frequencies)
    if not isinstance(one.every, str) and largest * one.every >= 0.5:
        expected = f"frequencies below {0.5 / one.every:g}, of which each period has two samples in every={one.every:g}"
        problems.add(join(where, "frequencies"), largest, expected, "write every: step")


def _is_alone(where: str, instrument: str, of: tuple[str, ...], over: tuple[str, ...], context: Context) -> bool:
    """Tell of statistics of an instrument whether they are of nothing else, and over time alone."""
    before = len(context.problems)
    if len(of) > 1:
        path, expected = join(where, "of"), f"the instrument {instrument} alone, or variables"
        context.problems.add(path, list(of), expected, "write an entry of statistics for each instrument")
    if over:
        path, expected = join(where, "over"), f"no axes, as {instrument} is an instrument"
        context.problems.add(path, list(over), expected, "leave over out, or take the statistics of variables")
    return len(context.problems) == before


def _names(path: str, value: Any, choice: Kind, context: Context) -> tuple[str, ...] | None:
    """A name or a list of names, each once."""
    given = [value] if isinstance(value, str) else value
    read = ListOf(choice, 1, 100, noun="names").read(path, given, context.problems)
    return None if read is None else tuple(dict.fromkeys(read))


def _check_times(where: str, one: StatisticsConfig, time: TimeConfig | None, context: Context) -> None:
    """States count before the end, and windows end where frames do, at which all devices and members meet."""
    if time is None:
        return
    problems = context.problems
    if one.start >= time.end:
        problems.add(join(where, "from"), one.start, f"a time before time.end={time.end:g}")
    if time.dt is not None and not isinstance(one.every, str) and one.every < time.dt * (1 - 1e-9):
        hint = f"write every: {STEP} for each step, {FRAME} for frames"
        problems.add(join(where, "every"), one.every, f"at least time.dt={time.dt:g}", hint)
    elif not isinstance(one.every, str) and time.end / one.every > MOST_SAMPLES:
        problems.add(join(where, "every"), one.every, f"at most {MOST_SAMPLES} samples to time.end={time.end:g}")
    elif one.start < time.end:
        check_end(join(where, "every"), one.every, time, one.start, problems)
    if one.window is None:
        return
    for key, value in (("window", one.window), ("from", one.start)):
        count = value / time.output_every
        if abs(count - round(count)) > 1e-9 * max(1.0, count):
            expected = f"a multiple of time.output_every={time.output_every:g}, as windows end with a frame"
            problems.add(join(where, key), value, expected)


def _check_stretched(where: str, one: StatisticsConfig, grid: GridConfig | None, context: Context) -> None:
    if grid is not None and grid.axisymmetric and "x" in one.over:
        problem = "axes along which cells are of one size, and x is r, along which they grow"
        context.problems.add(join(where, "over"), list(one.over), problem, "leave x out")
    if grid is None or grid.stretch is None:
        return
    wrong = [axis for axis in one.over if getattr(grid.stretch, axis) is not None]
    if wrong:
        problem = f"axes with cells of one width, {wrong[0]} is stretched"
        context.problems.add(join(where, "over"), list(one.over), problem, f"leave {wrong[0]} out")


def _named(read: list[tuple[str, StatisticsConfig]], outputs: list[str], context: Context) -> TimeStatistics | None:
    """Each with a name that no other and no instrument has: "statistics", with a number from the second on."""
    before = len(context.problems)
    taken = [*outputs, *(one.name for _, one in read if one.name)]
    for where, one in read:
        if one.name and taken.count(one.name) > 1:
            context.problems.add(join(where, "name"), one.name, "a name that no other of statistics and outputs has")
    result, used = [], set(taken)
    for _, one in read:
        name, number = one.name or "statistics", 2
        while not one.name and name in used:
            name, number = f"statistics_{number}", number + 1
        used.add(name)
        result.append(dataclasses.replace(one, name=name))
    return TimeStatistics(result) if len(context.problems) == before else None
