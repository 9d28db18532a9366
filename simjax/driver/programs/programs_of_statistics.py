"""The compiled part of a run's statistics in time: which fields they read, and the sums that the run carries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.driver.output.instrument import RunInstrument
from simjax.driver.output.statistic import Statistic
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.driver.start.build import Plan
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.io.time_statistics_files import WEIGHT, Described
from simjax.schema.instruments import TOLERANCE, InstrumentConfig
from simjax.schema.time_statistics import COVARIANCE, FOURIER, MAX, MIN, THIRD_MOMENT, VARIANCE, StatisticsConfig
from simjax.stepping.clock import Schedule
from simjax.stepping.moments import Averages, Moments, Sums
from simjax.stepping.watching import Gathering, Phases, Start, due_at_frames, due_by_time


class CompiledStatistics:
    """Statistics in time of a run, by name; none where there are no `sources`."""

    def __init__(
        self, programs: CompiledRun, instruments: Mapping[str, RunInstrument], sources: Iterable[StatisticsConfig]
    ):
        self.programs = programs
        self.entries: dict[str, Statistic] = {}
        for source in sources:
            if source.of_instrument:
                fields = programs.model.outputs() if programs.config.grid else ()
                self.entries[source.name] = _of_instrument(source, instruments[source.of[0]], fields)
            else:
                self.entries[source.name] = programs.statistic(source)

    @classmethod
    def of(cls, programs: CompiledRun, sources: Sequence[StatisticsConfig]) -> CompiledStatistics:
        """The statistics of some entries, with the instruments that they read."""
        names = {source.of[0] for source in sources if source.of_instrument}
        outputs = (one for one in programs.config.outputs if one.name in names)
        return cls(programs, {one.name: RunInstrument.of(one, programs) for one in outputs}, sources)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def has_windows(self) -> bool:
        """Tell whether a set ends before the run does."""
        return any(one.source.window is not None for one in self.entries.values())

    # ------------------------------------------------------------------ sums

    def _zero(self, name: str) -> Sums:
        """One member's sums before the first sample, on the host, of all devices together."""
        statistic, phase = self.entries[name], self.entries[name].source.phase
        zero = statistic.moments.zero(statistic.shapes(self.programs.domain), self.programs.dtype)
        return zero if phase is None else zero.apart(phase.bins)

    def _specs_of(self, name: str) -> Any:
        kept = self.entries[name].specs(self.programs.domain)
        if self.entries[name].source.phase is not None:
            kept = {variable: PartitionSpec(None, *own) for variable, own in kept.items()}
        return self.programs._member_specs(self._zero(name).partitions(kept))

    def value_specs(self, name: str, described: Sequence[Described]) -> dict[str, PartitionSpec]:
        """The partition of the variables of one's file, see `statistic.statistic_values`."""
        kept, lead = self.entries[name].specs(self.programs.domain), self.entries[name].source.phase is not None
        found = {WEIGHT: PartitionSpec()}
        for one in described:
            apart = (None,) * (lead or one.kind == FOURIER)
            found[one.name] = PartitionSpec(*apart, *(kept[one.of[0]] if one.of else ()))
        return found

    @property
    def specs(self) -> dict[str, Any]:
        """The partition of the sums."""
        return {name: self._specs_of(name) for name in self.entries}

    def zero(self, name: str) -> Sums:
        """The sums of all members before the first sample, on the devices."""
        members = self.programs.members
        lead = () if members is None else (members,)
        zeros = jax.tree.map(lambda leaf: np.broadcast_to(leaf, lead + leaf.shape), self._zero(name))
        return self.programs._place(zeros, self._specs_of(name))

    def start(self) -> dict[str, Sums]:
        """The sums at the start of a run."""
        return {name: self.zero(name) for name in self.entries}

    def template(self) -> dict[str, Sums]:
        """Shapes, dtypes and shardings of the sums, to restore a checkpoint."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), self.start()
        )

    # ------------------------------------------------------------------ in the loop over steps

    def gatherings(self, schedule: Schedule, model, params, files, values) -> dict[str, Gathering]:
        """The sums that the loop over steps adds states to, with the fields that they read."""
        return {
            name: self._gathering(one, schedule, model, params, files, values) for name, one in self.entries.items()
        }

    def _gathering(self, statistic: Statistic, schedule: Schedule, model, params, files, values) -> Gathering:
        programs, every, instrument = self.programs, statistic.source.interval, statistic.instrument
        names = [output.name for output in statistic.variables]

        def read(t, state) -> dict[str, jax.Array]:
            looked_at = statistic.variables if instrument is None else instrument.variables
            view = programs.view(model, t, state, params, values, looked_at)
            if instrument is not None:
                return instrument.read(view._replace(start=files.get("position")))
            return {name: view.variables[name] for name in names}

        is_due = due_at_frames if every is None else None
        if every:
            is_due = due_by_time(schedule.interval, every, TOLERANCE)
        averages = dict.fromkeys(names, _averages(model.domain, statistic.over))
        always = programs.members is not None  # as `taken_where` says
        phase = statistic.source.phase
        phases = None if phase is None else Phases(phase.period, phase.bins)
        return Gathering(statistic.moments, read, averages, is_due, always, phases)

    def starts(self, plan: Plan, frame: int) -> dict[str, Start]:
        """When states count in a frame."""
        begin, dtype, found = plan.time_after(frame), self.programs.dtype, {}
        for name, one in self.entries.items():
            every = one.source.interval
            first = (math.ceil(begin / every - TOLERANCE) * every - begin) if every else 0.0
            phase = one.source.phase
            turned = 0.0 if phase is None else begin / phase.period * phase.bins % phase.bins
            turns = [frequency * begin % 1.0 for frequency in one.source.frequencies]
            numbers = one.source.start - begin, first, turned, turns
            found[name] = Start(*(jnp.asarray(number, dtype) for number in numbers))
        return found

    def starts_of_frames(self, plan: Plan) -> Callable[[jax.Array], dict[str, Start]]:
        """When states count in each frame of a plan, by a number that is known to the program alone."""
        rows = jax.tree.map(lambda *frames: jnp.stack(frames), *(self.starts(plan, k) for k in range(plan.whole)))
        return lambda frame: jax.tree.map(lambda row: row[frame], rows)

    # ------------------------------------------------------------------ on the host

    def window_ends(self, name: str, begun: float, time: float) -> bool:
        """Tell whether the set that has `begun` ends at a time, that of a frame."""
        source = self.entries[name].source
        if source.window is None:
            return False
        sets = [math.floor((t - source.start) / source.window + 1e-9) for t in (begun, time)]
        return sets[1] > sets[0]


def _averages(domain: Domain, over: tuple[int, ...]) -> Averages:
    """Reductions of this block's field over some axes, across the devices along them."""
    if not over:
        return Averages(*(lambda u: u,) * 4)
    along = Domain(domain.grid, [entry if axis in over else None for axis, entry in enumerate(domain.split)])
    count = math.prod(domain.grid.shape[axis] for axis in over)
    lead = tuple(range(len(over)))

    def largest(u: jax.Array) -> jax.Array:
        u = jnp.moveaxis(u, over, lead)
        kept = u.shape[len(over) :]
        return jax.vmap(along.max, in_axes=1)(u.reshape(-1, math.prod(kept))).reshape(kept)

    return Averages(
        mean=lambda u: along.total(jnp.sum(u, over)) / count,
        expand=lambda u: jnp.expand_dims(u, over),
        min=lambda u: -largest(-u),
        max=largest,
    )


def _of_instrument(source: StatisticsConfig, read: RunInstrument, fields: Iterable[Output]) -> Statistic:
    """The statistics of what an instrument reads; fields: the model's own."""
    instrument = read.of_waves(fields) if source.frequencies else read
    if instrument.operators.keys() != read.operators.keys() and source.kinds != (FOURIER,):
        raise ConfigurationError(
            f"statistics {source.name!r}: kinds={', '.join(source.kinds)}: {read.source.name!r} is a product of "
            "fields, whose spectrum goes alone; write kinds: [fourier] and another entry for the others."
        )
    variables = tuple(instrument.outputs.values())
    kind = type(next(iter(instrument.operators.values())))
    if COVARIANCE in source.kinds and kind.along_cells(instrument.source, len(AXES)):
        for a, b in itertools.combinations(variables, 2):
            if a.offset != b.offset:
                raise ConfigurationError(
                    f"statistics {source.name!r}: kinds={COVARIANCE}: {a.name} and {b.name} of "
                    f"{instrument.source.name!r} lie at different places of a cell; give it values at cell "
                    "centres."
                )
    made = read if source.frequencies else None
    return Statistic(source, variables, _moments(source, [one.name for one in variables]), (), instrument, made)


def statistic_of_quantities(source: StatisticsConfig, programs: CompiledRun) -> Statistic:
    """The statistics of numbers that the model tells of its particles."""
    read_by = InstrumentConfig("diagnostic", source.name, source.of, source.every, {})
    return _of_instrument(source, RunInstrument.of(read_by, programs), ())


def statistic_of_fields(source: StatisticsConfig, programs: CompiledFields) -> Statistic:
    """The statistics of variables of fields, over time and over some axes."""
    kinds, known = source.kinds, {output.name: output for output in programs.outputs_named(source.of)}
    written = programs.config.schema.written(programs.grid.ndim, programs.config.counts)
    variables = tuple(known[name] for name in dict.fromkeys(name for own in source.of for name in written[own]))
    over = tuple(AXES.index(axis) for axis in source.over)
    where = f"statistics {source.name!r}"
    for output in variables:
        for axis in over:
            if output.offset[axis] != CENTER and not programs.config.boundaries[axis].periodic:
                raise ConfigurationError(
                    f"{where}: over={list(source.over)}: {output.name} lies on faces along {AXES[axis]}, where there "
                    f"are walls, so its values do not stand for equal parts; write values at cell centres"
                    f"{_centred(programs, output)}."
                )
    if COVARIANCE in kinds:
        for a, b in itertools.combinations(variables, 2):
            if a.offset != b.offset:
                raise ConfigurationError(
                    f"{where}: kinds={COVARIANCE}: {a.name} and {b.name} lie at different places of a cell; write "
                    f"values at cell centres{_centred(programs, a, b)}."
                )
    return Statistic(source, variables, _moments(source, [output.name for output in variables]), over)


def _moments(source: StatisticsConfig, variables: Sequence[str]) -> Moments:
    """The moments from which the statistics of an entry follow."""
    kinds, names = source.kinds, tuple(variables)
    pairs = tuple((name, name) for name in names) if {VARIANCE, THIRD_MOMENT} & {*kinds} else ()
    if COVARIANCE in kinds:
        pairs += tuple(itertools.combinations(names, 2))
    return Moments(
        means=names if {*kinds} - {MIN, MAX, FOURIER} else (),
        pairs=pairs,
        thirds=names if THIRD_MOMENT in kinds else (),
        mins=names if MIN in kinds else (),
        maxs=names if MAX in kinds else (),
        waves=names if FOURIER in kinds else (),
        frequencies=source.frequencies,
    )


def _centred(programs: CompiledFields, *outputs: Output) -> str:
    """A hint of the derived fields at cell centres, where there are some."""
    known = programs.config.schema.written(programs.grid.ndim, programs.config.counts)
    wanted: Mapping[str, None] = dict.fromkeys(
        f"{o.vector}_centered" for o in outputs if o.vector and f"{o.vector}_centered" in known
    )
    return f", {', '.join(wanted)}" if wanted else ""
