"""The transport family from a configuration."""

from collections.abc import Callable

from simjax.core.domain import Domain
from simjax.models.formulas import FormulaValue, Values, forces_of
from simjax.models.scalar import burgers, transport
from simjax.schema.config import Config
from simjax.schema.formula import Formula


def _transport(config: Config, domain: Domain, sides, values: Values, coefficients):
    (forced,) = forces_of(config.forcing.get("concentration", (Formula(0.0),)), values)
    factor = config.physics.velocity_factor
    model = transport.Transport(
        domain, sides, config.physics.scheme,
        source=forced,
        factor=None if factor is None else FormulaValue(Formula(factor), dict(values)),
        tolerance=10.0**-config.physics.digits,
    )  # fmt: skip
    diffusivity = coefficients["diffusivity"][0]
    given = config.coefficients["diffusivity"]
    if isinstance(given, tuple) and given[0].constant == 0:
        diffusivity = None
    source = coefficients["source"][0] if "source" in config.coefficients else None
    return model, transport.Params(coefficients["velocity"], diffusivity, source)


def _burgers(config: Config, domain: Domain, sides, values: Values, coefficients):
    model = burgers.Burgers(domain, sides, config.physics.scheme, tolerance=10.0**-config.physics.digits)
    return model, burgers.Params(values["viscosity"])


BUILDERS: dict[str, Callable] = {"transport": _transport, "burgers": _burgers}
