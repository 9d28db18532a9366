"""Particles to start from: of an .npz without pickled objects, of files of other programs, the last frame of each."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.errors import ConfigurationError, InputOutputError, SimjaxError
from simjax.io.conventions import text_of
from simjax.io.initial_files import read_npy
from simjax.io.lammps_data import read_lammps_data
from simjax.io.particle_contents import (
    GROUPS,
    NAMES,
    PER_PARTICLE,
    FileBox,
    FileParticles,
    checked,
    numbered,
    orthogonal,
    refuse,
)
from simjax.io.particle_libraries import read_extended_xyz, read_gsd
from simjax.io.stored_variable import DAMAGED, check_size, reason_of

ROOT = "particles"
LOWER = "simjax_lower"
HDF5 = (".h5md", ".h5", ".hdf5")


def read_particles(file: str | Path, ndim: int) -> FileParticles:
    """The particles of a file, of whose format its ending tells; any other ending is that of LAMMPS data.

    Files of other programs have three axes, of which a plane takes the first two.

    Raises:
        ConfigurationError: a name is missing, a shape does not fit, a value is not finite, or the file holds what
            simjax does not have.
        InputOutputError: the file cannot be read, or takes values from outside its folder.
        ResourceError: it claims more particles than this machine has memory for.
    """
    path = Path(file)
    try:
        if path.stat().st_size == 0:
            raise InputOutputError(f"particles.file={path} is empty; expected particles.")
        found = _reader(path)(path.resolve(), ndim)
    except SimjaxError:
        raise
    except DAMAGED as error:
        raise InputOutputError(f"particles.file={path} cannot be read ({reason_of(error)}).") from None
    return checked(path, found, ndim)


def _reader(path: Path) -> Callable[[Path, int], FileParticles]:
    ending = path.suffix.lower()
    if ending in HDF5:
        return _from_h5md
    others = {".npz": _from_npz, ".xyz": read_extended_xyz, ".extxyz": read_extended_xyz, ".gsd": read_gsd}
    read = others.get(ending, read_lammps_data)
    return lambda path, ndim: read(path)


def _from_npz(path: Path) -> FileParticles:
    with zipfile.ZipFile(path) as archive:
        there = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        return FileParticles({name: read_npy(archive, there[name], path, name) for name in NAMES if name in there})


def _from_h5md(path: Path, ndim: int) -> FileParticles:
    from simjax.io.read import open_hdf5

    with open_hdf5(path) as file:
        particles = _trajectory(file, path)
        arrays = {}
        for name in ("position", "velocity"):
            if name in particles:
                frames = _values(particles, name, path)
                if frames.ndim != 3 or frames.shape[2] < ndim or not frames.shape[0]:
                    raise ConfigurationError(
                        f"particles.file={path}: {name} has shape {frames.shape}; expected (frames, particles, {ndim} "
                        "or more), with at least one frame."
                    )
                check_size(frames.shape[1:], frames.dtype.itemsize, path, name)
                arrays[name] = np.asarray(frames[-1])
        for name in PER_PARTICLE:
            if name in particles:
                arrays[name] = _last(particles, name, path, axes=1)
        arrays |= _connected(file, particles, path)
        return FileParticles(arrays, _box(particles, path))


def _trajectory(file: h5py.File, path: Path) -> h5py.Group:
    """The only group of particles."""
    root = file.get(ROOT)
    groups = [group for group in root.values() if isinstance(group, h5py.Group)] if isinstance(root, h5py.Group) else []
    if not groups:
        raise ConfigurationError(f"particles.file={path} has no group in {ROOT}; expected an H5MD file.")
    if len(groups) > 1:
        names = ", ".join(str(group.name).rsplit("/", 1)[-1] for group in groups)
        raise ConfigurationError(f"particles.file={path} has the groups {names} in {ROOT}; expected one of particles.")
    return groups[0]


def _values(particles: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """An element of H5MD: a dataset, or a group with one in it for every frame."""
    found: Any = particles[name]
    found = found.get("value") if isinstance(found, h5py.Group) else found
    if not isinstance(found, h5py.Dataset):
        raise ConfigurationError(f"particles.file={path}: {name} has no values; expected {name}/value.")
    return found


def _last(particles: h5py.Group, name: str, path: Path, axes: int) -> np.ndarray:
    """An element with so many axes, of several frames the last."""
    values = _values(particles, name, path)
    check_size(values.shape, values.dtype.itemsize, path, name)
    return np.asarray(values[-1] if values.ndim == axes + 1 and values.shape[0] else values)


def _connected(file: h5py.File, particles: h5py.Group, path: Path) -> dict[str, np.ndarray]:
    """Bonds and angles by the places of particles in the file."""
    root = file.get("connectivity")
    if not isinstance(root, h5py.Group):
        return {}
    names = [str(name) for name in root]
    counts = {name: len(_values(root, name, path)) for name in names}
    refuse(path, {name: count for name, count in counts.items() if name not in GROUPS})
    found = {name: _last(root, name, path, axes=2) for name, count in counts.items() if count}
    if "id" not in particles:
        return found
    ids = _last(particles, "id", path, axes=1)
    return {name: numbered(path, ids, groups) for name, groups in found.items()}


def _box(particles: h5py.Group, path: Path) -> FileBox | None:
    box: Any = particles.get("box")
    if not isinstance(box, h5py.Group) or "edges" not in box:
        return None
    edges = box["edges"]
    stored = _values(box, "edges", path)
    check_size(stored.shape, stored.dtype.itemsize, path, "edges")
    values = np.asarray(stored[()])
    values = values[-1] if isinstance(edges, h5py.Group) else values
    ends = box.attrs.get("boundary")
    words = None if ends is None else [text_of(end) for end in np.atleast_1d(ends)]
    if words is not None and not {*words} <= {"periodic", "none"}:
        raise ConfigurationError(
            f"particles.file={path}: the boundary of its box is {str(words)[:80]}; expected periodic or none, by axis."
        )
    periodic = None if words is None else np.asarray([word == "periodic" for word in words])
    return FileBox(orthogonal(path, values), _numbers(box, LOWER, path), periodic)


def _numbers(box: h5py.Group, name: str, path: Path) -> np.ndarray | None:
    """An attribute of real numbers, which is read only where it has them: HDF5 was seen to crash on damaged texts."""
    if name not in box.attrs:
        return None
    dtype = box.attrs.get_id(name).dtype
    if dtype.kind not in "iuf":
        raise ConfigurationError(f"particles.file={path}: {name} of its box has dtype {dtype}; expected numbers.")
    return np.asarray(box.attrs[name])
