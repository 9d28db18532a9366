"""The host loop of one run: around its compiled programs, from the first state to the last frame."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time as wall
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.config.folders import clear_run_folder
from simjax.driver.loop.advice import advice_for, refuse_objective
from simjax.driver.loop.call_length import CallLength
from simjax.driver.loop.goodput import CHECKPOINT, SIMULATE, WAITING, GoodputLog
from simjax.driver.loop.judged_triggers import At, Triggers
from simjax.driver.loop.profile import profile_run
from simjax.driver.loop.storage_error import storage_error
from simjax.driver.loop.time_limits import is_signal, no_step
from simjax.driver.loop.verification import MOST_REPEATS, BitsDiffer, Verification, remove_after
from simjax.driver.output.frame_files import require_space
from simjax.driver.output.instrument_output import at_frame, of_call
from simjax.driver.output.provenance import COMPLETED, Run, last_outcome, new_run, restore
from simjax.driver.output.run_folder import RunFolder, logged
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.result import Result
from simjax.driver.start import exchange_tuning
from simjax.driver.start.build import Origin, plan_frames
from simjax.driver.start.environment import StopSignals
from simjax.errors import NumericalError, ResourceError, Stopped
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import AUTO, Config
from simjax.schema.instruments import FRAME
from simjax.status import HOPELESS, OK, reasons
from simjax.stepping.clock import at_frame_start, elapsed_of
from simjax.stepping.moments import Sums
from simjax.stepping.simulate import Schedule

RETRIES = 3


class SingleRun:
    """One execution of the host loop.

    While the device computes a piece, the host fetches and writes what the piece before it left; the state is
    donated from call to call.
    """

    def __init__(self, config: Config, programs: CompiledRun, signals: StopSignals, progress: bool, launched: float):
        self.config, self.programs, self.signals, self.progress = config, programs, signals, progress
        self.group = processes()
        self.started = launched
        self.repeats, self.repeated_from = 0, -1  # of steps with two results, and from which one
        self.chosen_before: int | None = None  # steps between exchanges, by an earlier run that goes on
        self.stepped = False  # whether any step was taken in this part
        self.stopped_by: str | None = None
        self.of_group = False  # whether others have gone before in the same part
        self._start_over(launched)

    def _start_over(self, since: float) -> None:
        """Set everything as before the first step; since: a time of the host."""
        config, programs = self.config, self.programs
        self.notes: list[str] = list(programs.notes)
        self.state: Any = None
        self.clock: Any = None
        self.sums: dict[str, Sums] = {}  # of statistics in time
        self.goodput = GoodputLog(since, kept=self.group.first)
        self.triggers = Triggers(config, programs)
        halt = self.triggers.halt() if self.triggers.after_steps else None
        self.instruments = CompiledInstruments(programs, halt)
        every = None if config.verify is None else config.verify.every
        self.verification = Verification(every, programs, self.instruments, halt)
        self.pace = CallLength(config, programs, self.goodput, self.instruments)
        self.halted: Any = None  # which conditions on quantities ended the last call
        self.step = 0  # steps at the end of the last frame
        self.substeps = 0  # fixed steps since then
        self.halvings = self.halvings_before = 0  # how often the step was halved after a failure

    def prepare(self) -> None:
        """Everything that can be refused before a file is written: initial fields, the time step."""
        refuse_objective(self.programs)
        self.triggers.check()
        self.state, self.clock = self.programs.start()
        self.programs.refuse_start(self.state)
        self.notes = [*self.programs.notes, *self.programs.told_start()]
        if self.config.inverse is not None:
            self.notes.append("This is the run as configured; simjax.Search(simulation).run() searches its unknowns.")
        self.sums = self.instruments.statistics.start()
        self.pace.measure_step(self.programs.checked_step(self.state))
        self.plan = plan_frames(self.config, self.pace.steps_per_frame)
        # Compiled now, and used when it is called: what cannot be a kernel, be blocked or fit is refused here.
        with logged(self.notes.append):
            self.notes += self.pace.require_memory(self.plan, 0, self.state, self.clock, self.sums)

    def begin(self, folder: Path) -> Result:
        """A new run in a folder of its own."""
        with self.group.together():
            if self.config.output.overwrite and self.group.first:
                clear_run_folder(folder)
        self._open_record(folder, Run(*self.group.decide(lambda: dataclasses.astuple(new_run(folder)))), None)
        return self._carry_out(first_frame=0)

    def go_on(self, folder: Path) -> Result:
        """The run in `folder`, from its last good checkpoint to time.end."""
        parameters, statistics = self.programs.parameters, self.instruments.statistics
        run, restored, notes = restore(
            folder,
            self.config,
            parameters,
            lambda meta: self._checkpointed(self.programs.template(meta.get("room", {})), statistics.template()),
        )
        self.notes += notes
        self.state, self.clock, *sums = restored.tree
        self.sums = sums[0] if sums else {}
        self.halvings = self.halvings_before = restored.meta["halvings"]
        self.chosen_before = exchange_tuning.chosen_before(self.config, restored.meta)
        if self.chosen_before is not None:
            self.programs.steps_per_exchange = self.chosen_before
        self.pace.measure_step(self.programs.stable_dt(self.state))
        frame = self._plan_from(restored.meta)
        completed = self.group.decide(lambda: (last_outcome(folder) or "").startswith(COMPLETED))
        self.triggers.check()
        ended = self.triggers.restore(restored.meta.get("triggers", {}))
        if completed and (ended or frame >= self.plan.total):
            reached = f"already {ended}" if ended else f"already reached time.end={self.config.time.end:g}"
            message = f"{folder} has {reached}; nothing to do."
            if self.progress:
                print(message)
            return Result(folder, 0, message)
        with self.group.together():
            require_space(folder, self.config, self.programs, self.plan, resumed=True)
            with logged(self.notes.append):
                self.notes += self.pace.require_memory(self.plan, frame, self.state, self.clock, self.sums)
        self._open_record(folder, run, restored.step, restored.meta)
        self.verification.verified = restored.step
        self._place_clock()
        return self._carry_out(first_frame=frame, resumed=True)

    def _open_record(self, folder: Path, run: Run, step: int | None, counted: dict[str, Any] | None = None) -> None:
        with self.group.together():
            self.record = RunFolder(
                folder,
                self.config,
                self.programs,
                self.plan,
                self.notes,
                self.progress,
                run=run,
                goodput=self.goodput,
                keep_until_step=step,
                counted=counted,
                instruments=self.instruments,
            )

    def _plan_from(self, meta: dict[str, Any]) -> int:
        """Go on with the output times of the checkpoint, or count new ones from it; the frames that are complete."""
        frame = int(np.min(whole(self.clock.frame)))
        origin = Origin(meta["origin_time"], meta["origin_frame"])
        self.plan = plan_frames(self.config, self.pace.steps_per_frame, self.halvings, origin)
        interval = self.plan.schedule.interval
        begun = origin.time + (frame - origin.frame) * interval
        if interval == meta["interval"] and abs(begun - meta["frame_time"]) <= 1e-9 * interval:
            return frame
        # Another cadence, or an end between two output times: the state's own time is the new origin.
        self.clock = at_frame_start(self.clock)
        origin = Origin(meta["time"], frame)
        self.plan = plan_frames(self.config, self.pace.steps_per_frame, self.halvings, origin)
        self.notes.append(f"Output times are counted from t={origin.time:.6g} on.")
        return frame

    def _carry_out(self, first_frame: int, resumed: bool = False) -> Result:
        try:
            with logged(self.record.tell):
                self.goodput.begin(SIMULATE)
                self._choose_exchanges(first_frame)
                if not resumed:
                    self._look(self.plan.time_after(0), self.step, first=True)
                    if self.verification:  # there is something to go back to
                        self._checkpoint()
                    if self.config.storage is not None:
                        given = self.programs, self.plan.schedule, self.state, self.clock
                        self.record.tell(storage_error(*given))
                reason = self.stopped_by = self._loop(first_frame)
                if reason and not self.stepped and not self.of_group and not is_signal(reason):
                    raise no_step(reason, wall.monotonic() - self.started)
            self.record.settle_all(self.pace)
            self._checkpoint()
            self._write_open_sets()
            self.record.take_stops(self.triggers)
            elapsed = wall.monotonic() - self.started
            if reason:
                code, message = Stopped.exit_code, self.record.stop(reason, self.pace, elapsed)
            else:
                code, message = 0, self.record.finish(self.pace, elapsed, self.triggers.ended)
            told = message, self.record.statuses, self.record.failed_checks, self.programs.start_changes
            return Result(self.record.folder, code, *told, _last_frame=self._last_frame())
        except BitsDiffer as error:
            return self._go_back(error)
        except BaseException:
            self.record.abandon()
            raise

    def _go_back(self, error: BitsDiffer) -> Result:
        """Go on from the last checkpoint before which all that was computed twice agreed; give up after a few times."""
        folder, verified = self.record.folder, self.verification.verified
        self.repeats = self.repeats + 1 if error.step <= self.repeated_from else 1
        self.repeated_from = max(self.repeated_from, error.step)
        gives_up, kept = self.repeats > MOST_REPEATS, folder / "checkpoints"
        message = f"{error}{' again' if self.repeats > 1 else ''}: the machine computes something wrong"
        if gives_up:
            message = (
                f"{message}; the checkpoint of step {verified} or before is kept in {kept}: resume on other devices."
            )
            self.record.fail(message, self.pace, wall.monotonic() - self.started)
        else:
            self.record.tell(f"{message}; going back to the last checkpoint up to step {verified}.")
        self.record.checkpoints.wait()
        self.record.abandon()
        self.group.decide(lambda: remove_after(kept, verified))
        if gives_up:
            raise ResourceError(message)
        limit = self.pace.limit
        self._start_over(wall.monotonic())
        self.pace.limit = limit
        return self.go_on(folder)

    def _last_frame(self) -> Callable | None:
        """Return a maker of the last frame's dataset, if no fields are written: the state stays on the devices."""
        if self.config.output.fields != () or self.group.count > 1:
            return None
        time = self.plan.time_after(int(np.max(whole(self.clock.frame))))
        return functools.partial(self.record.in_memory, self.state, self.clock, time, self.step)

    def _choose_exchanges(self, first_frame: int) -> None:
        """Set how many steps are taken between two exchanges, where that is measured."""
        if self.config.steps_per_exchange != AUTO or first_frame >= self.plan.total:
            return
        schedule = self.plan.schedule_of(first_frame)
        chosen = exchange_tuning.choose(self.programs, schedule, self.state, self.clock, self.chosen_before)
        self.programs.steps_per_exchange, said = self.group.gather(chosen)[0]
        with self.group.together():
            notes = self.pace.require_memory(self.plan, first_frame, self.state, self.clock, self.sums, measured=True)
        for text in (said, *notes):
            self.record.tell(text)

    def _loop(self, first_frame: int) -> str | None:
        """Frame after frame; the reason why it stopped early, if it did."""
        if self.triggers.ended:  # it was killed after its last checkpoint
            return None
        frame = first_frame
        while True:
            while frame < self.plan.total:
                reason = self._advance_frame(frame)
                if reason:
                    return reason
                if self.triggers.ended and not self._is_complete(frame):
                    self._look(self._now()[1], self.step + self.substeps)
                    return None
                frame += 1
                self._end_windows(frame)
                self._look(self.plan.time_after(frame), self.step)
                if self.config.profile and frame == first_frame + 1:
                    given = self.plan.schedule, self.state, self.clock, frame + 1, self.record.folder
                    self.record.note(profile_run(self.programs, *given))
                if self.triggers.ended:
                    return None
                if np.all(self.record.statuses != OK):
                    break
                if frame < self.plan.total and self.group.gather(self.record.checkpoint_is_due(frame))[0]:
                    if not self._is_good():
                        break
                    self._checkpoint()
            if self._is_good():
                return None
            self._take_back()
            frame = int(np.max(whole(self.clock.frame)))

    def _reason_to_stop(self) -> str | None:
        """A signal to one of the processes, or the wall-clock limit as the first of them measures it."""
        own = self.signals.received or self.record.time_is_up(wall.monotonic() - self.started)
        with self.goodput.during(WAITING) if self.group.count > 1 else contextlib.nullcontext():
            return self.group.first_reason(own)

    def _advance_frame(self, frame: int) -> str | None:
        """Advance by a frame; the reason why it was cut short, if it was."""
        schedule = self.plan.schedule_of(frame)
        if schedule.dt is not None and not self.triggers.after_steps:
            while self.substeps < schedule.steps:
                for steps in self.pace.pieces(schedule, self.substeps):
                    if reason := self._reason_to_stop():
                        return reason
                    if not self._call(schedule, steps, frame):  # there is more room now, and pieces may be others
                        break
                    self.substeps += steps
            self.step += schedule.steps
            self.substeps = 0
            return None
        while True:
            if reason := self._reason_to_stop():
                return reason
            fixed = schedule.dt is not None
            steps = next(self.pace.pieces(schedule)) if fixed else self.pace.steps_of_call(schedule)
            self._call(schedule, steps, frame)
            clock = jax.tree.map(whole, self.clock)
            if fixed:
                self._place_clock()
            else:
                self.record.watch_step(clock, schedule)
            self._judge_step()
            if np.all((clock.frame > frame) | (clock.status != OK)) or self.triggers.ended:
                self.step = int(np.max(clock.step)) - self.substeps
                return None

    def _call(self, schedule: Schedule, steps: int, frame: int) -> bool:
        """Call the device; tell whether the steps were dispatched, rather than found to need more room."""
        program = self.instruments.advance(schedule, steps)
        until = self.instruments.until(self.plan, frame, self.substeps, steps)
        given = self.programs.values, self.programs.files, self.state, self.clock, until
        kept = self.verification.kept(self.state, self.clock, self.sums)
        with self.pace.timed(program):
            if self.instruments.in_the_loop:
                results = program(*given, self.sums)
                state, clock, found, sums, self.halted = results
            else:
                results = program(*given)
                (state, clock), found, sums = results, {}, self.sums
        if self.programs.regrows and self._regrown(whole(clock.status)):
            return False
        if kept is not None:
            self.verification.compare(schedule, steps, until, kept, results)
            self.record.checkpoints.trusted = self.verification.verified
        self.state, self.clock, self.sums = state, clock, sums
        self.stepped = True
        self.pace.dispatched(steps)
        if found:
            before = self.step + self.substeps
            samples = of_call(self.instruments, self.plan, frame, self.substeps, steps, before, found)
            self.record.instruments.add(samples)
        return True

    def _regrown(self, status) -> bool:
        """Make more room where the status asks for it, and tell whether the call is to be made again."""
        bits = self.programs.missing_room(status)
        if not bits:
            return False
        try:
            self.state, told = self.programs.regrow(bits, self.state)
        except NumericalError as error:
            self._checkpoint()
            self.record.fail(str(error), self.pace, wall.monotonic() - self.started)
            raise
        self.record.tell(told)
        return True

    def _look(self, time: float, step: int, *, first: bool = False) -> None:
        """Write a frame of the state, and judge conditions on its quantities."""
        at = jax.device_put(np.asarray(time, self.programs.dtype))
        while True:
            program = self.programs.observe()
            with self.pace.timed(program):
                *observed, status = program(self.programs.values, self.programs.files, self.state, self.clock, at)
            if not (self.programs.regrows and self._regrown(whole(status))):
                break
        names, found = self.instruments.at_frame(first=first), {}
        if both := tuple(dict.fromkeys((*names, *self.triggers.instruments(FRAME)))):
            program = self.instruments.measure(both)
            with self.pace.timed(program):
                count, found = program(self.programs.values, self.programs.files, self.state, self.clock, at)
            self.record.instruments.add(at_frame((count, {name: found[name] for name in names}), time, step))
        self.record.add(time, step, observed, self.clock, self.pace)
        if self.triggers and np.any(good := np.atleast_1d(whole(self.clock.status)) == OK):
            now = At(time, np.atleast_1d(whole(self.clock.step)), good)
            judged = self.triggers.judge(now, {**observed[1], **self.triggers.readings(found)}, first=first)
            self._occur(judged.events, time, step)
            for sentence in judged.met:
                self.record.tell(sentence)

    def _judge_step(self) -> None:
        """Judge conditions at which the last call ended."""
        if self.halted is None or not np.any(held := whole(self.halted)):
            return
        time, step = self._now()[1], int(np.max(whole(self.clock.step)))

        def quantities():
            at = jax.device_put(np.asarray(time, self.programs.dtype))
            now = self.programs.values, self.programs.files, self.state, self.clock, at
            return {**self.programs.observe()(*now)[1], **self.triggers.read_after_steps(self.instruments.measure, now)}

        self._occur(self.triggers.judge_step(time, step, held, quantities).events, time, step)

    def _occur(self, events: Mapping[str, str], time: float, step: int) -> None:
        """Write a frame for each event, and a line to the log."""
        self.record.events.write(tuple(events), time, step, self.state, self.clock)
        for sentence in events.values():
            self.record.note(sentence)

    def _is_complete(self, frame: int) -> bool:
        """Tell whether the steps of a frame are done."""
        return bool(np.all(whole(self.clock.frame) > frame))

    def _end_windows(self, frames: int) -> None:
        """Write the statistics in time whose windows end with a frame, unless the run is taken back before it."""
        statistics = self.instruments.statistics
        if statistics.has_windows and np.any(whole(self.clock.status) == OK):
            self.sums = self.record.statistics.end_windows(self.sums, self.plan.time_after(frames), self.step)

    def _write_open_sets(self) -> None:
        """Write the statistics in time so far, after the checkpoint that has their sums."""
        if self.sums:
            self.record.statistics.write_open(self.sums, self._now()[1], int(np.max(whole(self.clock.step))))

    def _checkpointed(self, state_and_clock, sums) -> tuple[Any, ...]:
        """The tree that a checkpoint holds."""
        return (*state_and_clock, sums) if self.instruments.statistics else state_and_clock

    def _now(self) -> tuple[float, float]:
        """The time at which the frame began, and the present time."""
        clock = jax.tree.map(whole, self.clock)
        begun = self.plan.time_after(int(np.min(clock.frame)))
        dt, elapsed = self.plan.schedule.dt, float(np.min(elapsed_of(clock)))
        return begun, begun + (elapsed if dt is None else self.substeps * dt)

    def _checkpoint(self) -> None:
        begun, now = self._now()
        meta = {
            "time": now,
            "frame_time": begun,
            "origin_time": self.plan.origin.time,
            "origin_frame": self.plan.origin.frame,
            "interval": self.plan.schedule.interval,
            "halvings": self.halvings,
            "room": self.programs.room(),
            **({"triggers": self.triggers.told()} if self.triggers else {}),
            "steps_per_exchange": exchange_tuning.kept(self.config, self.programs.steps_per_exchange),
        }
        with self.goodput.during(CHECKPOINT, step=int(np.max(whole(self.clock.step)))):
            kept = self.programs.copy(*self._checkpointed((self.state, self.clock), self.sums))
            self.record.checkpoint(kept, meta, self.pace)

    def _is_good(self) -> bool:
        """Tell whether any member is well after all that was dispatched."""
        self.record.settle_all(self.pace)
        return bool(np.any(whole(self.clock.status) == OK))

    def _take_back(self) -> None:
        """After a failure: go on from the last good state with half the step, a few times; then give up.

        `advance` has returned the last good state and its clock, and left them alone since.
        """
        status = int(np.atleast_1d(whole(self.clock.status))[0])
        self.clock = eqx.tree_at(lambda c: c.status, self.clock, jax.tree.map(jnp.zeros_like, self.clock.status))
        self._place_clock()
        hopeless = status & HOPELESS or self.halvings >= self.halvings_before + RETRIES
        if self.programs.members is not None or hopeless:
            self._give_up(status)
        self.halvings += 1
        # A fixed step counts the frame's time in steps: twice as many half as long.
        self.clock = eqx.tree_at(lambda c: c.substep, self.clock, 2 * self.clock.substep)
        self._place_clock()
        self.plan = plan_frames(self.config, self.pace.steps_per_frame, self.halvings, self.plan.origin)
        self.record.tell(
            f"{reasons(status)} after t={self.record.last_time:g}: taken back to step {self.step + self.substeps}, "
            f"going on with the time step halved ({self.halvings} times in all)."
        )

    def _place_clock(self) -> None:
        """The host's step counters from the clock."""
        self.substeps = int(np.max(whole(self.clock.substep)))
        self.step = int(np.max(whole(self.clock.step))) - self.substeps
        self.record.statuses = np.atleast_1d(whole(self.clock.status))

    def _give_up(self, status: int) -> NoReturn:
        """Save the last good state; name the field, the place and the step in the error."""
        self._checkpoint()
        self._write_open_sets()
        frame = int(np.min(whole(self.clock.frame)))
        schedule = self.plan.schedule_of(frame)
        fault = self.programs.first_fault(self.state, self.clock, schedule, self.pace.longest_call)
        kept, advice = self.record.folder / "checkpoints", advice_for(self.programs, status)
        message = (
            f"{reasons(status)}: {fault.what}, after t={self.record.last_time:g}; the last good state (step "
            f"{self.step + self.substeps}) is kept in {kept}. {fault.before}{' ' * bool(fault.before)}{advice}"
        )
        self.record.statuses = np.full(self.programs.members or 1, status)
        self.record.fail(message, self.pace, wall.monotonic() - self.started)
        raise NumericalError(message)
