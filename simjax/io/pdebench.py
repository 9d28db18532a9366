"""The layout of PDEBench: HDF5 files of samples, of which `FNODatasetSingle` and others read those described below.

Takamoto et al. 2022, PDEBench: an extensive benchmark for scientific machine learning, NeurIPS;
https://github.com/pdebench/PDEBench.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.replacing import DATA, DATA_LAYOUTS, LAYOUT_ATTRIBUTE, require_replaceable
from simjax.io.saved_runs import Folders, Variable
from simjax.io.whole_trajectories import Trajectories, files_of, gathered

# What the sets of compressible flow call the variables of a gas; all of a run's dimensions are needed.
OF_GAS = {"density": "density", "pressure": "pressure", "velocity_x": "Vx", "velocity_y": "Vy", "velocity_z": "Vz"}
SINGLE = np.dtype("f4")


def write_pdebench(runs: Folders, file: Path, fields: Sequence[str] | None = None) -> Trajectories:
    """Write trajectories of runs as one file in the layout of PDEBench.

    Density, pressure and all velocities become the datasets `density`, `pressure`, `Vx`, ... `(b, t, x, y, z)`, as of
    its compressible flows. Other fields become `tensor`: one field in one dimension `(b, t, x)`, else
    `(b, t, x, y, z, v)` with the names of the variables as the attribute `variables`. Coordinates of cell centres and
    times are `x-coordinate`, ..., `t-coordinate`. Parameters that are the same in all trajectories are attributes of
    the file, others datasets `(b,)`. All is copied, in single precision, as axes stand in another order than in a run.

    Args:
        runs: folders of runs of fields on the same uniform grid with the same output times, or one of them.
        file: what is written; folders above it are made.
        fields: names of fields; None: all.

    Returns:
        What was written.

    Raises:
        ConfigurationError: runs do not fit together or into the layout, or the file is there and is no such data.
        InputOutputError: a run cannot be read, or the file not written.
    """
    require_replaceable(file, DATA, f"file={file}", files_of(runs))
    trajectories = gathered(runs, fields)
    samples, states, *cells = trajectories.shape
    shape = samples, states, *reversed(cells)
    variables = trajectories.variables
    file.parent.mkdir(parents=True, exist_ok=True)
    with replaced(file) as path, new_hdf5(path) as made:
        made.attrs[LAYOUT_ATTRIBUTE] = DATA_LAYOUTS[1]
        for name, value in trajectories.constants.items():
            made.attrs[name] = value
        for name, values in {"t": trajectories.times, **trajectories.lines}.items():
            made.create_dataset(f"{name}-coordinate", data=values, dtype=SINGLE)
        for name, values in trajectories.varied.items():
            made.create_dataset(name, data=values, dtype=SINGLE)
        if _are_of_gas(variables, len(cells)):
            placed = [(made.create_dataset(OF_GAS[v.name], shape, SINGLE), ()) for v in variables]
        elif len(cells) == len(variables) == 1:
            placed = [(made.create_dataset("tensor", shape, SINGLE), ())]
        else:
            tensor = made.create_dataset("tensor", (*shape, len(variables)), SINGLE)
            tensor.attrs["variables"] = [variable.name for variable in variables]
            placed = [(tensor, (..., number)) for number in range(len(variables))]
        for variable, (dataset, place) in zip(variables, placed, strict=True):
            for number, own, values in trajectories.pieces(variable):
                dataset[(number, own, *place)] = values.transpose(0, *range(values.ndim - 1, 0, -1))
    return trajectories


def _are_of_gas(variables: Sequence[Variable], ndim: int) -> bool:
    return sorted(variable.name for variable in variables) == sorted([*OF_GAS][: 2 + ndim])
