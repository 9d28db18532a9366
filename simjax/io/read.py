"""Opens what a run wrote, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray

from simjax.core.errors import InputOutputError
from simjax.io.checkpoint import list_checkpoints, verify_checkpoint
from simjax.io.frame_output import DIAGNOSTICS_NAME, segment_name
from simjax.io.grid_output import FIELDS_NAME
from simjax.io.h5md import TRAJECTORY
from simjax.io.particle_output import ENSEMBLE_NAME, MASTER_NAME
from simjax.io.staggering import RunAccessor as RunAccessor  # registers `dataset.simjax`
from simjax.io.vtkhdf import SIDECAR_PATTERN

SPECIES_NAMES = ("flag_values", "flag_meanings")
OF_PARTICLES = ("mass", "charge")


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Opens an HDF5 file for reading after making sure that it reads nothing outside its own folder.

    External links, external raw storage, and virtual datasets over absolute paths or over folders above raise
    InputOutputError, as does a file that is not HDF5 or is truncated; so do the files that it refers to.
    """
    path = Path(path)
    _refuse_outside(path, path.parent.resolve(), set())
    with h5py.File(path, "r") as file:
        yield file


def open_run(folder: Path) -> xarray.Dataset:
    """The fields or particles, diagnostics and parameters of a run, read on demand; also while the run goes on.

    Dimensions are ([member,] time, z, y, x) or ([member,] time, particle, space); `dataset.simjax.centered()` brings
    fields on faces (`x_face`, ...) to cell centres. Raises InputOutputError where a
    segment is missing or damaged, which HDF5 itself would show as NaN.
    """
    master = _master_of(Path(folder))
    problems = _field_problems(master)
    if problems:
        raise InputOutputError("; ".join(problems))
    if master.name == MASTER_NAME:
        return _open_h5md(master)
    dataset = xarray.open_dataset(master, engine="h5netcdf")
    return dataset.set_coords(["step", *(name for name in dataset.data_vars if _is_parameter(dataset[name]))])


def _master_of(folder: Path) -> Path:
    """The file that shows all frames of a run."""
    there = [folder / name for name in (MASTER_NAME, ENSEMBLE_NAME) if (folder / name).is_file()]
    return there[0] if there else folder / FIELDS_NAME


def _open_h5md(master: Path) -> xarray.Dataset:
    """Particles and observables of an H5MD file as one dataset."""
    with h5py.File(master, "r") as file:
        groups = {}
        for parent in (TRAJECTORY, "observables"):
            inside = _members(file, parent)
            groups |= {n: f"{parent}/{n}" for n, g in inside.items() if isinstance(g, h5py.Group) and n != "box"}
        attributes = {name: _plain_attribute(value) for name, value in file.attrs.items()}
        parameters = {
            name: ((), np.asarray(value)[()], {key: _plain_attribute(text) for key, text in value.attrs.items()})
            for name, value in _members(file, "parameters").items()
        }
        there = [name for name in OF_PARTICLES if f"{TRAJECTORY}/{name}" in file]
        fixed = {name: np.asarray(file[f"{TRAJECTORY}/{name}"]) for name in ("time", "step", "id", "species", *there)}
        about = {name: _plain_attribute(v) for name, v in file[f"{TRAJECTORY}/species"].attrs.items()}
    opened = {name: xarray.open_dataset(master, engine="h5netcdf", group=group) for name, group in groups.items()}
    dataset = xarray.Dataset(
        {
            name: part["value"].rename(_own_names(part["value"])).reset_coords(drop=True)
            for name, part in opened.items()
        },
        attrs=attributes,
    )
    status = parameters.pop("status", None)
    coordinates = {
        "time": ("time", fixed["time"], {"long_name": "time", "units": "1"}),
        "step": ("time", fixed["step"]),
        "particle": ("particle", fixed["id"]),
        "species": ("particle", fixed["species"], {k: v for k, v in about.items() if k in SPECIES_NAMES}),
        **{name: ("particle", fixed[name]) for name in there},
    }
    dataset = dataset.assign_coords(coordinates | parameters)
    if status is not None:
        dataset["status"] = status

    def close() -> None:
        for part in opened.values():
            part.close()

    dataset.set_close(close)
    return dataset


def _members(file: h5py.File, name: str) -> dict[str, Any]:
    """What is in a group, if it is there."""
    group = file.get(name)
    return dict(group.items()) if isinstance(group, h5py.Group) else {}


def _own_names(variable: xarray.DataArray) -> dict[str, str]:
    return {"id": "particle"} if "id" in variable.dims else {}


def _plain_attribute(value):
    return value.decode() if isinstance(value, bytes) else value


def _is_parameter(variable: xarray.DataArray) -> bool:
    return "time" not in variable.dims and set(variable.dims) <= {"member"}


def check_run(folder: Path) -> list[str]:
    """Everything that is wrong with the files of a run, one sentence each; empty where nothing is.

    Covers the fields and their segments, the diagnostics, the sidecars, and the checksums of the checkpoints.
    """
    folder = Path(folder)
    problems = _field_problems(_master_of(folder))
    sidecars = {
        path for pattern in (SIDECAR_PATTERN, "particles*.vtkhdf", "particles.m*.h5md") for path in folder.glob(pattern)
    }
    for path in (folder / DIAGNOSTICS_NAME, *sorted(sidecars)):
        try:
            with open_hdf5(path):
                pass
        except InputOutputError as error:
            problems.append(str(error))
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        problem = verify_checkpoint(checkpoint)
        if problem:
            problems.append(f"{checkpoint}: {problem}")
    return list(dict.fromkeys(problems))


def _field_problems(master: Path) -> list[str]:
    if not master.is_file():
        return [f"{master.parent} holds no run; expected a folder with {FIELDS_NAME} or {MASTER_NAME}"]
    try:
        with open_hdf5(master) as file:
            if "simjax_segments" not in file.attrs:
                return [f"{master} was not written by simjax: it has no attribute simjax_segments"]
            return _segment_problems(master, file)
    except InputOutputError as error:
        return [str(error)]


def _segment_problems(master: Path, file: h5py.File) -> list[str]:
    """Compares the segments that are there with the frames that the master says they hold."""
    is_h5md, stem = TRAJECTORY in file, "fields" if master.name == FIELDS_NAME else "particles"
    steps = np.asarray(file[f"{TRAJECTORY}/step" if is_h5md else "step"])
    start, problems = 0, []
    count = int(np.asarray(file.attrs["simjax_segments"]))
    frames = _mapped_frames(file)
    if len(frames) != count:
        return [f"{master} refers to {len(frames)} segments; expected {count}"]
    for index in range(count):
        path = master.parent / segment_name(index, stem)
        expected = steps[start : start + frames.get(segment_name(index, stem), 0)]
        start += len(expected)
        with h5py.File(path, "r") as segment:
            # A segment may have grown since the master was written; it begins with the same frames.
            if not np.array_equal(np.asarray(segment["step"])[: len(expected)], expected) or not len(expected):
                problems.append(f"{path} does not hold the {len(expected)} frames that {master.name} expects")
    if count and start != len(steps):
        problems.append(f"{master} has {len(steps)} output times, its segments {start}")
    return problems


def _mapped_frames(file: h5py.File) -> dict[str, int]:
    """Frames that each segment gives to the first virtual variable; all variables are mapped alike."""
    found: dict[str, int] = {}

    def look(_, dataset) -> bool | None:
        if not isinstance(dataset, h5py.Dataset) or not dataset.is_virtual:
            return None
        axis = 1 if "member" in file else 0
        found.update({s.file_name: s.src_space.get_select_bounds()[1][axis] + 1 for s in dataset.virtual_sources()})
        return True  # enough

    file.visititems(look)
    return found


def _refuse_outside(path: Path, root: Path, visited: set[Path]) -> None:
    """Raises where `path`, or a file it refers to, leads out of `root` or cannot be opened."""
    visited.add(path)
    try:
        with h5py.File(path, "r") as file:
            sources = _references(path, file)
    except OSError as error:
        state = "damaged or not HDF5" if path.is_file() else "missing"
        raise InputOutputError(f"{path} is {state} ({error}); bring back the whole folder from a copy.") from error
    for name in sources:
        target = path.parent / name
        if not target.resolve().is_relative_to(root):
            raise InputOutputError(
                f"{path} refers to {name!r} outside its folder; expected a file that holds its own values: "
                "copy them into it."
            )
        if target not in visited:
            _refuse_outside(target, root, visited)


def _references(path: Path, file: h5py.File) -> set[str]:
    """The files that the virtual datasets of `file` name; links and storage in other files are refused."""
    linked: list[str] = []

    def find_link(name, link) -> None:
        if isinstance(link, h5py.ExternalLink):
            linked.append(name)

    sources: set[str] = set()

    def find_source(name, item) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external:
            linked.append(name)
        if item.is_virtual:
            sources.update(source.file_name for source in item.virtual_sources())

    file.visititems_links(find_link)
    file.visititems(find_source)
    if linked:
        raise InputOutputError(
            f"{path}: {linked[0]!r} is a link to another file, which is not followed; expected a file that "
            "holds its own values: copy them into it."
        )
    return sources - {"."}
