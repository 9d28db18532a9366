"""Files of a run's statistics in time: `statistics/NAME/samples.h5` in its folder, a set for each window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

from simjax.io.frame_layout import Variable, frame_layout, member_coordinate, root_attributes
from simjax.io.frame_output import FrameWriter
from simjax.io.instrument_files import SAMPLES_NAME, InstrumentWriter
from simjax.io.segments import Part
from simjax.schema.time_statistics import COVARIANCE, FOURIER, MAX, MEAN, MIN, THIRD_MOMENT, VARIANCE, PhaseConfig
from simjax.schema.units import product_of_units, to_the_power

if TYPE_CHECKING:
    from simjax.core.model import Output

LAYOUT = "simjax statistics/1"
FOLDER = "statistics"
BOUNDS, WEIGHT, END, PHASE, FREQUENCY = "time_bounds", "time_counted", "end", "phase", "frequency"
REAL, IMAGINARY = "real", "imag"
_METHODS = {MEAN: "mean", VARIANCE: "variance", MIN: "minimum", MAX: "maximum"}
"""Statistics that CF's cell methods have a word for."""
_SAID = {
    MEAN: "mean",
    VARIANCE: "variance",
    COVARIANCE: "covariance",
    THIRD_MOMENT: "third central moment",
    MIN: "smallest value",
    MAX: "largest value",
}
_PARTS = {REAL: "real", IMAGINARY: "imaginary"}


class Described(NamedTuple):
    """A statistic as a variable of a file.

    kind: of the statistic. of: its variables, the first of which says where it lies; none of a number that is made of
    Fourier integrals. is_time: whether it is the time of an extreme. part: of a complex number, `REAL` or `IMAGINARY`.
    """

    name: str
    kind: str
    of: tuple[str, ...]
    units: str
    long_name: str
    is_time: bool = False
    part: str = ""


def described(
    variables: Sequence[Output], kinds: Sequence[str], over: Sequence[str], time_units: str
) -> Iterator[Described]:
    """Every statistic of every variable, and the covariances of every two."""
    axes = "".join(f", {axis}" for axis in over[:-1]) + "".join(f" and {axis}" for axis in over[-1:])
    for one in variables:
        text = one.long_name or one.name
        if FOURIER in kinds:
            for part in (REAL, IMAGINARY):
                said = f"{_PARTS[part]} part of the integral of u exp(-2 pi i f t) over time{axes}, u: {text}"
                units = product_of_units(one.units, time_units)
                yield Described(f"{one.name}_{FOURIER}_{part}", FOURIER, (one.name,), units, said, part=part)
        for kind in (kind for kind in kinds if kind not in (COVARIANCE, FOURIER)):
            power = {VARIANCE: 2, THIRD_MOMENT: 3}.get(kind, 1)
            said = f"{_SAID[kind]} over time{axes} of {text}"
            yield Described(f"{one.name}_{kind}", kind, (one.name,), powered(one.units, power), said)
            if kind in (MIN, MAX):
                said = f"first time of the {said}"
                yield Described(f"{one.name}_{kind}_time", kind, (one.name,), time_units, said, True)
    if COVARIANCE not in kinds:
        return
    for number, one in enumerate(variables):
        for other in variables[number + 1 :]:
            units = powered(one.units, 2) if one.units == other.units else multiplied(one.units, other.units)
            said = f"covariance over time{axes} of {one.long_name or one.name} and {other.long_name or other.name}"
            yield Described(f"{one.name}_{other.name}_{COVARIANCE}", COVARIANCE, (one.name, other.name), units, said)


def powered(units: str, power: int) -> str:
    """A power of units such as `m s-1`."""
    if units == "1" or power == 1:
        return units
    parts = [re.fullmatch(r"([A-Za-z]+)(-?\d*)", part) for part in units.split()]
    if not all(parts):
        return f"({units}){power}"
    return " ".join(f"{part[1]}{power * int(part[2] or 1)}" for part in parts if part)


def multiplied(one: str, other: str) -> str:
    """The product of two units."""
    return " ".join(units for units in (one, other) if units != "1") or "1"


def phase_coordinates(phase: PhaseConfig, time_units: str) -> list[Variable]:
    """The middles of the parts of a period, and their edges as CF's bounds."""
    about = {"long_name": "time over the period, from t = 0 on", "units": "1", "bounds": f"{PHASE}_bounds"}
    about |= {"period": phase.period, "period_units": time_units}
    half = 0.5 / phase.bins
    middles = np.array(phase.middles)
    bounds = np.stack([middles - half, middles + half], axis=1)
    return [
        Variable(PHASE, (PHASE,), np.dtype("f8"), about, middles),
        Variable(f"{PHASE}_bounds", (PHASE, END), np.dtype("f8"), {"units": "1"}, bounds),
    ]


def frequency_coordinate(frequencies: Sequence[float], time_units: str) -> Variable:
    """The frequencies of Fourier integrals."""
    about = {"long_name": "frequency", "units": to_the_power(time_units, -1)}
    return Variable(FREQUENCY, (FREQUENCY,), np.dtype("f8"), about, np.array(frequencies))


class StatisticsWriter(InstrumentWriter):
    """Writes sets of statistics, each with the time at which it ends: `given[name]` is (sets, [member,] *own axes).

    dims: of each variable that is averaged, beside members, time and phase, slowest first. places: attributes that say
    where those lie of which Fourier integrals are formed. fixed: coordinates; with parts of a period among them every
    variable has an axis of these, the last one as it is given.
    """

    def __init__(
        self,
        folder: Path,
        statistics: Sequence[Described],
        dims: Mapping[str, tuple[str, ...]],
        places: Mapping[str, Mapping[str, Any]],
        fixed: Sequence[Variable],
        over: Sequence[str],
        *,
        dtype: np.dtype,
        members: Sequence[int] | None,
        time_units: str,
        attributes: Mapping[str, Any],
        title: str,
        keep_until_step: int | None,
        parts: Sequence[Part],
    ):
        lead = () if members is None else ("member",)
        weight = {"long_name": "time that the set counts", "units": time_units, "_FillValue": np.float64(np.nan)}
        ends = {"long_name": "begin and end of the set", "units": "1"}
        fixed = [*member_coordinate(None if members is None else len(members), members), *fixed]
        apart = (PHASE,) if PHASE in {one.name for one in fixed} else ()
        first, axes = (*lead, "time", *apart), (*over, *apart)
        if END not in {one.name for one in fixed}:  # bins have ends too
            fixed.append(Variable(END, (END,), np.dtype("i4"), ends, np.arange(2, dtype="i4")))
        layout = frame_layout(
            fixed,
            [
                Variable(BOUNDS, ("time", END), np.dtype("f8"), {"units": time_units}),
                Variable(WEIGHT, first, np.dtype("f8"), weight),
                *(_variable(one, (*first, *_own_dims(one, dims)), dtype, axes, places) for one in statistics),
            ],
            time_units,
        )
        FrameWriter.__init__(
            self,
            folder,
            SAMPLES_NAME,
            "samples",
            layout,
            root_attributes(attributes, title, dtype, LAYOUT),
            keep_until_step=keep_until_step,
            parts=parts,
        )

    def write_whole(self, path, attributes, steps, times, pieces):
        super().write_whole(path, attributes, steps, times, pieces)
        _name_bounds(path)

    def write_master(self, path, attributes, steps, times, sources):
        super().write_master(path, attributes, steps, times, sources)
        _name_bounds(path)


def _name_bounds(path: Path) -> None:
    """Tell, as CF does, that a time is the end of a set with bounds; the file has not taken its place yet."""
    with h5py.File(path, "r+") as file:
        file["time"].attrs["bounds"] = BOUNDS
        file["time"].attrs["long_name"] = "end of the set"


def _own_dims(one: Described, dims: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Dimensions beside members, time and phase."""
    return ((FREQUENCY,) if one.kind == FOURIER else ()) + (dims[one.of[0]] if one.of else ())


def _variable(
    one: Described, dims: tuple[str, ...], dtype: np.dtype, over: Sequence[str], places: Mapping[str, Mapping[str, Any]]
) -> Variable:
    attributes: dict[str, Any] = {"units": one.units, "long_name": one.long_name}
    if one.kind == FOURIER and one.of:
        attributes |= places.get(one.of[0], {})
    if one.kind in _METHODS and not one.is_time:
        attributes["cell_methods"] = f"{''.join(f'{axis}: ' for axis in over)}time: {_METHODS[one.kind]}"
    return Variable(one.name, dims, dtype, {**attributes, "_FillValue": dtype.type(np.nan)})
