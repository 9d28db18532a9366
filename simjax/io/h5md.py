"""H5MD 1.1: trajectories of particles as other programs read them.

de Buyl et al. 2014, Computer Physics Communications 185, 1546.
Trajectories lie in `particles/trajectory`, numbers over time in `observables`; space has three dimensions always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from simjax.io.files import new_hdf5
from simjax.io.frame_layout import FrameLayout, Variable, checked_storage, fill, over_segments
from simjax.io.segments import Segment, write_table

TRAJECTORY = "particles/trajectory"
AXES = 3
AUTHOR, CREATOR = "simjax", "simjax"


@dataclass(frozen=True)
class Box:
    """lower, upper: corners with three coordinates; periodic: per axis."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    periodic: tuple[bool, ...]


def per_particle(variable: Variable) -> bool:
    """Tell whether it is part of the trajectory and not an observable."""
    return "particle" in variable.dims


def place_of(file: h5py.File, layout: FrameLayout, name: str) -> str:
    """The path of a variable of the layout, or of `step` and `time`, in an H5MD file."""
    if name in ("step", "time"):
        return f"{TRAJECTORY}/{name}"
    variable = next(v for v in layout.framed if v.name == name)
    return f"{TRAJECTORY}/{name}/value" if per_particle(variable) else f"observables/{name}/value"


def write_whole(
    path: Path,
    layout: FrameLayout,
    box: Box,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    pieces: Iterable[tuple[int, int, Mapping[str, np.ndarray]]],
) -> None:
    """A file that holds its own values; a piece is (first frame, frames, name -> values)."""
    with new_hdf5(path) as file:
        groups = _write_common(file, layout, box, attributes, steps, times)
        datasets = {}
        for variable in layout.framed:
            shape = layout.shape(variable, len(steps))
            storage = checked_storage(shape, variable.dtype, variable.dims.index("time"))
            datasets[variable.name] = groups[variable.name].create_dataset("value", shape, variable.dtype, **storage)
            _attach(file, datasets[variable.name], variable)
        fill(datasets, layout, pieces)


def write_over_segments(
    path: Path,
    layout: FrameLayout,
    box: Box,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    sources: Sequence[Segment],
) -> None:
    """A file whose frames lie in segments, of which it records sizes and checksums."""
    with new_hdf5(path) as file:
        groups = _write_common(file, layout, box, attributes, steps, times)
        write_table(file, sources)
        for variable in layout.framed:
            parent = groups[variable.name]
            _attach(file, over_segments(parent, "value", layout, variable, len(steps), sources), variable)


def write_member(
    path: Path,
    layout: FrameLayout,
    box: Box,
    attributes: Mapping[str, object],
    steps: Sequence[int],
    times: Sequence[float],
    ensemble: str,
    member: int,
) -> None:
    """One member of an ensemble, whose values lie in the file `ensemble` beside it."""
    with new_hdf5(path) as file:
        groups = _write_common(file, layout, box, attributes, steps, times)
        for variable in layout.framed:
            source = h5py.VirtualSource(ensemble, variable.name, layout.shape(variable, len(steps)))
            own = source[member] if "member" in variable.dims else source
            virtual = h5py.VirtualLayout(own.shape, variable.dtype)
            virtual[...] = own
            missing = np.nan if variable.dtype.kind == "f" else 0
            dataset = groups[variable.name].create_virtual_dataset("value", virtual, fillvalue=missing)
            _attach(file, dataset, variable)


def _write_common(file: h5py.File, layout: FrameLayout, box: Box, attributes, steps, times) -> dict[str, h5py.Group]:
    """Writes an H5MD file without its frames; a group for each variable that has them."""
    trajectory = file.create_group(TRAJECTORY, track_order=True)
    _checked(trajectory, "step", np.asarray(steps, "i8"))
    time = _checked(trajectory, "time", np.asarray(times, "f8"))
    time.make_scale("time")
    time.attrs["units"] = layout.time_units
    _write_fixed(trajectory, layout)
    _write_box(trajectory, box, len(steps))
    _write_head(file, attributes)
    groups = {}
    for variable in layout.framed:
        parent = trajectory if per_particle(variable) else file.require_group("observables")
        groups[variable.name] = _element(parent, variable.name, trajectory)
    parameters = file.create_group("parameters", track_order=True)
    for variable in layout.fixed:
        if not per_particle(variable) and variable.values is not None and variable.values.ndim == 0:
            parameters.create_dataset(variable.name, data=variable.values).attrs.update(variable.attributes)
    return groups


def _write_head(file: h5py.File, attributes: Mapping[str, object]) -> None:
    head = file.create_group("h5md")
    head.attrs["version"] = np.array([1, 1], "i4")
    for group, name, version in (("author", AUTHOR, None), ("creator", CREATOR, attributes.get("simjax_version", "0"))):
        part = head.create_group(group)
        part.attrs.create("name", np.bytes_(name))  # fixed-length, as the standard asks for
        if version is not None:
            part.attrs.create("version", np.bytes_(str(version)))
    for name, value in attributes.items():
        file.attrs[name] = value


def _write_fixed(trajectory: h5py.Group, layout: FrameLayout) -> None:
    """Numbers, species and masses of the particles, and the axes of space."""
    fixed = {v.name: v for v in layout.fixed if v.values is not None}
    number = _checked(trajectory, "id", fixed["particle"].values)
    number.make_scale("id")
    trajectory.create_dataset("space", data=fixed["space"].values).make_scale("space")
    for variable in fixed.values():
        if per_particle(variable) and variable.name != "particle":
            values = _checked(trajectory, variable.name, variable.values)
            values.attrs.update(variable.attributes)
            values.dims[0].attach_scale(number)


def _checked(group: h5py.Group, name: str, values) -> h5py.Dataset:
    """A dataset with checksums."""
    return group.create_dataset(name, data=values, **checked_storage(values.shape, values.dtype))


def _write_box(trajectory: h5py.Group, box: Box, frames: int) -> None:
    group = trajectory.create_group("box")
    group.attrs["dimension"] = np.int32(AXES)
    group.attrs["boundary"] = np.array([b"periodic" if p else b"none" for p in box.periodic], "S8")
    lengths = np.subtract(box.upper, box.lower)
    group.attrs["simjax_lower"] = np.asarray(box.lower, "f8")
    _checked(_element(group, "edges", trajectory), "value", np.broadcast_to(lengths, (frames, AXES)))


def _element(parent: h5py.Group, name: str, trajectory: h5py.Group) -> h5py.Group:
    """A group with the steps and times of all frames, linked."""
    group = parent.create_group(name, track_order=True)
    group["step"], group["time"] = trajectory["step"], trajectory["time"]
    return group


def _attach(file: h5py.File, dataset: h5py.Dataset, variable: Variable) -> None:
    for name, value in variable.attributes.items():
        dataset.attrs[name] = value
    names = {"particle": "id"}
    for position, dim in enumerate(d for d in variable.dims if d != "member"):
        dataset.dims[position].attach_scale(file[f"{TRAJECTORY}/{names.get(dim, dim)}"])
