"""Old spellings of public names and configuration keys, which work with a warning until the version that drops them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simjax.errors import ConfigurationError


class OldSpelling(FutureWarning):
    """A name or key is used by its old spelling. Python shows a `FutureWarning` once for each place in a program."""


@dataclass(frozen=True)
class Renamed:
    """An old spelling, the new one, and the version that no longer knows the old, such as "0.4.0".

    Public names are written without `sj.`; keys with their whole path, such as `time.end`.
    """

    old: str
    new: str
    dropped_in: str

    def sentence(self, prefix: str = "") -> str:
        """The warning: what to write instead, and from which version on the old spelling is an error."""
        return (
            f"{prefix}{self.old} is called {prefix}{self.new} now; write {prefix}{self.new}, "
            f"since simjax {self.dropped_in} drops the old spelling."
        )


NAMES: tuple[Renamed, ...] = ()
"""Public names of `import simjax as sj`."""

KEYS: tuple[Renamed, ...] = ()
"""Keys of a configuration; what stands below them goes with them."""


def current_name(name: str) -> str | None:
    """The new spelling of a public name, with a warning at the line that asks for it; None if it is no old spelling."""
    for renamed in NAMES:
        if renamed.old == name:
            warnings.warn(renamed.sentence("sj."), OldSpelling, stacklevel=3)
            return renamed.new
    return None


def current_path(path: str) -> str:
    """The new spelling of a key's path, with a warning if the given one is old."""
    for renamed in KEYS:
        if path == renamed.old or path.startswith(f"{renamed.old}."):
            warnings.warn(renamed.sentence(), OldSpelling, stacklevel=2)
            return renamed.new + path.removeprefix(renamed.old)
    return path


def with_current_keys(
    mapping: Mapping[str, Any], *, over_defaults: bool = False, of_a_run: bool = False
) -> dict[str, Any]:
    """The configuration by its present keys, with a warning for each old one.

    over_defaults: whether values of new keys are defaults, of which those of old keys take the place.
    of_a_run: whether simjax itself wrote it, so that nobody has to be warned.

    Raises:
        ConfigurationError: a key is given by its old and by its new spelling.
    """
    found = dict(mapping)
    for renamed in KEYS:
        old, new = renamed.old.split("."), renamed.new.split(".")
        if not _has(found, old):
            continue
        if _has(found, new) and not over_defaults:
            raise ConfigurationError(f"{renamed.old} and {renamed.new} are the same key; write {renamed.new} alone.")
        if not of_a_run:
            warnings.warn(renamed.sentence(), OldSpelling, stacklevel=2)
        found, value = _without(found, old)
        found = _with(found, new, value)
    return found


def overdue(version: str) -> list[str]:
    """The old spellings, of names and of keys, that this version was to drop."""
    return [renamed.old for renamed in (*NAMES, *KEYS) if _numbers(renamed.dropped_in) <= _numbers(version)]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _has(here: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(here, Mapping) or key not in here:
            return False
        here = here[key]
    return True


def _without(here: Mapping[str, Any], path: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """The mapping without what stands at a path, and that."""
    first, *rest = path
    if not rest:
        return {key: value for key, value in here.items() if key != first}, here[first]
    below, value = _without(here[first], rest)
    return {**here, first: below}, value


def _with(here: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The mapping with a value at a path; sections that are not there, or are null, are made, and mappings merged."""
    first, *rest = path
    below = here.get(first)
    if rest:
        value = _with(below or {}, rest, value)
    elif isinstance(below, Mapping) and isinstance(value, Mapping):
        value = {**below, **{key: _with(below, [key], item)[key] for key, item in value.items()}}
    return {**here, first: value}
