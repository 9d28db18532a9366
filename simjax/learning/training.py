"""A training in stages: batches, a history, validation, checkpoints, and going on after a stop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simjax.arguments import require_kind, shown
from simjax.driver.loop.progress import IterationProgress
from simjax.driver.start.environment import StopSignals
from simjax.errors import ConfigurationError, NumericalError, stop_error
from simjax.io.checkpoint import Checkpoints
from simjax.io.lock import locked
from simjax.io.replacing import CHECKPOINTS_FOLDER, TRAINING, TRAINING_PICTURE_NAME, require_replaceable
from simjax.io.training_output import TrainingLine, write_module, write_training
from simjax.learning.learner import Learner, TrainingState, Update
from simjax.learning.loss import Batch, BatchLoss
from simjax.notebook import in_notebook
from simjax.processes import processes
from simjax.report.picture import Picture
from simjax.schema.locate import usable_path


@dataclasses.dataclass(frozen=True)
class Stage:
    """A number of updates by one loss. Stages of longer and longer unrolls are a curriculum.

    Examples:
        >>> coarse = sj.load("kolmogorov", ["grid.shape=[16,16]", "time.output_every=0.1", "time.dt=0.05"])
        >>> loss = sj.RolloutLoss(coarse, ["velocity"], unroll=1)
        >>> curriculum = [sj.Stage(200, loss), sj.Stage(200, loss.unrolled(8, pushforward=2))]
    """

    updates: int
    loss: BatchLoss

    def __post_init__(self):
        if not isinstance(self.updates, int) or self.updates < 1:
            raise ConfigurationError(f"Stage(updates={self.updates!r}): expected a whole number, 1 or more.")


@dataclasses.dataclass(frozen=True)
class Training:
    """Result of a training: the module, its history, the state to go on from, and the folder if there is one."""

    module: Any
    history: tuple[TrainingLine, ...]
    state: TrainingState
    folder: Path | None

    def plot(self) -> Picture:
        """Draw the errors against the updates, as a picture that a notebook shows."""
        from simjax.report.training_figure import training_picture

        return training_picture(self.history)


def train(
    learner: Learner,
    stages: Sequence[Stage],
    data: Iterator[Batch],
    *,
    folder: str | Path | None = None,
    every: int = 50,
    validation: tuple[BatchLoss, Iterable[Batch]] | None = None,
    progress: bool | None = None,
) -> Training:
    """Train the module of a learner, one stage after the other.

    With a folder, it leaves the history (`training.h5`, for any reader of NetCDF), the module (`module.eqx`, for
    `equinox.tree_deserialise_leaves`), a picture, and checkpoints. Where the folder has checkpoints the training goes
    on from the last one, with the same batches and noise as without the stop; give the same arguments, or more stages.

    Args:
        learner: the module, and how it is changed.
        stages: updates and losses.
        data: an iterator of batches without end, such as `sj.batches`, from its beginning.
        folder: for files; None: no files.
        every: updates between two lines of the history, at which a checkpoint is saved.
        validation: a loss, and batches that are never trained on; their mean error is in the history.
        progress: whether it shows how far it is; None: in notebooks.

    Raises:
        NumericalError: weights became NaN or infinite; the last good checkpoint stays.
        ConfigurationError: an argument is none, batches do not fit a loss or have ended, or the folder has files of
            these names that are not of a training.
        Interrupted, Stopped: after a signal; with a folder, after a checkpoint.

    Examples:
        >>> import itertools, optax
        >>> line = {"slope": jnp.zeros(())}
        >>> loss = sj.WindowLoss(lambda line, window, key: jnp.mean((line["slope"] * window["x"] - window["y"]) ** 2))
        >>> data = itertools.repeat({"x": np.ones((2, 4)), "y": np.full((2, 4), 3.0)})
        >>> training = sj.train(sj.Learner(line, optax.adam(0.1)), [sj.Stage(200, loss)], data)
        >>> round(float(training.module["slope"]), 2)
        3.0
    """
    group = processes()
    if group.count > 1:
        raise ConfigurationError(
            f"train: expected one process, got {group.count}; one process trains on all devices of its machine."
        )
    require_kind("train: learner", learner, Learner, "a Learner; write Learner(module, optimizer)")
    place = None if folder is None else usable_path(folder, "train: folder").expanduser()
    if not isinstance(stages, (tuple, list)) or not all(isinstance(stage, Stage) for stage in stages):
        raise ConfigurationError(f"stages={shown(stages)}: expected a list of stages; write [Stage(updates, loss)].")
    if not hasattr(data, "__next__"):
        raise ConfigurationError(
            f"data={shown(data)}: expected an iterator of batches; write sj.batches(windows, size), or iter(...)."
        )
    if validation is not None and (not isinstance(validation, (tuple, list)) or len(validation) != 2):
        raise ConfigurationError(f"validation={shown(validation)}: expected a loss and batches, (loss, batches).")
    if not isinstance(every, int) or every < 1:
        raise ConfigurationError(f"every={every!r}: expected a whole number of updates, 1 or more.")
    if not stages:
        raise ConfigurationError("stages: expected one or more; write [simjax.Stage(updates, loss)].")
    displayed = in_notebook() if progress is None else progress
    checked = None if validation is None else (validation[0], [*validation[1]])
    with StopSignals(lethal=False) as signals:
        if place is None:
            return _Training(learner, stages, data, None, every, checked, displayed, signals).carry_out()
        if not hasattr(data, "get_state"):
            raise ConfigurationError(
                "data: expected an iterator with get_state and set_state, as sj.batches gives it, so that the training "
                "can go on; leave folder out for another one."
            )
        require_replaceable(place, TRAINING, f"folder={str(place)!r}")
        with locked(place, group):
            return _Training(learner, stages, data, place, every, checked, displayed, signals).carry_out()


class _Training:
    """One execution of the loop over updates."""

    def __init__(
        self,
        learner: Learner,
        stages: Sequence[Stage],
        data: Any,
        folder: Path | None,
        every: int,
        validation: tuple[BatchLoss, list[Batch]] | None,
        displayed: bool,
        signals: StopSignals,
    ):
        self.learner, self.stages, self.data, self.folder, self.every = learner, stages, data, folder, every
        self.validation, self.signals = validation, signals
        self.total = sum(stage.updates for stage in stages)
        self.history: list[TrainingLine] = []
        self.since: list[list[float]] = []  # errors and gradients since the last line of the history
        self.checkpoints = None if folder is None else Checkpoints(folder / CHECKPOINTS_FOLDER)
        self.display = IterationProgress("Training", self.total, noun="update") if displayed else None

    def carry_out(self) -> Training:
        state = self._begun()
        if self.display:
            self.display.start()
        try:
            before = 0
            for number, stage in enumerate(self.stages):
                before += stage.updates
                while int(state.updates) < before:
                    state = self._updated(state, number, stage)
        finally:
            if self.checkpoints:
                self.checkpoints.close()
            if self.display:
                self.display.stop()
        module = self.learner.module(state)
        training = Training(module, tuple(self.history), state, self.folder)
        if self.folder is not None:
            training.plot().save(self.folder / TRAINING_PICTURE_NAME)
        return training

    def _begun(self) -> TrainingState:
        """The state of the last checkpoint with the data after it, or the beginning."""
        state = self.learner.begin()
        if self.checkpoints is None:
            return state
        template = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape, u.dtype, sharding=u.sharding), state)
        restored = self.checkpoints.latest(template)
        if restored is None:
            return state
        self.history = [TrainingLine(**line) for line in restored.meta["history"]]
        self.since = restored.meta["since"]
        self.data.set_state(restored.meta["data"])
        return restored.tree

    def _updated(self, state: TrainingState, number: int, stage: Stage) -> TrainingState:
        done = int(state.updates)
        if self.signals.received:
            self._stop(state)
        try:
            batch = next(self.data)
        except StopIteration:
            raise ConfigurationError(
                f"data: the batches ended after {done} of {self.total} updates; expected ones without end, such as "
                "sj.batches(..., epochs=None)."
            ) from None
        after, told = self.learner.update(state, stage.loss, batch)
        if not bool(told.finite):
            kept = "" if self.folder is None else f" The last good checkpoint is in {self.folder / CHECKPOINTS_FOLDER}."
            raise NumericalError(
                f"update {done + 1}, in stage {number + 1}, made weights that are not finite (error "
                f"{float(told.loss):g}, norm of the gradient {float(told.gradient_norm):g}); write a smaller learning "
                f"rate, optax.clip_by_global_norm before the optimiser, or a shorter unroll.{kept}"
            )
        self._record(after, number, told, last=done + 1 == self.total)
        return after

    def _record(self, state: TrainingState, stage: int, told: Update, *, last: bool) -> None:
        done = int(state.updates)
        self.since.append([float(told.loss), float(told.gradient_norm)])
        if done % self.every == 0 or last:
            loss, norm = np.mean(self.since, axis=0)
            self.history.append(TrainingLine(done, stage, float(loss), float(norm), self._validated(state)))
            self.since = []
            self._save(state)
        if self.display:
            line = self.history[-1] if self.history else None
            judged = {} if line is None or line.validation is None else {"validation": line.validation}
            self.display.update(done, {"error": float(told.loss), **judged})

    def _validated(self, state: TrainingState) -> float | None:
        if self.validation is None:
            return None
        loss, batches = self.validation
        return float(np.mean(np.concatenate([self.learner.errors(state, loss, batch) for batch in batches])))

    def _save(self, state: TrainingState) -> None:
        if self.checkpoints is None or self.folder is None:
            return
        write_training(self.folder, self.history)
        write_module(self.folder, self.learner.module(state))
        lines = [dataclasses.asdict(line) for line in self.history]
        meta = {"history": lines, "since": self.since, "data": self.data.get_state()}
        self.checkpoints.save(int(state.updates), state, meta)
        self.checkpoints.wait()

    def _stop(self, state: TrainingState) -> None:
        """Save the present state and raise the error that ends the training."""
        message = f"stopped by {self.signals.received} after {int(state.updates)} of {self.total} updates"
        if self.folder is None:
            raise KeyboardInterrupt(message)
        self._save(state)
        raise stop_error(self.signals.received, message, self.folder, "the same call of train(..., folder={})")
