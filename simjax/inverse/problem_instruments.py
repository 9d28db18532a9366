"""Instruments of an inverse problem: operators, times and noise, and the data made or read for them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import taken_over
from simjax.config.structure import frozen
from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.output.instrument import Reading, RunInstrument
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.instrument import Instrument
from simjax.instruments.operators import PointSensors
from simjax.inverse.measured import compare
from simjax.inverse.methods.argument_checks import require_positive
from simjax.inverse.methods.noise import GaussianNoise, HuberNoise, StudentNoise
from simjax.inverse.methods.sensors import Sensors, read_sensors
from simjax.notebook import line
from simjax.schema.config_errors import closest
from simjax.schema.instruments import InstrumentConfig
from simjax.schema.inverse import ObservationConfig


class Measured(NamedTuple):
    """Measurements as programs take them: arrays alone, so that one program serves every data set of these shapes.

    values `(m, *operator.shape)`, present the same or None, deviation a number or the same; below and fraction `(m,)`
    as of `Observation`, the latter None where every time is the end of a frame; number: of degrees of freedom or of
    deviations, where the noise is not Gaussian.
    """

    values: Any
    present: Any
    deviation: Any
    below: Any
    fraction: Any
    number: Any


@dataclass(frozen=True)
class Observation:
    """An operator read at `times` `(m,)`: between frames `below` and the next one, `fraction` of the way.

    output: what describes the reading. seen: variables of the run that it is made of, those derived from others too.

    measured: `(m, *operator.shape)` and present: the same, False where nothing was measured; None before a twin
    experiment has made them. What is wanted counts as measured. deviation: standard deviations given with the
    measurements, else None. experiment: the name of the run that it is read in, where there are several; its own begins
    with it. given: whether measurements were given, not made. notes: sentences about the file that they were read from.
    """

    name: str
    operator: Instrument
    source: ObservationConfig
    output: Output
    seen: tuple[Output, ...]
    times: np.ndarray
    below: np.ndarray
    fraction: np.ndarray
    measured: np.ndarray | None = None
    present: np.ndarray | None = None
    deviation: np.ndarray | None = None
    experiment: str = ""
    given: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = None if self.measured is None else self.measured.shape
        rows = [("of", self.output.name), ("times", len(self.times)), ("shape", shape)]
        return line(f"Observation {self.name}", rows)

    def remeasured(self, measured: Any, deviation: Any) -> Observation:
        """A copy with other values or another noise; None keeps the present one."""
        assert self.measured is not None
        changed, measured, deviation = self, taken_over(measured), taken_over(deviation)
        for name, values in (("measured", measured), ("deviation", deviation)):
            shape = np.shape(values)
            if values is not None and shape != self.measured.shape and (name == "measured" or shape):
                raise ConfigurationError(
                    f"{name}[{self.name!r}]: expected shape {self.measured.shape}, times first, got {shape}."
                )
        if measured is not None:
            changed = dataclasses.replace(changed, measured=np.asarray(measured, np.float64), given=True)
        if deviation is not None:
            require_positive(f"deviation[{self.name!r}]", deviation, "the instrument's standard deviation")
            source = dataclasses.replace(self.source, deviation=None, fraction=None)
            changed = dataclasses.replace(changed, source=source, deviation=np.asarray(deviation, np.float64))
        return changed

    def at_times(self, series: Array) -> Array:
        """Readings at the instrument's times, from a series `(frames + 1, ...)`."""
        below, fraction = self._places(series.dtype)
        return between_frames(series, below, fraction)

    def _places(self, dtype) -> tuple[Array, Array | None]:
        fraction = jnp.asarray(self.fraction, dtype) if self.fraction.any() else None
        return jnp.asarray(self.below, jnp.int32), fraction

    def measurements(self, dtype) -> Measured:
        """The measurements in the precision of the run."""
        assert self.measured is not None
        return Measured(
            self.measured.astype(dtype),
            self.present,
            jnp.asarray(self.standard_deviation(), dtype),
            *self._places(dtype),
            None if self.source.noise is None else jnp.asarray(self.source.noise[1], dtype),
        )

    def measured_spec(self, domain: Domain) -> Measured:
        """The partition of `measurements`; known before anything is measured."""
        everywhere, spec = PartitionSpec(), PartitionSpec(None, *self.operator.spec(domain))
        return Measured(
            spec,
            None if self.present is None else spec,
            everywhere if self._has_one_deviation else spec,
            everywhere,
            everywhere if self.fraction.any() else None,
            None if self.source.noise is None else everywhere,
        )

    @property
    def structure(self) -> Hashable:
        """The key of a program that reads the instrument: everything but the numbers of `measurements`."""
        kind = None if self.source.noise is None else self.source.noise[0]
        shapes = self.present is None, self._has_one_deviation, bool(self.fraction.any())
        return self.name, frozen(self.operator), kind, self.experiment, *shapes

    @property
    def _has_one_deviation(self) -> bool:
        given = self.source.deviation is not None or self.source.fraction is not None
        return given or self.deviation is None or self.deviation.ndim == 0

    def bare(self) -> Observation:
        """A copy without measurements, to be kept with a compiled program."""
        return dataclasses.replace(self, measured=None, present=None, deviation=None)

    def residuals(self, series: Array, measured: Measured) -> Array:
        """Readings less measurements, in standard deviations; zero where nothing was measured."""
        read = between_frames(series, measured.below, measured.fraction)
        if self.source.noise is None:
            noise = GaussianNoise(measured.deviation)
        else:
            noise = {"student": StudentNoise, "huber": HuberNoise}[self.source.noise[0]](
                measured.deviation, measured.number
            )
        differences = noise.residuals(read, self.operator.nearest(measured.values, read))
        return differences if measured.present is None else jnp.where(measured.present, differences, 0)

    @property
    def count(self) -> int:
        """Number of measured values."""
        chosen = self.measured if self.present is None else self.present
        assert chosen is not None
        return int(chosen.size if self.present is None else chosen.sum())

    def until(self, end: float) -> Observation | None:
        """The instrument with what it measured up to a time; None if that is nothing."""
        kept = self.times <= end * (1 + 1e-9)
        if not kept.any():
            return None
        rows = {
            name: None if (values := getattr(self, name)) is None or np.ndim(values) == 0 else values[kept]
            for name in ("times", "below", "fraction", "measured", "present", "deviation")
        }
        return dataclasses.replace(self, **rows)

    def standard_deviation(self) -> np.ndarray | float:
        """Standard deviation of the noise: as given, or as a fraction of the root mean square of what was measured."""
        if self.source.deviation is not None:
            return self.source.deviation
        if self.source.fraction is not None:
            assert self.measured is not None
            return self.source.fraction * _root_mean_square(self.measured, self.present)
        if self.deviation is None:
            assert self.source.data is not None
            raise ConfigurationError(
                f"inverse.observations: {self.source.data.path.name} has no column deviation; write deviation=... "
                "beside it."
            )
        return self.deviation


def between_frames(series: Array, below: Array, fraction: Array | None) -> Array:
    """`(m, ...)`: a series `(frames + 1, ...)` at `fraction` of the way from frame `below` to the next one."""
    if fraction is None:
        return series[below]
    fraction = fraction.reshape(-1, *(1,) * (series.ndim - 1))
    above = jnp.minimum(below + 1, len(series) - 1)
    return (1 - fraction) * series[below] + fraction * series[above]


def _root_mean_square(values: np.ndarray, present: np.ndarray | None) -> float:
    return float(np.sqrt(np.mean(values[present] ** 2 if present is not None else values**2)))


def instruments_of(
    observations: tuple[ObservationConfig, ...],
    rollout: DifferentiableRun,
    *,
    section: str = "inverse.observations",
    experiment: str = "",
) -> list[Observation]:
    """The instruments of a configuration for its run; a table of readings is one for each variable.

    section: where the observations are written; experiment: the name of the run, where there are several.

    Raises ConfigurationError for an instrument outside of the grid or of the run.
    """
    found: list[Observation] = []
    for number, source in enumerate(observations):
        path, before = f"{section}[{number}]", f"{experiment}_{number}" if experiment else f"{number}"
        try:
            found += [
                dataclasses.replace(one, name=f"{before}_{one.name}", experiment=experiment)
                for one in _instruments(source, rollout)
            ]
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
    return found


def _instruments(source: ObservationConfig, rollout: DifferentiableRun) -> list[Observation]:
    if source.variable is None:
        return _of_table(source, rollout)
    reading = _reading_of(source.instrument, source.variable, rollout)
    if source.data is not None and source.data.is_table:
        return [_of_readings(source, reading, read_sensors(source.data.path, rollout.domain.grid.ndim), rollout)]
    if source.data is not None:
        made = compare(source, rollout, reading)
        reading = reading._replace(operator=made.operator)
        return [_placed(source, reading, made.times, rollout, given=True, notes=made.notes, **made.arrays)]
    times = rollout.times()
    if source.times is not None:
        at = np.asarray(source.times)
    elif isinstance(source.every, str):
        at = times[1:]
    else:
        # As many as fit but for rounding.
        count = math.floor((times[-1] - times[0]) / source.every * (1 + 1e-12))
        at = times[0] + source.every * np.arange(1, count + 1)
    wanted = {} if source.target is None else {"measured": _target(source, reading, at, rollout)}
    return [_placed(source, reading, at, rollout, **wanted)]


def _reading_of(instrument: InstrumentConfig, variable: str, rollout: DifferentiableRun) -> Reading:
    return RunInstrument.of(instrument, rollout.programs).reading(variable)


def _target(source: ObservationConfig, reading: Reading, times: np.ndarray, rollout: DifferentiableRun) -> np.ndarray:
    """Values that are wanted at `times`, `(m, *operator.shape)`, from the configuration."""
    assert source.target is not None
    grid, known = rollout.domain.grid, rollout.start_values()
    if source.instrument.kind_class.whole:
        lines = (grid.coordinates(axis, reading.output.offset[axis]) for axis in range(grid.ndim))
        known = {**known, **dict(zip(AXES, np.meshgrid(*lines, indexing="ij"), strict=False))}
    shape = reading.operator.shape(grid)
    return np.stack([np.broadcast_to(source.target({**known, "t": t}), shape) for t in times])


def _of_table(source: ObservationConfig, rollout: DifferentiableRun) -> list[Observation]:
    """One instrument for each of the model's variables that a table has readings of."""
    assert source.data is not None
    table, found = read_sensors(source.data.path, rollout.domain.grid.ndim), []
    variables = [output.name for output in rollout.model.outputs()]
    for named in table.readings:
        if not named and len(variables) != 1:  # the file has no column "variable"
            raise ConfigurationError(
                f"{table.name} does not say what was measured, and the model has {', '.join(variables)}; add a column "
                "variable with one of these names in each line, or write of: NAME."
            )
        variable = named or variables[0]
        if variable not in variables:
            close = closest(variable, variables)
            hint = f"did you mean '{close}'?" if close else f"the model has {', '.join(variables)}."
            raise ConfigurationError(f"{table.name} has readings of '{variable}'; {hint}")
        instrument = dataclasses.replace(source.instrument, of=(variable,))
        own = dataclasses.replace(source, instrument=instrument, variable=variable)
        found.append(_of_readings(own, _reading_of(instrument, variable, rollout), table, rollout))
    return found


def _of_readings(
    source: ObservationConfig, reading: Reading, table: Sensors, rollout: DifferentiableRun
) -> Observation:
    """The instrument at the places of a table's readings of one variable."""
    assert source.variable is not None
    own = table.of(source.variable)
    sensors = reading._replace(operator=PointSensors(source.variable, own.positions))
    measured = {"measured": own.values, "present": own.present, "deviation": own.deviations}
    return _placed(source, sensors, own.times, rollout, given=True, **measured)


def _placed(
    source: ObservationConfig, reading: Reading, at: np.ndarray, rollout: DifferentiableRun, **measured: Any
) -> Observation:
    times, operator = rollout.times(), reading.operator
    operator.check(rollout.domain.grid)
    interval = times[1] - times[0]
    # Rounding of a time that is meant to be the end of a frame.
    slack = 1e-6 * interval
    outside = (at < times[0] - slack) | (at > times[-1] + slack)
    if outside.any():
        raise ConfigurationError(
            f"measured at t={at[outside][0]:g}, but the run goes from t={times[0]:g} to {times[-1]:g}; leave it out or "
            "lengthen time.end."
        )
    place = (np.clip(at, times[0], times[-1]) - times[0]) / interval
    place = np.where(np.abs(place - np.rint(place)) < slack / interval, np.rint(place), place)
    below = np.floor(place)
    when = at, below.astype(np.int32), place - below
    return Observation(str(source.variable), operator, source, reading.output, reading.seen, *when, **measured)
