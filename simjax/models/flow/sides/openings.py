"""Sides that an incompressible flow leaves, or enters, as it likes: outflow and given pressure."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from simjax.arguments import require_at_least
from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Outflow, Side
from simjax.core.domain import Domain
from simjax.core.given_values import Value
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.flow.sides import balance
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side

STEEP = 0.25
"""Sine of the angle between velocity and side from which on `Opening.entering` takes nothing of what leaves.

A smaller one makes the pressure change faster with the velocity than explicit steps at Courant numbers near 1 can take.
"""

side("outflow", groups=("flow",), about="what leaves is carried out at the mean speed through the side")(Outflow)


@side(
    "open",
    groups=("flow",),
    keys=(FieldSchema("pressure", units="m2 s-2"), FieldSchema("backflow", default=None, optional=True)),
    about="a given kinematic pressure, at which fluid passes in or out",
)
class OpenSide(Side):
    """A side at a given kinematic pressure (over density, length^2 / time^2), through which fluid passes in or out.

    Scalars have no slope across it. backflow: the part, 0 to 1, of the kinetic energy of what comes in by which the
    pressure is lower there (`Opening.entering`). With 1 the side gives the flow no energy beside the work of the given
    pressure, so that vortices may cross it; with 0 fluid comes in with the energy of the next face inside, for nothing.

    Examples:
        >>> pipe = [(sj.OpenSide(pressure=1.0), sj.OpenSide(backflow=1.0)), (sj.NoSlipWall(), sj.NoSlipWall())]
        >>> flow = sj.Incompressible(sj.Domain(sj.Grid((32, 16))), pipe)
    """

    passable = True
    pressure: Value = 0.0
    backflow: Value = 0.0

    def __check_init__(self):
        require_at_least("OpenSide", {"backflow": self.backflow})

    def velocity_boundary(self, component, axis):
        return Neumann(0.0)

    def scalar_boundary(self):
        return Neumann(0.0)


class Outlet(Boundary):
    """The velocity through an upper side is known: `line` holds it, with ghost cells along the other axes or without.

    What lies beyond the side is on the line through the side's own value and that of the next face inside.
    """

    line: Array

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        ndim, first = len(spacing), edge.ndim - len(spacing)
        wall = self.line
        for k in range(ndim):
            if k != axis:
                ghosts = (wall.shape[first + k] - edge.shape[first + k]) // 2
                wall = lax.slice_in_dim(wall, ghosts, wall.shape[first + k] - ghosts, axis=first + k)
        if width == 1:
            return wall
        rise = wall - lax.slice_in_dim(edge, 0, 1, axis=first + axis)
        return jnp.concatenate([wall + k * rise for k in range(width)], axis=first + axis)


class Opening(eqx.Module):
    """An open side. pressure: that which is given there, or None where the flow is carried out.

    The velocity through it obeys du/dt = -U du/dn with an outflow, where U >= 0 is the mean velocity out of the side
    and n the outward normal (Orlanski 1976, J. Comput. Phys. 21, 251); with a given pressure, the tendency of the next
    face inside and the pressure's slope across half a cell. backflow: the part of `entering` by which the pressure is
    lower than the given one; None: none.
    """

    axis: int = eqx.field(static=True)
    side: int = eqx.field(static=True)
    pressure: Value | None = None
    backflow: Value | None = None

    @property
    def outward(self) -> int:
        """The sign of a velocity that leaves."""
        return -1 if self.side == LOWER else 1

    def flux(self, domain: Domain, layouts: Sequence[FieldLayout], through: Array) -> Array:
        """Volume per time that leaves, from the velocity on this block's part of the side."""
        speed, faces = balance.weighed(domain, layouts[self.axis], (self.axis, self.side), through)
        return self.outward * balance.total(domain, self.axis, speed, faces)

    def tendency(
        self,
        domain: Domain,
        layouts: Sequence[FieldLayout],
        t,
        velocity: Sequence[Array],
        through: Array,
        slopes: Sequence[Array],
        acting: Array | None,
    ) -> Array:
        """Tendency of the velocity through the side, without the pressure of the flow but for one that acts.

        Args:
            velocity: of the flow. through: that on the side, a line of one cell.
            slopes: the tendency of the velocity without any pressure.
            acting: a pressure at cell centres that is part of the tendency, and falls to that on the side; None: none.
        """
        width = domain.wall_spacing(self.axis, through.dtype)[self.side]
        if self.pressure is None:
            area = balance.area(domain, self.axis)
            speed = jnp.maximum(self.flux(domain, layouts, through) / area, 0)
            return (velocity_inside(domain, self, velocity) - through) * (speed / width)
        value = self._prescribed(domain, layouts, t, self.pressure, through)
        if self.backflow is not None:
            part = self._prescribed(domain, layouts, t, self.backflow, through)
            value = value - part * self.entering(domain, layouts, t, velocity, through)
        if acting is not None:
            value = value - _beside(domain, self, acting)
        return velocity_inside(domain, self, slopes) - (2 * self.outward) * (value / width)

    def entering(
        self, domain: Domain, layouts: Sequence[FieldLayout], t, velocity: Sequence[Array], through: Array
    ) -> Array:
        """S |u|^2 / 2 on the side, with S = 1 where fluid comes in.

        With the pressure lower by it no kinetic energy enters: -p u_n - |u|^2 u_n / 2 is at most that of the given
        pressure, as (1 - S) u_n >= 0. Dong, Karniadakis and Chryssostomidis (2014), J. Comput. Phys. 261, 83, equation
        4, have S = (1 - tanh(u_n / (U delta))) / 2; here S = (1 - s)^2 (1 + 2 s), s = u_n / (|u| STEEP) within 0 and 1,
        takes no scale U of the velocity, lets no energy in at all, and vanishes where all leaves steeply. It has one
        continuous derivative.
        """
        square = through * through
        for component, u in enumerate(velocity):
            if component != self.axis:
                line = _beside(domain, self, u)
                square = square + _mean_square(domain, layouts[component], line, component, self.axis, t)
        moves = square > jnp.finfo(square.dtype).tiny
        sine = self.outward * through / jnp.sqrt(jnp.where(moves, square, 1))
        s = jnp.clip(sine / STEEP, 0, 1)
        return 0.5 * square * ((1 - s) ** 2 * (1 + 2 * s))

    def _prescribed(self, domain: Domain, layouts: Sequence[FieldLayout], t, value: Value, like: Array) -> Array:
        """A value on this block's part of the side."""
        layout = _replaced(layouts[self.axis], self.axis, self.side, Dirichlet(value))
        found = domain.prescribed(like, layout, self.axis, self.side, t)
        assert found is not None
        return found


def openings_of(sides: Sequence[tuple[Side, Side]]) -> tuple[Opening, ...]:
    """Openings among the sides, by axis."""
    found = []
    for axis, pair in enumerate(sides):
        for where, kind in enumerate(pair):
            if isinstance(kind, OpenSide):
                plain = isinstance(kind.backflow, int | float) and kind.backflow == 0
                found.append(Opening(axis, where, kind.pressure, None if plain else kind.backflow))
            elif isinstance(kind, Outflow):
                found.append(Opening(axis, where))
    return tuple(found)


def is_open(config) -> bool:
    """Tell whether a configuration has an open side, through which energy and scalars may come in."""
    return any(wall.kind in ("outflow", "open") for axis in config.boundaries for wall in (axis.lower, axis.upper))


def with_outlets(
    domain: Domain, layouts: Sequence[FieldLayout], outlets: Sequence[Array | None], t, width: int = 1
) -> tuple[FieldLayout, ...]:
    """Layouts of the velocity that know what flows through the upper sides.

    Args:
        layouts: of the components, by axis.
        outlets: for each axis the velocity on its upper side, one cell thick, or None where it is no unknown.
        width: ghost cells of the stencils that the layouts are for.
    """
    result = list(layouts)
    for axis, line in enumerate(outlets):
        if line is None:
            continue
        if axis > 0:  # ghost cells of earlier axes are part of what this one's are formed from
            line = _padded(domain, layouts[axis], line, axis, width, t)
        result[axis] = _replaced(layouts[axis], axis, UPPER, Outlet(line))
    return tuple(result)


def with_outlet_specs(domain: Domain, specs):
    """Specs of a state whose outlets are whole along their own axis."""
    cut = tuple(domain.spec())
    lines = tuple(
        None if spec is None else PartitionSpec(*(None if k == axis else name for k, name in enumerate(cut)))
        for axis, spec in enumerate(specs.outlets)
    )
    return dataclasses.replace(specs, outlets=lines)


def velocity_through(
    domain: Domain, opening: Opening, velocity: Sequence[Array], outlets: Sequence[Array | None]
) -> Array:
    """The velocity through an open side: a line of this block, or of the last one along the axis."""
    if opening.side == LOWER:
        return first_lines(domain, velocity[opening.axis], opening.axis, 1)[0]
    line = outlets[opening.axis]
    assert line is not None
    return line


def velocity_inside(domain: Domain, opening: Opening, velocity: Sequence[Array]) -> Array:
    """A component on the faces next to those in an open side that it passes."""
    u = velocity[opening.axis]
    if opening.side == LOWER:
        return first_lines(domain, u, opening.axis, 2)[1]
    return domain.last_line(u, opening.axis)


def _beside(domain: Domain, opening: Opening, u: Array) -> Array:
    """The line of cells beside an open side, of a field that lies in them along its axis."""
    if opening.side == LOWER:
        return first_lines(domain, u, opening.axis, 1)[0]
    return domain.last_line(u, opening.axis)


def _mean_square(domain: Domain, layout: FieldLayout, line: Array, component: int, axis: int, t) -> Array:
    """The mean of the squares on the two faces of each cell of a velocity component, on a line across `axis`.

    A mean of squares, as what leaves with each face is its square: so the energies that leave and enter are those of
    the scheme.
    """
    padded, first = _padded(domain, layout, line, axis, 1, t), line.ndim - domain.grid.ndim
    for k in range(domain.grid.ndim):
        if k not in (axis, component):
            padded = lax.slice_in_dim(padded, 1, padded.shape[first + k] - 1, axis=first + k)
    n = padded.shape[first + component]
    below, above = (lax.slice_in_dim(padded, k, n - 2 + k, axis=first + component) for k in (1, 2))
    return 0.5 * (below * below + above * above)


def first_lines(domain: Domain, u: Array, axis: int, count: int) -> list[Array]:
    """The first lines of this block along an axis, one cell thick."""
    where = u.ndim + axis - domain.grid.ndim
    return [lax.slice_in_dim(u, k, k + 1, axis=where) for k in range(count)]


def with_first_line(domain: Domain, u: Array, axis: int, line: Array) -> Array:
    """The field with its first line along an axis, in the whole grid, replaced."""
    n = domain.block_shape[axis]
    shape = tuple(n if k == u.ndim + axis - domain.grid.ndim else 1 for k in range(u.ndim))
    first = (domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)).reshape(shape) == 0
    return jnp.where(first, line, u)


def _replaced(layout: FieldLayout, axis: int, where: int, boundary: Boundary) -> FieldLayout:
    pairs = [list(pair) for pair in layout.boundaries]
    pairs[axis][where] = boundary
    return FieldLayout(layout.offset, tuple((lower, upper) for lower, upper in pairs), layout.units)


def _padded(domain: Domain, layout: FieldLayout, line: Array, axis: int, width: int, t) -> Array:
    """A line on an upper side with ghost cells along all other axes."""

    def replaced(values, value):
        return tuple(value if k == axis else own for k, own in enumerate(values))

    grid = domain.grid
    height = grid.mean_spacing[axis]
    # As many copies of the line as a stencil needs cells; the first one is on the side.
    top = Grid(
        replaced(grid.shape, width),
        replaced(grid.lower, grid.upper[axis]),
        replaced(grid.upper, grid.upper[axis] + width * height),
        replaced(grid.stretch, None),
    )
    plane = Domain(top, replaced(domain.split, None), lines=replaced(domain.lines, None))
    free = _replaced(_replaced(layout, axis, LOWER, Neumann()), axis, UPPER, Neumann())
    padded = plane.pad(jnp.concatenate([line] * width, axis=line.ndim + axis - grid.ndim), free, width, t)
    return lax.slice_in_dim(padded, width, width + 1, axis=padded.ndim + axis - grid.ndim)


def balanced(
    domain: Domain,
    layouts: Sequence[FieldLayout],
    openings: Sequence[Opening],
    t,
    through: Callable[[Opening], Array],
    dtype,
) -> Array:
    """The speed that the velocity out of every outflow must gain so that as much leaves the box as comes in."""
    entering = sum(balance.fluxes(domain, layouts, t, dtype), start=jnp.zeros((), dtype))
    leaving = sum((one.flux(domain, layouts, through(one)) for one in openings), start=jnp.zeros((), dtype))
    area = sum(balance.area(domain, one.axis) for one in openings)
    return (entering - leaving) / area
