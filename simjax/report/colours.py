"""Colour scales of pictures: a map, the values at its ends, and what is cut off there."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simjax.errors import InputOutputError
from simjax.report.scalars import Scalar

MISSING_COLOUR = (214, 216, 220)
_SAMPLES = 1_000_000
DIVERGING = "diverging"
EDGE_CELLS = 4  # beside each side, where a vorticity may be singular
USUAL, SINGULAR = 0.99, 1.5  # quantile of the magnitudes off the sides; how many times that is shown


@dataclass(frozen=True)
class ColourScale:
    """A colour map and the values at its ends; beyond them values take the end colours."""

    palette: str
    lower: float
    upper: float
    clipped: tuple[bool, bool]

    @property
    def extend(self) -> str:
        names = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
        return names[self.clipped]

    @property
    def table(self) -> np.ndarray:
        """The 256 colours, as 8-bit red, green, blue."""
        return palette_table(self.palette)

    def colours(self, values: np.ndarray) -> np.ndarray:
        """8-bit colours, shape `values.shape + (3,)`; what is not finite takes MISSING_COLOUR."""
        finite = np.isfinite(values)
        within = np.clip(np.where(finite, values, self.lower), self.lower, self.upper)
        steps = 255.0 / (self.upper - self.lower)
        colours = self.table[np.clip(np.rint(within * steps - self.lower * steps), 0, 255).astype(np.uint8)]
        if not finite.all():
            colours[~finite] = MISSING_COLOUR
        return colours


def colour_scale(scalar: Scalar, samples: Sequence[np.ndarray]) -> ColourScale:
    """One scale for all samples: symmetric about zero where the sign matters, robust against rare extremes.

    What a model declares to be diverging, and whatever takes both signs without a palette of its own, gets a diverging
    map; a magnitude, and what comes near zero, a scale from zero on. Where the largest values exceed the 99.8th
    percentile by half, or are those of singular edges, they are cut off and the colour bar says so by its pointed ends.
    """
    if scalar.limits is None:
        samples = [interior(scalar, sample) for sample in samples]
    values = _finite_sample(samples)
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if scalar.limits is not None:
        lower, upper = scalar.limits
        usual = "balance" if lower < 0 < upper else "amp" if scalar.magnitude else "thermal"
        palette = "balance" if scalar.palette == DIVERGING else scalar.palette or usual
        return ColourScale(palette, lower, upper, (lowest < lower, highest > upper))
    declared = "" if scalar.palette == DIVERGING else scalar.palette
    by_sign = scalar.palette == DIVERGING and lowest < 0
    if by_sign or not declared and min(-lowest, highest) > 0.2 * max(-lowest, highest):
        return diverging_scale(samples)
    palette = declared or ("amp" if scalar.magnitude else "thermal")
    if scalar.magnitude or 0 <= lowest <= 0.1 * highest:
        limit = _robust_limit(highest, values)
        return ColourScale(palette, 0.0, limit if limit > 0 else 1.0, (False, highest > 1.01 * limit))
    if highest - lowest <= 1e-6 * max(abs(lowest), abs(highest)):
        margin = 0.5 * abs(highest) or 0.5
        return ColourScale(palette, lowest - margin, highest + margin, (False, False))
    return ColourScale(palette, lowest, highest, (False, False))


def interior(scalar: Scalar, sample: np.ndarray) -> np.ndarray:
    """The sample of a singular scalar, limited to the usual values off its sides where those beside are far larger.

    At the corners of a lid, or where a wall begins, a vorticity is singular: it would leave the rest without colour.
    """
    if not scalar.singular or sample.ndim != 2 or min(sample.shape) < 4 * EDGE_CELLS:
        return sample
    inner = np.abs(sample[EDGE_CELLS:-EDGE_CELLS, EDGE_CELLS:-EDGE_CELLS])
    inner = inner[np.isfinite(inner)]
    limit = SINGULAR * float(np.quantile(inner, USUAL)) if inner.size else 0.0
    highest = float(np.max(np.abs(sample), initial=0.0, where=np.isfinite(sample)))
    beside = inner.size == 0 or float(inner.max()) < 0.5 * highest
    return np.clip(sample, -limit, limit) if beside and 0 < limit < highest else sample


def diverging_scale(samples: Sequence[np.ndarray]) -> ColourScale:
    """One scale symmetric about zero for all samples, cut off at rare extremes as that of `colour_scale`."""
    values = _finite_sample(samples)
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    limit = _robust_limit(max(-lowest, highest), np.abs(values))
    shown = limit if limit > 0 else 1.0
    return ColourScale("balance", -shown, shown, (lowest < -1.01 * limit, highest > 1.01 * limit))


def _finite_sample(samples: Sequence[np.ndarray]) -> np.ndarray:
    if not samples:
        return np.zeros(0)
    total = sum(sample.size for sample in samples)
    stride = 1 + total // _SAMPLES
    values = np.concatenate([np.asarray(sample, dtype=np.float64).ravel()[::stride] for sample in samples])
    return values[np.isfinite(values)]


def _robust_limit(largest: float, magnitudes: np.ndarray) -> float:
    if magnitudes.size == 0:
        return largest
    usual = float(np.quantile(magnitudes, 0.998))
    return usual if largest > 1.5 * usual > 1e-3 * largest else largest


@functools.cache
def palette_table(palette: str) -> np.ndarray:
    """The 256 colours of a cmocean map, 8-bit (Thyng et al. 2016, Oceanography 29, 9).

    The tables are read from the installed package without importing it: the import would load pyplot.
    """
    package = importlib.util.find_spec("cmocean")
    if package is None or not package.submodule_search_locations:
        raise InputOutputError("Figures need the colour maps of cmocean; write `pip install cmocean`.")
    table = np.loadtxt(Path(package.submodule_search_locations[0]) / "rgb" / f"{palette}-rgb.txt")
    picks = np.linspace(0, len(table) - 1, 256).round().astype(int)
    return np.rint(255 * table[picks]).astype(np.uint8)
