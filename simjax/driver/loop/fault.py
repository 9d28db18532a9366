"""A fault that ended a run, in words."""

from typing import NamedTuple


class Fault(NamedTuple):
    """What went wrong, where and when; and what troubled the state before it, "" where nothing is known of that."""

    what: str
    before: str = ""
