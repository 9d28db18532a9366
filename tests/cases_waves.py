"""Small problems of the waves family."""

from case import Case

CASES: tuple[Case, ...] = ()
