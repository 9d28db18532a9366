"""Walls whose friction follows from the velocity in the first cell, where cells do not resolve the flow beside them."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.core.boundary import FieldLayout, Neumann, Side, SlipWall
from simjax.core.domain import Domain
from simjax.grid import LOWER, UPPER, Grid
from simjax.models.flow.features import WALL_MODEL
from simjax.ops.difference import shift_by
from simjax.ops.eddy_viscosity import root
from simjax.schema.side_declarations import side

FACTOR, POWER = 8.3, 1 / 7
"""u+ = FACTOR y+^POWER beyond the viscous layer, where u+ = y+."""

Wall = tuple[int, int]
"""An axis and one of its two ends."""


@side(
    WALL_MODEL,
    groups=("flow",),
    about="the friction of a turbulent layer that the cells do not resolve; nothing passes",
)
class WallModel(SlipWall):
    """A wall with the friction of a turbulent layer in equilibrium, of which the first cell sees the mean velocity.

    See `drag_rate`. Scalars do not pass.

    Examples:
        >>> periodic = (sj.PeriodicSide(), sj.PeriodicSide())
        >>> channel = [periodic, (sj.WallModel(), sj.WallModel()), periodic]
        >>> flow = sj.Incompressible(sj.Domain(sj.Grid((16, 8, 8))), channel, turbulence="vreman")
    """


def modelled_walls(sides: Sequence[tuple[Side, Side]]) -> tuple[Wall, ...]:
    """The ends of axes that have the friction of `WallModel`."""
    return tuple(
        (axis, end) for axis, pair in enumerate(sides) for end in (LOWER, UPPER) if isinstance(pair[end], WallModel)
    )


def drag_rate(
    speed: Float[Array, "..."], viscosity: Float[Array, "..."], height: Float[Array, "..."] | float
) -> Float[Array, "..."]:
    """Friction of the wall over density and speed, length / time, from the mean speed in a cell of this height on it.

    From u+ = y+ in the viscous layer and u+ = A y+^B beyond, A = 8.3 and B = 1/7, integrated over the cell (Werner and
    Wengle 1991, 8th Symposium on Turbulent Shear Flows, 155), so that nothing is iterated: with a = nu / height,

        tau = 2 a u                                                                        for 2 u <= a A^(2/(1-B)),
        tau^((1+B)/2) = (1-B)/2 A^((1+B)/(1-B)) a^(1+B) + (1+B)/A a^B u                    for faster flow.

    The former is the friction of a resolved layer, that of a no-slip wall.
    """
    a, bend = viscosity / height, FACTOR ** (2 / (1 - POWER))
    turbulent = 2 * speed > a * bend
    fast = jnp.where(turbulent, speed, a * bend)  # where powers have a derivative
    layer = (1 - POWER) / 2 * FACTOR ** ((1 + POWER) / (1 - POWER)) * a ** (1 + POWER)
    tau = (layer + (1 + POWER) / FACTOR * a**POWER * fast) ** (2 / (1 + POWER))
    return jnp.where(turbulent, tau / fast, 2 * a)


def slowed(
    domain: Domain,
    layouts: Sequence[FieldLayout],
    walls: Sequence[Wall],
    t,
    velocity: Sequence[Array],
    viscosity: Array,
    slopes: Sequence[Array],
) -> list[Array]:
    """The tendency of the velocity with the friction of walls, against its direction in the cells beside them."""
    found = list(slopes)
    for axis, end in walls:
        height = domain.wall_spacing(axis, found[0].dtype)[end]
        for i, rate, line in friction(domain, layouts, (axis, end), t, velocity, viscosity):
            found[i] = _with_added(domain, found[i], axis, end, -(rate / height) * line)
    return found


def friction(
    domain: Domain, layouts: Sequence[FieldLayout], wall: Wall, t, velocity: Sequence[Array], viscosity: Array
) -> list[tuple[int, Array, Array]]:
    """The components that a wall slows, each with its friction over density and velocity, and its line beside it."""
    axis, end = wall
    place = 0 if end == LOWER else domain.block_shape[axis] - 1
    along = [i for i in range(domain.grid.ndim) if i != axis]
    lines = [lax.slice_in_dim(velocity[i], place, place + 1, axis=axis) for i in along]
    height = domain.wall_spacing(axis, lines[0].dtype)[end]
    others = _others(domain, [layouts[i] for i in along], lines, axis, along, t)
    rates = (drag_rate(root(u * u + v * v), viscosity, height) for u, v in zip(lines, others, strict=True))
    return list(zip(along, rates, lines, strict=True))


def _others(
    domain: Domain, layouts: Sequence[FieldLayout], lines: Sequence[Array], axis: int, along: Sequence[int], t
) -> tuple[Array, ...]:
    """For each of the two components along a wall the mean of the other one on the four faces around its own.

    All are in one layer of cells. In a plane there is no other one.
    """
    if len(along) == 1:
        return (jnp.zeros_like(lines[0]),)

    def one(values, value):
        return tuple(value if k == axis else own for k, own in enumerate(values))

    def mean(padded: Array, own: int, other: int) -> Array:
        """The component `other` on the faces of the component `own`."""
        places = ((below, above) for below in (0, -1) for above in (0, 1))
        faces = ([(k == own) * below + (k == other) * above for k in range(3)] for below, above in places)
        terms = [shift_by(padded, face) for face in faces]
        return 0.25 * sum(terms[1:], terms[0])

    grid, (i, j) = domain.grid, along
    layer = Grid(
        one(grid.shape, 1),
        grid.lower,
        one(grid.upper, grid.lower[axis] + grid.mean_spacing[axis]),
        one(grid.stretch, None),
    )
    plane = Domain(layer, one(domain.split, None), lines=one(domain.lines, None))
    still = (Neumann(), Neumann())
    free = tuple(FieldLayout(kind.offset, one(kind.boundaries, still), kind.units) for kind in layouts)
    return plane.apply(lambda u, v: (mean(v, i, j), mean(u, j, i)), tuple(lines), free, width=1, t=t)


def _with_added(domain: Domain, u: Array, axis: int, end: int, line: Array) -> Array:
    """The field with `line` added in the first or last cells of the whole grid along an axis."""
    n, last = domain.block_shape[axis], domain.grid.shape[axis] - 1
    index = domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)
    beside = (index == (0 if end == LOWER else last)).reshape([n if k == axis else 1 for k in range(u.ndim)])
    return u + jnp.where(beside, line, 0)
