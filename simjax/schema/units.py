"""Units as texts, such as `kg m-1 s-2`: their powers and products."""

from __future__ import annotations

import re

_FACTOR = r"([A-Za-z]+)(-?\d+)?"


def squared(units: str) -> str:
    """Units of the square: `m s-1` becomes `m2 s-2`."""
    return to_the_power(units, 2)


def to_the_power(units: str, power: int) -> str:
    """Units to a power: the third of `m s-1` is `m3 s-3`, and what is no product of such factors stays in brackets."""
    if units == "1" or power == 0:
        return "1"
    parts = [re.fullmatch(_FACTOR, part) for part in units.split()]
    if not all(parts):
        return f"({units}){power}"
    return " ".join(_factor(part[1], power * int(part[2] or 1)) for part in parts if part)


def product_of_units(one: str, other: str) -> str:
    """The product of two units: `m s-1` and `m2` give `m3 s-1`."""
    powers: dict[str, int] = {}
    for symbol, power in re.findall(_FACTOR, f"{one} {other}"):
        powers[symbol] = powers.get(symbol, 0) + int(power or 1)
    return " ".join(_factor(symbol, power) for symbol, power in powers.items() if power) or "1"


def _factor(symbol: str, power: int) -> str:
    return symbol if power == 1 else f"{symbol}{power}"
