"""Units as texts, such as `kg m-1 s-2`: their powers and products."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FACTOR = r"([A-Za-z]+)(-?\d+(?:\.\d+)?)?"
_MADE_OF = {
    "Pa": "kg m-1 s-2",
    "N": "kg m s-2",
    "J": "kg m2 s-2",
    "W": "kg m2 s-3",
    "Hz": "s-1",
    "C": "A s",
    "V": "kg m2 s-3 A-1",
    "T": "kg s-2 A-1",
    "ohm": "kg m2 s-3 A-2",
    "S": "kg-1 m-2 s3 A2",
    "F": "kg-1 m-2 s4 A2",
    "H": "kg m2 s-2 A-2",
    "rad": "",
}
"""Units that have a name of their own, as products of base units."""


def squared(units: str) -> str:
    """Units of the square: `m s-1` becomes `m2 s-2`."""
    return to_the_power(units, 2)


def in_base_units(units: str) -> dict[str, float]:
    """Powers of the base units: those of `Pa` are one of kg, minus one of m and minus two of s."""
    powers: dict[str, float] = {}
    for symbol, power in re.findall(_FACTOR, units):
        for base, of_base in re.findall(_FACTOR, str(_MADE_OF.get(symbol, symbol))):
            powers[base] = powers.get(base, 0) + float(power or 1) * float(of_base or 1)
    return {base: power for base, power in powers.items() if power}


def to_the_power(units: str, power: float) -> str:
    """Units to a power: the third of `m s-1` is `m3 s-3`, and what is no product of such factors stays in brackets."""
    if units == "1" or power == 0:
        return "1"
    parts = [re.fullmatch(_FACTOR, part) for part in units.split()]
    if not all(parts):
        return f"({units}){power}"
    return " ".join(_factor(part[1], power * float(part[2] or 1)) for part in parts if part)


def product_of_units(one: str, other: str) -> str:
    """The product of two units: `m s-1` and `m2` give `m3 s-1`."""
    powers: dict[str, float] = {}
    for symbol, power in re.findall(_FACTOR, f"{one} {other}"):
        powers[symbol] = powers.get(symbol, 0) + float(power or 1)
    return text_of(powers)


def text_of(powers: Mapping[str, float]) -> str:
    """Units as a text, from the powers of symbols."""
    return " ".join(_factor(symbol, power) for symbol, power in powers.items() if power) or "1"


def _factor(symbol: str, power: float) -> str:
    return symbol if power == 1 else f"{symbol}{power:g}"
