"""Particles to start from: an .npz without pickled objects, or the last frame of an H5MD file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import numpy as np

from simjax.errors import ConfigurationError, InputOutputError, SimjaxError
from simjax.io.h5md import TRAJECTORY
from simjax.io.initial_files import DAMAGED, check_size, read_npy, reason_of

NAMES = ("position", "velocity", "species")


def read_particles(file: str | Path, ndim: int) -> dict[str, np.ndarray]:
    """`position` `(ndim, particles)`, and where they are there `velocity` like it and `species` `(particles,)`.

    In the file they are `(particles, ndim)`; H5MD files have three axes, of which a plane takes the first two.

    Raises:
        ConfigurationError: a name is missing, a shape does not fit, a value is not finite.
        InputOutputError: the file cannot be read, or takes values from outside its folder.
        ResourceError: it claims more particles than this machine has memory for.
    """
    path = Path(file)
    try:
        if path.stat().st_size == 0:
            raise InputOutputError(f"particles.file={path} is empty; expected an .npz or an H5MD file.")
        found = _from_npz(path) if path.suffix == ".npz" else _from_h5md(path.resolve(), ndim)
    except SimjaxError:
        raise
    except DAMAGED as error:
        raise InputOutputError(f"particles.file={path} cannot be read ({reason_of(error)}).") from None
    if "position" not in found:
        raise ConfigurationError(f"particles.file={path}: expected an array position, of (particles, {ndim}).")
    count = found["position"].shape[0] if found["position"].ndim else 1
    for name, values in found.items():
        shape = (count,) if name == "species" else (count, ndim)
        if values.shape != shape:
            raise ConfigurationError(f"particles.file={path}: {name} is {values.shape}; expected {shape}.")
        if values.dtype.kind not in ("iu" if name == "species" else "fiu"):
            numbers = "whole numbers" if name == "species" else "real numbers"
            raise ConfigurationError(f"particles.file={path}: {name} holds {values.dtype}; expected {numbers}.")
        if name == "species" and not 0 <= values.min() <= values.max() < 2**31:
            raise ConfigurationError(
                f"particles.file={path}: species from {values.min()} to {values.max()}; expected numbers from 0 on."
            )
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            raise ConfigurationError(f"particles.file={path}: {name} of particle {wrong[0][0]} is not finite.")
    return {
        name: values.astype(np.int32) if name == "species" else values.T.astype(np.float64)
        for name, values in found.items()
    }


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        there = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        return {name: read_npy(archive, there[name], path, name) for name in NAMES if name in there}


def _from_h5md(path: Path, ndim: int) -> dict[str, np.ndarray]:
    from simjax.io.read import open_hdf5

    with open_hdf5(path) as file:
        trajectory = file.get(TRAJECTORY)
        if not isinstance(trajectory, h5py.Group):
            raise ConfigurationError(f"particles.file={path} has no group {TRAJECTORY}; expected an H5MD file.")
        found = {}
        for name in NAMES[:2]:
            if name in trajectory:
                frames = _frames(trajectory, name, path)
                if frames.ndim != 3 or frames.shape[2] < ndim or not frames.shape[0]:
                    raise ConfigurationError(
                        f"particles.file={path}: {name} has shape {frames.shape}; expected (frames, particles, {ndim} "
                        "or more), with at least one frame."
                    )
                check_size(frames.shape[1:], frames.dtype.itemsize, path, name)
                found[name] = np.asarray(frames[-1])[:, :ndim]
        if "species" in trajectory:
            species = _frames(trajectory, "species", path)
            check_size(species.shape, species.dtype.itemsize, path, "species")
            found["species"] = np.asarray(species[-1] if species.ndim == 2 and species.shape[0] else species)
        return found


def _frames(trajectory: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """An element of H5MD: a dataset, or a group with one in it for every frame."""
    found = trajectory[name]
    found = found.get("value") if isinstance(found, h5py.Group) else found
    if not isinstance(found, h5py.Dataset):
        raise ConfigurationError(f"particles.file={path}: {name} has no values; expected {name}/value.")
    return found
