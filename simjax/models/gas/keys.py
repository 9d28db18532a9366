"""Physics keys of a compressible gas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, ListOf, Real, entry
from simjax.schema.model_schema import AXES, FieldSchema, ModelSchema


@dataclass(frozen=True)
class CompressiblePhysics:
    """Compressible Navier-Stokes of a perfect gas; see `models.gas.compressible`."""

    gamma: float = entry(Real(above=1.0), 1.4, about="ratio of specific heats")
    gas_constant: float = entry(Real(above=0.0), 1.0, units="J kg-1 K-1", about="R in p = rho R T")
    viscosity: float = entry(Real(low=0.0), 0.0, units="Pa s", about="dynamic viscosity mu")
    conductivity: float = entry(Real(low=0.0), 0.0, units="W m-1 K-1", about="heat conductivity k")
    prandtl: float | None = entry(
        Real(above=0.0, optional=True), None, about="Prandtl number, which sets the conductivity from the viscosity"
    )
    gravity: tuple[float, ...] | None = entry(
        ListOf(Real(), 1, 3, optional=True, noun="numbers, one per axis", per_axis=True),
        None,
        units="m s-2",
        about="acceleration of gravity",
    )
    reconstruction: str = entry(
        Choice(("weno5", "mc", "van_leer", "minmod", "first_order")), "weno5", about="values at faces"
    )
    variables: str = entry(Choice(("characteristic", "primitive")), "characteristic", about="what is interpolated")
    flux: str = entry(Choice(("hllc", "hll", "rusanov")), "hllc", about="numerical flux")
    density_floor: float | None = entry(Real(above=0.0, optional=True), None, units="kg m-3")
    pressure_floor: float | None = entry(Real(above=0.0, optional=True), None, units="Pa")


_DENSITY = FieldSchema("density", units="kg m-3", default=None)
_VELOCITY = FieldSchema("velocity", vector=True, units="m s-1")
_PRESSURE = FieldSchema("pressure", units="Pa", default=None)
_SCALARS = FieldSchema("scalars", free=True, optional=True)

WALLS: dict[str, tuple[FieldSchema, ...]] = {
    "slip": (),
    "no_slip": (_VELOCITY, FieldSchema("temperature", units="K", optional=True)),
    "inflow": (_DENSITY, _VELOCITY, _PRESSURE, _SCALARS),
    "outflow": (FieldSchema("pressure", units="Pa", optional=True),),
}


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """What cannot hold together, and quantities of gas that are not positive where they are plain numbers."""
    physics = config.physics
    if physics.prandtl is not None and physics.conductivity > 0:
        yield (
            "physics.prandtl",
            f"physics.prandtl = {physics.prandtl:g} and physics.conductivity = {physics.conductivity:g}: expected one "
            "of them; write physics.conductivity=0 or physics.prandtl=null",
        )
    given = {f"initial.{name}": source for name, source in config.initial.items() if isinstance(source, tuple)}
    for axis, boundary in zip(AXES, config.boundaries, strict=False):
        for side in ("lower", "upper"):
            wall = getattr(boundary, side)
            given |= {f"boundaries.{axis}.{side}.{name}": formulas for name, formulas in wall.fields.items()}
    for path, formulas in given.items():
        value = formulas[0].constant if formulas else None
        if path.rsplit(".", 1)[-1] in ("density", "pressure", "temperature") and value is not None and value <= 0:
            yield path, f"{path} = {value:g}: expected a number > 0"


def _conserved(config: Any) -> tuple[tuple[str, str], ...]:
    """Mass stays within walls; energy too, unless they move or are heated, or the gas falls."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    if any(wall.kind in ("inflow", "outflow") for wall in walls):
        return ()
    mass = (("mass", "mass"),)
    heated = any(wall.kind == "no_slip" and wall.fields for wall in walls)
    return mass if heated or any(config.physics.gravity or ()) else (*mass, ("energy", "energy"))


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "compressible",
        CompressiblePhysics,
        fields=(_DENSITY, _VELOCITY, _PRESSURE, _SCALARS),
        walls=WALLS,
        diagnosed=lambda ndim: ("temperature", "mach", "schlieren"),
        # Means of forward Euler steps keep density and pressure positive; rk4 is none, and loses strong shocks and near
        # vacua at any step length, but is far more exact where the flow is smooth: docs/gas.md.
        integrators=("ssprk3", "ssprk2", "williamson3", "kutta3", "rk4", "heun", "midpoint", "euler"),
        forced=(),
        check=_check,
        conserved=_conserved,
    ),
)
