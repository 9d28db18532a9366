"""An ensemble in groups of members, one after another, each from start to end with the programs of the first."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import tempfile
import time as wall
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from simjax.config.folders import GROUPS_NAME, clear_run_folder, resume_differences
from simjax.driver.loop.grouping import Group, filled_group, groups_of, of_group, recorded_groups
from simjax.driver.loop.judged_triggers import said_of_times, stop_times
from simjax.driver.loop.single_run import SingleRun
from simjax.driver.loop.time_limits import is_signal, no_step
from simjax.driver.output.closing import judged, write_reports
from simjax.driver.output.frame_files import file_attributes, open_writer
from simjax.driver.output.instrument_output import InstrumentOutput
from simjax.driver.output.provenance import COMPLETED, Part, Run, new_run
from simjax.driver.output.told_troubles import said_of_run
from simjax.driver.programs.compile_cache import compilations
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.programs.programs_of_run import CompiledRun
from simjax.driver.result import Result
from simjax.driver.start.build import plan_frames
from simjax.driver.start.environment import StopSignals
from simjax.driver.start.taken_start import merged
from simjax.errors import CheckpointError, ConfigurationError, NumericalError, Stopped
from simjax.io.checkpoint import list_checkpoints
from simjax.io.files import open_in_run, write_text
from simjax.io.group_output import GroupFile, write_over_groups, write_samples_over_groups
from simjax.io.instrument_files import FOLDER
from simjax.io.replacing import GROUPS_FOLDER
from simjax.parallel import whole
from simjax.processes import processes
from simjax.report.scene import NOWHERE
from simjax.schema.config import Config
from simjax.schema.kinds import write
from simjax.status import OK, reasons


@dataclasses.dataclass(frozen=True)
class Finished:
    """The outcome of a group: status bits, number of the last good frame, and time at which a condition of `stop` was
    met, of each of its own members. stop: the section as it was then, with which and `end` the group is finished.
    start_changes: what the model changed of the start."""

    name: str
    places: tuple[int, ...]
    halvings: int
    end: float
    statuses: tuple[int, ...]
    frames: tuple[int, ...]
    stop_times: tuple[float, ...]
    stop: Any
    start_changes: dict[str, float] = dataclasses.field(default_factory=dict)


class GroupedRun:
    """One execution of an ensemble in groups; the run of each lies in a folder of its own below that of the whole.

    What is known of finished groups is in `groups.json`: they are not computed again when the run goes on.
    """

    def __init__(self, config: Config, programs: CompiledRun, signals: StopSignals, progress: bool, launched: float):
        self.config, self.programs, self.signals, self.progress = config, programs, signals, progress
        self.processes = processes()
        self.started, self.length = launched, programs.config.ensemble.size
        self.groups = list(groups_of(config, self.length))
        self.limit: float | None = None
        self.stepped = False  # whether a group has taken a step in this part
        self.finished: list[Finished] = []
        self.compile_seconds = 0.0
        self.log: TextIO | None = None  # of process 0

    def prepare(self) -> None:
        """Everything that can be refused before a file is written, for the members of all groups."""
        self.programs.refuse_sides(self.config)
        limits = []
        for group in self.groups:
            run = self._run_of(group, None)
            run.prepare()
            assert run.pace.limit is not None
            limits.append(run.pace.limit)
        # Calls of all groups are of one length, so that one program serves them.
        self.limit = min(limits)

    def begin(self, folder: Path) -> Result:
        """A new run in a folder of its own."""
        with self._alone() as first:
            if first and self.config.output.overwrite:
                clear_run_folder(folder)
        run = Run(*self.processes.decide(lambda: dataclasses.astuple(new_run(folder))))
        self._open(folder, run, None)
        self._write_record()
        return self._carry_out()

    def go_on(self, folder: Path) -> Result:
        """The run in `folder`, from the group that was not finished."""
        own, finished = self.processes.decide(lambda: self._earlier(folder))
        self.finished = [Finished(**{k: _frozen(v) for k, v in one.items()}) for one in finished]
        self._open(folder, Run(*own), 0)
        return self._carry_out()

    def _earlier(self, folder: Path) -> tuple[tuple[str, str], list[dict[str, Any]]]:
        """Id and start of the run in a folder, and its finished groups; refuses one that is another simulation."""
        import yaml

        from simjax.config.folders import read_provenance

        recorded, own = recorded_groups(folder), read_provenance(folder)
        assert recorded is not None
        try:
            text = (folder / ".hydra" / "config.yaml").read_text(encoding="utf-8")
            refused, _ = resume_differences(yaml.safe_load(text), self.config.write())
            known = own["run_id"], own["started"]
        except (OSError, KeyError, yaml.YAMLError) as error:
            raise CheckpointError(f"resume={folder}: what the run was cannot be read ({error}).") from None
        if refused:
            raise ConfigurationError(
                f"resume={folder} is another simulation: {'; '.join(refused)}. Start a new run instead."
            )
        return known, recorded["finished"]

    def _open(self, folder: Path, run: Run, from_step: int | None) -> None:
        self.folder, self.run = folder, run
        self.part = Part(folder, self.config, run, from_step=from_step)
        with self._alone() as first:
            if first:
                self.part.begin()
                self.log = open_in_run(folder / "run.log")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Context manager for work of process 0 alone, whose error ends all; yields whether this is process 0."""
        with self.processes.together():
            yield self.processes.first

    # ------------------------------------------------------------------ group after group

    def _carry_out(self) -> Result:
        try:
            stopped = self._all(self.groups) or (self.config.ensemble.retry and self._all(self._second_attempts()))
            return self._end(stopped or None)
        finally:
            if self.log is not None:
                self.log.close()

    def _all(self, groups: Sequence[Group]) -> str | None:
        """Run the groups that are not finished; the reason why it stopped early, if it did."""
        for group in groups:
            known = {one.name: (one.end, one.stop) for one in self.finished}
            if known.get(group.name) == (self.config.time.end, write(self.config.stop)):
                continue
            reason = self._one(group)
            if reason is not None:
                return reason
        return None

    def _one(self, group: Group) -> str | None:
        """Run a group of members to its end and record the outcome; the reason why it stopped early, if it did."""
        folder = self.folder / GROUPS_FOLDER / group.name
        run = self._run_of(group, self.limit)
        try:
            if self.processes.decide(lambda: bool(list_checkpoints(folder / "checkpoints"))):
                result = run.go_on(folder)
            else:  # it had not got far
                run.prepare()
                with self._alone() as first:
                    if first:
                        folder.mkdir(parents=True, exist_ok=True)
                        clear_run_folder(folder)
                result = run.begin(folder)
            statuses = np.atleast_1d(whole(run.clock.status))
        except NumericalError:  # all of its members failed: the others go on
            result, statuses = None, run.record.statuses
        self.programs = run.programs
        self.limit = self.limit if group.halvings else run.pace.limit
        self.compile_seconds += run.pace.compile_seconds
        self.stepped = self.stepped or run.stepped
        if result is not None and result.exit_code == Stopped.exit_code:
            if run.stopped_by and not self.stepped and not is_signal(run.stopped_by):
                raise no_step(run.stopped_by, wall.monotonic() - self.started)
            return result.message
        frames = np.atleast_1d(whole(run.clock.frame))[: group.own]
        own = tuple(statuses[: group.own].tolist())
        done = Finished(
            group.name,
            group.places[: group.own],
            group.halvings,
            self.config.time.end,
            own,
            tuple(frames.tolist()),
            tuple(run.triggers.times[: group.own].tolist()),
            write(self.config.stop),
            run.programs.start_changes,
        )
        self.finished = [one for one in self.finished if one.name != group.name] + [done]
        self._write_record()
        self._tell_of(group, done, run)
        self._write_files(complete=False, ended=False)
        return None

    def _run_of(self, group: Group, limit: float | None) -> SingleRun:
        config = of_group(self.config, group)
        programs = self.programs.of_members(config)
        programs.counted_from = np.asarray(group.counted_from, np.int32)
        run = SingleRun(config, programs, self.signals, self.progress, self.started)
        run.pace.limit, run.of_group = None if group.halvings else limit, True
        run.pace.compiled_since = wall.monotonic()
        return run

    def _second_attempts(self) -> list[Group]:
        """Groups of the members that failed, with half the step; they count from where the first attempt ended."""
        first = [one for one in self.finished if not one.halvings]
        failed = [
            (place, frame + 1)
            for one in first
            for place, status, frame in zip(one.places, one.statuses, one.frames, strict=True)
            if status != OK
        ]
        groups = []
        for begin in range(0, len(failed), self.length):
            places, counted = zip(*failed[begin : begin + self.length], strict=True)
            groups.append(filled_group(f"retry{len(groups):04d}", places, self.length, 1, counted))
        return groups

    def _tell_of(self, group: Group, done: Finished, run: Any) -> None:
        """Tell how a group went: of members that failed what varies, why, and at which step."""
        lost = [(row, status) for row, status in enumerate(done.statuses) if status != OK]
        step = f", with the time step halved {group.halvings} time" if group.halvings else ""
        self.tell(f"group {group.name}: {group.own} members{step}, {len(lost)} of them failed")
        schedule = run.plan.schedule_of(min((done.frames[row] for row, _ in lost), default=0))
        steps = run.programs.failing_steps(run.state, run.clock, schedule, run.pace.longest_call, dict(lost))
        for row, status in lost:
            where = f"at step {steps[row]}, " if row in steps else ""
            self.tell(
                f"{run.programs.member_named(row)} failed {where}after frame {done.frames[row]}: {reasons(status)}"
            )

    def tell(self, text: str) -> None:
        """A line in the log of the whole run, which process 0 writes."""
        if self.log is None:
            return
        self.log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")
        self.log.flush()

    # ------------------------------------------------------------------ files of the whole

    def _write_record(self) -> None:
        record = {"group": self.length, "finished": [dataclasses.asdict(one) for one in self.finished]}
        with self._alone() as first:
            if first:
                write_text(self.folder / GROUPS_NAME, json.dumps(record) + "\n")

    def _statuses(self) -> np.ndarray:
        """`(members,)` status bits of the last attempt; 0 for members that have not run yet."""
        statuses = np.zeros(self.config.ensemble.size, np.int32)
        for one in self.finished:  # second attempts come last
            statuses[list(one.places)] = one.statuses
        return statuses

    def _stop_times(self) -> np.ndarray:
        """`(members,)` times at which a condition of `stop` was met, in the last attempt."""
        times = np.full(self.config.ensemble.size, np.nan)
        for one in self.finished:
            times[list(one.places)] = one.stop_times
        return times

    def _write_files(self, complete: bool, ended: bool) -> CompiledRun:
        """Write the files of the whole over those of the finished groups; the programs of all members.

        ended: with the samples of instruments, which are copied once: at the end, or where the run stops early.
        """
        programs = self.programs.of_members(self.config)
        programs.start_changes = merged(one.start_changes for one in self.finished)
        with self._alone() as first:
            if first:
                self._write_over_groups(programs, complete, ended)
        return programs

    def _write_over_groups(self, programs: CompiledRun, complete: bool, ended: bool) -> None:
        with tempfile.TemporaryDirectory() as empty:  # it writes no frames of its own
            writer = open_writer(Path(empty), programs, self.config, plan_frames(self.config, 1), self.run.id)
        holds = {place: one.name for one in self.finished for place in one.places}
        files = []
        for one in self.finished:
            places = tuple(place if holds[place] == one.name else -1 for place in one.places)
            files.append(GroupFile(f"{GROUPS_FOLDER}/{one.name}/{writer.master_name}", places))
        numbers: dict[str, tuple[np.ndarray, str, str]] = {}
        if self.config.ensemble.retry:
            halvings = np.zeros(self.config.ensemble.size, np.int32)
            for one in self.finished:
                halvings[list(one.places)] = one.halvings
            about = "times that the time step was halved, in the attempt that is shown"
            numbers["step_halvings"] = halvings, "1", about
        if self.config.stop is not None:
            numbers |= stop_times(self._stop_times(), self.config.schema.time_units)
        layout = writer.whole_layout(self._statuses(), numbers)
        if ended and self.config.outputs:
            self._write_samples(programs, files, complete)
        write_over_groups(writer, self.folder, layout, files, content=self.programs.content, complete=complete)

    def _write_samples(self, programs: CompiledRun, files: Sequence[GroupFile], complete: bool) -> None:
        """Copy the samples of instruments from the groups."""
        with tempfile.TemporaryDirectory() as empty:
            attributes = file_attributes(self.config, self.run.id)
            writers = InstrumentOutput(Path(empty), CompiledInstruments(programs), attributes, None).writers
        for name, writer in writers.items():
            own = [
                dataclasses.replace(one, name=f"{Path(one.name).parent}/{FOLDER}/{name}/{writer.master_name}")
                for one in files
            ]
            write_samples_over_groups(writer, self.folder, own, complete=complete)

    def _end(self, stopped: str | None) -> Result:
        """Write the files of the whole and the report; NumericalError where no member went well."""
        elapsed, statuses = wall.monotonic() - self.started, self._statuses()
        if not self.finished:
            assert stopped is not None
            self._end_part(stopped)
            return Result(self.folder, Stopped.exit_code, stopped)
        programs = self._write_files(complete=stopped is None, ended=True)
        lost = int(np.sum(statuses != OK))
        if stopped is None and lost == len(statuses):
            why, log = reasons(int(statuses[0])), self.folder / "run.log"
            message = f"all {lost} members failed, the first because {why}; {log} says why of each."
            self._end_part(f"failed: {message}")
            raise NumericalError(message)
        outcome = f"{COMPLETED}, with {lost} of {len(statuses)} members frozen on the way" if lost else COMPLETED
        outcome = stopped or outcome
        draws = self.config.output.report or self.config.output.animation
        scene, failed = programs.scene() if draws else NOWHERE, ()
        with self._alone() as first:
            if first:
                failed = write_reports(
                    self.folder,
                    self.config,
                    programs,
                    scene,
                    statuses,
                    self.tell,
                    wall_seconds=elapsed,
                    outcome=outcome,
                    compile_seconds=self.compile_seconds,
                    run_id=self.run.id,
                    started=self.part.started,
                    notes=[
                        f"{len(self.groups)} groups of {self.length} members, one after another.",
                        *said_of_times(self._stop_times(), programs.member_named),
                        *said_of_run(self.config.troubles, self.folder, programs.member_named),
                    ],
                    resume_command=f"python -m simjax.run resume={shlex.quote(str(self.folder))}",
                )
        failed = tuple(self.processes.gather(failed)[0])
        message = outcome if stopped else f"{outcome} in {elapsed:.1f} s ({self.compile_seconds:.1f} s compiling)"
        message = judged(message, failed)
        self.tell(compilations(self.started).sentence())
        self.tell(message)
        self._end_part(message, failed)
        return Result(
            self.folder,
            Stopped.exit_code if stopped else 0,
            message,
            statuses,
            failed_checks=failed,
            start_changes=programs.start_changes,
        )

    def _end_part(self, outcome: str, failed: Sequence[str] = ()) -> None:
        with self._alone() as first:
            if first:
                self.part.end(outcome, compilations(self.started), failed)


def _frozen(value) -> Any:
    return tuple(value) if isinstance(value, list) else value
