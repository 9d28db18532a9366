"""The pictures of an inverse problem: convergence, estimates, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from simjax.core.model import Output
from simjax.grid import FACE, Grid
from simjax.io.frame_layout import Variable
from simjax.io.grid_layout import space_coordinates
from simjax.io.inverse_output import (
    FieldResult,
    InstrumentResult,
    InversionResult,
    field_variables,
    on_grid,
    relative_norm,
)
from simjax.report import colours
from simjax.report.animation import write_animation
from simjax.report.inverse_rows import (
    ConvergenceRow,
    CurveRow,
    HistogramRow,
    NumberRow,
    ParticleRow,
    ProfileRow,
    SensorRow,
)
from simjax.report.labels import title_case
from simjax.report.scalars import Scalar
from simjax.report.sheet import Sheet
from simjax.report.summary import COLUMN_GAP, Row, draw_row, write_rows
from simjax.report.summary_rows import BAR_ROOM, FULL_WIDTH, PANEL_GAP, Panel, PanelRow

CONVERGENCE_NAME, UNKNOWNS_NAME, RESIDUALS_NAME = "convergence.png", "unknowns.png", "residuals.png"
SEARCH_NAME = "search.webp"
_WIDE, _WIDEST = 1.7, 5.0  # aspects of a plane above which its panels take two strips, and a line each


def write_pictures(folder: Path, result: InversionResult) -> list[Path]:
    """Draws convergence.png, unknowns.png, residuals.png and search.webp into `folder`; the paths of what was drawn.

    residuals.png needs instruments, search.webp a field with at least two iterates. In 3-D the mid-plane across z
    is shown. Values that are not finite are left grey or blank.
    """
    folder = Path(folder)
    iterations = len(result.losses)
    named = {"title": result.title, "subtitle": f"{result.solver}, {iterations} iteration{'s' * (iterations != 1)}"}
    otherwise = "There is nothing to show."
    rows: dict[str, list[Row]] = {
        CONVERGENCE_NAME: [ConvergenceRow(result)],
        UNKNOWNS_NAME: [*_number_rows(result), *_curve_rows(result), *_field_rows(result)],
        RESIDUALS_NAME: _residual_rows(result),
    }
    drawn = [write_rows(row, folder / name, **named, otherwise=otherwise) for name, row in rows.items() if row]
    searched = next((sought for sought in result.fields if sought.on_grid and len(sought.iterates) > 1), None)
    if searched is not None:
        dataset = _search(searched, result)
        animation = write_animation(dataset, folder / SEARCH_NAME, title=result.title)
        drawn += [] if animation is None else [animation]
    return drawn


def _number_rows(result: InversionResult) -> list[Row]:
    return [NumberRow(result.numbers)] if result.numbers else []


def _curve_rows(result: InversionResult) -> list[Row]:
    return [CurveRow(module, module.curve) for module in result.modules if module.curve is not None]


def _residual_rows(result: InversionResult) -> list[Row]:
    # How far a target is missed is no noise.
    noisy = [instrument for instrument in result.instruments if instrument.kind != "target"]
    rows: list[Row] = [HistogramRow(noisy)] if noisy else []
    if any(instrument.positions is not None for instrument in result.instruments):
        rows.append(SensorRow(result.instruments, result.time_units))
    for instrument in result.instruments:
        if instrument.offset is not None and result.grid.ndim > 1:
            rows += _snapshot_rows(result, instrument, instrument.offset)
    return rows


def _snapshot_rows(result: InversionResult, instrument: InstrumentResult, offset: tuple[float, ...]) -> list[Row]:
    """The last of an instrument's snapshots, drawn as a field whose truth is what was measured, or wanted."""
    last = (values[-1] for values in (instrument.at_guess, instrument.at_estimate, instrument.measured))
    where = f"at t = {instrument.times[-1]:g} {result.time_units}"
    seen = FieldResult(where, instrument.units, (instrument.variable,), (offset,), *((values,) for values in last))
    reference = "target" if instrument.kind == "target" else "measured"
    return _plane_rows(seen, 0, _scalar(result, seen, 0), np.zeros((0, result.grid.ndim)), reference)


def _field_rows(result: InversionResult) -> list[Row]:
    places = [i.positions for i in result.instruments if i.positions is not None]
    sensors = np.concatenate([np.zeros((0, result.grid.ndim)), *places])
    rows: list[Row] = []
    for sought in result.fields:
        if not sought.on_grid:
            rows.append(ParticleRow(sought))
            continue
        for component in range(len(sought.names)):
            scalar = _scalar(result, sought, component)
            if result.grid.ndim == 1:
                rows.append(ProfileRow(sought, component, scalar, sensors))
            else:
                rows += _plane_rows(sought, component, scalar, sensors)
    return rows


def _scalar(result: InversionResult, sought: FieldResult, component: int) -> Scalar:
    dataset = _dataset(result.grid, sought, field_variables(sought), result.length_units)
    name = sought.names[component]
    return Scalar(dataset, name, (name,), title_case(name), sought.units)


def _plane_rows(
    sought: FieldResult, component: int, scalar: Scalar, sensors: np.ndarray, reference: str = "truth"
) -> list[Row]:
    """Truth (or what else it is called), guess and estimate on one scale; the error of the estimate, and its deviation,
    on their own.
    """
    cut, place = scalar.mid_plane("z")
    parts = {name: values[component] for name, values in sought.versions.items()}

    def panel(values: np.ndarray, title: str) -> Panel:
        plane = values[..., cut["z"]] if cut else values
        return Panel(scalar, plane.T, title.replace("truth", reference), "x", "y", sensors[:, :2])

    truth = parts.get("truth")
    shown = [
        panel(parts[name], _panel_title(name, parts[name], truth))
        for name in ("truth", "guess", "estimate")
        if name in parts
    ]
    slot = _slot(len(shown), (truth is not None) + ("deviation" in parts), shown[0].aspect)
    alone: list[PanelRow] = []
    if truth is not None:
        error = panel(parts["estimate"] - truth, "estimate − truth")
        named = replace(scalar, name="error", label="Error")
        alone.append(PanelRow(named, [error], "Error", colours.diverging_scale([error.values]), slot))
    if "deviation" in parts:
        deviation = panel(parts["deviation"], "standard deviation")
        named = replace(scalar, name="deviation", label="Deviation")
        alone.append(PanelRow(named, [deviation], "Uncertainty", slot=slot))
    where = f" at {place}" if place else ""
    projected = ", seen along z" if place else ""
    dots = f"; dots: sensors{projected}" if len(sensors) else ""
    heading = f"{title_case(sought.names[component])} ({sought.path}){where}{dots}"
    together = PanelRow(scalar, shown, heading, slot=slot)
    return [together, *([Beside(alone)] if slot and alone else alone)]


class Beside:
    """Rows side by side, each under its heading, that stay in one strip."""

    heading = ""

    def __init__(self, rows: Sequence[PanelRow]):
        self.rows = rows
        self.height = max(row.height for row in rows)
        self.width = sum(row.width for row in rows) + COLUMN_GAP * (len(rows) - 1)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        for row in self.rows:
            draw_row(row, sheet, left, top)
            left += row.width + COLUMN_GAP


def _panel_title(name: str, values: np.ndarray, truth: np.ndarray | None) -> str:
    if truth is None or name == "truth":
        return name
    error = relative_norm(values - truth, truth)
    return f"{name}, error {100 * error:.3g} %" if np.isfinite(error) else name


def _slot(together: int, alone: int, aspect: float) -> float | None:
    """Inches for each panel: so that up to four fill one strip, more or wide ones two; None for a line each."""
    if aspect > _WIDEST:
        return None
    if together + alone > 4 or aspect > _WIDE:
        alone = 0
    bars = (alone + 1) * BAR_ROOM + alone * COLUMN_GAP
    # A hair less than there is, which the sum of all widths must not exceed by rounding.
    return (FULL_WIDTH - bars - (together - 1) * PANEL_GAP - 1e-6) / (together + alone)


def _dataset(grid: Grid, sought: FieldResult, variables: Sequence[Variable], units: str) -> xr.Dataset:
    """Variables with the coordinates of the field that they belong to."""
    every = (*space_coordinates(grid, sought.outputs(), units), *variables)
    return xr.Dataset({v.name: (v.dims, v.values, dict(v.attributes)) for v in every})


def _search(sought: FieldResult, result: InversionResult) -> xr.Dataset:
    """The iterates as a run with a frame for each of them and, where it is known, the truth as another member."""
    plane = _plane_of(result.grid)
    numbers = np.asarray(sought.iterate_numbers)
    found = [Variable("time", ("time",), numbers.dtype, {"long_name": "iteration"}, numbers)]
    if sought.truth is not None:
        names = np.array(["truth", "estimate"])
        found.append(Variable("member", ("member",), names.dtype, {}, names))
    for component, output in enumerate(sought.outputs()):
        estimate = [_on_plane(output, values[component], plane) for values in sought.iterates]
        values = np.stack([np.asarray(variable.values) for variable in estimate])
        leading = ("time",)
        if sought.truth is not None:
            truth = np.asarray(_on_plane(output, sought.truth[component], plane).values)
            values, leading = np.stack([np.broadcast_to(truth, values.shape), values]), ("member", "time")
        found.append(replace(estimate[0], dims=(*leading, *estimate[0].dims), values=values))
    return _dataset(plane, sought, found, result.length_units)


def _plane_of(grid: Grid) -> Grid:
    """The cells of `grid` that are drawn: in 3-D those of the plane in the middle."""
    if grid.ndim < 3:
        return grid
    z = grid.coordinates(2, FACE)[grid.shape[2] // 2]
    return Grid((*grid.shape[:2], 1), (*grid.lower[:2], z), (*grid.upper[:2], z + grid.spacing[2]))


def _on_plane(output: Output, values: np.ndarray, plane: Grid) -> Variable:
    middle = values.shape[2] // 2 if values.ndim == 3 else 0
    return on_grid(output, values if values.shape == plane.shape else values[..., middle : middle + 1])
