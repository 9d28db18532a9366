"""Small problems of the spectral family."""

from case import Case

CASES: tuple[Case, ...] = ()
