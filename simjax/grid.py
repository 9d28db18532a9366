"""Uniform Cartesian grids: geometry only, no fields and no decomposition."""

import math

import equinox as eqx
import numpy as np

from simjax.errors import ConfigurationError
from simjax.notebook import box_picture, card

AXES = ("x", "y", "z")
LOWER, UPPER = 0, 1
CENTER, FACE = 0.5, 0.0


class Grid(eqx.Module):
    """A uniform grid of `shape` cells over the box from `lower` to `upper`.

    Cell i along an axis spans [lower + i h, lower + (i + 1) h]. A position inside a cell is an *offset* in
    units of the spacing h: CENTER = 0.5, FACE = 0.0 (the cell's own, lower face). Everything is static, so a
    grid is hashable and a change of it is a new compilation.

    Examples:
        >>> grid = sj.Grid((64, 32), upper=(2.0, 1.0))
        >>> grid.spacing, grid.lengths
        ((0.03125, 0.03125), (2.0, 1.0))
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, shape, lower=None, upper=None):
        self.shape = tuple(int(n) for n in shape)
        ndim = len(self.shape)
        self.lower = tuple(float(v) for v in (lower if lower is not None else (0.0,) * ndim))
        self.upper = tuple(float(v) for v in (upper if upper is not None else (1.0,) * ndim))

    def __check_init__(self):
        if not 1 <= self.ndim <= 3:
            raise ConfigurationError(f"Grid.shape={self.shape} has {self.ndim} axes; write 1, 2 or 3 sizes.")
        if len(self.lower) != self.ndim or len(self.upper) != self.ndim:
            raise ConfigurationError(
                f"Grid.lower={self.lower} and Grid.upper={self.upper} need one number for each of the "
                f"{self.ndim} axes of shape={self.shape}."
            )
        for axis, (n, a, b) in enumerate(zip(self.shape, self.lower, self.upper, strict=True)):
            if n < 1:
                raise ConfigurationError(f"Grid.shape[{axis}]={n}: expected at least one cell.")
            if not (math.isfinite(a) and math.isfinite(b) and b > a):
                raise ConfigurationError(f"Grid.upper[{axis}]={b} must be finite and above Grid.lower[{axis}]={a}.")

    def _repr_html_(self) -> str:
        box = " × ".join(f"[{a:g}, {b:g}]" for a, b in zip(self.lower, self.upper, strict=True))
        rows = [
            ("cells", " × ".join(map(str, self.shape))),
            ("box", box),
            ("spacing", " × ".join(f"{h:.4g}" for h in self.spacing)),
        ]
        return card("Grid", rows, box_picture(self.lengths, self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def lengths(self) -> tuple[float, ...]:
        return tuple(b - a for a, b in zip(self.lower, self.upper, strict=True))

    @property
    def spacing(self) -> tuple[float, ...]:
        return tuple(length / n for length, n in zip(self.lengths, self.shape, strict=True))

    @property
    def cell_volume(self) -> float:
        return math.prod(self.spacing)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def coordinates(self, axis: int, offset: float) -> np.ndarray:
        """The `shape[axis]` float64 positions lower + (i + offset) h, on the host, for files and pictures."""
        return self.lower[axis] + (np.arange(self.shape[axis]) + offset) * self.spacing[axis]
