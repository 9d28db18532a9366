"""One time statistic of a run: what it is of, its moments, and the shapes of its sums."""

from __future__ import annotations

from typing import NamedTuple

from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.driver.output.instrument import RunInstrument
from simjax.schema.time_statistics import StatisticsConfig
from simjax.stepping.moments import Moments


class Statistic(NamedTuple):
    """A time statistic of a run, an entry of `statistics`. over: the axes that are averaged over, by number.
    instrument: what `variables` are read by, where they are no fields."""

    source: StatisticsConfig
    variables: tuple[Output, ...]
    moments: Moments
    over: tuple[int, ...]
    instrument: RunInstrument | None = None

    def shapes(self, domain: Domain) -> dict[str, tuple[int, ...]]:
        """The shape of each variable's statistics, of all devices together."""
        if self.instrument is not None:
            return self.instrument.shapes(domain.grid)
        shape = tuple(domain.grid.shape[axis] for axis in self.kept(domain.grid.ndim))
        return {one.name: shape for one in self.variables}

    def spec(self, domain: Domain) -> PartitionSpec:
        """The partition of every variable's statistics."""
        if self.instrument is not None:
            return next(iter(self.instrument.operators.values())).spec(domain)
        return PartitionSpec(*(domain.spec()[axis] for axis in self.kept(domain.grid.ndim)))

    def kept(self, ndim: int) -> tuple[int, ...]:
        """The axes that are not averaged over."""
        return tuple(axis for axis in range(ndim) if axis not in self.over)
