"""Panels of figures that compare simjax with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simjax.report.sheet import ACCENT, INK, NORMAL, Sheet, legend_above, set_ticks
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, side_by_side

MOST_POINTS = 200
"""Points of simjax that are drawn on a line; of more, every second, third, ..."""


@dataclass(frozen=True)
class Panel:
    """A quantity against another: found by simjax (x, y), and the reference (x, y), which `told` names.

    names: of both axes. points: the reference is drawn as points on simjax's line, not as a line under its points.
    deviation: of the found values, drawn as bars.
    """

    names: tuple[str, str]
    found: tuple[np.ndarray, np.ndarray]
    reference: tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]
    told: str
    points: bool = False
    logarithmic: bool = False
    deviation: np.ndarray | None = None

    def draw(self, axes) -> None:
        if self.deviation is not None:
            axes.errorbar(*self.found, self.deviation, fmt="o", color=ACCENT, markersize=3.5, label="simjax")
        elif self.points:
            axes.plot(*self.found, color=ACCENT, linewidth=1.3, label="simjax")
        if self.points:
            axes.plot(*self.reference, "o", color=INK, markersize=6, fillstyle="none", label=self.told)
        else:
            every = -(-len(self.found[0]) // MOST_POINTS)
            axes.plot(*self.reference, color=INK, linewidth=1.0, label=self.told)
            axes.plot(*(values[::every] for values in self.found), "o", color=ACCENT, markersize=3, label="simjax")
        if self.logarithmic:
            axes.set_yscale("log")
        axes.set_xlabel(self.names[0], fontsize=NORMAL, color=INK)
        axes.set_ylabel(self.names[1], fontsize=NORMAL, color=INK)
        legend_above(axes, 2)
        set_ticks(axes)


class ComparisonRow:
    """Panels beside one another, each with its legend above."""

    heading, height, width = "", 3.3, FULL_WIDTH

    def __init__(self, panels: Sequence[Panel]):
        self.panels = panels

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        columns = min(2, len(self.panels))
        places = side_by_side(
            sheet, left, top + 0.15, len(self.panels), height=self.height - 0.15, columns=columns, gap=LABELLED_GAP
        )
        for axes, panel in zip(places, self.panels, strict=True):
            panel.draw(axes)
