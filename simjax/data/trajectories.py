"""Whole trajectories of runs of fields on one uniform grid, at cell centres: what files in other layouts are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from simjax.data.runs import Folders, SavedRun, Variable, saved_runs
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.staggering import FACE, between_faces
from simjax.schema.config import Config

PIECE_BYTES = 64 << 20
# Variables that files have beside fields on grids which are not uniform and Cartesian.
UNEVEN = ("bounds", "cell_area", "cell_volume")
# Share of the distance of two output times by which rounding may move them.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Trajectories:
    """Trajectories that share a grid and times.

    name: of the first run's experiment, or of its model. rows: (run, row of the member in its files) of each. left_out: members that ended before the run. variables: those
    chosen, of the first run. times: of all. lines: cell centres along each axis, the slowest axis of the files first.
    sides: kinds of the sides of each axis, lower and upper. constants, varied: parameters that are the same for all, and
    those that are not, a number for each trajectory.
    """

    name: str
    runs: tuple[SavedRun, ...]
    rows: tuple[tuple[int, int], ...]
    left_out: tuple[str, ...]
    variables: tuple[Variable, ...]
    times: np.ndarray
    lines: dict[str, np.ndarray]
    sides: dict[str, tuple[str, str]]
    constants: dict[str, float]
    varied: dict[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Trajectories, states, and cells with the slowest axis first."""
        return len(self.rows), len(self.times), *(len(line) for line in self.lines.values())

    def pieces(self, variable: Variable) -> Iterator[tuple[int, slice, np.ndarray]]:
        """(trajectory, states, values at cell centres) of a variable, piece by piece."""
        states = max(1, PIECE_BYTES // (int(np.prod(variable.shape)) * variable.dtype.itemsize))
        for number, (run, row) in enumerate(self.rows):
            with h5py.File(self.runs[run].master, "r") as file:
                stored = file[variable.path]
                assert isinstance(stored, h5py.Dataset)
                for start in range(0, len(self.times), states):
                    chosen = slice(start, start + states)
                    own = (row, chosen) if "member" in variable.dims else (chosen,)
                    yield number, chosen, self._centred(stored[own], variable)

    def _centred(self, values: np.ndarray, variable: Variable) -> np.ndarray:
        for position, dim in enumerate(variable.space, start=1):
            axis = dim.removesuffix(FACE)
            if axis != dim:
                values = between_faces(values, position, len(self.lines[axis]), self.sides[axis][0] == "periodic")
        return values


def gathered(folders: Folders, fields: Sequence[str] | None) -> Trajectories:
    """The trajectories of runs, those of ensembles' members one by one.

    Raises:
        ConfigurationError: particles, grids that are stretched or around an axis, runs that differ in grid, sides or
            times, times that are not equally spaced, or no trajectory that went to the end.
        InputOutputError: a folder holds no run, or a file of it is missing or damaged.
    """
    runs = saved_runs(folders)
    variables = tuple(runs[0].chosen(fields))
    lines = [_lines(run) for run in runs]
    configs = [_config(run) for run in runs]
    sides = [_sides(config) for config in configs]
    for run, own_lines, own_sides in zip(runs, lines, sides, strict=True):
        _require_alike(runs[0], run, lines[0], own_lines)
        run.chosen([variable.name for variable in variables])
        if own_sides != sides[0]:
            raise ConfigurationError(f"runs: {run.folder} has the sides {own_sides}, {runs[0].folder} {sides[0]}.")
    for variable in variables:
        if {dim.removesuffix(FACE) for dim in variable.space} != {*lines[0]}:
            raise ConfigurationError(f"fields: {variable.name!r} is no field on the grid; name fields alone.")
    places = [(n, row) for n, run in enumerate(runs) for row in range(len(run.frames))]
    whole = [(n, row) for n, row in places if runs[n].frames[row] == len(runs[n].times)]
    left_out = [_named(runs[n], row) for n, row in places if (n, row) not in whole]
    if not whole:
        raise ConfigurationError(f"runs: no trajectory went to its end, of {len(places)}; expected one or more.")
    names = [name for name in runs[0].parameters if all(name in run.parameters for run in runs)]
    numbers = {name: np.asarray([runs[n].parameters_of(row)[name] for n, row in whole]) for name in names}
    same = {name for name, values in numbers.items() if np.all(values == values[0])}
    return Trajectories(
        configs[0].experiment_name or configs[0].model, runs, tuple(whole), tuple(left_out), variables, runs[0].times, lines[0], sides[0],
        {name: float(numbers[name][0]) for name in names if name in same},
        {name: numbers[name] for name in names if name not in same},
    )  # fmt: skip


def _lines(run: SavedRun) -> dict[str, np.ndarray]:
    if run.ndim is not None:
        raise ConfigurationError(f"runs: {run.folder} holds particles; expected fields on a grid.")
    with h5py.File(run.master, "r") as file:
        if any(name in file for name in UNEVEN):
            raise ConfigurationError(
                f"runs: the grid of {run.folder} is stretched or around an axis; expected a uniform Cartesian one, which "
                "these layouts are made for."
            )
        return {axis: np.asarray(file[axis]) for axis in reversed(AXES) if axis in file}


def _named(run: SavedRun, row: int) -> str:
    return str(run.folder) if run.members is None else f"{run.folder}, member {run.members[row]}"


def _config(run: SavedRun) -> Config:
    from simjax.config.composition import compose_from_run

    file = run.folder / ".hydra" / "config.yaml"
    if not file.is_file():
        raise ConfigurationError(f"{file} is missing, which says what the sides are; bring it back from a copy.")
    return compose_from_run(file).config()


def _sides(config: Config) -> dict[str, tuple[str, str]]:
    return {axis: (pair.lower.kind, pair.upper.kind) for axis, pair in zip(AXES, config.boundaries, strict=False)}


def _require_alike(first: SavedRun, run: SavedRun, expected: dict, lines: dict) -> None:
    same = expected.keys() == lines.keys() and all(np.array_equal(expected[axis], lines[axis]) for axis in lines)
    if not same:
        cells = [" x ".join(str(len(line)) for line in reversed(own.values())) for own in (lines, expected)]
        raise ConfigurationError(
            f"runs: {run.folder} has {cells[0]} cells and {first.folder} {cells[1]}; expected runs on one grid."
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


def described(trajectories: Trajectories, file: Path) -> str:
    """What a file holds, in a sentence for whoever wrote it."""
    names = ", ".join(variable.name for variable in trajectories.variables)
    cells = " x ".join(str(len(line)) for line in reversed(trajectories.lines.values()))
    said = f"{file}: {len(trajectories.rows)} trajectories of {len(trajectories.times)} states on {cells} cells: {names}"
    if trajectories.left_out:
        said += f"; left out, as they ended early: {'; '.join(trajectories.left_out)}"
    return said
