"""Particles over time: the frames of an animation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from simjax.report import scalars
from simjax.report.particle_painter import counted_particles, paint, radii_of, radius_of, shade_of, view_of
from simjax.report.particle_summary import colour_key, finish_view
from simjax.report.scene import NOWHERE, Scene
from simjax.report.sheet import INK, MUTED, NORMAL, Sheet

if TYPE_CHECKING:
    import xarray as xr

_DPI = 100
_LEFT, _TOP, _BOTTOM, _BAR_ROOM = 56, 56, 44, 96
_AREA, _LONGEST = 210_000, 640  # pixels of the picture; of one side


class ParticleStage:
    """A picture of the particles of the first member, with fixed surroundings."""

    def __init__(self, dataset: xr.Dataset, frames: Sequence[int], title: str, scene: Scene = NOWHERE):
        self.dataset, self.frames = dataset, frames
        self.view, self.shade = view_of(dataset), shade_of(dataset)
        self.radius = radius_of(dataset, self.view)
        self.radii = radii_of(dataset, self.radius, scene.diameters)
        aspect = self.view.aspect
        width = min((_AREA * aspect) ** 0.5, _LONGEST)
        height = min(width / aspect, _LONGEST)
        self.panel = round(height * aspect), round(height)
        self.times = scalars.frame_labels(dataset, frames)
        size = (_LEFT + self.panel[0] + _BAR_ROOM, _TOP + self.panel[1] + _BOTTOM)
        self.sheet = Sheet(size[0] / _DPI, size[1] / _DPI, _DPI)
        self.font = ImageFont.truetype(
            Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", round(11 * _DPI / 72)
        )
        self.sheet.text(_LEFT / _DPI, 0.08, title, size=11, bold=True)
        self.sheet.text(_LEFT / _DPI, 0.32, counted_particles(dataset), size=NORMAL, color=MUTED)
        self.empty = self._surroundings()

    def _surroundings(self) -> Image.Image:
        width, height = self.panel
        axes = self.sheet.axes(_LEFT / _DPI, _TOP / _DPI, width / _DPI, height / _DPI, plain=True)
        if self.view.flat:
            axes.set_xlim(self.view.lower[0], self.view.upper[0])
            axes.set_ylim(self.view.lower[1], self.view.upper[1])
        else:
            axes.set_xlim(0, width)
            axes.set_ylim(height, 0)
        finish_view(axes, self.view, self.radius, beside=True)
        bar = (_LEFT + width + 16) / _DPI
        colour_key(self.sheet, self.shade, self.dataset, (bar, _TOP / _DPI, 0.13, height / _DPI))
        self.sheet.canvas.draw()
        pixels = np.asarray(self.sheet.canvas.buffer_rgba())[..., :3]
        return Image.fromarray(np.ascontiguousarray(pixels))

    def draw(self, index: int) -> Image.Image:
        """The picture of the `index`-th frame shown."""
        picture = self.empty.copy()
        frame = self.frames[index]
        inner = (self.panel[0] - 2, self.panel[1] - 2)  # one pixel is left to the frame on each side
        colours = self.shade.colours(self.dataset, frame, None)
        painted = paint(self.view, self.view.places(self.dataset, frame, None), colours, self.radii, inner)
        place = (_LEFT + 1, _TOP + 1)
        # Where nothing is painted the surroundings stay: names of axes.
        mask = Image.fromarray(np.where(np.all(painted == 255, axis=-1), 0, 255).astype(np.uint8))
        picture.paste(Image.fromarray(painted), place, mask)
        at_right = (_LEFT + self.panel[0], 46)
        ImageDraw.Draw(picture).text(at_right, self.times[index], font=self.font, fill=INK, anchor="rs")
        return picture
