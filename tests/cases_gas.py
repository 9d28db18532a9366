"""Small problems of the gas family."""

from case import Case

CASES: tuple[Case, ...] = ()
