"""One instrument of a run: its operator, and the description of its readings."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from simjax.core.model import Output
from simjax.grid import Grid
from simjax.instruments.operators import BalanceEntry, Instrumental, View
from simjax.models.balances import WithAccounts
from simjax.schema.instruments import InstrumentConfig


class Instrument(NamedTuple):
    """One instrument of a run: an operator for each variable of its file, which is described by an `Output`.

    variables: those of the run that it looks at.
    """

    source: InstrumentConfig
    operators: dict[str, Instrumental]
    outputs: dict[str, Output]
    variables: tuple[Output, ...] = ()

    def seen(self, operator: Instrumental, view: View) -> jax.Array:
        """The reading of an operator; a number if it reads a single box."""
        reading = operator.read(view)
        return reading[0] if self.source.kind == "box_mean" else reading

    def seen_shape(self, operator: Instrumental, grid: Grid) -> tuple[int, ...]:
        """The shape of what `seen` returns, of all devices together."""
        return () if self.source.kind == "box_mean" else operator.shape(grid)


def balance_instrument(source: InstrumentConfig, model: Any) -> Instrument:
    """An instrument that reads every number of the balances of some quantities, which the model has."""
    assert isinstance(model, WithAccounts)
    told = model.described(source.of)
    outputs = {name: Output(name, (), measure.units, measure.long_name) for name, measure in told.items()}
    return Instrument(source, {name: BalanceEntry(name) for name in told}, outputs)
