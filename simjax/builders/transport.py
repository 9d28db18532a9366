"""The transport family from a configuration."""

from collections.abc import Callable

BUILDERS: dict[str, Callable] = {}
