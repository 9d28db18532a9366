"""Initial fields from a user's file: found, checked, oriented, brought to the grid, with every step told.

Each process reads what its devices hold, so that no host needs room for the whole grid.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.io.body_files import BodyField
from simjax.io.initial_files import Ranges, Stored, find_stored, require_room
from simjax.io.regrid import AxisMap, AxisMismatch, axis_map, target_axis
from simjax.processes import processes

AXIS_NAMES = {
    "x": ("x", "x_face", "xc", "xu", "x_c", "x_f", "lon", "longitude"),
    "y": ("y", "y_face", "yc", "yv", "y_c", "y_f", "lat", "latitude"),
    "z": ("z", "z_face", "zc", "zw", "z_c", "z_f", "lev", "level", "depth", "height"),
    "time": ("time", "t"),
    "member": ("member", "ensemble", "realization", "number"),
}
LONGEST_UNITS = 100
MOST_TOLD = 1000
"""Values that are not finite, up to which they are counted."""
_UNIT_WORDS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "second": "s", "seconds": "s", "sec": "s",
    "kelvin": "K", "kilogram": "kg", "kilograms": "kg", "1": "", "-": "", "none": "", "dimensionless": "",
}  # fmt: skip


class FieldFile:
    """One component of a field that lies in a file, brought to the grid region by region; made by `field_file`.

    notes: what is done to it, in sentences. not_finite: the values that were read and are not finite, by their place in
    the variable, the first few of each region.
    """

    def __init__(self, stored: Stored, chosen: Sequence[int | None], dims: Sequence[str], maps: Sequence[AxisMap]):
        self._stored, self._chosen, self._dims, self._maps = stored, chosen, dims, maps
        self._name = _named(stored)
        self._shape = tuple(n for n, one in zip(stored.shape, chosen, strict=True) if one is None)
        self._packing = packing(stored, self._name)
        self.notes: list[str] = []
        self.not_finite: dict[int, str] = {}

    def read(self, bounds: Ranges) -> np.ndarray:
        """float64 values `[x, y, z]` between `bounds`, first cell and one past the last along each axis of the grid.

        No more of the file is read than these take: the cells themselves, or those around them that they are
        interpolated between.

        Raises InputOutputError where the file is damaged, ResourceError where the region does not fit into memory.
        """
        parts = [one.within(*ends) for one, ends in zip(self._maps, bounds, strict=True)]
        needed = [parts[AXES.index(name)][0] for name in self._dims]
        self._require_room(needed, bounds)
        values = self._gathered(needed)
        values = values.transpose([self._dims.index(axis) for axis in AXES[: len(parts)]])
        for axis, (_, own) in enumerate(parts):
            values = np.moveaxis(own.apply(np.moveaxis(values, axis, 0)), 0, axis)
        return np.ascontiguousarray(values)

    def _require_room(self, needed: Sequence[Ranges], bounds: Ranges) -> None:
        of_grid = [bounds[AXES.index(name)] for name in self._dims]
        larger = (max(sum(b - a for a, b in of_file), last - first)
                  for of_file, (first, last) in zip(needed, of_grid, strict=True))  # fmt: skip
        stored = self._stored
        require_room(math.prod(larger), stored.itemsize, stored.shape, stored.path, stored.variable)

    def _gathered(self, needed: Sequence[Ranges]) -> np.ndarray:
        """The values within one or two ranges of each axis, one after another, in the order of the file's axes."""
        result = np.empty([sum(b - a for a, b in ranges) for ranges in needed])
        for ranges in itertools.product(*needed):
            spatial = iter(ranges)
            index = [next(spatial) if one is None else (one, one + 1) for one in self._chosen]
            values = unpack(self._stored.read(index), *self._packing)
            values = values.reshape([b - a for a, b in ranges])
            self._note_not_finite(values, [first for first, _ in ranges])
            at = [slice(0, b - a) if (a, b) == own[0] else slice(a - b, None)
                  for (a, b), own in zip(ranges, needed, strict=True)]  # fmt: skip
            result[tuple(at)] = values
        return result

    def _note_not_finite(self, values: np.ndarray, firsts: Sequence[int]) -> None:
        places = np.argwhere(~np.isfinite(values))[:MOST_TOLD]
        if places.size:
            flat = np.asarray(np.ravel_multi_index(tuple((places + firsts).T), self._shape))
            self.not_finite |= dict(zip(flat.tolist(), map(str, values[tuple(places.T)].tolist()), strict=True))

    def told_first(self) -> list[tuple[int, str]]:
        """The first of `not_finite`, in their order."""
        return sorted(self.not_finite.items())[:MOST_TOLD]

    def require_finite(self, found: Iterable[tuple[int, str]]) -> None:
        """Raises ConfigurationError where any value is not finite; `found` are those that all processes have read."""
        wrong = dict(sorted(found))
        if not wrong:
            return
        place, value = next(iter(wrong.items()))
        where = zip(self._dims, np.unravel_index(place, self._shape), strict=True)
        index = ", ".join(f"{name}={int(i)}" for name, i in where)
        count = f"{len(wrong)}" if len(wrong) < MOST_TOLD else f"at least {MOST_TOLD}"
        raise ConfigurationError(
            f"{self._name} is {value} at index {index} ({count} of {math.prod(self._shape)} values are not finite); "
            "fill them before."
        )


def field_file(
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
) -> FieldFile:
    """One component of an initial field, at `offset` of every cell of the grid, of which nothing is read yet.

    Axes are known by the names of the file's dimensions; without names they come in `order`, by default
    (z, y, x). `time` and `member` choose where the file has several. Positions are the file's coordinates;
    without coordinates its cells divide the grid's box, and an array of the grid's shape is taken as it is.
    Raises ConfigurationError (a wrong shape, units, dtype or position) or InputOutputError (a file that cannot be
    read), each in one sentence.
    """
    stored = find_stored(Path(path), variable)
    where = _named(stored)
    notes = [check_units(stored, units, where)]
    dims = _name_dimensions(stored, grid.ndim, time, member, order, where)
    chosen, dims, told = _select(stored.shape, dims, {"time": time, "member": member}, grid.ndim, where)
    notes += [*told, "" if stored.dims else f"its axes taken as ({', '.join(dims)})"]
    counts = dict(zip(dims, (n for n, one in zip(stored.shape, chosen, strict=True) if one is None), strict=True))
    maps = []
    for axis, name in enumerate(AXES[: grid.ndim]):
        target = target_axis(grid, axis, offset[axis], bool(periodic[axis]))
        try:
            own, note = axis_map(counts[name], _positions(stored, name), target)
        except AxisMismatch as error:
            raise ConfigurationError(
                f"{where} does not fit the grid: {error}; write grid.lower and grid.upper to match."
            ) from None
        maps.append(own)
        notes.append(note or "")
    if all(counts[name] == n for name, n in zip(AXES, grid.shape, strict=False)):
        notes.append("" if any("along" in note for note in notes) else "shape as in the grid, taken as it is")
    found = FieldFile(stored, chosen, dims, maps)
    told = [note for note in notes if note]
    found.notes = [f"{where}: {', '.join(told)}"] if told else []
    return found


def require_finite(files: Sequence[FieldFile | BodyField]) -> None:
    """Raises ConfigurationError, the same on all processes, where a value that any of them has read is not finite.

    All processes call this together, once each has read its own part of the same files.
    """
    if not files:
        return
    told = processes().gather([file.told_first() for file in files])
    for file, own in zip(files, zip(*told, strict=True), strict=True):
        file.require_finite((int(place), value) for one in own for place, value in one)


def _named(stored: Stored) -> str:
    return f"'{stored.variable}' in {stored.path.name}"


def check_units(stored: Stored, expected: str | None, where: str) -> str:
    """Refuse a variable in other units than expected; what is told of one without units, else nothing."""
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


def packing(stored: Stored, where: str) -> tuple[np.ndarray, float, float]:
    """Values that stand for missing ones, scale and shift, by the conventions of CF."""
    fills = np.concatenate([_numbers(stored, name, where) for name in ("_FillValue", "missing_value")])
    factors = []
    for name, default in (("scale_factor", 1.0), ("add_offset", 0.0)):
        found = _numbers(stored, name, where) if name in stored.attributes else np.array([default])
        if found.size != 1 or not np.isfinite(found[0]):
            raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected one finite number.")
        factors.append(float(found[0]))
    return fills, *factors


def unpack(stored: np.ndarray, fills: np.ndarray, scale: float, shift: float) -> np.ndarray:
    """float64, with CF packing undone and fill values as NaN."""
    values = stored.astype(np.float64)
    for fill in fills:
        values[stored == fill] = np.nan
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
        known = {name: axis for axis, names in AXIS_NAMES.items() for name in names}
        return [known.get(name.lower(), name) for name in stored.dims]
    spatial = list(order) if order is not None else list(AXES[:ndim][::-1])
    leading = [name for name, index in (("member", member), ("time", time)) if index is not None]
    if len(stored.shape) != len(leading) + ndim:
        raise ConfigurationError(
            f"{where} has shape {stored.shape}; expected the {len(leading) + ndim} axes "
            f"({', '.join([*leading, *spatial])})."
        )
    return leading + spatial


def _select(
    shape: tuple[int, ...], dims: list[str], chosen: Mapping[str, int | None], ndim: int, where: str
) -> tuple[list[int | None], list[str], list[str]]:
    """The index to take along each axis of a file, None for the grid's own; the names of those; what was chosen.

    One time and one member are taken, axes of length one dropped, and just the grid's axes may be left.
    """
    notes, taken = [], []
    for name, count in zip(dims, shape, strict=True):
        if name in AXES[:ndim]:
            taken.append(None)
            continue
        index = chosen.get(name)
        if index is None and count != 1:
            hint = f"write {name}: -1 for the last" if name in chosen else f"the grid has axes {' '.join(AXES[:ndim])}"
            raise ConfigurationError(f"{where} has {count} values along '{name}'; {hint}.")
        if not -count <= (index or 0) < count:
            raise ConfigurationError(f"{where} has {count} values along '{name}'; {name}: {index} is not one of them.")
        taken.append((index or 0) % count)
        if count > 1:
            notes.append(f"{name} {(index or 0) % count} of {count}")
    left = [name for name, one in zip(dims, taken, strict=True) if one is None]
    if sorted(left) != sorted(AXES[:ndim]):
        of = tuple(n for n, one in zip(shape, taken, strict=True) if one is None)
        raise ConfigurationError(
            f"{where} has axes ({', '.join(left) or 'none'}) of shape {of}; expected ({', '.join(AXES[:ndim][::-1])})."
        )
    return taken, left, notes


def _positions(stored: Stored, axis: str) -> np.ndarray | None:
    """The file's coordinate along a grid axis, if it has one."""
    for name, line in stored.coordinates.items():
        dimension = stored.dims is None or name in stored.dims
        if dimension and name.lower() in AXIS_NAMES[axis] and line.dtype.kind in "iuf":
            return line.astype(np.float64)
    return None
