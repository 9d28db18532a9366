"""summary.png: the field at several times, and the diagnostics over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from simjax.io.readable import readable
from simjax.report import colours, curves, scalars
from simjax.report.labels import quantity
from simjax.report.particle_painter import counted_particles
from simjax.report.particle_summary import particle_rows
from simjax.report.scalars import Scalar
from simjax.report.scene import NOWHERE, Scene
from simjax.report.sheet import LARGE, MUTED, Sheet
from simjax.report.summary_rows import BAR_ROOM, FULL_WIDTH, PANEL_GAP, CurveRow, LineRow, Panel, PanelRow
from simjax.report.sweep_rows import member_rows
from simjax.report.volume import VolumeRow
from simjax.schema.model_schema import SPEED

if TYPE_CHECKING:
    import xarray as xr

_WIDTH, _DPI = 11.0, 130
_LEFT, _TOP, _BOTTOM = 0.75, 1.35, 0.6
_ROW_GAP, COLUMN_GAP = 1.05, 0.5
ONE_LINE = 3.2  # inches: the height of pictures in one line
STEADY = 0.01  # of the largest speed, between the last two frames


class Row(Protocol):
    """A strip of the figure: its size in inches, its heading, and how to draw it from (left, top) down."""

    height: float
    width: float
    heading: str

    def draw(self, sheet: Sheet, left: float, top: float) -> None: ...


def write_summary(
    dataset: xr.Dataset,
    path: Path,
    *,
    title: str = "",
    subtitle: str = "",
    scene: Scene = NOWHERE,
    formats: Sequence[str] = ("png",),
) -> Path:
    """Draw the run as one picture, `path` in each of the `formats` (png, pdf, svg), and return the first one's path.

    One dimension: profiles and their space-time diagram. Two: the main scalar at up to four times, and the
    speed, with streamlines where it ends steady. Three: surfaces of equal value, and mid-planes, each titled with its
    position. Where the scene knows the exact solution it is drawn beside. Ensembles: members at the last time, their
    mean and variance where these are written, and the last diagnostics against what varies, the strongest dependence
    first. Below: the diagnostics over time. Particles: pictures at up to four times, energies, temperature,
    speeds. Values that are not finite are left grey or blank.
    Long times and lengths are in days and kilometres, short ones in milliseconds and micrometres.
    """
    dataset = readable(dataset)
    named = {"title": title or str(dataset.attrs.get("title", "")), "subtitle": subtitle or describe(dataset)}
    return write_rows(_rows(dataset, scene), path, **named, otherwise="No output frame was written.", formats=formats)


def write_rows(
    rows: Sequence[Row], path: Path, *, title: str, subtitle: str, otherwise: str, formats: Sequence[str] = ("png",)
) -> Path:
    """Draw rows below one another, narrow ones side by side, at `path`; where there is none, a sentence.

    One file is written for each of the `formats`, with its suffix; the path of the first one is returned.
    """
    strips = _strips(rows)
    height = _TOP + sum(_height(strip) for strip in strips) + _ROW_GAP * max(0, len(strips) - 1) + _BOTTOM
    sheet = Sheet(_WIDTH, max(height, 2.0), _DPI)
    sheet.text(_LEFT, 0.22, title, size=LARGE, bold=True)
    sheet.text(_LEFT, 0.53, subtitle, color=MUTED)
    if not strips:
        sheet.text(_LEFT, 1.0, otherwise)
    top = _TOP
    for strip in strips:
        left = _LEFT
        for row in strip:
            draw_row(row, sheet, left, top)
            left += row.width + COLUMN_GAP
        top += _height(strip) + _ROW_GAP
    written = [sheet.save(path.with_suffix(f".{form}")) for form in formats]
    return written[0]


def draw_row(row: Row, sheet: Sheet, left: float, top: float) -> None:
    """A row from (left, top) down, with its heading above."""
    sheet.text(left, top - 0.45, row.heading, bold=True)
    row.draw(sheet, left, top)


def _strips(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows from the top; narrow ones stand side by side."""
    strips: list[list[Row]] = []
    room = 0.0
    for row in rows:
        if row.width + COLUMN_GAP <= room:
            strips[-1].append(row)
            room -= row.width + COLUMN_GAP
        else:
            strips.append([row])
            room = FULL_WIDTH - row.width
    return strips


def _height(strip: Sequence[Row]) -> float:
    return max(row.height for row in strip)


def describe(dataset: xr.Dataset) -> str:
    """One line: cells or particles, members, frames, and the time reached."""
    instants = scalars.times(dataset)
    if instants.size == 0:
        return ""
    parts = []
    drawable = [] if "particle" in dataset.sizes else scalars.scalars(dataset)
    if "particle" in dataset.sizes:
        parts.append(counted_particles(dataset))
    if drawable:
        parts.append(" × ".join(str(drawable[0].cells(axis)) for axis in reversed(drawable[0].axes)) + " cells")
    if "member" in dataset.sizes:
        parts.append(f"{dataset.sizes['member']} members")
    frames = "1 frame" if instants.size == 1 else f"{instants.size} frames"
    parts.append(f"{frames} to t = {quantity(float(instants[-1]), scalars.time_units(dataset), 4)}")
    return ", ".join(parts)


def _rows(dataset: xr.Dataset, scene: Scene) -> list[Row]:
    """Rows of the picture, from the top."""
    if dataset.sizes.get("time", 0) == 0:
        return []
    if "particle" in dataset.sizes:
        return particle_rows(dataset, scene)
    rows: list[Row] = []
    drawable = scalars.scalars(dataset)
    if drawable and len(drawable[0].axes) == 1:
        rows.append(LineRow(drawable[0], scene))
    elif drawable and drawable[0].of_members:
        rows.append(_member_row(drawable[0], scene))
    elif drawable:
        rows.extend(_field_rows(drawable, scene))
    rows.extend(_statistic_rows(dataset, drawable[0].name if drawable else "", scene))
    names = curves.diagnostics(dataset)[:4]
    if names and "member" in dataset.sizes:
        rows.extend(member_rows(dataset, names))
    elif names:
        rows.append(CurveRow(dataset, names))
    return rows


def _statistic_rows(dataset: xr.Dataset, main: str, scene: Scene) -> list[Row]:
    """The mean over members and the variance of the main scalar over time, where they are written, in a plane."""
    of_main = [one for one in scalars.statistics(dataset) if one.name in (f"{main}_mean", f"{main}_variance")]
    found = of_main or [one for one in scalars.statistics(dataset) if one.name.endswith(("_mean", "_variance"))][:2]
    shown = [(one, scalars.shown_frames(one, 4)) for one in found if len(one.axes) >= 2]
    return [PanelRow(one, _panels(one, frames, "z"), one.label, scene=scene) for one, frames in shown]


def _field_rows(drawable: Sequence[Scalar], scene: Scene) -> list[Row]:
    """The main scalar over time, then surfaces and its other mid-planes in 3-D, or the speed beside a vorticity in 2-D;
    the exact solution where it is known."""
    main = drawable[0]
    last = scalars.last_finite(main)
    frames = scalars.shown_frames(main, 4)
    over_time = _panels(main, frames, "z")
    if len(main.axes) == 3:
        shown = sorted({frames[len(frames) // 2], last})
        across = [panel for axis in ("y", "x") for panel in _panels(main, shown, axis)]
        scale = colours.colour_scale(main, [panel.values for panel in [*over_time, *across]])
        level = PanelRow(
            main, over_time, f"{main.label} on the mid-plane across z{_until(main, last)}", scale, scene=scene
        )
        others = PanelRow(main, across, f"{main.label} on the mid-planes across y and x", scale, scene=scene)
        return [level, VolumeRow(main, frames), others]
    rows: list[Row] = [PanelRow(main, over_time, main.label + _until(main, last), scene=scene)]
    if rows[0].height <= ONE_LINE:
        for speed in [other for other in drawable[1:] if other.name == SPEED]:
            rows.append(_speed_row(speed, frames, scene))
    exact = scene.exact.get(main.name)
    return [*rows, *([] if exact is None else _exact_rows(main, last, exact, scene))]


def _speed_row(speed: Scalar, frames: Sequence[int], scene: Scene) -> PanelRow:
    """The speed at some times, with streamlines where the flow does not change any more at the end."""
    panels = _panels(speed, frames, "z")
    if not _ends_steady(speed):
        return PanelRow(speed, panels, speed.label, scene=scene)
    horizontal, vertical = ("xyz".index(axis) for axis in (panels[-1].horizontal, panels[-1].vertical))
    flow = speed.vector(frames[-1])
    panels[-1] = replace(panels[-1], flow=(flow[horizontal], flow[vertical]))
    return PanelRow(speed, panels, f"{speed.label}; streamlines of the steady flow", scene=scene)


def _ends_steady(speed: Scalar) -> bool:
    """Tell whether the last two frames of a plane flow are the same to a hundredth of its speed."""
    last = scalars.last_finite(speed)
    if last < 2 or len(speed.components) != 2:
        return False
    before, now = (np.stack(speed.vector(frame)) for frame in (last - 1, last))
    return float(np.max(np.abs(now - before))) < STEADY * float(np.max(np.abs(now)))


def _exact_rows(scalar: Scalar, last: int, exact: Callable[[float], np.ndarray], scene: Scene) -> list[Row]:
    """Draw the last state beside the exact solution, and their difference on a scale of its own."""
    computed = _panels(scalar, [last], "z")[0]
    known = exact(float(scalars.file_times(scalar.dataset)[last])).T
    slot = (FULL_WIDTH - 2 * BAR_ROOM - COLUMN_GAP - PANEL_GAP - 1e-6) / 3
    both = [replace(computed, title=f"computed, {computed.title}"), replace(computed, values=known, title="exact")]
    together = PanelRow(scalar, both, f"{scalar.label} against the exact solution", slot=slot, scene=scene)
    named = replace(scalar, name="error", label="Computed − exact")
    error = replace(computed, scalar=named, values=computed.values - known, title="computed − exact")
    scale = colours.diverging_scale([error.values])
    return [together, PanelRow(named, [error], "Error", scale, slot=slot, scene=scene)]


def _until(scalar: Scalar, last: int) -> str:
    """A note where the run went on after its last finite frame."""
    if last == scalar.dataset.sizes["time"] - 1:
        return ""
    instant = float(scalars.times(scalar.dataset)[last])
    return f" (not finite after t = {quantity(instant, scalars.time_units(scalar.dataset), 4)})"


def _panels(scalar: Scalar, frames: Sequence[int], normal: str) -> list[Panel]:
    """One panel for each frame, on the mid-plane across `normal` in 3-D, titled with time and position."""
    labels = scalars.frame_labels(scalar.dataset, frames)
    return [_panel(scalar, i, None, normal, label) for i, label in zip(frames, labels, strict=True)]


def _panel(scalar: Scalar, frame: int, member: int | None, normal: str, title: str) -> Panel:
    cut, position = scalar.mid_plane(normal)
    vertical, horizontal = (axis for axis in scalar.axes if axis not in cut)
    values, time = scalar.values(frame, member, cut), float(scalars.file_times(scalar.dataset)[frame])
    title = f"{title}, {position}" if position else title
    return Panel(scalar, values, title, horizontal, vertical, cut=cut, time=time)


def _member_row(scalar: Scalar, scene: Scene) -> PanelRow:
    """Up to eight members at the last time, in the order of the parameter that varies."""
    dataset = scalar.dataset
    last = dataset.sizes["time"] - 1
    order = scalars.member_order(dataset)
    well = [member for member in order if not scalars.failed(dataset, member)] or order
    chosen = [well[i] for i in scalars.spread(len(well), 8)]
    panels = [_panel(scalar, last, member, "z", scalars.member_label(dataset, member)) for member in chosen]
    now = quantity(float(scalars.times(dataset)[last]), scalars.time_units(dataset), 4)
    count = f", {len(chosen)} of {len(order)} members" if len(chosen) < len(order) else ", every member"
    return PanelRow(scalar, panels, f"{scalar.label} at t = {now}{count}", scene=scene)
