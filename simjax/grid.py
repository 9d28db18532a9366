"""Grids, uniform or stretched along some axes, Cartesian or axisymmetric: geometry only, no fields."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from simjax.arguments import require_one_of, shown
from simjax.errors import ConfigurationError
from simjax.notebook import box_picture, card, numbers_in_a_line

AXES = ("x", "y", "z")
LOWER, UPPER = 0, 1
CENTER, FACE = 0.5, 0.0
SYMBOL = "symbol"
"""The attribute of a file with the letter of a coordinate, where it is another than its name."""
# Cells below this share of the mean one: the time step, which follows the smallest cell, would be that much shorter.
LEAST_WIDTH = 1e-4
SAME = 1e-9  # of an axis: ends of the box and of the faces along it are the same


@dataclass(frozen=True)
class Lines:
    """Places of the cells along a stretched axis.

    Args:
        faces: n + 1 positions, increasing: each cell's lower face, and the last one's upper face.
        centers: n positions, one in each cell; by default midway between its faces. Of a smooth mapping they are
            where it has the middle of the cell's number, so that schemes of high order keep it.

    Raises:
        ConfigurationError: faces out of order, a centre outside of its cell, or a cell of less than 1e-4 of the mean.

    Examples:
        >>> sj.Lines([0.0, 0.1, 0.3, 1.0]).centers
        (0.05, 0.2, 0.65)
    """

    faces: tuple[float, ...]
    centers: tuple[float, ...]

    def __init__(self, faces: Sequence[float] | np.ndarray, centers: Sequence[float] | np.ndarray | None = None):
        x = _numbers(faces)
        if x is None or x.ndim != 1 or x.size < 2 or not np.all(np.isfinite(x)):
            raise ConfigurationError(f"Lines.faces={shown(faces)}: expected a list of at least two finite numbers.")
        widths = np.diff(x)
        if np.any(widths <= 0):
            i = int(np.argmin(widths > 0))
            raise ConfigurationError(
                f"face {i + 1} at {x[i + 1]:.10g} is not above face {i} at {x[i]:.10g}, so that cells overlap or are "
                "empty; write faces in increasing order."
            )
        thin, mean = int(np.argmin(widths)), (x[-1] - x[0]) / widths.size
        if widths[thin] < LEAST_WIDTH * mean:
            raise ConfigurationError(
                f"cell {thin} is {widths[thin]:.4g} wide, {widths[thin] / mean:.2g} of the mean {mean:.4g}, and the "
                f"time step would collapse with it; expected at least {LEAST_WIDTH:g} of the mean: stretch less."
            )
        middle = 0.5 * (x[1:] + x[:-1]) if centers is None else _numbers(centers)
        if middle is None or middle.shape != widths.shape or np.any(middle <= x[:-1]) or np.any(middle >= x[1:]):
            raise ConfigurationError(f"Lines.centers: expected one number inside each of the {widths.size} cells.")
        object.__setattr__(self, "faces", tuple(x.tolist()))
        object.__setattr__(self, "centers", tuple(middle.tolist()))

    def __repr__(self) -> str:
        return numbers_in_a_line("Lines", {"faces": self.faces, "centers": self.centers})


def _numbers(values: Any) -> np.ndarray | None:
    """Values as an array of numbers, or None where they are none."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """The numbers of cells along the axes.

    Raises ConfigurationError for one number alone, and for what is no whole number.
    """
    if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str):
        raise ConfigurationError(
            f"Grid.shape={shape!r}: expected a number of cells for each axis; write Grid((16, 16))."
        )
    for axis, n in enumerate(shape):
        if not isinstance(n, int | np.integer) or isinstance(n, bool):
            raise ConfigurationError(f"Grid.shape[{axis}]={n!r}: expected a whole number of cells, such as 16.")
    return tuple(map(int, shape))


def _corner(name: str, place: Sequence[float], ndim: int) -> tuple[float, ...]:
    """Coordinates of a corner of the box.

    Raises ConfigurationError for one number alone, and for what is no number.
    """
    try:
        return tuple(float(x) for x in place)
    except (TypeError, ValueError):
        example = ", ".join(["1.0"] * ndim) + ("," if ndim == 1 else "")
        raise ConfigurationError(
            f"Grid.{name}={place!r}: expected a number for each axis; write {name}=({example})."
        ) from None


class Grid(eqx.Module):
    """A grid of `shape` cells over the box from `lower` to `upper`, uniform but along axes that are stretched.

    Cell i along a uniform axis spans [lower + i h, lower + (i + 1) h]. A position inside a cell is an *offset* in
    units of the spacing h: CENTER = 0.5, FACE = 0.0 (the cell's own, lower face). Along a stretched axis `Lines` say
    where faces and centres are. Everything is static, so a grid is hashable and a change of it is a new compilation.

    stretch: for each axis `Lines`, or None where it is uniform; or a mapping from "x", "y", "z" to `Lines`. The box
    ends where these do. axisymmetric: whether the first axis, x, is the distance r from an axis of symmetry and the
    second, y, the position z along it.

    Examples:
        >>> grid = sj.Grid((64, 32), upper=(2.0, 1.0))
        >>> grid.spacing, grid.lengths
        ((0.03125, 0.03125), (2.0, 1.0))
        >>> sj.Grid((64, 3), stretch={"y": sj.Lines([0.0, 0.1, 0.3, 1.0])}).widths(1)
        array([0.1, 0.2, 0.7])
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)
    stretch: tuple[Lines | None, ...] = eqx.field(static=True)
    axisymmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        shape,
        lower=None,
        upper=None,
        stretch: Mapping[str, Lines] | Sequence[Lines | None] = (),
        axisymmetric: bool = False,
    ):
        require_one_of("Grid.axisymmetric", axisymmetric, (False, True))
        self.axisymmetric = axisymmetric
        self.shape = _sizes(shape)
        ndim = len(self.shape)
        if isinstance(stretch, Mapping):
            unknown = [name for name in stretch if name not in AXES[:ndim]]
            if unknown:
                raise ConfigurationError(f"Grid.stretch: {unknown[0]!r}: expected one of {', '.join(AXES[:ndim])}.")
            stretch = [stretch.get(axis) for axis in AXES[:ndim]]
        lines: list[Any] = list(stretch) if isinstance(stretch, (tuple, list)) else [stretch]
        if not all(line is None or isinstance(line, Lines) for line in lines) or lines == [None]:
            raise ConfigurationError(
                f"Grid.stretch={shown(stretch)}: expected Lines by axis; write stretch={{'x': Lines(faces)}}."
            )
        self.stretch = tuple(lines) or (None,) * ndim
        ends = [(0.0, 1.0) if line is None else (line.faces[0], line.faces[-1]) for line in self.stretch]
        self.lower = tuple(low for low, _ in ends) if lower is None else _corner("lower", lower, ndim)
        self.upper = tuple(high for _, high in ends) if upper is None else _corner("upper", upper, ndim)

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
        self._check_lines()
        if self.axisymmetric and self.ndim != 2:
            raise ConfigurationError(
                f"An axisymmetric grid has two axes, r and z, and shape={self.shape} has {self.ndim}; write two sizes."
            )
        if self.axisymmetric and self.lower[0] < 0:
            raise ConfigurationError(
                f"Grid.lower[0]={self.lower[0]:g}: expected at least 0 on an axisymmetric grid, where x is the "
                "distance r from the axis."
            )

    def _check_lines(self):
        if len(self.stretch) != self.ndim:
            raise ConfigurationError(f"Grid.stretch has {len(self.stretch)} entries for {self.ndim} axes.")
        for axis, line in enumerate(self.stretch):
            if line is None:
                continue
            name, n, (a, b) = AXES[axis], self.shape[axis], (self.lower[axis], self.upper[axis])
            if len(line.faces) != n + 1:
                raise ConfigurationError(
                    f"{len(line.faces)} faces along {name}, where a grid of {n} cells has {n + 1}; write as many, or "
                    f"{len(line.faces) - 1} cells."
                )
            first, last = line.faces[0], line.faces[-1]
            if max(abs(first - a), abs(last - b)) > SAME * (b - a):
                raise ConfigurationError(
                    f"faces along {name} from {first:.10g} to {last:.10g}, where the box is from {a:.10g} to {b:.10g}; "
                    f"write grid.lower and grid.upper to match."
                )

    def __repr__(self) -> str:
        """The call that makes it, which tells apart all grids."""
        stretched = {AXES[axis]: self.stretch[axis] for axis in self.stretched}
        more = (f", stretch={stretched}" if stretched else "") + (", axisymmetric=True" if self.axisymmetric else "")
        return f"Grid({self.shape}, lower={self.lower}, upper={self.upper}{more})"

    def _repr_html_(self) -> str:
        box = " × ".join(f"[{a:g}, {b:g}]" for a, b in zip(self.lower, self.upper, strict=True))
        rows = [
            ("cells", " × ".join(map(str, self.shape))),
            ("box", box),
            ("spacing", " × ".join(self._described_spacing(axis) for axis in range(self.ndim))),
        ]
        return card("Grid", rows, box_picture(self.lengths, self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def lengths(self) -> tuple[float, ...]:
        return tuple(b - a for a, b in zip(self.lower, self.upper, strict=True))

    @property
    def stretched(self) -> tuple[int, ...]:
        """Axes along which cells differ in width."""
        return tuple(axis for axis, line in enumerate(self.stretch) if line is not None)

    @property
    def mean_spacing(self) -> tuple[float, ...]:
        return tuple(length / n for length, n in zip(self.lengths, self.shape, strict=True))

    @property
    def spacing(self) -> tuple[float, ...]:
        """The width of every cell, one number per axis.

        Raises:
            ConfigurationError: the grid is stretched or axisymmetric.
        """
        if self.axisymmetric:
            raise ConfigurationError("The grid is axisymmetric, where this needs a Cartesian one; write one.")
        if self.stretched:
            names = ", ".join(AXES[axis] for axis in self.stretched)
            raise ConfigurationError(
                f"The grid is stretched along {names}, where this needs cells of one width; leave grid.stretch out."
            )
        return self.mean_spacing

    def widths(self, axis: int) -> np.ndarray:
        """The `shape[axis]` widths of the cells along an axis, on the host."""
        line = self.stretch[axis]
        return np.full(self.shape[axis], self.mean_spacing[axis]) if line is None else np.diff(line.faces)

    def _described_spacing(self, axis: int) -> str:
        widths = self.widths(axis)
        return f"{widths.min():.4g}" if self.stretch[axis] is None else f"{widths.min():.4g} to {widths.max():.4g}"

    @property
    def cell_volume(self) -> float:
        return math.prod(self.spacing)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def coordinates(self, axis: int, offset: float) -> np.ndarray:
        """The `shape[axis]` float64 positions at `offset` in every cell, on the host, for files and pictures."""
        line = self.stretch[axis]
        if line is not None:
            return np.asarray(line.centers if offset == CENTER else line.faces[:-1])
        return self.lower[axis] + (np.arange(self.shape[axis]) + offset) * self.mean_spacing[axis]


def place_attributes(grid: Grid, axis: int, place: str) -> dict[str, str]:
    """Attributes of the coordinate along an axis: on an axisymmetric grid x is called r, and y is called z."""
    if not grid.axisymmetric:
        return {"long_name": f"{AXES[axis]} of the {place}"}
    letter = ("r", "z")[axis]
    return {"long_name": f"{letter} of the {place}", SYMBOL: letter}
