"""Shots and what their receivers recorded, in NetCDF files and in SEG-Y."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simjax.arguments import require_one_of, shown
from simjax.core.shots import Shots
from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import AXES
from simjax.io.files import replaced
from simjax.io.segy import Traces, read_segy, write_segy
from simjax.schema.locate import usable_path

SEGY = (".sgy", ".segy")
_DIMS = {
    "sources": ("shot", "source", "axis"),
    "signals": ("shot", "source", "sample"),
    "times": ("sample",),
    "receivers": ("shot", "trace", "axis"),
    "recorded": ("time",),
    "records": ("shot", "trace", "time"),
}


def read_shots(
    path: str | Path,
    *,
    signals: Any = None,
    times: Any = None,
    axes: Sequence[str] = ("x", "z"),
    at_once: int | None = None,
) -> tuple[Shots, np.ndarray | None]:
    """The shots of a file, and what was recorded there, `(shots, receivers, times)`, or None where it has nothing.

    A NetCDF file has the variables `sources`, `signals`, `times`, `receivers` and `recorded` in the shapes of `Shots`,
    and `records`. A SEG-Y file (.sgy, .segy; revision 1, IBM or IEEE numbers or integers) has places and records only:
    each field record is a shot of one source.

    Args:
        path: of the file.
        signals: what sources send, in the place of the file's: `(shots, sources, samples)`, or `(samples,)` for all.
        times: of the samples of `signals`.
        axes: of SEG-Y, which coordinates the axes of the run are: "x" and "y" along the ground, "z" the elevation.
        at_once: of `Shots`.

    Raises:
        InputOutputError: the file is damaged, or shots have other numbers of receivers than the first one.
        ConfigurationError: signals are given without times, or neither by you nor by the file.

    Examples:
        >>> t = np.linspace(0.0, 1.0, 101)
        >>> one = sj.Shots([[[0.2, 0.1]]], [[np.sin(t)]], t, [[0.1, 0.1], [0.9, 0.1]], recorded=t)
        >>> path = sj.write_shots("shots.sgy", one, np.zeros((1, 2, 101)))
        >>> shots, records = sj.read_shots("shots.sgy", signals=np.sin(t), times=t)
        >>> shots.receivers.shape, records.shape
        ((1, 2, 2), (1, 2, 101))
    """
    path = usable_path(path, "read_shots")
    if not path.is_file():
        raise InputOutputError(f"{path}: no such file; expected shots as NetCDF or SEG-Y.")
    if (signals is None) != (times is None):
        raise ConfigurationError("read_shots: expected signals with their times, or neither; write both.")
    found = _of_segy(path, axes) if path.suffix.lower() in SEGY else _of_netcdf(path)
    if signals is not None:
        shots, sources, _ = found["sources"].shape
        given = np.asarray(signals)
        found["signals"] = np.broadcast_to(given, (shots, sources, *given.shape)) if given.ndim == 1 else given
        found["times"] = np.asarray(times)
    missing = [name for name in ("sources", "signals", "times", "receivers") if name not in found]
    if missing:
        raise ConfigurationError(
            f"{path}: {missing[0]} is missing; write read_shots(path, signals=..., times=...)."
            if missing[0] in ("signals", "times")
            else f"{path}: expected a variable {missing[0]} ({', '.join(_DIMS[missing[0]])}), which is missing."
        )
    records = found.pop("records", None)
    return Shots(**found, at_once=at_once), records


def write_shots(path: str | Path, shots: Shots, records: Any = None, *, axes: Sequence[str] = ("x", "z")) -> Path:
    """Write shots, and what was recorded at `shots.recorded`, `(shots, receivers, times)`, to a file; return its path.

    The suffix tells the format: .nc, NetCDF with all of them, or .sgy and .segy, SEG-Y with the places, in thousandths,
    and the records in single precision; signals are not in it, and each shot has one source.

    Raises:
        ConfigurationError: records have another shape, or the suffix is another one.
        InputOutputError: the format has no room for times or places.

    Examples:
        >>> t = np.linspace(0.0, 1.0, 101)
        >>> one = sj.Shots([[[0.2, 0.1]]], [[np.sin(t)]], t, [[0.1, 0.1], [0.9, 0.1]], recorded=t)
        >>> sj.write_shots("shots.nc", one, np.zeros((1, 2, 101))).name
        'shots.nc'
    """
    path = usable_path(path, "write_shots")
    require_one_of("write_shots: suffix", path.suffix.lower(), (".nc", *SEGY))
    arrays = {name: np.asarray(getattr(shots, name)) for name in _DIMS if getattr(shots, name, None) is not None}
    if records is not None:
        arrays["records"] = np.asarray(records)
        receivers = arrays["receivers"].shape[-2]
        wanted = (shots.count, receivers, *arrays.get("recorded", np.zeros(arrays["records"].shape[-1:])).shape)
        if arrays["records"].shape != wanted:
            raise ConfigurationError(f"write_shots: records={shown(records)}: expected an array of shape {wanted}.")
    if path.suffix.lower() == ".nc":
        return _to_netcdf(path, arrays)
    return write_segy(path, _traces(arrays, axes), title="Shots and records of simjax")


def _of_netcdf(path: Path) -> dict[str, np.ndarray]:
    import xarray

    try:
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            return {name: dataset[name].values for name in _DIMS if name in dataset.variables}
    except (OSError, ValueError) as error:
        raise InputOutputError(f"{path}: expected a NetCDF-4 file: {' '.join(str(error).split())}") from None


def _to_netcdf(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    import xarray

    variables = {name: (_DIMS[name][-array.ndim :], array) for name, array in arrays.items()}
    with replaced(path) as temporary:
        xarray.Dataset(variables).to_netcdf(temporary, engine="h5netcdf")
    return path


def _of_segy(path: Path, axes: Sequence[str]) -> dict[str, np.ndarray]:
    """Places and records by shot, in the order of the file."""
    chosen, traces = _chosen(axes), read_segy(path)
    numbers, first, counts = np.unique(traces.shots, return_index=True, return_counts=True)
    if np.any(counts != counts[0]):
        other = int(np.argmax(counts != counts[0]))
        raise InputOutputError(
            f"{path}: expected as many traces for each shot, got {counts[0]} of shot {numbers[0]} and {counts[other]} "
            f"of shot {numbers[other]}."
        )
    order = np.concatenate([np.flatnonzero(traces.shots == number) for number in numbers[np.argsort(first)]])
    by_shot = (len(numbers), int(counts[0]), -1)
    sources = traces.sources[order][:, chosen].reshape(by_shot)
    if np.any(sources != sources[:, :1]):
        raise InputOutputError(f"{path}: expected one source for each shot, got traces of a shot with several places.")
    return {
        "sources": sources[:, :1],
        "receivers": traces.receivers[order][:, chosen].reshape(by_shot),
        "recorded": traces.times,
        "records": traces.samples[order].reshape(by_shot),
    }


def _traces(arrays: dict[str, np.ndarray], axes: Sequence[str]) -> Traces:
    """One trace for each shot and receiver."""
    chosen, sources = _chosen(axes), arrays["sources"]
    if sources.shape[1] != 1 or sources.shape[2] != len(chosen):
        raise ConfigurationError(
            f"write_shots: sources of shape {sources.shape}: SEG-Y has one source for each shot, along {len(chosen)} "
            "axes; write a .nc file, or other axes."
        )
    if "records" not in arrays or "recorded" not in arrays:
        raise ConfigurationError("write_shots: SEG-Y holds records at shots.recorded; give both, or write a .nc file.")
    shots, receivers, times = arrays["records"].shape
    places = np.broadcast_to(arrays["receivers"], (shots, receivers, len(chosen)))
    everywhere = np.broadcast_to(sources, places.shape)
    return Traces(
        arrays["records"].reshape(-1, times),
        arrays["recorded"].astype(np.float64),
        np.repeat(np.arange(1, shots + 1), receivers),
        *(_in_space(one.reshape(-1, len(chosen)), chosen) for one in (everywhere, places)),
    )


def _in_space(places: np.ndarray, chosen: list[int]) -> np.ndarray:
    found = np.zeros((len(places), 3))
    found[:, chosen] = places
    return found


def _chosen(axes: Sequence[str]) -> list[int]:
    """Numbers of the coordinates of SEG-Y that are the axes of a run."""
    if isinstance(axes, str) or not {*axes} <= {*AXES} or len({*axes}) != len(axes):
        raise ConfigurationError(f"axes={shown(axes)}: expected different ones of x, y and z, such as ('x', 'z').")
    return [AXES.index(axis) for axis in axes]
