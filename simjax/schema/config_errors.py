"""Collection of all mistakes in a configuration, reported together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from simjax.errors import ConfigurationError, without_credentials

SHOWN = 30


class ConfigErrors:
    """Sentences, each about one key path: what was given, what is allowed, what was probably meant.

    below: the path that all of them are told below of.
    """

    def __init__(self, below: str = "") -> None:
        self.below = below
        self.sentences: list[str] = []
        self.paths: list[str] = []

    def __len__(self) -> int:
        return len(self.sentences)

    def add(self, path: str, value: Any, expected: str, hint: str = "") -> None:
        self.say(path, f"{path} = {show(value)}: expected {expected}{'; ' + hint if hint else ''}")

    def say(self, path: str, sentence: str) -> None:
        if self.below:
            # Of the section `inverse` it is a part itself.
            own = path.removeprefix("inverse.")
            joint = "." if sentence.startswith(path) else ": "
            path, sentence = f"{self.below}.{own}", f"{self.below}{joint}{sentence.removeprefix('inverse.')}"
        if sentence not in self.sentences:
            self.paths.append(path)
            self.sentences.append(sentence)

    def unknown(self, path: str, key: Any, known: Iterable[str]) -> str | None:
        """An unknown key below `path`, where the keys `known` exist; returns what was probably meant."""
        known = list(known)
        full = join(path, str(key))
        close = closest(str(key), known)
        hint = f"did you mean '{join(path, close)}'?" if close else f"known here: {', '.join(known) or 'none'}"
        self.say(full, f"{full}: unknown key; {hint}")
        return close

    def raise_if_any(self) -> None:
        if not self.sentences:
            return
        if len(self.sentences) == 1:
            raise ConfigurationError(ended(self.sentences[0]))
        shown = [f"  {sentence}" for sentence in self.sentences[:SHOWN]]
        if len(self.sentences) > SHOWN:
            shown.append(f"  and {len(self.sentences) - SHOWN} more")
        raise ConfigurationError(f"{len(self.sentences)} problems in the configuration:\n" + "\n".join(shown))


def ended(sentence: str) -> str:
    """A sentence with its full stop, unless it ends in a question or in `...`, as in "write model=..."."""
    return sentence if sentence.endswith(("?", "...")) else sentence.rstrip(".") + "."


def unended(sentence: object) -> str:
    """A sentence to be put into another one, without its full stop."""
    text = str(sentence)
    return text if text.endswith("...") else text.rstrip(".")


def raise_first(refusals: Iterable[tuple[str, str]]) -> None:
    """Raise the first of some sentences, each with its key path, as constructors do; configurations tell them all.

    Raises:
        ConfigurationError: there is one.
    """
    for _, sentence in refusals:
        raise ConfigurationError(ended(sentence))


def closest(key: str, known: Iterable[str]) -> str | None:
    """The known key that `key` was probably meant to be, or None if none is like it."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.55)
    return by_lower[found[0]] if found else None


def join(path: str, key: str) -> str:
    """The path of `key` below `path`."""
    return f"{path}.{key}" if path else key


def show(value: Any, width: int = 60) -> str:
    """Quote a value in a message: hide secrets in URLs, then cut to `width` characters."""
    text = without_credentials(repr(value))
    return text if len(text) <= width else text[: width - 3] + "..."
