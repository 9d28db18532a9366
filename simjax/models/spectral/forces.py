"""Sources of spectral equations from formulas."""

from simjax.models.formulas import FormulaForce, Values, forces_of
from simjax.schema.config import Config


def forces_by_field(config: Config, values: Values) -> dict[str, FormulaForce | None]:
    """The formula of every forced scalar field as a function of time and position; None where it vanishes."""
    return {name: forces_of((formula,), values)[0] for name, (formula,) in config.forcing.items()}
