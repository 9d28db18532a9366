"""The picture of a training: errors and gradients against the updates, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simjax.io.training_output import TrainingLine
from simjax.report import curves
from simjax.report.picture import Picture
from simjax.report.sheet import ACCENT, FAINT, INK, MUTED, NORMAL, Sheet, legend_above, set_ticks
from simjax.report.summary import write_rows
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, gaps, side_by_side

_TENFOLD = 10.0


class TrainingRow:
    """The error of the batches and of the validation, and the norm of the gradient."""

    height, width, heading = 3.2, FULL_WIDTH, "Against the updates"

    def __init__(self, history: Sequence[TrainingLine]):
        self.history = history

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        errors, gradients = side_by_side(sheet, left, top, 2, height=self.height, columns=1, gap=LABELLED_GAP)
        judged = [line.validation for line in self.history if line.validation is not None]
        lines = [("loss", "batches", ACCENT, 1.3)] + [("validation", "validation", INK, 2.0)] * bool(judged)
        for axes, shown, label in (
            (errors, lines, "error"),
            (gradients, [("gradient_norm", "gradient", ACCENT, 1.3)], "norm of the gradient"),
        ):
            updates = np.asarray([line.updates for line in self.history])
            everything = []
            for name, legend, color, width in shown:
                values = [getattr(line, name) for line in self.history]
                drawn = gaps(np.asarray([np.nan if value is None else value for value in values], float))
                axes.plot(updates, drawn, color=color, linewidth=width, label=legend)
                everything.append(drawn)
            if curves.wide_range(np.stack(everything), _TENFOLD):
                axes.set_yscale("log")
            for line, after in zip(self.history, self.history[1:], strict=False):
                if after.stage != line.stage:
                    axes.axvline(line.updates, color=FAINT, linewidth=1.0, zorder=0)
            axes.set_xlabel("updates", fontsize=NORMAL, color=INK)
            axes.set_ylabel(label, fontsize=NORMAL, color=INK)
            axes.tick_params(colors=MUTED)
            if len(shown) > 1:
                legend_above(axes, len(shown))
            set_ticks(axes)


def training_picture(history: Sequence[TrainingLine]) -> Picture:
    """Draw the history of a training; vertical lines are where a stage begins."""
    stages = 1 + max((line.stage for line in history), default=0)
    updates = history[-1].updates if history else 0
    named = {
        "title": "Training",
        "subtitle": f"{updates} updates in {stages} stage{'s' * (stages != 1)}",
        "otherwise": "There is nothing to show.",
    }

    def draw(path: Path) -> Path:
        return write_rows([TrainingRow(history)], path, **named)

    return Picture.drawn(draw, "png")
