"""Initial fields from a user's file: found, checked, oriented, brought to the grid, with every step told.

Each process reads what its devices hold, so that no host needs room for the whole grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.io.body_files import BodyField
from simjax.io.conventions import check_units, packing, positions_of
from simjax.io.initial_files import find_stored
from simjax.io.regrid import AxisMap, AxisMismatch, axis_map, target_axis
from simjax.io.stored_variable import Ranges, Stored, require_room
from simjax.processes import processes

AXIS_NAMES = {
    "x": ("x", "x_face", "xc", "xu", "x_c", "x_f", "lon", "longitude"),
    "y": ("y", "y_face", "yc", "yv", "y_c", "y_f", "lat", "latitude"),
    "z": ("z", "z_face", "zc", "zw", "z_c", "z_f", "lev", "level", "depth", "height"),
    "time": ("time", "t"),
    "member": ("member", "ensemble", "realization", "number"),
}
MOST_TOLD = 1000
"""Values that are not finite, up to which they are counted."""


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
        larger = (
            max(sum(b - a for a, b in of_file), last - first)
            for of_file, (first, last) in zip(needed, of_grid, strict=True)
        )
        stored = self._stored
        require_room(math.prod(larger), stored.dtype.itemsize, stored.shape, stored.path, stored.variable)

    def _gathered(self, needed: Sequence[Ranges]) -> np.ndarray:
        """The values within one or two ranges of each axis, one after another, in the order of the file's axes."""
        result = np.empty([sum(b - a for a, b in ranges) for ranges in needed])
        for ranges in itertools.product(*needed):
            spatial = iter(ranges)
            index = [next(spatial) if one is None else (one, one + 1) for one in self._chosen]
            values = self._packing.unpack(self._stored.read(index))
            values = values.reshape([b - a for a, b in ranges])
            self._note_not_finite(values, [first for first, _ in ranges])
            at = [
                slice(0, b - a) if (a, b) == own[0] else slice(a - b, None)
                for (a, b), own in zip(ranges, needed, strict=True)
            ]
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
    length_units: str | None = None,
    time: int | None = None,
    member: int | None = None,
    order: Sequence[str] | None = None,
) -> FieldFile:
    """One component of an initial field, at `offset` of every cell of the grid, of which nothing is read yet.

    Axes are known by the names of the file's dimensions; without names they come in `order`, by default
    (z, y, x), which is taken where the shape leaves no doubt. `time` and `member` choose where the file has several.
    Positions are the file's coordinates, in `length_units` if these are given; without coordinates its cells divide the
    grid's box, and an array of the grid's shape is taken as it is.
    Raises ConfigurationError (a wrong shape, units, dtype or position) or InputOutputError (a file that cannot be
    read), each in one sentence.
    """
    stored = find_stored(Path(path), variable)
    where = _named(stored)
    notes = [check_units(stored, units, where)]
    dims = _name_dimensions(stored, grid.shape, time, member, order, where)
    chosen, dims, told = _select(stored.shape, dims, {"time": time, "member": member}, grid.ndim, where)
    notes += [*told, "" if stored.dims else f"its axes taken as ({', '.join(dims)})"]
    counts = dict(zip(dims, (n for n, one in zip(stored.shape, chosen, strict=True) if one is None), strict=True))
    maps = []
    for axis, name in enumerate(AXES[: grid.ndim]):
        target = target_axis(grid, axis, offset[axis], bool(periodic[axis]))
        try:
            own, note = axis_map(counts[name], _positions(stored, name, length_units), target)
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


def _name_dimensions(
    stored: Stored,
    shape: tuple[int, ...],
    time: int | None,
    member: int | None,
    order: Sequence[str] | None,
    where: str,
) -> list[str]:
    """x, y, z, time or member for every dimension of the array; the file's own name for any other."""
    if order is None and stored.dims is not None:
        known = {name: axis for axis, names in AXIS_NAMES.items() for name in names}
        return [known.get(name.lower(), name) for name in stored.dims]
    ndim = len(shape)
    spatial = list(order) if order is not None else list(AXES[:ndim][::-1])
    leading = [name for name, index in (("member", member), ("time", time)) if index is not None]
    if len(stored.shape) != len(leading) + ndim:
        raise ConfigurationError(
            f"{where} has shape {stored.shape}; expected the {len(leading) + ndim} axes "
            f"({', '.join([*leading, *spatial])})."
        )
    if order is None and ndim > 1:
        refuse_doubt(stored, shape, stored.shape[len(leading) :], where)
    return leading + spatial


def refuse_doubt(stored: Stored, shape: tuple[int, ...], counts: tuple[int, ...], where: str) -> None:
    """Raises ConfigurationError where an array without names of axes may have them in another order than (z, y, x).

    Its shape tells the order: that of its coordinates, where it has them, or of the grid.
    """
    axes = AXES[: len(shape)]
    lengths = {axis: line.shape[0] for axis, line in stored.coordinates.items() if axis in axes}
    lengths = lengths or dict(zip(axes, shape, strict=True))
    fitting = [
        order
        for order in itertools.permutations(axes)
        if all(lengths.get(axis, n) == n for axis, n in zip(order, counts, strict=True))
    ]
    default = axes[::-1]
    # Axes of one value may stand anywhere.
    if default in fitting and len({tuple(a for a, n in zip(o, counts, strict=True) if n > 1) for o in fitting}) == 1:
        return
    most = default if default in fitting or not fitting else fitting[0]
    raise ConfigurationError(
        f"{where} has shape {counts} and no names of its axes, which may be ({', '.join(most)}) or another order; "
        f"write order: [{', '.join(most)}] if they are, or the order that they have."
    )


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


def _positions(stored: Stored, axis: str, units: str | None) -> np.ndarray | None:
    """The file's coordinate along a grid axis, if it has one."""
    for name, line in stored.coordinates.items():
        dimension = stored.dims is None or name in stored.dims
        if dimension and name.lower() in AXIS_NAMES[axis]:
            return positions_of(line, units)
    return None
