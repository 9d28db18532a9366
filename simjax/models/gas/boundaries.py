"""Sides of a gas: their effect on temperature, velocity, pressure and scalars."""

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import (
    Boundary,
    Computed,
    Dirichlet,
    FieldLayout,
    Ghosts,
    Neumann,
    NoSlipWall,
    Outflow,
    Periodic,
    PositiveDirichlet,
    Side,
    SlipWall,
    center_layout,
)
from simjax.core.given_values import Value
from simjax.core.joint_sides import Joint
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.models.gas.characteristic_sides import CharacteristicRule, InflowRule, OutflowRule, velocity_name
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side

GAS_SIDES = ("gas",)
DENSITY = FieldSchema("density", units="kg m-3", default=None)
VELOCITY = FieldSchema("velocity", vector=True, units="m s-1")
PRESSURE = FieldSchema("pressure", units="Pa", default=None)
SCALARS = FieldSchema("scalars", free=True, optional=True)

Sides = Sequence[tuple[Side, Side]]

side("slip", groups=GAS_SIDES, about="no friction; nothing passes, nor does heat")(SlipWall)


class GasSide(Side):
    """A side that prescribes more of a gas than its velocity; all that it leaves open has no slope."""

    def heat(self) -> Boundary:
        """The condition on p / rho as it is carried."""
        return Neumann(0.0)

    def conducted(self, gas_constant: float | Array) -> Boundary | None:
        """The condition on p / rho as it is conducted; None: as it is carried."""
        return None

    def density_boundary(self) -> Boundary:
        """The condition on density."""
        return Neumann(0.0)

    def pressure_boundary(self) -> Boundary:
        """The condition on pressure."""
        return Neumann(0.0)

    def carried(self, number: int) -> Boundary:
        """The condition on one of the scalars, by its number."""
        return Neumann(0.0)

    def scalar_boundary(self):
        return Neumann(0.0)


@side(
    "no_slip",
    groups=GAS_SIDES,
    tight=True,
    keys=(VELOCITY, FieldSchema("temperature", units="K", optional=True)),
    about="the gas sticks to the wall, which moves with the velocity; heat passes where its temperature is given",
    plain=NoSlipWall,
)
class GasWall(GasSide):
    """A wall that a gas sticks to; velocity and temperature are its own (none: at rest, and heat does not pass).

    Examples:
        >>> cold = sj.GasWall(temperature=1.0)
    """

    solid = True
    velocity: tuple[Value, ...] | None = None
    temperature: Value | None = None

    def conducted(self, gas_constant):
        if self.temperature is None:
            return None
        return PositiveDirichlet(Computed(jnp.multiply, (self.temperature, gas_constant)))

    def velocity_boundary(self, component, axis):
        return Dirichlet(0.0 if self.velocity is None else self.velocity[component])


@side(
    "inflow",
    groups=GAS_SIDES,
    keys=(DENSITY, VELOCITY, PRESSURE, SCALARS),
    about="the state of the gas beyond; what of it comes in is found by the flux",
)
class GasInflow(GasSide):
    """The state of a gas beyond the side; what of it comes in is found by the flux (all, if it is supersonic).

    No velocity: at rest, as the reservoir that a subsonic flow is drawn from. No scalars: none come in.

    Examples:
        >>> stream = sj.GasInflow(density=1.0, pressure=1.0, velocity=(2.0,))
        >>> tube = sj.Compressible(sj.Domain(sj.Grid((64,))), [(stream, sj.GasOutflow())])
    """

    passable = True
    density: Value
    pressure: Value
    velocity: tuple[Value, ...] | None = None
    scalars: tuple[Value, ...] | None = None

    def heat(self):
        return Ghosts(Computed(jnp.divide, (self.pressure, self.density)))

    def density_boundary(self):
        return Ghosts(self.density)

    def pressure_boundary(self):
        return Ghosts(self.pressure)

    def carried(self, number):
        return Ghosts(0.0 if self.scalars is None else self.scalars[number])

    def velocity_boundary(self, component, axis):
        return Ghosts(0.0 if self.velocity is None else self.velocity[component])


@side(
    "outflow",
    groups=GAS_SIDES,
    keys=(FieldSchema("pressure", units="Pa", optional=True),),
    about="everything leaves unchanged, against the pressure where it is given",
    plain=Outflow,
)
class GasOutflow(GasSide):
    """Waves and scalars leave the domain unchanged; `pressure` is that beyond the side (none: that of the gas).

    Examples:
        >>> nozzle_end = sj.GasOutflow(pressure=0.5)
    """

    passable = True
    pressure: Value | None = None

    def pressure_boundary(self):
        return Neumann(0.0) if self.pressure is None else Ghosts(self.pressure)

    def velocity_boundary(self, component, axis):
        return Neumann(0.0)


RELAXATION = FieldSchema("relaxation", default=None, optional=True)
LENGTH = FieldSchema("length", units="m", default=None, optional=True)
MEAN_VELOCITY = FieldSchema("velocity", vector=True, units="m s-1", default=None, optional=True)


class CharacteristicSide(GasSide):
    """A side whose ghost cells are found from all fields beside it (`characteristic_sides`).

    To those who read one field alone nothing has a slope there.
    """

    passable = True

    def velocity_boundary(self, component, axis):
        return Neumann(0.0)

    @abc.abstractmethod
    def rule(self, gamma: Array, length: float) -> CharacteristicRule:
        """The rule of its ghost cells; `length`: of the grid across the side, which is L where none is given."""


@side(
    "characteristic_outflow",
    groups=GAS_SIDES,
    keys=(PRESSURE, RELAXATION, LENGTH, MEAN_VELOCITY),
    about="waves and vortices leave without reflection, towards a pressure far away",
)
class CharacteristicOutflow(CharacteristicSide):
    """Waves and vortices leave without reflection, and the mean pressure tends to `pressure`: NSCBC of the literature.

    It does so at the rate relaxation c (1 - M^2) / length; length is that of the grid across the side if not given.
    Without relaxation (0) the mean pressure drifts. All leaves where the gas is supersonic. velocity: the mean one with
    which vortices are carried out; where it is given their own pressure counts, and they leave with less sound.

    Examples:
        >>> end = sj.CharacteristicOutflow(pressure=1.0)
        >>> tube = sj.Compressible(sj.Domain(sj.Grid((64,))), [(sj.SlipWall(), end)])
    """

    pressure: Value
    relaxation: Value = 0.25
    length: Value | None = None
    velocity: tuple[Value, ...] | None = None

    def rule(self, gamma, length):
        length = length if self.length is None else self.length
        return OutflowRule(gamma, self.relaxation, length, self.pressure, self.velocity)


@side(
    "characteristic_inflow",
    groups=GAS_SIDES,
    keys=(DENSITY, VELOCITY, PRESSURE, SCALARS, RELAXATION, LENGTH),
    about="velocity and temperature tend to those of a given state, and sound leaves against the stream",
)
class CharacteristicInflow(CharacteristicSide):
    """Velocity and temperature of what comes in tend to those of a state, while sound leaves against the stream.

    The pressure of the state counts in its temperature p / (rho R) alone, but where it is supersonic: there all of it
    comes in. relaxation, length: as of `CharacteristicOutflow`. Scalars come in as given (none: zero).

    Examples:
        >>> stream = sj.CharacteristicInflow(density=1.4, pressure=1.0, velocity=(0.3,))
        >>> end = sj.CharacteristicOutflow(pressure=1.0)
        >>> tube = sj.Compressible(sj.Domain(sj.Grid((64,))), [(stream, end)])
    """

    density: Value
    pressure: Value
    velocity: tuple[Value, ...]
    scalars: tuple[Value, ...] | None = None
    relaxation: Value = 0.25
    length: Value | None = None

    def carried(self, number):
        return Ghosts(0.0 if self.scalars is None else self.scalars[number])

    def rule(self, gamma, length):
        length = length if self.length is None else self.length
        return InflowRule(gamma, self.relaxation, length, self.density, self.velocity, self.pressure)


class GasLayouts(NamedTuple):
    """Layouts of heat p / rho, of each velocity component, of pressure, and of each scalar: what fluxes read.

    conducted: of heat as it is conducted; None where no wall has a temperature, so that it is as it is carried.
    characteristic: axis, side (0 below, 1 above) and declaration of sides whose ghost cells are found from all fields.
    """

    heat: FieldLayout
    conducted: FieldLayout | None
    velocity: tuple[FieldLayout, ...]
    pressure: FieldLayout
    scalars: tuple[FieldLayout, ...]
    characteristic: tuple[tuple[int, int, CharacteristicSide], ...]

    def of_gas(self, gamma: Array, grid: Grid) -> "GasLayouts":
        """These layouts with the rules of characteristic sides for a gas with this ratio of specific heats."""
        if not self.characteristic:
            return self
        rules = [(axis, end, one.rule(gamma, grid.lengths[axis])) for axis, end, one in self.characteristic]

        def joined(layout: FieldLayout, name: str) -> FieldLayout:
            pairs = [list(pair) for pair in layout.boundaries]
            for axis, end, rule in rules:
                pairs[axis][end] = Joint(name, rule)
            return center_layout(pairs, layout.units)

        velocity = tuple(joined(layout, velocity_name(k)) for k, layout in enumerate(self.velocity))
        heat, pressure = joined(self.heat, "heat"), joined(self.pressure, "pressure")
        return self._replace(heat=heat, velocity=velocity, pressure=pressure)


def gas_layouts(sides: Sides, scalars: int, gas_constant: float | Array) -> GasLayouts:
    """Layouts of what a gas is padded in; raises ConfigurationError unless a side gives one value per scalar."""
    for axis, pair in enumerate(sides):
        for given in (getattr(end, "scalars", None) for end in pair):
            if given is not None and len(given) != scalars:
                raise ConfigurationError(
                    f"boundaries.{AXES[axis]}: scalars of {len(given)} value(s) where {scalars} were expected; "
                    "write one per scalar of the gas."
                )
    warm = any(isinstance(s, GasSide) and s.conducted(gas_constant) is not None for pair in sides for s in pair)
    return GasLayouts(
        _layout(sides, lambda side: side.heat(), "m2 s-2"),
        _layout(sides, lambda side: side.conducted(gas_constant) or side.heat(), "m2 s-2") if warm else None,
        tuple(
            center_layout(
                [[s.velocity_boundary(i, axis) for s in pair] for axis, pair in enumerate(sides)], VELOCITY.units
            )
            for i in range(len(sides))
        ),
        _layout(sides, lambda side: side.pressure_boundary(), "Pa"),
        tuple(_layout(sides, _carried(number), "1") for number in range(scalars)),
        tuple(
            (axis, end, one)
            for axis, pair in enumerate(sides)
            for end, one in enumerate(pair)
            if isinstance(one, CharacteristicSide)
        ),
    )


def features_of(sides: Sides, gravity_axes: Sequence[int]) -> dict[str, bool]:
    """Tell whether there are characteristic sides, and gravity across one of them."""
    across = [axis for axis, pair in enumerate(sides) if any(isinstance(one, CharacteristicSide) for one in pair)]
    return {"characteristic": bool(across), "gravity_across": not {*across}.isdisjoint(gravity_axes)}


def density_layout(sides: Sides) -> FieldLayout:
    """The layout of density for readers of the fields, such as closures; fluxes take heat."""
    return _layout(sides, lambda side: side.density_boundary(), DENSITY.units)


def gravity_layout(pressure: FieldLayout) -> FieldLayout:
    """The layout of gravity along an axis, of a gas whose pressure has the given one.

    Beyond a wall it is mirrored, as is everything else. Beyond a side with a pressure of its own there is none: the
    state is the same everywhere there, and it is that at the side, up to which half a cell lies.
    """

    def beyond(boundary: Boundary) -> Boundary:
        if isinstance(boundary, Periodic):
            return boundary
        return Ghosts(0.0) if isinstance(boundary, Ghosts) else Dirichlet(0.0)

    return center_layout([tuple(map(beyond, pair)) for pair in pressure.boundaries])


def plain_layout(sides: Sides) -> FieldLayout:
    """Periodic, or no slope at the side."""
    return _layout(sides, lambda side: Neumann(0.0), "1")


def _layout(sides: Sides, condition: Callable[[GasSide], Boundary], units: str) -> FieldLayout:
    """Layout of a quantity: where a side is none of a gas, it is what is transported."""
    boundaries = [
        tuple(condition(side) if isinstance(side, GasSide) else side.scalar_boundary() for side in pair)
        for pair in sides
    ]
    return center_layout(boundaries, units)


def _carried(number: int) -> Callable[[GasSide], Boundary]:
    return lambda side: side.carried(number)
