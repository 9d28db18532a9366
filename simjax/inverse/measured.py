"""Observations with measurements in a file: the instrument in the run, and the measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simjax.arguments import taken_over
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.programs.programs_of_instruments import reading_of
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.image import Image
from simjax.instruments.instrument import Instrument
from simjax.instruments.operators import PointSensors, Snapshot
from simjax.io.measurements import Measurements, read_measurements, write_measurements
from simjax.schema.config import Config
from simjax.schema.inverse import PLACES, ObservationConfig

SAME = 1e-6
"""Part of a spacing by which positions of a file may differ from those of the grid and still be these."""


class Comparison(NamedTuple):
    """Readings of the run beside measurements: the operator, its times, and `(m, *operator.shape)` measured.

    notes: sentences about what was taken from the file.
    """

    operator: Instrument
    times: np.ndarray
    measured: np.ndarray
    present: np.ndarray | None
    deviation: np.ndarray | None
    notes: tuple[str, ...]


def compare(source: ObservationConfig, rollout: DifferentiableRun, operator: Instrument | None) -> Comparison:
    """The measurements of an observation in the order of its operator.

    operator: None where the places are those of the file.

    Raises ConfigurationError for measurements that do not fit the observation or the run.
    """
    assert source.data is not None
    schema, grid = rollout.config.schema, rollout.domain.grid
    if source.kind == "snapshot" and (refusal := schema.refusal("snapshots from files")):
        raise ConfigurationError(f"a file with a snapshot of {schema.family}: {refusal}")
    found = read_measurements(
        source.data,
        _name_in_file(source),
        _own_dims(source, grid),
        units=reading_units(source, str(source.variable), rollout),
        time_units=schema.time_units,
        length_units=schema.length_units,
        shape=grid.shape if source.kind == "snapshot" else None,
        with_error=source.deviation is None and source.fraction is None,
    )
    if found.deviation is None and source.deviation is None and source.fraction is None:
        raise ConfigurationError(
            f"{found.name}: its standard deviations are missing; write deviation: NUMBER, the name of a variable of "
            "the file, or fraction: NUMBER."
        )
    dims, values, present, deviation = _times_first(found)
    if source.kind == "snapshot":
        operator, order = _image(source, found, dims, values.shape, rollout)
    else:
        operator, order = _along(source, found, dims, values.shape, grid, operator)
    times = _times(source, found, len(values))
    values, present, deviation = (None if u is None else u.transpose(order) for u in (values, present, deviation))
    assert values is not None and present is not None
    shape = (len(times), *operator.shape(grid))
    values, present, deviation = (None if u is None else u.reshape(shape) for u in (values, present, deviation))
    assert values is not None and present is not None
    return Comparison(operator, times, values, None if present.all() else present, deviation, found.notes)


def reading_units(source: ObservationConfig, variable: str, rollout: DifferentiableRun) -> str:
    """Units of what an observation reads of a variable."""
    if source.instrument is not None:
        return reading_of(source.instrument, str(source.variable), rollout.programs)[1].units
    return rollout.programs.reading_units(source.kind, variable)


def _name_in_file(source: ObservationConfig) -> str:
    if source.kind == "spectrum":
        return f"{source.variable}_spectrum"
    return source.variable or source.kind


def _own_dims(source: ObservationConfig, grid: Grid) -> tuple[str, ...]:
    """Names of the axes of a file that has none."""
    if source.kind == "snapshot":
        named = None if source.data is None else source.data.order
        return AXES[: grid.ndim][::-1] if named is None else named
    return () if source.kind == "diagnostic" else ("number",)


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
    source: ObservationConfig,
    found: Measurements,
    dims: Sequence[str],
    shape: Sequence[int],
    rollout: DifferentiableRun,
) -> tuple[Instrument, list[int]]:
    """The operator of a picture, and the order of its axes: time, x, y, z, without those across which it is a plane."""
    assert source.variable is not None
    grid = rollout.domain.grid
    offset = next(output.offset for output in rollout.model.outputs() if output.name == source.variable)
    axes, lines, on_grid = AXES[: grid.ndim], [], True
    extra = [dim for dim, n in zip(dims, shape, strict=True) if dim not in ("time", *axes) and n > 1]
    missing = [axis for axis in axes if axis not in dims and (axis not in found.places or found.places[axis][0])]
    if extra or missing:
        raise ConfigurationError(
            f"{found.name} has axes ({', '.join(dims[1:])}) of shape {tuple(shape[1:])}; expected those of the grid, "
            f"({', '.join(reversed(axes))}), or one number as the coordinate across a plane; readings at single places "
            "are of the kind points."
        )
    for k, axis in enumerate(axes):
        own = grid.coordinates(k, offset[k])
        lines.append(_line(found, axis, shape[dims.index(axis)] if axis in dims else 1, own))
        close = SAME * grid.lengths[k] / grid.shape[k]
        on_grid &= len(lines[k]) == len(own) and bool(np.all(np.abs(lines[k] - own) <= close))
    order = [0, *(dims.index(axis) for axis in axes if axis in dims)]
    order += [k for k in range(len(dims)) if k not in order]  # each one long
    operator = Snapshot(source.variable) if on_grid else Image(source.variable, lines)
    return operator, order


def _line(found: Measurements, axis: str, count: int, own: np.ndarray) -> np.ndarray:
    """Positions of a picture along an axis; without coordinates the run's `own`, if these are as many."""
    along, line = found.places.get(axis, ("", None))
    if line is None and count != len(own):
        raise ConfigurationError(
            f"{found.name} has {count} values along {axis} and no coordinate {axis}, for {len(own)} cells; write where "
            f"they are, in the coordinate {axis}."
        )
    if along not in ("", axis):
        raise ConfigurationError(
            f"{found.name}: its coordinate {axis} lies along '{along}'; expected it along {axis}; readings at single "
            "places are of the kind points."
        )
    line = own if line is None else np.atleast_1d(line)
    if not np.isfinite(line).all():
        raise ConfigurationError(f"{found.name}: its coordinate {axis} is not finite; write where each value is.")
    return line


def _along(
    source: ObservationConfig,
    found: Measurements,
    dims: Sequence[str],
    shape: Sequence[int],
    grid: Grid,
    operator: Instrument | None,
) -> tuple[Instrument, list[int]]:
    """The operator of readings that are no picture, and the order of the axes of the file: slowest first there."""
    order = [0, *reversed(range(1, len(shape)))]
    if operator is None:
        return _points(source, found, dims, grid), order
    expected, have = operator.shape(grid), tuple(reversed(shape[1:]))
    if [n for n in have if n > 1] != [n for n in expected if n > 1]:
        raise ConfigurationError(
            f"{found.name} has shape {tuple(shape)}, times first; expected ({shape[0]}"
            f"{''.join(f', {n}' for n in expected) or ','}), what {_called(source)} reads."
        )
    if isinstance(operator, PointSensors):
        for k, axis in enumerate(AXES[: grid.ndim]):
            along, line = found.places.get(axis, ("", None))
            if line is None or not along:
                continue
            apart = np.abs(line - np.asarray(operator.positions)[:, k])
            if (apart > SAME * grid.lengths[k]).any():
                number = int(np.argmax(apart))
                raise ConfigurationError(
                    f"{found.name}: its point {number} has {axis}={line[number]:g}, but {_called(source)} has "
                    f"{axis}={operator.positions[number][k]:g}; write the same places in both, or leave out those of "
                    "the observation."
                )
    return operator, order


def _called(source: ObservationConfig) -> str:
    return f"output {source.instrument.name}" if source.instrument is not None else f"{source.kind}: {source.variable}"


def _points(source: ObservationConfig, found: Measurements, dims: Sequence[str], grid: Grid) -> Instrument:
    """Sensors at the places that the file has."""
    assert source.variable is not None
    lines = []
    for axis in AXES[: grid.ndim]:
        along, line = found.places.get(axis, ("", None))
        if line is None or (along and along not in dims[1:]) or len(dims) > 2:
            raise ConfigurationError(
                f"{found.name} has axes ({', '.join(dims[1:])}) and no coordinate {axis} of its points; write at: "
                "[[...], ...], or x, y, z along one axis in the file; a gridded picture is of the kind snapshot."
            )
        lines.append(np.atleast_1d(line))
    count = max(len(line) for line in lines)
    return PointSensors(source.variable, np.stack([np.broadcast_to(line, count) for line in lines], axis=1))


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
    kind = next((kind for kind in PLACES if kind in others), "snapshot")
    grid = config.grid
    spatial = AXES[: len(grid.shape)] if kind == "snapshot" and grid is not None else ("number",)
    dims = ("time", *(spatial if kind not in ("diagnostic",) else ()))
    name = others.get("of", others.get(kind))
    name = name if isinstance(name, str) else kind
    beside = {key: others.pop(key) for key in ("mask", "deviation") if np.ndim(others.get(key, 0)) > 0}
    path, named = write_measurements(Path(config.output.root), observation["data"], name, dims, beside)
    return {**others, **{key: value for key, value in named.items() if key not in others}, "file": str(path)}
