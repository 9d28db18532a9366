"""The diagnostics of a run at its output times, read with h5py alone: xarray takes longer to load than they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.errors import InputOutputError
from simjax.io.frame_output import DIAGNOSTICS_NAME
from simjax.io.h5md import TRAJECTORY
from simjax.io.particle_output import ENSEMBLE_NAME, MASTER_NAME

NOT_SERIES = ("time", "step")


@dataclass(frozen=True)
class RunNumbers:
    """Diagnostics of a run.

    series: by name, `(members, frames)` in double precision. attributes: theirs. time, step: `(frames,)`. mass: of each
    particle that is written, empty of fields.
    """

    series: Mapping[str, np.ndarray]
    time: np.ndarray
    step: np.ndarray
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mass: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __contains__(self, name: str) -> bool:
        return name in self.series


def read_numbers(folder: Path) -> RunNumbers:
    """The diagnostics of a run that has ended or goes on.

    Raises:
        InputOutputError: its file is missing or damaged.
    """
    path = folder / DIAGNOSTICS_NAME
    try:
        with h5py.File(path, "r") as file:
            series, attributes = {}, {}
            for name, stored in file.items():
                axis = _axis_of_time(stored)
                if axis is not None and name not in NOT_SERIES:
                    series[name] = np.atleast_2d(np.moveaxis(np.asarray(stored, np.float64), axis, -1))
                    attributes[name] = {key: _plain(value) for key, value in stored.attrs.items() if key in ABOUT}
            time, step = (np.asarray(file[name], np.float64) for name in NOT_SERIES)
        return RunNumbers(series, time, step, attributes, _masses(folder))
    except (OSError, KeyError) as error:
        raise InputOutputError(
            f"{path} cannot be read ({error}); simjax.check_files({str(folder)!r}) names what is damaged."
        ) from error


ABOUT = ("units", "long_name")


def _axis_of_time(stored: Any) -> int | None:
    """The axis of a dataset that is time, if any."""
    if not isinstance(stored, h5py.Dataset):
        return None
    for axis, scales in enumerate(stored.dims):
        if len(scales) and scales[0].name == "/time":
            return axis
    return None


def _masses(folder: Path) -> np.ndarray:
    """Masses of the particles that are written."""
    for name, place in ((MASTER_NAME, f"{TRAJECTORY}/mass"), (ENSEMBLE_NAME, "mass")):
        if (folder / name).is_file():
            with h5py.File(folder / name, "r") as file:
                return np.asarray(file[place], np.float64)
    return np.zeros(0)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
