"""Readings of sensors from a table in a CSV file."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.schema.tables import csv_lines


@dataclass(frozen=True)
class Readings:
    """Measurements of one variable: m times at n positions.

    times: (m,) float64, increasing. positions: (n, axes) float64, in the order of the file. values: (m, n) float64,
    zero where nothing was measured. present: (m, n) bool, where something was. deviations: (m, n) float64 standard
    deviations, one where nothing was measured, or None if the file gives none.
    """

    times: np.ndarray
    positions: np.ndarray
    values: np.ndarray
    present: np.ndarray
    deviations: np.ndarray | None


@dataclass(frozen=True)
class Sensors:
    """Readings of a file, by variable; those of a file without a column "variable" have the name ""."""

    name: str
    readings: Mapping[str, Readings]

    def of(self, variable: str) -> Readings:
        """Readings of `variable`: of a file that names no variables, all there are."""
        if variable in self.readings:
            return self.readings[variable]
        if "" in self.readings:
            return self.readings[""]
        hint = _nearest(variable, self.readings) or f"it has those of {', '.join(sorted(self.readings))}."
        raise ConfigurationError(f"{self.name} has no readings of '{variable}'; {hint}")


class _Row(NamedTuple):
    """A reading, its place in the file and in space and time."""

    line: int
    variable: str
    time: float
    position: tuple[float, ...]
    value: float
    deviation: float


def read_sensors(path: str | Path, grid_axes: int) -> Sensors:
    """The readings in a CSV file.

    The first line names the columns, in any order: t, x (and y, z: as many as the grid has axes), value, and, where
    they are wanted, deviation (standard deviations) and variable (a name in each line). Every further line is a
    reading, in any order; lines that begin with # and empty lines are passed over. A sensor that failed has no line.
    Tables are filled for all times and positions of a variable, so sensors should share times.

    Args:
        path: of the file, in UTF-8.
        grid_axes: number of axes of the grid.

    Raises:
        InputOutputError: the file cannot be read.
        ConfigurationError: a column is missing or unknown; a line is too short or too long; a number is none or not
            finite; a deviation is not positive; two lines are of the same variable, time and position; no readings.
    """
    path = Path(path)
    lines = csv_lines(path, "a table of sensors", "leave out readings, or write fields to a NetCDF file")
    number, columns = next(lines, (1, []))
    if not columns:
        raise ConfigurationError(
            f"{path.name} is empty; write the columns {_wanted(grid_axes)} and a line per reading."
        )
    _check_columns(f"{path.name} line {number}", columns, grid_axes)
    rows: dict[tuple, _Row] = {}
    for number, cells in lines:
        row = _row(f"{path.name} line {number}", number, columns, cells, grid_axes)
        first = rows.setdefault((row.variable, row.time, row.position), row)
        if first is not row:
            raise ConfigurationError(
                f"{path.name} line {number} repeats variable, time and position of line {first.line}; write one "
                "reading of them."
            )
    if not rows:
        raise ConfigurationError(f"{path.name} has columns but no readings; write a line for each reading.")
    by_variable: dict[str, list[_Row]] = {}
    for row in rows.values():
        by_variable.setdefault(row.variable, []).append(row)
    given = "deviation" in columns
    return Sensors(path.name, {variable: _tabulate(some, given) for variable, some in by_variable.items()})


def _required(grid_axes: int) -> tuple[str, ...]:
    return ("t", *AXES[:grid_axes], "value")


def _wanted(grid_axes: int) -> str:
    return ",".join(_required(grid_axes))


def _check_columns(where: str, columns: Sequence[str], grid_axes: int) -> None:
    required = _required(grid_axes)
    known = (*required, "deviation", "variable")
    unknown = [name for name in columns if name not in known]
    for name in required:
        if name not in columns:
            close = difflib.get_close_matches(name, unknown, n=1, cutoff=0.5)
            hint = f"rename '{close[0]}'" if close else f"write {_wanted(grid_axes)}"
            raise ConfigurationError(f"{where} has no column '{name}'; {hint}.")
    if unknown:
        hint = _nearest(unknown[0], known) or f"write {', '.join(known[:-1])} or {known[-1]}."
        raise ConfigurationError(f"{where} has an unknown column '{unknown[0]}'; {hint}")
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"{where} has the column '{twice}' twice; remove one.")


def _nearest(name: str, names) -> str:
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.7)
    return f"did you mean '{close[0]}'?" if close else ""


def _row(where: str, line: int, columns: Sequence[str], cells: Sequence[str], grid_axes: int) -> _Row:
    if len(cells) != len(columns):
        raise ConfigurationError(
            f"{where} has {len(cells)} cells for {len(columns)} columns; write one for each column."
        )
    named = dict(zip(columns, cells, strict=True))
    if named.get("variable") == "":
        raise ConfigurationError(f"{where}, column 'variable' is empty; write the name of a variable.")
    deviation = _number(where, named, "deviation") if "deviation" in named else 1.0
    if deviation <= 0:
        raise ConfigurationError(
            f"{where}, column 'deviation': {deviation:g} is not positive; write a standard deviation."
        )
    position = tuple(_number(where, named, axis) for axis in AXES[:grid_axes])
    time, value = _number(where, named, "t"), _number(where, named, "value")
    return _Row(line, named.get("variable", ""), time, position, value, deviation)


def _number(where: str, named: Mapping[str, str], column: str) -> float:
    try:
        number = float(named[column])
    except ValueError:
        raise ConfigurationError(f"{where}, column '{column}': '{named[column]}' is not a number; write one.") from None
    if not math.isfinite(number):
        raise ConfigurationError(f"{where}, column '{column}': {named[column]} is not finite; leave the line out.")
    return number


def _tabulate(rows: Sequence[_Row], given: bool) -> Readings:
    """Rows of one variable as tables of times and positions; `given`: whether the file has deviations."""
    times = sorted({row.time for row in rows})
    moments = {time: k for k, time in enumerate(times)}
    places: dict[tuple[float, ...], int] = {}
    for row in rows:
        places.setdefault(row.position, len(places))
    index = [moments[row.time] for row in rows], [places[row.position] for row in rows]
    values, deviations = np.zeros((len(times), len(places))), np.ones((len(times), len(places)))
    present = np.zeros(values.shape, bool)
    values[index], deviations[index] = [row.value for row in rows], [row.deviation for row in rows]
    present[index] = True
    return Readings(np.asarray(times), np.asarray(list(places)), values, present, deviations if given else None)
