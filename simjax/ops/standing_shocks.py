"""Strong shocks that stand in the grid, or nearly so: face values go over to limited slopes there.

A shock that moves is given anew to the cells that it enters. One that stands keeps its profile within a cell or two, at
whose ends weighted parabolas swing from one choice of cells to another, and noise grows by that. Slopes there are worth
nothing, as Colella and Woodward (1984), J. Comput. Phys. 54, 174, say, who flatten theirs in shocks.
"""

import jax
import jax.numpy as jnp
from jax import Array

from simjax.ops.crossing_shocks import strength
from simjax.ops.reconstruction import minmod
from simjax.ops.riemann import Primitive
from simjax.stencil.materialise import formed_once

PASSING = 0.5
"""Change of the momentum along an axis over its mean size, from one cell before a cell to one cell behind it, at which
a shock counts as one that moves. Across a shock at rest it does not change; across one that runs into a gas at rest by
twice the mean, and by half of it across one of Mach 10 that moves at about a tenth of its speed through the gas."""

WITHIN = 4.0
"""Weight of the part of the rise of pressure that lies on either side of a cell within a shock: from a quarter on it
counts in full. A shock without a cell in its midst has exact states on both sides; limited slopes there feed noise."""


def share_of(before: Primitive, cell: Primitive, behind: Primitive, axis: int) -> Array:
    """The share, 0 to 1, of a strong shock along an axis that stands in a cell in its midst, from those beside it."""
    found = strength(
        before.velocity[axis] - behind.velocity[axis], before.pressure - behind.pressure, cell.density, cell.pressure
    )
    first, second = (w.density * w.velocity[axis] for w in (before, behind))
    size = 0.5 * (jnp.abs(first) + jnp.abs(second))
    flows = size > 0
    change = jnp.where(flows, jnp.abs(first - second) / jnp.where(flows, size, 1), PASSING)
    rise = behind.pressure - before.pressure
    part = jnp.where(rise == 0, 0, (cell.pressure - before.pressure) / jnp.where(rise == 0, 1, rise))
    within = jnp.clip(WITHIN * jnp.minimum(part, 1 - part), 0, 1)
    return found * within * jnp.maximum(1 - change * (1 / PASSING), 0)


def limited_at_shocks(
    sides: tuple[Primitive, Primitive], resting: list[Primitive], cells: list[Primitive], axis: int
) -> tuple[Primitive, Primitive]:
    """Values on both sides of each face, towards those of the minmod limiter as far as a shock stands beside it.

    The share is the larger one of the two cells at the face. Elsewhere it is zero: smooth flow, and shocks that move,
    keep what they have. `resting`: the cells around each face, as they are interpolated; `cells`: with all pressure.
    """
    below = len(cells) // 2 - 1
    stands = [share_of(cells[k - 1], cells[k], cells[k + 1], axis) for k in (below, below + 1)]
    share = formed_once(jnp.maximum(*stands))

    def towards(value: Array, behind: Array, center: Array, ahead: Array) -> Array:
        return value + share * (center + 0.5 * minmod(center - behind, ahead - center) - value)

    upwind, downwind = resting[below - 1 : below + 2], resting[below + 2 : below - 1 : -1]
    return jax.tree.map(towards, sides[0], *upwind), jax.tree.map(towards, sides[1], *downwind)
