"""One instrument of a run: the operator of each variable of its file, and their layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax

from simjax.core.model import Output
from simjax.grid import Grid
from simjax.instruments.instrument import Coordinate, Instrument, Layout, View
from simjax.io.frame_layout import Variable
from simjax.schema.instruments import InstrumentConfig


class Reading(NamedTuple):
    """The operator of one variable of an instrument's file, what describes that, and the variables that are seen."""

    operator: Instrument
    output: Output
    seen: tuple[Output, ...]


class RunInstrument(NamedTuple):
    """One instrument of a run: the operator of each variable of its file, which is described by an `Output`.

    variables: those of the run that it looks at.
    """

    source: InstrumentConfig
    operators: dict[str, Instrument]
    outputs: dict[str, Output]
    variables: tuple[Output, ...] = ()

    @classmethod
    def of(cls, source: InstrumentConfig, run: Any) -> RunInstrument:
        """The instrument of an entry of `outputs`, checked against the grid; run: its `CompiledRun`."""
        kind, grid = source.kind_class, run.domain.grid
        made = kind.made(source, run)
        for operator, _ in made.values():
            operator.check(grid)
        operators = {name: operator for name, (operator, _) in made.items()}
        return cls(source, operators, {name: output for name, (_, output) in made.items()}, kind.seen(source, run))

    def read(self, view: View) -> dict[str, jax.Array]:
        """All readings, by name."""
        return {name: operator.read(view) for name, operator in self.operators.items()}

    def of_waves(self, fields: Iterable[Output]) -> RunInstrument:
        """An instrument that reads what Fourier integrals of this one are formed of; fields: the model's own."""
        known, found = {one.name: one for one in fields}, {}
        for name, operator in self.operators.items():
            found |= operator.amplitudes(self.outputs[name], known)
        operators = {name: operator for name, (operator, _) in found.items()}
        return self._replace(operators=operators, outputs={name: output for name, (_, output) in found.items()})

    def reading(self, variable: str) -> Reading:
        """The reading of one variable of the file."""
        return Reading(self.operators[variable], self.outputs[variable], self.variables)

    def shapes(self, grid: Grid) -> dict[str, tuple[int, ...]]:
        """Shapes of the readings, of all devices together."""
        return {name: operator.shape(grid) for name, operator in self.operators.items()}

    def layouts(self, grid: Grid, units: str) -> dict[str, Layout]:
        """The layout of each reading in the file; units: of lengths."""
        return {name: one.layout(self.source, self.outputs[name], grid, units) for name, one in self.operators.items()}


def coordinates_of(coordinates: Iterable[Coordinate]) -> list[Variable]:
    """Coordinates of a file, each once, those without a dimension last."""
    found: Mapping[str, Coordinate] = {one.name: one for one in coordinates}
    ordered = sorted(found.values(), key=lambda one: not one.dims)
    return [Variable(one.name, one.dims, one.values.dtype, one.attributes, one.values) for one in ordered]
