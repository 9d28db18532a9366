"""Parts of a variable of a NetCDF, HDF5 or NPZ file of unknown origin: nothing unpickled or fetched elsewhere."""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError, SimjaxError
from simjax.io.containment import MAXIMUM_LINKS, require_contained
from simjax.io.memory import require_memory

BYTES_PER_VALUE = 48
"""Memory to read and regrid a value, besides the value as it lies in the file: up to 42 bytes were measured."""
BYTES_PER_POSITION = 256
"""Memory along each axis of the file for a position: coordinates, and which values of the grid they go into."""
PIECE = 2**22
"""Bytes of an array in an NPZ file that are read at once on the way to what is wanted."""
_ATTRIBUTES = ("units", "scale_factor", "add_offset", "_FillValue", "missing_value")
# What the readers were seen to raise on truncated files and on files with flipped bits.
DAMAGED = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OverflowError,
    RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


class MissingVariable(ConfigurationError):
    """A file has no variable of a name."""


ZARR = ("zarr.json", ".zgroup")
"""Files by which a folder is known as a Zarr store, of format 3 or 2."""
Ranges = Sequence[tuple[int, int]]
"""First index and one past the last, along each axis."""


@dataclass(frozen=True)
class Stored:
    """A variable in a file: shape, bytes of a value, names of its dimensions (if any), attributes, coordinates.

    part: function that reads the values within `Ranges` of its axes, and no others.
    """

    path: Path
    variable: str
    shape: tuple[int, ...]
    itemsize: int
    dims: tuple[str, ...] | None
    attributes: Mapping[str, Any]
    coordinates: Mapping[str, np.ndarray]
    part: Callable[[Ranges], np.ndarray]

    def read(self, ranges: Ranges) -> np.ndarray:
        """The values within ranges; InputOutputError where the file is damaged there."""
        with _damage_named(self.path):
            return self.part(ranges)


def find_stored(path: Path, variable: str) -> Stored:
    """Find `variable`, by the kind of file that the first bytes tell; of its values nothing is read.

    Raises InputOutputError for a file that cannot be read or takes its values from outside its folder,
    ConfigurationError for unusable content, ResourceError for axes that are too long for this machine.
    """
    path = path.resolve()
    if any((path / name).is_file() for name in ZARR):
        with _damage_named(path):
            return _in_zarr(path, variable)
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise InputOutputError(f"{path} cannot be read ({error.strerror}).") from None
    if magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        find = _in_npz
    elif magic[:3] == b"CDF" and magic[3:4] in (b"\x01", b"\x02"):
        find = _in_classic_netcdf
    elif magic == b"\x89HDF\r\n\x1a\n":
        find = _in_hdf5
    else:
        raise ConfigurationError(f"{path.name} is none of NetCDF, HDF5 and NPZ; write one of these.")
    with _damage_named(path):
        return find(path, variable)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except SimjaxError:
        raise
    except DAMAGED as error:
        raise InputOutputError(f"{path.name} is damaged or incomplete ({reason_of(error)}).") from None


def reason_of(error: Exception) -> str:
    """The message of a reader about a damaged file, in one line and without addresses of objects."""
    return " ".join(re.sub(r":? ?<[^<>]* object at [^<>]*>", "", str(error)).split()) or type(error).__name__


def check_size(shape: tuple[int, ...] | None, itemsize: int, path: Path, variable: str) -> int:
    """The bytes of an array that is read whole, before anything is read of it."""
    count = _count(shape, path, variable)
    require_room(count, itemsize, shape, path, variable)
    return count * itemsize


def _count(shape: tuple[int, ...] | None, path: Path, variable: str) -> int:
    """The number of values of an array; ConfigurationError where it has none."""
    count = 0 if shape is None else math.prod(shape)
    if count <= 0:
        held = "is empty" if shape is None else f"has shape {shape}"
        raise ConfigurationError(f"'{variable}' in {path.name} {held} and holds no values; write an array with values.")
    return count


def require_room(count: int, itemsize: int, shape: tuple[int, ...] | None, path: Path, variable: str) -> None:
    """Raises ResourceError where so many values of an array, of this shape, would not fit into memory."""
    require_memory(
        count * (itemsize + BYTES_PER_VALUE), f"'{variable}' in {path.name}, of shape {shape},",
        "write a smaller array into the file, such as the part that the grid covers or means over several cells",
    )  # fmt: skip


def _check_axes(shape: tuple[int, ...] | None, path: Path, variable: str) -> tuple[int, ...]:
    """The shape of an array, of which nothing is read yet; ResourceError for axes too long to hold their positions."""
    _count(shape, path, variable)
    assert shape is not None
    require_memory(
        sum(shape) * BYTES_PER_POSITION, f"'{variable}' in {path.name}, of shape {shape},",
        "write a smaller array into the file",
    )  # fmt: skip
    return tuple(int(n) for n in shape)


def _missing(path: Path, variable: str, names: Iterable[str]) -> ConfigurationError:
    names = sorted(names)
    close = difflib.get_close_matches(variable, names, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'?" if close else f"it holds {', '.join(names[:12]) or 'nothing'}."
    return MissingVariable(f"{path.name} has no variable '{variable}'; {hint}")


def _check_number(dtype: np.dtype, path: Path, variable: str) -> None:
    if dtype.kind not in "iuf":
        raise ConfigurationError(f"'{variable}' in {path.name} has dtype {dtype}; expected real numbers.")


def _in_npz(path: Path, variable: str) -> Stored:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if variable not in sizes:
            raise _missing(path, variable, sizes)
        info = sizes[variable]
        with archive.open(info) as member:
            shape, _, dtype = _npy_header(member, info, path, variable)
        _check_axes(shape, path, variable)
        coordinates = {}
        for axis in ("x", "y", "z"):
            if axis in sizes and sizes[axis].file_size < 2**24 and axis != variable:
                coordinates[axis] = read_npy(archive, sizes[axis], path, axis)

    def part(ranges: Ranges) -> np.ndarray:
        with zipfile.ZipFile(path) as archive, archive.open(info.filename) as member:
            _, fortran, _ = _npy_header(member, info, path, variable)
            values = np.empty([last - first for first, last in ranges], dtype, order="F" if fortran else "C")
            if fortran:  # it lies there with its axes turned round
                _fill(values.T, member, shape[::-1], ranges[::-1])
            else:
                _fill(values, member, shape, ranges)
            return values

    lines = {name: line for name, line in coordinates.items() if line.ndim == 1}
    return Stored(path, variable, shape, dtype.itemsize, None, {}, lines, part)


def _npy_header(
    member: IO[bytes], info: zipfile.ZipInfo, path: Path, variable: str
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype of an array of real numbers in an NPZ file, once its header was found to be honest."""
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version}")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(member)
    if dtype.hasobject:
        raise ConfigurationError(f"'{variable}' in {path.name} is a pickled object, which is never loaded.")
    _check_number(dtype, path, variable)
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
        raise ValueError(f"'{variable}' claims shape {shape} but has {info.file_size} bytes")
    return shape, fortran, dtype


def _fill(values: np.ndarray, member: IO[bytes], shape: Sequence[int], ranges: Ranges) -> None:
    """Fill `values` from an array of `shape` that a file holds row by row from where it stands, and pass the rest.

    It is read in pieces, of which no more is kept than lies within the ranges.
    """
    row = math.prod(shape[1:]) * values.dtype.itemsize
    (first, last), rows = ranges[0], shape[0]
    if len(shape) > 1 and row > PIECE:
        _skip(member, first * row)
        for number in range(last - first):
            _fill(values[number], member, shape[1:], ranges[1:])
        _skip(member, (rows - last) * row)
        return
    inner = tuple(slice(*one) for one in ranges[1:])
    at_once = max(1, PIECE // row)
    _skip(member, first * row)
    for start in range(first, last, at_once):
        count = min(at_once, last - start)
        block = np.frombuffer(_exactly(member, count * row), values.dtype).reshape(count, *shape[1:])
        values[start - first : start - first + count] = block[(slice(None), *inner)]
    _skip(member, (rows - last) * row)


def _exactly(member: IO[bytes], count: int) -> bytes:
    held = member.read(count)
    if len(held) != count:
        raise EOFError("it ends before its values do")
    return held


def _skip(member: IO[bytes], count: int) -> None:
    """Pass so many bytes, which are read for the archive's checksum."""
    while count > 0:
        count -= len(_exactly(member, min(count, PIECE)))


def read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, variable: str) -> np.ndarray:
    """An array of real numbers out of an NPZ file, once its header was found to be honest and affordable."""
    with archive.open(info) as member:
        shape, _, dtype = _npy_header(member, info, path, variable)
        check_size(shape, dtype.itemsize, path, variable)
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _in_classic_netcdf(path: Path, variable: str) -> Stored:
    from scipy.io import netcdf_file

    with path.open("rb") as opened:  # closed before `file` ends: scipy would warn of arrays that still refer to it
        file = netcdf_file(opened, "r", mmap=True)
        if variable not in file.variables:
            raise _missing(path, variable, file.variables)
        found = file.variables[variable]
        shape = _check_axes(found.data.shape, path, variable)
        itemsize = found.data.dtype.itemsize
        _check_number(found.data.dtype, path, variable)
        dims = tuple(found.dimensions)
        attributes = {name: getattr(found, name) for name in _ATTRIBUTES if hasattr(found, name)}
        coordinates = {name: np.array(file.variables[name].data) for name in dims if name in file.variables}

    def part(ranges: Ranges) -> np.ndarray:
        with path.open("rb") as opened:
            file = netcdf_file(opened, "r", mmap=True)
            values = np.array(file.variables[variable].data[tuple(slice(*one) for one in ranges)])
        return values

    lines = {name: line for name, line in coordinates.items() if line.ndim == 1}
    return Stored(path, variable, shape, itemsize, dims, attributes, lines, part)


def _in_zarr(path: Path, variable: str) -> Stored:
    """A variable of a Zarr store in a folder, where the package zarr is there to read it."""
    if importlib.util.find_spec("zarr") is None:
        raise ConfigurationError(
            f"{path.name} is a Zarr store, which the package zarr reads: install it, or write a NetCDF file."
        )
    links = next((inside.name for inside in path.rglob("*") if inside.is_symlink()), None)
    if links is not None:
        raise ConfigurationError(f"{path.name} holds the symbolic link {links}; copy into it what that leads to.")
    import xarray as xr

    def opened() -> xr.Dataset:
        return xr.open_zarr(path, decode_cf=False, chunks=None)

    with opened() as dataset:
        if variable not in dataset.variables:
            raise _missing(path, variable, map(str, dataset.variables))
        found = dataset.variables[variable]
        _check_number(found.dtype, path, variable)
        shape, dims = _check_axes(found.shape, path, variable), tuple(map(str, found.dims))
        coordinates = {
            name: np.asarray(dataset.variables[name]) for name in dims
            if name in dataset.variables and dataset.variables[name].ndim == 1
        }  # fmt: skip
        attributes = {name: found.attrs[name] for name in _ATTRIBUTES if name in found.attrs}

    def part(ranges: Ranges) -> np.ndarray:
        with opened() as dataset:
            return np.asarray(dataset.variables[variable][tuple(slice(*one) for one in ranges)])

    return Stored(path, variable, shape, found.dtype.itemsize, dims, attributes, coordinates, part)


def _in_hdf5(path: Path, variable: str) -> Stored:
    import h5py

    with h5py.File(path, "r") as file:
        dataset = _follow(file, variable, path)
        if not isinstance(dataset, h5py.Dataset):
            raise _missing(path, variable, _dataset_names(file))
        require_contained(path, variable)
        _check_number(dataset.dtype, path, variable)
        shape = _check_axes(dataset.shape, path, variable)
        itemsize, (dims, coordinates) = dataset.dtype.itemsize, _dimensions(dataset)
        attributes = {name: dataset.attrs[name] for name in _ATTRIBUTES if name in dataset.attrs}

    def part(ranges: Ranges) -> np.ndarray:
        with h5py.File(path, "r") as file:
            return np.asarray(_follow(file, variable, path)[tuple(slice(*one) for one in ranges)])

    return Stored(path, variable, shape, itemsize, dims, attributes, coordinates, part)


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
