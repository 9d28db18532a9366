"""One time statistic of a run: what it is of, its moments, the shapes of its sums, and what these amount to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.driver.output.instrument import RunInstrument
from simjax.io.time_statistics_files import IMAGINARY, REAL, WEIGHT, Described, described
from simjax.schema.time_statistics import FOURIER, MAX, MEAN, MIN, THIRD_MOMENT, StatisticsConfig
from simjax.stepping.moments import Moments, Sums, Total


class Statistic(NamedTuple):
    """A time statistic of a run, an entry of `statistics`. over: the axes that are averaged over, by number.
    instrument: what `variables` are read by, where they are no fields. made_of: the instrument whose readings are made
    of Fourier integrals of these."""

    source: StatisticsConfig
    variables: tuple[Output, ...]
    moments: Moments
    over: tuple[int, ...]
    instrument: RunInstrument | None = None
    made_of: RunInstrument | None = None

    def described(self, time_units: str) -> list[Described]:
        """The variables of its file."""
        found = list(described(self.variables, self.source.kinds, self.source.over, time_units))
        if self.made_of is not None:
            for name, operator in self.made_of.operators.items():
                for one in operator.spectra(self.made_of.outputs[name], time_units):
                    found.append(Described(one.name, FOURIER, (), one.units, one.long_name))
        return found

    def compared(self, time_units: str) -> list[Described]:
        """The variables that come to its file where there is a reference run: what the run has beside that one."""
        if self.source.reference is None:
            return []
        found = [
            one._replace(name=one.name.replace(f"_{FOURIER}_", "_scattered_"), long_name=f"scattered: {one.long_name}")
            for one in described(self.variables, (FOURIER,), self.source.over, time_units)
        ]
        for one in self.described(time_units):
            if not one.of:
                says = {
                    "reference": "in the reference run",
                    "scattered": "of the fields less those of the reference run",
                }
                found += [
                    one._replace(name=f"{one.name}_{end}", long_name=f"{one.long_name}, {said}")
                    for end, said in says.items()
                ]
                about = f"{one.long_name}, over that in the reference run"
                found.append(one._replace(name=f"{one.name}_relative", units="1", long_name=about))
        return found

    def compared_values(
        self, sums: Sums, domain: Domain, total_of: Callable[[Total], Any], reference
    ) -> dict[str, Any]:
        """The values of `compared` on the host; reference: parts of the Fourier integrals of the reference run."""
        integrals = {name: (total_of(a), total_of(b)) for name, (a, b) in sums.fourier.items()}
        apart = {name: (a - reference[name][0], b - reference[name][1]) for name, (a, b) in integrals.items()}
        found = {
            f"{name}_scattered_{part}": u
            for name, own in apart.items()
            for part, u in zip((REAL, IMAGINARY), own, strict=True)
        }
        for operator in self.made_of.operators.values() if self.made_of is not None else ():
            now, known, left = (operator.by_frequency(domain, one) for one in (integrals, reference, apart))
            for name, own in known.items():
                found |= {
                    f"{name}_reference": own,
                    f"{name}_scattered": left[name],
                    f"{name}_relative": now[name] / own,
                }
        return found

    def shapes(self, domain: Domain) -> dict[str, tuple[int, ...]]:
        """The shape of each variable's statistics, of all devices together."""
        if self.instrument is not None:
            return self.instrument.shapes(domain.grid)
        shape = tuple(domain.grid.shape[axis] for axis in self.kept(domain.grid.ndim))
        return {one.name: shape for one in self.variables}

    def specs(self, domain: Domain) -> dict[str, PartitionSpec]:
        """The partition of each variable's statistics."""
        if self.instrument is not None:
            return {name: operator.spec(domain) for name, operator in self.instrument.operators.items()}
        cut = PartitionSpec(*(domain.spec()[axis] for axis in self.kept(domain.grid.ndim)))
        return {one.name: cut for one in self.variables}

    def kept(self, ndim: int) -> tuple[int, ...]:
        """The axes that are not averaged over."""
        return tuple(axis for axis in range(ndim) if axis not in self.over)

    def values(
        self, sums: Sums, domain: Domain, described: Sequence[Described], total_of: Callable[[Total], Any], xp: Any
    ) -> dict[str, Any]:
        """The numbers that the sums amount to, by the names of the variables of its file; NaN where nothing counts.

        domain: cut as the sums are. total_of: what a sum amounts to. xp: `numpy` on the host, `jax.numpy` in programs.
        """
        weight = total_of(sums.weight)
        found: dict[str, Any] = {WEIGHT: weight}
        for one in described:
            if one.kind in (MIN, MAX):
                extreme = (sums.min if one.kind == MIN else sums.max)[one.of[0]]
                value = xp.where(xp.isnan(extreme.time), xp.nan, extreme.value)
                found[one.name] = extreme.time if one.is_time else value
                continue
            if not one.of:  # made of integrals, below
                continue
            if one.kind == FOURIER:
                real, imaginary = sums.fourier[one.of[0]]
                found[one.name] = total_of(real if one.part == REAL else imaginary)
                continue
            if one.kind == MEAN:
                total = total_of(sums.mean[one.of[0]])
            elif one.kind == THIRD_MOMENT:
                total = total_of(sums.third[one.of[0]])
            else:
                total = total_of(sums.second[one.of[0], one.of[-1]])
            counted = xp.reshape(weight, weight.shape + (1,) * (total.ndim - weight.ndim))
            over = 1.0 if one.kind == MEAN else counted
            found[one.name] = xp.where(counted > 0, total / over, xp.nan)
        if self.made_of is not None:
            integrals = {name: (total_of(real), total_of(other)) for name, (real, other) in sums.fourier.items()}
            for operator in self.made_of.operators.values():
                found |= operator.by_frequency(domain, integrals)
        return found
