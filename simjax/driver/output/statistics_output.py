"""Sets of statistics in time on their way from the devices to their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simjax.core.domain import Domain
from simjax.driver.output.instrument import coordinates_of
from simjax.driver.output.instrument_output import SampleFiles
from simjax.driver.output.provenance import require_frames
from simjax.driver.output.statistic import Statistic
from simjax.driver.programs.programs_of_statistics import CompiledStatistics
from simjax.driver.start.reference_runs import reference_integrals
from simjax.instruments.cell_places import cell_coordinates
from simjax.io.frame_layout import written_times
from simjax.io.segments import WHOLE
from simjax.io.time_statistics_files import (
    BOUNDS,
    FOLDER,
    Described,
    StatisticsWriter,
    frequency_coordinate,
    phase_coordinates,
)
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.time_statistics import FOURIER
from simjax.stepping.moments import Sums, Total


@dataclass(frozen=True)
class OpenSet:
    """The set that goes on: the time and the step of its begin, -1 for the first, and how many sets were before it."""

    begun: float
    step: int = -1
    before: int = 0


class StatisticsOutput(SampleFiles):
    """The files of a run's statistics in time; those of a run without any are none.

    A set is written when its window ends. The set that goes on is written when the run ends or stops; a run that goes
    on takes it back, for its sums are in the checkpoint.

    known: of a run that goes on, what its checkpoint says, as `counts` returned it; None for a new run.
    """

    def __init__(
        self,
        folder: Path,
        statistics: CompiledStatistics,
        attributes: Mapping[str, Any],
        known: Mapping[str, Any] | None,
    ):
        super().__init__()
        self.statistics = statistics
        self._references = reference_integrals(statistics.programs.config, folder)
        self._open: dict[str, OpenSet] = {}
        self._described: dict[str, list[Described]] = {}
        for name, one in statistics.entries.items():
            path = folder / FOLDER / name
            if processes().first:
                path.mkdir(parents=True, exist_ok=True)
            found = OpenSet(one.source.start) if known is None else OpenSet(**known[name])
            self._open[name] = found
            units = statistics.programs.config.schema.time_units
            self._described[name] = one.described(units) + one.compared(units)
            writer = _writer(path, one, self._described[name], statistics, attributes, None if known is None else found)
            if known is not None:
                require_frames(path, writer.frames_kept, found.before)
            self.writers[name] = writer

    @property
    def counts(self) -> dict[str, Any]:
        """Beginning of the unfinished set of each statistic, for JSON."""
        return {name: vars(one) for name, one in self._open.items()}

    def end_windows(self, sums: Mapping[str, Sums], time: float, step: int) -> dict[str, Sums]:
        """The sums after a frame that ended well: of sets whose window ends these are written, and new ones begin."""
        kept = dict(sums)
        for name, own in sums.items():
            if not self.statistics.window_ends(name, self._open[name].begun, time):
                continue
            self._write(name, own, time, step)
            self._open[name] = OpenSet(time, step, self._open[name].before + 1)
            kept[name] = self.statistics.zero(name)
        return kept

    def write_open(self, sums: Mapping[str, Sums], time: float, step: int) -> None:
        """Write the sets that go on, where anything counts in them."""
        for name, own in sums.items():
            if np.any(whole(own.weight.value) > 0):
                self._write(name, own, time, step)

    def _write(self, name: str, sums: Sums, time: float, step: int) -> None:
        values = {key: value[None] for key, value in self._values(name, sums).items()}
        first = 1 if self.statistics.programs.members is None else 2
        apart = {key for key in values if self.statistics.entries[name].source.phase is not None}
        apart |= {one.name for one in self._described[name] if one.kind == FOURIER}
        values |= {key: np.moveaxis(values[key], first, -1) for key in apart}  # as the writer takes phases, frequencies
        values[BOUNDS] = written_times([self._open[name].begun, time])[None]
        writer = self.writers[name]
        writer.write_parts([step], [time], [values] if writer.own_parts else [])

    def _values(self, name: str, sums: Sums) -> dict[str, np.ndarray]:
        """The statistics of a set, on the host."""
        here: Any = jax.tree.map(whole, sums)
        grid = self.statistics.programs.domain.grid
        one, domain = self.statistics.entries[name], Domain(grid)
        plain = one.described(self.statistics.programs.config.schema.time_units)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = one.values(here, domain, plain, _total, np)
            if name in self._references:
                found |= one.compared_values(here, domain, _total, self._references[name])
        return found


def _writer(
    path: Path,
    one: Statistic,
    statistics: list[Described],
    compiled: CompiledStatistics,
    attributes: Mapping[str, Any],
    going_on: OpenSet | None,
) -> StatisticsWriter:
    programs = compiled.programs
    config: Config = programs.config
    grid, units = programs.domain.grid, config.schema.length_units
    if one.instrument is not None:
        layouts = one.instrument.layouts(grid, units)
        dims = {name: layout.dims for name, layout in layouts.items()}
        places = {name: layout.attributes for name, layout in layouts.items()}
        fixed = coordinates_of(own for layout in layouts.values() for own in layout.coordinates)
    else:
        found = {output.name: cell_coordinates(grid, output, one.kept(grid.ndim), units) for output in one.variables}
        dims, places = {name: own for name, (own, _) in found.items()}, {}
        fixed = coordinates_of(own for _, along in found.values() for own in along)
    if one.source.frequencies:
        fixed = [frequency_coordinate(one.source.frequencies, config.schema.time_units), *fixed]
    if one.source.phase is not None:
        fixed = [*phase_coordinates(one.source.phase, config.schema.time_units), *fixed]
    return StatisticsWriter(
        path,
        statistics,
        dims,
        places,
        fixed,
        one.source.over,
        dtype=programs.dtype,
        members=None if programs.members is None else config.ensemble.members,
        time_units=config.schema.time_units,
        attributes=attributes,
        title=f"{config.title or config.experiment_name}: {one.source.name}",
        keep_until_step=None if going_on is None else going_on.step,
        parts=[WHOLE] if processes().first else [],
    )


def _total(total: Total) -> Any:
    """A sum on the host, in float64."""
    value, *low = (np.asarray(part, np.float64) for part in total if part is not None)
    return sum(low, start=value)
