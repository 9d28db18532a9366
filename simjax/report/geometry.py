"""Walls, media, sources and receivers in a picture of a plane."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from simjax.report.scalars import Scalar
from simjax.report.scene import Scene, outline_levels
from simjax.report.sheet import INK

_WALL = 3.2  # width of a wall's line in points
_SHADE, _LINE = 0.13, 0.9
_MARKERS = {"source": "*", "receiver": "v"}


def draw_scene(axes: Axes, scene: Scene, scalar: Scalar, horizontal: str, vertical: str, cut: dict[str, int]) -> None:
    """Solid sides as thick lines, edges of media as thin ones, the denser of two media shaded, sources as stars and
    receivers as triangles. `cut` is the cell index along the axis across the plane, of three."""
    limits = axes.get_xlim(), axes.get_ylim()
    if scene.box:
        for values in scene.media.values():
            _medium(axes, scene, values, scalar, horizontal, vertical, cut)
        for name, places in scene.marks.items():
            x, y = (places[:, "xyz".index(axis)] / scalar.scale(axis) for axis in (horizontal, vertical))
            size = 11 if name == "source" else 6
            axes.plot(
                x, y, _MARKERS.get(name, "o"), color=INK, markersize=size, markeredgecolor="white", markeredgewidth=0.8
            )
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    for axis, side in sorted(scene.walls):
        if axis == horizontal:
            axes.axvline(limits[0][side == "upper"], color=INK, linewidth=_WALL, clip_on=False)
        elif axis == vertical:
            axes.axhline(limits[1][side == "upper"], color=INK, linewidth=_WALL, clip_on=False)


def _medium(axes: Axes, scene: Scene, values: np.ndarray, scalar: Scalar, horizontal: str, vertical: str, cut) -> None:
    for axis in sorted(cut, key="xyz".index, reverse=True):
        number, count = "xyz".index(axis), scalar.coordinate(axis).size
        index = min(cut[axis] * values.shape[number] // count, values.shape[number] - 1)
        values = np.take(values, index, axis=number)
    levels = outline_levels(values)
    if not levels:
        return
    shown = [scene.centres(n, count) / scalar.scale(a)
             for n, a, count in _plane_axes(horizontal, vertical, values)]  # fmt: skip
    outlines = axes.contour(*shown, values.T, levels, colors=[INK], linewidths=_LINE)
    outlines.set_path_effects([withStroke(linewidth=_LINE + 1.2, foreground="white", alpha=0.6)])  # on dark colours
    if len(levels) == 1:
        axes.contourf(*shown, values.T, [levels[0], np.inf], colors=[INK], alpha=_SHADE)


def _plane_axes(horizontal: str, vertical: str, values: np.ndarray) -> list[tuple[int, str, int]]:
    """Number, name and cells of both axes of the plane, the horizontal one first: values are indexed alike."""
    return [("xyz".index(axis), axis, values.shape[place]) for place, axis in enumerate((horizontal, vertical))]
