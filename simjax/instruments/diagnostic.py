"""The instrument that reads numbers that a model tells of its state."""

import equinox as eqx

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.instruments.instrument import Instrument
from simjax.schema.config_errors import closest
from simjax.schema.instrument_declarations import BOTH, OF, instrument


@instrument("diagnostic", family=BOTH)
class Diagnostic(Instrument):
    """A number that the model tells of a state by name, such as a mean or an energy."""

    variable: str = eqx.field(static=True)

    at_kind = OF
    noun = "diagnostics"
    at_given_places, of_fields = True, False

    def read(self, view):
        return view.diagnostics()[self.variable]

    @classmethod
    def names(cls, site):
        return None

    @classmethod
    def readings(cls, source, written):
        return {name: () for name in source.of}

    @classmethod
    def made(cls, source, run):
        known = sorted(run.seen_shapes[1])
        for name in source.of:
            if name not in known:
                close = closest(name, known)
                hint = f"did you mean '{close}'? " if close else ""
                raise ConfigurationError(
                    f"{source.name}: {name}: no diagnostic of model={run.config.model}; {hint}There are "
                    f"{', '.join(known)}."
                )
        told = {name: run.measure_of(name) for name in source.of}
        return {name: (cls(name), Output(name, (), one.units, one.long_name)) for name, one in told.items()}
