"""Surfaces of equal value in a box, seen from the front, the right and above: rays through the values, shaded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from simjax.report import scalars
from simjax.report.labels import quantity, with_units
from simjax.report.particle_painter import LIGHT, View, axis_marks, space_view
from simjax.report.scalars import Scalar
from simjax.report.sheet import FAINT, INK, MUTED, NORMAL, SMALL, Sheet
from simjax.report.summary_rows import FULL_WIDTH, INNER, PANEL_GAP, say_empty

_HEIGHT, _DOTS, _MOST_CELLS = 3.4, 110, 96
_SIGNED = (np.array([196, 68, 52]), np.array([44, 98, 170]))
_SINGLE = np.array([222, 160, 64])
LEVEL = 0.4  # of the largest value
_REFINEMENTS = 6
_BESIDE = {"x": ((-0.04, 0.045), "center", -14), "y": ((0.04, 0.045), "center", 28), "z": ((-0.03, 0.0), "center", 90)}


class VolumeRow:
    """Surfaces of a scalar at up to three times: of one value, or of two of opposite signs."""

    width = FULL_WIDTH

    def __init__(self, scalar: Scalar, frames: Sequence[int]):
        self.scalar, self.frames = scalar, list(frames)[-3:]
        self.titles = scalars.frame_labels(scalar.dataset, self.frames)
        even = (scalar.evened(scalar.values(frame), *scalar.axes, most=_MOST_CELLS) for frame in self.frames)
        volumes = [scalars.reduce_to(values, _MOST_CELLS).transpose(2, 1, 0) for values in even]
        self.volumes = [np.nan_to_num(volume) for volume in volumes]
        highest = max((float(np.quantile(np.abs(volume), 0.999)) for volume in self.volumes), default=0.0)
        lowest = min(float(volume.min()) for volume in self.volumes)
        self.level = LEVEL * highest
        self.signed = lowest < -self.level
        ends = [scalar.extent(axis) for axis in "xyz"]
        self.view = space_view(np.array([end[0] for end in ends]), np.array([end[1] for end in ends]))
        self._slot = (INNER - 2 * PANEL_GAP) / 3
        self.height = min(_HEIGHT, self._slot / self.view.aspect)
        shown = quantity(self.level, scalar.units)
        self.heading = f"Surfaces of {scalar.label.lower()} {'±' if self.signed else ''}{shown}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        slot, height, width = self._slot, self.height, self.height * self.view.aspect
        for i, (volume, title) in enumerate(zip(self.volumes, self.titles, strict=True)):
            axes = sheet.axes(left + i * (slot + PANEL_GAP), top, width, height, plain=True)
            self._picture(axes, volume, (round(_DOTS * width), round(_DOTS * height)))
            axes.set_title(title, fontsize=NORMAL, color=INK, pad=4, loc="left", parse_math=False)

    def _picture(self, axes: Axes, volume: np.ndarray, size: tuple[int, int]) -> None:
        left, right, low, high = self.view.frame
        margin = 0.02 * (right - left)
        axes.set_xlim(left - margin, right + margin)
        axes.set_ylim(low - margin, high + margin)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        draw_edges(axes, self.view, behind=True)
        if self.level > 0 and np.max(np.abs(volume)) >= self.level:
            picture = surfaces(volume, self.view, self.level, self.signed, size)
            axes.imshow(picture, extent=(left, right, low, high), aspect="auto", zorder=2, interpolation="antialiased")
        else:
            say_empty(axes, "below these values")
        draw_edges(axes, self.view, behind=False)
        for name, x, y in axis_marks(self.view, 0.0, (right - left, high - low)):
            (across, down), side, turned = _BESIDE[name[0]]
            x, y = left + x + across * (right - left), high - y - down * (high - low)
            axes.text(
                x,
                y,
                with_units(name, self.scalar.axis_label(name[0])[1]),
                ha=side,
                va="center",
                fontsize=SMALL - 1,
                color=MUTED,
                rotation=turned,
                clip_on=False,
            )


def draw_edges(axes: Axes, view: View, *, behind: bool) -> None:
    """The edges of the box: those that end in the corner furthest from who looks lie behind the rest."""
    corners, seen = view.corners, view.project(view.corners)
    far = int(np.argmin(seen[:, 2]))
    for a, b in itertools.combinations(range(8), 2):
        if np.count_nonzero(corners[a] != corners[b]) == 1 and (far in (a, b)) == behind:
            axes.plot(*seen[[a, b], :2].T, color=FAINT, linewidth=0.7, zorder=1 if behind else 3, clip_on=False)


def surfaces(volume: np.ndarray, view: View, level: float, signed: bool, size: tuple[int, int]) -> np.ndarray:
    """Render the surfaces where values [x, y, z] at cell centres are `level`, and its negative where `signed`.

    An 8-bit picture (height, width, 4), its upper row first, transparent where there is none. Along the ray of each
    pixel the first crossing is refined by halving; light falls on it by the gradient there.
    """
    from scipy.ndimage import map_coordinates

    left, right, low, high = view.frame
    width, height = size
    u = left + (right - left) * (np.arange(width) + 0.5) / width
    v = high - (high - low) * (np.arange(height) + 0.5) / height
    depth = view.project(view.corners)[:, 2]
    steps = int(1.5 * max(volume.shape))
    towards = np.linspace(depth.max(), depth.min(), steps)
    middle, spacing = 0.5 * (view.lower + view.upper), (view.upper - view.lower) / volume.shape
    plane = u[None, :, None] * view.axes[0] + v[:, None, None] * view.axes[1]
    start = (plane.reshape(-1, 3) + middle - view.lower) / spacing - 0.5
    along = view.axes[2] / spacing
    loud = np.abs(volume) if signed else volume
    lower = float(min(loud.min(), 0.0))

    def at(values: np.ndarray, places: np.ndarray, outside: float) -> np.ndarray:
        return map_coordinates(values, places.T, order=1, mode="constant", cval=outside)

    hit = np.full(len(start), np.nan)
    waiting = np.arange(len(start))
    for before, now in zip(towards[:-1], towards[1:], strict=True):
        inside = at(loud, start[waiting] + now * along, lower) >= level
        hit[waiting[inside]] = 0.5 * (before + now)
        near, far = np.full(inside.sum(), before), np.full(inside.sum(), now)
        for _ in range(_REFINEMENTS):
            half = 0.5 * (near + far)
            beyond = at(loud, start[waiting[inside]] + half[:, None] * along, lower) >= level
            near, far = np.where(beyond, near, half), np.where(beyond, half, far)
        hit[waiting[inside]] = far
        waiting = waiting[~inside]
        if waiting.size == 0:
            break
    found = np.flatnonzero(np.isfinite(hit))
    places = start[found] + hit[found, None] * along
    slopes = np.stack([at(slope, places, 0.0) for slope in np.gradient(loud, *spacing)], 1)
    normal = -slopes @ view.axes.T
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    light = LIGHT / np.linalg.norm(LIGHT)
    # Both sides of a surface that the box cuts are lit.
    bright = np.clip(0.5 + 0.55 * np.abs(normal @ light), 0, 1)[:, None]
    base = np.broadcast_to(_SINGLE, (len(found), 3))
    if signed:
        positive = at(volume, places, 0.0) > 0
        base = np.where(positive[:, None], *_SIGNED)
    fog = 0.35 * ((depth.max() - hit[found]) / max(float(np.ptp(depth)), 1e-30))[:, None]
    colours = base * bright
    picture = np.zeros((height * width, 4), np.uint8)
    picture[found, :3] = np.rint(colours + (255 - colours) * fog)
    picture[found, 3] = 255
    return picture.reshape(height, width, 4)
