"""Days and kilometres where the numbers ask for them: pictures and reports of runs whose files are in SI units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

# Units with the smallest value, in SI units, from which on they are chosen, the largest first.
_TIMES = (
    ("years", 365.25 * 86400, 3 * 365.25 * 86400),
    ("days", 86400.0, 3 * 86400.0),
    ("h", 3600.0, 3 * 3600.0),
    ("min", 60.0, 600.0),
    ("s", 1.0, 1e-2),
    ("ms", 1e-3, 1e-5),
    ("µs", 1e-6, 1e-8),
    ("ns", 1e-9, 0.0),
)
_LENGTHS = (("km", 1e3, 1e4), ("m", 1.0, 1e-2), ("mm", 1e-3, 1e-5), ("µm", 1e-6, 1e-8), ("nm", 1e-9, 0.0))
_SCALES = {"s": _TIMES, "m": _LENGTHS}

FACTOR = "simjax_factor"
"""Attribute of a coordinate in other units than those of the file: how many of the file's one of its units is."""


def readable_units(largest: float, units: str) -> tuple[str, float]:
    """The units to show values up to `largest` in, and how many of `units` one of them is; others than s and m stay."""
    if units not in _SCALES or not np.isfinite(largest) or largest <= 0:
        return units, 1.0
    return next((name, factor) for name, factor, least in _SCALES[units] if largest >= least)


def readable(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with its time in units that suit the last output time, and all axes in ones that suit the longest."""
    lines = {str(name): line for name, line in dataset.coords.items() if line.dims == (name,) and line.size}
    axes = {name for name in lines if name[:1] in "xyz" and name.removesuffix("_face") in ("x", "y", "z")}
    longest = max((float(np.ptp(lines[name].values)) for name in axes), default=0.0)
    scales = dict.fromkeys(axes, longest)
    if "time" in lines and lines["time"].dtype.kind == "f":
        scales["time"] = float(np.max(np.abs(lines["time"].values)))
    changed = {}
    for name, largest in scales.items():
        units, factor = readable_units(largest, str(lines[name].attrs.get("units", "1")))
        if factor != 1.0:
            changed[name] = (name, lines[name].values / factor, {**lines[name].attrs, "units": units, FACTOR: factor})
    return dataset.assign_coords(changed) if changed else dataset
