"""The surface of bodies that move in a gas: what cells beside it have of their own, and how the wall moves.

A cell whose centre comes to lie in the gas as a body leaves it must know a state, and nothing may jump as it does. So
a cell of the gas within a cell of the surface is read as a mean of its own state and of that which its image makes:
none of its own at the surface, all of it a cell away. Fluxes of what is read change the cells of the gas, and those in
bodies within a cell of the surface less and less; and all cells are drawn to what is read in their place, at some rate
at which sound crosses them:

    dq/dt = s (dq/dt by fluxes) + k (q read - q),        k = 2 sum over axes of (|u| + c) / h

The share s is one in the gas: drawn alone, cells would lag behind a gas that changes, of first order. So cells in
bodies hold the gas beside them when the body leaves; while they are in bodies their own state is not read. The gas at
the surface has the velocity V of the material of bodies; pressure and enthalpy rise along the normal as V changes and
turns. All of it is continuous in time, place and shape, and of second order where the motion is smooth.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.flow.bodies.solid_geometry import mirrored
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.bodies.ghost_cells import GhostCells
from simjax.ops.difference import shift
from simjax.ops.riemann import smooth_root, squared_norm

DRAWN = 2.0
"""The rate at which cells are drawn to what is read, over that at which sound and gas cross them. A step of Courant
number one takes twice it, which the schemes of three and four stages bear."""


def cells_off(domain: Domain, layout: FieldLayout, distance: Array) -> Array:
    """The distance of each cell of this block from the surface in cells, positive in the gas.

    Over its change from cell to cell, so that `distance` may be any multiple of one. layout: says along which axes
    fields are periodic.
    """
    ndim = domain.grid.ndim

    def change(padded: Array) -> Array:
        here = shift(padded, ndim)
        # Towards the nearer surface in a narrow body or gap: differences across its middle would vanish.
        largest = [
            jnp.maximum(jnp.abs(here - shift(padded, ndim, axis, -1)), jnp.abs(shift(padded, ndim, axis, 1) - here))
            for axis in range(ndim)
        ]
        return smooth_root(squared_norm(tuple(largest)))

    cell = domain.apply(change, distance, mirrored(layout), 1)
    return jnp.where(cell > 0, distance / jnp.where(cell > 0, cell, 1.0), jnp.sign(distance))


def own_share(cells: Array) -> Array:
    """The share of its own state with which a cell is read that lies so many cells off the surface.

    It rises from zero at the surface to one a cell off it, smoothly, so that nothing has a kink as the surface passes.
    """
    part = jnp.clip(cells, 0.0, 1.0)
    return part * part * (3 - 2 * part)


def gas_share(cells: Array) -> Array:
    """The share of the gas in a cell whose centre is so many cells off the surface.

    Its slope is a hat, two cells wide: along an axis the shares of all cells sum to the length that the gas has, and
    what the surface sweeps does not jump.
    """
    part = jnp.clip(cells, -1.0, 1.0)
    return 0.5 + part * (1 - 0.5 * jnp.abs(part))


def wall_motion(
    solid: Solid, ghosts: GhostCells, domain: Domain, t: Array
) -> tuple[tuple[Array, ...], Callable[[Sequence[Array]], Array]]:
    """The velocity of the material of bodies at the surface beside the ghost cells, and the acceleration along the
    normal of gas that runs along it, a function of its velocity beyond that of the wall, without what bends its way.

    The latter is n . (dV/dt + ((V + 2 w) . grad) V), of which a wall that turns has the part of Coriolis.
    """
    dtype, block = ghosts.depth.dtype, domain.block_shape
    places = domain.coordinates((CENTER,) * domain.grid.ndim, dtype)
    cells = [ghosts.of_cells(jnp.broadcast_to(x, block)) for x in places]
    feet = tuple(x + n * ghosts.depth for x, n in zip(cells, ghosts.normal, strict=True))
    given = solid.velocity or (None,) * domain.grid.ndim

    def velocity(t: Array, *x: Array) -> tuple[Array, ...]:
        found = []
        for v in given:
            there = 0.0 if v is None else v(t, *x) if callable(v) else ghosts.of_cells(jnp.broadcast_to(v, block))
            found.append(jnp.broadcast_to(jnp.asarray(there, dtype), ghosts.depth.shape))
        return tuple(found)

    t = jnp.asarray(t, dtype)
    wall = velocity(t, *feet)

    def lift(along: Sequence[Array]) -> Array:
        ways = tuple(v + 2 * w for v, w in zip(wall, along, strict=True))
        return ghosts.across(jax.jvp(velocity, (t, *feet), (jnp.ones_like(t), *ways))[1])

    return wall, lift
