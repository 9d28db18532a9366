"""One check of a run, as reports and terminals tell it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check of a run: what was found, what was expected, and whether that is good enough."""

    name: str
    value: str
    expected: str
    passed: bool
