"""Boundary conditions: what the ghost cells beyond a side of the domain hold.

A condition on one field at one side is a `Boundary`; a physical side of a flow (a wall, an inflow) is a `Side`
that says which `Boundary` each velocity component and each scalar gets there.
"""

import abc
import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_kind, shown
from simjax.core.given_values import Value, evaluate, require_value
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE, LOWER
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side


def lines(edge: Array, array_axis: int, start: int, count: int) -> Array:
    """`count` lines of `edge` from line `start` on; an edge that is too short repeats its last line."""
    have = edge.shape[array_axis]
    parts = [
        lax.slice_in_dim(edge, min(k, have - 1), min(k, have - 1) + 1, axis=edge.ndim + array_axis)
        for k in range(start, start + count)
    ]
    return jnp.concatenate(parts, axis=array_axis) if len(parts) != 1 else parts[0]


class Boundary(eqx.Module):
    """A condition on one field at one side of the domain, which says what the ghost cells beyond it hold.

    Values that a condition prescribes are numbers, scalar arrays, or functions `value(t, *coordinates)` of the time and
    of the place on the side, with one coordinate for each axis.

    Examples:
        >>> isinstance(sj.Dirichlet(1.0), sj.Boundary)
        True
    """

    @abc.abstractmethod
    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions) -> Array:
        """The `width` ghost lines beyond the side, nearest to the side first.

        Args:
            edge: `(..., lines, ...)`, the stored lines nearest to the side, from the side inwards, with at
                least `min(width + 1, cells)` of them along spatial axis `axis`.
            axis: spatial axis normal to the side.
            side: LOWER or UPPER.
            offset: position of the field in its cell along `axis`; a FACE field stores the lower wall face
                and has the upper wall face as its first ghost.
            spacing: of the grid, one number per spatial axis. Along `axis`, where it is stretched, an array that
                broadcasts against the ghost lines: the distance of ghost i from its mirror image inside over the
                number of spacings that it has on a uniform axis, 2 i + 1 at cell centres.
            t: time.
            positions: function returning the coordinates of the side, broadcastable against one line.
        """

    def imposed(self, *, t, positions, like: Array) -> Array | None:
        """The value that the stored lower wall face of a FACE field must have, or None where it is free."""
        return None

    def conductance(self, spacing: float | Array) -> float | Array | None:
        """c where the homogeneous condition on a cell-centred field has the first ghost (1 - c) times the first cell.

        So much of the diffusion between two cells passes the side; None: the first ghost is no multiple of the cell.
        """
        return None


class Periodic(Boundary):
    """The far side of the domain is the neighbour.

    Examples:
        >>> layout = sj.center_layout([(sj.Periodic(), sj.Periodic())] * 2)
    """

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        raise AssertionError("A periodic side has a neighbour: Domain.pad never asks it for ghost cells.")


class Dirichlet(Boundary):
    """u = value on the side, to second order: ghosts are the odd reflection about the value.

    value: in the units of the field; a number, an array or a function, as `Boundary` says.

    Examples:
        >>> hot = sj.ScalarSide(sj.Dirichlet(300.0))
        >>> moving = sj.Dirichlet(lambda t, x, y: jnp.sin(t) * y)  # of time and the place on the side
    """

    value: Value = 0.0

    def __check_init__(self):
        require_value("Dirichlet.value", self.value)

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        array_axis = axis - len(spacing)
        value = evaluate(self.value, t, positions, edge)
        if offset != FACE:
            return 2 * value - lines(edge, array_axis, 0, width)
        if side == LOWER:
            return 2 * value - lines(edge, array_axis, 1, width)
        wall = jnp.broadcast_to(value, lines(edge, array_axis, 0, 1).shape)
        if width == 1:
            return wall
        return jnp.concatenate([wall, 2 * value - lines(edge, array_axis, 0, width - 1)], axis=array_axis)

    def imposed(self, *, t, positions, like):
        return evaluate(self.value, t, positions, like)

    def conductance(self, spacing):
        return 2.0


class Neumann(Boundary):
    """du/dn = slope on the side, with n the outward normal, to second order: ghosts are the even reflection.

    Examples:
        >>> insulated = sj.ScalarSide(sj.Neumann())
        >>> heated = sj.ScalarSide(sj.Neumann(slope=2.0))
    """

    slope: Value = 0.0

    def __check_init__(self):
        require_value("Neumann.slope", self.slope)

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        array_axis = axis - len(spacing)
        rise = spacing[axis] * evaluate(self.slope, t, positions, edge)
        shape = tuple(width if k == array_axis % edge.ndim else 1 for k in range(edge.ndim))
        index = jnp.arange(width, dtype=edge.dtype).reshape(shape)
        if offset != FACE:
            return lines(edge, array_axis, 0, width) + (2 * index + 1) * rise
        if side == LOWER:
            return lines(edge, array_axis, 1, width) + (2 * index + 2) * rise
        # The upper wall face itself is not stored: one-sided, second-order extrapolation reaches it.
        first, second = lines(edge, array_axis, 0, 1), lines(edge, array_axis, 1, 1)
        wall = (4 * first - second + 2 * rise) / 3 if edge.shape[array_axis] > 1 else first + rise
        if width == 1:
            return wall
        beyond = lax.slice_in_dim(index, 1, width, axis=edge.ndim + array_axis)
        mirrored = lines(edge, array_axis, 0, width - 1) + 2 * beyond * rise
        return jnp.concatenate([wall, mirrored], axis=array_axis)

    def conductance(self, spacing):
        return 0.0


class Extrapolated(Boundary):
    """Ghosts on the line through the last two stored values: for a velocity through an open side."""

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        array_axis = edge.ndim + axis - len(spacing)
        first = lax.slice_in_dim(edge, 0, 1, axis=array_axis)
        rise = first - lax.slice_in_dim(edge, 1, 2, axis=array_axis) if edge.shape[array_axis] > 1 else 0 * first
        return jnp.concatenate([first + (k + 1) * rise for k in range(width)], axis=array_axis)


class Ghosts(Boundary):
    """All ghosts hold the value: the state of what lies beyond the side, for schemes that tell in from out."""

    value: Value = 0.0

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        ghosts = lines(edge, axis - len(spacing), 0, width)
        return jnp.broadcast_to(evaluate(self.value, t, positions, edge), ghosts.shape)


class PositiveDirichlet(Boundary):
    """u = value > 0 on the side, to second order, of a positive field: ghosts value^2 / u are positive too."""

    value: Value = 1.0

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        value = evaluate(self.value, t, positions, edge)
        return value * value / lines(edge, axis - len(spacing), 0, width)


class Computed(eqx.Module):
    """A boundary value that is a function of others: `function(*values)`, each a number or given on the side."""

    function: Callable[..., Array] = eqx.field(static=True)
    values: tuple[Value, ...]

    def __call__(self, t, *positions):
        return self.function(*(value(t, *positions) if callable(value) else value for value in self.values))


class Side(eqx.Module):
    """A physical side of the domain: one `Boundary` for every component of velocity and for scalars.

    A model takes a pair (lower, upper) of sides for each axis. Derive from it for a side of your own.

    Examples:
        >>> class Draining(sj.Side):
        ...     def velocity_boundary(self, component, axis):
        ...         return sj.Dirichlet(0.0)
        ...
        ...     def scalar_boundary(self):
        ...         return sj.Robin(2.0)
    """

    solid: ClassVar[bool] = False
    """Whether it is a wall, which pictures draw as one."""
    passable: ClassVar[bool] = False
    """Tell whether fluid or waves come in or leave through it; files for training call such sides open."""

    @abc.abstractmethod
    def velocity_boundary(self, component: int, axis: int) -> Boundary:
        """The condition on velocity component `component` at a side normal to `axis`."""

    @abc.abstractmethod
    def scalar_boundary(self) -> Boundary:
        """The condition on a transported scalar."""

    def further_boundary(self, number: int) -> Boundary:
        """The condition on one of further scalars, by its number: as `scalar_boundary`, unless they have their own."""
        return self.scalar_boundary()


class PeriodicSide(Side):
    """Both sides of the axis are the same place.

    Examples:
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2  # lower and upper, along x and y
    """

    def velocity_boundary(self, component, axis):
        return Periodic()

    def scalar_boundary(self):
        return Periodic()


_VELOCITY = FieldSchema("velocity", vector=True, units="m s-1")
_SCALARS = FieldSchema("scalars", free=True, optional=True)


class ScalarSide(Side):
    """A side defined by its condition on a scalar alone (a heated plate, a given flux).

    Examples:
        >>> plate = sj.ScalarSide(sj.Dirichlet(300.0))
    """

    boundary: Boundary

    def __check_init__(self):
        require_kind("ScalarSide.boundary", self.boundary, Boundary, "a Boundary; write ScalarSide(Dirichlet(1.0))")

    def velocity_boundary(self, component, axis):
        raise TypeError("This side says what a scalar does, not what a velocity does: use a wall or an inflow.")

    def scalar_boundary(self):
        return self.boundary


side(
    "dirichlet",
    groups=("scalar",),
    keys=(FieldSchema("value", units="u"),),
    about="a given value on the side",
    make=lambda value: ScalarSide(Dirichlet(value)),
)(ScalarSide)
side(
    "neumann",
    groups=("scalar",),
    keys=(FieldSchema("slope", units="u m-1"),),
    about="a given slope along the outward normal",
    make=lambda slope: ScalarSide(Neumann(slope)),
)(ScalarSide)


def _given(values: tuple[Value, ...] | None, number: int) -> Boundary:
    """The condition on one of further scalars at a wall: its value there; without any nothing passes."""
    return Neumann(0.0) if values is None else Dirichlet(values[number])


def _walled(wall: Callable[..., Side], value: Value | None, slope: Value | None, name: str) -> Side:
    """A wall with the condition on scalars that its keys say; `name` is that of the value's key."""
    if value is not None and slope is not None:
        raise ConfigurationError(
            f"boundaries: a wall has both a {name} and a slope, where one of them says what passes; write one."
        )
    if value is not None:
        return wall(scalar=Dirichlet(value))
    return wall() if slope is None else wall(scalar=Neumann(slope))


def _carried(units: str, name: str) -> tuple[FieldSchema, FieldSchema]:
    """Keys of a wall for a scalar: its value on the wall, or its slope along the outward normal."""
    slope = FieldSchema("slope", units=f"{units} m-1", default=None, optional=True)
    return FieldSchema(name, units=units, default=None, optional=True), slope


@side("no_slip", groups=("scalar",), about="nothing passes")
@side(
    "no_slip",
    groups=("flow",),
    keys=(_VELOCITY,),
    tight=True,
    about="the fluid sticks to the wall, which moves with the velocity; nothing passes",
)
class NoSlipWall(Side):
    """A wall the fluid sticks to; `velocity` is the wall's own, one value per component (none: at rest).

    scalar: the condition on a scalar; scalars: values of further ones; without them none passes.

    Examples:
        >>> lid = sj.NoSlipWall(velocity=(1.0, 0.0))
    """

    solid = True
    velocity: tuple[Value, ...] | None = None
    scalar: Boundary | None = None
    scalars: tuple[Value, ...] | None = None

    def velocity_boundary(self, component, axis):
        return Dirichlet(0.0 if self.velocity is None else self.velocity[component])

    def scalar_boundary(self):
        return Neumann(0.0) if self.scalar is None else self.scalar

    def further_boundary(self, number):
        return _given(self.scalars, number)


@side("slip", groups=("scalar", "flow"), about="no friction; nothing passes")
class SlipWall(Side):
    """A wall without friction: no flow through it, no shear on it.

    scalar: the condition on a scalar; scalars: values of further ones; without them none passes.

    Examples:
        >>> channel = [(sj.PeriodicSide(), sj.PeriodicSide()), (sj.SlipWall(), sj.SlipWall())]
    """

    solid = True
    scalar: Boundary | None = None
    scalars: tuple[Value, ...] | None = None

    def velocity_boundary(self, component, axis):
        return Dirichlet(0.0) if component == axis else Neumann(0.0)

    def scalar_boundary(self):
        return Neumann(0.0) if self.scalar is None else self.scalar

    def further_boundary(self, number):
        return _given(self.scalars, number)


_GIVEN_VELOCITY = FieldSchema("velocity", vector=True, units="m s-1", default=None)


@side("inflow", groups=("flow",), keys=(_GIVEN_VELOCITY,), about="a given velocity, in or out")
class Inflow(Side):
    """Prescribed velocity, and scalars at a prescribed value.

    velocity: one value per component, length / time (None: at rest). scalar: the value of a scalar that comes in.
    scalars: those of further ones (None: zero).

    Examples:
        >>> jet = sj.Inflow(velocity=(lambda t, x, y: y * (1 - y), 0.0), scalar=1.0)
    """

    passable = True
    velocity: tuple[Value, ...] | None = None
    scalar: Value = 0.0
    scalars: tuple[Value, ...] | None = None

    def velocity_boundary(self, component, axis):
        return Dirichlet(0.0 if self.velocity is None else self.velocity[component])

    def scalar_boundary(self):
        return Dirichlet(self.scalar)

    def further_boundary(self, number):
        return Dirichlet(0.0 if self.scalars is None else self.scalars[number])


side(
    "inflow",
    groups=("scalar",),
    keys=(FieldSchema("value", units="u", default=None),),
    about="what flows in has the value",
    make=lambda value: Inflow(scalar=value),
)(Inflow)
for _group, _units, _name, _further in (
    ("flow with scalar", "u", "value", ()),
    ("flow with heat", "K", "temperature", (_SCALARS,)),
):
    side(
        "no_slip",
        groups=(_group,),
        keys=(_VELOCITY, *_carried(_units, _name), *_further),
        tight=True,
        about="the fluid sticks to the wall, which moves with the velocity; the scalar passes where it is given there",
        make=lambda velocity=None, slope=None, scalars=None, _name=_name, **own: _walled(
            functools.partial(NoSlipWall, velocity, scalars=scalars), own.get(_name), slope, _name
        ),
    )(NoSlipWall)
    side(
        "slip",
        groups=(_group,),
        keys=(*_carried(_units, _name), *_further),
        about="no friction; the scalar passes where it is given there",
        make=lambda slope=None, scalars=None, _name=_name, **own: _walled(
            functools.partial(SlipWall, scalars=scalars), own.get(_name), slope, _name
        ),
    )(SlipWall)
    side(
        "inflow",
        groups=(_group,),
        keys=(_GIVEN_VELOCITY, FieldSchema(_name, units=_units), *_further),
        about="a given velocity, in or out; what flows in has the value",
        make=lambda velocity, scalars=None, _name=_name, **own: Inflow(velocity, own.get(_name, 0.0), scalars),
    )(Inflow)


@side("outflow", groups=("scalar",), about="everything leaves unchanged")
class Outflow(Side):
    """Waves and scalars leave the domain unchanged: zero normal derivative.

    Examples:
        >>> sides = [(sj.Inflow(velocity=(1.0,), scalar=1.0), sj.Outflow())]
        >>> model = sj.Transport(sj.Domain(sj.Grid((32,))), sides)
    """

    passable = True

    def velocity_boundary(self, component, axis):
        return Neumann(0.0)

    def scalar_boundary(self):
        return Neumann(0.0)


class FieldLayout(eqx.Module):
    """Place of a field in its cell, and what holds at its sides; travels beside an array, never wraps it.

    `offset` has one entry per spatial axis, `boundaries` one pair (lower, upper) per spatial axis.

    Examples:
        >>> layout = sj.center_layout([(sj.Periodic(), sj.Periodic())], units="K")
        >>> layout.offset, layout.units
        ((0.5,), 'K')
    """

    offset: tuple[float, ...] = eqx.field(static=True)
    boundaries: tuple[tuple[Boundary, Boundary], ...]
    units: str = eqx.field(static=True, default="1")

    def is_periodic(self, axis: int) -> bool:
        return isinstance(self.boundaries[axis][LOWER], Periodic)


def center_layout(boundaries, units: str = "1") -> FieldLayout:
    """A layout of a cell-centred field.

    Args:
        boundaries: a pair (lower, upper) of `Boundary` for each axis.
        units: of the field, as UDUNITS writes them.

    Examples:
        >>> sj.center_layout([(sj.Dirichlet(0.0), sj.Neumann())]).offset
        (0.5,)
    """
    _require_pairs("center_layout", boundaries)
    return FieldLayout((CENTER,) * len(boundaries), tuple(map(tuple, boundaries)), units)


def face_layout(component: int, boundaries, units: str = "1") -> FieldLayout:
    """A layout of a vector component stored on the faces normal to itself.

    Args:
        component: 0, 1 or 2, the axis that it points along.
        boundaries: a pair (lower, upper) of `Boundary` for each axis.
        units: of the field, as UDUNITS writes them.

    Examples:
        >>> sj.face_layout(0, [(sj.Periodic(), sj.Periodic())] * 2).offset  # the x-component, on faces across x
        (0.0, 0.5)
    """
    _require_pairs("face_layout", boundaries)
    offset = tuple(FACE if axis == component else CENTER for axis in range(len(boundaries)))
    return FieldLayout(offset, tuple(map(tuple, boundaries)), units)


def _require_pairs(name: str, boundaries) -> None:
    """Raises ConfigurationError unless there is a pair of boundaries for each axis."""
    several = boundaries if isinstance(boundaries, (tuple, list)) else [None]
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in several):
        expected = "expected a pair of boundaries for each axis; write [(Periodic(), Periodic())]."
        raise ConfigurationError(f"{name}: boundaries={shown(boundaries)}: {expected}")
