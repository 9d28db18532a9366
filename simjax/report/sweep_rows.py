"""The rows of a sweep in the summary: responses at the end to what varies, and bands of members over time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simjax.report import curves, scalars
from simjax.report.labels import with_units
from simjax.report.responses import Response, is_logarithmic, responses, sentence, trend
from simjax.report.sheet import ACCENT, INK, MUTED, NORMAL, SMALL, Sheet, set_ticks
from simjax.report.summary_rows import FULL_WIDTH, INNER, CurveRow, name_curve, set_value_range, side_by_side

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

FAILED = "#c0392b"
BAND_FROM = 17  # members; fewer are lines of their own
_COLUMNS, _HEIGHT, _STEP, _GAP, _LINE = 3, 1.8, 2.75, 0.75, 0.2
_LETTERS = 150  # of a line of text as wide as the row


class ResponseRow:
    """Diagnostics at the end against numbers that vary, the strongest dependence first, and in words above.

    A point is a member, the line the median of its neighbours, the band theirs from 5 to 95 %; crosses at the bottom
    are members that failed.
    """

    width = FULL_WIDTH

    def __init__(self, dataset: xr.Dataset, found: Sequence[Response]):
        self.dataset, self.found = dataset, found
        labels = {one.diagnostic: scalars.label_of(dataset, one.diagnostic) for one in found}
        lost = int(np.count_nonzero(~np.isfinite(curves.recorded(dataset, found[0].diagnostic)[:, -1])))
        self.heading = "At the end, against what varies" + (f"; crosses: {lost} members that failed" if lost else "")
        self.text = textwrap.wrap(sentence(found, labels), _LETTERS)
        lines = -(-len(found) // _COLUMNS)
        self.height = _LINE * len(self.text) + 0.35 + lines * _STEP - (_STEP - _HEIGHT)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        for number, line in enumerate(self.text):
            sheet.text(left, top - 0.15 + _LINE * number, line, size=SMALL, color=MUTED)
        top += _LINE * len(self.text) + 0.35
        width = (INNER - (_COLUMNS - 1) * _GAP) / _COLUMNS
        for index, one in enumerate(self.found):
            row, column = divmod(index, _COLUMNS)
            axes = sheet.axes(left + column * (width + _GAP), top + row * _STEP, width, _HEIGHT)
            self._panel(sheet, axes, one)

    def _panel(self, sheet: Sheet, axes: Axes, one: Response) -> None:
        low, high = curves.usual_range(one.values)
        drawn = curves.curve_of(self.dataset, one.diagnostic, np.clip(one.values, low, high)[:, None])
        values, known = drawn.values[:, 0], np.isfinite(one.values) & np.isfinite(one.given)
        usual, many = known & (one.values >= low) & (one.values <= high), len(values) > 200
        axes.plot(
            one.given[usual],
            values[usual],
            "o",
            color=ACCENT,
            markersize=1.8 if many else 3.2,
            alpha=0.35 if many else 0.65,
            markeredgewidth=0,
            rasterized=many,
        )
        places, bands = trend(one.given[known], values[known])
        if len(places) > 2:
            axes.fill_between(places, bands[0], bands[2], color=ACCENT, alpha=0.16, linewidth=0)
            axes.plot(places, bands[1], color=INK, linewidth=1.3)
        if is_logarithmic(one.given):
            axes.set_xscale("log")
        set_value_range(axes, drawn)
        _mark(axes, one.given[known & (one.values > high)], 0.98, "^", ACCENT)
        _mark(axes, one.given[known & (one.values < low)], 0.02, "v", ACCENT)
        _mark(axes, one.given[~np.isfinite(one.values) & np.isfinite(one.given)], 0.03, "x", FAILED)
        unit = scalars.units_of(self.dataset, one.parameter)
        axes.set_xlabel(with_units(scalars.short(one.parameter), unit), fontsize=NORMAL, color=INK)
        axes.set_title(drawn.label, fontsize=NORMAL, color=INK, loc="left", pad=17, parse_math=False)
        note = f"{one.said}, rank correlation {one.rank:.2f}".replace("-", "−")
        axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=SMALL - 0.5, color=MUTED, parse_math=False)
        set_ticks(axes, most=4)


def _mark(axes: Axes, places: np.ndarray, height: float, marker: str, colour: str) -> None:
    """Marks at a height of the axes, from 0 to 1: of members without a value, or one beyond the axis."""
    size = 4.5 if len(places) < 50 else 3.0
    axes.plot(
        places,
        np.full(len(places), height),
        marker,
        color=colour,
        markersize=size,
        markeredgewidth=0.8,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        rasterized=len(places) > 200,
    )


class BandRow:
    """Diagnostics over time: the median of all members, and the bands that hold half of them and nine in ten.

    Members that failed are left out.
    """

    width, height = FULL_WIDTH, CurveRow.height

    def __init__(self, dataset: xr.Dataset, names: Sequence[str]):
        self.dataset, self.names = dataset, names
        count = dataset.sizes["member"]
        self.members = [member for member in range(count) if not scalars.failed(dataset, member)]
        whose = "the members" if len(self.members) == count else f"the {len(self.members)} members that went well"
        self.heading = f"Over time, of {whose}: the median, half of them (25 to 75 %), nine in ten (5 to 95 %)"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        instants = scalars.times(self.dataset)
        for name, axes in zip(self.names, side_by_side(sheet, left, top, len(self.names)), strict=True):
            values = curves.recorded(self.dataset, name)[self.members]
            there = np.isfinite(values).any(axis=0)
            bands = np.nanpercentile(values[:, there], (5, 25, 50, 75, 95), axis=0)
            drawn = curves.curve_of(self.dataset, name, np.clip(bands, *curves.usual_range(values)))
            low, quarter, median, upper, high = drawn.values
            axes.fill_between(instants[there], low, high, color=ACCENT, alpha=0.18, linewidth=0)
            axes.fill_between(instants[there], quarter, upper, color=ACCENT, alpha=0.30, linewidth=0)
            axes.plot(instants[there], median, color=INK, linewidth=1.3)
            set_value_range(axes, drawn)
            if instants.size > 1:
                axes.set_xlim(instants[0], instants[-1])
            axes.set_xlabel(with_units("t", scalars.time_units(self.dataset)), fontsize=NORMAL, color=INK)
            name_curve(sheet, axes, drawn.label)


def member_rows(dataset: xr.Dataset, names: Sequence[str]) -> list[ResponseRow | BandRow | CurveRow]:
    """The responses at the end, and the diagnostics over time: lines of few members, bands of many."""
    found = responses(dataset)
    count = sum(not scalars.failed(dataset, member) for member in range(dataset.sizes["member"]))
    over_time = BandRow if count >= BAND_FROM else CurveRow
    names = [name for name in names if "member" in dataset[name].dims]
    return [*([ResponseRow(dataset, found)] if found else []), *([over_time(dataset, names)] if names else [])]
