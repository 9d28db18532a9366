"""The instrument that records at the receivers of waves."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from simjax.core.model import Output
from simjax.grid import AXES
from simjax.instruments.instrument import Coordinate, Instrument, Layout, Places
from simjax.schema.instrument_declarations import instrument

RECEIVER, RECORD = "receiver", "record"


@instrument("receivers")
class Receivers(Instrument):
    """Records of the receivers of `physics.receivers`: the pressure of sound, the electric field of light, at each.

    positions: `(receivers, axes)`, or those of every member in front.
    """

    variable: str = eqx.field(static=True)
    positions: Places | tuple[Places, ...] = eqx.field(static=True)

    at_given_places, of_fields = True, False

    def read(self, view):
        numbers = view.diagnostics()
        return jnp.stack([numbers[f"{RECEIVER}_{k}"] for k in range(self._count)])

    def shape(self, grid):
        return (self._count,)

    @property
    def _count(self) -> int:
        return np.shape(self.positions)[-2]

    def layout(self, source, output, grid, units):
        points = np.asarray(self.positions)
        dims = ("member", RECEIVER)[-points.ndim + 1 :]
        about = {"cf_role": "timeseries_id", "long_name": "number of the receiver", "units": "1"}
        numbers = Coordinate(RECEIVER, (RECEIVER,), np.arange(self._count, dtype="i4"), about)
        places = (
            Coordinate(AXES[k], dims, points[..., k], {"units": units, "long_name": f"{AXES[k]} of the receiver"})
            for k in range(points.shape[-1])
        )
        return Layout((RECEIVER,), (numbers, *places))

    @classmethod
    def unavailable(cls, site):
        physics = site.sections["physics"] or {}
        if physics.get("receivers") or isinstance(physics.get("sources"), Mapping) and "shots" in physics["sources"]:
            return ""
        place = [0.5] * site.ndim
        return f"expected places of receivers; in a model of waves write physics.receivers, such as [{place}]"

    @classmethod
    def readings(cls, source, written):
        return {RECORD: ()}

    @classmethod
    def made(cls, source, run):
        told = run.measure_of(f"{RECEIVER}_0")
        found = Output(RECORD, (), told.units, "record of the receiver")
        return {RECORD: (cls(RECORD, run.config.physics.receiver_places(run.config)), found)}
