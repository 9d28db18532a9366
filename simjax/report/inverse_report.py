"""report.html of an inverse problem: unknowns and their estimates, the fit, and provenance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from simjax.io.inverse_output import (
    INVERSION_NAME,
    FieldResult,
    InstrumentResult,
    InversionResult,
    ModuleResult,
    NumberResult,
)
from simjax.report import html
from simjax.report.inverse_figures import CONVERGENCE_NAME, RESIDUALS_NAME, SEARCH_NAME, UNKNOWNS_NAME
from simjax.report.labels import number, quantity

_DIGITS = 4
_UNKNOWN = "–"


def write_inversion_report(folder: Path, result: InversionResult) -> Path:
    """Write `folder`/report.html, below 3 MB, and return its path.

    The pictures of `write_pictures` are taken from `folder` where they are there and inlined. All text is escaped.
    """
    folder = Path(folder)
    parts = [
        _header(result),
        _numbers(result.numbers),
        _fields(result.fields),
        _modules(result.modules),
        html.picture(folder / UNKNOWNS_NAME, "Unknowns", "what was sought: guess, estimate and, if known, truth"),
        html.picture(folder / CONVERGENCE_NAME, "Convergence", "loss and gradient norm against the iteration"),
        _experiments(result.instruments),
        _instruments(result.instruments),
        html.picture(folder / RESIDUALS_NAME, "Residuals", "what is left of the measurements at the estimate"),
        _health(result.gradient_check or {}),
        _again(folder, result),
        _provenance(result.attributes),
        html.files(folder),
    ]
    version = str(result.attributes.get("simjax_version", ""))
    # The animation takes the room that the rest leaves.
    return html.write_page(
        folder / "report.html",
        result.title,
        parts,
        lambda room: html.animation(folder / SEARCH_NAME, "Search", "the estimate over the iterations", room),
        version,
    )


def _header(result: InversionResult) -> str:
    losses = np.asarray(result.losses, np.float64)
    ends = [np.median(values[np.isfinite(values)]) for values in losses[[0, -1]] if np.isfinite(values).any()]
    readings = sum(i.residuals(i.at_estimate).size for i in result.instruments)
    facts = {
        "Solver": result.solver,
        "Iterations": str(len(losses)),
        "Median loss of the members" if losses.ndim == 2 else "Loss": " → ".join(number(float(end)) for end in ends),
        "Unknowns": ", ".join(sought.path for sought in (*result.numbers, *result.fields, *result.modules)),
        **_extent(result),
        "Readings": str(readings),
    }
    message = result.exit_message[:1].upper() + result.exit_message[1:]
    badges = [(message, "")] if message else []
    return html.header("simjax inversion", result.title, "", badges, result.notes, facts)


def _extent(result: InversionResult) -> dict[str, str]:
    """The number of particles, or of cells along each axis."""
    if result.particles is not None:
        return {"Particles": str(result.particles)}
    return {"Grid": " × ".join(str(n) for n in result.grid.shape) + " cells"}


def _numbers(numbers: tuple[NumberResult, ...]) -> str:
    heads = ("Number", "Truth", "Guess", "Estimate", "95 % interval", "Relative error")
    rows = []
    for found in numbers:
        error = math.nan
        if found.truth:
            error = abs(found.estimate - found.truth) / abs(found.truth)
        interval = _UNKNOWN
        if found.lower is not None and found.upper is not None:
            ends = f"{number(found.lower, _DIGITS)} to {quantity(found.upper, found.units, _DIGITS)}"
            interval = ends if found.bounded else "not determined"
        values = (_known(value, found.units) for value in (found.truth, found.guess, found.estimate))
        rows.append((found.path, *values, interval, _percent(error)))
    return html.section("Numbers", _known_columns(heads, rows)) if rows else ""


def _fields(fields: tuple[FieldResult, ...]) -> str:
    heads = ("Field", "Variables", "Relative L2 error of the guess", "of the estimate")
    rows = [(f.path, ", ".join(f.names), _percent(f.error(f.guess)), _percent(f.error(f.estimate))) for f in fields]
    return html.section("Fields", _known_columns(heads, rows)) if rows else ""


def _known_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns of which nothing is known, such as the truth and errors beside measurements."""
    kept = [k for k in range(len(heads)) if any(row[k] != _UNKNOWN for row in rows)]
    return html.table([heads[k] for k in kept], [html.text_row(tuple(row[k] for k in kept)) for row in rows])


def _modules(modules: tuple[ModuleResult, ...]) -> str:
    heads = ("Module", "Numbers in it", "Root mean square change from the guess", "Kept in")
    rows = []
    for module in modules:
        changes = [np.ravel(values - module.guess[name]) for name, values in module.estimate.items()]
        change = np.concatenate([np.zeros(0), *changes])
        rows.append(html.text_row((module.path, str(change.size), _root_mean_square(change), module.file)))
    return html.section("Modules", html.table(heads, rows)) if rows else ""


def _experiments(instruments: tuple[InstrumentResult, ...]) -> str:
    """Residuals of each experiment, if there are several."""
    heads = ("Experiment", "Instruments", "Readings", "Root mean square residual at the guess", "at the estimate")
    rows = []
    for name in dict.fromkeys(instrument.experiment for instrument in instruments if instrument.experiment):
        own = [instrument for instrument in instruments if instrument.experiment == name]
        guess, estimate = (
            np.concatenate([i.residuals(i.at_guess if at == "guess" else i.at_estimate) for i in own])
            for at in ("guess", "estimate")
        )
        rows.append(html.text_row((name, str(len(own)), str(guess.size), *map(_root_mean_square, (guess, estimate)))))
    return html.section("Experiments", html.table(heads, rows)) if rows else ""


def _root_mean_square(residuals: np.ndarray) -> str:
    return number(float(np.sqrt(np.mean(residuals**2)))) if residuals.size else _UNKNOWN


def _instruments(instruments: tuple[InstrumentResult, ...]) -> str:
    heads = ("Instrument", "Kind", "Readings", "Root mean square residual at the guess", "at the estimate")
    rows = []
    for instrument in instruments:
        residuals = [instrument.residuals(values) for values in (instrument.at_guess, instrument.at_estimate)]
        sizes = map(_root_mean_square, residuals)
        kind = instrument.kind.replace("_", " ")
        rows.append(html.text_row((instrument.name, kind, str(residuals[0].size), *sizes)))
    note = "<p>In standard deviations of the noise: about 1 where the measurements are explained.</p>"
    return html.section("Instruments", html.table(heads, rows) + note) if rows else ""


def _health(gradient_check: Mapping[str, Any]) -> str:
    rows = []
    for name, value in gradient_check.items():
        shown = ", ".join(number(float(v), 6) for v in np.ravel(value)) if value is not None else _UNKNOWN
        rows.append(html.text_row((name.replace("_", " "), shown)))
    return html.section("Health of the gradient", html.table(("", "Value"), rows)) if rows else ""


def _again(folder: Path, result: InversionResult) -> str:
    blocks = [("Run it again", result.command)]
    path = folder / INVERSION_NAME
    if path.is_file():
        opening = f'xr.open_dataset({str(path)!r}, engine="h5netcdf")'
        blocks.append(("Open it with xarray", f"import xarray as xr\n\nds = {opening}"))
        sources = [
            _source(path, sought) for sought in result.fields if sought.on_grid and sought.path.startswith("initial.")
        ]
        blocks.append(("Begin a run with the estimate", "\n".join(["initial:", *sources]) if sources else ""))
    shown = html.code_blocks(blocks)
    return html.section("Again, and further", shown) if shown else ""


def _source(path: Path, sought: FieldResult) -> str:
    """The line of a configuration that takes an initial field from the file."""
    name = sought.path.partition(".")[2]
    return f"  {name}: {{file: {json.dumps(str(path))}, variable: [{', '.join(sought.names)}]}}"


def _provenance(attributes: Mapping[str, str | int | float]) -> str:
    """Short values in a table, long ones folded away."""
    texts = {name.removeprefix("simjax_").replace("_", " "): str(value) for name, value in attributes.items()}
    rows = [html.text_row(item) for item in texts.items() if item[1] and "\n" not in item[1]]
    folded = "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in texts.items()
        if "\n" in text
    )
    content = (html.table(("", "Value"), rows) if rows else "") + folded
    return html.section("Provenance", content) if content else ""


def _known(value: float | None, units: str) -> str:
    return _UNKNOWN if value is None else quantity(value, units, _DIGITS)


def _percent(error: float) -> str:
    return f"{number(100 * error)} %" if math.isfinite(error) else _UNKNOWN
