"""A matplotlib sheet laid out in inches, through the object interface alone: no pyplot, no global state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from simjax.io.files import replaced
from simjax.io.replacing import PICTURE_MARK
from simjax.report.colours import ColourScale, palette_table
from simjax.report.labels import common_power, number, scaled_label, tick_labels, with_units
from simjax.report.scalars import Scalar

Place = tuple[float, float, float, float]
INK, FAINT, MUTED, ACCENT = "#22262e", "#a3aab5", "#667080", "#1f5fa8"
SMALL, NORMAL, LARGE = 8.5, 9.5, 14.0


class CompactFormatter(Formatter):
    """Ticks with as few decimals as keep them apart, and powers of ten written out."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return tick_labels([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        return tick_labels([float(v) for v in values])


class Sheet:
    """A white figure of `width` by `height` inches; positions count from its upper left corner."""

    def __init__(self, width: float, height: float, dpi: int):
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float, *, plain: bool = False) -> Axes:
        """Axes with their upper left corner at (left, top); `plain` ones frame a picture or a colour bar."""
        bottom = self.height - top - height
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        axes.tick_params(labelsize=SMALL, labelcolor=INK, color=FAINT, width=0.6, length=3)
        for side, spine in axes.spines.items():
            spine.set_linewidth(0.6)
            spine.set_color(FAINT)
            spine.set_visible(plain or side in ("left", "bottom"))
        if not plain:
            axes.grid(color="#e7eaee", linewidth=0.6)
            axes.set_axisbelow(True)
        return axes

    def text(self, left: float, top: float, text: str, *, size=NORMAL, color=INK, bold: bool = False) -> None:
        """A line of text whose upper left corner is at (left, top); nothing in it is read as a formula."""
        weight = "bold" if bold else "normal"
        x, y = left / self.width, 1 - top / self.height
        self.figure.text(x, y, text, va="top", parse_math=False, fontsize=size, color=color, weight=weight)

    def save(self, path: Path) -> Path:
        """Write the figure in the format of the path's suffix: to a neighbouring name, then renamed."""
        with replaced(path) as temporary:
            form = path.suffix.removeprefix(".")
            self.figure.savefig(temporary, format=form, metadata={"Software": PICTURE_MARK} if form == "png" else None)
        return path


TICK_ROOM = 0.4  # inches along x that a number beside a tick takes, with some space


def set_ticks(axes: Axes, *, most: int = 5, horizontal: bool = True) -> None:
    """At most so many intervals between ticks, decades on a logarithmic axis; x only where `horizontal`.

    Along x there are fewer where their numbers would run into each other.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    beside = max(1, int(axes.get_window_extent().width / figure.dpi / TICK_ROOM))
    for axis in (axes.xaxis, axes.yaxis) if horizontal else (axes.yaxis,):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(numticks=6))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        else:
            intervals = min(most, beside) if axis is axes.xaxis else most
            axis.set_major_locator(MaxNLocator(intervals, steps=[1, 2, 2.5, 5, 10], min_n_ticks=min(intervals, 2)))
            axis.set_major_formatter(CompactFormatter())


def legend_above(axes: Axes, columns: int, size: float = SMALL) -> None:
    """A legend above the axes, where it hides no curve."""
    axes.legend(
        fontsize=size,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        labelcolor=INK,
        handlelength=1.2,
        columnspacing=1.1,
        handletextpad=0.5,
        borderaxespad=0.1,
    )


def axis_title(scalar: Scalar, axis: str) -> str:
    """Name and units of an axis, as they stand beside it."""
    return with_units(*scalar.axis_label(axis))


def colormap(palette: str) -> ListedColormap:
    """A cmocean map for matplotlib's own collections and colour bars."""
    return ListedColormap(palette_table(palette) / 255.0, name=palette)


def colour_bar(sheet: Sheet, scale: ColourScale, scalar: Scalar, place: Place) -> None:
    """A colour bar at (left, top, width, height) inches, its ends pointed where values were cut off."""
    power = common_power(max(abs(scale.lower), abs(scale.upper)))
    limits = Normalize(scale.lower / 10.0**power, scale.upper / 10.0**power)
    label = scaled_label(scalar.label, scalar.units, power)
    parameter_bar(sheet, ScalarMappable(limits, colormap(scale.palette)), label, place, scale.extend)


def parameter_bar(sheet: Sheet, mappable: ScalarMappable, label: str, place: Place, extend="neither") -> None:
    """The bar of a mappable, in the style of the sheet."""
    bar = sheet.figure.colorbar(mappable, cax=sheet.axes(*place, plain=True), extend=extend, extendfrac=0.04)
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor(FAINT)
    bar.ax.tick_params(which="both", labelsize=SMALL, labelcolor=INK, color=FAINT, width=0.6, length=3)
    bar.set_label(label, fontsize=SMALL + 0.5, color=INK)
    set_ticks(bar.ax, horizontal=False)
