"""One variable of a NetCDF, HDF5 or NPZ file of unknown origin: nothing unpickled, followed or oversized."""

from __future__ import annotations

import difflib
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from simjax.core.errors import ConfigurationError, InputOutputError

MAXIMUM_LINKS = 20
# What the readers were seen to raise on truncated files and on files with flipped bits.
_DAMAGED = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OverflowError,
    RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A variable as it lies in the file: array, names of its dimensions (if any), attributes, coordinates."""

    values: np.ndarray
    dims: tuple[str, ...] | None
    attributes: Mapping[str, Any]
    coordinates: Mapping[str, np.ndarray]


def read_stored(path: Path, variable: str) -> Stored:
    """Read `variable` whole, by the kind of file that the first bytes tell.

    Raises InputOutputError for a file that cannot be read, ConfigurationError for unusable content.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise InputOutputError(f"{path} cannot be read ({error.strerror}).") from None
    if magic[:4] == b"PK\x03\x04":
        read = _read_npz
    elif magic[:3] == b"CDF" and magic[3:4] in (b"\x01", b"\x02"):
        read = _read_classic_netcdf
    elif magic == b"\x89HDF\r\n\x1a\n":
        read = _read_hdf5
    else:
        raise ConfigurationError(f"{path.name} is none of NetCDF, HDF5 and NPZ; write one of these.")
    try:
        return read(path, variable)
    except (ConfigurationError, InputOutputError):
        raise
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise InputOutputError(f"{path.name} is damaged or incomplete ({reason}).") from None


def _largest() -> int:
    """Bytes that one variable may take: a quarter of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def _check_size(shape: tuple[int, ...], itemsize: int, path: Path, variable: str) -> int:
    size = math.prod(shape) * itemsize
    if size > _largest():
        raise ConfigurationError(
            f"'{variable}' in {path.name} claims {size / 2**30:.3g} GiB with shape {shape}; at most "
            f"{_largest() / 2**30:.3g} GiB, a quarter of the memory, is read."
        )
    return size


def _missing(path: Path, variable: str, names: Iterable[str]) -> ConfigurationError:
    names = sorted(names)
    close = difflib.get_close_matches(variable, names, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'?" if close else f"it holds {', '.join(names[:12]) or 'nothing'}."
    return ConfigurationError(f"{path.name} has no variable '{variable}'; {hint}")


def _check_number(dtype: np.dtype, path: Path, variable: str) -> None:
    if dtype.kind not in "iuf":
        raise ConfigurationError(f"'{variable}' in {path.name} has dtype {dtype}; expected real numbers.")


def _read_npz(path: Path, variable: str) -> Stored:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if variable not in sizes:
            raise _missing(path, variable, sizes)
        values = _read_npy(archive, sizes[variable], path, variable)
        coordinates = {}
        for axis in ("x", "y", "z"):
            if axis in sizes and sizes[axis].file_size < 2**24 and axis != variable:
                coordinates[axis] = _read_npy(archive, sizes[axis], path, axis)
    return Stored(values, None, {}, {name: line for name, line in coordinates.items() if line.ndim == 1})


def _read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, variable: str) -> np.ndarray:
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"npy version {version}")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(member)
        if dtype.hasobject:
            raise ConfigurationError(f"'{variable}' in {path.name} is a pickled object, which is never loaded.")
        _check_number(dtype, path, variable)
        if _check_size(shape, dtype.itemsize, path, variable) > info.file_size:
            raise ValueError(f"'{variable}' claims shape {shape} but has {info.file_size} bytes")
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _read_classic_netcdf(path: Path, variable: str) -> Stored:
    from scipy.io import netcdf_file

    _check_size((path.stat().st_size,), 1, path, variable)
    with netcdf_file(path, "r", mmap=False) as file:
        if variable not in file.variables:
            raise _missing(path, variable, file.variables)
        found = file.variables[variable]
        values = np.array(found.data)
        _check_number(values.dtype, path, variable)
        dims = tuple(found.dimensions)
        names = ("units", "scale_factor", "add_offset", "_FillValue", "missing_value")
        attributes = {name: getattr(found, name) for name in names if hasattr(found, name)}
        coordinates = {name: np.array(file.variables[name].data) for name in dims if name in file.variables}
    return Stored(values, dims, attributes, {name: line for name, line in coordinates.items() if line.ndim == 1})


def _read_hdf5(path: Path, variable: str) -> Stored:
    import h5py

    with h5py.File(path, "r") as file:
        dataset = _follow(file, variable, path)
        if not isinstance(dataset, h5py.Dataset):
            raise _missing(path, variable, _dataset_names(file))
        _check_contained(dataset, path, variable)
        _check_number(dataset.dtype, path, variable)
        _check_size(dataset.shape, dataset.dtype.itemsize, path, variable)
        dims, coordinates = _dimensions(dataset)
        names = ("units", "scale_factor", "add_offset", "_FillValue", "missing_value")
        attributes = {name: dataset.attrs[name] for name in names if name in dataset.attrs}
        return Stored(np.asarray(dataset[()]), dims, attributes, coordinates)


def _follow(file: Any, variable: str, path: Path) -> Any:
    """The object behind a name, link by link: an external link would open another file unasked."""
    import h5py

    here: Any = file
    parts, links = [part for part in variable.split("/") if part], 0
    if not parts:
        raise _missing(path, variable, _dataset_names(file))
    while parts:
        part = parts.pop(0)
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            raise ConfigurationError(f"'{variable}' in {path.name} is a link into another file; name that file.")
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > MAXIMUM_LINKS:
                raise ValueError("its links form a circle")
            here = file if link.path.startswith("/") else here
            parts = [step for step in link.path.split("/") if step] + parts
            continue
        if link is None:
            raise _missing(path, variable, _dataset_names(file))
        here = here[part]
    return here


def _dataset_names(file: Any) -> list[str]:
    import h5py

    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and len(names) < 1000:
            names.append(name)

    file.visititems(visit)
    return names


def _check_contained(dataset: Any, path: Path, variable: str) -> None:
    """A run's own `fields.h5` maps segments in its folder; anything further away is refused."""
    outside = f"'{variable}' in {path.name} takes its values from outside the file's folder; copy them in."
    if dataset.external:
        raise ConfigurationError(outside)
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        name = PurePosixPath(source.file_name)
        if name.is_absolute() or ".." in name.parts:
            raise ConfigurationError(outside)
        if source.file_name != "." and not (path.parent / name).is_file():
            raise InputOutputError(f"'{variable}' in {path.name} needs {name}, which is missing.")


def _dimensions(dataset: Any) -> tuple[tuple[str, ...] | None, dict[str, np.ndarray]]:
    """Names and coordinates from attached dimension scales, as in NetCDF-4; None when there are none."""
    names, coordinates = [], {}
    for axis, dimension in enumerate(dataset.dims):
        if len(dimension) == 0:
            names.append(dimension.label or "")
            continue
        scale = dimension[0]
        name = (scale.name or "").rsplit("/", 1)[-1]
        names.append(name)
        without_values = scale.attrs.get("NAME", b"")
        if isinstance(without_values, bytes):
            without_values = without_values.decode("utf-8", "replace")
        is_number = scale.dtype.kind in "iuf" and scale.shape == (dataset.shape[axis],)
        if is_number and not str(without_values).startswith("This is a netCDF dimension but not"):
            coordinates[name] = np.asarray(scale[()])
    return (tuple(names) if any(names) else None), coordinates
