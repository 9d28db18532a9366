"""One check of a run, as reports and terminals tell it."""

from dataclasses import dataclass

ROUNDING = "_rounding"
"""Ending of the name of what rounding may leave of a diagnostic that would vanish without it."""


@dataclass(frozen=True)
class Check:
    """One check of a run: what was found, what was expected, and whether that is good enough."""

    name: str
    value: str
    expected: str
    passed: bool
