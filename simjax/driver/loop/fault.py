"""A fault that ended a run, in words."""

from typing import NamedTuple


class Fault(NamedTuple):
    """A sentence on what went wrong, where and when; and one on what troubled the state before, "" if nothing did."""

    what: str
    before: str = ""
