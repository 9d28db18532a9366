"""Diagnostics over time as inline SVG, in the colours of the page that holds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from simjax.report import curves, scalars
from simjax.report.curves import Curve
from simjax.report.labels import number, tick_labels, with_units

if TYPE_CHECKING:
    import xarray as xr

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 36
_MOST_POINTS, _MOST_MEMBERS = 240, 40


def curve_figures(dataset: xr.Dataset) -> Iterator[tuple[str, str]]:
    """For every diagnostic its title, escaped, and an SVG drawing of it over time."""
    instants = scalars.times(dataset)
    if instants.size == 0:
        return
    for name in curves.diagnostics(dataset):
        drawn = curves.curve(dataset, name)
        time_label = with_units("t", scalars.time_units(dataset))
        yield escape(drawn.label), _drawing(instants, drawn, time_label)


def _drawing(instants: np.ndarray, drawn: Curve, time_label: str) -> str:
    """One SVG element: grid, labels, and one line for each member, broken at its gaps."""
    shown_y, ticks_y, labels_y = _vertical(drawn)
    low, high = (ticks_y[0], ticks_y[-1]) if drawn.logarithmic else drawn.limits
    begin, end = float(instants[0]), float(instants[-1])
    if begin == end:
        begin, end = begin - 0.5, end + 0.5
    ticks_x = [t for t in MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(begin, end) if begin <= t <= end]
    x = _LEFT + (instants - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT)
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick, label in zip(ticks_y, labels_y, strict=True):
        if low <= tick <= high:
            at = _TOP + (high - tick) / (high - low) * (bottom - _TOP)
            parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{label}</text>')
    for tick, label in zip(ticks_x, tick_labels(ticks_x), strict=True):
        at = _LEFT + (tick - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 5}" text-anchor="middle">{escape(time_label)}</text>')
    y = _TOP + (high - shown_y) / (high - low) * (bottom - _TOP)
    style = "curve" if len(y) == 1 else "curve member"
    for member in scalars.spread(len(y), _MOST_MEMBERS):
        parts.append(_line(x, y[member], style))
    frame = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(drawn.label, quote=True)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _vertical(drawn: Curve) -> tuple[np.ndarray, list[float], list[str]]:
    """The values as they are drawn, logarithms or not, with ticks and their labels."""
    values = drawn.values
    if not drawn.logarithmic:
        low, high = drawn.limits
        ticks = [float(t) for t in MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)]
        return values, ticks, tick_labels(ticks)
    positive = np.where(values > 0, values, np.nan)
    top = float(np.nanmax(positive))
    # What lies sixteen decades below the largest value is rounding, and would flatten all the rest.
    exponents = np.log10(np.where(positive >= 1e-16 * top, positive, np.nan))
    first, last = math.floor(np.nanmin(exponents)), math.ceil(np.nanmax(exponents))
    step = -(-(last - first) // 5)
    decades = list(range(first, last + step, step))
    return exponents, [float(d) for d in decades], [number(10.0**d) for d in decades]


def _line(x: np.ndarray, y: np.ndarray, style: str) -> str:
    """A path that begins anew after every gap; long ones keep every so many points, and the last."""
    keep = scalars.spread(len(x), _MOST_POINTS)
    path, pen_down = [], False
    for px, py in zip(x[keep], y[keep], strict=True):
        if math.isfinite(py):
            path.append(f"{'L' if pen_down else 'M'}{px:.1f} {py:.1f}")
        pen_down = math.isfinite(py)
    if not path:
        return '<text x="206" y="90" text-anchor="middle">no finite values</text>'
    if len(path) == 1:
        px, py = path[0][1:].split()
        return f'<circle class="point" cx="{px}" cy="{py}" r="3"/>'
    return f'<path class="{style}" d="{"".join(path)}"/>'
