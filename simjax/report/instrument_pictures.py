"""Small pictures of the readings of a run's instruments: curves over time, profiles, planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import LogLocator

from simjax.io.read import open_output, output_names
from simjax.io.readable import readable
from simjax.report.balance_table import balanced_quantities
from simjax.report.colours import ColourScale, diverging_scale
from simjax.report.curves import without_spike
from simjax.report.html import image
from simjax.report.labels import common_power, scaled_label, time_labels, with_units
from simjax.report.picture import Picture
from simjax.report.scalars import coordinate_symbol, label_of, spread, time_units, times, units_of
from simjax.report.sheet import INK, NORMAL, SMALL, Sheet, colormap, legend_above, parameter_bar, set_ticks

if TYPE_CHECKING:
    import xarray as xr

MOST_PICTURES, MOST_LINES, MOST_TIMES = 12, 5, 4
_WIDTH, _HEIGHT, _DPI = 4.4, 2.7, 110
_LINES = ("#1f5fa8", "#d1662b", "#3a8f5c", "#8a5aa8", "#667080")
LOGARITHMIC = "wavenumber"


def instrument_figures(folder: Path) -> Iterator[str]:
    """An HTML figure of each variable of each instrument of a run, the first `MOST_PICTURES` of them."""
    drawn = 0
    for output in output_names(folder):
        with open_output(folder, output) as opened:
            dataset = readable(opened)
            if balanced_quantities(dataset):  # a table of their own
                continue
            for name in (str(name) for name in dataset.data_vars if "time" in dataset[name].dims):
                if drawn == MOST_PICTURES or not dataset.sizes["time"]:
                    return
                drawn += 1
                yield figure(dataset, name, f"{output}: {label_of(dataset, name)}")


def figure(dataset: xr.Dataset, name: str, title: str) -> str:
    """An HTML figure of one variable, of which the first member and the middle plane are drawn."""
    variable = dataset[name]
    if "member" in variable.dims:
        number = int(variable["member"].values[0])
        title, variable = f"{title}, member {number}", variable.isel(member=0)
    own = [dim for dim in variable.dims if dim != "time"]
    for dim in own[:-2]:
        title = f"{title}, middle of {str(dim).replace('_face', '')}"
        variable = variable.isel({dim: variable.sizes[dim] // 2})
    picture = Picture.drawn(lambda path: _draw(path, dataset, variable), "png")
    return f"<figure><figcaption>{escape(title)}</figcaption>{image(picture.content, 'png', title)}</figure>"


def _draw(path: Path, dataset: xr.Dataset, variable: xr.DataArray) -> None:
    sheet = Sheet(_WIDTH, _HEIGHT, _DPI)
    own = [str(dim) for dim in variable.dims if dim != "time"]
    if own == ["particle", "space"]:  # of tracks that along x
        variable, own = variable.isel(space=0).transpose("particle", "time"), ["particle"]
    if len(own) == 2:
        _plane(sheet, dataset, variable.isel(time=-1))
    else:
        axes = sheet.axes(0.75, 0.32, _WIDTH - 0.95, _HEIGHT - 0.87)
        if not own or dataset[own[0]].dtype.kind == "i":  # points or lines by number
            _over_time(axes, dataset, variable)
        else:
            _profiles(axes, dataset, variable, own[0])
        set_ticks(axes)
        if axes.get_xscale() == "log":  # often less than a decade
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    sheet.save(path)


def _over_time(axes: Axes, dataset: xr.Dataset, variable: xr.DataArray) -> None:
    """A curve over time, of some of the stations where there are many."""
    lines, later = without_spike(variable.values.reshape(-1, variable.sizes["time"]).astype(np.float64))
    chosen = spread(len(lines), MOST_LINES)
    named = [f"point {number}" if len(lines) > 1 else "" for number in chosen]
    _lines(axes, dataset, variable, times(dataset), [lines[number] for number in chosen], named)
    axes.set_xlabel(with_units("t", time_units(dataset)) + later, fontsize=NORMAL, color=INK)


def _profiles(axes: Axes, dataset: xr.Dataset, variable: xr.DataArray, along: str) -> None:
    """Profiles at some of the times; of a spectrum in logarithms."""
    chosen = spread(variable.sizes["time"], MOST_TIMES)
    named = time_labels([float(t) for t in times(dataset)[list(chosen)]], time_units(dataset))
    values = [variable.isel(time=number).values for number in chosen]
    _lines(axes, dataset, variable, variable[along].values, values, named, logarithmic=along == LOGARITHMIC)
    name = coordinate_symbol(dataset, along, along.replace("_face", ""))
    axes.set_xlabel(with_units(name, units_of(dataset, along)), fontsize=NORMAL, color=INK)


def _lines(
    axes: Axes,
    dataset: xr.Dataset,
    variable: xr.DataArray,
    x: np.ndarray,
    lines: Sequence[np.ndarray],
    named: Sequence[str],
    *,
    logarithmic: bool = False,
) -> None:
    largest = max((float(np.max(np.abs(line), initial=0.0, where=np.isfinite(line))) for line in lines), default=0.0)
    power = 0 if logarithmic else common_power(largest)
    for line, name, colour in zip(lines, named, _LINES, strict=False):
        shown = np.where(np.isfinite(line) & (line > 1e-16 * largest if logarithmic else True), line, np.nan)
        mark = "o" if len(x) == 1 else None
        axes.plot(x, shown / 10.0**power, color=colour, linewidth=1.2, marker=mark, markersize=3, label=name)
    if logarithmic and largest > 0:
        axes.set_xscale("log")
        axes.set_yscale("log")
    label = scaled_label("", units_of(dataset, str(variable.name)), power).strip()
    axes.set_ylabel(label, fontsize=NORMAL, color=INK)
    if any(named):
        legend_above(axes, len(named), SMALL - 1)


def _plane(sheet: Sheet, dataset: xr.Dataset, plane: xr.DataArray) -> None:
    """A plane at the last time, drawn with the axis that changes fastest along the page."""
    up, along = (str(dim) for dim in plane.dims)
    values = np.asarray(plane.values, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low < 0 < high:
        scale = diverging_scale([values])
    else:
        scale = ColourScale("thermal", low, high if high > low else low + (abs(low) or 1.0), (False, False))
    edges = [_edges(plane[dim].values) for dim in (along, up)]
    width, height = _WIDTH - 1.75, _HEIGHT - 0.87
    axes = sheet.axes(0.75, 0.32, width, height, plain=True)
    if all(np.allclose(np.diff(own), own[1] - own[0]) for own in edges):
        extent = (*edges[0][[0, -1]], *edges[1][[0, -1]])
        axes.imshow(scale.colours(values), origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    else:
        axes.pcolormesh(*edges, scale.colours(values))
    for place, dim in ((axes.set_xlabel, along), (axes.set_ylabel, up)):
        name = coordinate_symbol(dataset, dim, dim.replace("_face", ""))
        place(with_units(name, units_of(dataset, dim)), fontsize=NORMAL, color=INK)
    set_ticks(axes)
    _bar(sheet, scale, units_of(dataset, str(plane.name)), (0.75 + width + 0.12, 0.32, 0.12, height))
    (when,) = time_labels([float(times(dataset)[-1])], time_units(dataset))
    sheet.text(0.75, 0.1, when, size=SMALL)


def _edges(places: np.ndarray) -> np.ndarray:
    """Edges of cells around places: midway between them, and as far beyond the outermost."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    inner = 0.5 * (places[1:] + places[:-1])
    return np.concatenate([[2 * places[0] - inner[0]], inner, [2 * places[-1] - inner[-1]]])


def _bar(sheet: Sheet, scale: ColourScale, units: str, place: tuple[float, float, float, float]) -> None:
    power = common_power(max(abs(scale.lower), abs(scale.upper)))
    limits = Normalize(scale.lower / 10.0**power, scale.upper / 10.0**power)
    mappable = ScalarMappable(limits, colormap(scale.palette))
    parameter_bar(sheet, mappable, scaled_label("", units, power).strip(), place, scale.extend)
