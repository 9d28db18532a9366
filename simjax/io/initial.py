"""Initial fields from a user's file: found, checked, oriented, brought to the grid, with every step told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.io.initial_files import Stored, read_stored
from simjax.io.regrid import AxisMismatch, regrid_axis, target_axis

_AXIS_NAMES = {
    "x": ("x", "x_face", "xc", "xu", "x_c", "x_f", "lon", "longitude"),
    "y": ("y", "y_face", "yc", "yv", "y_c", "y_f", "lat", "latitude"),
    "z": ("z", "z_face", "zc", "zw", "z_c", "z_f", "lev", "level", "depth", "height"),
    "time": ("time", "t"),
    "member": ("member", "ensemble", "realization", "number"),
}
LONGEST_UNITS = 100
_UNIT_WORDS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "second": "s", "seconds": "s", "sec": "s",
    "kelvin": "K", "kilogram": "kg", "kilograms": "kg", "1": "", "-": "", "none": "", "dimensionless": "",
}  # fmt: skip


def read_field(
    path: Path,
    variable: str,
    grid: Grid,
    offset: Sequence[float],
    *,
    periodic: Sequence[bool],
    units: str | None = None,
    time: int | None = None,
    member: int | None = None,
    order: Sequence[str] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """One component of an initial field: float64 values `[x, y, z]` at `offset` of every cell, and its story.

    Axes are known by the names of the file's dimensions; without names they come in `order`, by default
    (z, y, x). `time` and `member` choose where the file has several. Positions are the file's coordinates;
    without coordinates its cells divide the grid's box, and an array of the grid's shape is taken as it is.
    Raises ConfigurationError (a wrong shape, units, dtype, position, or a value that is not finite) or
    InputOutputError (a file that cannot be read), each in one sentence.
    """
    path = Path(path)
    stored = read_stored(path, variable)
    where = f"'{variable}' in {path.name}"
    notes = [_check_units(stored, units, where)]
    dims = _name_dimensions(stored, grid.ndim, time, member, order, where)
    values, dims, chosen = _select(_unpack(stored, where), dims, {"time": time, "member": member}, grid.ndim, where)
    notes += [*chosen, "" if stored.dims else f"its axes taken as ({', '.join(dims)})"]
    _check_finite(values, dims, where)
    values = values.transpose([dims.index(axis) for axis in AXES[: grid.ndim]])
    shape = values.shape
    for axis, name in enumerate(AXES[: grid.ndim]):
        target = target_axis(grid, axis, offset[axis], bool(periodic[axis]))
        positions = _positions(stored, name)
        try:
            moved, note = regrid_axis(np.moveaxis(values, axis, 0), positions, target)
        except AxisMismatch as error:
            raise ConfigurationError(
                f"{where} does not fit the grid: {error}; write grid.lower and grid.upper to match."
            ) from None
        values = np.moveaxis(moved, 0, axis)
        notes.append(note or "")
    if shape == values.shape:
        notes.append("" if any("along" in note for note in notes) else "shape as in the grid, taken as it is")
    told = [note for note in notes if note]
    return np.ascontiguousarray(values), [f"{where}: {', '.join(told)}"] if told else []


def _check_units(stored: Stored, expected: str | None, where: str) -> str:
    if expected is None:
        return ""
    given = stored.attributes.get("units")
    if given is None:
        return f"no units in the file, taken as {expected}"
    given = given.ravel()[0] if isinstance(given, np.ndarray) and given.size == 1 else given
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
    if unit_powers(text) != unit_powers(expected):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise ConfigurationError(f"{where} is in '{shown}'; expected '{expected}': convert it before.")
    return ""


def unit_powers(text: str) -> Mapping[str, int] | str:
    """Powers of the symbols in `m/s`, `m s-1`, `m s**-1`, `m.s^-1`; the text itself if it is unlike that."""
    if len(text) > LONGEST_UNITS:
        return text
    powers: dict[str, int] = {}
    sign = 1
    for token in re.findall(r"[A-Za-z]+(?:\s*(?:\*\*|\^)?\s*[-+]?\d+)?|/|\S", text.strip()):
        if token in "*.·":
            continue
        if token == "/":
            sign = -1
            continue
        matched = re.fullmatch(r"([A-Za-z]+)\s*(?:\*\*|\^)?\s*([-+]?\d+)?", token)
        if matched is None and token not in ("1", "-"):
            return text.strip()
        symbol = matched[1] if matched is not None else token
        symbol = _UNIT_WORDS.get(symbol.lower(), symbol)
        power = sign * int((matched[2] if matched is not None else None) or 1)
        sign = 1
        if symbol:
            powers[symbol] = powers.get(symbol, 0) + power
    return {symbol: power for symbol, power in powers.items() if power}


def _unpack(stored: Stored, where: str) -> np.ndarray:
    """float64, with CF packing undone and fill values as NaN."""
    values = stored.values.astype(np.float64)
    for name in ("_FillValue", "missing_value"):
        for fill in _numbers(stored, name, where):
            values[stored.values == fill] = np.nan
    factors = []
    for name, default in (("scale_factor", 1.0), ("add_offset", 0.0)):
        found = _numbers(stored, name, where) if name in stored.attributes else np.array([default])
        if found.size != 1 or not np.isfinite(found[0]):
            raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected one finite number.")
        factors.append(float(found[0]))
    scale, shift = factors
    return values * scale + shift if (scale, shift) != (1.0, 0.0) else values


def _numbers(stored: Stored, name: str, where: str) -> np.ndarray:
    """An attribute as a list of real numbers, empty where it is not there."""
    if name not in stored.attributes:
        return np.zeros(0)
    found = np.asarray(stored.attributes[name]).ravel()
    if found.dtype.kind not in "iuf":
        raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected a number.")
    return found


def _shown(stored: Stored, name: str) -> str:
    given = stored.attributes[name]
    text = repr(given.tolist() if isinstance(given, np.ndarray | np.generic) else given)
    return text if len(text) <= 60 else text[:57] + "..."


def _name_dimensions(
    stored: Stored, ndim: int, time: int | None, member: int | None, order: Sequence[str] | None, where: str
) -> list[str]:
    """x, y, z, time or member for every dimension of the array; the file's own name for any other."""
    if order is None and stored.dims is not None:
        known = {name: axis for axis, names in _AXIS_NAMES.items() for name in names}
        return [known.get(name.lower(), name) for name in stored.dims]
    spatial = list(order) if order is not None else list(AXES[:ndim][::-1])
    leading = [name for name, index in (("member", member), ("time", time)) if index is not None]
    if stored.values.ndim != len(leading) + ndim:
        raise ConfigurationError(
            f"{where} has shape {stored.values.shape}; expected the {len(leading) + ndim} axes "
            f"({', '.join([*leading, *spatial])})."
        )
    return leading + spatial


def _select(
    values: np.ndarray, dims: list[str], chosen: Mapping[str, int | None], ndim: int, where: str
) -> tuple[np.ndarray, list[str], list[str]]:
    """Take one time and one member, drop axes of length one, and see that just the grid's axes are left."""
    notes = []
    for axis in reversed(range(len(dims))):
        name, count = dims[axis], values.shape[axis]
        if name in AXES[:ndim]:
            continue
        index = chosen.get(name)
        if index is None and count != 1:
            hint = f"write {name}: -1 for the last" if name in chosen else f"the grid has axes {' '.join(AXES[:ndim])}"
            raise ConfigurationError(f"{where} has {count} values along '{name}'; {hint}.")
        if not -count <= (index or 0) < count:
            raise ConfigurationError(f"{where} has {count} values along '{name}'; {name}: {index} is not one of them.")
        values, dims = values.take(index or 0, axis=axis), dims[:axis] + dims[axis + 1 :]
        if count > 1:
            notes.append(f"{name} {(index or 0) % count} of {count}")
    if sorted(dims) != sorted(AXES[:ndim]):
        raise ConfigurationError(
            f"{where} has axes ({', '.join(dims) or 'none'}) of shape {values.shape}; expected "
            f"({', '.join(AXES[:ndim][::-1])})."
        )
    return values, dims, notes


def _check_finite(values: np.ndarray, dims: Sequence[str], where: str) -> None:
    wrong = ~np.isfinite(values)
    count = int(wrong.sum())
    if count:
        first = np.argwhere(wrong)[0]
        index = ", ".join(f"{name}={i}" for name, i in zip(dims, first, strict=True))
        value = values[tuple(first)]
        raise ConfigurationError(
            f"{where} is {value} at index {index} ({count} of {values.size} values are not finite); fill them before."
        )


def _positions(stored: Stored, axis: str) -> np.ndarray | None:
    """The file's coordinate along a grid axis, if it has one."""
    for name, line in stored.coordinates.items():
        dimension = stored.dims is None or name in stored.dims
        if dimension and name.lower() in _AXIS_NAMES[axis] and line.dtype.kind in "iuf":
            return line.astype(np.float64)
    return None
