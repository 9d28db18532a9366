"""Amplitudes of the modes of a waveguide that pass a plane, from the Fourier integrals of the fields there."""

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
    fields, about = _fields_on_plane(dataset, name)
    found = []
    for k, frequency in enumerate(dataset.frequency.values):
        modes = modes_at(AXES.index(about["across"]), float(about["place"]), float(frequency), dt)
        now = {field: values[..., k, :] for field, values in fields.items()}
        found.append([_amplitudes(mode, now) for mode in modes])
    lead = ("member",) if "member" in dataset.dims else ()
    dims = "frequency", "mode"
    forwards, backwards, wavenumber = (
        np.stack([np.stack([mode[part] for mode in modes], axis=-1) for modes in found], axis=-2) for part in range(3)
    )
    own = {"forwards": ((*lead, *dims), forwards), "backwards": ((*lead, *dims), backwards)}
    coordinates = {"frequency": dataset.frequency, "mode": np.arange(wavenumber.shape[-1])}
    return xr.Dataset({**own, "wavenumber": (dims, wavenumber)}, coordinates)


def _amplitudes(mode: ModeOnPlane, fields: dict[str, np.ndarray]) -> tuple[Any, Any, float]:
    """Amplitudes of a mode forwards and backwards in fields `(..., cells)` by name, and its wavenumber."""
    goes_on = mode.wavenumber > 0
    (one, kept), (other, turned) = mode.kept, mode.turned
    power = mode.width * float(kept @ turned) if goes_on else math.nan
    # Of two modes one field of the first and the other of the second have no product over the plane.
    both, net = mode.width * fields[one] @ turned / power, mode.width * fields[other] @ kept / power
    scale = 0.5 * math.sqrt(2 * abs(power))
    return scale * (both + net), scale * (both - net), mode.wavenumber if goes_on else math.nan


def _fields_on_plane(dataset: xr.Dataset, name: str) -> tuple[dict[str, np.ndarray], Any]:
    """Fourier integrals of both fields on the plane, `([member,] frequency, cells)`, and what is said of the place."""
    end = f"_{FOURIER}_{REAL}"
    names = [str(one).removesuffix(end) for one in dataset.data_vars if str(one).endswith(end)]
    about = [dataset[f"{field}{end}"].attrs for field in names]
    if len(names) != 2 or any("place" not in one or "outwards" in one for one in about):
        raise ConfigurationError(
            f"{name}: expected an entry of statistics of the flux of energy of light through one plane."
        )
    parts = ((dataset[f"{field}_{FOURIER}_{part}"].values for part in (REAL, IMAGINARY)) for field in names)
    return {field: real + 1j * imaginary for field, (real, imaginary) in zip(names, parts, strict=True)}, about[0]
