"""A compiled program as one picture: weak scaling, where the time of a step goes, and its exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, NullLocator

from simjax.report.labels import number
from simjax.report.sheet import ACCENT, FAINT, INK, MUTED, NORMAL, SMALL, Sheet, legend_above, set_ticks
from simjax.report.summary import write_rows
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, side_by_side

Content = Mapping[str, Any]
"""An inspection as plain values, as `Inspection.as_dict` gives it."""

WAITING = "#c2452d"
PARTS = {"memory": "#1f5fa8", "vector unit": "#6fa3d8", "matrix unit": "#b9d2ec", "launches": "#9a9a9a"}
MOST_BARS = 12


def write_inspection(content: Content, path: Path) -> Path:
    """Draw an inspection as a PNG at `path`, and return the path."""
    step = content["step"]
    rows: list[Any] = []
    if step is not None and content["chip"] is not None:
        rows.append(TimeRow(content["scaling"] or [_alone(content)], content["step"]))
        if step["exchanges"]:
            rows.append(ExchangeRow(step["exchanges"]))
    cells, block = (" × ".join(map(str, content[name])) for name in ("shape", "block"))
    told = f"{cells} cells, {block} on each device; estimated from the compiled program, not measured"
    refusal = content["memory"]["refusal"] or "Nothing is known of the times of this target."
    title = f"{content['experiment']} on {content['target']}"
    return write_rows(rows, path, title=title, subtitle=told, otherwise=refusal)


def _alone(content: Content) -> dict[str, Any]:
    """The only size of an inspection without smaller ones."""
    step = content["step"]
    return {
        "devices": content["devices"],
        "seconds": step["seconds"],
        "exposed_s": step["exposed_s"],
        "efficiency": None,
        "by_limit_s": step["by_limit_s"],
    }


class TimeRow:
    """Time of a step by what bounds it, and its weak scaling, by number of devices."""

    height, width = 3.0, FULL_WIDTH

    def __init__(self, sizes: Sequence[Content], step: Content):
        self.sizes = sizes
        self.heading = "Time of a step, and weak scaling with the same block on each device"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        whole = len(self.sizes) > 1
        places = side_by_side(sheet, left, top, 2 if whole else 1, height=self.height, columns=2, gap=LABELLED_GAP)
        self._bars(places[0])
        if whole:
            self._efficiency(places[1])

    def _bars(self, axes) -> None:
        scale, unit = _scale(max(one["seconds"] for one in self.sizes))
        places, bottom = range(len(self.sizes)), [0.0] * len(self.sizes)
        for name, colour in PARTS.items():
            heights = [one["by_limit_s"].get(name, 0.0) / scale for one in self.sizes]
            bottom = self._part(axes, name, heights, bottom, colour)
        self._part(axes, "waiting", [one["exposed_s"] / scale for one in self.sizes], bottom, WAITING)
        axes.set_xticks([*places], [str(one["devices"]) for one in self.sizes])
        axes.set_xlabel("devices", fontsize=NORMAL, color=INK)
        axes.set_ylabel(f"time of a step [{unit}]", fontsize=NORMAL, color=INK)
        set_ticks(axes, horizontal=False)
        legend_above(axes, 4)

    def _part(self, axes, name: str, heights: list[float], bottom: list[float], colour: str) -> list[float]:
        if any(heights):
            axes.bar(range(len(heights)), heights, 0.6, bottom=bottom, color=colour, label=name)
        return [below + height for below, height in zip(bottom, heights, strict=True)]

    def _efficiency(self, axes) -> None:
        devices = [one["devices"] for one in self.sizes]
        values = [100 * one["efficiency"] for one in self.sizes]
        axes.plot(devices, values, color=ACCENT, marker="o", linewidth=1.6)
        for count, value in zip(devices, values, strict=True):
            beside = (0, -13 if value > 30 else 6)
            axes.annotate(
                f"{number(value)} %",
                (count, value),
                beside,
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=INK,
            )
        axes.set_xscale("log", base=2)
        axes.set_xlim(devices[0] / 1.4, devices[-1] * 1.4)
        axes.set_ylim(0, 108)
        axes.axhline(100, color=FAINT, linewidth=0.8)
        axes.set_xlabel("devices", fontsize=NORMAL, color=INK)
        axes.set_ylabel("efficiency [%]", fontsize=NORMAL, color=INK)
        axes.xaxis.set_major_locator(FixedLocator(devices))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
        set_ticks(axes, horizontal=False)


class ExchangeRow:
    """Exchanges of a step, the longest first: the part that work hides, and the part that is waited for."""

    width = FULL_WIDTH
    _LABELS = 3.9

    def __init__(self, exchanges: Sequence[Content]):
        self.exchanges = sorted(exchanges, key=lambda one: -one["count"] * one["seconds"])[:MOST_BARS]
        self.height = 0.5 + 0.27 * len(self.exchanges)
        left_out = len(exchanges) - len(self.exchanges)
        self.heading = "Exchanges of a step" + (f", the {MOST_BARS} longest of {len(exchanges)}" if left_out else "")

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        axes = sheet.axes(left + self._LABELS, top, self.width - self._LABELS, self.height)
        scale, unit = _scale(max(one["count"] * max(one["seconds"], one["exposed_s"]) for one in self.exchanges))
        places = range(len(self.exchanges))
        waited = [one["count"] * one["exposed_s"] / scale for one in self.exchanges]
        hidden = [
            max(0.0, one["count"] * one["seconds"] / scale - wait)
            for one, wait in zip(self.exchanges, waited, strict=True)
        ]
        axes.barh(places, hidden, 0.6, color=ACCENT, label="hidden behind work or another exchange")
        axes.barh(places, waited, 0.6, left=hidden, color=WAITING, label="waited for")
        axes.set_yticks([*places], [_named(one) for one in self.exchanges])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set_xlabel(f"time in a step [{unit}]", fontsize=NORMAL, color=INK)
        axes.tick_params(axis="y", labelsize=SMALL, labelcolor=MUTED)
        legend_above(axes, 2)


def _named(one: Content) -> str:
    """An exchange: how often, what, how much, over which links."""
    links = " ".join(one["links"])
    how = "" if one["asynchronous"] else ", synchronous"
    size = one["bytes"]
    power = next(power for power in (3, 2, 1, 0) if size >= 2 ** (10 * power) or not power)
    amount = f"{number(size / 2 ** (10 * power))} {('B', 'KiB', 'MiB', 'GiB')[power]}"
    return f"{one['count']:g} × {one['kind']}, {amount}, {links}{how}"


def _scale(largest: float) -> tuple[float, str]:
    """A power of a thousand seconds, and its unit, for times up to `largest`."""
    fitting = [(factor, unit) for factor, unit in ((1.0, "s"), (1e-3, "ms")) if largest >= factor]
    return fitting[0] if fitting else (1e-6, "µs")
