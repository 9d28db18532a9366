"""Functions of one variable that were sought: truth, start and what was found, side by side in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simjax.report.sheet import ACCENT, INK, MUTED, NORMAL, Sheet, legend_above, set_ticks
from simjax.report.summary import write_rows
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, gaps, side_by_side


@dataclass(frozen=True)
class Function:
    """A function of one variable: values `(k,)` at `places` `(k,)`; start is None where it is not known.

    limits: lowest and highest value shown.
    """

    variable: str
    label: str
    places: np.ndarray
    truth: np.ndarray
    found: np.ndarray
    limits: tuple[float, float]
    start: np.ndarray | None = None


class FunctionRow:
    """Functions beside one another, each with a legend."""

    height, width = 3.4, FULL_WIDTH

    def __init__(self, functions: Sequence[Function], heading: str):
        self.functions, self.heading = functions, heading

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        places = side_by_side(sheet, left, top, len(self.functions), height=self.height, columns=1, gap=LABELLED_GAP)
        for axes, shown in zip(places, self.functions, strict=True):
            axes.plot(shown.places, gaps(shown.truth), color=INK, linewidth=2.4, label="truth")
            if shown.start is not None:
                axes.plot(shown.places, gaps(shown.start), color=MUTED, linewidth=1.2, linestyle="--", label="start")
            axes.plot(shown.places, gaps(shown.found), color=ACCENT, linewidth=1.3, label="found")
            axes.set_xlim(shown.places[0], shown.places[-1])
            axes.set_ylim(*shown.limits)
            axes.set_xlabel(shown.variable, fontsize=NORMAL, color=INK)
            axes.set_ylabel(shown.label, fontsize=NORMAL, color=INK)
            legend_above(axes, 3)
            set_ticks(axes)


def write_functions(functions: Sequence[Function], path: Path, *, title: str, subtitle: str, heading: str) -> Path:
    """Draw functions side by side as a PNG at `path`, and return the path."""
    return write_rows(
        [FunctionRow(functions, heading)], path, title=title, subtitle=subtitle, otherwise="There is nothing to show."
    )
