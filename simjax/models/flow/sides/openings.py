"""Sides that an incompressible flow leaves, or enters, as it likes: outflow and given pressure."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Outflow, Side, Value
from simjax.core.domain import Domain
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.flow.sides import balance
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side

side("outflow", groups=("flow",), about="what leaves is carried out at the mean speed through the side")(Outflow)


@side(
    "open",
    groups=("flow",),
    keys=(FieldSchema("pressure", units="m2 s-2"),),
    about="a given kinematic pressure, at which fluid passes in or out",
)
class OpenSide(Side):
    """A side at a given kinematic pressure (over density, length^2 / time^2), through which fluid passes in or out.

    Scalars have no slope across it.

    Examples:
        >>> pipe = [(sj.OpenSide(pressure=1.0), sj.OpenSide()), (sj.NoSlipWall(), sj.NoSlipWall())]
        >>> flow = sj.Incompressible(sj.Domain(sj.Grid((32, 16))), pipe)
    """

    passable = True
    pressure: Value = 0.0

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
    face inside and the pressure's slope across half a cell.
    """

    axis: int = eqx.field(static=True)
    side: int = eqx.field(static=True)
    pressure: Value | None = None

    @property
    def outward(self) -> int:
        """The sign of a velocity that leaves."""
        return -1 if self.side == LOWER else 1

    def flux(self, domain: Domain, layouts: Sequence[FieldLayout], through: Array) -> Array:
        """Volume per time that leaves, from the velocity on this block's part of the side."""
        speed, faces = balance.weighed(domain, layouts[self.axis], (self.axis, self.side), through)
        return self.outward * balance.total(domain, self.axis, speed, faces)

    def tendency(
        self, domain: Domain, layouts: Sequence[FieldLayout], t, through: Array, inside: Array, slope_inside: Array
    ) -> Array:
        """Tendency of the velocity through the side, without the pressure of the flow.

        Args:
            through, inside: the velocity on the side and on the next faces inside, lines of one cell.
            slope_inside: the tendency there.
        """
        width = domain.wall_spacing(self.axis, through.dtype)[self.side]
        if self.pressure is None:
            area = balance.area(domain, self.axis)
            speed = jnp.maximum(self.flux(domain, layouts, through) / area, 0)
            return (inside - through) * (speed / width)
        own = layouts[self.axis]
        layout = _replaced(own, self.axis, self.side, Dirichlet(self.pressure))
        value = domain.prescribed(through, layout, self.axis, self.side, t)
        assert value is not None
        return slope_inside - (2 * self.outward) * (value / width)


def openings_of(sides: Sequence[tuple[Side, Side]]) -> tuple[Opening, ...]:
    """Openings among the sides, by axis."""
    found = []
    for axis, pair in enumerate(sides):
        for where, kind in enumerate(pair):
            if isinstance(kind, OpenSide):
                found.append(Opening(axis, where, kind.pressure))
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
