"""Whole trajectories of runs of fields on one uniform grid: what files in other layouts are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import yaml

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.replacing import written_by_run
from simjax.io.saved_runs import Folders, SavedRun, Variable, saved_runs
from simjax.io.staggering import FACE, between_faces
from simjax.schema.locate import usable_path

PIECE_BYTES = 64 << 20
# Variables that files have beside fields on grids which are not uniform and Cartesian.
UNEVEN = ("bounds", "cell_area", "cell_volume")
# Share of the distance of two output times by which rounding may move them.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Box:
    """The grid of a run. name: of its experiment, or of its model. lines: cell centres along each axis, the slowest
    axis of the files first. sides: kinds of the lower and the upper side of each axis."""

    name: str
    lines: dict[str, np.ndarray]
    sides: dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Trajectories:
    """Trajectories that share a grid and times.

    rows: (run, row of the member in its files) of each. left_out: members that ended before their run. variables: those
    that were chosen, of the first run. constants, varied: parameters that are the same for all, and those that are not,
    a number for each trajectory.
    """

    box: Box
    runs: tuple[SavedRun, ...]
    rows: tuple[tuple[int, int], ...]
    left_out: tuple[str, ...]
    variables: tuple[Variable, ...]
    times: np.ndarray
    constants: dict[str, float]
    varied: dict[str, np.ndarray]

    @property
    def lines(self) -> dict[str, np.ndarray]:
        """Cell centres along each axis, the slowest axis of the files first."""
        return self.box.lines

    @property
    def shape(self) -> tuple[int, ...]:
        """Trajectories, states, and cells with the slowest axis first."""
        return len(self.rows), len(self.times), *(len(line) for line in self.lines.values())

    def pieces(self, variable: Variable) -> Iterator[tuple[int, slice, np.ndarray]]:
        """(trajectory, states, values at cell centres) of a variable, piece by piece."""
        states = max(1, PIECE_BYTES // (int(np.prod(variable.shape)) * variable.dtype.itemsize))
        for number, (n, row) in enumerate(self.rows):
            run = self.runs[n]
            with h5py.File(run.master, "r") as file:
                stored = file[run.variables[variable.name].path]
                assert isinstance(stored, h5py.Dataset)
                for start in range(0, len(self.times), states):
                    chosen = slice(start, start + states)
                    yield number, chosen, self._centred(stored[run.selected(row, chosen)], variable)

    def _centred(self, values: np.ndarray, variable: Variable) -> np.ndarray:
        for position, dim in enumerate(variable.space, start=1):
            axis = dim.removesuffix(FACE)
            if axis != dim:
                values = between_faces(values, position, len(self.lines[axis]), self.box.sides[axis][0] == "periodic")
        return values


def gathered(folders: Folders, fields: Sequence[str] | None) -> Trajectories:
    """The trajectories of runs, those of ensembles' members one by one.

    Raises:
        ConfigurationError: particles, grids that are stretched or around an axis, runs that differ in grid, sides or
            times, times that are not equally spaced, or no trajectory that went to the end.
        InputOutputError: a folder holds no run, or a file of it is missing or damaged.
    """
    runs = saved_runs(folders)
    boxes = [uniform_box(run) for run in runs]
    variables = tuple(runs[0].chosen(fields))
    for run, box in zip(runs, boxes, strict=True):
        _require_alike(runs[0], run, boxes[0], box)
        run.chosen([variable.name for variable in variables])
    for variable in variables:
        if {dim.removesuffix(FACE) for dim in variable.space} != {*boxes[0].lines}:
            raise ConfigurationError(f"fields: {variable.name!r} is no field on the grid; name fields alone.")
    places = [(n, row) for n, run in enumerate(runs) for row in range(len(run.frames))]
    whole = [(n, row) for n, row in places if runs[n].frames[row] == len(runs[n].times)]
    if not whole:
        raise ConfigurationError(f"runs: no trajectory went to its end, of {len(places)}; expected one or more.")
    names = [name for name in runs[0].parameters if all(name in run.parameters for run in runs)]
    numbers = {name: np.asarray([runs[n].parameters_of(row)[name] for n, row in whole]) for name in names}
    same = {name for name, values in numbers.items() if np.all(values == values[0])}
    return Trajectories(
        boxes[0],
        runs,
        tuple(whole),
        tuple(_named(runs[n], row) for n, row in places if (n, row) not in whole),
        variables,
        runs[0].times,
        {name: float(numbers[name][0]) for name in names if name in same},
        {name: numbers[name] for name in names if name not in same},
    )


def files_of(folders: Folders) -> list[Path]:
    """Files of runs, which are not to be replaced by what is made of them."""
    given = [folders] if isinstance(folders, (str, Path)) else folders
    return [path for folder in given for path in written_by_run(usable_path(folder, "runs"))]


def _named(run: SavedRun, row: int) -> str:
    return str(run.folder) if run.members is None else f"{run.folder}, member {run.members[row]}"


def uniform_box(run: SavedRun) -> Box:
    """The grid of a run, ConfigurationError where it is not uniform and Cartesian."""
    if run.ndim is not None:
        raise ConfigurationError(f"runs: {run.folder} holds particles; expected fields on a grid.")
    with h5py.File(run.master, "r") as file:
        if any(name in file for name in UNEVEN):
            raise ConfigurationError(
                f"runs: the grid of {run.folder} is stretched or around an axis; expected a uniform Cartesian one."
            )
        lines = {axis: np.asarray(file[axis]) for axis in reversed(AXES) if axis in file}
        config = yaml.safe_load(str(file.attrs["simjax_config_yaml"]))
    sides = {axis: config["boundaries"][axis] for axis in lines}
    kinds = {a: (s, s) if isinstance(s, str) else (s["lower"]["kind"], s["upper"]["kind"]) for a, s in sides.items()}
    return Box(config["experiment_name"] or config["model"], lines, kinds)


def _require_alike(first: SavedRun, run: SavedRun, expected: Box, box: Box) -> None:
    same = expected.lines.keys() == box.lines.keys()
    if not same or not all(np.array_equal(expected.lines[axis], box.lines[axis]) for axis in box.lines):
        raise ConfigurationError(
            f"runs: {run.folder} has {_cells(box)} cells and {first.folder} {_cells(expected)}; expected runs on one "
            "grid."
        )
    if box.sides != expected.sides:
        raise ConfigurationError(
            f"runs: the sides of {run.folder} are {_sides(box)}, those of {first.folder} {_sides(expected)}; expected "
            "the same."
        )
    if len(run.times) < 2:
        raise ConfigurationError(f"runs: {run.folder} has {len(run.times)} saved states; expected two or more.")
    step = run.times[1] - run.times[0]
    if np.any(np.abs(np.diff(run.times) - step) > ROUNDING * step):
        raise ConfigurationError(
            f"runs: the saved states of {run.folder} are not equally spaced in time; expected a run that went to a "
            "time.end which is a multiple of time.output_every."
        )
    if len(run.times) != len(first.times) or np.any(np.abs(run.times - first.times) > ROUNDING * step):
        raise ConfigurationError(
            f"runs: {run.folder} has {len(run.times)} states to t={run.times[-1]:g} and {first.folder} "
            f"{len(first.times)} to t={first.times[-1]:g}; expected runs with the same output times."
        )


def _sides(box: Box) -> str:
    return "; ".join(f"{axis}: {lower}, {upper}" for axis, (lower, upper) in sorted(box.sides.items()))


def _cells(box: Box) -> str:
    return " x ".join(str(len(line)) for line in reversed(box.lines.values()))


def described(trajectories: Trajectories, file: Path) -> str:
    """A sentence about a file that was written."""
    names = ", ".join(variable.name for variable in trajectories.variables)
    count, states = trajectories.shape[:2]
    said = f"{file}: {count} trajectories of {states} states on {_cells(trajectories.box)} cells: {names}"
    if trajectories.left_out:
        said += f"; left out, as they ended early: {'; '.join(trajectories.left_out)}"
    return said
