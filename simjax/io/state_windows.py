"""Windows of saved states of many runs, read one by one in any order: a source of Grain."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.coarse import coarsened, require_divisible
from simjax.io.saved_runs import Folders, SavedRun, Variable, saved_runs

# Files that are open at once, segments included: a quarter of what Linux lets a process have by default.
MOST_OPEN = 256


@dataclass(frozen=True)
class Place:
    """The place of a window: the run's folder, the member's number (None: no ensemble), the numbers of its states."""

    folder: Path
    member: int | None
    states: range


class TrajectoryWindows:
    """Windows of saved states: `windows[i]` is one window of one member of one run, as a dictionary of arrays.

    A field has the shape `(length, x, y, z)`, a vector of particles `(length, axes, particles)` with particles in the
    order of their numbers: the order of axes that the solver and `differentiable` have, not that of the files. `time`
    has `(length,)`, and every parameter that all runs have is a number, such as the member's viscosity. Units are
    those of the files.

    It is a `grain.sources.RandomAccessDataSource`. Nothing of the fields is read before a window is asked for; files
    are opened then, by each process for itself. States after a member failed are in no window.

    Args:
        runs: folders of runs with the same variables on the same grid, or one of them.
        fields: names of variables, diagnostics among them; None: all fields, or all that particles have.
        length: states of a window.
        stride: saved states between the beginnings of two windows.
        every: distance of the states of a window; 1 takes each saved one.
        since: the first simulated time of a window; None: the beginning of each run.
        coarsen: cells along each axis that are joined to one of a coarser grid: windows then have means over cells,
            and over faces where a field lies on them, so that fluxes and the divergence of a velocity are kept.
        in_memory: whether everything is read at once and kept, on the coarser grid; otherwise windows are read from
            files when they are asked for.
        members: numbers of the members of ensembles that are taken, such as `range(48)`; None: all.

    Raises:
        ConfigurationError: an argument is none, runs do not fit together, or no run is long enough.
        InputOutputError: a folder holds no run, or a file of it is missing or damaged.

    Examples:
        >>> few = ["grid.shape=[32]", "output.report=false", "output.animation=false"]
        >>> folder = sj.load("sod", few).run().folder
        >>> windows = sj.TrajectoryWindows([folder], ["density", "pressure"], length=3)
        >>> windows[0]["density"].shape, windows[0]["time"].shape
        ((3, 32), (3,))
    """

    def __init__(
        self,
        runs: Folders,
        fields: Sequence[str] | None = None,
        *,
        length: int,
        stride: int = 1,
        every: int = 1,
        since: float | None = None,
        members: Sequence[int] | None = None,
        coarsen: int = 1,
        in_memory: bool = False,
    ):
        counts = {"length": length, "stride": stride, "every": every}
        for name, value in {**counts, "coarsen": coarsen}.items():
            if not isinstance(value, int) or value < 1:
                unit = "saved states" if name in counts else "cells"
                raise ConfigurationError(f"{name}={value!r}: expected a whole number of {unit}, 1 or more.")
        if isinstance(fields, str):
            raise ConfigurationError(f"fields={fields!r}: expected a list of names; write [{fields!r}].")
        self._runs = saved_runs(runs)
        self._variables = _alike(self._runs, fields)
        self._parameters = [n for n in self._runs[0].parameters if all(n in run.parameters for run in self._runs)]
        self._length, self._stride, self._every = length, stride, every
        self._rows = _rows(self._runs, members)
        self._firsts = [0 if since is None else int(np.searchsorted(run.times, since)) for run in self._runs]
        span = (length - 1) * every + 1
        states = [max(0, int(self._runs[run].frames[row]) - self._firsts[run]) for run, row in self._rows]
        self._ends = np.cumsum([max(0, (count - span) // stride + 1) for count in states])
        if not len(self):
            after = "" if since is None else f" from t = {since:g} on"
            raise ConfigurationError(
                f"length={length}, every={every}: expected a run with {span} saved states or more{after}, the longest "
                f"has {max(states)}; take shorter windows, or save more often (time.output_every)."
            )
        self._coarsen = coarsen
        for run in self._runs if coarsen > 1 else ():
            require_divisible(run, coarsen)
        self._begin_reading()
        self._kept = {(n, row): self._whole(n, row) for n, row in self._rows} if in_memory else None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the variables that a window has beside `time` and `parameters`."""
        return tuple(variable.name for variable in self._variables[0])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the numbers that a window has."""
        return tuple(self._parameters)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return (
            f"TrajectoryWindows({[str(run.folder) for run in self._runs]}, {list(self.fields)}, length={self._length}, "
            f"stride={self._stride}, every={self._every}, coarsen={self._coarsen}, windows={len(self)})"
        )

    def place(self, index: int) -> Place:
        """The place that window `index` is taken from."""
        run, row, states = self._find(index)
        members = self._runs[run].members
        return Place(self._runs[run].folder, None if members is None else int(members[row]), states)

    def __getitem__(self, index: int) -> dict[str, Any]:
        number, row, states = self._find(index)
        run = self._runs[number]
        if self._kept is None:
            sample: dict[str, Any] = {v.name: self._state(number, v, row, states) for v in self._variables[number]}
        else:
            sample = {name: values[_slice(states)] for name, values in self._kept[number, row].items()}
        numbers = run.parameters_of(row)
        return sample | {"time": run.times[_slice(states)], **{name: numbers[name] for name in self._parameters}}

    def _find(self, index: int) -> tuple[int, int, range]:
        """The run, the row of the member in its files, and the states of a window."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index}: expected a number below {len(self)}.")
        index = index % len(self)
        at = int(np.searchsorted(self._ends, index, side="right"))
        within = index - (int(self._ends[at - 1]) if at else 0)
        first = self._firsts[self._rows[at][0]] + within * self._stride
        return *self._rows[at], range(first, first + (self._length - 1) * self._every + 1, self._every)

    # -- files

    def _begin_reading(self) -> None:
        # Grain reads from several threads; a file that one of them reads must not be closed by another.
        self._lock = threading.Lock()
        self._open: OrderedDict[int, tuple[h5py.File, dict[str, h5py.Dataset], int]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin_reading()

    def _whole(self, number: int, row: int) -> dict[str, np.ndarray]:
        """All states of a member, piece by piece, so that those of the fine grid are never in memory together."""
        states = int(self._runs[number].frames[row])
        whole: dict[str, np.ndarray] = {}
        for variable in self._variables[number]:
            each = (self._state(number, variable, row, range(k, k + 1)) for k in range(states))
            whole[variable.name] = np.concatenate([*each])
        return whole

    def _state(self, number: int, variable: Variable, row: int, states: range) -> np.ndarray:
        """Values of a variable in the solver's order of axes, on the coarser grid."""
        values = self._read(number, variable, row, states)
        if self._coarsen > 1:
            values = coarsened(values, variable.space, self._coarsen)
        return _in_order(values, self._runs[number], variable)

    def _read(self, number: int, variable: Variable, row: int, states: range) -> np.ndarray:
        """Values as they lie in the file; InputOutputError where there are none."""
        master = self._runs[number].master
        chosen = self._runs[number].selected(row, _slice(states))
        try:
            with self._lock:
                values = self._opened(number)[variable.name][chosen]
        except (OSError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise InputOutputError(
                f"{master}: {variable.name!r} cannot be read ({reason}); sj.check_files({str(master.parent)!r}) names "
                "what is damaged or missing."
            ) from error
        if _has_lost_states(values):
            raise InputOutputError(
                f"{master}: states {states.start} to {states[-1]} of {variable.name!r} are not there any more: the "
                "run's files have been replaced or removed since; make the windows anew."
            )
        return values

    def _opened(self, number: int) -> dict[str, h5py.Dataset]:
        """The datasets of a run, whose files stay open while there are not too many."""
        if number not in self._open:
            file = h5py.File(self._runs[number].master, "r")
            datasets: dict[str, Any] = {v.name: file[v.path] for v in self._variables[number]}
            files = {s.file_name for u in datasets.values() if u.is_virtual for s in u.virtual_sources()}
            self._open[number] = file, datasets, 1 + len(files)
        self._open.move_to_end(number)
        while len(self._open) > 1 and sum(files for _, _, files in self._open.values()) > MOST_OPEN:
            _, (file, _, _) = self._open.popitem(last=False)
            file.close()
        return self._open[number][1]


def _alike(runs: Sequence[SavedRun], fields: Sequence[str] | None) -> list[list[Variable]]:
    """The chosen variables of each run; ConfigurationError where they cannot stand in one batch."""
    first = runs[0].chosen(fields)
    if not first:
        raise ConfigurationError(
            f"fields: {runs[0].folder} has no fields, only diagnostics; name some of {', '.join(runs[0].variables)}."
        )
    chosen = [first, *(run.chosen([variable.name for variable in first]) for run in runs[1:])]
    for run, variables in zip(runs, chosen, strict=True):
        for variable, like in zip(variables, first, strict=True):
            own, expected = (variable.shape, variable.dtype), (like.shape, like.dtype)
            if own != expected:
                raise ConfigurationError(
                    f"runs: {variable.name!r} is {own[1]} of shape {own[0]} in {run.folder} and {expected[1]} of "
                    f"{expected[0]} in {runs[0].folder}; expected runs on one grid, in one precision."
                )
    return chosen


def _rows(runs: Sequence[SavedRun], members: Sequence[int] | None) -> list[tuple[int, int]]:
    """(run, row) of every trajectory that is taken."""
    taken = None if members is None else {*members}
    rows = []
    for number, run in enumerate(runs):
        if taken is not None and run.members is None:
            raise ConfigurationError(f"members: {run.folder} is no ensemble; leave out members, or that run.")
        own = range(1) if run.members is None else range(len(run.members))
        rows += [(number, row) for row in own if taken is None or run.members is None or run.members[row] in taken]
    if not rows:
        raise ConfigurationError(f"members={members}: expected numbers of members that the runs have.")
    return rows


def _slice(states: range) -> slice:
    return slice(states.start, states.stop, states.step)


def _in_order(values: np.ndarray, run: SavedRun, variable: Variable) -> np.ndarray:
    """Values with axes as the solver has them: the reverse of the file's, without those that fill up a plane."""
    if run.ndim is not None and "space" in variable.dims:
        values = values[..., : run.ndim]
    return values.transpose(0, *range(values.ndim - 1, 0, -1))


def _has_lost_states(values: np.ndarray) -> bool:
    """Tell whether a state is NaN throughout, as HDF5 shows what a missing segment held."""
    if values.dtype.kind != "f" or not np.isnan(values[(slice(None), *(0,) * (values.ndim - 1))]).any():
        return False
    return bool(np.isnan(values).reshape(len(values), -1).all(axis=1).any())
