"""Numbers, units and times as text for figures, reports and the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MAX_DECIMALS = 12


def title_case(name: str) -> str:
    """`max_divergence` as `Max divergence`: the label of a variable without a long name; a symbol stays as it is."""
    words = name.replace("_", " ").strip()
    return words if len(words) == 1 else words[:1].upper() + words[1:]


def pretty_units(units: str) -> str:
    """CF units as typeset text: `m2 s-1` is `m² s⁻¹`, and the units of a pure number, `1`, are empty."""
    if units in ("", "1"):
        return ""
    return re.sub(r"(?<=[A-Za-z])\^?(-?\d+)", lambda power: power[1].translate(_SUPERSCRIPTS), units)


def with_units(label: str, units: str) -> str:
    """An axis label, with units in brackets where there are any."""
    return scaled_label(label, units, 0)


def quantity(value: float, units: str = "", digits: int = 3) -> str:
    """A number with its units, such as `1.25×10⁻³ m`."""
    text = pretty_units(units)
    return f"{number(value, digits)} {text}" if text else number(value, digits)


def number(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, with a power of ten outside [1e-3, 1e5)."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.{max(digits, math.floor(math.log10(abs(value))) + 1)}g}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    if mantissa in ("1", "-1"):
        return mantissa.replace("1", power).replace("-", "−")
    return f"{mantissa}×{power}".replace("-", "−")


def common_power(largest: float) -> int:
    """The power of ten to write once, in an axis label, for values up to `largest`; 0 within [1e-3, 1e5)."""
    if largest == 0 or not math.isfinite(largest) or 1e-3 <= abs(largest) < 1e5:
        return 0
    return math.floor(math.log10(abs(largest)))


def scaled_label(label: str, units: str, power: int) -> str:
    """An axis label for values divided by ten to `power`: `Divergence [10⁻⁶ s⁻¹]`."""
    factor = "10" + str(power).translate(_SUPERSCRIPTS) if power else ""
    text = " ".join(part for part in (factor, pretty_units(units)) if part)
    return f"{label} [{text}]" if text else label


def decimals_for(values: Sequence[float], spacing: float) -> int:
    """The fewest decimals that write every value to within a hundredth of `spacing`."""
    if not (math.isfinite(spacing) and spacing > 0):
        return 0
    most = min(_MAX_DECIMALS, max(0, 2 - math.floor(math.log10(spacing))))
    for decimals in range(most):
        if all(abs(round(v, decimals) - v) <= 0.01 * spacing for v in values):
            return decimals
    return most


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels of evenly spaced ticks: as few decimals as keep them apart, one common power of ten."""
    finite = [v for v in values if math.isfinite(v)]
    largest = max((abs(v) for v in finite), default=0.0)
    if largest == 0:
        return ["0"] * len(values)
    ordered = sorted(set(finite))
    spacing = min((b - a for a, b in zip(ordered, ordered[1:], strict=False)), default=largest)
    exponent = common_power(largest)
    scaled = [v / 10.0**exponent for v in values]
    decimals = decimals_for(scaled, spacing / 10.0**exponent)
    suffix = "×10" + str(exponent).translate(_SUPERSCRIPTS) if exponent else ""
    return [_tick(v, decimals, suffix) for v in scaled]


def _tick(value: float, decimals: int, suffix: str) -> str:
    text = f"{value:.{decimals}f}".replace("-", "−")
    if float(f"{value:.{decimals}f}") == 0:
        return "0"
    return text + suffix


def time_labels(times: Sequence[float], units: str) -> list[str]:
    """`t = 0.25 s` for every time, with the same number of decimals, enough to tell neighbours apart."""
    if len(times) == 0:
        return []
    gaps = sorted(b - a for a, b in zip(times, times[1:], strict=False) if b > a)
    spacing = gaps[len(gaps) // 2] if gaps else abs(times[0])
    text = pretty_units(units)
    ending = f" {text}" if text else ""
    if max(abs(t) for t in times) < 1e-3:
        return [f"t = {number(t, 4)}{ending}" for t in times]
    decimals = min(decimals_for(times, spacing), 1 + max(0, -math.floor(math.log10(spacing or 1.0))))
    return [f"t = {t:.{decimals}f}{ending}".replace("-", "−") for t in times]


def duration(seconds: float) -> str:
    """A wall-clock time: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`."""
    if not math.isfinite(seconds) or seconds < 0:
        return "unknown"
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    scales = ((60, 1, "min", "s"), (3600, 60, "h", "min"), (86400, 3600, "d", "h"))
    unit, part, name, part_name = max(scale for scale in scales if whole >= scale[0])
    return f"{whole // unit} {name} {whole % unit // part:02d} {part_name}"


def metric(value: float, units: str = "") -> str:
    """A count with a metric prefix to three digits: `12.3 M`, `4.56 G`."""
    if not math.isfinite(value):
        return "unknown"
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 0.9995 * 10**power:
            return f"{_three_digits(value / 10**power)} {prefix}{units}"
    return f"{value:.3g} {units}".rstrip()


def _three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"
