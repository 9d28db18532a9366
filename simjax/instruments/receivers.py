"""The instrument that records at the receivers of waves."""

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
    """Records of the receivers of `physics.receivers`: the pressure of sound, the electric field of light, at each."""

    variable: str = eqx.field(static=True)
    positions: Places = eqx.field(static=True)

    at_given_places, of_fields = True, False

    def read(self, view):
        numbers = view.diagnostics()
        return jnp.stack([numbers[f"{RECEIVER}_{k}"] for k in range(len(self.positions))])

    def shape(self, grid):
        return (len(self.positions),)

    def layout(self, source, output, grid, units):
        points = np.asarray(self.positions)
        about = {"cf_role": "timeseries_id", "long_name": "number of the receiver", "units": "1"}
        numbers = Coordinate(RECEIVER, (RECEIVER,), np.arange(len(points), dtype="i4"), about)
        places = (
            Coordinate(AXES[k], (RECEIVER,), points[:, k], {"units": units, "long_name": f"{AXES[k]} of the receiver"})
            for k in range(points.shape[1])
        )
        return Layout((RECEIVER,), (numbers, *places))

    @classmethod
    def unavailable(cls, site):
        if (site.sections["physics"] or {}).get("receivers"):
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
        return {RECORD: (cls(RECORD, run.config.physics.receivers), found)}
