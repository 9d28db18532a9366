"""What was measured: operators, times and noise of an inverse problem, and data made or read for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.config.inverse import ObservationConfig
from simjax.config.problems import closest
from simjax.core.errors import ConfigurationError
from simjax.core.grid import AXES, Grid
from simjax.inverse.noise import GaussianNoise, HuberNoise, Noise, StudentNoise
from simjax.inverse.operators import BoxAverage, LineOfSight, Operator, Points, Snapshot, Spectrum
from simjax.inverse.sensors import read_sensors
from simjax.rollout import Rollout


@dataclass(frozen=True)
class Instrument:
    """An operator read at `times` `(m,)`: between frames `below` and the next one, `fraction` of the way.

    measured: `(m, *operator.shape)` and present: the same, False where nothing was measured; None before a twin
    experiment has made them. What is wanted counts as measured. deviation: standard deviations that came with the
    measurements, else None. experiment: the name of the run that it is read in, where there are several; its own begins
    with it.
    """

    name: str
    operator: Operator
    source: ObservationConfig
    times: np.ndarray
    below: np.ndarray
    fraction: np.ndarray
    measured: np.ndarray | None = None
    present: np.ndarray | None = None
    deviation: np.ndarray | None = None
    experiment: str = ""

    def at_times(self, series: Array) -> Array:
        """What it reads at its times, from a series `(frames + 1, ...)`."""
        below = jnp.asarray(self.below, jnp.int32)
        if not self.fraction.any():
            return series[below]
        fraction = jnp.asarray(self.fraction, series.dtype).reshape(-1, *(1,) * (series.ndim - 1))
        above = jnp.minimum(below + 1, len(series) - 1)
        return (1 - fraction) * series[below] + fraction * series[above]

    @property
    def count(self) -> int:
        """How many values were measured."""
        chosen = self.measured if self.present is None else self.present
        assert chosen is not None
        return int(chosen.size if self.present is None else chosen.sum())

    def until(self, end: float) -> Instrument | None:
        """The instrument with what it measured up to a time; None if that is nothing."""
        kept = self.times <= end * (1 + 1e-9)
        if not kept.any():
            return None
        rows = {
            name: None if (values := getattr(self, name)) is None or np.ndim(values) == 0 else values[kept]
            for name in ("times", "below", "fraction", "measured", "present", "deviation")
        }
        return dataclasses.replace(self, **rows)

    def noise(self, dtype) -> Noise:
        """The noise model, once `measured` is known."""
        deviation = jnp.asarray(self.standard_deviation(), dtype)
        if self.source.noise is None:
            return GaussianNoise(deviation)
        kind, number = self.source.noise
        return {"student": StudentNoise, "huber": HuberNoise}[kind](deviation, number)

    def standard_deviation(self) -> np.ndarray | float:
        """Of the noise: as given, or as a fraction of the root mean square of what was measured."""
        if self.source.deviation is not None:
            return self.source.deviation
        if self.source.fraction is not None:
            assert self.measured is not None
            return self.source.fraction * _root_mean_square(self.measured, self.present)
        if self.deviation is None:
            raise ConfigurationError(
                f"inverse.observations: {self.source.file} has no column deviation; write deviation=... beside it."
            )
        return self.deviation


def _root_mean_square(values: np.ndarray, present: np.ndarray | None) -> float:
    return float(np.sqrt(np.mean(values[present] ** 2 if present is not None else values**2)))


def instruments_of(
    observations: tuple[ObservationConfig, ...], rollout: Rollout,
    *, section: str = "inverse.observations", experiment: str = "",
) -> list[Instrument]:  # fmt: skip
    """The instruments of a configuration for its run; a CSV file is one for each variable.

    section: where the observations are written; experiment: the name of the run, where there are several.

    Raises ConfigurationError for an instrument outside of the grid or of the run.
    """
    found: list[Instrument] = []
    grid, times = rollout.grid, rollout.times()
    for number, source in enumerate(observations):
        path, before = f"{section}[{number}]", f"{experiment}_{number}" if experiment else f"{number}"
        if source.kind == "sensors":
            variables = [output.name for output in rollout.model.outputs()]
            added = _sensors(source, path, before, grid, times, variables)
        else:
            at = np.asarray(source.times) if source.times is not None else times[source.every :: source.every]
            wanted = {} if source.target is None else {"measured": _target(source, at, rollout)}
            name = f"{before}_{source.variable}"
            added = [_placed(path, name, _operator(source), source, at, times, grid, **wanted)]
        found += [dataclasses.replace(instrument, experiment=experiment) for instrument in added]
    return found


def _target(source: ObservationConfig, times: np.ndarray, rollout: Rollout) -> np.ndarray:
    """The field that is wanted at `times`, `(m, *grid.shape)`, with the configuration's own numbers."""
    assert source.target is not None
    grid = rollout.grid
    offset = next(output.offset for output in rollout.model.outputs() if output.name == source.variable)
    axes = np.meshgrid(*(grid.coordinates(axis, offset[axis]) for axis in range(grid.ndim)), indexing="ij")
    known = {**rollout.start_values(), **dict(zip(AXES, axes, strict=False))}
    return np.stack([np.broadcast_to(source.target({**known, "t": t}), grid.shape) for t in times])


def _operator(source: ObservationConfig) -> Operator:
    assert source.variable is not None
    match source.kind:
        case "snapshot":
            return Snapshot(source.variable)
        case "points":
            return Points(source.variable, source.numbers[0])
        case "line_of_sight":
            return LineOfSight(source.variable, *source.numbers)
        case "box_average":
            return BoxAverage(source.variable, *source.numbers)
        case "spectrum":
            return Spectrum(source.variable, source.shells)
    raise AssertionError(f"The configuration let through an observation of kind {source.kind!r}.")


def _sensors(
    source: ObservationConfig, path: str, before: str, grid: Grid, times: np.ndarray, variables: Sequence[str]
) -> list[Instrument]:
    """One instrument for each of the model's `variables` that the file has readings of."""
    assert source.file is not None
    found = []
    table = read_sensors(source.file, grid.ndim)
    for named, readings in table.readings.items():
        variable = named
        if not named:  # the file has no column "variable"
            if len(variables) != 1:
                raise ConfigurationError(
                    f"{path}: {table.name} does not say what was measured, and the model has {', '.join(variables)}; "
                    "add a column variable with one of these names in each line."
                )
            variable = variables[0]
        if variable not in variables:
            close = closest(variable, variables)
            hint = f"did you mean '{close}'?" if close else f"the model has {', '.join(variables)}."
            raise ConfigurationError(f"{path}: {table.name} has readings of '{variable}'; {hint}")
        found.append(
            _placed(
                path, f"{before}_{variable}", Points(variable, readings.positions), source, readings.times, times, grid,
                measured=readings.values, present=readings.present, deviation=readings.deviations,
            )
        )  # fmt: skip
    return found


def _placed(
    path: str, name: str, operator: Operator, source, at: np.ndarray, times: np.ndarray, grid: Grid, **measured: Any
) -> Instrument:
    operator.check(grid)
    interval = times[1] - times[0]
    # Rounding of a time that is meant to be the end of a frame.
    slack = 1e-6 * interval
    outside = (at < times[0] - slack) | (at > times[-1] + slack)
    if outside.any():
        raise ConfigurationError(
            f"{path}: measured at t={at[outside][0]:g}, but the run goes from "
            f"t={times[0]:g} to {times[-1]:g}; leave it out or lengthen time.end."
        )
    place = (np.clip(at, times[0], times[-1]) - times[0]) / interval
    place = np.where(np.abs(place - np.rint(place)) < slack / interval, np.rint(place), place)
    below = np.floor(place)
    return Instrument(name, operator, source, at, below.astype(np.int32), place - below, **measured)
