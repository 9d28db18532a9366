"""Parts of a variable of a NetCDF, HDF5, NPZ or Zarr file of unknown origin: nothing unpickled or fetched elsewhere."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.containment import MAXIMUM_LINKS, require_contained
from simjax.io.conventions import matters, text_of
from simjax.io.stored_variable import (
    Ranges,
    Stored,
    check_axes,
    check_number,
    check_size,
    damage_named,
    missing,
)
from simjax.io.zarr_files import find_in_zarr

PIECE = 2**22
"""Bytes of an array in an NPZ file that are read at once on the way to what is wanted."""
LONGEST_LINE = 2**24
"""Bytes of an array in an NPZ file up to which it is taken as a coordinate."""
ZARR = ("zarr.json", ".zgroup")
"""Files by which a folder is known as a Zarr store, of format 3 or 2."""


def find_stored(path: Path, variable: str) -> Stored:
    """Find `variable`, by the kind of file that the first bytes tell; of its values nothing is read.

    Raises InputOutputError for a file that cannot be read or takes its values from outside its folder,
    ConfigurationError for unusable content, ResourceError for axes that are too long for this machine.
    """
    path = path.resolve()
    if any((path / name).is_file() for name in ZARR):
        with damage_named(path):
            return find_in_zarr(path, variable)
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
    with damage_named(path):
        return find(path, variable)


def _in_npz(path: Path, variable: str) -> Stored:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if variable not in sizes:
            raise missing(path, variable, sizes)
        axes = [name for name in ("x", "y", "z") if name in sizes and name != variable]
        lines = {
            name: _of_npz(archive, sizes[name], path, name) for name in axes if sizes[name].file_size < LONGEST_LINE
        }
        found = _of_npz(archive, sizes[variable], path, variable)
    return replace(found, coordinates={name: line for name, line in lines.items() if len(line.shape) == 1})


def _of_npz(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, variable: str) -> Stored:
    with archive.open(info) as member:
        shape, _, dtype = npy_header(member, info.file_size, path, variable)
    shape = check_axes(shape, path, variable)

    def part(ranges: Ranges) -> np.ndarray:
        with zipfile.ZipFile(path) as archive, archive.open(info.filename) as member:
            _, fortran, _ = npy_header(member, info.file_size, path, variable)
            values = np.empty([last - first for first, last in ranges], dtype, order="F" if fortran else "C")
            if fortran:  # it lies there with its axes turned round
                _fill(values.T, member, shape[::-1], ranges[::-1])
            else:
                _fill(values, member, shape, ranges)
            return values

    return Stored(path, variable, shape, dtype, None, {}, part)


def npy_header(member: IO[bytes], size: int, path: Path, variable: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype of an array of real numbers of NumPy, once its header was found to be honest.

    size: bytes that there are, with the header.
    """
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version}")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(member)
    if dtype.hasobject:
        raise ConfigurationError(f"'{variable}' in {path.name} is a pickled object, which is never loaded.")
    check_number(dtype, path, variable)
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"'{variable}' claims shape {shape} but has {size} bytes")
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
        return _read_array(member, info.file_size, path, variable)


def read_npy_file(path: Path) -> np.ndarray:
    """The array of real numbers in an NPY file; errors as of `find_stored`."""
    with damage_named(path), path.open("rb") as file:
        return _read_array(file, path.stat().st_size, path, path.stem)


def _read_array(file: IO[bytes], size: int, path: Path, variable: str) -> np.ndarray:
    shape, _, dtype = npy_header(file, size, path, variable)
    check_size(shape, dtype.itemsize, path, variable)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _in_classic_netcdf(path: Path, variable: str) -> Stored:
    from scipy.io import netcdf_file

    with path.open("rb") as opened:  # closed before `file` ends: scipy would warn of arrays that still refer to it
        file = netcdf_file(opened, "r", mmap=True)
        if variable not in file.variables:
            raise missing(path, variable, file.variables)
        found = _of_classic(file, path, variable)
        assert found.dims is not None
        alike = {name: file.variables[name] for name in found.dims if name in file.variables}
        lines = [name for name, line in alike.items() if len(line.dimensions) == 1 and line.data.dtype.kind in "iuf"]
        return replace(found, coordinates={name: _of_classic(file, path, name) for name in lines})


def _of_classic(file: Any, path: Path, variable: str) -> Stored:
    from scipy.io import netcdf_file

    found = file.variables[variable]
    shape, dtype = check_axes(found.data.shape, path, variable), found.data.dtype
    check_number(dtype, path, variable)
    # Its own dictionary: an attribute may have the name of one of scipy's.
    attributes = {name: value for name, value in found._attributes.items() if matters(name)}

    def part(ranges: Ranges) -> np.ndarray:
        with path.open("rb") as opened:
            file = netcdf_file(opened, "r", mmap=True)
            values = np.array(file.variables[variable].data[tuple(slice(*one) for one in ranges)])
        return values

    return Stored(path, variable, shape, dtype, tuple(found.dimensions), attributes, part)


def _in_hdf5(path: Path, variable: str) -> Stored:
    import h5py

    with h5py.File(path, "r") as file:
        dataset = _follow(file, variable, path)
        if not isinstance(dataset, h5py.Dataset):
            raise missing(path, variable, _dataset_names(file))
        require_contained(path, variable)
        dims, scales = _dimensions(dataset)
        found = _of_hdf5(dataset, path, variable, dims)
        lines = {name: _of_hdf5(scale, path, str(scale.name).strip("/"), (name,)) for name, scale in scales.items()}
    return replace(found, coordinates=lines)


def _of_hdf5(dataset: Any, path: Path, variable: str, dims: tuple[str, ...] | None) -> Stored:
    import h5py

    check_number(dataset.dtype, path, variable)
    shape = check_axes(dataset.shape, path, variable)
    attributes = {name: dataset.attrs[name] for name in dataset.attrs if matters(name)}

    def part(ranges: Ranges) -> np.ndarray:
        with h5py.File(path, "r") as file:
            return np.asarray(_follow(file, variable, path)[tuple(slice(*one) for one in ranges)])

    return Stored(path, variable, shape, dataset.dtype, dims, attributes, part)


def _follow(file: Any, variable: str, path: Path) -> Any:
    """The object behind a name, link by link: an external link would open another file unasked."""
    import h5py

    here: Any = file
    parts, links = [part for part in variable.split("/") if part], 0
    if not parts:
        raise missing(path, variable, _dataset_names(file))
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
            raise missing(path, variable, _dataset_names(file))
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


def _dimensions(dataset: Any) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Names and coordinates from attached dimension scales, as in NetCDF-4; None when there are none."""
    names, coordinates = [], {}
    for axis, dimension in enumerate(dataset.dims):
        if len(dimension) == 0:
            names.append(dimension.label or "")
            continue
        scale = dimension[0]
        name = (scale.name or "").rsplit("/", 1)[-1]
        names.append(name)
        without_values = text_of(scale.attrs.get("NAME", b""))
        is_number = scale.dtype.kind in "iuf" and scale.shape == (dataset.shape[axis],)
        if is_number and not without_values.startswith("This is a netCDF dimension but not"):
            coordinates[name] = scale
    return (tuple(names) if any(names) else None), coordinates
