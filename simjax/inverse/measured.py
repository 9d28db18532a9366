"""Observations with measurements in a file: the instrument in the run, and the measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simjax.arguments import taken_over
from simjax.core.model import Output
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.output.instrument import Reading
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.everything import Snapshot
from simjax.instruments.image import Image
from simjax.instruments.instrument import Instrument
from simjax.instruments.operators import PointSensors
from simjax.io.measurements import Measurements, read_measurements, write_measurements
from simjax.schema.config import Config
from simjax.schema.inverse import ObservationConfig

SAME = 1e-6
"""Part of a spacing by which positions of a file may differ from those of the grid and still be these."""


NUMBER = "number_"
"""Beginning of the names of an operator's axes, in its order; files without names have the slowest first."""


class Comparison(NamedTuple):
    """Readings of the run beside measurements: the operator, its times, and `(m, *operator.shape)` of each of the
    `arrays`: measured, present, deviation.

    notes: sentences about what was taken from the file.
    """

    operator: Instrument
    times: np.ndarray
    arrays: Mapping[str, np.ndarray | None]
    notes: tuple[str, ...]


def compare(source: ObservationConfig, rollout: DifferentiableRun, reading: Reading) -> Comparison:
    """The measurements of an observation in the order of its operator: for those of a whole field, one of their places.

    Raises ConfigurationError for measurements that do not fit the observation or the run.
    """
    assert source.data is not None and source.variable is not None
    schema, grid, operator = rollout.config.schema, rollout.domain.grid, reading.operator
    whole = source.instrument.kind_class.whole
    found = read_measurements(
        source.data,
        source.variable,
        _own_dims(source, grid, operator),
        units=reading.output.units,
        time_units=schema.time_units,
        length_units=schema.length_units,
        shape=grid.shape if whole else None,
        with_error=source.deviation is None and source.fraction is None,
    )
    if found.deviation is None and source.deviation is None and source.fraction is None:
        raise ConfigurationError(
            f"{found.name}: its standard deviations are missing; write deviation: NUMBER, the name of a variable of "
            "the file, or fraction: NUMBER."
        )
    dims, values, present, deviation = _times_first(found)
    if whole and _is_of_points(found):
        operator, order = _points(source.variable, found, dims, grid), [0, 1]
    elif whole:
        operator, order = _image(source.variable, reading.output, found, dims, values.shape, rollout)
    else:
        order = _along(source.instrument.name, found, dims, values.shape, grid, operator)
    times = _times(source, found, len(values))
    shape = (len(times), *operator.shape(grid))
    values, present, deviation = (
        None if u is None else u.transpose(order).reshape(shape) for u in (values, present, deviation)
    )
    assert values is not None and present is not None
    arrays = {"measured": values, "present": None if present.all() else present, "deviation": deviation}
    return Comparison(operator, times, arrays, found.notes)


def _own_dims(source: ObservationConfig, grid: Grid, operator: Instrument) -> tuple[str, ...]:
    """Names of the axes of a file that has none."""
    if source.instrument.kind_class.whole:
        named = None if source.data is None else source.data.order
        return AXES[: grid.ndim][::-1] if named is None else named
    return tuple(f"{NUMBER}{k}" for k in reversed(range(len(operator.shape(grid)))))


def _is_of_points(found: Measurements) -> bool:
    """Tell whether coordinates are those of single places, listed along one dimension, not of the axes of a picture."""
    return any(along not in ("", axis) for axis, (along, _) in found.places.items())


def _times_first(found: Measurements) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray | None]:
    """Dimensions, values, present and deviation with the dimension of time first, which is one long without any."""
    arrays = [found.values, found.present, found.deviation]
    if "time" not in found.dims:
        values, present, deviation = (None if u is None else u[None] for u in arrays)
        dims = ("time", *found.dims)
    else:
        axis = found.dims.index("time")
        values, present, deviation = (None if u is None else np.moveaxis(u, axis, 0) for u in arrays)
        dims = ("time", *(dim for dim in found.dims if dim != "time"))
    assert values is not None and present is not None
    return dims, values, present, deviation


def _times(source: ObservationConfig, found: Measurements, count: int) -> np.ndarray:
    if found.times is not None and source.times is not None:
        raise ConfigurationError(f"{found.name}: its coordinate time says when it was measured; leave out times.")
    times = found.times if source.times is None else np.asarray(source.times)
    if times is None:
        raise ConfigurationError(f"{found.name} has no coordinate time; write times, one for each measurement.")
    if len(times) != count:
        raise ConfigurationError(
            f"{found.name} has measurements at {count} times; expected as many times, got {len(times)}."
        )
    return times


def _image(
    variable: str,
    output: Output,
    found: Measurements,
    dims: Sequence[str],
    shape: Sequence[int],
    rollout: DifferentiableRun,
) -> tuple[Instrument, list[int]]:
    """The operator of a picture, and the order of its axes: time, x, y, z, without those across which it is a plane."""
    grid, offset = rollout.domain.grid, output.offset
    axes, lines, on_grid = AXES[: grid.ndim], [], not rollout.programs.moving
    extra = [dim for dim, n in zip(dims, shape, strict=True) if dim not in ("time", *axes) and n > 1]
    missing = [axis for axis in axes if axis not in dims and (axis not in found.places or found.places[axis][0])]
    if extra or missing:
        raise ConfigurationError(
            f"{found.name} has axes ({', '.join(dims[1:])}) of shape {tuple(shape[1:])}; expected those of the grid, "
            f"({', '.join(reversed(axes))}), or one number as the coordinate across a plane; write the coordinates of "
            "single places, x, y, z, along one axis."
        )
    for k, axis in enumerate(axes):
        own = grid.coordinates(k, offset[k])
        if rollout.programs.moving and axis not in found.places:
            raise ConfigurationError(
                f"{found.name} has no coordinate {axis}, and cells move; write where each value is."
            )
        lines.append(_line(found, axis, shape[dims.index(axis)] if axis in dims else 1, own))
        close = SAME * grid.lengths[k] / grid.shape[k]
        on_grid &= len(lines[k]) == len(own) and bool(np.all(np.abs(lines[k] - own) <= close))
    order = [0, *(dims.index(axis) for axis in axes if axis in dims)]
    order += [k for k in range(len(dims)) if k not in order]  # each one long
    return Snapshot(variable) if on_grid else Image(variable, lines), order


def _line(found: Measurements, axis: str, count: int, own: np.ndarray) -> np.ndarray:
    """Positions of a picture along an axis; without coordinates the run's `own`, if these are as many."""
    _, line = found.places.get(axis, ("", None))
    if line is None and count != len(own):
        raise ConfigurationError(
            f"{found.name} has {count} values along {axis} and no coordinate {axis}, for {len(own)} cells; write where "
            f"they are, in the coordinate {axis}."
        )
    line = own if line is None else np.atleast_1d(line)
    if not np.isfinite(line).all():
        raise ConfigurationError(f"{found.name}: its coordinate {axis} is not finite; write where each value is.")
    return line


def _along(
    name: str, found: Measurements, dims: Sequence[str], shape: Sequence[int], grid: Grid, operator: Instrument
) -> list[int]:
    """The order of the axes of the file, slowest first there, that is the operator's."""
    numbered = sorted((dim, k) for k, dim in enumerate(dims) if dim.startswith(NUMBER))
    order = [0, *((k for _, k in numbered) if numbered else reversed(range(1, len(shape))))]
    expected, have = operator.shape(grid), tuple(shape[k] for k in order[1:])
    if [n for n in have if n > 1] != [n for n in expected if n > 1]:
        raise ConfigurationError(
            f"{found.name} has shape {tuple(shape)}, times first; expected ({shape[0]}"
            f"{''.join(f', {n}' for n in expected) or ','}), what output {name} reads."
        )
    if not isinstance(operator, PointSensors):
        return order
    for k, axis in enumerate(AXES[: grid.ndim]):
        along, line = found.places.get(axis, ("", None))
        if line is None or not along:
            continue
        apart = np.abs(line - np.asarray(operator.positions)[:, k])
        if (apart > SAME * grid.lengths[k]).any():
            number = int(np.argmax(apart))
            raise ConfigurationError(
                f"{found.name}: its point {number} has {axis}={line[number]:g}, but output {name} has "
                f"{axis}={operator.positions[number][k]:g}; write the same places in both, or output: fields for those "
                "of the file."
            )
    return order


def _points(variable: str, found: Measurements, dims: Sequence[str], grid: Grid) -> Instrument:
    """Sensors at the places that the file has."""
    lines = []
    for axis in AXES[: grid.ndim]:
        along, line = found.places.get(axis, ("", None))
        if line is None or (along and along not in dims[1:]) or len(dims) > 2:
            raise ConfigurationError(
                f"{found.name} has axes ({', '.join(dims[1:])}) and no coordinate {axis} of its points; write x, y, z "
                "along one axis in the file."
            )
        lines.append(np.atleast_1d(line))
    count = max(len(line) for line in lines)
    return PointSensors(variable, np.stack([np.broadcast_to(line, count) for line in lines], axis=1))


def with_files(section: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The section `inverse` with files in the place of what observations give as `data`, an array or a dataset."""
    written = dict(section)
    if "observations" in section:
        written["observations"] = [_with_file(one, config) for one in section["observations"]]
    if isinstance(experiments := section.get("experiments"), Mapping):
        written["experiments"] = {
            name: with_files(own, config) if isinstance(own, Mapping) else own for name, own in experiments.items()
        }
    return written


def _with_file(observation: Any, config: Config) -> Any:
    if not isinstance(observation, Mapping) or "data" not in observation:
        return observation
    others = {key: taken_over(value) for key, value in observation.items() if key != "data"}
    if "file" in others:
        raise ConfigurationError(f"an observation has data and file={others['file']!r}: expected one of them.")
    data, dims = observation["data"], ("time",)
    if others.get("output") == "fields" and config.grid is not None:
        dims = ("time", *AXES[: len(config.grid.shape)])
    elif not hasattr(data, "dims"):  # an array without names of its axes
        shape = np.shape(taken_over(data))
        at_one_time = len(np.atleast_1d(others.get("times", ()))) == 1 and shape[:1] != (1,)
        dims = ("time", *(f"{NUMBER}{k}" for k in range(len(shape) if at_one_time else len(shape) - 1)))
    name = others.get("of", others.get("output"))
    name = name if isinstance(name, str) else "measured"
    beside = {key: others.pop(key) for key in ("mask", "deviation") if np.ndim(others.get(key, 0)) > 0}
    path, named = write_measurements(Path(config.output.root), data, name, dims, beside)
    return {**others, **{key: value for key, value in named.items() if key not in others}, "file": str(path)}
