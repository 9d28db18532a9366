"""One variable of a NetCDF, HDF5 or NPZ file of unknown origin: nothing unpickled, fetched elsewhere or oversized."""

from __future__ import annotations

import difflib
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError, SimjaxError
from simjax.io.containment import MAXIMUM_LINKS, require_contained
from simjax.io.memory import require_memory

BYTES_PER_VALUE = 48
"""Memory to read and regrid a value, besides the value as it lies in the file: up to 42 bytes were measured."""
_ATTRIBUTES = ("units", "scale_factor", "add_offset", "_FillValue", "missing_value")
# What the readers were seen to raise on truncated files and on files with flipped bits.
DAMAGED = (
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

    Raises InputOutputError for a file that cannot be read or takes its values from outside its folder,
    ConfigurationError for unusable content, ResourceError for an array that is too large for this machine.
    """
    path = path.resolve()
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise InputOutputError(f"{path} cannot be read ({error.strerror}).") from None
    if magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        read = _read_npz
    elif magic[:3] == b"CDF" and magic[3:4] in (b"\x01", b"\x02"):
        read = _read_classic_netcdf
    elif magic == b"\x89HDF\r\n\x1a\n":
        read = _read_hdf5
    else:
        raise ConfigurationError(f"{path.name} is none of NetCDF, HDF5 and NPZ; write one of these.")
    try:
        return read(path, variable)
    except SimjaxError:
        raise
    except DAMAGED as error:
        raise InputOutputError(f"{path.name} is damaged or incomplete ({reason_of(error)}).") from None


def reason_of(error: Exception) -> str:
    """The message of a reader about a damaged file, in one line and without addresses of objects."""
    return " ".join(re.sub(r":? ?<[^<>]* object at [^<>]*>", "", str(error)).split()) or type(error).__name__


def check_size(shape: tuple[int, ...] | None, itemsize: int, path: Path, variable: str) -> int:
    """The bytes of an array, before anything is read of it."""
    count = 0 if shape is None else math.prod(shape)
    if count <= 0:
        held = "is empty" if shape is None else f"has shape {shape}"
        raise ConfigurationError(f"'{variable}' in {path.name} {held} and holds no values; write an array with values.")
    require_memory(
        count * (itemsize + BYTES_PER_VALUE), f"'{variable}' in {path.name}, of shape {shape},",
        "write a smaller array into the file, such as the part that the grid covers or means over several cells",
    )  # fmt: skip
    return count * itemsize


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
        values = read_npy(archive, sizes[variable], path, variable)
        coordinates = {}
        for axis in ("x", "y", "z"):
            if axis in sizes and sizes[axis].file_size < 2**24 and axis != variable:
                coordinates[axis] = read_npy(archive, sizes[axis], path, axis)
    return Stored(values, None, {}, {name: line for name, line in coordinates.items() if line.ndim == 1})


def read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, variable: str) -> np.ndarray:
    """An array of real numbers out of an NPZ file, once its header was found to be honest and affordable."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"npy version {version}")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(member)
        if dtype.hasobject:
            raise ConfigurationError(f"'{variable}' in {path.name} is a pickled object, which is never loaded.")
        _check_number(dtype, path, variable)
        if check_size(shape, dtype.itemsize, path, variable) > info.file_size:
            raise ValueError(f"'{variable}' claims shape {shape} but has {info.file_size} bytes")
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _read_classic_netcdf(path: Path, variable: str) -> Stored:
    from scipy.io import netcdf_file

    check_size((path.stat().st_size,), 1, path, variable)  # scipy reads the file whole
    with netcdf_file(path, "r", mmap=False) as file:
        if variable not in file.variables:
            raise _missing(path, variable, file.variables)
        found = file.variables[variable]
        check_size(found.data.shape, found.data.dtype.itemsize, path, variable)
        values = np.array(found.data)
        _check_number(values.dtype, path, variable)
        dims = tuple(found.dimensions)
        attributes = {name: getattr(found, name) for name in _ATTRIBUTES if hasattr(found, name)}
        coordinates = {name: np.array(file.variables[name].data) for name in dims if name in file.variables}
    return Stored(values, dims, attributes, {name: line for name, line in coordinates.items() if line.ndim == 1})


def _read_hdf5(path: Path, variable: str) -> Stored:
    import h5py

    with h5py.File(path, "r") as file:
        dataset = _follow(file, variable, path)
        if not isinstance(dataset, h5py.Dataset):
            raise _missing(path, variable, _dataset_names(file))
        require_contained(path, variable)
        _check_number(dataset.dtype, path, variable)
        check_size(dataset.shape, dataset.dtype.itemsize, path, variable)
        dims, coordinates = _dimensions(dataset)
        attributes = {name: dataset.attrs[name] for name in _ATTRIBUTES if name in dataset.attrs}
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
