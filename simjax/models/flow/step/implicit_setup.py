"""Flows of which the viscosity can be taken implicitly."""

from collections.abc import Iterator
from typing import Any

from simjax.models.flow.sides.openings import is_open
from simjax.models.flow.sides.wall_model import KIND
from simjax.models.flow.step.budgets import budget_names
from simjax.schema.model_schema import IMEX

VISCOSITY = "time.integrator: a scheme with implicit viscosity"
INSTEAD = "write kutta3 or another scheme that is explicit"
EXPLICIT = f"does not know what implicit viscosity takes; leave it out, or {INSTEAD}"


def refusals(other_sides: bool, bodies: bool, axisymmetric: bool, advection: str) -> Iterator[tuple[str, str]]:
    """Sentences on flows of which the viscosity cannot be implicit, each with its key path."""
    asked = {
        "periodic, no_slip, slip and inflow sides alone": other_sides,
        "a flow without bodies (coefficients.solid)": bodies,
        "a Cartesian grid": axisymmetric,
        "viscous terms of second order, not those of physics.advection=central4": advection == "central4",
    }
    for what, found in asked.items():
        if found:
            yield "time.integrator", f"{VISCOSITY} expected {what}; {INSTEAD}"


def check_implicit(config: Any) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration with such a scheme, and the one of a balance that it does not have."""
    if config.time.integrator not in IMEX:
        return
    kinds = {side.kind for axis in config.boundaries for side in (axis.lower, axis.upper)}
    yield from refusals(
        is_open(config) or KIND in kinds,
        "solid" in config.coefficients,
        config.grid.axisymmetric,
        config.physics.advection,
    )
    asked = sorted({*config.outputs.balanced} & {*budget_names(len(config.grid.shape))})
    if asked:
        yield "outputs", f"outputs: the balance of {asked[0]} {EXPLICIT}"
