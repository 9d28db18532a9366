"""Pictures of profiles beside walls in wall units: the mean velocity with the law of the wall, and fluctuations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from simjax.grid import AXES
from simjax.io.read import open_output, statistics_names
from simjax.io.readable import readable
from simjax.report.html import image
from simjax.report.picture import Picture
from simjax.report.scalars import label_of
from simjax.report.sheet import INK, NORMAL, SMALL, Sheet, legend_above, set_ticks

if TYPE_CHECKING:
    import xarray as xr

KARMAN, INTERCEPT = 0.41, 5.2
"""Constants of the law of the wall, u+ = ln(y+) / 0.41 + 5.2 (Pope 2000, Turbulent Flows, section 7.1.4)."""
VELOCITY = "velocity_centered"
_WIDTH, _HEIGHT, _DPI = 4.4, 2.7, 110
_COLOURS = ("#1f5fa8", "#d1662b", "#3a8f5c")
_LAW = "#9aa3ad"


@dataclass(frozen=True)
class WallProfiles:
    """Profiles across a wall in wall units, outwards from it to the middle between both sides of the axis.

    y_plus: distances, over the viscous length nu / u_tau. stream: the component that flows along the wall. mean: its
    speed relative to the wall, over u_tau. roots: root mean squares of the fluctuations by component, over u_tau.
    """

    y_plus: np.ndarray
    stream: str
    mean: np.ndarray
    roots: dict[str, np.ndarray]


def wall_figures(folder: Path, config_yaml: str) -> Iterator[str]:
    """HTML figures in wall units, where a run has an instrument `wall` and profiles of the velocity across that wall.

    config_yaml: the configuration that the run has written.
    """
    config: Mapping[str, Any] = yaml.safe_load(config_yaml) or {}
    for entry in config.get("outputs") or ():
        if "wall" not in entry:
            continue
        side = entry["wall"]["side"]
        with open_output(folder, entry["name"]) as opened:
            wall = opened.load()
        for output in statistics_names(folder):
            with open_output(folder, output) as opened:
                dataset = readable(opened)
                profiles = in_wall_units(dataset, wall, side, config)
                if profiles is None:
                    continue
                name = f"{VELOCITY}_{profiles.stream}_mean"
                title = f"{output}: {label_of(dataset, name)}, in wall units of {side}"
                yield _figure(title, "u+", profiles.y_plus, {"run": profiles.mean}, law=True)
                if profiles.roots:
                    title = f"{output}: root mean square of the velocity's fluctuations, in wall units of {side}"
                    yield _figure(title, "rms+", profiles.y_plus, profiles.roots, law=False)


def in_wall_units(dataset: xr.Dataset, wall: xr.Dataset, side: str, config: Mapping[str, Any]) -> WallProfiles | None:
    """The last set of a statistic of `velocity_centered` over all axes but that of the wall, in wall units.

    None where the set has no such profiles, its time no friction, or the wall moves by a formula.

    Args:
        dataset: of the statistic.
        wall: what the instrument `wall` read.
        side: such as "y_lower".
        config: the written configuration.
    """
    axis, _, end = side.partition("_")
    names = AXES[: len(config["grid"]["shape"])]
    means = {name: _profile(dataset, name, "mean", axis) for name in names if name != axis}
    moves = _wall_velocity(config, axis, end)
    if moves is None or "member" in wall.dims or "time_bounds" not in dataset or not dataset.sizes["time"]:
        return None
    begin, finish = dataset["time_bounds"].values[-1]
    counted = wall.sel(time=slice(begin, finish))
    friction = np.asarray(counted["friction_velocity"].values, float)
    if not friction.size or not np.all(np.isfinite(friction)) or not friction.any():
        return None
    u_tau = float(np.mean(friction**2) ** 0.5)  # the mean friction is that of the squares
    lower, upper = (float(config["grid"][name][names.index(axis)]) for name in ("lower", "upper"))
    distance = np.abs(dataset[axis].values.astype(float) - (lower if end == "lower" else upper))
    near = np.flatnonzero(distance <= 0.5 * (upper - lower))
    near = near[np.argsort(distance[near])]
    viscous_length = distance.min() * friction.mean() / (float(counted["y_plus"].mean()) * u_tau)
    relative = {name: (u - moves[name])[near] / u_tau for name, u in means.items() if u is not None}
    if not relative:
        return None
    stream = max(relative, key=lambda name: float(np.abs(relative[name]).max()))
    roots = {}
    for name in names:
        variance = _profile(dataset, name, "variance", axis)
        if variance is not None:
            roots[name] = np.sqrt(np.maximum(variance[near], 0)) / u_tau
    return WallProfiles(distance[near] / viscous_length, stream, np.abs(relative[stream]), roots)


def _profile(dataset: xr.Dataset, component: str, kind: str, axis: str) -> np.ndarray | None:
    """The last set of a profile across the wall, None where there is none."""
    name = f"{VELOCITY}_{component}_{kind}"
    if name not in dataset or set(dataset[name].dims) != {"time", axis}:
        return None
    return np.asarray(dataset[name].isel(time=-1).values, float)


def _wall_velocity(config: Mapping[str, Any], axis: str, end: str) -> dict[str, float] | None:
    """The velocity of a wall by component, None where it is a formula."""
    # It is the only vector that a wall has; walls that do not move may have none.
    vectors = [value for value in config["boundaries"][axis][end].values() if isinstance(value, list)]
    components = vectors[0] if vectors else [0.0] * len(AXES)
    try:
        return {name: float(value) for name, value in zip(AXES, components, strict=False)}
    except (TypeError, ValueError):
        return None


def _figure(title: str, label: str, y_plus: np.ndarray, lines: Mapping[str, np.ndarray], *, law: bool) -> str:
    def draw(path: Path) -> None:
        sheet = Sheet(_WIDTH, _HEIGHT, _DPI)
        axes = sheet.axes(0.75, 0.32, _WIDTH - 0.95, _HEIGHT - 0.87)
        highest = max(float(np.nanmax(values)) for values in lines.values())
        if law:
            inner = np.geomspace(max(y_plus[0], 0.1), min(20.0, y_plus[-1]), 40)
            axes.plot(inner, inner, color=_LAW, linewidth=1.0, linestyle="--", label="y+")
            if y_plus[-1] > 10:
                outer = np.geomspace(10.0, y_plus[-1], 40)
                axes.plot(outer, np.log(outer) / KARMAN + INTERCEPT, color=_LAW, linewidth=1.0, label="log law")
                highest = max(highest, math.log(y_plus[-1]) / KARMAN + INTERCEPT)
        for (name, values), colour in zip(lines.items(), _COLOURS, strict=False):
            axes.plot(y_plus, values, color=colour, linewidth=1.2, marker="o", markersize=2.2, label=name)
        axes.set_xscale("log")
        axes.set_ylim(0, 1.1 * highest)
        axes.set_xlabel("y+", fontsize=NORMAL, color=INK)
        axes.set_ylabel(label, fontsize=NORMAL, color=INK)
        legend_above(axes, 3, SMALL - 1)
        set_ticks(axes)
        sheet.save(path)

    picture = Picture.drawn(draw, "png")
    return f"<figure><figcaption>{escape(title)}</figcaption>{image(picture.content, 'png', title)}</figure>"
