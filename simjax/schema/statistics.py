"""The key `ensemble.statistics`: which statistics over the members are written at every output time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import ListOf, Real

MOMENTS = ("mean", "variance", "min", "max")
QUANTILES = "quantiles"


@dataclass(frozen=True)
class Statistics:
    """Statistics over members: `names` of `MOMENTS` in that order, and increasing shares of `quantiles`."""

    names: tuple[str, ...] = ()
    quantiles: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.quantiles)

    def write(self) -> list[Any] | None:
        """The plain YAML value."""
        quantiles = [{QUANTILES: list(self.quantiles)}] if self.quantiles else []
        return [*self.names, *quantiles] or None


NO_STATISTICS = Statistics()


@dataclass(frozen=True)
class StatisticsKind:
    """A list of statistics: names, and at most one mapping `{quantiles: [0.05, 0.5, 0.95]}`; null is none."""

    @property
    def allowed(self) -> str:
        return f"a list of {', '.join(MOMENTS)} and {{quantiles: [0.05, 0.5, 0.95]}}, or null"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Statistics | None:
        if value is None:
            return Statistics()
        if not isinstance(value, list | tuple):
            problems.add(path, value, self.allowed)
            return None
        before, names, shares = len(problems), [], []
        for item in value:
            if isinstance(item, Mapping) and list(item) == [QUANTILES] and not shares:
                shares = ListOf(Real(0.0, 1.0), 1, 100, noun="shares").read(
                    f"{path}.{QUANTILES}", item[QUANTILES], problems
                )
            elif isinstance(item, str) and item in MOMENTS and item not in names:
                names.append(item)
            else:
                problems.add(path, item, f"each once: {self.allowed}")
        if len(problems) > before:
            return None
        assert shares is not None
        return Statistics(tuple(sorted(names, key=MOMENTS.index)), tuple(sorted(set(shares))))

    def write(self, value: Statistics) -> list[Any] | None:
        return value.write()
