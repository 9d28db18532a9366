"""The layout of The Well: HDF5 files of trajectories, which `the_well` reads for training.

Ohana et al. 2024, The Well: a large-scale collection of diverse physics simulations for machine learning, NeurIPS;
https://github.com/PolymathicAI/the_well, docs/data_format.md. Axes stand in the order of a run's files, the slowest
first: a field in the plane is (trajectory, time, y, x), and so are `spatial_dims` and the components of vectors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.files import new_hdf5, replaced
from simjax.io.frame_layout import FILLED_BYTES
from simjax.io.replacing import DATA, DATA_LAYOUTS, LAYOUT_ATTRIBUTE, require_replaceable
from simjax.io.saved_runs import Folders, SavedRun, Variable
from simjax.io.whole_trajectories import Trajectories, files_of, gathered
from simjax.schema.side_declarations import declared_sides

SINGLE = np.dtype("f4")

Placed = Sequence[tuple[tuple[Any, ...], Variable]]
"""Components of a field, with the end of the index at which each stands in it."""


def write_well(
    runs: Folders, file: Path, fields: Sequence[str] | None = None, *, name: str | None = None, copy: bool = True
) -> Trajectories:
    """Write trajectories of runs as one file in the layout of The Well.

    Vectors whose components are all there become `t1_fields`, other fields `t0_fields`, both in single precision and at
    cell centres: a field on faces is averaged, to second order. Parameters that are the same in all trajectories are
    attributes and scalars, others scalars that vary between samples. Members that ended early are left out.

    Args:
        runs: folders of runs of fields on the same uniform grid with the same output times, or one of them.
        file: what is written, such as `data/train/flow.hdf5`; folders above it are made.
        fields: names of fields; None: all.
        name: of the data; None: that of the experiment of the first run.
        copy: False: fields at cell centres stay where they are, and the file shows them by their paths. The reader of
            The Well reads NaN from such a file, or crashes; those that open it by its name read it.

    Returns:
        What was written.

    Raises:
        ConfigurationError: runs do not fit together or into the layout, one has a side that no imported module
            declares, or the file is there and is no such data.
        InputOutputError: a run cannot be read, or the file not written.
    """
    require_replaceable(file, DATA, f"file={file}", files_of(runs))
    trajectories = gathered(runs, fields)
    if file.suffix not in (".h5", ".hdf5"):
        raise ConfigurationError(f"file={file}: expected a name that ends in .hdf5 or .h5, which readers look for.")
    file.parent.mkdir(parents=True, exist_ok=True)
    with replaced(file) as path, new_hdf5(path) as made:
        made.attrs[LAYOUT_ATTRIBUTE] = DATA_LAYOUTS[0]
        _write_head(made, trajectories, name or trajectories.box.name)
        _write_dimensions(made.create_group("dimensions"), trajectories)
        _write_sides(made.create_group("boundary_conditions"), trajectories)
        _write_scalars(made.create_group("scalars"), trajectories)
        vectors, scalars = _by_order(trajectories)
        for order, named in enumerate((scalars, vectors, {})):
            group = made.create_group(f"t{order}_fields")
            group.attrs["field_names"] = _texts(named)
            for field_name, parts in named.items():
                places = [()] if order == 0 else [(..., number) for number in range(len(parts))]
                placed = [*zip(places, parts, strict=True)]
                shape = (*trajectories.shape, *(len(parts),) * order)
                if copy or any(part.space != tuple(trajectories.lines) for part in parts):
                    dataset = _copied(group, field_name, shape, trajectories, placed)
                else:
                    dataset = _shown(group, field_name, shape, trajectories, placed, file.parent)
                dataset.attrs["dim_varying"] = np.ones(len(trajectories.lines), bool)
                dataset.attrs["units"] = parts[0].units
                _vary(dataset, sample=True, time=True)
    return trajectories


def _write_head(file: h5py.File, trajectories: Trajectories, name: str) -> None:
    file.attrs["dataset_name"] = name
    file.attrs["grid_type"] = "cartesian"
    file.attrs["n_spatial_dims"] = len(trajectories.lines)
    file.attrs["n_trajectories"] = len(trajectories.rows)
    file.attrs["simulation_parameters"] = _texts(trajectories.constants)
    for parameter, value in trajectories.constants.items():
        file.attrs[parameter] = value


def _write_dimensions(group: h5py.Group, trajectories: Trajectories) -> None:
    group.attrs["spatial_dims"] = _texts(trajectories.lines)
    for name, values in {"time": trajectories.times, **trajectories.lines}.items():
        dataset = group.create_dataset(name, data=values, dtype=SINGLE)
        dataset.attrs["sample_varying"] = False
        if name != "time":
            dataset.attrs["time_varying"] = False


def _write_sides(group: h5py.Group, trajectories: Trajectories) -> None:
    """A group for each kind that an axis has, with a mask of the cells next to its sides."""
    for axis, line in trajectories.lines.items():
        kinds = [_kind(kind) for kind in trajectories.box.sides[axis]]
        for kind in dict.fromkeys(kinds):
            side = group.create_group(f"{axis}_{kind.lower()}")
            side.attrs["associated_dims"], side.attrs["associated_fields"] = _texts([axis]), _texts([])
            side.attrs["bc_type"] = kind
            _vary(side, sample=False, time=False)
            mask = np.zeros(len(line), bool)
            for end, own in zip((0, -1), kinds, strict=True):
                mask[end] |= own == kind
            side.create_dataset("mask", data=mask)


def _kind(name: str) -> str:
    if name == "periodic":
        return "PERIODIC"
    sides = [one.side for one in declared_sides() if one.kind == name]
    if not sides:
        raise ConfigurationError(
            f"sides: '{name}' is declared nowhere: expected one of simjax, or of a module that is imported; import "
            "that in Python and call simjax.io.well.write_well there."
        )
    return "OPEN" if any(side.passable for side in sides) else "WALL"


def _write_scalars(group: h5py.Group, trajectories: Trajectories) -> None:
    numbers: dict[str, Any] = {**trajectories.constants, **trajectories.varied}
    group.attrs["field_names"] = _texts(numbers)
    for name, value in numbers.items():
        dataset = group.create_dataset(name, data=value, dtype=SINGLE)
        _vary(dataset, sample=name in trajectories.varied, time=False)


def _by_order(trajectories: Trajectories) -> tuple[dict[str, list[Variable]], dict[str, list[Variable]]]:
    """Vectors with their components in the order of the axes, and all other fields."""
    axes = [AXES.index(axis) for axis in trajectories.lines]
    found: dict[str, dict[int, Variable]] = {}
    for variable in trajectories.variables:
        if variable.vector:
            found.setdefault(variable.vector, {})[variable.component] = variable
    vectors = {name: [parts[k] for k in axes] for name, parts in found.items() if sorted(parts) == sorted(axes)}
    in_vectors = {part.name for parts in vectors.values() for part in parts}
    scalars = {v.name: [v] for v in trajectories.variables if v.name not in in_vectors}
    return vectors, scalars


def _copied(
    group: h5py.Group, name: str, shape: tuple[int, ...], trajectories: Trajectories, placed: Placed
) -> h5py.Dataset:
    """A field with values of its own, in chunks that belong to one trajectory."""
    state = int(np.prod(shape[2:])) * SINGLE.itemsize
    chunks = (1, max(1, min(shape[1], FILLED_BYTES // state)), *shape[2:])
    dataset = group.create_dataset(name, shape, SINGLE, chunks=chunks, fletcher32=True)
    for place, part in placed:
        for number, states, values in trajectories.pieces(part):
            dataset[(number, states, *place)] = values
    return dataset


def _shown(
    group: h5py.Group, name: str, shape: tuple[int, ...], trajectories: Trajectories, placed: Placed, beside: Path
) -> h5py.Dataset:
    """A field whose values stay in the runs' files, which are named from the folder `beside`."""
    layout = h5py.VirtualLayout(shape, SINGLE)
    for place, part in placed:
        for number, (run, row) in enumerate(trajectories.rows):
            layout[(number, *place)] = _source(trajectories.runs[run], row, part, beside)
    return group.create_virtual_dataset(name, layout, fillvalue=np.nan)


def _source(run: SavedRun, row: int, part: Variable, beside: Path) -> Any:
    """The values of a trajectory where they are."""
    own, states = run.variables[part.name], len(run.times)
    shape = (states, *own.shape) if run.members is None else (len(run.members), states, *own.shape)
    source = h5py.VirtualSource(os.path.relpath(run.master.resolve(), beside.resolve()), own.path, shape, own.dtype)
    return source if run.members is None else source[row]


def _vary(item: h5py.Group | h5py.Dataset, *, sample: bool, time: bool) -> None:
    item.attrs["sample_varying"], item.attrs["time_varying"] = sample, time


def _texts(names: Sequence[str] | Mapping[str, Any]) -> np.ndarray:
    """Names as bytes for an HDF5 attribute; an empty list has the type of texts too."""
    return np.array(list(names), dtype=h5py.string_dtype())
