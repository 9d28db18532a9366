"""The rows that the summary figure consists of: panels of a plane, profiles, diagnostics, scatter plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize

from simjax.report import colours, curves, scalars
from simjax.report.colours import ColourScale
from simjax.report.curves import Curve
from simjax.report.geometry import draw_scene
from simjax.report.labels import with_units
from simjax.report.scalars import Scalar
from simjax.report.scene import NOWHERE, Scene
from simjax.report.sheet import (
    ACCENT,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    Sheet,
    axis_title,
    colormap,
    colour_bar,
    legend_above,
    parameter_bar,
    set_ticks,
)

if TYPE_CHECKING:
    import xarray as xr

INNER = 9.1  # width of the rows, without the margin where the colour bars stand
_BAR_GAP, _BAR, BAR_ROOM = 0.16, 0.14, 1.05
FULL_WIDTH = INNER + BAR_ROOM
PANEL_GAP, _PANEL_HEIGHT = 0.36, 3.2
_CURVE_HEIGHT, _CURVE_GAP = 1.7, 0.72
_LETTER = 0.074  # inches of a letter of usual width, at the size NORMAL
LABELLED_GAP = 1.05  # between curves whose vertical axes have titles
_MOST_PIXELS, _MOST_LINES, _STREAM_CELLS = 700, 256, 64


@dataclass(frozen=True)
class Panel:
    """One picture of a plane: its values [vertical, horizontal], its title, and the axes of the plane.

    dots: (n, 2) positions (horizontal, vertical) to be marked. cut: the cell index across the plane, by axis. flow:
    velocities along the horizontal and the vertical axis like the values, of which streamlines are drawn. time: that
    of the file.
    """

    scalar: Scalar
    values: np.ndarray
    title: str
    horizontal: str
    vertical: str
    dots: np.ndarray | None = None
    cut: dict[str, int] = field(default_factory=dict)
    flow: tuple[np.ndarray, np.ndarray] | None = None
    time: float = 0.0

    @property
    def extent(self) -> tuple[float, float, float, float]:
        return (*self.scalar.extent(self.horizontal), *self.scalar.extent(self.vertical))

    @property
    def aspect(self) -> float:
        left, right, low, high = self.extent
        return (right - left) / (high - low)


class PanelRow:
    """Pictures of one scalar on one colour scale, in one line or wrapped, all drawn in their true aspect.

    slot: inches for the width of each picture, all in one line; by default what the row leaves, wrapped if wide.
    scene: what stands in the pictures.
    """

    def __init__(
        self,
        scalar: Scalar,
        panels: Sequence[Panel],
        heading: str,
        scale: ColourScale | None = None,
        slot: float | None = None,
        scene: Scene = NOWHERE,
    ):
        self.scalar, self.panels, self.heading, self.scene = scalar, panels, heading, scene
        self.scale = scale or colours.colour_scale(scalar, [panel.values for panel in panels])
        widest = max(panel.aspect for panel in panels)
        most = 4 if widest < 1.7 else 2 if widest < 5 else 1
        self.columns = len(panels) if slot else min(most, len(panels))
        self.rows = -(-len(panels) // self.columns)
        slot = slot or (INNER - (self.columns - 1) * PANEL_GAP) / self.columns
        self.panel_height = min(_PANEL_HEIGHT, slot / widest)
        self.panel_width = widest * self.panel_height
        self.width = self.columns * (self.panel_width + PANEL_GAP) - PANEL_GAP + BAR_ROOM
        self.step = self.panel_height + (0.42 if self._shared else 0.85)
        self.height = self.rows * self.step - (self.step - self.panel_height)

    @property
    def _shared(self) -> bool:
        """Tell whether all panels show the same plane, so that only the outer ones need axis labels."""
        return len({(panel.horizontal, panel.vertical) for panel in self.panels}) == 1

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        width = self.panel_width
        for i, panel in enumerate(self.panels):
            row, column = divmod(i, self.columns)
            place = (left + column * (width + PANEL_GAP), top + row * self.step)
            axes = sheet.axes(*place, panel.aspect * self.panel_height, self.panel_height, plain=True)
            self._picture(axes, panel)
            lowest = i + self.columns >= len(self.panels)
            first = column == 0 or panel.vertical != self.panels[i - 1].vertical
            self._axis_labels(axes, panel, below=lowest, beside=first)
        bar_left = left + self.width - BAR_ROOM + _BAR_GAP
        colour_bar(sheet, self.scale, self.scalar, (bar_left, top, _BAR, self.height))

    def _picture(self, axes: Axes, panel: Panel) -> None:
        even = panel.scalar.evened(panel.values, panel.vertical, panel.horizontal)
        values = scalars.reduce_to(even, _MOST_PIXELS)
        axes.imshow(self.scale.colours(values), origin="lower", extent=panel.extent, aspect="auto")
        if panel.dots is not None:
            axes.plot(*panel.dots.T, "o", color=INK, markersize=2.6, markeredgecolor="white", markeredgewidth=0.5)
            axes.set_xlim(*panel.extent[:2])
            axes.set_ylim(*panel.extent[2:])
        if panel.flow is not None:
            even = [panel.scalar.evened(part, panel.vertical, panel.horizontal) for part in panel.flow]
            draw_streamlines(axes, panel.extent, (even[0], even[1]))
        draw_scene(axes, self.scene, panel.scalar, panel.horizontal, panel.vertical, panel.cut, panel.time)
        axes.set_title(panel.title, fontsize=NORMAL, color=INK, pad=4, loc="left", parse_math=False)
        if not np.isfinite(values).any():
            say_empty(axes)

    def _axis_labels(self, axes: Axes, panel: Panel, *, below: bool, beside: bool) -> None:
        set_ticks(axes, most=4)
        axes.tick_params(labelbottom=below, labelleft=beside)
        if below:
            axes.set_xlabel(axis_title(panel.scalar, panel.horizontal), fontsize=NORMAL, color=INK)
        if beside:
            axes.set_ylabel(axis_title(panel.scalar, panel.vertical), fontsize=NORMAL, color=INK)


def draw_streamlines(axes: Axes, extent: Sequence[float], flow: tuple[np.ndarray, np.ndarray]) -> None:
    """Streamlines of velocities [vertical, horizontal] at cell centres within `extent`; blank where nothing moves."""
    u, v = (np.nan_to_num(scalars.reduce_to(part, _STREAM_CELLS)) for part in flow)
    left, right, low, high = extent
    x = left + (right - left) * (np.arange(u.shape[1]) + 0.5) / u.shape[1]
    y = low + (high - low) * (np.arange(u.shape[0]) + 0.5) / u.shape[0]
    if not np.any(np.hypot(u, v) > 0):
        return
    axes.streamplot(x, y, u, v, color="white", linewidth=0.55, density=0.9, arrowsize=0.6)
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


class LineRow:
    """Profiles on a line, at several times or of several members, and their space-time diagram.

    The exact solution, where the scene knows one, is dashed over the profiles.
    """

    height = 3.6  # with two lines of the legend
    width = FULL_WIDTH
    _LEGEND = 0.4

    def __init__(self, scalar: Scalar, scene: Scene = NOWHERE):
        self.scalar = scalar
        self.exact = scene.exact.get(scalar.name) if "member" not in scalar.dataset.sizes else None
        self.heading = scalar.label + ("; the exact solution is dashed" if self.exact else "")
        self.label = with_units(scalar.label, scalar.units)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        if "member" in self.scalar.dataset.sizes:
            self._members(sheet.axes(left, top, 0.85 * INNER, self.height), sheet)
            return
        frames = self.scalar.dataset.sizes["time"]
        together = frames > 2
        width = 0.44 * INNER if together else 0.85 * INNER
        self._profiles(sheet.axes(left, top + self._LEGEND, width, self.height - self._LEGEND))
        if together:
            self._space_time(sheet, left + width + 0.8, top, INNER - width - 0.8)

    def _profiles(self, axes: Axes) -> None:
        dataset = self.scalar.dataset
        chosen = scalars.shown_frames(self.scalar, 6)
        labels = scalars.frame_labels(dataset, chosen)
        position, instants = self.scalar.coordinate(self.scalar.axes[0]), scalars.file_times(dataset)
        shades = colormap("dense")(np.linspace(0.25, 0.9, len(chosen)))
        for frame, label, shade in zip(chosen, labels, shades, strict=True):
            axes.plot(position, gaps(self.scalar.values(frame)), color=shade, linewidth=1.4, label=label)
            if self.exact is not None:
                exact = gaps(self.exact(float(instants[frame])))
                axes.plot(position, exact, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        legend_above(axes, 3)
        if self.scalar.limits is not None:
            axes.set_ylim(*self.scalar.limits)
        self._finish(axes)

    def _finish(self, axes: Axes) -> None:
        axes.set_xlim(*self.scalar.extent(self.scalar.axes[0]))
        axes.set_xlabel(axis_title(self.scalar, self.scalar.axes[0]), fontsize=NORMAL, color=INK)
        axes.set_ylabel(self.label, fontsize=NORMAL, color=INK)
        set_ticks(axes)

    def _members(self, axes: Axes, sheet: Sheet) -> None:
        dataset = self.scalar.dataset
        last = dataset.sizes["time"] - 1
        chosen = scalars.spread(dataset.sizes["member"], _MOST_LINES)
        profiles = np.stack([self.scalar.values(last, member) for member in chosen])
        position = self.scalar.coordinate(self.scalar.axes[0])
        _member_lines(sheet, axes, dataset, np.asarray(chosen), position, gaps(profiles))
        axes.set_title(scalars.frame_labels(dataset, [last])[0], fontsize=NORMAL, color=INK, loc="left", pad=4)
        self._finish(axes)

    def _space_time(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        dataset = self.scalar.dataset
        chosen = scalars.spread(dataset.sizes["time"], _MOST_PIXELS)
        profiles = (self.scalar.evened(self.scalar.values(i), self.scalar.axes[0]) for i in chosen)
        history = np.stack([scalars.reduce_to(profile, _MOST_PIXELS) for profile in profiles])
        scale = colours.colour_scale(self.scalar, [history])
        instants = scalars.times(dataset)
        extent = (*self.scalar.extent(self.scalar.axes[0]), float(instants[0]), float(instants[-1]))
        top, height = top + self._LEGEND, self.height - self._LEGEND
        axes = sheet.axes(left, top, width, height, plain=True)
        axes.imshow(scale.colours(history), origin="lower", extent=extent, aspect="auto")
        axes.set_xlabel(axis_title(self.scalar, self.scalar.axes[0]), fontsize=NORMAL, color=INK)
        axes.set_ylabel(with_units("t", scalars.time_units(dataset)), fontsize=NORMAL, color=INK)
        set_ticks(axes)
        colour_bar(sheet, scale, self.scalar, (left + width + _BAR_GAP, top, _BAR, height))


class CurveRow:
    """Diagnostics over time, side by side; the curves of an ensemble take the colour of their parameter."""

    height = _CURVE_HEIGHT
    width = FULL_WIDTH

    def __init__(self, dataset: xr.Dataset, names: Sequence[str]):
        self.dataset, self.names = dataset, names
        self.heading = "Diagnostics"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        instants = scalars.times(self.dataset)
        for name, axes in zip(self.names, side_by_side(sheet, left, top, len(self.names)), strict=True):
            drawn = curves.curve(self.dataset, name)
            values = drawn.values
            if values.shape[0] == 1:
                marker = "o" if np.isfinite(values).sum() == 1 else ""
                axes.plot(instants, values[0], color=ACCENT, linewidth=1.4, marker=marker, markersize=4)
            else:
                chosen = np.asarray(scalars.spread(values.shape[0], _MOST_LINES))
                bar_on = sheet if name == self.names[-1] else None
                _member_lines(bar_on, axes, self.dataset, chosen, instants, values[chosen])
            set_value_range(axes, drawn)
            if instants.size > 1:
                axes.set_xlim(instants[0], instants[-1])
            axes.set_xlabel(with_units("t", scalars.time_units(self.dataset)), fontsize=NORMAL, color=INK)
            name_curve(sheet, axes, drawn.label)


def side_by_side(
    sheet: Sheet,
    left: float,
    top: float,
    count: int,
    *,
    height: float = _CURVE_HEIGHT,
    columns: int = 3,
    gap: float = _CURVE_GAP,
) -> list[Axes]:
    """`count` axes beside one another, as wide as if there were at least so many columns."""
    columns = max(columns, count)
    width = (INNER - (columns - 1) * gap) / columns
    return [sheet.axes(left + i * (width + gap), top, width, height) for i in range(count)]


def name_curve(sheet: Sheet, axes: Axes, label: str) -> None:
    """Title the axes of a curve, smaller where the label is long."""
    # The room of a title ends where that of the next axes begins.
    room = axes.get_position().width * sheet.width + 0.85 * _CURVE_GAP
    size = NORMAL * min(1.0, max(0.72, room / (_LETTER * len(label))))
    axes.set_title(label, fontsize=size, color=INK, loc="left", pad=5, parse_math=False)
    set_ticks(axes, most=4)


def say_empty(axes: Axes, why: str = "no finite values") -> None:
    """Write into the axes why nothing is drawn there."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", fontsize=SMALL, color=MUTED)


def set_value_range(axes: Axes, drawn: Curve) -> None:
    """Set the ends and the kind of the vertical axis for a curve."""
    axes.set_ylim(*((0.0, 1.0) if drawn.empty else drawn.limits))
    if drawn.logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(bottom=drawn.limits[0])
    if drawn.empty:
        say_empty(axes)


def _member_lines(
    sheet: Sheet | None,
    axes: Axes,
    dataset: xr.Dataset,
    members: np.ndarray,
    x: np.ndarray,
    lines: np.ndarray,
) -> None:
    """One thin line for each member; with a `sheet`, the colour bar of the parameter beside the axes."""
    segments = [np.column_stack([x, line]) for line in lines]
    parameters = scalars.varied_parameters(dataset)
    collection = LineCollection(segments, linewidths=0.9, alpha=0.8, colors=ACCENT)
    if parameters:
        name, values = next(iter(parameters.items()))
        finite = values[np.isfinite(values)]
        norm = (LogNorm if curves.wide_range(values, 20) else Normalize)(finite.min(), finite.max())
        collection = LineCollection(segments, linewidths=0.9, alpha=0.9, norm=norm, cmap=colormap("thermal"))
        collection.set_array(values[members])
        if sheet is not None:
            box = axes.get_position()
            place = (box.x1 * sheet.width + 0.12, (1 - box.y1) * sheet.height, 0.1, box.height * sheet.height)
            label = with_units(scalars.short(name), scalars.units_of(dataset, name))
            parameter_bar(sheet, ScalarMappable(norm, colormap("thermal")), label, place)
    axes.add_collection(collection)
    axes.autoscale_view()


def gaps(values: np.ndarray) -> np.ndarray:
    """The values with NaN for what is not finite, which breaks a line."""
    return np.where(np.isfinite(values), values, np.nan)
