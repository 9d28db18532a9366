"""Measurements from a user's file: values, when and where they were made, which of them count, how certain they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from simjax.arguments import taken_over
from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.conventions import check_units, positions_of, values_of
from simjax.io.files import replaced
from simjax.io.initial import AXIS_NAMES, refuse_doubt
from simjax.io.initial_files import find_stored
from simjax.io.stored_variable import MissingVariable, Stored

if TYPE_CHECKING:
    from simjax.schema.inverse import MeasuredFile

ARRAYS = "arrays"
"""Folder below `output.root` that holds what was given in Python."""
MASK, ERROR = "mask", "error"
"""Variables of a file that say what was measured and how well, where no others are named."""
_AXES = {name: axis for axis, names in AXIS_NAMES.items() for name in names}


@dataclass(frozen=True)
class Measurements:
    """Values of one variable of a file, zero where nothing was measured.

    name: of the variable and the file, for sentences. dims: of the values, `time`, `x`, `y`, `z` by these names. times:
    `(m,)`; None where the file does not tell. places: by axis, the dimension that coordinates lie along ("" for a
    single number) and the coordinates. present: like the values. deviation: the same, one where nothing was measured,
    or None. notes: sentences about what was taken.
    """

    name: str
    dims: tuple[str, ...]
    values: np.ndarray
    present: np.ndarray
    deviation: np.ndarray | None
    times: np.ndarray | None
    places: Mapping[str, tuple[str, np.ndarray]]
    notes: tuple[str, ...]


def read_measurements(
    file: MeasuredFile,
    variable: str,
    own: Sequence[str],
    *,
    units: str,
    time_units: str,
    length_units: str,
    with_error: bool,
    shape: tuple[int, ...] | None = None,
) -> Measurements:
    """The measurements in a file.

    variable: its name there, unless the file is given with another. own: the dimensions that an array without names
    has, after those of time. shape: of the grid of a snapshot, which tells the order of such an array where the file
    does not. with_error: whether the standard deviations are looked for there.

    Raises ConfigurationError for what cannot be used, InputOutputError for what cannot be read.
    """
    stored = find_stored(file.path, file.variable or variable)
    name = f"'{stored.variable}' in {file.path.name}"
    note = check_units(stored, units, name)
    if shape is not None and len(shape) > 1 and file.order is None and not any(stored.dims or ()):
        if _lists_places(stored, own):
            own = ("number",)
        else:
            refuse_doubt(stored, shape, stored.shape[-len(shape) :], name)
    dims = _dims(stored, own, name)
    values = _read(stored)
    if file.member is not None and "member" not in dims:
        raise ConfigurationError(f"{name} has no dimension 'member'; leave out member: {file.member}.")
    values, dims = _of_member(file, stored, values, dims, name)
    places = {}
    for axis in ("x", "y", "z"):
        found = _coordinate(stored, axis, dims, values.shape, length_units)
        if found is not None:
            places[axis] = found
    time = _coordinate(stored, "time", dims, values.shape, time_units)
    times = None if time is None else np.atleast_1d(time[1])
    if "time" not in dims and times is not None and times.size == 1:
        values, dims = values[None], ("time", *dims)
    if times is not None and "time" in dims and not np.isfinite(times).all():
        raise ConfigurationError(f"{name}: its coordinate time is not finite; write a time for each measurement.")
    if np.isinf(values).any():
        at = tuple(int(i) for i in np.argwhere(np.isinf(values))[0])
        raise ConfigurationError(f"{name} is infinite at index {at}; write NaN where nothing was measured.")
    present = np.isfinite(values)
    mask = _beside(file, stored, file.mask, MASK, dims, values.shape)
    if mask is not None:
        present &= np.isfinite(mask) & (mask != 0)
    if not present.any():
        raise ConfigurationError(
            f"{name}: none of its {values.size} values was measured, as all are NaN or masked; write 1 in the mask "
            "where one was."
        )
    error = ERROR if with_error else None
    deviation = _beside(file, stored, file.deviation, error, dims, values.shape, units)
    if deviation is not None:
        wrong = np.argwhere(present & ~(np.isfinite(deviation) & (deviation > 0)))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise ConfigurationError(
                f"'{file.deviation or ERROR}' in {file.path.name} is {deviation[at]:g} at index {at}, where something "
                "was measured; expected standard deviations > 0."
            )
        deviation = np.where(present, deviation, 1.0)
    used = [
        unused
        for unused, given, there in ((MASK, file.mask, mask), (ERROR, file.deviation, deviation))
        if given is None and there is not None
    ]
    notes = [f"{name}: {note}"] if note else []
    notes += [f"{name}: its variable {one} is taken" for one in used]
    # What lies under the mask is not kept: whatever it is, programs see the same.
    return Measurements(name, dims, np.where(present, values, 0.0), present, deviation, times, places, tuple(notes))


def write_measurements(
    root: Path, data: Any, name: str, dims: Sequence[str], beside: Mapping[str, Any]
) -> tuple[Path, dict[str, str]]:
    """Write measurements given in Python to a NetCDF file below `root`; its path, and the names of variables in it.

    data: an `xarray.Dataset`, a `DataArray`, or an array with `dims`, or with these but time. name: of the variable
    where the data have none. beside: a mask and deviations as arrays of the same shape, or of its last axes.

    A file's name is the digest of its content, so that the same data are written once.
    """
    named: dict[str, str] = {}
    if isinstance(data, xr.Dataset):
        dataset = data
    else:
        if not isinstance(data, xr.DataArray):
            data = _array(data, name, dims)
        named["variable"] = str(data.name or name)
        dataset = data.to_dataset(name=named["variable"])
    for key, values in beside.items():
        own = values if isinstance(values, xr.DataArray) else None
        if own is None:
            if isinstance(data, xr.Dataset):
                raise ConfigurationError(
                    f"{key}: expected the name of a variable of the dataset, or a DataArray, beside a dataset."
                )
            own = _array(values, key, [str(dim) for dim in data.dims], trailing=True)
        dataset = dataset.assign({f"{name}_{key}": own.astype("f8").drop_vars(list(own.coords))})
        named[key] = f"{name}_{key}"
    digest = hashlib.sha256()
    for variable, values in sorted(dataset.variables.items(), key=lambda item: str(item[0])):
        digest.update(repr((variable, values.dims, values.shape, values.dtype, values.attrs)).encode())
        digest.update(np.ascontiguousarray(values.values).tobytes())
    path = root.expanduser().resolve() / ARRAYS / f"{digest.hexdigest()[:24]}.nc"
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(path) as temporary:
                dataset.to_netcdf(temporary, engine="h5netcdf")
        except OSError as error:
            raise InputOutputError(f"{path} cannot be written ({error.strerror}); write another output.root.") from None
    return path, named


def _array(values: Any, name: str, dims: Sequence[str], *, trailing: bool = False) -> xr.DataArray:
    """An array with its dimensions, of which the first, or with `trailing` any number of them, may be missing."""
    array = np.asarray(taken_over(values))
    if array.dtype.kind not in "biuf":
        raise ConfigurationError(f"{name}: expected real numbers, got {array.dtype}.")
    least = 0 if trailing else len(dims) - 1
    if not least <= array.ndim <= len(dims):
        expected = ", ".join(dims)
        raise ConfigurationError(f"{name}: expected an array with axes ({expected}), got shape {array.shape}.")
    return xr.DataArray(array.astype("f8"), dims=dims[len(dims) - array.ndim :], name=name)


def _read(stored: Stored, *, flags: bool = False) -> np.ndarray:
    """All values in float64, NaN where the file has none; `flags` is whether these may be classes."""
    return values_of(stored, f"'{stored.variable}' in {stored.path.name}", flags=flags)


def _dims(stored: Stored, own: Sequence[str], name: str) -> tuple[str, ...]:
    """Names of the dimensions: those of time and space by their axis, others as they are."""
    if stored.dims is not None and (not stored.shape or all(stored.dims)):
        return tuple(_AXES.get(dim.lower(), dim) for dim in stored.dims)
    expected = ("time", *own)
    if len(stored.shape) == len(own):
        return tuple(own)
    if len(stored.shape) != len(expected):
        raise ConfigurationError(
            f"{name} has shape {stored.shape} and no names of its axes; expected ({', '.join(expected)})."
        )
    return expected


def _lists_places(stored: Stored, axes: Sequence[str]) -> bool:
    """Tell of an array without names whether coordinates beside it are those of a list of places, not of its axes."""
    lines = [line.shape for axis in axes if (line := _find(stored, axis)) is not None]
    same = len(lines) == len(axes) and all(line == stored.shape[-1:] for line in lines)
    return same and [n for (n,) in lines] != [*stored.shape[-len(axes) :]]


def _of_member(
    file: MeasuredFile, stored: Stored, values: np.ndarray, dims: tuple[str, ...], name: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The values of the member that is asked for, without the dimension of members; a single one needs no number."""
    if "member" not in dims:
        return values, dims
    axis, found = dims.index("member"), _find(stored, "member")
    numbers = list(range(values.shape[axis])) if found is None else _read(found).astype(int).tolist()
    member = numbers[0] if file.member is None and len(numbers) == 1 else file.member
    if member is None or member not in numbers:
        asked = "no member of it" if member is None else f"member {member}"
        raise ConfigurationError(
            f"{name} has {len(numbers)} values along 'member', and {asked} is asked for; write the number of one, such "
            f"as member: {numbers[0]}, in an observation of a run of its own (inverse.experiments)."
        )
    return values.take(numbers.index(member), axis), dims[:axis] + dims[axis + 1 :]


def _find(stored: Stored, name: str) -> Stored | None:
    """A variable beside another one in the same group, if there is one."""
    group, slash, _ = stored.variable.rpartition("/")
    try:
        return find_stored(stored.path, f"{group}{slash}{name}")
    except MissingVariable:
        return None


def _coordinate(
    stored: Stored, axis: str, dims: tuple[str, ...], shape: tuple[int, ...], units: str
) -> tuple[str, np.ndarray] | None:
    """The dimension that positions along an axis, or times, lie along, and these; None where the file has none."""
    named = [dim for dim in stored.dims or () if _AXES.get(dim.lower(), dim) == axis]
    for candidate in (*named, *(alias for alias in AXIS_NAMES[axis] if alias not in named)):
        if (named and candidate not in named) or (candidate in named and candidate not in stored.coordinates):
            continue  # of another name than the dimension, or a dimension without coordinates
        found = _find(stored, candidate)
        if found is None:
            continue
        own = found.dims if found.dims is None else tuple(_AXES.get(dim.lower(), dim) for dim in found.dims)
        if found.shape == ():
            along = ""
        elif len(found.shape) != 1:
            continue
        elif own and own[0]:
            along = own[0]
        else:  # an array without names: of the dimension that is called so, or of the only one of that length
            alike = [dim for dim, n in zip(dims, shape, strict=True) if n == found.shape[0] and dim != "time"]
            along = axis if axis in dims else alike[0] if len(alike) == 1 else None
        if along is None or along and along not in dims:
            continue
        if found.shape and found.shape != (shape[dims.index(along)],):
            raise ConfigurationError(
                f"'{found.variable}' in {found.path.name} has {found.shape[0]} values for the "
                f"{shape[dims.index(along)]} of '{stored.variable}' along it; write one for each."
            )
        return along, positions_of(found, units)
    return None


def _beside(
    file: MeasuredFile,
    stored: Stored,
    named: str | None,
    default: str | None,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    units: str | None = None,
) -> np.ndarray | None:
    """A variable of the shape of the measurements, or of a part of their dimensions."""
    if named is None and default is None:
        return None
    found = find_stored(file.path, named) if named is not None else _find(stored, str(default))
    if found is None:
        return None
    name = f"'{found.variable}' in {file.path.name}"
    if units is not None:
        check_units(found, units, name)
    values = _read(found, flags=default == MASK)
    if found.dims is None or not all(found.dims):
        own = dims[len(dims) - values.ndim :]
    else:
        own = tuple(_AXES.get(dim.lower(), dim) for dim in found.dims)
        values, own = _of_member(file, found, values, own, name)
    sizes = dict(zip(dims, shape, strict=True))
    if values.ndim > len(dims) or any(
        dim not in sizes or sizes[dim] != n for dim, n in zip(own, values.shape, strict=True)
    ):
        raise ConfigurationError(
            f"{name} has axes ({', '.join(own)}) of shape {values.shape}; expected some of those of "
            f"'{stored.variable}', ({', '.join(dims)}) of shape {shape}."
        )
    order = [own.index(dim) for dim in dims if dim in own]
    whole = values.transpose(order).reshape([n if dim in own else 1 for dim, n in sizes.items()])
    return np.broadcast_to(whole, shape)
