"""Files that a run leaves and what it shows on the way: fields, diagnostics, checkpoints, log, report."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shlex
import time as wall
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.loop.call_length import CallLength
from simjax.driver.loop.displayed_numbers import DisplayedNumbers
from simjax.driver.loop.goodput import OUTPUT, GoodputLog, account
from simjax.driver.loop.judged_triggers import EventFiles, Triggers
from simjax.driver.loop.progress import Progress
from simjax.driver.loop.time_limits import limit_reached
from simjax.driver.output.closing import judged, write_reports
from simjax.driver.output.frame_files import dataset_of, file_attributes, on_host, open_writer
from simjax.driver.output.instrument_output import InstrumentOutput
from simjax.driver.output.provenance import Part, Run, description, require_frames
from simjax.driver.output.statistics_output import StatisticsOutput
from simjax.driver.output.told_troubles import said_of_run
from simjax.driver.programs.compile_cache import cache_notes, compilations
from simjax.driver.programs.compiled_run import CompiledRun, MemberStatistics
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.start.build import Plan
from simjax.driver.start.environment import version_notes
from simjax.io.checkpoint import Checkpoints
from simjax.io.files import open_in_run
from simjax.io.formats import output_formats
from simjax.io.frame_layout import NO_NUMBERS, written_times
from simjax.io.instrument_files import FOLDER
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.status import OK, reasons
from simjax.stepping.clock import Schedule
from simjax.stepping.faults import shrinkage, times_on_host
from simjax.stepping.simulate import Clock

if TYPE_CHECKING:
    import xarray


LOG = logging.getLogger("simjax")
# A Courant-limited step that has become so much shorter than the first one is told, and each time it does so again.
TOLD_SHRINKAGE = 1e-2


@dataclass(frozen=True)
class _Frame:
    """A dispatched frame: the device may still be computing it."""

    time: float
    step: int
    fields: dict[str, jax.Array]
    diagnostics: dict[str, jax.Array]
    statistics: MemberStatistics
    clock: Clock


@contextlib.contextmanager
def logged(tell: Callable[[str], None]) -> Iterator[None]:
    """Context manager that copies the library's log, such as choices of kernels, to the run's log."""
    handler = logging.Handler()
    handler.emit = lambda record: tell(record.getMessage())
    level = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.setLevel(level)
        LOG.removeHandler(handler)


class RunFolder:
    """The files and the display of one run; created before its first frame.

    keep_until_step, counted: of a run that goes on, the step of its checkpoint, and what that says of itself: how many
    frames and samples there were by then.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        programs: CompiledRun,
        plan: Plan,
        notes: list[str],
        progress: bool,
        *,
        run: Run,
        goodput: GoodputLog,
        keep_until_step: int | None,
        counted: Mapping[str, Any] | None = None,
        instruments: CompiledInstruments,
    ):
        self.folder, self.config, self.programs, self.plan, self.run = folder, config, programs, plan, run
        self.group, self.goodput = processes(), goodput
        self.notes = [*version_notes(), *config.notes, *notes, *cache_notes()]
        self.last_time = 0.0
        self._part = Part(folder, config, run, from_step=keep_until_step, notes=self.notes)
        self._description = description(run, config, programs.parameters)
        self._keep_until_step = keep_until_step
        self._pending: deque[_Frame] = deque()
        self._told: set[int] = set()
        self._shrinkage_to_tell = TOLD_SHRINKAGE
        self.statuses = np.zeros(programs.members or 1, np.int32)
        self.failed_checks: tuple[str, ...] = ()
        self._of_members = NO_NUMBERS
        self.latest: dict[str, np.ndarray] = {}
        self._last_checkpoint = wall.monotonic()
        self._checkpoint_seconds = 0.0
        self.steps = 0
        self._note_tail()
        self.checkpoints = Checkpoints(folder / "checkpoints", config.checkpoint.keep, config.checkpoint.keep_every)
        if counted is not None:
            programs.start_changes = counted.get("start_changes", {})
        self.writer = open_writer(folder, programs, config, plan, run.id, keep_until_step)
        self.instruments = InstrumentOutput(folder, instruments, file_attributes(config, run.id), keep_until_step)
        require_frames(folder, self.writer.frames_kept, (counted or {}).get("frames"))
        for name, kept in self.instruments.kept.items():
            require_frames(folder / FOLDER / name, kept, (counted or {}).get("samples", {}).get(name))
        known = None if keep_until_step is None else (counted or {}).get("statistics", {})
        self.statistics = StatisticsOutput(folder, instruments.statistics, file_attributes(config, run.id), known)
        self.events = EventFiles(folder, programs, plan, run.id, keep_until_step, (counted or {}).get("events", {}))
        self._metrics: TextIO | None = None
        self._shown = DisplayedNumbers(programs.measures)
        self._log: TextIO | None = None
        self._unlogged: list[str] = []
        if keep_until_step is None:
            self._begin()
        self.display = None
        if progress:
            size = programs.size * (programs.members or 1)
            self.display = Progress(
                config.title or config.experiment_name,
                config.time.end,
                size,
                units=programs.units,
                time_units=config.schema.time_units,
            )
            self.display.start()
        for note in self.notes:
            self.tell(note)

    def _begin(self) -> None:
        """Write the configuration and the provenance, and open the logs.

        A resumed run does so when its first frame is computed: until then a failure leaves the folder as it was.
        """
        if self._log is not None or not self.group.first:
            return
        (self.folder / "checkpoints").mkdir(exist_ok=True)  # a run without it has lost its checkpoints
        self._part.begin(self._kept_metrics())
        self._metrics = open_in_run(self.folder / "metrics.jsonl")
        self._log = open_in_run(self.folder / "run.log")
        self.goodput.open(self.folder, self._keep_until_step)
        self._log.writelines(self._unlogged)
        self._log.flush()

    def _note_tail(self) -> None:
        """Say where a frame's last step is shorter than time.dt."""
        schedule = self.plan.schedule
        if schedule.dt is not None and abs(schedule.last_dt - schedule.dt) > 1e-9 * schedule.dt:
            self.notes.append(
                f"time.dt={schedule.dt:g} does not divide time.output_every={schedule.interval:g}: the last of each "
                f"{schedule.steps} steps is {schedule.last_dt:.6g}."
            )
        if self.plan.tail is not None:
            self.notes.append(
                f"The last output interval is {self.plan.tail.interval:.6g}, to end at "
                f"time.end={self.config.time.end:g}."
            )

    def in_memory(self, state, clock: Clock, time: float, step: int) -> xarray.Dataset:
        """A frame with all variables of the model, whether they are written or not."""
        programs = self.programs.of_all_variables()
        at = jnp.asarray(time, programs.dtype)
        fields, diagnostics, _ = programs.observe()(programs.values, programs.files, state, clock, at)
        return dataset_of(
            lambda folder: open_writer(folder, programs, self.config, self.plan, self.run.id),
            step,
            time,
            on_host(programs, fields, diagnostics)[0],
        )

    def _kept_metrics(self) -> dict[Path, str]:
        """Read the metrics of a resumed run without the lines after the checkpoint's step."""
        path = self.folder / "metrics.jsonl"
        if self._keep_until_step is None or not path.exists():
            return {}
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= self._keep_until_step:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):  # the line being written when the process was killed
                break
        return {path: "".join(line + "\n" for line in kept)}

    def tell(self, text: str) -> None:
        """A line in the log, and on the display."""
        self._write_log(text)
        if self.display is not None:
            self.display.message(text)

    def note(self, text: str) -> None:
        """A line in the log, on the display and in the report."""
        self.notes.append(text)
        self.tell(text)

    def _write_log(self, text: str) -> None:
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n"
        if not self.group.first:
            return
        if self._log is None:
            self._unlogged.append(line)
        else:
            self._log.write(line)
            self._log.flush()

    # ------------------------------------------------------------------ frames

    def add(self, time: float, step: int, observed, clock, pace: CallLength) -> None:
        """Take a frame that was just dispatched; write and show those before it, which are done by now."""
        fields, diagnostics = observed
        fields, statistics = self.programs.with_statistics(fields, clock)
        for leaf in jax.tree.leaves((fields, diagnostics, statistics)):
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                leaf.copy_to_host_async()
        self._pending.append(_Frame(time, step, fields, diagnostics, statistics, clock))
        while len(self._pending) > 1:
            self._settle(pace)

    def settle_all(self, pace: CallLength) -> None:
        """Wait for every frame and sample, and write them."""
        with self.goodput.during(OUTPUT) if self.instruments.writers else contextlib.nullcontext():
            self.instruments.settle_all()
        while self._pending:
            self._settle(pace)

    def _settle(self, pace: CallLength) -> None:
        frame = self._pending.popleft()
        self.statuses = np.atleast_1d(whole(frame.clock.status))
        pace.completed(frame.step)
        if np.all(self.statuses != OK):
            return  # nobody got as far as this frame
        with self.goodput.during(OUTPUT):
            self._write(frame, pace)

    def _write(self, frame: _Frame, pace: CallLength) -> None:
        self._begin()
        self._announce_failures(frame)
        self.steps, self.last_time = frame.step, frame.time
        parts, diagnostics = on_host(
            self.programs, frame.fields, frame.diagnostics, self.writer.own_parts, frame.statistics
        )
        self.writer.write_parts([frame.step], [frame.time], parts)
        self.latest = {name: np.atleast_1d(d[0]) for name, d in diagnostics.items()}
        self._log_metrics(frame)
        if self.display is not None:
            # Of an ensemble, the least favourable member that is still going.
            worst = {name: float(np.nanmax(d)) for name, d in self.latest.items() if not np.all(np.isnan(d))}
            self.display.update(frame.time, frame.step, pace.rate, self._shown(worst))

    def _log_metrics(self, frame: _Frame) -> None:
        line: dict[str, Any] = {"time": float(written_times(frame.time)[0]), "step": frame.step}
        for name, values in sorted(self.latest.items()):
            numbers = [float(v) if math.isfinite(v) else None for v in values]
            line[name] = numbers if self.programs.members is not None else numbers[0]
        if self._metrics is None:  # another process has it
            return
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def _announce_failures(self, frame: _Frame) -> None:
        """Tell once of every ensemble member that was frozen."""
        for member in np.flatnonzero(self.statuses != OK):
            if member not in self._told:
                self._told.add(int(member))
                step = int(np.atleast_1d(whole(frame.clock.step))[member])
                self.tell(
                    f"{self.programs.member_named(int(member))} is frozen at step {step}, before t={frame.time:g}: "
                    f"{reasons(int(self.statuses[member]))}. The others go on."
                )

    def watch_step(self, clock: Clock, schedule: Schedule) -> None:
        """Warn where the Courant-limited step has become shorter than the first one by orders of magnitude."""
        share = shrinkage(clock)
        if share >= self._shrinkage_to_tell or np.all(np.asarray(clock.status) != OK):
            return
        while share < self._shrinkage_to_tell > 0:
            self._shrinkage_to_tell *= TOLD_SHRINKAGE
        bound = self.config.limits.step_shrink
        ends = "limits.step_shrink=null, so the run goes on"
        if bound is not None:
            ends = f"below limits.step_shrink={bound:g} of it the run ends"
        self.tell(
            f"warning: the time step has shrunk to {share:.2g} of the first one, at step "
            f"{int(np.max(np.asarray(clock.step)))}, t={float(np.min(times_on_host(clock, schedule))):.6g}; {ends}."
        )

    # ------------------------------------------------------------------ checkpoints

    def checkpoint_is_due(self, frame: int) -> bool:
        every = self.config.checkpoint
        if every.every_frames is not None:
            return frame % every.every_frames == 0
        return every.every_seconds is not None and wall.monotonic() - self._last_checkpoint >= every.every_seconds

    def checkpoint(self, tree, meta: dict[str, Any], pace: CallLength) -> None:
        """Save a state, its clock and sums, whose status is known to be good, after everything before it is on disk."""
        begin = wall.monotonic()
        self.settle_all(pace)
        self._begin()
        self.instruments.commit()
        self.statistics.commit()
        self.events.commit()
        on_disk = self.writer.commit()
        step = int(np.max(whole(tree[1].step)))
        samples = {"samples": self.instruments.counts} if self.instruments.writers else {}
        sets = {"statistics": self.statistics.counts} if self.statistics.writers else {}
        events = {"events": self.events.counts} if self.events.writers else {}
        known = {**samples, **sets, **events, "frames": self.writer.frames, "run": self._description}
        known["start_changes"] = self.programs.start_changes
        self.checkpoints.save(step, tree, {**meta, **known}, after=on_disk)
        self._last_checkpoint = wall.monotonic()
        self._checkpoint_seconds = max(self._checkpoint_seconds, self._last_checkpoint - begin)

    def time_is_up(self, elapsed: float) -> str | None:
        """Name the limit that leaves no more than twice the time a checkpoint has been seen to take, if one does."""
        longest = max(self._checkpoint_seconds, self.checkpoints.longest)
        return limit_reached(self.config.limits, elapsed, 2 * longest + 1.0)

    # ------------------------------------------------------------------ endings

    def take_stops(self, triggers: Triggers) -> None:
        """Take the times at which members met a condition of an end, for the files and the report."""
        self._of_members = triggers.numbers
        self.notes += triggers.notes()

    def finish(self, pace: CallLength, elapsed: float, ended: str | None = None) -> str:
        """Close a run that reached its end, or has `ended` by a condition; the closing sentence."""
        lost = int(np.sum(self.statuses != OK))
        outcome = f"completed, with {lost} of {len(self.statuses)} members frozen on the way" if lost else "completed"
        outcome = f"{outcome}: {ended}" if ended else outcome
        self._close(complete=True)
        self._write_report(outcome, pace, elapsed)
        took = f"{',' if ended else ''} in {elapsed:.1f} s ({pace.compile_seconds:.1f} s compiling)"
        return self._say_goodbye(judged(f"{outcome}{took}", self.failed_checks), pace)

    def stop(self, reason: str, pace: CallLength, elapsed: float) -> str:
        """Close a run that was asked to stop; it can go on later."""
        self._close(complete=False)
        outcome = f"stopped by {reason} at t = {self.last_time:g}, resumable"
        self._write_report(outcome, pace, elapsed)
        return self._say_goodbye(judged(outcome, self.failed_checks), pace)

    def fail(self, message: str, pace: CallLength, elapsed: float) -> None:
        """Close a run that failed, such as one whose fields are not finite."""
        self._close(complete=False)
        self._write_report(f"failed: {message}", pace, elapsed)
        self._say_goodbye(f"failed: {message}", pace, shown="failed")

    def abandon(self) -> None:
        """Leave the files as they are after an error in the host loop; nothing is hidden by a second error."""
        if self.display is not None:
            self.display.finish("")
        files = [file.close for file in (self._metrics, self._log) if file is not None]
        writers = (
            self.writer.abandon,
            self.instruments.abandon,
            self.statistics.abandon,
            self.events.abandon,
            self.checkpoints.abandon,
        )
        for close in (*writers, self.goodput.end, *files):
            with contextlib.suppress(Exception):
                close()

    def _close(self, complete: bool) -> None:
        statuses = self.statuses if self.programs.members is not None else self.statuses[0]
        with self.goodput.during(OUTPUT):
            self.instruments.close(complete)
            self.statistics.close(complete)
            self.events.close(complete)
            self.writer.close(complete, statuses, self._of_members)
            self.checkpoints.close()
        if self._metrics is not None:
            self._metrics.close()

    def _write_report(self, outcome: str, pace: CallLength, elapsed: float) -> None:
        """Check conserved quantities and other invariants, log violations, write the report and the animation."""
        from simjax.report.scene import NOWHERE

        draws = self.config.output.report or self.config.output.animation
        if self.display is not None and draws:
            self.display.message("drawing the summary, the animation and the report")
        scene = self.programs.scene() if draws else NOWHERE
        if self.group.first:
            named = None if self.programs.members is None else self.programs.member_named
            for sentence in said_of_run(self.config.troubles, self.folder, named):
                self.note(sentence)
            with self.goodput.during(OUTPUT):
                self.failed_checks = write_reports(
                    self.folder,
                    self.config,
                    self.programs,
                    scene,
                    self.statuses,
                    self.tell,
                    outcome=outcome,
                    wall_seconds=elapsed,
                    compile_seconds=pace.compile_seconds,
                    updates_per_second=pace.rate,
                    steps=self.steps,
                    run_id=self.run.id,
                    started=self._part.started,
                    notes=self.notes,
                    resume_command=self._resume_command(),
                    goodput=account(self.goodput.lines(self.folder)).seconds,
                )
        self.failed_checks = tuple(self.group.gather(self.failed_checks)[0])

    def _resume_command(self) -> str:
        return f"python -m simjax.run resume={shlex.quote(str(self.folder))}"

    def _say_goodbye(self, outcome: str, pace: CallLength, shown: str | None = None) -> str:
        """Log the outcome and end the display with how to open, how to resume and where the report is."""
        compiled = compilations(pace.compiled_since)
        self._write_log(compiled.sentence())
        self._write_log(outcome)
        self.goodput.end(outcome)
        if self._log is not None:
            self._log.close()
        if self.group.first:
            self._part.end(outcome, compiled, self.failed_checks)
        if self.display is not None:
            lines = [shown or outcome]
            if self.config.output.report:
                lines.append(f"  report  {self.folder / 'report.html'}")
            lines.append(f"  open    simjax.open_run({str(self.folder)!r})")
            at_end = [(form, form.files(self.folder)) for form in output_formats() if form.write is not None]
            lines += [
                f"          {form.programs[0]}: {files[0]}" for form, files in at_end if files and form.how_to_open
            ]
            lines.append(f"  resume  {self._resume_command()}")
            self.display.finish("\n".join(lines))
        return outcome
