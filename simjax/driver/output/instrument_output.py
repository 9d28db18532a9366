"""Samples of a run's instruments on their way from the devices to their files."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from simjax.driver.output.instrument import RunInstrument, coordinates_of
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.start.build import Plan
from simjax.io.instrument_files import FOLDER, InstrumentWriter
from simjax.io.segments import WHOLE
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.stepping.watching import Readings


class Samples(NamedTuple):
    """Samples of one instrument that were dispatched: the devices may still be taking them.

    times, steps: of each, on the host. count: of each member, as an array of the devices, how many there are. values:
    `([member,] rows, ...)` by variable, of which the first ones count.
    """

    name: str
    times: np.ndarray
    steps: np.ndarray
    count: Any
    values: Mapping[str, Any]


class SampleFiles:
    """Files of samples, by the name of what is sampled."""

    def __init__(self) -> None:
        self.writers: dict[str, Any] = {}

    def commit(self) -> None:
        """Put all samples so far on the disk, before a checkpoint that counts on them."""
        for committed in [writer.commit() for writer in self.writers.values()]:
            committed.result()

    def close(self, complete: bool) -> None:
        """End the files in good order."""
        for writer in self.writers.values():
            writer.close(complete)

    def abandon(self) -> None:
        """Close the files after an error with the samples they have."""
        for writer in self.writers.values():
            with contextlib.suppress(Exception):
                writer.abandon()


class InstrumentOutput(SampleFiles):
    """The files of a run's instruments; none if the run has no instruments.

    While a call is being computed, the samples of the call before are written. kept: of each file, samples that were
    there when it was opened.
    """

    def __init__(
        self, folder: Path, instruments: CompiledInstruments, attributes: Mapping[str, Any], keep_until_step: int | None
    ):
        super().__init__()
        self._instruments = instruments
        self._members = instruments.programs.members
        self._pending: deque[list[Samples]] = deque()
        for name, instrument in instruments.instruments.items():
            path = folder / FOLDER / name
            if processes().first:
                path.mkdir(parents=True, exist_ok=True)
            self.writers[name] = _writer(path, instrument, instruments.programs, attributes, keep_until_step)

    def add(self, samples: list[Samples]) -> None:
        """Queue samples of a call that was just dispatched; write what was before it, which is done by now."""
        if not self.writers:
            return
        for leaf in jax.tree.leaves([(one.count, one.values) for one in samples]):
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                leaf.copy_to_host_async()
        self._pending.append(samples)
        while len(self._pending) > 1:
            self._settle()

    def settle_all(self) -> None:
        """Wait for every sample and hand it to its writer."""
        while self._pending:
            self._settle()

    def _settle(self) -> None:
        for one in self._pending.popleft():
            counts = np.atleast_1d(whole(one.count)).astype(int)
            count = int(counts.max())
            if not count:  # every member has failed before the end of the call
                continue
            values = {name: self._rows(whole(u), counts, count) for name, u in one.values.items()}
            parts = [values] if self.writers[one.name].own_parts else []
            self.writers[one.name].write_parts(one.steps[:count], one.times[:count], parts)

    def _rows(self, values: np.ndarray, counts: np.ndarray, count: int) -> np.ndarray:
        """The first `count` rows `(count, [member,] ...)`; NaN where a member has fewer."""
        if self._members is None:
            return values[:count]
        rows = np.moveaxis(values[:, :count], 1, 0).copy()
        for member in np.flatnonzero(counts < count):
            rows[counts[member] :, member] = np.nan
        return rows

    @property
    def counts(self) -> dict[str, int]:
        """Number of samples in each file, samples still to be written included."""
        return {name: writer.frames for name, writer in self.writers.items()}

    @property
    def kept(self) -> dict[str, int]:
        """Number of samples that were there when each file was opened."""
        return {name: writer.frames_kept for name, writer in self.writers.items()}

    def commit(self) -> None:
        self.settle_all()
        super().commit()

    def close(self, complete: bool) -> None:
        self.settle_all()
        super().close(complete)


def at_frame(measured: tuple[Any, Mapping[str, Any]], time: float, step: int) -> list[Samples]:
    """Samples of what `CompiledInstruments.measure` returned for one time."""
    count, found = measured
    return [Samples(name, np.asarray([time]), np.asarray([step]), count, rows) for name, rows in found.items()]


def of_call(
    instruments: CompiledInstruments,
    plan: Plan,
    frame: int,
    substeps: int,
    steps: int,
    step: int,
    found: Mapping[str, Readings],
) -> list[Samples]:
    """Samples of what a call of `CompiledInstruments.advance` read: so many steps, after `substeps` of a frame and
    `step` in all."""
    samples = []
    for name, one in found.items():
        times, numbers = instruments.times(plan, frame, substeps, steps, step, name, one)
        samples.append(Samples(name, times, numbers, one.count, one.values))
    return samples


def _writer(
    path: Path, instrument: RunInstrument, programs, attributes: Mapping[str, Any], keep_until_step: int | None
) -> InstrumentWriter:
    config: Config = programs.config
    layouts = instrument.layouts(programs.domain.grid, config.schema.length_units)
    fixed = coordinates_of(one for layout in layouts.values() for one in layout.coordinates)
    return InstrumentWriter(
        path,
        instrument.outputs,
        {name: layout.dims for name, layout in layouts.items()},
        fixed,
        dtype=programs.dtype,
        members=None if programs.members is None else config.ensemble.members,
        time_units=config.schema.time_units,
        attributes=attributes,
        title=f"{config.title or config.experiment_name}: {instrument.source.name}",
        keep_until_step=keep_until_step,
        parts=[WHOLE] if processes().first else [],
        described={name: layout.attributes for name, layout in layouts.items()},
    )
