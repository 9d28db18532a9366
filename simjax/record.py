"""What a run leaves on disk and shows on the way: fields, diagnostics, checkpoints, log, report."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shlex
import tempfile
import time as wall
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.build import Plan
from simjax.config import Config
from simjax.config.folders import config_yaml, default_yaml
from simjax.core.status import OK, reasons
from simjax.io.checkpoint import Checkpoints
from simjax.io.files import replaced, require_free_space
from simjax.io.frame_output import FrameWriter
from simjax.pacing import Pace
from simjax.programs import Programs
from simjax.progress import Progress
from simjax.runtime import command_line, device_name, git_state, versions
from simjax.stepping import Clock
from simjax.verdicts import judge

if TYPE_CHECKING:
    import xarray

LOG = logging.getLogger("simjax")


@dataclass(frozen=True)
class _Frame:
    """A dispatched frame: the device may still be computing it."""

    time: float
    step: int
    fields: dict[str, jax.Array]
    diagnostics: dict[str, jax.Array]
    clock: Clock


class Record:
    """The files and the display of one run; created before its first frame."""

    def __init__(
        self, folder: Path, config: Config, programs: Programs, plan: Plan, notes: list[str], progress: bool,
        *, keep_until_step: int | None,
    ):  # fmt: skip
        self.folder, self.config, self.programs, self.plan = folder, config, programs, plan
        self.notes = [*config.notes, *notes]
        self.last_time = 0.0
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self._pending: deque[_Frame] = deque()
        self._told: set[int] = set()
        self.statuses = np.zeros(programs.members or 1, np.int32)
        self.latest: dict[str, np.ndarray] = {}
        self._last_checkpoint = wall.monotonic()
        self._checkpoint_seconds = 0.0
        self.steps = 0
        self._note_tail()
        self.checkpoints = Checkpoints(folder / "checkpoints", config.checkpoint.keep)
        self.writer = self._open_writer(keep_until_step)
        self._trim_metrics(keep_until_step)
        self._metrics = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._log = (folder / "run.log").open("a", encoding="utf-8")
        self._write_provenance()
        self.display = None
        if progress:
            size = programs.size * (programs.members or 1)
            self.display = Progress(
                config.title or config.experiment_name, config.time.end, size, units=programs.units,
                time_units=programs.time_units,
            )  # fmt: skip
            self.display.start()
        for note in self.notes:
            self.tell(note)

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
        from simjax.io.read import open_run

        programs = self.programs.of_all_variables()
        at = jnp.asarray(time, programs.dtype)
        fields, diagnostics, _ = programs.observe()(programs.values, programs.files, state, clock, at)
        with tempfile.TemporaryDirectory() as folder:
            writer = self._open_writer(None, Path(folder), programs)
            writer.write([step], [time], *self._as_written(fields, diagnostics))
            writer.close(complete=True)
            with open_run(Path(folder)) as dataset:
                return dataset.load()

    def _open_writer(
        self, keep_until_step: int | None, folder: Path | None = None, programs: Programs | None = None
    ) -> FrameWriter:
        programs, config = self.programs if programs is None else programs, self.config
        attributes = {
            "simjax_version": versions()["simjax"],
            "simjax_config_yaml": config_yaml(config),
            "simjax_overrides": json.dumps(list(config.overrides)),
            "simjax_seed": config.seed,
            "simjax_prng_impl": str(jax.config.jax_default_prng_impl),  # pyright: ignore[reportAttributeAccessIssue]
            "simjax_versions_json": json.dumps(versions()),
            "simjax_device": device_name(),
            "simjax_run_id": self.folder.name,
            **git_state(),
        }
        writer = programs.open_writer(
            self.folder if folder is None else folder,
            diagnostics=sorted(programs.observed_shapes()[1]), attributes=attributes,
            title=config.title or config.experiment_name, keep_until_step=keep_until_step,
            rounding_bits=config.output.rounding_bits,
        )  # fmt: skip
        kept = self.config.checkpoint.keep * programs.state_bytes() * self.config.mesh.devices * (programs.members or 1)
        require_free_space(self.folder, writer.frame_bytes * (self.plan.total + 1 - self.plan.origin.frame) + kept)
        return writer

    def _trim_metrics(self, keep_until_step: int | None) -> None:
        """On resume, drop the lines after the checkpoint's step."""
        path = self.folder / "metrics.jsonl"
        if keep_until_step is None or not path.exists():
            return
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= keep_until_step:
                    kept.append(line)
            except (ValueError, KeyError):  # the line being written when the process was killed
                break
        with replaced(path) as temporary:
            temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def _write_provenance(self) -> None:
        provenance = {
            "started": self._began, "command": command_line(), "device": device_name(), "versions": versions(),
            "mesh": dict(self.programs.mesh.shape) if self.programs.mesh else {}, **git_state(),
        }  # fmt: skip
        with replaced(self.folder / "provenance.json") as path:
            path.write_text(json.dumps(provenance, indent=1) + "\n", encoding="utf-8")

    def tell(self, text: str) -> None:
        """A line in the log, and on the display."""
        self._log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")
        self._log.flush()
        if self.display is not None:
            self.display.message(text)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Within it, what the library logs is told as well: how kernels were chosen."""
        handler = logging.Handler()
        handler.emit = lambda record: self.tell(record.getMessage())
        level = LOG.level
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOG.setLevel(level)
            LOG.removeHandler(handler)

    # ------------------------------------------------------------------ frames

    def add(self, time: float, step: int, observed, clock, pace: Pace) -> None:
        """Take a frame that was just dispatched; write and show those before it, which are done by now."""
        for leaf in jax.tree.leaves(observed):
            leaf.copy_to_host_async()
        fields, diagnostics = observed
        self._pending.append(_Frame(time, step, fields, diagnostics, clock))
        while len(self._pending) > 1:
            self._settle(pace)

    def settle_all(self, pace: Pace) -> None:
        """Wait for every frame and write it."""
        while self._pending:
            self._settle(pace)

    def _settle(self, pace: Pace) -> None:
        frame = self._pending.popleft()
        self.statuses = np.atleast_1d(np.asarray(frame.clock.status))
        pace.completed(frame.step)
        if np.all(self.statuses != OK):
            return  # nobody got as far as this frame
        self._announce_failures(frame)
        self.steps, self.last_time = frame.step, frame.time
        fields, diagnostics = self._as_written(frame.fields, frame.diagnostics)
        self.writer.write([frame.step], [frame.time], fields, diagnostics)
        self.latest = {name: np.atleast_1d(d[0]) for name, d in diagnostics.items()}
        self._log_metrics(frame)
        if self.display is not None:
            # Of an ensemble, the least favourable member that is still going.
            worst = {name: float(np.nanmax(d)) for name, d in self.latest.items() if not np.all(np.isnan(d))}
            self.display.update(frame.time, frame.step, pace.rate, self.programs.shown(worst))

    def _as_written(self, fields, diagnostics) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """What was observed at one time, as the writer takes it."""
        written = {name: np.asarray(u)[None] for name, u in fields.items()}
        return written, {name: np.asarray(d, np.float64)[None] for name, d in diagnostics.items()}

    def _log_metrics(self, frame: _Frame) -> None:
        line: dict[str, Any] = {"time": frame.time, "step": frame.step}
        for name, values in sorted(self.latest.items()):
            numbers = [float(v) if math.isfinite(v) else None for v in values]
            line[name] = numbers if self.programs.members is not None else numbers[0]
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def _announce_failures(self, frame: _Frame) -> None:
        """Tell once of every ensemble member that was frozen."""
        for member in np.flatnonzero(self.statuses != OK):
            if member not in self._told:
                self._told.add(int(member))
                step = int(np.atleast_1d(np.asarray(frame.clock.step))[member])
                self.tell(
                    f"member {member} is frozen at step {step}, before t={frame.time:g}: "
                    f"{reasons(int(self.statuses[member]))}. The others go on."
                )

    # ------------------------------------------------------------------ checkpoints

    def checkpoint_is_due(self, frame: int) -> bool:
        every = self.config.checkpoint
        if every.every_frames is not None:
            return frame % every.every_frames == 0
        return every.every_seconds is not None and wall.monotonic() - self._last_checkpoint >= every.every_seconds

    def checkpoint(self, state_and_clock, meta: dict[str, Any], pace: Pace) -> None:
        """Save a state whose status is known to be good, after everything before it is on disk."""
        begin = wall.monotonic()
        self.settle_all(pace)
        self.writer.commit()
        step = int(np.max(np.asarray(state_and_clock[1].step)))
        self.checkpoints.save(step, state_and_clock, meta)
        self._last_checkpoint = wall.monotonic()
        self._checkpoint_seconds = max(self._checkpoint_seconds, self._last_checkpoint - begin)

    def time_is_up(self, elapsed: float) -> str | None:
        """Whether the wall-clock limit leaves no more than twice the time a checkpoint has been seen to take."""
        limit = self.config.limits.wall_clock
        if limit is None or elapsed + 2 * self._checkpoint_seconds + 1.0 < limit:
            return None
        return f"the wall-clock limit of {limit:g} s"

    # ------------------------------------------------------------------ endings

    def finish(self, pace: Pace, elapsed: float) -> str:
        """Close a run that reached its end; the closing sentence."""
        lost = int(np.sum(self.statuses != OK))
        outcome = f"completed, with {lost} of {len(self.statuses)} members frozen on the way" if lost else "completed"
        self._close(complete=True)
        self._write_report(outcome, pace, elapsed)
        return self._say_goodbye(f"{outcome} in {elapsed:.1f} s ({pace.compile_seconds:.1f} s compiling)")

    def stop(self, reason: str, pace: Pace, elapsed: float) -> str:
        """Close a run that was asked to stop; it can go on later."""
        self._close(complete=False)
        outcome = f"stopped by {reason} at t = {self.last_time:g}, resumable"
        self._write_report(outcome, pace, elapsed)
        return self._say_goodbye(outcome)

    def fail(self, message: str, pace: Pace, elapsed: float) -> None:
        """Close a run whose fields are no longer numbers."""
        self._close(complete=False)
        self._write_report(f"failed: {message}", pace, elapsed)
        self._say_goodbye(f"failed: {message}", shown="failed")

    def abandon(self) -> None:
        """Leave the files as they are after an error in the host loop; nothing is hidden by a second error."""
        if self.display is not None:
            self.display.finish("")
        for close in (lambda: self.writer.close(complete=False), self.checkpoints.close, self._metrics.close, self._log.close):
            with contextlib.suppress(Exception):
                close()

    def _close(self, complete: bool) -> None:
        statuses = self.statuses if self.programs.members is not None else self.statuses[0]
        self.writer.close(complete, statuses)
        self.checkpoints.close()
        self._metrics.close()

    def _write_report(self, outcome: str, pace: Pace, elapsed: float) -> None:
        if not (self.config.output.report or self.config.output.animation):
            return
        from simjax.io.read import open_run
        from simjax.io.report import RunReport, write_report

        if self.display is not None:
            self.display.message("drawing the summary, the animation and the report")
        title = self.config.title or self.config.experiment_name
        with open_run(self.folder) as dataset:
            if self.config.output.animation:
                from simjax.io.animation import write_animation

                write_animation(dataset, self.folder / "animation.webp", title=title)
            if self.config.output.report:
                from simjax.io.figure import write_summary

                write_summary(dataset, self.folder / "summary.png", title=title)
                report = RunReport(
                    title=title, description=self.config.description,
                    verdicts=judge(self.config, self.programs, dataset, self.statuses),
                    config_yaml=config_yaml(self.config), defaults_yaml=default_yaml(), command=command_line(),
                    resume_command=self._resume_command(), versions=versions(), device=device_name(),
                    wall_seconds=elapsed, compile_seconds=pace.compile_seconds, updates_per_second=pace.rate,
                    units=self.programs.units,
                    steps=self.steps, run_id=self.folder.name, started=self._began, outcome=outcome, notes=self.notes,
                )  # fmt: skip
                write_report(self.folder, dataset, report)

    def _resume_command(self) -> str:
        return f"python -m simjax.run resume={shlex.quote(str(self.folder))}"

    def _say_goodbye(self, outcome: str, shown: str | None = None) -> str:
        """Log the outcome and end the display with how to open, how to resume and where the report is."""
        self._log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {outcome}\n")
        self._log.close()
        if self.display is not None:
            lines = [shown or outcome]
            if self.config.output.report:
                lines.append(f"  report  {self.folder / 'report.html'}")
            lines.append(f"  open    simjax.open_run({str(self.folder)!r})")
            sidecars = sorted(self.folder.glob("*.vtkhdf"))
            if sidecars:
                lines.append(f"          ParaView: {sidecars[0]}")
            lines.append(f"  resume  {self._resume_command()}")
            self.display.finish("\n".join(lines))
        return outcome
