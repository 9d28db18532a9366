"""Features of models that exclude each other: a table of pairs, and the sentences that refuse them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A feature that a model may have.

    title: its name in a table, with the key that asks for it. without: what is expected beside what it excludes.
    instead: what to write so that the model is without it, where a sentence tells to change it.
    """

    title: str
    without: str = ""
    instead: str = "leave it out"


@dataclass(frozen=True)
class Exclusion:
    """Two features that no model has at once; a sentence tells to change the first one.

    why: the reason, which follows what is expected. instead: what to write, where it depends on the second feature.
    """

    feature: str
    beside: str
    why: str
    instead: str = ""


@dataclass(frozen=True)
class Exclusions:
    """Features by name, and the pairs of them that exclude each other. All other pairs go together."""

    features: Mapping[str, Feature]
    pairs: tuple[Exclusion, ...]

    def refusals(self, asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Sentences on the features that are asked for and exclude each other, each with its key path.

        asked: what asks for each feature, by name: a key path, alone or with what follows, such as "= central4".
        """
        for pair in self.pairs:
            if pair.feature in asked and pair.beside in asked:
                given, other = asked[pair.feature], asked[pair.beside]
                expected = f"{self.features[pair.beside].without}, {pair.why}"
                instead = pair.instead or self.features[pair.feature].instead
                yield given.split()[0], f"{given}: expected {expected}, and got {other}; {instead}"
