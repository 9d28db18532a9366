"""Checks of the configuration of a gas, and the totals that such a gas conserves."""

from collections.abc import Iterator
from typing import Any

from simjax.grid import AXES
from simjax.models.axisymmetric_grid import across_of_configuration
from simjax.models.gas.axisymmetric_gas import refusals
from simjax.models.gas.bodies.gas_bodies import check_bodies
from simjax.ops.axisymmetric_divergence import RADIAL

CHARACTERISTIC = ("characteristic_inflow", "characteristic_outflow")


def check(config: Any) -> Iterator[tuple[str, str]]:
    """Tell of keys that exclude each other, and of plain numbers for density, pressure or temperature that are <= 0."""
    physics = config.physics
    varied = {variation.path for variation in config.ensemble.vary}
    across = [{pair.lower.kind, pair.upper.kind} & {*CHARACTERISTIC} for pair in config.boundaries]
    transport = bool(physics.viscosity or physics.conductivity or physics.prandtl)
    yield from refusals(
        across_of_configuration(config),
        physics.reconstruction,
        gravity_along_r=bool(physics.gravity and physics.gravity[RADIAL]),
        transport=transport or not varied.isdisjoint(("physics.viscosity", "physics.conductivity")),
        prandtl=physics.prandtl is not None,
        conductivity=physics.conductivity > 0,
        characteristic=any(across),
        gravity_across=any(one and pull for one, pull in zip(across, physics.gravity or (), strict=False)),
        bodies="solid" in config.coefficients,
        stretching=bool(config.grid and config.grid.stretch),
        gravity=any(physics.gravity or ()),
        limited_faces=physics.count_limited,
        several_steps=config.steps_per_exchange not in (0, None),
    )
    yield from check_bodies(config, physics, bool(physics.conductivity or physics.prandtl))
    given = {f"initial.{name}": source for name, source in config.initial.items() if isinstance(source, tuple)}
    for axis, boundary in zip(AXES, config.boundaries, strict=False):
        for side in ("lower", "upper"):
            wall = getattr(boundary, side)
            given |= {f"boundaries.{axis}.{side}.{name}": formulas for name, formulas in wall.fields.items()}
    for path, formulas in given.items():
        value = formulas[0].constant if formulas else None
        if path.rsplit(".", 1)[-1] in ("density", "pressure", "temperature") and value is not None and value <= 0:
            yield path, f"{path} = {value:g}: expected a number > 0"


def conserved_quantities(config: Any) -> tuple[str, ...]:
    """Mass stays within walls; energy too, unless they move or are heated, or the gas falls. Not around bodies."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    if "solid" in config.coefficients or any(wall.kind in ("inflow", "outflow", *CHARACTERISTIC) for wall in walls):
        return ()
    mass = ("mass",)
    heated = any(wall.kind == "no_slip" and wall.fields for wall in walls)
    return mass if heated or any(config.physics.gravity or ()) else (*mass, "energy")
