"""What the modes of a waveguide carry through a plane, from the Fourier integrals of the fields there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.core.face_planes import ModeOnPlane
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.read import open_output
from simjax.io.time_statistics_files import IMAGINARY, REAL
from simjax.schema.time_statistics import FOURIER

if TYPE_CHECKING:
    import xarray as xr

ModesAt = Callable[[int, float, float, float], Sequence[ModeOnPlane]]
"""`modes(axis, place, frequency, dt)` -> the modes on faces across an axis, all of them with the same length."""


def amplitudes_in_file(folder: Path, name: str, modes_at: ModesAt) -> xr.Dataset:
    """`forwards`, `backwards` and `wavenumber` of an entry of `statistics`; see `driver.mode_amplitudes`.

    Raises:
        ConfigurationError: it is not that of a flux of energy of light through one plane.
    """
    import xarray as xr

    with open_output(folder, name) as opened:
        dataset = opened.isel(time=-1).load()
    dt = float(dataset.time) / int(dataset.step)
    electric, magnetic, about = _fields_on_plane(dataset, name)
    found = []
    for k, frequency in enumerate(dataset.frequency.values):
        modes = modes_at(AXES.index(about["across"]), float(about["place"]), float(frequency), dt)
        found.append([_amplitudes(mode, electric[..., k, :], magnetic[..., k, :]) for mode in modes])
    lead = ("member",) if "member" in dataset.dims else ()
    dims = "frequency", "mode"
    forwards, backwards, wavenumber = (
        np.stack([np.stack([mode[part] for mode in modes], axis=-1) for modes in found], axis=-2) for part in range(3)
    )
    own = {"forwards": ((*lead, *dims), forwards), "backwards": ((*lead, *dims), backwards)}
    coordinates = {"frequency": dataset.frequency, "mode": np.arange(wavenumber.shape[-1])}
    return xr.Dataset({**own, "wavenumber": (dims, wavenumber)}, coordinates)


def _amplitudes(mode: ModeOnPlane, electric: np.ndarray, magnetic: np.ndarray) -> tuple[Any, Any, float]:
    """Amplitudes of a mode forwards and backwards in fields `(..., cells)`, and its wavenumber."""
    goes_on = mode.wavenumber > 0
    power = mode.width * float(mode.electric @ mode.magnetic) if goes_on else math.nan
    # E of one mode and H of another have no product over the plane.
    both, net = (
        mode.width * one @ other / power for one, other in ((electric, mode.magnetic), (magnetic, mode.electric))
    )
    scale = 0.5 * math.sqrt(2 * abs(power))
    return scale * (both + net), scale * (both - net), mode.wavenumber if goes_on else math.nan


def _fields_on_plane(dataset: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Fourier integrals of E and H across the guide, `([member,] frequency, cells)`, and what is said of the place."""
    end = f"_{FOURIER}_{REAL}"
    fields = [str(one).removesuffix(end) for one in dataset.data_vars if str(one).endswith(end)]
    about = [dataset[f"{field}{end}"].attrs for field in fields]
    parts = {
        field.partition("_")[0]: dataset[f"{field}{end}"].values + 1j * dataset[f"{field}_{FOURIER}_{IMAGINARY}"].values
        for field in fields
    }
    if {*parts} != {"electric", "magnetic"} or any("place" not in one or "outwards" in one for one in about):
        raise ConfigurationError(
            f"{name}: expected an entry of statistics of the flux of energy of light through one plane, in 2-D."
        )
    return parts["electric"], parts["magnetic"], about[0]
