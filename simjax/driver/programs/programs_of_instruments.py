"""The compiled functions of a run's instruments: what they read at output times, and in the loop over steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.driver.output.instrument import RunInstrument
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_statistics import CompiledStatistics
from simjax.driver.start.build import Plan
from simjax.jaxpr.varying import vary_like
from simjax.parallel import whole
from simjax.schema.instruments import TOLERANCE, InstrumentConfig, due_steps
from simjax.status import OK
from simjax.stepping.clock import Schedule
from simjax.stepping.watching import Halt, Readings, Sight, Watch, advance_watching, due_by_number, due_by_time

LARGEST_BUFFER = 64 << 20
"""Bytes of the readings of one call on each device: calls are shortened until they fit."""


class CompiledInstruments:
    """The instruments of a run and their programs.

    instruments: by name. watched: names of those with a cadence of their own, which are read in the loop over steps.
    statistics: in time, which are gathered there too. halt: (model, params, numbers of the run) -> where the loop ends
    early.
    """

    def __init__(self, programs: CompiledRun, halt: Callable[[Any, Any, Any], Halt] | None = None):
        self.programs, self._halt = programs, halt
        self.instruments = {one.name: RunInstrument.of(one, programs) for one in programs.config.outputs}
        self.watched = [one.name for one in programs.config.outputs.within_frames]
        self.statistics = CompiledStatistics(programs, self.instruments, programs.config.statistics)
        # By the room of particles too, which grows.
        self._compiled: dict[Hashable, Callable] = programs.instrument_programs if halt is None else {}

    @property
    def in_the_loop(self) -> bool:
        """Tell whether the loop over steps reads, gathers or judges anything."""
        return bool(self.watched or self.statistics or self._halt)

    # ------------------------------------------------------------------ what is read

    def _read(self, names, model, params, files, values) -> Callable[[jax.Array, Any], dict[str, dict[str, jax.Array]]]:
        """(t, state) -> readings by instrument and variable."""
        programs, chosen = self.programs, [self.instruments[name] for name in names]
        more = list({output.name: output for one in chosen for output in one.variables}.values())

        def read(t, state):
            view = programs.view(model, t, state, params, values, more)._replace(start=files.get("position"))
            return {one.source.name: one.read(view) for one in chosen}

        return read

    def _specs(self, names) -> dict[str, dict[str, PartitionSpec]]:
        """The partition of rows of readings."""
        domain = self.programs.domain
        return {
            name: {
                variable: self.programs._member_specs(PartitionSpec(None, *operator.spec(domain)))
                for variable, operator in self.instruments[name].operators.items()
            }
            for name in names
        }

    # ------------------------------------------------------------------ programs

    def measure(self, names: tuple[str, ...]) -> Callable:
        """Compiled `(values, files, state, clock, t) -> (count, readings)` of one time: rows of readings.

        count: 1 of a member that is well, else 0.
        """
        key = names, *self._room_of_particles
        if key not in self._compiled:
            programs = self.programs

            def look(values, files, state, clock, t):
                model, params = programs.build(values, files)
                found = self._read(names, model, params, files, values)(t, state)
                return (clock.status == OK).astype(jnp.int32), jax.tree.map(lambda u: u[None], found)

            specs = (programs._one, programs._file_specs, programs.state_specs, programs._one, PartitionSpec())
            results = programs._one, self._specs(names)
            self._compiled[key] = programs._compile(
                look, (0, None, 0, 0, None), specs, results, name=("measure", names)
            )
        return self._compiled[key]

    @property
    def _room_of_particles(self) -> tuple[str, ...]:
        return tuple(f"{name}={size}" for name, size in self.programs.room().items())

    def advance(self, schedule: Schedule, steps: int) -> Callable:
        """Compiled `(values, files, state, clock, (until, when, starts), sums) ->
        (state, clock, readings, sums, halted)`.

        Without instruments that are read in the loop over steps and statistics it is `CompiledRun.advance`.
        """
        if not self.in_the_loop:
            return self.programs.advance(schedule, steps)
        key = schedule, steps, *self._room_of_particles
        if key not in self._compiled:
            self._compiled[key] = self._compiled_advance(schedule, steps)
        return self._compiled[key]

    def _compiled_advance(self, schedule: Schedule, steps: int) -> Callable:
        programs = self.programs

        def forward(values, files, state, clock, until, sums):
            seen, known = programs.build(values, files)
            sight = Sight(
                {name: self._watch(name, schedule, steps, seen, known, files, values) for name in self.watched},
                until[1],
                self.statistics.gatherings(schedule, seen, known, files, values),
                until[2],
                None if self._halt is None else self._halt(seen, known, values),
            )
            model, params = programs.build(vary_like(values, state), files)
            return advance_watching(
                model,
                programs.integrator,
                params,
                state,
                clock,
                schedule,
                steps=steps,
                until=until[0],
                sight=sight,
                sums=sums,
            )

        one: Any = programs._one
        rows = self._specs(self.watched)
        found = {name: Readings(one, one, one, one, rows[name]) for name in self.watched}
        sums = self.statistics.specs
        specs = (one, programs._file_specs, programs.state_specs, one, PartitionSpec(), sums)
        donate = () if programs.regrows else (2, 5)
        results = programs.state_specs, one, found, sums, None if self._halt is None else one
        name = None if self._halt is not None else ("advance with instruments", schedule, steps)
        return programs._compile(forward, (0, None, 0, 0, None, 0), specs, results, donate=donate, name=name)

    def _watch(self, name: str, schedule: Schedule, steps: int, model, params, files, values) -> Watch:
        read, every = self._read((name,), model, params, files, values), self.instruments[name].source.interval
        is_due = due_by_number if schedule.dt is not None else due_by_time(schedule.interval, every, TOLERANCE)
        room = self._room(name, schedule, steps)
        return Watch(lambda t, state: read(t, state)[name], room, is_due if every else None)

    def at_frame(self, *, first: bool) -> tuple[str, ...]:
        """Names of instruments read at an output time; at the `first`, the start, all of them."""
        return tuple(name for name, one in self.instruments.items() if first or one.source.at_frames)

    # ------------------------------------------------------------------ calls

    def _room(self, name: str, schedule: Schedule, steps: int) -> int:
        """The largest number of readings in a call of `steps` steps within one frame."""
        every = self.instruments[name].source.interval
        if not every:
            return steps
        longest = schedule.interval if schedule.dt is None else min(schedule.interval, steps * schedule.dt)
        return min(steps, math.floor(longest / every + TOLERANCE) + 1)

    def most_steps(self, schedule: Schedule, steps: int) -> int:
        """At most `steps`, so many that the readings of a call fit into their buffer."""
        rows = {name: _row_bytes(self.instruments[name], self.programs) for name in self.watched}

        def wanted() -> int:
            return sum(self._room(name, schedule, steps) * size for name, size in rows.items())

        while steps > 1 and wanted() > LARGEST_BUFFER:
            steps = (steps + 1) // 2
        return steps

    def until(self, plan: Plan, frame: int, substeps: int, steps: int) -> Any:
        """The argument `until` of `advance`: the number of the frame's end, and when to read and to gather."""
        until = jax.device_put(np.asarray(frame + 1, np.int32))  # no program converts it
        if not self.in_the_loop:
            return until
        schedule, dtype = plan.schedule_of(frame), self.programs.dtype
        begin = plan.time_after(frame)
        when: dict[str, Any] = {}
        for name in self.watched:
            every = self.instruments[name].source.interval
            if schedule.dt is not None:
                ends = _ends(plan, frame, substeps, steps)
                start = begin + substeps * schedule.dt
                # An array already: jax takes a list number by number.
                when[name] = jnp.asarray(np.asarray(due_steps(ends.tolist(), start, every)))
            else:
                first = (math.ceil(begin / every - TOLERANCE) * every - begin) if every else 0.0
                when[name] = jnp.asarray(first, dtype)
        return until, when, self.statistics.starts(plan, frame)

    def times(self, plan: Plan, frame: int, substeps: int, steps: int, step: int, name: str, found: Readings):
        """Times and steps of the readings of a call, on the host; `step`: steps before it."""
        schedule = plan.schedule_of(frame)
        if schedule.dt is None:
            elapsed = whole(found.elapsed).astype(np.float64) + whole(found.elapsed_low).astype(np.float64)
            count = int(whole(found.count))
            return plan.time_after(frame) + elapsed[:count], whole(found.step)[:count]
        ends = _ends(plan, frame, substeps, steps)
        every = self.instruments[name].source.interval
        due = np.asarray(due_steps(ends.tolist(), plan.time_after(frame) + substeps * schedule.dt, every))
        return ends[due], step + 1 + np.flatnonzero(due)


def _ends(plan: Plan, frame: int, substeps: int, steps: int) -> np.ndarray:
    """Times at which steps of a fixed length end, the first of which is number `substeps` of its frame."""
    schedule, begin = plan.schedule_of(frame), plan.time_after(frame)
    numbers = np.arange(substeps + 1, substeps + steps + 1)
    return np.where(numbers == schedule.steps, plan.time_after(frame + 1), begin + numbers * schedule.dt)


def sample_bytes(programs: CompiledRun, plan: Plan) -> dict[str, tuple[int, int]]:
    """Bytes of the samples of each instrument that a plan is yet to take, and of all of them, over all members.

    Of steps whose length the Courant number limits no more are counted than there are frames.
    """
    found = {}
    for one in programs.config.outputs:
        row = _row_bytes(RunInstrument.of(one, programs), programs) // programs.local_members * (programs.members or 1)
        counts = [_count(one, plan, begin) for begin in (plan.origin.frame, 0)]
        found[one.name] = (row * counts[0], row * counts[1])
    return found


def _count(source: InstrumentConfig, plan: Plan, begin: int) -> int:
    """The number of samples from the end of frame `begin` to that of the run."""
    frames = plan.total - begin
    if source.at_frames:
        return frames + 1
    if source.interval:
        return math.floor((plan.time_after(plan.total) - plan.time_after(begin)) / source.interval + TOLERANCE) + 1
    if plan.schedule.dt is None:
        return frames + 1
    last = plan.tail.steps if plan.tail is not None else plan.schedule.steps
    return max(0, frames - 1) * plan.schedule.steps + last + 1


def _row_bytes(instrument: RunInstrument, programs: CompiledRun) -> int:
    """Bytes of one reading of all members of a device, at most."""
    grid = programs.domain.grid
    values = sum(math.prod(shape) for shape in instrument.shapes(grid).values())
    return values * programs.dtype.itemsize * programs.local_members
