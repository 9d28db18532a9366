"""A run from beginning to end: the host loop around the compiled programs, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import time as wall
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.build import plan_frames
from simjax.config import Config
from simjax.config.folders import check_same_simulation, find_resumable, new_run_folder, write_hydra_folder
from simjax.core.errors import ConfigurationError, NumericalError
from simjax.core.status import OK, reasons
from simjax.io.lock import FolderLock
from simjax.pacing import Pace
from simjax.programs import Programs
from simjax.record import Record
from simjax.runtime import StopSignals, set_up_jax
from simjax.simulate import Schedule

if TYPE_CHECKING:
    import xarray

STOPPED = 75


@dataclasses.dataclass
class Result:
    """What a run came to: its folder, the exit code (0 done, 75 stopped and resumable), and a sentence."""

    folder: Path
    exit_code: int
    message: str
    statuses: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    _dataset: Any = None

    @property
    def ds(self) -> xarray.Dataset:
        """Fields, diagnostics and parameters, as an xarray Dataset read on demand."""
        if self._dataset is None:
            from simjax.io.read import open_run

            self._dataset = open_run(self.folder)
        return self._dataset


class Simulation:
    """A configured simulation, ready to run as often as wanted."""

    def __init__(self, config: Config):
        self.config = config

    def run(self, *, resume: str | None = None, progress: bool = False) -> Result:
        """Run to time.end, or go on with an earlier run.

        Args:
            resume: None, a run's folder, or "auto" (the newest run of this experiment, else a new one).
            progress: show the run on stdout.

        Raises:
            ConfigurationError, ResourceError: before anything is compiled or written.
            NumericalError: the fields became not finite; the last good state is in the checkpoints.
            InputOutputError, CheckpointError: the folder cannot be used.
        """
        config = dataclasses.replace(self.config, resume=resume) if resume != self.config.resume else self.config
        set_up_jax(config)
        programs = Programs(config)
        folder = find_resumable(config)
        if folder is not None:
            with FolderLock(folder):
                return _Run(config, programs, progress).go_on(folder)
        run = _Run(config, programs, progress)
        run.prepare()
        folder = new_run_folder(config)
        with FolderLock(folder):
            return run.begin(folder)


class _Run:
    """One execution of the host loop.

    While the device computes a piece, the host fetches and writes what the piece before it left; state and clock
    are donated from call to call.
    """

    def __init__(self, config: Config, programs: Programs, progress: bool):
        self.config, self.programs, self.progress = config, programs, progress
        self.started = wall.monotonic()
        self.notes: list[str] = []
        self.state: Any = None
        self.clock: Any = None
        self.pace = Pace(config, programs)
        self.step = 0  # steps at the end of the last frame
        self.substeps = 0  # fixed steps since then

    # ------------------------------------------------------------------ beginnings

    def prepare(self) -> None:
        """Everything that can be refused before a file is written: initial fields, the time step."""
        self.state, self.clock, self.notes = self.programs.start()
        limit = self.programs.stable_dt(self.state)
        dt, integrator = self.config.time.dt, self.programs.integrator
        if dt is not None and dt > limit * integrator.courant_limit:
            raise ConfigurationError(
                f"time.dt={dt:g} is above the stable limit {limit * integrator.courant_limit:.3g} of "
                f"{self.config.time.integrator} for the initial state; write time.dt={0.5 * limit * integrator.courant_limit:.2g}, "
                "or time.dt=null and time.courant=0.5."
            )
        self.pace.measure_step(limit)
        self.plan = plan_frames(self.config, self.pace.steps_per_frame)

    def begin(self, folder: Path) -> Result:
        """A new run in an empty folder."""
        write_hydra_folder(folder, self.config)
        keep = -1 if self.config.output.overwrite else None
        self.record = Record(folder, self.config, self.programs, self.plan, self.notes, self.progress, keep_until_step=keep)
        return self._carry_out(first_frame=0)

    def go_on(self, folder: Path) -> Result:
        """The run in `folder`, from its last good checkpoint to time.end."""
        from simjax.io.checkpoint import Checkpoints

        self.notes += check_same_simulation(folder, self.config)
        checkpoints = Checkpoints(folder / "checkpoints", self.config.checkpoint.keep)
        restored = checkpoints.latest(self.programs.template())
        checkpoints.close()
        if restored is None:
            raise ConfigurationError(f"resume={folder}: the run has no checkpoint yet; start it again in another folder.")
        self.notes += restored.skipped
        self.state, self.clock = restored.tree
        frame = int(np.min(np.asarray(self.clock.frame)))
        self.substeps = int(np.max(np.asarray(self.clock.substep)))
        self.step = restored.step - self.substeps
        self.pace.measure_step(self.programs.stable_dt(self.state))
        self.plan = plan_frames(self.config, self.pace.steps_per_frame)
        if frame >= self.plan.total:
            return Result(folder, 0, f"{folder} has already reached time.end={self.config.time.end:g}; nothing to do.")
        write_hydra_folder(folder, self.config)
        self.record = Record(
            folder, self.config, self.programs, self.plan, self.notes, self.progress, keep_until_step=restored.step
        )
        return self._carry_out(first_frame=frame, resumed=True)

    # ------------------------------------------------------------------ the loop

    def _carry_out(self, first_frame: int, resumed: bool = False) -> Result:
        try:
            with StopSignals() as signals:
                if not resumed:
                    self._observe(0)
                reason = self._loop(first_frame, signals)
            # The last frame is done, or the piece after which the run stops: what is saved is known to be good.
            self._check()
            self.record.checkpoint(self.programs.copy(self.state, self.clock), self.pace)
            elapsed = wall.monotonic() - self.started
            if reason:
                return Result(self.record.folder, STOPPED, self.record.stop(reason, self.pace, elapsed), self.record.statuses)
            return Result(self.record.folder, 0, self.record.finish(self.pace, elapsed), self.record.statuses)
        except BaseException:
            self.record.abandon()
            raise

    def _loop(self, first_frame: int, signals: StopSignals) -> str | None:
        """Frame after frame; the reason why it stopped early, if it did."""

        def reason() -> str | None:
            return signals.received or self.record.time_is_up(wall.monotonic() - self.started)

        for frame in range(first_frame, self.plan.total):
            if not self._advance_frame(frame, reason):
                return reason()
            self._observe(frame + 1)
            if np.all(self.record.statuses != OK):
                return None
            if frame + 1 < self.plan.total and self.record.checkpoint_is_due(frame + 1):
                self._check()
                self.record.checkpoint(self.programs.copy(self.state, self.clock), self.pace)
        return None

    def _advance_frame(self, frame: int, reason: Callable[[], str | None]) -> bool:
        """Whether the frame was completed rather than cut short by a reason to stop."""
        schedule = self.plan.schedule_of(frame)
        until = jnp.asarray(frame + 1, jnp.int32)
        if schedule.dt is not None:
            for steps in self.pace.pieces(schedule, self.substeps):
                if reason():
                    return False
                self._call(schedule, steps, until)
                self.substeps += steps
            self.step += schedule.steps
            self.substeps = 0
            return True
        while True:
            if reason():
                return False
            self._call(schedule, self.pace.courant_steps, until)
            waiting = (np.asarray(self.clock.frame) > frame) | (np.asarray(self.clock.status) != OK)
            if np.all(waiting):
                self.step = int(np.max(np.asarray(self.clock.step)))
                return True

    def _call(self, schedule: Schedule, steps: int, until) -> None:
        program = self.programs.advance(schedule, steps)
        with self.pace.timed(program):
            self.state, self.clock = program(self.programs.values, self.state, self.clock, until)
        self.pace.dispatched(steps)

    def _observe(self, frames: int) -> None:
        """Look at the state after `frames` frames. While the device goes on, the frame before is written."""
        time = self.plan.time_after(frames)
        program = self.programs.observe()
        with self.pace.timed(program):
            observed = program(self.programs.values, self.state, self.clock, jnp.asarray(time, self.programs.dtype))
        self.record.add(time, self.step, observed, self.clock, self.pace)

    def _check(self) -> None:
        """Stop when the only member, or every member, has failed; name the field, the place and the step."""
        self.record.settle_all(self.pace)
        statuses = np.atleast_1d(np.asarray(self.clock.status))
        if np.any(statuses == OK):
            return
        # Whatever was dispatched since left the last good state and its clock as they were.
        good = jax.tree.map(jnp.zeros_like, self.clock.status)
        clock = eqx.tree_at(lambda c: c.status, self.clock, good)
        self.record.checkpoint(self.programs.copy(self.state, clock), self.pace)
        schedule = self.plan.schedule_of(int(np.min(np.asarray(clock.frame))))
        where = self.programs.first_fault(self.state, clock, schedule, self.pace.longest_call)
        advice = "a smaller time.courant" if schedule.dt is None else "a smaller time.dt, or time.dt=null with time.courant=0.5"
        message = (
            f"{reasons(int(statuses[0]))}: {where}, after t={self.record.last_time:g}; "
            f"the last good state (step {int(np.max(np.asarray(clock.step)))}) is kept in "
            f"{self.record.folder / 'checkpoints'}. Try {advice}, or a finer grid."
        )
        self.record.fail(message, self.pace, wall.monotonic() - self.started)
        raise NumericalError(message)


def load(experiment: str, overrides: Sequence[str] = (), *, config_dir: str | None = None) -> Simulation:
    """A shipped or own experiment, configured: `load("fluid", overrides=["grid.shape=[128,128]"])`.

    Raises ConfigurationError with everything that is wrong with the configuration.
    """
    from simjax.config import load_config

    return Simulation(load_config(experiment, overrides=list(overrides), config_dir=config_dir))
