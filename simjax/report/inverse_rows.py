"""The rows that the pictures of an inverse problem consist of: convergence, numbers, profiles, residuals, readings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from simjax.io.inverse_output import Curve, FieldResult, InstrumentResult, InversionResult, ModuleResult, NumberResult
from simjax.report import curves, scalars
from simjax.report.labels import common_power, number, pretty_units, quantity, tick_labels, title_case, with_units
from simjax.report.scalars import Scalar
from simjax.report.sheet import ACCENT, FAINT, INK, MUTED, NORMAL, SMALL, Sheet, axis_title, legend_above, set_ticks
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, gaps, say_empty, side_by_side
from simjax.schema.inverse import NORMAL_95

_MOST_LINES, _MOST_HISTOGRAMS, _MOST_SENSORS = 256, 4, 6
_DECADE = 10.0
_FAR = 20.0  # relative values beyond which their axis is compressed


class ConvergenceRow:
    """Loss, gradient norm, and the relative errors of what is known, against the iteration."""

    height = 2.6
    width = FULL_WIDTH
    heading = "Against the iteration"

    def __init__(self, result: InversionResult):
        self.panels = [("Loss", np.arange(len(result.losses)), np.asarray(result.losses, np.float64))]
        if np.size(result.gradient_norms):
            norms = np.asarray(result.gradient_norms, np.float64)
            self.panels.append(("Norm of the gradient", np.arange(len(norms)), norms))
        for sought in result.fields:
            if sought.truth is not None and sought.iterates:
                errors = np.array([sought.error(values) for values in sought.iterates])
                label = f"Relative error of {sought.path.rpartition('.')[2].replace('_', ' ')}"
                self.panels.append((label, np.asarray(sought.iterate_numbers), errors))

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        shown = self.panels[:4]
        places = side_by_side(sheet, left, top, len(shown), height=self.height, columns=1)
        for axes, (label, iterations, values) in zip(places, shown, strict=True):
            _draw_against_iterations(axes, iterations, values)
            axes.set_title(label, fontsize=NORMAL, color=INK, loc="left", pad=5, parse_math=False)
            axes.set_xlabel("iteration", fontsize=NORMAL, color=INK)


def _draw_against_iterations(axes: Axes, iterations: np.ndarray, values: np.ndarray) -> None:
    """One line, or thin ones for the members of an ensemble under the line of their median."""
    lines = gaps(values.reshape(len(values), -1))
    if not np.isfinite(lines).any():
        say_empty(axes)
        return
    marker = "o" if len(lines) < 30 else ""
    middle = lines[:, 0]
    if lines.shape[1] > 1:
        members = lines[:, scalars.spread(lines.shape[1], _MOST_LINES)]
        axes.plot(iterations, members, color=ACCENT, linewidth=0.6, alpha=0.4)
        # A median over members that failed, all of them in an iteration, is a gap and no warning.
        some = np.isfinite(lines).any(axis=1)
        middle = np.full(len(lines), np.nan)
        middle[some] = np.nanmedian(lines[some], axis=1)
    axes.plot(iterations, middle, color=ACCENT, linewidth=1.6, marker=marker, markersize=3.2)
    if curves.wide_range(lines, _DECADE):
        axes.set_yscale("log")
    set_ticks(axes)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


class NumberRow:
    """Every number relative to its truth: guess, estimate, and the interval that holds it with 95 %."""

    width = FULL_WIDTH
    _NAMES, _VALUES = 2.0, 2.6  # inches for the names on the left, for the values on the right

    def __init__(self, numbers: Sequence[NumberResult]):
        self.numbers = numbers
        self.height = 0.34 * len(numbers) + 0.3
        scaled = sum(bool(found.truth) for found in numbers)
        self.label = f"relative to the {'truth' if scaled else 'estimate'}"
        if 0 < scaled < len(numbers):
            self.label += ", or to the estimate where that is unknown or zero"
        interval = " with its 95 % interval" if any(found.lower is not None for found in numbers) else ""
        known = ", truth (black line)" if any(found.truth is not None for found in numbers) else ""
        self.heading = f"Numbers: guess (circle), estimate{interval} (blue){known}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        width = FULL_WIDTH - self._NAMES - self._VALUES
        axes = sheet.axes(left + self._NAMES, top, width, self.height)
        drawn = [self._draw_number(axes, y, found) for y, found in enumerate(self.numbers)]
        set_ticks(axes)
        _compress(axes, np.concatenate(drawn))
        axes.set_ylim(len(self.numbers) - 0.5, -0.5)
        axes.set_yticks(range(len(self.numbers)), [found.path for found in self.numbers], parse_math=False)
        axes.tick_params(axis="y", length=0, labelsize=NORMAL)
        axes.set_xlabel(self.label, fontsize=NORMAL, color=INK)
        for y, found in enumerate(self.numbers):
            axes.text(
                1.03,
                y,
                _number_text(found),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=SMALL,
                color=INK,
                parse_math=False,
            )

    def _draw_number(self, axes: Axes, y: int, found: NumberResult) -> np.ndarray:
        """Draws one line and returns the values in it."""
        known = (v for v in (found.truth, found.estimate, found.guess) if v is not None)
        scale = next((v for v in known if v != 0 and math.isfinite(v)), 1.0)
        guess, estimate = found.guess / scale, found.estimate / scale
        values = [guess, estimate]
        if found.truth is not None:
            values.append(found.truth / scale)
            axes.plot([values[-1]] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.4)
        axes.plot(guess, y, "o", color="white", markeredgecolor=MUTED, markersize=6, markeredgewidth=1.2)
        if found.bounded:
            assert found.lower is not None and found.upper is not None
            ends = sorted((found.lower / scale, found.upper / scale))
            values += ends
            axes.plot(ends, [y, y], "|-", color=ACCENT, linewidth=1.6, markersize=8)
        axes.plot(estimate, y, "o", color=ACCENT, markersize=5)
        return np.array(values)


def _compress(axes: Axes, values: np.ndarray) -> None:
    """Make an axis, where some value is far off, logarithmic beyond +-2, with 0, 1 and powers of ten marked."""
    finite = values[np.isfinite(values)]
    farthest = float(np.abs(finite).max(initial=0.0))
    if farthest <= _FAR:
        return
    axes.set_xscale("symlog", linthresh=2.0)
    axes.autoscale(axis="x")
    farthest *= 1.001  # so that rounding does not take the tick at the end away
    decades = 10.0 ** np.arange(1, math.floor(math.log10(farthest)) + 1)
    ticks = np.concatenate([-decades[::-1], [0.0, 1.0], decades])
    ticks = ticks[(ticks >= min(0.0, float(finite.min()))) & (ticks <= farthest)]
    axes.set_xticks(ticks, [number(float(tick)) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _number_text(found: NumberResult) -> str:
    """The estimate and its interval in the number's own units."""
    if found.lower is None or found.upper is None:
        return quantity(found.estimate, found.units)
    if not found.bounded:
        return f"{quantity(found.estimate, found.units)} [not determined]"
    values = (found.estimate, found.lower, found.upper)
    power = common_power(max(abs(value) for value in values))
    estimate, lower, upper = tick_labels([value / 10.0**power for value in values])
    factor = f" ×{number(10.0**power)}" if power else ""
    return f"{estimate} [{lower}, {upper}]{factor} {pretty_units(found.units)}".rstrip()


class CurveRow:
    """A term as a function of one variable: truth, guess and estimate, and how far the estimate is from the truth."""

    height = 3.0
    width = FULL_WIDTH

    def __init__(self, module: ModuleResult, curve: Curve):
        self.curve = curve
        self.heading = f"{module.path}: the term over what was seen of {curve.variable.replace('_', ' ')}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        curve = self.curve
        count = 1 if curve.truth is None else 2
        first, *second = side_by_side(sheet, left, top, count, height=self.height, columns=1, gap=LABELLED_GAP)
        if curve.truth is not None:
            first.plot(curve.values, curve.truth, color=INK, linewidth=2.2, label="truth")
        first.plot(curve.values, gaps(curve.guess), color=MUTED, linewidth=1.2, linestyle="--", label="guess")
        first.plot(curve.values, gaps(curve.estimate), color=ACCENT, linewidth=1.4, label="estimate")
        legend_above(first, 3)
        self._finish(first, "Tendency")
        for axes in second:
            assert curve.truth is not None
            axes.axhline(0.0, color=INK, linewidth=0.8)
            axes.plot(curve.values, gaps(curve.estimate - curve.truth), color=ACCENT, linewidth=1.4)
            self._finish(axes, "Estimate − truth")

    def _finish(self, axes: Axes, label: str) -> None:
        curve = self.curve
        units = "s-1" if curve.units == "1" else f"{curve.units} s-1"
        axes.set_xlim(curve.values[0], curve.values[-1])
        axes.set_xlabel(with_units(title_case(curve.variable), curve.units), fontsize=NORMAL, color=INK)
        axes.set_ylabel(with_units(label, units), fontsize=NORMAL, color=INK)
        set_ticks(axes)


class ProfileRow:
    """A field on a line: truth, guess and estimate, and beside them how far the estimate is from the truth."""

    height = 3.2
    width = FULL_WIDTH

    def __init__(self, sought: FieldResult, component: int, scalar: Scalar, sensors: np.ndarray):
        self.values = {name: parts[component] for name, parts in sought.versions.items()}
        self.scalar, self.sensors = scalar, sensors
        band = ", band: 95 % interval" if "deviation" in self.values else ""
        dots = ", dots: sensors" if len(sensors) else ""
        self.heading = f"{title_case(sought.names[component])} ({sought.path}){band}{dots}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        truth, estimate = self.values.get("truth"), self.values["estimate"]
        count = 1 if truth is None else 2
        first, *second = side_by_side(sheet, left, top, count, height=self.height, columns=1, gap=LABELLED_GAP)
        if truth is not None:
            self._line(first, truth, color=INK, linewidth=2.2, label="truth")
        self._line(first, self.values["guess"], color=MUTED, linewidth=1.2, linestyle="--", label="guess")
        self._band(first, estimate)
        self._line(first, estimate, color=ACCENT, linewidth=1.4, label="estimate")
        legend_above(first, 3)
        self._finish(first, with_units(self.scalar.label, self.scalar.units))
        for axes in second:
            assert truth is not None
            axes.axhline(0.0, color=INK, linewidth=0.8)
            self._band(axes, estimate - truth)
            self._line(axes, estimate - truth, color=ACCENT, linewidth=1.4)
            self._finish(axes, with_units("Estimate − truth", self.scalar.units))

    def _line(self, axes: Axes, values: np.ndarray, **style) -> None:
        axes.plot(self.scalar.coordinate("x"), gaps(values), **style)

    def _band(self, axes: Axes, centre: np.ndarray) -> None:
        if "deviation" in self.values:
            half = NORMAL_95 * self.values["deviation"]
            axes.fill_between(self.scalar.coordinate("x"), centre - half, centre + half, color=ACCENT, alpha=0.18, lw=0)

    def _finish(self, axes: Axes, label: str) -> None:
        low = np.zeros(len(self.sensors))
        axes.plot(
            self.sensors[:, 0], low, "o", color=INK, markersize=3.5, transform=axes.get_xaxis_transform(), clip_on=False
        )
        axes.set_xlim(*self.scalar.extent("x"))
        axes.set_xlabel(axis_title(self.scalar, "x"), fontsize=NORMAL, color=INK)
        axes.set_ylabel(label, fontsize=NORMAL, color=INK)
        set_ticks(axes)


class ParticleRow:
    """A vector of particles, axis by axis: how far guess and estimate are from the truth, or the estimate by number."""

    height = 2.6
    width = FULL_WIDTH

    def __init__(self, sought: FieldResult):
        self.sought = sought
        what = "guess (grey) and estimate (blue) less truth" if sought.truth is not None else "estimate"
        self.heading = f"{title_case(sought.path.rpartition('.')[2])} of particles ({sought.path}): {what}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        sought = self.sought
        places = side_by_side(sheet, left, top, len(sought.names), height=self.height, columns=1, gap=LABELLED_GAP)
        for component, (axes, name) in enumerate(zip(places, sought.names, strict=True)):
            truth = None if sought.truth is None else sought.truth[component]
            shown = [(sought.estimate[component], ACCENT)]
            if truth is not None:
                axes.axhline(0.0, color=INK, linewidth=0.8)
                shown = [(sought.guess[component], MUTED), *shown]
            for values, color in shown:
                axes.plot(values if truth is None else values - truth, ".", color=color, markersize=3)
            axes.set_title(title_case(name), fontsize=NORMAL, color=INK, loc="left", pad=5, parse_math=False)
            axes.set_xlabel("particle", fontsize=NORMAL, color=INK)
            set_ticks(axes)


class HistogramRow:
    """Residuals at the estimate, in standard deviations, against the normal distribution."""

    height = 2.4
    width = FULL_WIDTH

    def __init__(self, instruments: Sequence[InstrumentResult]):
        self.instruments = instruments[:_MOST_HISTOGRAMS]
        rest = len(instruments) - len(self.instruments)
        more = f"; {rest} more instruments are not shown" if rest else ""
        self.heading = f"Residuals at the estimate in standard deviations; the line is the normal distribution{more}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        places = side_by_side(sheet, left, top, len(self.instruments), height=self.height, columns=1)
        for axes, instrument in zip(places, self.instruments, strict=True):
            residuals = instrument.residuals(instrument.at_estimate)
            residuals = residuals[np.isfinite(residuals)]
            title = _histogram_title(instrument, residuals)
            axes.set_title(title, fontsize=NORMAL, color=INK, loc="left", pad=5, parse_math=False)
            if residuals.size == 0:
                say_empty(axes)
                continue
            reach = max(4.0, min(float(np.abs(residuals).max()), 3 * float(np.sqrt(np.mean(residuals**2)))))
            bins = np.linspace(-reach, reach, int(np.clip(2 * residuals.size ** (1 / 3), 8, 60)) + 1)
            density = np.histogram(np.clip(residuals, -reach, reach), bins)[0] / (residuals.size * (bins[1] - bins[0]))
            axes.stairs(density, bins, fill=True, color=ACCENT, alpha=0.35)
            x = np.linspace(-reach, reach, 401)
            axes.plot(x, np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi), color=INK, linewidth=1.2)
            axes.set_xlim(-reach, reach)
            axes.set_ylim(bottom=0.0)
            axes.set_xlabel("residual / standard deviation", fontsize=NORMAL, color=INK)
            set_ticks(axes)


def _histogram_title(instrument: InstrumentResult, residuals: np.ndarray) -> str:
    spread = f", root mean square {number(float(np.sqrt(np.mean(residuals**2))))}" if residuals.size else ""
    return f"{instrument.name} ({instrument.kind.replace('_', ' ')}){spread}"


class SensorRow:
    """Measurements of up to six point sensors over time, and their readings at the guess and at the estimate."""

    width = FULL_WIDTH
    heading = "Measured (dots, ± one standard deviation), at the estimate (blue), at the guess (dashed)"
    _HEIGHT, _STEP, _COLUMNS = 1.6, 2.4, 3

    def __init__(self, instruments: Sequence[InstrumentResult], time_units: str):
        every = [(i, sensor) for i in instruments if i.positions is not None for sensor in range(len(i.positions))]
        self.shown = [every[k] for k in scalars.spread(len(every), _MOST_SENSORS)]
        self.time_label = with_units("t", time_units)
        self.height = self._HEIGHT + self._STEP * ((len(self.shown) - 1) // self._COLUMNS)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        for first in range(0, len(self.shown), self._COLUMNS):
            shown = self.shown[first : first + self._COLUMNS]
            below = top + self._STEP * (first // self._COLUMNS)
            for axes, (instrument, sensor) in zip(
                side_by_side(sheet, left, below, len(shown), height=self._HEIGHT), shown, strict=True
            ):
                self._draw_sensor(axes, instrument, sensor)

    def _draw_sensor(self, axes: Axes, instrument: InstrumentResult, sensor: int) -> None:
        assert instrument.positions is not None
        present = np.isfinite(instrument.measured) if instrument.present is None else instrument.present
        deviation = np.broadcast_to(instrument.deviation, instrument.measured.shape)[:, sensor]
        there = present[:, sensor]
        axes.errorbar(
            instrument.times[there],
            instrument.measured[there, sensor],
            deviation[there],
            fmt="o",
            color=INK,
            markersize=2.6,
            elinewidth=0.8,
            ecolor=FAINT,
        )
        marker = "o" if len(instrument.times) == 1 else ""
        for values, colour, style in ((instrument.at_guess, MUTED, "--"), (instrument.at_estimate, ACCENT, "-")):
            axes.plot(instrument.times, gaps(values[:, sensor]), style, color=colour, linewidth=1.3, marker=marker)
        place = ", ".join(number(float(x)) for x in instrument.positions[sensor])
        where = f" in {instrument.experiment}" if instrument.experiment else ""
        title = f"{title_case(instrument.variable)} at ({place}){where}"
        axes.set_title(title, fontsize=NORMAL, color=INK, loc="left", pad=5, parse_math=False)
        axes.set_xlabel(self.time_label, fontsize=NORMAL, color=INK)
        axes.set_ylabel(pretty_units(instrument.units), fontsize=NORMAL, color=INK)
        set_ticks(axes, most=4)
