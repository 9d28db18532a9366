"""The instrument that reads how the values of a field are distributed."""

import math
from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.instruments.instrument import Coordinate, FieldInstrument, Layout
from simjax.instruments.places import require_cartesian
from simjax.instruments.sampling import volumes
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Integer, Real, key
from simjax.schema.site import Refusal

MOST_BINS = 100_000
BIN = "value"


@instrument("histogram")
class Histogram(FieldInstrument):
    """The share of the volume whose value lies in each of `bins` equal bins from `lower` to `upper`: (bins,).

    On a uniform grid that is the share of the cells; on a stretched one each counts with its volume. A bin holds its
    lower edge, the last one also its upper. What lies outside counts and is in no bin. units: of the field's values.
    """

    variable: str = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)
    units: str = eqx.field(static=True, default="1")

    @dataclass(frozen=True)
    class Keys:
        """The bins."""

        bins: int = key(Integer(1, MOST_BINS), about="number of bins")
        lower: float = key(Real(formula=True), about="lower edge of the first bin")
        upper: float = key(Real(formula=True), about="upper edge of the last bin")

    at_given_places, fitted = True, False  # counts have no slopes

    def __check_init__(self):
        if self.bins < 1 or not (math.isfinite(self.lower) and self.lower < self.upper < math.inf):
            raise ConfigurationError(
                f"Histogram.bins={self.bins} from lower={self.lower:g} to upper={self.upper:g}: expected at least one "
                "bin between two numbers; write Histogram(variable, bins=50, lower=0.0, upper=1.0)."
            )

    @property
    def edges(self) -> np.ndarray:
        """Edges of the bins, `(bins + 1,)`."""
        return np.linspace(self.lower, self.upper, self.bins + 1)

    def measure(self, domain, field, offset, periodic):
        edges = jnp.asarray(self.edges, field.dtype)
        number = jnp.searchsorted(edges, field.ravel(), side="right").astype(jnp.int32)
        number = jnp.where(field.ravel() == edges[-1], self.bins, number)
        if domain.grid.stretched:
            each = volumes(domain, offset, periodic, field.dtype)
            assert each is not None
            amounts = jnp.zeros(self.bins + 2, field.dtype).at[number].add(jnp.broadcast_to(each, field.shape).ravel())
            return domain.total(amounts)[1:-1] / domain.grid.cells
        # What is not a number lies beyond the last edge: numbers 0 and bins + 1 stand for what is in no bin.
        counts = jnp.zeros(self.bins + 2, jnp.int32).at[number].add(1)
        return domain.total(counts)[1:-1].astype(field.dtype) / domain.grid.cells

    def check(self, grid):
        require_cartesian(f"Histogram of '{self.variable}'", grid)

    def shape(self, grid):
        return (self.bins,)

    def layout(self, source, output, grid, units):
        edges = self.edges
        bounds = np.stack([edges[:-1], edges[1:]], axis=1)
        about = {"long_name": "middle of the bin", "units": self.units, "bounds": f"{BIN}_bounds"}
        ends = {"long_name": "lower and upper edge", "units": "1"}
        coordinates = (
            Coordinate(BIN, (BIN,), bounds.mean(axis=1), about),
            Coordinate("end", ("end",), np.arange(2, dtype="i4"), ends),
            Coordinate(f"{BIN}_bounds", (BIN, "end"), bounds, {"units": self.units}),
        )
        return Layout((BIN,), coordinates)

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def refusals(cls, of, given, site):
        if not given["lower"] < given["upper"]:
            yield Refusal("upper", f"a number above lower={given['lower']:g}", given["upper"])

    @classmethod
    def made(cls, source, run):
        variables = cls.seen(source, run)
        units = {one.units for one in variables}
        of_values = units.pop() if len(units) == 1 else "1"
        what = "the volume" if run.domain.grid.stretched else "cells"
        return {one.name: (cls(one.name, **source.given, units=of_values), _share_of(what, one)) for one in variables}


def _share_of(what: str, output: Output) -> Output:
    about = f"share of {what} by {output.long_name or output.name}"
    return replace(output, units="1", long_name=about, standard_name="")
