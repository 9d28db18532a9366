"""A configured simulation: its parts for programs of one's own, and its run, in one piece or in groups of members."""

from __future__ import annotations

import dataclasses
import functools
import time as wall
from pathlib import Path
from typing import Any, Literal

from simjax.arguments import require_kind
from simjax.config.folders import new_run_folder, place_of_copy, run_folders
from simjax.config.read_stretched_grid import grid_of
from simjax.core.model import Model
from simjax.driver.differentiable import RunFunction
from simjax.driver.functional import FunctionalParts, functional_parts
from simjax.driver.loop.grouping import first_programs
from simjax.driver.loop.groups import GroupedRun
from simjax.driver.loop.single_run import SingleRun
from simjax.driver.loop.time_limits import require_time
from simjax.driver.output.frame_files import require_space
from simjax.driver.result import Result
from simjax.driver.start.build import plan_frames
from simjax.driver.start.environment import StopSignals, join_processes
from simjax.driver.start.mesh_choice import with_devices
from simjax.driver.start.reference_runs import reference_configs, with_places
from simjax.errors import Stopped, stop_error
from simjax.integrators.integrator import Integrator
from simjax.io.folder_copy import copied
from simjax.io.lock import locked
from simjax.notebook import box_picture, card, in_notebook, line
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.stepping.simulate import Schedule


class Simulation:
    """A configured simulation, ready to run as often as wanted.

    `simulate(s.model, s.integrator, s.params, s.state, s.schedule, frames=s.frames)` takes a simulation `s` of one
    member on one device in a program of one's own. These parts are made when one of them is first asked for, which
    raises ConfigurationError for an ensemble, several devices and an end between two output times.

    Examples:
        >>> fluid = sj.load("fluid", ["grid.shape=[16,16]", "time.end=0.02", "output=none"])
        >>> fluid.frames, fluid.run().exit_code
        (1, 0)
    """

    def __init__(self, config: Config):
        expected = "a Config; write sj.load(NAME) or sj.configure(MODEL, ...), which make the simulation"
        require_kind("Simulation: config", config, Config, expected)
        self.config = config

    @functools.cached_property
    def _parts(self) -> FunctionalParts:
        return functional_parts(self.config)

    @property
    def model(self) -> Model:
        """The equations on their domain, with the sides and the forces of the configuration."""
        return self._parts.model

    @property
    def params(self) -> Any:
        """The parameters, `model.Params`, in the units of the configuration's keys."""
        return self._parts.params

    @property
    def state(self) -> Any:
        """The initial state, `model.State`, walls imposed and constraints satisfied."""
        return self._parts.state

    @property
    def integrator(self) -> Integrator | None:
        """The scheme of `time.integrator`; None of a model that takes its own steps."""
        return self._parts.integrator

    @property
    def schedule(self) -> Schedule:
        """The time steps of a frame, whose length is `time.output_every`.

        With `time.courant` a frame has half as many steps again as the first state needs: a flow that begins at rest
        needs a `Schedule` with more.
        """
        return self._parts.schedule

    @property
    def frames(self) -> int:
        """The number of frames until `time.end`."""
        return self._parts.frames

    def run(
        self,
        *,
        resume: str | Path | None = None,
        progress: bool | None = None,
        launched: float | None = None,
        on_stop: Literal["raise", "return"] = "raise",
    ) -> Result:
        """Run to time.end, or go on with an earlier run.

        A section `inverse` is not searched: `simjax.Search(simulation).run()` does that.

        Args:
            resume: a run's folder, or "auto" (the newest run of this experiment, else a new one); by default what
                the configuration says.
            progress: show the run on stdout; by default in a notebook alone.
            launched: since when limits.wall_clock counts, by `time.monotonic`; by default this call.
            on_stop: what follows the checkpoint after a signal or at limits.wall_clock: an error, or a result of exit
                code 75, where a second signal ends the process.

        Raises:
            Interrupted, a KeyboardInterrupt: after Ctrl-C. Stopped: after another signal, at limits.wall_clock. Their
                `folder` is that of the run, to go on with.
            ConfigurationError, ResourceError: before anything is compiled or written.
            NumericalError: the fields became not finite; the last good state is in the checkpoints.
            InputOutputError, CheckpointError: the folder cannot be used.
        """
        launched = wall.monotonic() if launched is None else launched
        progress = in_notebook() if progress is None else progress
        join_processes(self.config)  # before signals are caught: JAX takes SIGTERM for itself
        with StopSignals(lethal=on_stop == "return") as signals:
            result = self._run(resume, progress, signals, launched)
        stopped = signals.received or result.exit_code == Stopped.exit_code  # also by a signal at the end
        if on_stop == "raise" and stopped:
            raise stop_error(signals.received, result.message, result.folder)
        result._config = self.config
        return result

    def _rows(self) -> list[tuple[str, object]]:
        config, time = self.config, self.config.time
        end = f"{time.end:g}" + (f" {units}" if (units := config.schema.time_units) != "1" else "")
        if time.tolerance is not None:
            step = f"errors of steps below {time.tolerance:g}"
        else:
            step = f"steps of {time.dt:g}" if time.dt is not None else f"Courant number {time.courant:g}"
        mesh = {
            name: count
            for name, count in dataclasses.asdict(config.mesh).items()
            if name in ("x", "y", "z", "ensemble") and count > 1
        }
        grid = None if config.grid is None else grid_of(config.grid_of_fields())
        return [
            ("model", config.model),
            ("cells" if grid else "dimensions", " × ".join(map(str, grid.shape)) if grid else config.ndim),
            ("time", f"to {end}, output every {time.output_every:g}, {step}"),
            ("scheme", time.integrator or ""),
            ("precision", config.precision),
            ("members", config.ensemble.size if config.ensemble.size > 1 else ""),
            ("varied", ", ".join(variation.path for variation in config.ensemble.vary)),
            ("devices", ", ".join(f"{name} {count}" for name, count in mesh.items())),
            ("sought", ", ".join(one.path for one in config.inverse.unknowns) if config.inverse is not None else ""),
        ]

    def __repr__(self) -> str:
        return line(self._title, self._rows())

    @property
    def _title(self) -> str:
        return self.config.title or self.config.experiment_name

    def _repr_html_(self) -> str:
        config = self.config
        grid = None if config.grid is None else grid_of(config.grid_of_fields())
        drawn = "" if grid is None else box_picture(grid.lengths, grid.shape)
        return card(self._title, self._rows(), drawn, config.description)

    def differentiable(self, **options: Any) -> RunFunction:
        """The run as a function `(values, fields)` for `jax.grad`; options are those of `simjax.RunFunction`."""
        return RunFunction(self.config, **options)

    def _run(self, resume: str | Path | None, progress: bool, signals: StopSignals, launched: float) -> Result:
        config = self.config if resume is None else dataclasses.replace(self.config, resume=str(resume))
        group = processes()
        with group.ending_together():
            earlier, planned = group.decide(lambda: run_folders(config))
            with group.together():
                config = with_devices(config)
                programs, grouped = first_programs(config, None if earlier is None else Path(earlier))
                kind = GroupedRun if grouped else SingleRun
                run = kind(config, programs, signals, progress and group.first, launched)
            if earlier is not None:
                folder = Path(earlier)
                with locked(folder, group), copied(folder, place_of_copy(config, folder), group):
                    return run.go_on(folder)
            with group.together():
                references = reference_configs(config)
                require_time(config.limits, wall.monotonic() - launched)
                require_space(Path(planned), config, programs, plan_frames(config, 1))
                run.prepare()
            folder = Path(group.decide(lambda: str(new_run_folder(config))))
            place, replace = place_of_copy(config, folder), config.output.overwrite
            with locked(folder, group), copied(folder, place, group, replace):
                for reference in with_places(references, folder):
                    ended = Simulation(reference)._run(None, progress, signals, launched)
                    if ended.exit_code:
                        return ended
                return run.begin(folder)
