"""The instrument that reads balances of conserved quantities."""

import equinox as eqx

from simjax.core.model import Output
from simjax.instruments.instrument import Instrument
from simjax.models.registry import MODELS
from simjax.schema.instrument_declarations import BOTH, OF, instrument
from simjax.schema.site import Refusal


@instrument("balance", family=BOTH)
class Balance(Instrument):
    """A number of the balance of a conserved quantity: the amount inside, what passed each side, what was made."""

    variable: str = eqx.field(static=True)

    at_kind = OF
    noun = "quantities"
    fitted, accounts, of_fields = False, True, False

    def read(self, view):
        return view.balances()[self.variable]

    @classmethod
    def unavailable(cls, site):
        if site.schema.balanced(site.ndim, site.counts):
            return ""
        able = ", ".join(name for name, schema in MODELS.items() if schema.balanced(site.ndim, {}))
        return f"model={site.schema.name} does not tell what passes its sides; expected one that does: {able}"

    @classmethod
    def names(cls, site):
        return site.schema.balanced(site.ndim, site.counts)

    @classmethod
    def refusals(cls, of, given, site):
        """Refuse what leaves fluxes through the sides unknown at some stage, or adds terms of its own."""
        several = site.sections["steps_per_exchange"]
        if several not in (0, None):
            found = f"steps_per_exchange=0, got {several}, where no field is whole between two exchanges"
            yield Refusal("", found, hint="write steps_per_exchange=0")
        unknown = "whose terms it does not know"
        reasons = {"closure": unknown, "sponge": unknown, "inverse": "which searches without accounts"}
        for section, why in reasons.items():
            if site.sections[section]:
                yield Refusal("", f"no section {section}, {why}", hint="leave out one of the two")

    @classmethod
    def readings(cls, source, written):
        return {}

    @classmethod
    def made(cls, source, run):
        told = run.model.described(source.of)
        return {name: (cls(name), Output(name, (), one.units, one.long_name)) for name, one in told.items()}
