"""Small problems of the semilinear equations."""

from case import Case

CASES: tuple[Case, ...] = ()
