"""Runs as they are on the disk, without their fields: variables and shapes, times, members and what varied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import h5py
import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.h5md import TRAJECTORY
from simjax.schema.config_errors import closest

Folders = str | Path | Sequence[str | Path]
"""Folders of runs, or that of one."""
# Dimensions of numbers over time, such as diagnostics.
PLAIN = ("member", "time")


@dataclass(frozen=True)
class Variable:
    """A variable with a value at every saved time. path: in the file. shape: without members and times, the slowest
    axis first, as in the file. vector, component: of which vector it is which component, "" and 0 of none."""

    name: str
    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    units: str
    vector: str
    component: int

    @property
    def space(self) -> tuple[str, ...]:
        """Dimensions along which a state extends, those of `shape`."""
        return tuple(dim for dim in self.dims if dim not in PLAIN)


@dataclass(frozen=True)
class SavedRun:
    """A run as it is on the disk.

    master: the file that shows all saved states. times: of these. members: numbers of the ensemble's members, None
    where it is none. frames: of each member, the states before it failed. parameters: numbers, or one
    for each member. ndim: axes of the box of particles, which files fill up to three; None for fields.
    """

    folder: Path
    master: Path
    variables: dict[str, Variable]
    times: np.ndarray
    members: np.ndarray | None
    frames: np.ndarray
    parameters: dict[str, np.ndarray]
    ndim: int | None

    def parameters_of(self, row: int) -> dict[str, np.float64]:
        """The numbers of the member in row `row`, by name."""
        return {name: np.float64(value[row] if value.ndim else value) for name, value in self.parameters.items()}

    def selected(self, row: int, states: slice) -> tuple[int | slice, ...]:
        """The index of some states of the member in row `row`, in any variable."""
        return (states,) if self.members is None else (row, states)

    def chosen(self, fields: Sequence[str] | None) -> list[Variable]:
        """The variables of these names; None: all that extend in space or over particles.

        Raises ConfigurationError for a name that the files do not have.
        """
        if fields is None:
            return [variable for variable in self.variables.values() if variable.space]
        for name in fields:
            if name not in self.variables:
                close = closest(name, self.variables)
                hint = f"did you mean {close!r}?" if close else f"it has {', '.join(self.variables)}."
                raise ConfigurationError(f"fields: {self.folder} has no variable {name!r}; {hint}")
        return [self.variables[name] for name in fields]


def saved_runs(folders: Folders) -> tuple[SavedRun, ...]:
    """The runs in these folders.

    Raises:
        ConfigurationError: there is no folder.
        InputOutputError: a folder holds no run, or a file of it is missing or damaged.
    """
    given = [folders] if isinstance(folders, (str, Path)) else list(folders)
    if not given:
        raise ConfigurationError("runs: expected folders of runs, got none; write such as ['outputs/fluid/RUN'].")
    return tuple(saved_run(Path(folder)) for folder in given)


def saved_run(folder: Path) -> SavedRun:
    """The run in a folder; fields are not read."""
    from simjax.io.read import require_readable  # loads orbax, which workers that read windows do without

    master = require_readable(folder)
    with h5py.File(master, "r") as file:
        of_trajectory = TRAJECTORY in file
        members = np.asarray(file["member"]) if "member" in file else None
        found = [_variable(*named) for named in _datasets(file)]
        variables = {v.name: v for v in found if "time" in v.dims and ("member" in v.dims) == (members is not None)}
        times = np.asarray(file[f"{TRAJECTORY}/time" if of_trajectory else "time"])
        box = file.attrs.get("simjax_box_lower")
        return SavedRun(
            folder,
            master,
            variables,
            times,
            members,
            _frames(file, variables.values(), len(times), members),
            _parameters(file, variables.values()),
            None if box is None else len(np.asarray(box)),
        )


def _datasets(file: h5py.File) -> Iterable[tuple[str, h5py.Dataset]]:
    """Name and dataset of everything in a file that may have a value at every saved time."""
    for name, item in file.items():
        if isinstance(item, h5py.Dataset) and name not in (*PLAIN, "step"):
            yield name, item
    for parent in (TRAJECTORY, "observables"):
        group = file.get(parent)
        for name, item in group.items() if isinstance(group, h5py.Group) else ():
            values = item.get("value") if isinstance(item, h5py.Group) else None
            if isinstance(values, h5py.Dataset):
                yield name, values


def _variable(name: str, dataset: h5py.Dataset) -> Variable:
    scales = [dataset.dims[axis] for axis in range(dataset.ndim)]
    dims = tuple(PurePosixPath(str(scale[0].name)).name if len(scale) else "" for scale in scales)
    shape = tuple(size for size, dim in zip(dataset.shape, dims, strict=True) if dim not in PLAIN)
    about = dataset.attrs
    return Variable(
        name,
        str(dataset.name),
        dims,
        shape,
        dataset.dtype,
        str(about.get("units", "1")),
        str(about.get("vector", "")),
        int(np.asarray(about.get("component", 0))),
    )


def _frames(file: h5py.File, variables: Iterable[Variable], total: int, members: np.ndarray | None) -> np.ndarray:
    """Saved states of each member before the first one at which no diagnostic is known, as it had failed."""
    diagnostics = [np.atleast_2d(np.asarray(file[v.path])) for v in variables if not v.space]
    rows = 1 if members is None else len(members)
    known = np.any([~np.isnan(u) for u in diagnostics], axis=0) if diagnostics else np.ones((rows, total), bool)
    return np.where(known.all(axis=1), total, np.argmin(known, axis=1) if total else 0)


def _parameters(file: h5py.File, variables: Iterable[Variable]) -> dict[str, np.ndarray]:
    """The numbers that variables name as their coordinates."""
    names = next((str(file[v.path].attrs.get("coordinates", "")).split() for v in variables), [])
    group = "parameters/" if TRAJECTORY in file else ""
    return {name: np.asarray(file[group + name], np.float64) for name in names}
