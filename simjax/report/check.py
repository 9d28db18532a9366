"""One check of a run, as reports and terminals tell it."""

from dataclasses import dataclass

ROUNDING = "_rounding"
"""Ending of the name of what rounding may leave of a diagnostic that would vanish without it."""


@dataclass(frozen=True)
class Check:
    """One check of a run: measured value, bound, and whether it holds."""

    name: str
    value: str
    expected: str
    passed: bool
