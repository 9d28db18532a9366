"""Small problems of the transport family."""

from case import Case

CASES: tuple[Case, ...] = ()
