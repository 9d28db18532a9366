"""The section `ensemble`: how many members run together, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.inverse import MOST_DRAWN, value_name
from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Table, Text, key
from simjax.schema.statistics import Statistics, StatisticsKind

DRAWN = ("uniform", "log_uniform", "normal")
DISTRIBUTIONS = (*DRAWN, "linspace", "values")
DESIGNS = ("random", "sobol", "latin_hypercube")
"""Ways in which members are spread over what is drawn."""


@dataclass(frozen=True)
class Variation:
    """Variation of one parameter between members: `kind` is uniform, log_uniform, normal, linspace or values."""

    path: str
    kind: str
    numbers: tuple[float, ...]

    @property
    def name(self) -> str:
        return self.path.rsplit(".", 1)[-1]

    @property
    def value_name(self) -> str:
        """Its name among the run's numbers."""
        return value_name(self.path)


@dataclass(frozen=True, kw_only=True)
class OnePerMember:
    """A value of a key of `physics` that holds something for each member, such as shots of a file.

    Args:
        count: how many things it holds.
        number: the key of `physics` whose number says which of them is a member's; where neither it nor
            `ensemble.vary` gives one, there is a member for each.
    """

    count: int
    number: str


@dataclass(frozen=True)
class EnsembleConfig:
    """The section `ensemble`, read: how many members, and what differs between them."""

    size: int = 1
    batch: int | None = None
    noise: str = "per_member"
    vary: tuple[Variation, ...] = ()
    design: str = "random"
    group: int | None = None
    numbers: tuple[int, ...] | None = None
    statistics: Statistics = Statistics()
    retry: bool = False

    @property
    def members(self) -> tuple[int, ...]:
        """The numbers of the members, on which their noise depends."""
        return tuple(range(self.size)) if self.numbers is None else self.numbers

    @property
    def several(self) -> bool:
        """Tell whether the run has an axis of members, be there one alone."""
        return self.size > 1 or bool(self.vary) or self.numbers is not None

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        return {
            "size": self.size,
            "group": self.group,
            "batch": self.batch,
            "noise": self.noise,
            "design": self.design,
            "vary": {variation.path: {variation.kind: list(variation.numbers)} for variation in self.vary},
            "numbers": None if self.numbers is None else list(self.numbers),
            "statistics": self.statistics.write(),
            "retry": self.retry,
        }


@dataclass(frozen=True)
class EnsembleKeys:
    """The section `ensemble` as it is written, its `vary` not yet read."""

    size: int = key(Integer(1, MOST_DRAWN), 1, about="members")
    group: int | None = key(
        Integer(1, optional=True), None, about="members in memory, run to the end before the next; null: what fits"
    )
    batch: int | None = key(
        Integer(1, optional=True), None, about="members of these that are computed at once; null: what fits"
    )
    noise: str = key(
        Choice(("per_member", "shared")), "per_member", about="whether members draw noise of their own or the same"
    )
    vary: Mapping[str, Any] = key(
        Table("keys such as physics.viscosity: {uniform: [1, 2]}"), None, about="numbers that differ between members"
    )
    design: str = key(Choice(DESIGNS), "random", about="how members are spread over what is drawn")
    members: str | None = key(
        Text(optional=True, described="a CSV file"),
        None,
        about="table with a column for each number, a line for each member",
    )
    numbers: tuple[int, ...] | None = key(
        ListOf(Integer(0, 2**31 - 1), 1, MOST_DRAWN, optional=True, noun="numbers"),
        None,
        about="numbers of the members, on which their noise depends; null: 0, 1, 2, ...",
    )
    statistics: Statistics = key(
        StatisticsKind(), Statistics(), about="statistics over the members, written at every output time"
    )
    retry: bool = key(Flag(), False, about="whether members that failed are run again with half the time step")
