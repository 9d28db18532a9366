"""Carrying out an inversion: the host loop around a solver, its checkpoints, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time as wall
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import yaml

from simjax.arguments import require_kind
from simjax.config.folders import (
    clear_run_folder,
    new_run_folder,
    place_of_copy,
    resume_differences,
    run_folders,
)
from simjax.driver.loop.progress import IterationProgress
from simjax.driver.loop.time_limits import is_signal, limit_reached, no_step, require_time
from simjax.driver.output.provenance import COMPLETED, Part, Run, description, last_outcome, new_run, restore
from simjax.driver.programs.compile_cache import cache_notes, compilations
from simjax.driver.simulation import Simulation
from simjax.driver.start.build import named_values
from simjax.driver.start.environment import StopSignals, join_processes
from simjax.driver.start.mesh_choice import with_devices
from simjax.errors import ConfigurationError, NumericalError, Stopped, stop_error
from simjax.inverse.estimate import Estimate, answer
from simjax.inverse.methods.gradient_check import GradientCheck, gradient_health
from simjax.inverse.methods.gradient_descent import scattered
from simjax.inverse.methods.least_squares import LeastSquares, norm
from simjax.inverse.methods.solver import Iterate
from simjax.inverse.problem import InverseProblem, rows_of
from simjax.inverse.search_result import SearchResult
from simjax.inverse.solver_from_config import solver_of
from simjax.io.checkpoint import Checkpoints
from simjax.io.field_draws import FieldDraws
from simjax.io.files import open_in_run
from simjax.io.folder_copy import copied
from simjax.io.lock import locked
from simjax.notebook import in_notebook, line
from simjax.parallel import whole
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.status import OK, reasons

# Estimates kept for the animation, at most.
MOST_KEPT = 40
# Windows of time in the report of the gradient's health.
WINDOWS = 8
# How far beside the guess, in latent numbers.
BESIDE = 1e-3
# Of the largest window's gradient over the median one: what chaos does in some Lyapunov times.
UNPREDICTABLE = 10.0


class Search:
    """The search for the unknowns of an inverse problem: `Search(problem).run()`, in Python or by `simjax.run`.

    `problem` is an `InverseProblem`, or a simulation or its configuration with a section `inverse`.

    `run()` returns a `SearchResult`: its `answer` has the `estimate` and the 95 % `intervals` of numbers by path, and
    `summary()`, a line for each; `plot()` draws them.

    Raises:
        ConfigurationError: it has no section `inverse`.

    Examples:
        >>> dye = sj.load("dye", ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.1"])
        >>> problem = sj.InverseProblem(
        ...     dye, unknowns={"physics.diffusivity": {"guess": 0.02, "positive": True}},
        ...     observations=[{"output": "fields", "of": "concentration", "deviation": 0.01}],
        ...     solver={"name": "gauss_newton", "iterations": 2},
        ... )
        >>> sorted(sj.Search(problem).run().answer.intervals)
        ['physics.diffusivity']
    """

    def __init__(self, problem: InverseProblem | Simulation | Config):
        expected = "an InverseProblem, or a Simulation with a section inverse"
        require_kind("Search: problem", problem, (InverseProblem, Simulation, Config), expected)
        self.problem = problem.config if isinstance(problem, Simulation) else problem
        self.config = problem if isinstance(problem, Config) else problem.config
        if self.config.inverse is None:
            raise ConfigurationError(
                "inverse is missing: a search needs what is sought and what was measured; write inverse={'unknowns': "
                "{...}, 'observations': [...]} in sj.configure, or sj.InverseProblem(simulation, unknowns=..., "
                "observations=...)."
            )

    def __repr__(self) -> str:
        return line("Search", rows_of(self.config))

    def run(
        self,
        *,
        resume: str | Path | None = None,
        progress: bool | None = None,
        launched: float | None = None,
        on_stop: Literal["raise", "return"] = "raise",
    ) -> SearchResult:
        """Search until the solver settles or `inverse.solver.iterations` are done, or go on with an earlier search.

        launched: since when limits.wall_clock counts, by `time.monotonic`; by default this call. on_stop: as of
        `Simulation.run`.

        Raises:
            Interrupted, a KeyboardInterrupt: after Ctrl-C. Stopped: after another signal. Both come after a checkpoint.
            ConfigurationError, ResourceError: before anything is written.
            NumericalError: the run of the guess or of an iterate fails.
        """
        launched = wall.monotonic() if launched is None else launched
        progress = in_notebook() if progress is None else progress
        join_processes(self.config)  # before signals are caught: JAX takes SIGTERM for itself
        with StopSignals(lethal=on_stop == "return") as signals:
            found = self._run(resume, progress, signals, launched)
        stopped = signals.received or found.exit_code == Stopped.exit_code  # also by a signal at the end
        if on_stop == "raise" and stopped:
            assert found.folder is not None
            raise stop_error(signals.received, found.message, found.folder)
        return found

    def _run(self, resume: str | Path | None, progress: bool, signals: StopSignals, launched: float) -> SearchResult:
        config = self.config if resume is None else dataclasses.replace(self.config, resume=str(resume))
        group = processes()
        with group.ending_together():
            earlier, _ = group.decide(lambda: run_folders(config))
            with group.together():
                config = with_devices(config)
                stages = Stages(InverseProblem(config) if isinstance(self.problem, Config) else self.problem)
                if earlier is None:
                    require_time(config.limits, wall.monotonic() - launched)
                    stages.check()
            folder = Path(group.decide(lambda: str(new_run_folder(config))) if earlier is None else earlier)
            place, replace = place_of_copy(config, folder), earlier is None and config.output.overwrite
            with locked(folder, group), copied(folder, place, group, replace):
                if earlier is None and config.output.overwrite and group.first:
                    clear_run_folder(folder)
                return _Search(config, stages, folder, signals, progress and group.first, launched).carry_out(
                    earlier is not None
                )


class Stages:
    """The problem cut to each of the growing horizons in turn, all with the same measurements."""

    def __init__(self, problem: InverseProblem):
        self.whole = problem
        self.horizons = problem.inverse.horizons or (problem.end,)
        self._problem: tuple[int, InverseProblem] | None = None

    def __len__(self) -> int:
        return len(self.horizons)

    def problem(self, stage: int) -> InverseProblem:
        """The problem of one stage; built once."""
        if self._problem is None or self._problem[0] != stage:
            end = self.horizons[stage]
            self._problem = stage, self.whole if end >= self.whole.end else self.whole.until(end)
        return self._problem[1]

    def check(self) -> None:
        """Raise ConfigurationError for a problem that no search can solve: an unknown without influence, a gradient
        that is no guide."""
        problem = self.problem(0)
        least_squares, latent = problem.least_squares(), problem.start()
        (loss, status), gradient = eqx.filter_jit(_value_and_gradient)(least_squares, latent)
        if int(status) != OK:
            raise NumericalError(
                f"inverse: the run of the guess fails: {reasons(int(status))}; write another guess for "
                f"{', '.join(problem.unknowns)}."
            )
        # A guess may lie where an unknown has no influence, such as the viscosity of a fluid at rest: look beside it.
        moved = jax.tree.map(lambda u: u[1], scattered(latent, 2, BESIDE, self.whole.config.seed))
        (_, status), beside = eqx.filter_jit(_value_and_gradient)(least_squares, problem.placed(moved))
        for path, slope in gradient.items():
            size = float(norm(slope))
            if not np.isfinite(size):
                raise NumericalError(
                    f"inverse.unknowns.{path}: the gradient at the guess is not finite; move the guess off values "
                    "where the model has none, such as zero under a root."
                )
            if size == 0 and int(status) == OK and float(norm(beside[path])) == 0:
                raise ConfigurationError(
                    f"inverse.unknowns.{path}: expected an unknown that the measurements depend on; its gradient "
                    "vanishes at the guess and beside it, so leave it out or observe something that it changes."
                )


def _value_and_gradient(problem: LeastSquares, latent):
    return jax.value_and_grad(problem.loss, has_aux=True)(latent)


def belonging(config: Config, latent: Mapping[str, Any]) -> str:
    """A text that tells apart estimates and problems of which draws differ."""
    known = config.write()
    for section in ("resume", "limits", "checkpoint", "output", "mesh"):
        known.pop(section, None)
    known.get("inverse", {}).pop("uncertainty", None)  # more draws go on from fewer
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for leaf in jax.tree.leaves(latent):
        digest.update(np.ascontiguousarray(whole(leaf)).tobytes())
    return digest.hexdigest()


class _StoppedDrawing(Exception):
    """The draws of fields were stopped; the text says by what, and at which."""


class _Search:
    """One execution of the host loop, in a folder of its own."""

    def __init__(
        self, config: Config, stages: Stages, folder: Path, signals: StopSignals, progress: bool, launched: float
    ):
        self.config, self.stages, self.folder, self.signals, self._launched = config, stages, folder, signals, launched
        self.group = processes()
        assert config.inverse is not None
        self.options = config.inverse.solver
        self.notes: list[str] = [*config.notes, *stages.whole.notes, *cache_notes()]
        self.checkpoints = Checkpoints(folder / "checkpoints", config.checkpoint.keep)
        total = self.options.iterations * len(stages)
        self.title = config.title or config.experiment_name
        draws = config.inverse.samples if stages.whole.fields else 0
        then = f", then {draws} draws" if draws else ""
        self.display = IterationProgress(self.title, total, then=then) if progress else None
        self.history: list[dict[str, Any]] = []
        self.kept: dict[int, Any] = {}
        self._last_checkpoint = wall.monotonic()
        self._seconds = 0.0  # of the longest iteration
        self._begun = self._iterated = False

    def carry_out(self, resumed: bool) -> SearchResult:
        begun = wall.monotonic()
        stage, iterate, finished = self._go_on() if resumed else self._begin_anew()
        if finished:
            try:
                found = self._answer(self._estimate(stage, iterate), iterate, resumed)
            except _StoppedDrawing as stopped:
                return self._stopped(str(stopped))
            message = f"{self.folder} has already finished; nothing to do. {found.summary()}"
            return SearchResult(self.folder, 0, message, found, self.title)
        if self.display:
            self.display.start()
        try:
            for number in range(stage, len(self.stages)):
                if number > stage:
                    iterate = self._fresh(number, self._estimate(number - 1, iterate))
                iterate, stopped = self._descend(number, iterate)
                if stopped or number == len(self.stages) - 1:
                    self._checkpoint(number, iterate)
                if stopped:
                    return self._stopped(stopped)
        finally:
            self.checkpoints.close()
            if self.display:
                self.display.stop()
        gradient_check = self._health()
        try:
            found = self._answer(self._estimate(len(self.stages) - 1, iterate), iterate, resumed)
        except _StoppedDrawing as stopped:
            return self._stopped(str(stopped))
        self.notes += found.doubts
        message = f"{len(self.history)} iterations in {wall.monotonic() - begun:.1f} s; {found.summary()}"
        self._leave(found, gradient_check, message)
        if self.group.first:
            self._part.end(f"{COMPLETED}: {message}", compilations(self._launched))
        return SearchResult(self.folder, 0, message, found, self.title)

    def _stopped(self, reason: str) -> SearchResult:
        message = f"stopped by {reason} after {len(self.history)} iterations, resumable"
        if self.group.first:
            self._part.end(message, compilations(self._launched))
        return SearchResult(self.folder, Stopped.exit_code, message, title=self.title)

    def _answer(self, latent, iterate: Iterate, resumed: bool) -> Estimate:
        """The answer, with draws of fields in batches, which show how many there are.

        Raises:
            _StoppedDrawing: there was a signal, or a limit, between two batches. What was drawn is in the folder.
        """
        problem, begun, longest = self.stages.whole, wall.monotonic(), 0.0
        count = problem.inverse.samples if problem.fields else 0
        belongs = belonging(self.config, latent) if count else ""
        draws = FieldDraws.stored(self.folder, belongs) if count and resumed else FieldDraws()
        display = IterationProgress(self.title, count, noun="draw") if self.display and draws.number < count else None

        def drawn(draws: FieldDraws) -> None:
            nonlocal begun, longest
            longest, begun = max(longest, wall.monotonic() - begun), wall.monotonic()
            if display is not None:
                display.update(draws.number, {})
            limited = limit_reached(self.config.limits, wall.monotonic() - self._launched, longest + 1.0)
            reason = self.group.first_reason(self.signals.received or limited)
            ended = draws.number >= count
            if (reason or ended) and self.group.first:
                draws.store(self.folder, belongs)
            if reason and not ended:
                raise _StoppedDrawing(f"{reason} at draw {draws.number} of {count}")

        if display is not None:
            display.start()
        try:
            return answer(problem, latent, iterate, drawn, draws)
        finally:
            if display is not None:
                display.stop()

    # ------------------------------------------------------------------ iterations

    def _solver(self, stage: int):
        assert self.config.inverse is not None
        return solver_of(self.config.inverse, self.config.seed + stage)

    def _fresh(self, stage: int, latent) -> Iterate:
        return self.stages.problem(stage).placed(self._solver(stage).begin(latent))

    def _estimate(self, stage: int, iterate: Iterate):
        return self._solver(stage).estimate(iterate)

    def _begin_anew(self) -> tuple[int, Iterate, bool]:
        """The guess; the files of a new search."""
        begin = self._fresh(0, self.stages.problem(0).start())
        run = Run(*self.group.decide(lambda: dataclasses.astuple(new_run(self.folder))))
        self._part = Part(self.folder, self.config, run, from_step=None, notes=self.notes)
        self._begin()
        return 0, begin, False

    def _go_on(self) -> tuple[int, Iterate, bool]:
        """Stage and iterate of the newest checkpoint, on these devices; and whether that was the end of the search."""
        begin = self._fresh(0, self.stages.problem(0).start())
        template = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape, u.dtype, sharding=u.sharding), begin)
        run, restored, notes = restore(
            self.folder, self.config, named_values(self.config), lambda _: template, {"history": list, "stage": int}
        )
        self.notes += notes
        self.history = restored.meta["history"]
        self._part = Part(self.folder, self.config, run, from_step=restored.step, notes=self.notes)
        before = yaml.safe_load(restored.meta["run"]["config"])
        other = [s for s in resume_differences(before, self.config.write())[1] if s.startswith(("inverse.", "output."))]
        completed = self.group.decide(lambda: (last_outcome(self.folder) or "").startswith(COMPLETED))
        finished = not other and completed
        return restored.meta["stage"], restored.tree, finished

    def _begin(self) -> None:
        """Write the configuration, the provenance and the history so far; on resume, after the first iteration."""
        if self._begun or not self.group.first:
            return
        self._begun = True
        (self.folder / "checkpoints").mkdir(exist_ok=True)  # a search without it has lost its checkpoints
        lines = "".join(json.dumps(line) + "\n" for line in self.history)
        self._part.begin({self.folder / "metrics.jsonl": lines})

    def _descend(self, stage: int, iterate: Iterate) -> tuple[Iterate, str | None]:
        """Iterations of one stage; the last iterate, and why it stopped early."""
        solver, problem = self._solver(stage), self.stages.problem(stage).least_squares()
        step = eqx.filter_jit(solver.step)
        while int(iterate.iteration) < self.options.iterations:
            reason = self.group.first_reason(self.signals.received or self._time_is_up())
            if reason:
                if not self._iterated and not is_signal(reason):
                    raise no_step(reason, wall.monotonic() - self._launched)
                return iterate, reason
            begun = wall.monotonic()
            before, iterate = iterate, step(problem, iterate)
            self._iterated = True
            self._record(stage, solver, iterate)
            self._seconds = wall.monotonic() - begun
            if self.group.gather(self._checkpoint_is_due())[0]:
                self._checkpoint(stage, iterate)
            if int(iterate.iteration) > 1 and solver.settled(iterate, before, self.options.tolerance):
                break
        return iterate, None

    def _time_is_up(self) -> str | None:
        """Return why to stop if a limit leaves no room for one more iteration, else None."""
        return limit_reached(self.config.limits, wall.monotonic() - self._launched, self._seconds + 1.0)

    def _record(self, stage: int, solver, iterate: Iterate) -> None:
        """Append an iterate to the history, its file and the display; NumericalError if no loss is finite."""
        losses, status = np.atleast_1d(iterate.loss), np.atleast_1d(iterate.status)
        number = len(self.history) + 1
        if not np.isfinite(losses).any():
            raise NumericalError(
                f"inverse: iteration {number} has no finite loss ({reasons(int(status[0])) or 'not finite'}); the last "
                f"good iterate is in {self.folder / 'checkpoints'}; write a smaller inverse.solver.learning_rate, a "
                "closer guess, or bounds."
            )
        line = {
            "iteration": number,
            "stage": stage,
            "loss": [float(loss) for loss in losses],
            "gradient_norm": [float(size) for size in np.atleast_1d(iterate.gradient_norm)],
        }
        self._begin()
        self.history.append(line)
        if self.group.first:
            with open_in_run(self.folder / "metrics.jsonl") as file:
                file.write(json.dumps(line) + "\n")
        if self.display:
            best = float(np.nanmin(losses))
            self.display.update(number, {"loss": best, "gradient": float(np.nanmin(line["gradient_norm"]))})
        if self.stages.whole.fields:
            self._keep(number, solver.estimate(iterate))

    def _keep(self, number: int, latent) -> None:
        """Estimates at even distances, thinned out when there are too many."""
        stride = max(1, self.options.iterations * len(self.stages) // MOST_KEPT)
        if number % stride == 0:
            problem = self.stages.whole
            fields = problem.physical(latent)
            self.kept[number] = {path: jax.tree.map(whole, fields[path]) for path in problem.fields}

    def _health(self) -> GradientCheck:
        """Check the whole problem's gradient at the guess; note where the run goes beyond the predictable."""
        problem = self.stages.whole
        windows = min(WINDOWS, max(experiment.rollout.frames for experiment in problem.experiments))
        found = gradient_health(
            problem.least_squares(), problem.start(), problem.windows_of_residuals(windows), windows
        )
        if found.growth > UNPREDICTABLE:
            at = (int(np.argmax(found.norms)) + 0.5) / windows * problem.end
            self.notes.append(
                f"What is measured near t={at:.3g} has {found.growth:.2g} times the gradient of a median window: the "
                "run may go beyond the predictable; write inverse.shooting.windows=... or inverse.horizons=[...]."
            )
        return found

    # ------------------------------------------------------------------ files

    def _checkpoint_is_due(self) -> bool:
        options = self.config.checkpoint
        seconds = options.every_seconds is not None and (
            wall.monotonic() - self._last_checkpoint >= options.every_seconds
        )
        frames = options.every_frames is not None and len(self.history) % options.every_frames == 0
        return seconds or frames

    def _checkpoint(self, stage: int, iterate: Iterate) -> None:
        self._begin()
        run = description(self._part.run, self.config, named_values(self.config))
        self.checkpoints.save(len(self.history), iterate, {"stage": stage, "history": self.history, "run": run})
        self.checkpoints.wait()
        self._last_checkpoint = wall.monotonic()

    def _leave(self, found: Estimate, gradient_check: GradientCheck, message: str) -> None:
        from simjax.inverse.output import leave

        self._begin()
        leave(
            self.folder,
            self._part.run.id,
            self.config,
            self.stages.whole,
            found,
            self.history,
            self.kept,
            gradient_check,
            self.notes,
            message,
        )
