"""Walls, bodies, media, sources and receivers in a picture of a plane."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from simjax.report.scalars import Scalar
from simjax.report.scene import Scene, outline_levels
from simjax.report.sheet import INK

_WALL = 3.2  # width of a wall's line in points
_SHADE, _LINE = 0.13, 0.9
_BODY = "#9a9a9a"
_MARKERS = {"source": "*", "receiver": "v"}


def draw_scene(
    axes: Axes, scene: Scene, scalar: Scalar, horizontal: str, vertical: str, cut: dict[str, int], time: float = 0.0
) -> None:
    """Solid sides as thick lines, bodies grey, edges of media as thin lines, the denser of two media shaded, sources as
    stars and receivers as triangles. `cut` is the cell index along the axis across the plane, of three; `time` that of
    the fields."""
    limits = axes.get_xlim(), axes.get_ylim()
    if scene.box:
        if scene.bodies is not None:
            _bodies(axes, scene, scene.bodies(time), scalar, horizontal, vertical, cut)
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


def _bodies(
    axes: Axes, scene: Scene, distance: np.ndarray, scalar: Scalar, horizontal: str, vertical: str, cut
) -> None:
    distance = _in_plane(distance, scalar, cut)
    if distance.min() < 0:
        places = _places(scene, scalar, horizontal, vertical, distance)
        axes.contourf(*places, distance.T, [-np.inf, 0.0], colors=[_BODY])
        axes.contour(*places, distance.T, [0.0], colors=[INK], linewidths=_LINE)


def _in_plane(values: np.ndarray, scalar: Scalar, cut: dict[str, int]) -> np.ndarray:
    """The values in the plane of a picture."""
    for axis in sorted(cut, key="xyz".index, reverse=True):
        number, count = "xyz".index(axis), scalar.coordinate(axis).size
        index = min(cut[axis] * values.shape[number] // count, values.shape[number] - 1)
        values = np.take(values, index, axis=number)
    return values


def _places(scene: Scene, scalar: Scalar, horizontal: str, vertical: str, values: np.ndarray) -> list[np.ndarray]:
    """Centres of cells along both axes of the plane."""
    return [scene.centres(n, count) / scalar.scale(a) for n, a, count in _plane_axes(horizontal, vertical, values)]


def _medium(axes: Axes, scene: Scene, values: np.ndarray, scalar: Scalar, horizontal: str, vertical: str, cut) -> None:
    values = _in_plane(values, scalar, cut)
    levels = outline_levels(values)
    if not levels:
        return
    shown = _places(scene, scalar, horizontal, vertical, values)
    outlines = axes.contour(*shown, values.T, levels, colors=[INK], linewidths=_LINE)
    outlines.set_path_effects([withStroke(linewidth=_LINE + 1.2, foreground="white", alpha=0.6)])  # on dark colours
    if len(levels) == 1:
        axes.contourf(*shown, values.T, [levels[0], np.inf], colors=[INK], alpha=_SHADE)


def _plane_axes(horizontal: str, vertical: str, values: np.ndarray) -> list[tuple[int, str, int]]:
    """Number, name and cells of both axes of the plane, the horizontal one first: values are indexed alike."""
    return [("xyz".index(axis), axis, values.shape[place]) for place, axis in enumerate((horizontal, vertical))]
