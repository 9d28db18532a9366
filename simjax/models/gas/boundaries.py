"""What the sides of a gas do to temperature, velocity, pressure and scalars."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import (
    Boundary,
    Derived,
    Exterior,
    FieldLayout,
    GasInflow,
    Neumann,
    NoSlipWall,
    Outflow,
    Periodic,
    PeriodicSide,
    PositiveDirichlet,
    Side,
    SlipWall,
    center_layout,
)
from simjax.errors import ConfigurationError
from simjax.grid import AXES

Sides = Sequence[tuple[Side, Side]]


class GasLayouts(NamedTuple):
    """Layouts of heat p / rho, of each velocity component, of pressure, and of each scalar: what fluxes read."""

    heat: FieldLayout
    velocity: tuple[FieldLayout, ...]
    pressure: FieldLayout
    scalars: tuple[FieldLayout, ...]


def gas_layouts(sides: Sides, scalars: int, gas_constant: float | Array) -> GasLayouts:
    """Layouts of what a gas is padded in; raises ConfigurationError for a side that a gas cannot have."""
    for axis, pair in enumerate(sides):
        for side in pair:
            _check(side, axis, len(sides), scalars)

    def layout(condition, units):
        return center_layout([tuple(condition(side, axis) for side in pair) for axis, pair in enumerate(sides)], units)

    def scalar(number: int) -> FieldLayout:
        return layout(lambda side, axis: _scalar(side, number), "1")

    def velocity(component: int) -> FieldLayout:
        return layout(lambda side, axis: side.velocity_boundary(component, axis), "m s-1")

    return GasLayouts(
        layout(lambda side, axis: _heat(side, gas_constant), "m2 s-2"),
        tuple(velocity(component) for component in range(len(sides))),
        layout(lambda side, axis: _pressure(side), "Pa"),
        tuple(scalar(number) for number in range(scalars)),
    )


def density_layout(sides: Sides) -> FieldLayout:
    """The layout of density for readers of the fields, such as closures; fluxes take heat.

    Beside a wall of given temperature, where density follows from pressure and heat, it has no slope here.
    """
    return center_layout([tuple(_density(side) for side in pair) for pair in sides], "kg m-3")


def plain_layout(sides: Sides) -> FieldLayout:
    """Periodic, or no slope at the side."""
    return center_layout([tuple(_even(side) for side in pair) for pair in sides])


def _check(side: Side, axis: int, ndim: int, scalars: int) -> None:
    if not isinstance(side, (PeriodicSide, SlipWall, NoSlipWall, GasInflow, Outflow)):
        raise ConfigurationError(
            f"boundaries.{AXES[axis]}: a gas takes periodic, slip, no_slip, inflow (density, velocity, pressure) and "
            f"outflow sides; {type(side).__name__} came."
        )
    for name, count in (("velocity", ndim), ("scalars", scalars)):
        given = getattr(side, name, None)
        if given is not None and len(given) != count:
            raise ConfigurationError(
                f"boundaries.{AXES[axis]}: {name} of {len(given)} value(s) came where {count} were expected; write one "
                f"per {'axis' if name == 'velocity' else 'scalar of the gas'}."
            )


def _even(side: Side) -> Boundary:
    return Periodic() if isinstance(side, PeriodicSide) else Neumann(0.0)


def _heat(side: Side, gas_constant: float | Array) -> Boundary:
    if isinstance(side, GasInflow):
        return Exterior(Derived(jnp.divide, (side.pressure, side.density)))
    if isinstance(side, NoSlipWall) and side.temperature is not None:
        return PositiveDirichlet(Derived(jnp.multiply, (side.temperature, gas_constant)))
    return _even(side)


def _density(side: Side) -> Boundary:
    return Exterior(side.density) if isinstance(side, GasInflow) else _even(side)


def _pressure(side: Side) -> Boundary:
    if isinstance(side, (GasInflow, Outflow)) and side.pressure is not None:
        return Exterior(side.pressure)
    return _even(side)


def _scalar(side: Side, number: int) -> Boundary:
    if isinstance(side, GasInflow):
        return Exterior(0.0 if side.scalars is None else side.scalars[number])
    return _even(side)
