"""Summary of a run of particles: pictures at several times, energies, speeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from simjax.report import curves, scalars
from simjax.report.labels import with_units
from simjax.report.pair_distribution import FRAMES, radial_distribution
from simjax.report.particle_painter import (
    SPECIES_COLOURS,
    Shade,
    View,
    axis_marks,
    paint,
    radii_of,
    radius_of,
    shade_of,
    species_label,
    speeds,
    view_of,
    written_and_all,
)
from simjax.report.scene import NOWHERE, Scene
from simjax.report.sheet import (
    ACCENT,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    Sheet,
    colormap,
    legend_above,
    parameter_bar,
    set_ticks,
)
from simjax.report.summary_rows import FULL_WIDTH, INNER, PANEL_GAP, CurveRow, say_empty, side_by_side
from simjax.report.sweep_rows import member_rows

if TYPE_CHECKING:
    import xarray as xr

_HEIGHT, _DOTS = 2.9, 200
_CURVES, _LEGEND, _GAP = 1.9, 0.25, 0.6
_ENERGIES = (("energy", INK), ("kinetic_energy", "#c85228"), ("potential_energy", ACCENT))
_MOST_CURVES = 3
_BINS = 40
# Where the name of an axis stands beside the middle of its edge: away from it, on which side, turned by how much.
_BESIDE = {"x": ((-0.04, 0.045), "center", -14), "y": ((0.04, 0.045), "center", 28), "z": ((-0.03, 0.0), "center", 90)}


def particle_rows(dataset: xr.Dataset, scene: Scene) -> list:
    """The rows of the summary, from the top."""
    rows: list = []
    if "position" in dataset:
        rows.append(_pictures(dataset, scene))
    names = curves.shown_first(dataset)[:_MOST_CURVES]
    if names and "member" in dataset.sizes:
        rows.extend(member_rows(dataset, names))
    elif names:
        rows.append(EnergyRow(dataset, scene) if "temperature" in dataset else CurveRow(dataset, names))
    return rows


def _pictures(dataset: xr.Dataset, scene: Scene) -> PictureRow:
    last = dataset.sizes["time"] - 1
    if "member" in dataset.sizes:
        order = scalars.member_order(dataset)
        chosen = [order[i] for i in scalars.spread(len(order), 4)]
        titles = [scalars.member_label(dataset, member) for member in chosen]
        now = scalars.frame_labels(dataset, [last])[0]
        return PictureRow(dataset, [(last, member) for member in chosen], titles, f" at {now}", scene)
    frames = scalars.spread(last + 1, 4)
    return PictureRow(dataset, [(frame, None) for frame in frames], scalars.frame_labels(dataset, frames), "", scene)


class PictureRow:
    """Particles at several times, or of several members, in colours of their speed or species."""

    def __init__(
        self,
        dataset: xr.Dataset,
        shown: Sequence[tuple[int, int | None]],
        titles: Sequence[str],
        when: str,
        scene: Scene = NOWHERE,
    ):
        self.dataset, self.shown, self.titles = dataset, shown, titles
        self.view, self.shade = view_of(dataset), shade_of(dataset)
        self.radius = radius_of(dataset, self.view)
        self.radii = radii_of(dataset, self.radius, scene.diameters)
        self.heading = f"Particles in colours of their {self.shade.label.lower()}{when}"
        slot = (INNER - (len(shown) - 1) * PANEL_GAP) / max(len(shown), 3)
        self.panel_height = min(_HEIGHT, slot / self.view.aspect)
        self.panel_width = self.view.aspect * self.panel_height
        self.height = self.panel_height
        self.width = FULL_WIDTH

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        for i, ((frame, member), title) in enumerate(zip(self.shown, self.titles, strict=True)):
            place = left + i * (self.panel_width + PANEL_GAP)
            axes = sheet.axes(place, top, self.panel_width, self.panel_height, plain=True)
            self._picture(axes, frame, member)
            axes.set_title(title, fontsize=NORMAL, color=INK, pad=4, loc="left", parse_math=False)
            finish_view(axes, self.view, self.radius, beside=i == 0)
        bar = left + len(self.shown) * (self.panel_width + PANEL_GAP) - PANEL_GAP + 0.16
        colour_key(sheet, self.shade, self.dataset, (bar, top, 0.14, self.height))

    def _picture(self, axes: Axes, frame: int, member: int | None) -> None:
        size = (round(_DOTS * self.panel_width), round(_DOTS * self.panel_height))
        position = self.view.places(self.dataset, frame, member)
        colours = self.shade.colours(self.dataset, frame, member)
        picture = paint(self.view, position, colours, self.radii, size)
        extent = (0.0, float(size[0]), float(size[1]), 0.0)
        if self.view.flat:
            extent = (self.view.lower[0], self.view.upper[0], self.view.lower[1], self.view.upper[1])
        axes.imshow(picture, extent=extent, aspect="auto", interpolation="antialiased")
        if not np.isfinite(position).any():
            say_empty(axes)


def finish_view(axes: Axes, view: View, radius: float, *, beside: bool) -> None:
    """Ticks for a plane; for a box in space the names of its axes beside its edges."""
    if view.flat:
        set_ticks(axes, most=4)
        axes.set_xlabel(view.names[0], fontsize=NORMAL, color=INK)
        axes.tick_params(labelleft=beside)
        if beside:
            axes.set_ylabel(view.names[1], fontsize=NORMAL, color=INK)
        return
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    width, height = axes.get_xlim()[1], axes.get_ylim()[0]
    for name, x, y in axis_marks(view, radius, (width, height)):
        (right, down), side, turned = _BESIDE[name[0]]
        axes.text(
            x + right * width,
            y + down * height,
            name,
            ha=side,
            va="center",
            fontsize=SMALL - 1,
            color=MUTED,
            rotation=turned,
            clip_on=False,
        )


def colour_key(sheet: Sheet, shade: Shade, dataset: xr.Dataset, place: tuple[float, float, float, float]) -> None:
    """A colour bar of speeds, or the colours of the species, at (left, top, width, height) inches."""
    if shade.scale is not None:
        limits = Normalize(shade.scale.lower, shade.scale.upper)
        mappable = ScalarMappable(limits, colormap(shade.scale.palette))
        parameter_bar(sheet, mappable, shade.label, place, shade.scale.extend)
        return
    species = np.unique(dataset["species"].values)
    for line, number in enumerate(species[: len(SPECIES_COLOURS)].tolist()):
        axes = sheet.axes(place[0], place[1] + 0.24 * line, 0.14, 0.14, plain=True)
        axes.set_facecolor(tuple((SPECIES_COLOURS[number % len(SPECIES_COLOURS)] / 255).tolist()))
        axes.set_xticks([])
        axes.set_yticks([])
        sheet.text(place[0] + 0.22, place[1] + 0.24 * line, species_label(dataset, number), size=SMALL)


class EnergyRow:
    """Energies per particle, temperature, the distribution of speeds at the end beside Maxwell's, and g(r)."""

    height, width = _CURVES + _LEGEND, FULL_WIDTH

    def __init__(self, dataset: xr.Dataset, scene: Scene = NOWHERE):
        self.dataset, self.scene = dataset, scene
        written, count = written_and_all(dataset)
        # Of some of the particles g(r) would be that of the choice.
        self.pairs = "position" in dataset and bool(scene.periodic) and written == count
        last = ", speeds and radial distribution at the end" if self.pairs else " and speeds at the end"
        self.heading = f"Energies per particle, temperature{last}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        places = side_by_side(sheet, left, top + _LEGEND, 3 + self.pairs, height=_CURVES, gap=_GAP)
        shown = [
            (self._energies, "Energy per particle"),
            (self._temperature, "Temperature"),
            (self._speeds, "Density of speeds"),
            (self._distribution, "g(r)"),
        ]
        for axes, (draw, label) in zip(places, shown, strict=False):
            draw(axes)
            axes.set_title(label, fontsize=NORMAL, color=INK, loc="left", pad=_LEGEND * 72 + 4)
            set_ticks(axes, most=4)

    def _distribution(self, axes: Axes) -> None:
        """g(r) over the last quarter of the frames, of all particles, or of each pair of up to two species."""
        count = self.dataset.sizes["time"]
        frames = [count - 1 - k for k in scalars.spread(max(1, count // 4), FRAMES)]
        species = np.unique(self.dataset["species"].values).tolist()
        kinds = [None] if len(species) != 2 else [(a, b) for a in species for b in species if a <= b]
        for kind, colour in zip(kinds, (ACCENT, "#c85228", "#238357"), strict=False):
            r, g = radial_distribution(self.dataset, frames, self.scene.periodic, kind)
            label = "" if kind is None else f"{kind[0]}–{kind[1]}"
            axes.plot(r, g, color=colour, linewidth=1.3, label=label)
        axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_xlim(0, None)
        axes.set_ylim(0, None)
        axes.set_xlabel("r", fontsize=NORMAL, color=INK)
        if len(kinds) > 1:
            legend_above(axes, 3, SMALL - 1)

    def _over_time(self, axes: Axes) -> np.ndarray:
        instants = scalars.times(self.dataset)
        if instants.size > 1:
            axes.set_xlim(instants[0], instants[-1])
        axes.set_xlabel(with_units("t", scalars.time_units(self.dataset)), fontsize=NORMAL, color=INK)
        return instants

    def _energies(self, axes: Axes) -> None:
        instants, (_, count) = self._over_time(axes), written_and_all(self.dataset)
        drawn = []
        for name, colour in _ENERGIES:
            if name in self.dataset:
                values = curves.recorded(self.dataset, name)[0] / count
                drawn.append(values)
                axes.plot(
                    instants,
                    values,
                    color=colour,
                    linewidth=1.4,
                    label=name.partition("_")[0].replace("energy", "total"),
                )
        axes.set_ylim(*curves.value_range(np.concatenate(drawn) if drawn else np.zeros(1)))
        legend_above(axes, 3, SMALL - 1)

    def _temperature(self, axes: Axes) -> None:
        instants = self._over_time(axes)
        if "temperature" not in self.dataset:
            say_empty(axes)
            return
        values = curves.recorded(self.dataset, "temperature")[0]
        axes.plot(instants, values, color=ACCENT, linewidth=1.4)
        axes.set_ylim(*curves.value_range(values))

    def _speeds(self, axes: Axes) -> None:
        axes.set_xlabel("speed", fontsize=NORMAL, color=INK)
        last = self.dataset.sizes["time"] - 1
        values = speeds(self.dataset, last, None) if "velocity" in self.dataset else np.zeros(0)
        values = values[np.isfinite(values)]
        if values.size == 0 or values.max() == 0:
            say_empty(axes)
            return
        axes.hist(
            values, bins=_BINS, density=True, color="#b9cbe2", edgecolor="white", linewidth=0.3, label="particles"
        )
        grid = np.linspace(0, 1.05 * float(values.max()), 300)
        axes.plot(grid, self._maxwell(grid), color=ACCENT, linewidth=1.4, label="Maxwell")
        axes.set_xlim(0, grid[-1])
        legend_above(axes, 2, SMALL - 1)

    def _maxwell(self, speed: np.ndarray) -> np.ndarray:
        """The distribution of speeds at the last temperature, of a mixture where masses differ."""
        temperature = float(curves.recorded(self.dataset, "temperature")[0][-1])
        ndim = len(np.atleast_1d(self.dataset.attrs["simjax_box_lower"]))
        masses, shares = np.unique(np.asarray(self.dataset["mass"].values, float), return_counts=True)
        total = np.zeros_like(speed)
        for mass, share in zip(masses, shares / shares.sum(), strict=True):
            a = mass / max(temperature, 1e-30)
            norm = np.sqrt(2 / np.pi) * a**1.5 * speed**2 if ndim == 3 else a * speed
            total += share * norm * np.exp(-0.5 * a * speed**2)
        return total
