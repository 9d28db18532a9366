"""Scalars to draw of a run: which one, on which plane, for which members, and on which colour scale."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simjax.errors import InputOutputError
from simjax.io.staggering import between_faces, periodic_axes
from simjax.report.labels import common_power, number, quantity, scaled_label, time_labels, title_case

if TYPE_CHECKING:
    import xarray as xr

MISSING_COLOUR = (214, 216, 220)
_FACE, _CENTERED = "_face", "_centered"
_DIAGNOSTIC_ORDER = ("kinetic_energy", "enstrophy", "max_divergence")
_LAST = "courant"
_SAMPLES = 1_000_000
DECADES = 1e3  # a diagnostic over a wider range is shown on a logarithmic axis


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

    def extent(self, axis: str) -> tuple[float, float]:
        """Beginning of the first value's cell and end of the last one's along `axis`."""
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
        return axis, units_of(self.dataset, name) if name in self.dataset.coords else "1"

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
            parts = [self._component(name, frame, member, cut or {}) for name in self.components]
            values = functools.reduce(np.hypot, parts)
        return np.where(np.isfinite(values), values, np.float32(np.nan))

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
    """Scalars that can be drawn, the most telling first: vorticity, scalars, speed, pressure, lone components."""
    vectors: dict[str, list[str]] = {}
    plain: list[Scalar] = []
    for name, variable in dataset.data_vars.items():
        if "time" not in variable.dims or set(variable.dims) <= {"member", "time"}:
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
        name = "speed" if base == "velocity" else f"{base}_magnitude"
        if name in dataset.data_vars or (base != vector and base in vectors):
            continue
        if len(components) == 1:
            plain.append(_scalar(dataset, components[0]))
            continue
        units = units_of(dataset, components[0])
        magnitudes.append(Scalar(dataset, name, tuple(components), title_case(name), units))
    return sorted(plain + magnitudes, key=_rank)


def _scalar(dataset: xr.Dataset, name: str) -> Scalar:
    return Scalar(dataset, name, (name,), label_of(dataset, name), units_of(dataset, name))


def label_of(dataset: xr.Dataset, name: str) -> str:
    """The long name of a variable where it says more than the name, with a capital."""
    long_name = str(dataset[name].attrs.get("long_name") or name)
    return title_case(name) if long_name == name else long_name[:1].upper() + long_name[1:]


def units_of(dataset: xr.Dataset, name: str) -> str:
    """The units of a variable, `1` where it has none."""
    return str(dataset[name].attrs.get("units", "1"))


def _vector_of(name: str, variable: xr.DataArray) -> str:
    """The vector that a variable is a component of, by its attribute or by a name such as `velocity_x`."""
    stem, _, suffix = name.rpartition("_")
    return str(variable.attrs.get("vector") or (stem if suffix in ("x", "y", "z") else ""))


def _rank(scalar: Scalar) -> int:
    if scalar.name.startswith("vorticity"):
        return 0
    if scalar.name == "speed":
        return 2
    return 3 if scalar.name == "pressure" or scalar.name.endswith(("_x", "_y", "_z")) else 1


def diagnostics(dataset: xr.Dataset) -> list[str]:
    """Names of the numbers recorded at every output time, the usual ones first."""
    names = [
        str(name)
        for name, variable in dataset.data_vars.items()
        if "time" in variable.dims and set(variable.dims) <= {"member", "time"} and name != "step"
    ]
    order = {name: rank for rank, name in enumerate(_DIAGNOSTIC_ORDER)}
    return sorted(names, key=lambda name: (name == _LAST, order.get(name, len(order))))


def scaled_curves(dataset: xr.Dataset, name: str) -> tuple[np.ndarray, str]:
    """A diagnostic as (member, time) without its power of ten, and the label that states both."""
    values = curves(dataset, name)
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    power = 0 if wide_range(values, DECADES) else common_power(largest)
    return values / 10.0**power, scaled_label(label_of(dataset, name), units_of(dataset, name), power)


def curves(dataset: xr.Dataset, name: str) -> np.ndarray:
    """A diagnostic as (member, time), with one member where there is no ensemble; infinities are gaps."""
    variable = dataset[name]
    values = np.asarray(variable.values, dtype=np.float64)
    if "member" in variable.dims and variable.dims[0] != "member":
        values = values.T
    values = values.reshape(-1, values.shape[-1])
    return np.where(np.isfinite(values), values, np.nan)


def times(dataset: xr.Dataset) -> np.ndarray:
    """The output times; frame numbers when the file has none."""
    if "time" in dataset.coords:
        return np.asarray(dataset["time"].values, dtype=np.float64)
    return np.arange(dataset.sizes.get("time", 0), dtype=np.float64)


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


def value_range(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis for these values: x."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    largest = max(abs(low), abs(high))
    margin = max(0.05 * (high - low), 1e-3 * largest)
    return (low - margin, high + margin) if margin > 0 else (-0.5, 0.5)


def wide_range(values: np.ndarray, ratio: float) -> bool:
    """Tell whether positive values span more than `ratio`, so that a logarithmic axis suits them."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    enough = positive.size > 1 and positive.size >= 0.5 * finite.size and not np.any(finite < 0)
    return bool(enough and positive.max() > ratio * positive.min())


@dataclass(frozen=True)
class ColourScale:
    """A colour map and the values at its ends; beyond them values take the end colours."""

    palette: str
    lower: float
    upper: float
    clipped: tuple[bool, bool]

    @property
    def extend(self) -> str:
        names = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
        return names[self.clipped]

    @property
    def table(self) -> np.ndarray:
        """The 256 colours, as 8-bit red, green, blue."""
        return palette_table(self.palette)

    def colours(self, values: np.ndarray) -> np.ndarray:
        """8-bit colours, shape `values.shape + (3,)`; what is not finite takes MISSING_COLOUR."""
        finite = np.isfinite(values)
        within = np.clip(np.where(finite, values, self.lower), self.lower, self.upper)
        steps = 255.0 / (self.upper - self.lower)
        colours = self.table[np.clip(np.rint(within * steps - self.lower * steps), 0, 255).astype(np.uint8)]
        if not finite.all():
            colours[~finite] = MISSING_COLOUR
        return colours


def colour_scale(scalar: Scalar, samples: Sequence[np.ndarray]) -> ColourScale:
    """One scale for all samples: symmetric about zero where the sign matters, robust against rare extremes.

    Vorticity, and whatever takes both signs, gets a diverging map. When the largest values exceed the 99.8th
    percentile by half they are cut off there and the colour bar says so by its pointed ends.
    """
    values = _finite_sample(samples)
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    is_vorticity = scalar.name.startswith("vorticity") and not scalar.magnitude
    if is_vorticity or min(-lowest, highest) > 0.2 * max(-lowest, highest):
        return diverging_scale(samples)
    if scalar.magnitude or 0 <= lowest <= 0.1 * highest:
        limit = _robust_limit(highest, values)
        palette = "haline" if scalar.name == "speed" else "amp" if scalar.magnitude else "thermal"
        return ColourScale(palette, 0.0, limit if limit > 0 else 1.0, (False, highest > 1.01 * limit))
    if highest - lowest <= 1e-6 * max(abs(lowest), abs(highest)):
        margin = 0.5 * abs(highest) or 0.5
        return ColourScale("thermal", lowest - margin, highest + margin, (False, False))
    return ColourScale("thermal", lowest, highest, (False, False))


def diverging_scale(samples: Sequence[np.ndarray]) -> ColourScale:
    """One scale symmetric about zero for all samples, cut off at rare extremes as that of `colour_scale`."""
    values = _finite_sample(samples)
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    limit = _robust_limit(max(-lowest, highest), np.abs(values))
    shown = limit if limit > 0 else 1.0
    return ColourScale("balance", -shown, shown, (lowest < -1.01 * limit, highest > 1.01 * limit))


def _finite_sample(samples: Sequence[np.ndarray]) -> np.ndarray:
    if not samples:
        return np.zeros(0)
    total = sum(sample.size for sample in samples)
    stride = 1 + total // _SAMPLES
    values = np.concatenate([np.asarray(sample, dtype=np.float64).ravel()[::stride] for sample in samples])
    return values[np.isfinite(values)]


def _robust_limit(largest: float, magnitudes: np.ndarray) -> float:
    if magnitudes.size == 0:
        return largest
    usual = float(np.quantile(magnitudes, 0.998))
    return usual if largest > 1.5 * usual > 1e-3 * largest else largest


@functools.cache
def palette_table(palette: str) -> np.ndarray:
    """The 256 colours of a cmocean map, 8-bit (Thyng et al. 2016, Oceanography 29, 9).

    The tables are read from the installed package without importing it: the import would load pyplot.
    """
    package = importlib.util.find_spec("cmocean")
    if package is None or not package.submodule_search_locations:
        raise InputOutputError("Figures need the colour maps of cmocean; write `pip install cmocean`.")
    table = np.loadtxt(Path(package.submodule_search_locations[0]) / "rgb" / f"{palette}-rgb.txt")
    picks = np.linspace(0, len(table) - 1, 256).round().astype(int)
    return np.rint(255 * table[picks]).astype(np.uint8)


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
