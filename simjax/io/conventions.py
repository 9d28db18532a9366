"""Conventions of CF about the numbers of a variable: units, packing, what is missing.

Fields, axes and times follow them.
What changes the meaning of numbers and is not known here is refused, so that no number is read as another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.stored_variable import Stored

LONGEST_UNITS = 100
_UNIT_WORDS = {
    "meter": "m",
    "meters": "m",
    "metre": "m",
    "metres": "m",
    "second": "s",
    "seconds": "s",
    "sec": "s",
    "kelvin": "K",
    "kilogram": "kg",
    "kilograms": "kg",
    "1": "",
    "-": "",
    "none": "",
    "dimensionless": "",
}
MISSING = ("_FillValue", "missing_value")
LIMITS = ("valid_range", "valid_min", "valid_max")
FLAGS = ("flag_values", "flag_masks", "flag_meanings")
_FOLLOWED = {"scale_factor", "add_offset", "_Unsigned", *MISSING, *LIMITS}
# Words in names of attributes that change what numbers mean, by CF or by other conventions.
_CHANGING = re.compile(
    r"(^|[^a-z])(scale|scaling|offset|slope|intercept|factor|fill|missing|no_?data|valid|flag|unsigned|pack|formula_terms)"
    r"|^compress$",
    re.IGNORECASE,
)
# Programs that keep attributes of an earlier file under names of their own have followed them already.
_KEPT = re.compile(r"GRIB_|simjax_")


def matters(name: str) -> bool:
    """Tell whether an attribute of this name says what numbers mean; others are not read."""
    return name in ("units", "positive") or _changes(name)


def _changes(name: str) -> bool:
    return bool(_CHANGING.search(name)) and not _KEPT.match(name)


@dataclass(frozen=True)
class Packing:
    """The way from stored numbers to values.

    kind: the dtype that stored numbers are taken as, another than their own where `_Unsigned` says so. missing: stored
    numbers that stand for missing values. stored_limits, limits: the least and the largest that are valid, of stored
    numbers and of values.
    """

    kind: np.dtype
    missing: np.ndarray
    scale: float
    shift: float
    stored_limits: tuple[float, float]
    limits: tuple[float, float]

    def unpack(self, stored: np.ndarray) -> np.ndarray:
        """float64 values, NaN where one is missing or not valid."""
        if self.kind.itemsize == stored.dtype.itemsize and self.kind.kind != stored.dtype.kind:
            stored = stored.astype(stored.dtype.newbyteorder("=")).view(self.kind)
        values = stored.astype(np.float64)
        for missing in self.missing:
            values[stored == missing] = np.nan
        _leave_out(values, self.stored_limits)
        if (self.scale, self.shift) != (1.0, 0.0):
            values = values * self.scale + self.shift
        _leave_out(values, self.limits)
        return values


def _leave_out(values: np.ndarray, limits: tuple[float, float]) -> None:
    low, high = limits
    if low > -np.inf or high < np.inf:
        values[(values < low) | (values > high)] = np.nan


def packing(stored: Stored, where: str, *, flags: bool = False) -> Packing:
    """The packing of a variable, by its attributes.

    flags: whether its numbers may stand for classes, as those of a mask do.

    Raises ConfigurationError for attributes that contradict each other, or change values in a way that is not known.
    """
    _refuse_unknown(stored, where, flags)
    kind = _kind(stored, where)
    factors = []
    for name, default in (("scale_factor", 1.0), ("add_offset", 0.0)):
        found = _numbers(stored, name, where) if name in stored.attributes else np.array([default])
        if found.size != 1 or not np.isfinite(found[0]):
            raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected one finite number.")
        factors.append(float(found[0]))
    scale, shift = factors
    missing = np.concatenate([_as_kind(_numbers(stored, name, where), kind) for name in MISSING])
    everything = (-np.inf, np.inf)
    low, high, of_values = _limits(stored, where, kind)
    return Packing(
        kind, missing, scale, shift, everything if of_values else (low, high), (low, high) if of_values else everything
    )


def values_of(stored: Stored, where: str, *, flags: bool = False) -> np.ndarray:
    """All values of a variable in float64, NaN where it has none; arguments as of `packing`.

    Raises ResourceError where they do not fit into memory, and what `packing` raises.
    """
    return packing(stored, where, flags=flags).unpack(stored.read_whole())


def _refuse_unknown(stored: Stored, where: str, flags: bool) -> None:
    for name in stored.attributes:
        if name in _FOLLOWED or (flags and name in FLAGS) or not _changes(name):
            continue
        what = "classes, not amounts" if name in FLAGS else "values in a way that simjax does not know"
        raise ConfigurationError(
            f"{where} has the attribute {name} = {_shown(stored, name)}, by which its numbers stand for {what}; write "
            "plain values, without it."
        )


def _kind(stored: Stored, where: str) -> np.dtype:
    """The dtype that stored numbers are taken as."""
    own = stored.dtype.newbyteorder("=")
    if "_Unsigned" not in stored.attributes:
        return own
    said = text_of(stored.attributes["_Unsigned"]).lower()
    if own.kind not in "iu" or said not in ("true", "false"):
        raise ConfigurationError(
            f"{where}: its _Unsigned is {_shown(stored, '_Unsigned')} for numbers of dtype {own}; expected 'true' or "
            "'false' for integers."
        )
    return np.dtype(f"{'u' if said == 'true' else 'i'}{own.itemsize}")


def _as_kind(numbers: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Stored numbers in attributes, signed or not as those of the variable are: netCDF-3 has signed ones alone."""
    other = numbers.dtype.kind in "iu" and kind.kind in "iu" and numbers.dtype.kind != kind.kind
    if other and numbers.dtype.itemsize == kind.itemsize:
        return numbers.astype(numbers.dtype.newbyteorder("=")).view(kind)
    return numbers


def _limits(stored: Stored, where: str, kind: np.dtype) -> tuple[float, float, bool]:
    """The least and the largest valid number, and whether they are of unpacked values.

    They are of stored numbers, but where they are real numbers and the stored ones integers.
    """
    found = {name: _numbers(stored, name, where) for name in LIMITS if name in stored.attributes}
    for name, numbers in found.items():
        count = 2 if name == "valid_range" else 1
        if numbers.size != count or np.isnan(numbers).any():
            expected = "two numbers" if count == 2 else "one number"
            raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected {expected}.")
    if "valid_range" in found and len(found) > 1:
        raise ConfigurationError(f"{where} has {' and '.join(found)}; expected valid_range, or the two others.")
    of_values = kind.kind in "iu" and any(numbers.dtype.kind == "f" for numbers in found.values())
    if not of_values:
        found = {name: _as_kind(numbers, kind) for name, numbers in found.items()}
    low, high = found.get("valid_range", (-np.inf, np.inf))
    low, high = float(np.ravel(found.get("valid_min", low))[0]), float(np.ravel(found.get("valid_max", high))[0])
    if low > high:
        raise ConfigurationError(f"{where}: its valid values go from {low:g} to {high:g}; expected an order.")
    return low, high, of_values


def _numbers(stored: Stored, name: str, where: str) -> np.ndarray:
    """An attribute as a list of real numbers, empty where it is not there."""
    if name not in stored.attributes:
        return np.zeros(0)
    found = np.asarray(stored.attributes[name]).ravel()
    if found.dtype.kind not in "iuf":
        raise ConfigurationError(f"{where}: its {name} is {_shown(stored, name)}; expected a number.")
    return found


def _shown(stored: Stored, name: str) -> str:
    given = stored.attributes[name]
    text = repr(given.tolist() if isinstance(given, np.ndarray | np.generic) else given)
    return text if len(text) <= 60 else text[:57] + "..."


def text_of(given: Any) -> str:
    """The text of an attribute, however a format stores it."""
    given = given.ravel()[0] if isinstance(given, np.ndarray) and given.size == 1 else given
    found = given if isinstance(given, bytes) else str(given).encode("utf-8", "surrogateescape")
    return found.decode("utf-8", "replace")


# ---- units


def check_units(stored: Stored, expected: str | None, where: str) -> str:
    """Refuse a variable in other units than expected; what is told of one without units, else nothing."""
    if expected is None:
        return ""
    given = stored.attributes.get("units")
    if given is None:
        return f"no units in the file, taken as {expected}"
    text = text_of(given)
    if unit_powers(text) != unit_powers(expected):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise ConfigurationError(f"{where} is in '{shown}'; expected '{expected}': convert it before.")
    return ""


def unit_powers(text: str) -> Mapping[str, int] | str:
    """Powers of the symbols in `m/s`, `m s-1`, `m s**-1`, `m.s^-1`; the text itself if it is unlike that."""
    if len(text) > LONGEST_UNITS:
        return text
    powers: dict[str, int] = {}
    sign = 1
    for token in re.findall(r"[A-Za-z]+(?:\s*(?:\*\*|\^)?\s*[-+]?\d+)?|/|\S", text.strip()):
        if token in "*.·":
            continue
        if token == "/":
            sign = -1
            continue
        matched = re.fullmatch(r"([A-Za-z]+)\s*(?:\*\*|\^)?\s*([-+]?\d+)?", token)
        if matched is None and token not in ("1", "-"):
            return text.strip()
        symbol = matched[1] if matched is not None else token
        symbol = _UNIT_WORDS.get(symbol.lower(), symbol)
        power = sign * int((matched[2] if matched is not None else None) or 1)
        sign = 1
        if symbol:
            powers[symbol] = powers.get(symbol, 0) + power
    return {symbol: power for symbol, power in powers.items() if power}


# ---- axes


def positions_of(stored: Stored, units: str | None) -> np.ndarray:
    """A coordinate in float64, by the same conventions as values, along an axis of the grid in these units.

    Raises ConfigurationError where it is in other units, or counts downwards.
    """
    where = f"the coordinate '{stored.variable}' in {stored.path.name}"
    check_units(stored, units, where)
    if text_of(stored.attributes.get("positive", "up")).lower() == "down":
        raise ConfigurationError(
            f"{where} counts downwards (positive = 'down'), and the grid's axes do not; write it with the other sign."
        )
    return values_of(stored, where)
