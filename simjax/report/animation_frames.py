"""Fixed parts of an animation, drawn once, and the painting of one frame into them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from simjax.report import colours, curves, scalars
from simjax.report.geometry import draw_scene
from simjax.report.labels import common_power, scaled_label
from simjax.report.scalars import Scalar
from simjax.report.scene import NOWHERE, Scene
from simjax.report.sheet import INK, MUTED, NORMAL, SMALL, Sheet, axis_title, colour_bar, set_ticks

_DPI = 100
_LEFT, _TOP, _BOTTOM, _BAR_ROOM, _GAP, _PANEL_TITLE = 64, 56, 48, 96, 26, 24
_AREA, _LONGEST = 176_000, 640  # pixels of all panels together; of one side
_LINE_SIZE = (600, 300)
_SUPERSAMPLING = 3
_LEGEND_LINE = 0.085  # of the height of the curves
_BOLD = 1.15  # how much wider bold letters are than the font that measures them
_LINE_COLOURS = ((31, 95, 168), (200, 82, 40), (35, 131, 87), (122, 70, 160))


class Stage:
    """A picture of `size` pixels with fixed surroundings; the panels end at the pixel column `right`."""

    def __init__(self, scalar: Scalar, frames: Sequence[int], title: str, size: tuple[int, int], right: int):
        self.scalar, self.right = scalar, right
        self.times = scalars.frame_labels(scalar.dataset, frames)
        self.size = size
        self.sheet = Sheet(size[0] / _DPI, size[1] / _DPI, _DPI)
        self.font = ImageFont.truetype(
            Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", round(11 * _DPI / 72)
        )
        cut, self.place = scalar.mid_plane("z")
        self.cut = cut
        self._write_title(title)

    def _write_title(self, title: str) -> None:
        """Title and scalar, the latter beside the time; both are shortened to the room there is."""
        # The position comes first because the colour bar repeats the name should it be cut off.
        below = f"{self.place} (mid-plane), {self.scalar.label}" if self.place else self.scalar.label
        beside = max(self.font.getlength(label) for label in self.times) + 16
        if self.font.getlength(below) > self.right - _LEFT - beside:
            self.right = self.size[0] - 12
        above = _shortened(title, (self.size[0] - _LEFT - 12) / _BOLD, self.font)
        self.sheet.text(_LEFT / _DPI, 0.08, above, size=11, bold=True)
        below = _shortened(below, self.right - _LEFT - beside, self.font)
        self.sheet.text(_LEFT / _DPI, 0.32, below, size=NORMAL, color=MUTED)

    def background(self) -> Image.Image:
        """The surroundings as matplotlib drew them."""
        self.sheet.canvas.draw()
        pixels = np.asarray(self.sheet.canvas.buffer_rgba())[..., :3]
        return Image.fromarray(np.ascontiguousarray(pixels))

    def write_time(self, picture: Image.Image, frame: int) -> None:
        """Write the time, right-aligned over the panels, so that all changing pixels lie in one rectangle."""
        at = (self.right, 46)
        ImageDraw.Draw(picture).text(at, self.times[frame], font=self.font, fill=INK, anchor="rs")


class PlaneStage(Stage):
    """Planes in colour: one, or up to four members of an ensemble side by side, on one scale."""

    def __init__(self, scalar: Scalar, frames: Sequence[int], title: str, scene: Scene = NOWHERE):
        dataset = scalar.dataset
        order = scalars.member_order(dataset)
        self.members = [order[i] for i in scalars.spread(len(order), 4)]
        cut, _ = scalar.mid_plane("z")
        self.vertical, self.horizontal = (axis for axis in scalar.axes if axis not in cut)
        left, right = scalar.extent(self.horizontal)
        low, high = scalar.extent(self.vertical)
        self.panel = _panel_size((right - left) / (high - low), len(self.members))
        columns = 1 if self.panel[0] > 2.2 * self.panel[1] else min(2, len(self.members))
        rows = -(-len(self.members) // columns)
        self.heading = _PANEL_TITLE if len(self.members) > 1 else 0
        self.corners = [
            (_LEFT + (i % columns) * (self.panel[0] + _GAP), self._row_top(i // columns))
            for i in range(len(self.members))
        ]
        width = self.corners[columns - 1][0] + self.panel[0] + _BAR_ROOM
        height = self._row_top(rows - 1) + self.panel[1] + _BOTTOM
        super().__init__(scalar, frames, title, (width, height), width - _BAR_ROOM)
        self.planes = [[self._plane(frame, member) for member in self.members] for frame in frames]
        self.scale = colours.colour_scale(scalar, [plane for planes in self.planes for plane in planes])
        self._surround(columns)
        self.empty = self.background()
        times = scalars.file_times(scalar.dataset)[list(frames)]
        once = self._drawn_scene(scene, float(times[0]))
        self.geometry = [self._drawn_scene(scene, float(t)) if scene.moving else once for t in times]

    def _drawn_scene(self, scene: Scene, time: float) -> Image.Image:
        """Walls, bodies, media, sources and receivers of one panel at a time, on nothing."""
        width, height = (side / _DPI for side in self.panel)
        sheet = Sheet(width, height, _DPI)
        sheet.figure.patch.set_alpha(0.0)
        axes = sheet.axes(0.0, 0.0, width, height, plain=True)
        axes.patch.set_alpha(0.0)
        axes.set_xlim(*self.scalar.extent(self.horizontal))
        axes.set_ylim(*self.scalar.extent(self.vertical))
        draw_scene(axes, scene, self.scalar, self.horizontal, self.vertical, self.cut, time)
        sheet.canvas.draw()
        return Image.fromarray(np.asarray(sheet.canvas.buffer_rgba()).copy())

    def _row_top(self, row: int) -> int:
        return _TOP + self.heading + row * (self.panel[1] + self.heading + _GAP // 2)

    def _plane(self, frame: int, member: int) -> np.ndarray:
        """The values with the upper end first, as pictures count, and no finer than they will be shown."""
        values = self.scalar.evened(self.scalar.values(frame, member, self.cut), self.vertical, self.horizontal)
        return np.ascontiguousarray(scalars.reduce_to(values, max(self.panel))[::-1], dtype=np.float32)

    def _surround(self, columns: int) -> None:
        extent = (*self.scalar.extent(self.horizontal), *self.scalar.extent(self.vertical))
        width, height = (side / _DPI for side in self.panel)
        for i, (member, (left, top)) in enumerate(zip(self.members, self.corners, strict=True)):
            axes = self.sheet.axes(left / _DPI, top / _DPI, width, height, plain=True)
            axes.set_xlim(extent[0], extent[1])
            axes.set_ylim(extent[2], extent[3])
            set_ticks(axes, most=4)
            below, beside = i + columns >= len(self.members), i % columns == 0
            axes.tick_params(labelbottom=below, labelleft=beside)
            if below:
                axes.set_xlabel(axis_title(self.scalar, self.horizontal), fontsize=NORMAL, color=INK)
            if beside:
                axes.set_ylabel(axis_title(self.scalar, self.vertical), fontsize=NORMAL, color=INK)
            if self.heading:
                label = scalars.member_label(self.scalar.dataset, member)
                axes.set_title(label, fontsize=SMALL, color=INK, loc="left", pad=4, parse_math=False)
        top, bottom = self.corners[0][1], self.corners[-1][1] + self.panel[1]
        bar_left = (self.size[0] - _BAR_ROOM + 16) / _DPI
        colour_bar(self.sheet, self.scale, self.scalar, (bar_left, top / _DPI, 0.13, (bottom - top) / _DPI))

    def draw(self, index: int) -> Image.Image:
        """The picture of the `index`-th frame shown."""
        picture = self.empty.copy()
        for values, (left, top) in zip(self.planes[index], self.corners, strict=True):
            # One pixel is left to the frame on each side.
            inner = (self.panel[0] - 2, self.panel[1] - 2)
            picture.paste(Image.fromarray(self.scale.colours(_fitted(values, inner))), (left + 1, top + 1))
            picture.paste(self.geometry[index], (left, top), self.geometry[index])
        self.write_time(picture, index)
        return picture


class LineStage(Stage):
    """A profile on a line, with the first one behind it; up to four members of an ensemble."""

    def __init__(self, scalar: Scalar, frames: Sequence[int], title: str):
        dataset = scalar.dataset
        order = scalars.member_order(dataset)
        self.members = [order[i] for i in scalars.spread(len(order), 4)]
        width, height = _LINE_SIZE
        size = (_LEFT + width + 24, _TOP + height + _BOTTOM)
        super().__init__(scalar, frames, title, size, _LEFT + width)
        self.corner = (_LEFT, _TOP)
        self.position = scalar.coordinate(scalar.axes[0])
        self.profiles = np.stack([[scalar.values(i, member) for member in self.members] for i in frames])
        low, high = scalar.limits or curves.value_range(self.profiles)
        # The legend of members stands above the curves.
        room = _LEGEND_LINE * len(self.members) * (high - low) if len(self.members) > 1 else 0.0
        self.limits = (low, high + room)
        self.span = scalar.extent(scalar.axes[0])
        self._surround()
        self.empty = self.background()
        self._paint(self.empty, self.profiles[0], 0.3)

    def _surround(self) -> None:
        axes = self.sheet.axes(_LEFT / _DPI, _TOP / _DPI, _LINE_SIZE[0] / _DPI, _LINE_SIZE[1] / _DPI)
        power = common_power(max(abs(limit) for limit in self.limits))
        axes.set_xlim(*self.span)
        axes.set_ylim(*(limit / 10.0**power for limit in self.limits))
        set_ticks(axes)
        axes.set_xlabel(axis_title(self.scalar, self.scalar.axes[0]), fontsize=NORMAL, color=INK)
        label = scaled_label(self.scalar.label, self.scalar.units, power)
        axes.set_ylabel(label, fontsize=NORMAL, color=INK)
        if len(self.members) > 1:
            for colour, member in zip(_LINE_COLOURS, self.members, strict=False):
                label = scalars.member_label(self.scalar.dataset, member)
                axes.plot([], [], color=[channel / 255 for channel in colour], label=label)
            axes.legend(fontsize=SMALL, frameon=False, loc="upper right", labelcolor=INK)

    def _paint(self, picture: Image.Image, profiles: np.ndarray, strength: float) -> None:
        """Lines drawn at three times the resolution and averaged, so that their edges are smooth."""
        width, height = (side * _SUPERSAMPLING for side in _LINE_SIZE)
        x = (self.position - self.span[0]) / (self.span[1] - self.span[0]) * width
        low, high = self.limits
        for profile, colour in zip(profiles, _LINE_COLOURS, strict=False):
            y = (high - profile) / (high - low) * height
            mask = Image.new("L", (width, height))
            pen = ImageDraw.Draw(mask)
            for run in finite_runs(y):
                points = np.column_stack([x[run], y[run]]).ravel().tolist()
                pen.line(points, fill=round(255 * strength), width=2 * _SUPERSAMPLING, joint="curve")
            picture.paste(colour, self.corner, mask.reduce(_SUPERSAMPLING))

    def draw(self, index: int) -> Image.Image:
        """The picture of the `index`-th frame shown."""
        picture = self.empty.copy()
        self._paint(picture, self.profiles[index], 1.0)
        self.write_time(picture, index)
        return picture


def finite_runs(values: np.ndarray) -> list[slice]:
    """The stretches of at least two finite values."""
    finite = np.concatenate([[False], np.isfinite(values), [False]])
    changes = np.flatnonzero(finite[1:] != finite[:-1]).reshape(-1, 2)
    return [slice(int(a), int(b)) for a, b in changes if b - a > 1]


def _panel_size(aspect: float, members: int) -> tuple[int, int]:
    """Pixels of one panel: the same area whatever the aspect, within the longest side."""
    area = _AREA / min(members, 2)
    width = min((area * aspect) ** 0.5, _LONGEST)
    height = min(width / aspect, _LONGEST)
    return max(48, round(height * aspect)), max(48, round(height))


def _fitted(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Values at the panel's pixels: cells stay visible on coarse grids, finer ones are interpolated."""
    coarse = min(size[0] / values.shape[1], size[1] / values.shape[0]) > 5
    method = Image.Resampling.NEAREST if coarse else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(values).resize(size, method))


def _shortened(text: str, room: float, font: ImageFont.FreeTypeFont) -> str:
    """The text, or as much of its beginning as fits into so many pixels, with an ellipsis."""
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…"
