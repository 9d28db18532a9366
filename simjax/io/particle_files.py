"""Particles to start from: an .npz without pickled objects, or the last frame of an H5MD file."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np

from simjax.core.errors import ConfigurationError, InputOutputError
from simjax.io.h5md import TRAJECTORY

MOST_BYTES = 64 << 30
NAMES = ("position", "velocity", "species")


def read_particles(file: str | Path, ndim: int) -> dict[str, np.ndarray]:
    """`position` `(ndim, particles)`, and where they are there `velocity` like it and `species` `(particles,)`.

    In the file they are `(particles, ndim)`; H5MD files have three axes, of which a plane takes the first two.

    Raises:
        ConfigurationError: a name is missing, a shape does not fit, a value is not finite.
        InputOutputError: the file cannot be read.
    """
    path = Path(file)
    try:
        found = _from_npz(path) if path.suffix == ".npz" else _from_h5md(path, ndim)
    except (OSError, ValueError, KeyError) as error:
        raise InputOutputError(f"particles.file={path} cannot be read ({error}).") from None
    if "position" not in found:
        raise ConfigurationError(f"particles.file={path}: expected an array position, of (particles, {ndim}).")
    count = len(found["position"])
    for name, values in found.items():
        shape = (count,) if name == "species" else (count, ndim)
        if values.shape != shape:
            raise ConfigurationError(f"particles.file={path}: {name} is {values.shape}; expected {shape}.")
        if values.dtype.kind not in ("iu" if name == "species" else "fiu"):
            raise ConfigurationError(f"particles.file={path}: {name} holds {values.dtype}; expected numbers.")
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            raise ConfigurationError(f"particles.file={path}: {name} of particle {wrong[0][0]} is not finite.")
    return {
        name: values.astype(np.int32) if name == "species" else values.T.astype(np.float64)
        for name, values in found.items()
    }


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        for name in NAMES:
            if f"{name}.npy" in archive.zip.namelist():
                with archive.zip.open(f"{name}.npy") as member:
                    shape, size = _declared(member)
                if size > MOST_BYTES:
                    raise ValueError(f"{name} of shape {shape} claims {size / 2**30:.0f} GiB")
        return {name: archive[name] for name in NAMES if name in archive.files}


def _declared(member) -> tuple[tuple[int, ...], int]:
    """The shape that an array's header claims, and its bytes."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, math.prod(shape) * dtype.itemsize


def _from_h5md(path: Path, ndim: int) -> dict[str, np.ndarray]:
    from simjax.io.read import open_hdf5

    with open_hdf5(path) as file:
        trajectory = file[TRAJECTORY]
        assert isinstance(trajectory, h5py.Group)
        found = {}
        for name in ("position", "velocity"):
            if name in trajectory:
                frames = trajectory[f"{name}/value"]
                assert isinstance(frames, h5py.Dataset)
                found[name] = np.asarray(frames[-1])[:, :ndim]
        if "species" in trajectory:
            found["species"] = np.asarray(trajectory["species"])
        return found
