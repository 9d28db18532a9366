"""Scalars to draw of a run: which one, on which plane, for which members, and on which colour scale."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.grid import SYMBOL
from simjax.io.grid_layout import PALETTE, RANK, SINGULAR
from simjax.io.readable import FACTOR
from simjax.io.staggering import between_faces, periodic_axes
from simjax.report.labels import number, quantity, time_labels, title_case
from simjax.schema.model_schema import magnitude_of

if TYPE_CHECKING:
    import xarray as xr

_FACE, _CENTERED = "_face", "_centered"
_MOST_EVENED = 1024  # cells of one size that stand for a stretched axis, more only if it has more itself
_FIRST, _COMMON, _LAST = -1, 1, 3  # ranks of what a user wants, of what declares none, of lone components of vectors
BLANK = 1e-3  # of the largest variation among frames: a frame with less shows nothing


DRAWN = "simjax_drawn"
"""Attribute of a dataset in memory with what a user wants drawn: a `Drawn`."""


@dataclass(frozen=True)
class Drawn:
    """A wish for the pictures of a run: a scalar by name, and the ends and the palette of its scale, where given."""

    name: str
    limits: tuple[float, float] | None = None
    palette: str = ""


@dataclass(frozen=True)
class Scalar:
    """One scalar to draw: a variable, or the magnitude of the vector with these `components`."""

    dataset: xr.Dataset
    name: str
    components: tuple[str, ...]
    label: str
    units: str

    @property
    def magnitude(self) -> bool:
        return len(self.components) > 1 or "magnitude" in self.name

    @property
    def palette(self) -> str:
        """The palette that the model declares, of a vector for its magnitude; "" where it declares none."""
        if self._drawn and self._drawn.palette:
            return self._drawn.palette
        return "" if self._lone_component else str(self._declared(PALETTE, ""))

    @property
    def limits(self) -> tuple[float, float] | None:
        """The ends of its scale that a user gave."""
        return self._drawn.limits if self._drawn else None

    @property
    def _drawn(self) -> Drawn | None:
        drawn = self.dataset.attrs.get(DRAWN)
        return drawn if isinstance(drawn, Drawn) and drawn.name == self.name else None

    @property
    def rank(self) -> int:
        """The place among scalars, the lowest drawn first: as the model declares it, lone components among the last."""
        if self._drawn:
            return _FIRST
        rank = int(self._declared(RANK, _COMMON))
        return max(rank, _LAST) if self._lone_component else rank

    @property
    def singular(self) -> bool:
        """Tell whether the model declares that it may grow without bounds at sides."""
        return bool(self._declared(SINGULAR, 0))

    @property
    def _lone_component(self) -> bool:
        return len(self.components) == 1 and bool(_vector_of(self.name, self.dataset[self.components[0]]))

    def _declared(self, attribute: str, otherwise: str | int) -> Any:
        return self.dataset[self.components[0]].attrs.get(attribute, otherwise)

    @property
    def of_members(self) -> bool:
        """Tell whether every member has values of its own."""
        return "member" in self.dataset[self.components[0]].dims

    @property
    def axes(self) -> tuple[str, ...]:
        """The spatial axes, as letters, in the order of the file: slowest first."""
        dims = self.dataset[self.components[0]].dims
        return tuple(str(dim)[0] for dim in dims if dim not in ("member", "time"))

    def dimension(self, axis: str) -> str:
        """The dimension along `axis` that the drawn values have: centres for a magnitude."""
        own = next(str(d) for d in self.dataset[self.components[0]].dims if str(d)[0] == axis and d != "time")
        return own.removesuffix(_FACE) if len(self.components) > 1 else own

    def coordinate(self, axis: str) -> np.ndarray:
        """Positions of the drawn values along `axis`."""
        name = self.dimension(axis)
        if name in self.dataset.coords:
            return np.asarray(self.dataset[name].values, dtype=np.float64)
        dims = self.dataset[self.components[0]].sizes
        count = next(size for dim, size in dims.items() if str(dim)[0] == axis and dim != "time")
        return np.arange(count, dtype=np.float64)

    def cells(self, axis: str) -> int:
        """Cells along `axis`: one less than faces where both sides have one."""
        count = self.coordinate(axis).size
        own = self.dataset.sizes.get(axis, count)
        on_faces = self.dimension(axis) != axis and axis not in self.dataset.sizes
        return count - 1 if on_faces and axis not in periodic_axes(self.dataset) else own

    def edges(self, axis: str) -> np.ndarray | None:
        """Ends of the cells that values stand for where these differ in width: of the file's, or halfway between."""
        name = f"{axis}_bounds"
        if name not in self.dataset.variables:
            return None
        if self.dimension(axis) == axis:
            ends = np.asarray(self.dataset[name].values, dtype=np.float64) / self.scale(axis)
            return np.append(ends[:, 0], ends[-1, 1])
        position = self.coordinate(axis)
        middle = 0.5 * (position[1:] + position[:-1])
        return np.concatenate([[2 * position[0] - middle[0]], middle, [2 * position[-1] - middle[-1]]])

    def evened(self, values: np.ndarray, *axes: str, most: int = _MOST_EVENED) -> np.ndarray:
        """`values`, whose axes these are, on equal cells, each of which has the value of the cell that it lies in.

        most: such cells along an axis, if it has no more itself.
        """
        for place, axis in enumerate(axes):
            edges = self.edges(axis)
            if edges is None:
                continue
            finest = (edges[-1] - edges[0]) / np.diff(edges).min()
            count = int(np.clip(np.ceil(finest), edges.size - 1, max(most, edges.size - 1)))
            middles = edges[0] + (edges[-1] - edges[0]) * (np.arange(count) + 0.5) / count
            cell = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, edges.size - 2)
            values = np.take(values, cell, axis=place)
        return values

    def extent(self, axis: str) -> tuple[float, float]:
        """Beginning of the first value's cell and end of the last one's along `axis`."""
        edges = self.edges(axis)
        if edges is not None:
            return float(edges[0]), float(edges[-1])
        position = self.coordinate(axis)
        if position.size > 1:
            half = 0.5 * (position[-1] - position[0]) / (position.size - 1)
        else:
            other = self.dataset.coords.get(axis if self.dimension(axis) != axis else axis + _FACE)
            half = abs(float(other.values[0]) - position[0]) if other is not None else 0.5
        return float(position[0] - half), float(position[-1] + half)

    def axis_label(self, axis: str) -> tuple[str, str]:
        """Name and units of the coordinate along `axis`."""
        name = self.dimension(axis)
        units = units_of(self.dataset, name) if name in self.dataset.coords else "1"
        return coordinate_symbol(self.dataset, name, axis), units

    def scale(self, axis: str) -> float:
        """Length of a shown unit along `axis`, in the file's units of length."""
        name = self.dimension(axis)
        return float(self.dataset[name].attrs.get(FACTOR, 1.0)) if name in self.dataset.coords else 1.0

    def mid_plane(self, normal: str) -> tuple[dict[str, int], str]:
        """In 3-D the cut through the middle across `normal`, and its position as text; else nothing."""
        if len(self.axes) < 3 or normal not in self.axes:
            return {}, ""
        position = self.coordinate(normal)
        index = position.size // 2
        return {normal: index}, f"{normal} = {quantity(float(position[index]), self.axis_label(normal)[1])}"

    def values(self, frame: int, member: int | None = None, cut: Mapping[str, int] | None = None) -> np.ndarray:
        """The values at one output time, slowest axis first; `cut` fixes the cell index along some axes.

        Only what is drawn is read, and what is not finite becomes NaN. Components of a vector stored on
        faces are averaged to cell centres; where nothing tells of the last cell's upper face, as in what is not a
        run's own file, its lower face stands for both.
        """
        # Members that diverge pass through the largest numbers there are on their way to infinity.
        with np.errstate(over="ignore", invalid="ignore"):
            parts = self.vector(frame, member, cut)
            values = functools.reduce(np.hypot, parts)
        return np.where(np.isfinite(values), values, np.float32(np.nan))

    def vector(self, frame: int, member: int | None = None, cut: Mapping[str, int] | None = None) -> list[np.ndarray]:
        """The components that `values` is made of, at cell centres where there are several."""
        return [self._component(name, frame, member, cut or {}) for name in self.components]

    def _component(self, name: str, frame: int, member: int | None, cut: Mapping[str, int]) -> np.ndarray:
        variable = self.dataset[name]
        where: dict[str, int | slice] = {"time": frame}
        if "member" in variable.dims:
            where["member"] = member or 0
        to_centre = len(self.components) > 1
        for dim in variable.dims:
            axis = str(dim)[0]
            if dim not in ("member", "time") and axis in cut:
                centred = to_centre and str(dim).endswith(_FACE)
                where[str(dim)] = slice(cut[axis], cut[axis] + 2) if centred else cut[axis]
        selected = variable.isel(where)
        values = np.asarray(selected.values, dtype=np.float32)
        if not to_centre:
            return values
        for position in reversed(range(values.ndim)):
            dim = str(selected.dims[position])
            if dim.endswith(_FACE):
                cells, wraps = self.dataset.sizes.get(dim[0]), dim[0] in periodic_axes(self.dataset)
                across = dim[0] in cut
                values = values.mean(axis=position) if across else between_faces(values, position, cells, wraps)
        return values


def scalars(dataset: xr.Dataset) -> list[Scalar]:
    """Scalars that can be drawn, the most telling first: by their ranks, else as they stand in the file."""
    vectors: dict[str, list[str]] = {}
    plain: list[Scalar] = []
    for name, variable in dataset.data_vars.items():
        if "time" not in variable.dims or set(variable.dims) <= {"member", "time"} or is_statistic(variable):
            continue
        vector = _vector_of(str(name), variable)
        if vector:
            vectors.setdefault(vector, []).append(str(name))
        elif str(name).removesuffix(_CENTERED) in dataset.data_vars and str(name).endswith(_CENTERED):
            continue  # the same at another place
        else:
            plain.append(_scalar(dataset, str(name)))
    magnitudes: list[Scalar] = []
    for vector, components in vectors.items():
        base = vector.removesuffix(_CENTERED)
        name = magnitude_of(base)
        if name in dataset.data_vars or (base != vector and base in vectors):
            continue
        if len(components) == 1:
            plain.append(_scalar(dataset, components[0]))
            continue
        units = units_of(dataset, components[0])
        magnitudes.append(Scalar(dataset, name, tuple(components), title_case(name), units))
    found, drawn = plain + magnitudes, dataset.attrs.get(DRAWN)
    if isinstance(drawn, Drawn) and drawn.name not in [scalar.name for scalar in found]:
        found.append(_scalar(dataset, drawn.name))
    return sorted(found, key=lambda scalar: scalar.rank)


def drawable_names(dataset: xr.Dataset) -> list[str]:
    """Names that can be drawn, the most telling first: scalars, then components of vectors."""
    names = [scalar.name for scalar in scalars(dataset)]
    parts = [part for scalar in scalars(dataset) for part in scalar.components]
    return list(dict.fromkeys([*names, *parts]))


def is_statistic(variable: xr.DataArray) -> bool:
    """Tell whether a variable is a statistic over members."""
    return str(variable.attrs.get("cell_methods", "")).startswith("member:") or "quantile" in variable.dims


def statistics(dataset: xr.Dataset) -> list[Scalar]:
    """Statistics over members that are one field each, those of the most telling scalars first."""
    names = [str(name) for name, u in dataset.data_vars.items() if is_statistic(u) and "quantile" not in u.dims]
    return sorted((_scalar(dataset, name) for name in names), key=lambda scalar: scalar.rank)


def _scalar(dataset: xr.Dataset, name: str) -> Scalar:
    return Scalar(dataset, name, (name,), label_of(dataset, name), units_of(dataset, name))


def label_of(dataset: xr.Dataset, name: str) -> str:
    """The long name of a variable where it says more than the name, with a capital."""
    long_name = str(dataset[name].attrs.get("long_name") or name)
    return title_case(name) if long_name == name else long_name[:1].upper() + long_name[1:]


def coordinate_symbol(dataset: xr.Dataset, name: str, otherwise: str) -> str:
    """The letter of a coordinate where its file has one, such as r for the variable x of an axisymmetric grid."""
    return str(dataset[name].attrs.get(SYMBOL, otherwise)) if name in dataset.coords else otherwise


def units_of(dataset: xr.Dataset, name: str) -> str:
    """The units of a variable, `1` where it has none."""
    return str(dataset[name].attrs.get("units", "1"))


def _vector_of(name: str, variable: xr.DataArray) -> str:
    """The vector that a variable is a component of, by its attribute or by a name such as `velocity_x`."""
    stem, _, suffix = name.rpartition("_")
    return str(variable.attrs.get("vector") or (stem if suffix in ("x", "y", "z") else ""))


def times(dataset: xr.Dataset) -> np.ndarray:
    """The output times; frame numbers when the file has none."""
    if "time" in dataset.coords:
        return np.asarray(dataset["time"].values, dtype=np.float64)
    return np.arange(dataset.sizes.get("time", 0), dtype=np.float64)


def file_times(dataset: xr.Dataset) -> np.ndarray:
    """The output times in the units of the file."""
    factor = dataset["time"].attrs.get(FACTOR, 1.0) if "time" in dataset.coords else 1.0
    return times(dataset) * float(factor)


def time_units(dataset: xr.Dataset) -> str:
    """Units of the dataset's time axis."""
    return units_of(dataset, "time") if "time" in dataset.coords else "1"


def frame_labels(dataset: xr.Dataset, frames: Sequence[int]) -> list[str]:
    """`t = 0.25 s` for each of these frames, or `iteration 3` where the frames are those of a search."""
    if "time" in dataset.coords and dataset["time"].attrs.get("long_name") == "iteration":
        return [f"iteration {int(dataset['time'].values[frame])}" for frame in frames]
    return time_labels([float(value) for value in times(dataset)[list(frames)]], time_units(dataset))


def last_finite(scalar: Scalar) -> int:
    """The last frame with finite values, found by bisection: a run that diverged does not come back."""
    cut, _ = scalar.mid_plane("z")
    low, high = 0, scalar.dataset.sizes["time"] - 1
    while low < high:
        middle = (low + high + 1) // 2
        finite = np.isfinite(scalar.values(middle, cut=cut)).any()
        low, high = (middle, high) if finite else (low, middle - 1)
    return low


def shown_frames(scalar: Scalar, most: int) -> list[int]:
    """At most `most` frames up to the last finite one, from the first in which there is something to see."""
    last = last_finite(scalar)
    cut, _ = scalar.mid_plane("z")
    chosen = spread(last + 1, most)
    peaks = [_variation(scalar.values(frame, cut=cut)) for frame in chosen]
    first = next((frame for frame, peak in zip(chosen, peaks, strict=True) if peak > BLANK * max(peaks)), 0)
    if first == 0 or first == last:
        return chosen
    # Just before it, what is to come may be too small to be seen.
    return [first + k for k in spread(last - first + 1, most)]


def _variation(values: np.ndarray) -> float:
    """Range of the values away from the sides: a line along a wall alone is nothing to see."""
    inner = values[(slice(1, -1),) * values.ndim] if min(values.shape) > 4 else values
    finite = inner[np.isfinite(inner)]
    with np.errstate(over="ignore"):
        return float(np.ptp(finite)) if finite.size else 0.0


def spread(count: int, most: int) -> list[int]:
    """At most `most` indices of `count`, evenly spread, both ends among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / max(1, most - 1)) for i in range(most)})


def varied_parameters(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """Parameters that differ between members, as (member,) arrays."""
    found = {}
    for name, variable in dataset.variables.items():
        if variable.dims == ("member",) and name != "member" and variable.dtype.kind == "f":
            values = np.asarray(variable.values, dtype=np.float64)
            if np.unique(values[np.isfinite(values)]).size > 1:
                found[str(name)] = values
    return found


def member_order(dataset: xr.Dataset) -> list[int]:
    """Members by the first parameter that varies, else as they are in the file."""
    count = dataset.sizes.get("member", 1)
    for values in varied_parameters(dataset).values():
        return [int(i) for i in np.argsort(values, kind="stable")]
    return list(range(count))


def failed(dataset: xr.Dataset, member: int) -> bool:
    """Tell whether a member did not come to its end."""
    return "status" in dataset and bool(np.atleast_1d(dataset["status"].values)[member] != 0)


def member_label(dataset: xr.Dataset, member: int) -> str:
    """`viscosity = 2×10⁻³`, or `member 3` where nothing or more than two parameters vary; its name if it has one."""
    if "member" in dataset.coords and dataset["member"].dtype.kind == "U":
        return str(dataset["member"].values[member])
    parameters = varied_parameters(dataset)
    if 1 <= len(parameters) <= 2:
        return ", ".join(f"{short(name)} = {number(v[member])}" for name, v in parameters.items())
    return f"member {member}"


def short(parameter: str) -> str:
    """The last part of a dotted key, as text."""
    return parameter.rpartition(".")[2].replace("_", " ")


def reduce_to(values: np.ndarray, most: int) -> np.ndarray:
    """Block means, so that no axis keeps more than `most` values."""
    for axis in range(values.ndim):
        count = values.shape[axis]
        block = -(-count // most)
        if block > 1:
            starts = np.arange(0, count, block)
            sizes = np.diff(np.append(starts, count)).astype(values.dtype)
            shape = [1] * values.ndim
            shape[axis] = sizes.size
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.add.reduceat(values, starts, axis=axis) / sizes.reshape(shape)
    return values
