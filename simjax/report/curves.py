"""Diagnostics over time as they are drawn: their values, the label that says what was taken from them, their axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simjax.io.grid_layout import RANK, TROUBLE
from simjax.report.check import ROUNDING
from simjax.report.labels import common_power, number, scaled_label
from simjax.report.scalars import label_of, units_of

if TYPE_CHECKING:
    import xarray as xr

LAST = "courant"
DECADES = 1e3  # a diagnostic over a wider range is shown on a logarithmic axis
STEADY = 0.01  # a change, relative to the value, below which the axis counts from an offset
SPIKE, LARGE = 3.0, 0.5  # a first value so many ranges of the others off them, and so much of their size, is left out
FEWEST = 5  # of so few values none is
ROUNDINGS = 100  # changes of fewer units in the last place are not magnified


@dataclass(frozen=True)
class Curve:
    """Values to draw `(member, time)`, the label of their axis, and its ends.

    Values are divided by a power of ten, and counted from an offset where they hardly change; the label says both.
    """

    values: np.ndarray
    label: str
    limits: tuple[float, float]
    logarithmic: bool = False

    @property
    def empty(self) -> bool:
        """Tell whether no value is finite."""
        return not np.isfinite(self.values).any()


def diagnostics(dataset: xr.Dataset) -> list[str]:
    """Names of the numbers recorded at every output time, first those that the model shows first, last its troubles."""
    names = [
        str(name)
        for name, variable in dataset.data_vars.items()
        if "time" in variable.dims
        and set(variable.dims) <= {"member", "time"}
        and name != "step"
        and str(name).removesuffix(ROUNDING) not in {*dataset.data_vars} - {name}
    ]

    def place(name: str) -> tuple[bool, bool, float]:
        about = dataset[name].attrs
        return name == LAST, TROUBLE in about, about.get(RANK, np.inf)

    return sorted(names, key=place)


def shown_first(dataset: xr.Dataset) -> list[str]:
    """Names of the numbers that the model shows first; all where it says nothing."""
    names = diagnostics(dataset)
    return [name for name in names if RANK in dataset[name].attrs] or names


def curve(dataset: xr.Dataset, name: str, *, at_end: bool = False) -> Curve:
    """A diagnostic over time, or its last values alone."""
    values = recorded(dataset, name)
    if name == LAST and values.shape[1] > 1:
        # No step has been taken before the first frame: there is no Courant number yet.
        values[:, 0] = np.where(values[:, 0] == 0, np.nan, values[:, 0])
    if at_end:
        return curve_of(dataset, name, values[:, -1:])
    return curve_of(dataset, name, *without_spike(values))


def curve_of(dataset: xr.Dataset, name: str, values: np.ndarray, note: str = "") -> Curve:
    """The values of a diagnostic, or what was made of them, as they are drawn; note: what the label says of them."""
    return _drawn(values, label_of(dataset, name) + note, units_of(dataset, name), _rounding(dataset))


def without_spike(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Lines of values, the last axis that of time, without first ones that are spikes, and what a label then says.

    Such are the force on a body in a stream that begins at once, or the flux through a side that does not fit the
    start.
    """
    rest = values[..., 1:]
    finite = rest[np.isfinite(rest)]
    if values.shape[-1] <= FEWEST or not finite.size:
        return values, ""
    low, high = float(finite.min()), float(finite.max())
    largest = max(abs(low), abs(high))
    least = max(SPIKE * (high - low), LARGE * largest)
    off = np.maximum(values[..., 0] - high, low - values[..., 0])
    off = np.where(np.abs(values[..., 0]) > largest, off, 0.0)  # what begins at zero is no spike
    if not (off > least).any():
        return values, ""
    shown = values.copy()
    shown[..., 0] = np.where(off > least, np.nan, values[..., 0])
    return shown, " after the start"


def usual_range(values: np.ndarray) -> tuple[float, float]:
    """The ends of a range that holds all values but rare extremes, such as those of a member about to fail."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 0.0
    low, high = np.percentile(finite, (1, 99))
    margin = 0.5 * (high - low)
    return max(float(finite.min()), float(low - margin)), min(float(finite.max()), float(high + margin))


def _rounding(dataset: xr.Dataset) -> float:
    """Relative rounding of the coarsest numbers in the file: sums of single precision are stored in double."""
    return max((float(np.finfo(v.dtype).eps) for v in dataset.data_vars.values() if v.dtype.kind == "f"), default=0.0)


def _drawn(values: np.ndarray, label: str, units: str, eps: float) -> Curve:
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return Curve(values, scaled_label(label, units, 0), (0.0, 1.0))
    if wide_range(values, DECADES):
        bottom = 0.5 * max(float(finite[finite > 0].min()), 1e-16 * float(finite.max()))
        return Curve(values, scaled_label(label, units, 0), (bottom, 2 * float(finite.max())), True)
    low, high = float(finite.min()), float(finite.max())
    largest = max(abs(low), abs(high))
    if high - low <= ROUNDINGS * eps * largest:
        power = common_power(largest)
        scaled = values / 10.0**power
        return Curve(scaled, scaled_label(label, units, power), _wide(scaled))
    if high - low < STEADY * largest:
        offset = _round_number(0.5 * (low + high), high - low)
        values = values - offset
        sign, size = ("−", offset) if offset > 0 else ("+", -offset)
        digits = max(3, int(np.ceil(np.log10(size / (high - low)))) + 1)
        label = f"{label} {sign} {number(size, digits)}"
        largest = float(np.nanmax(np.abs(values)))
    power = common_power(largest)
    values = values / 10.0**power
    return Curve(values, scaled_label(label, units, power), value_range(values))


def _round_number(value: float, change: float) -> float:
    """The value to the decimal place of the `change`: a number that is short to write."""
    place = 10.0 ** np.floor(np.log10(change))
    return float(round(value / place) * place)


def recorded(dataset: xr.Dataset, name: str) -> np.ndarray:
    """A diagnostic as (member, time), with one member where there is no ensemble; infinities are gaps."""
    variable = dataset[name]
    values = np.asarray(variable.values, dtype=np.float64)
    if "member" in variable.dims and variable.dims[0] != "member":
        values = values.T
    values = values.reshape(-1, values.shape[-1])
    return np.where(np.isfinite(values), values, np.nan)


def value_range(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis for these values, a little beyond the smallest and the largest."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    margin = max(0.05 * (high - low), 1e-3 * max(abs(low), abs(high)))
    return (low - margin, high + margin) if margin > 0 else (-0.5, 0.5)


def _wide(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis on which a constant is a flat line: half of it below and above."""
    middle = float(np.nanmean(values))
    margin = 0.5 * abs(middle) or 0.5
    return middle - margin, middle + margin


def wide_range(values: np.ndarray, ratio: float) -> bool:
    """Tell whether positive values span more than `ratio`, so that a logarithmic axis suits them."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    enough = positive.size > 1 and positive.size >= 0.5 * finite.size and not np.any(finite < 0)
    return bool(enough and positive.max() > ratio * positive.min())
