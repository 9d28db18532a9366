"""Keeping density and pressure positive: face values drawn to their cell, fluxes mixed with a first-order one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from simjax.ops.riemann import Conserved, Primitive, mean_and_jump, squared_norm
from simjax.stencil.materialise import formed_once

MARGIN = 0.1
"""Face values, and what a flux leaves of half a cell, stay above this part of the cell's own value, or of the
first-order one if that is less.

Less would be a little more exact in strong blasts (`docs/gas.md`), but loses gas whose speeds rise within a step.
"""


def _share(kept: Array, value: Array, least: Array) -> Array:
    """The largest share s <= 1 with kept + s (value - kept) >= least, which is below `kept`."""
    beyond = value < least
    return jnp.where(beyond, (kept - least) / jnp.where(beyond, kept - value, 1), 1)


def state_share(face: Primitive, cell: Primitive) -> Array:
    """The largest share <= 1 of what `face` differs by from its cell that leaves density and pressure positive.

    Zhang and Shu (2010), J. Comput. Phys. 229, 8918, in primitive variables, where both conditions are linear.
    """
    pairs = (cell.density, face.density), (cell.pressure, face.pressure)
    return formed_once(jnp.minimum(*(_share(own, value, MARGIN * own) for own, value in pairs)))


def limit_state(face: Primitive, cell: Primitive) -> Primitive:
    """`face` drawn to its cell's values until density and pressure are positive (`state_share`)."""
    share = state_share(face, cell)

    def draw(value, kept):
        return jnp.where(share < 1, kept + share * (value - kept), value)

    velocity = tuple(map(draw, face.velocity, cell.velocity))
    return Primitive(draw(face.density, cell.density), velocity, draw(face.pressure, cell.pressure), face.scalars)


def _inner_energy(q: Conserved) -> Array:
    """Energy that is not kinetic: pressure but for a factor."""
    return q.energy - 0.5 * squared_norm(q.momentum) / q.density


class CellAtFace(NamedTuple):
    """A cell beside a face: conserved densities, their exact flux, and the energy per volume that is not kinetic.

    The latter is p / (gamma - 1), which a GPU has at less cost than it finds it in the densities once more.
    """

    densities: Conserved
    flux: Conserved
    inner_energy: Array


def limit_flux(flux: Conserved, below: CellAtFace, above: CellAtFace, speed: Array) -> Conserved:
    """`flux` mixed with the Rusanov flux of the cells' own values as far as positivity asks (`flux_share`)."""
    first = formed_once(mean_and_jump(below.flux, above.flux, below.densities, above.densities, speed))
    return _mix(first, flux, flux_share(flux, below, above, speed))


def flux_share(flux: Conserved, below: CellAtFace, above: CellAtFace, speed: Array) -> Array:
    """The largest share <= 1 of `flux` in a mean with Rusanov's that leaves both cells positive.

    `below` and `above` are the two cells at a face, with densities q and exact fluxes f, and `speed` the larger
    |u| + c of the two. A forward Euler step takes a cell to the weighted mean, over its faces, of q -+ 2 dt / (w h)
    (flux - f), with weights w of the axes that sum to one: f, the same at two opposite faces, drops out. So the cell
    stays positive if each of these states is. Without f a supersonic outflow alone would seem to empty the half of
    the cell that another face fills, and strong rarefactions would be smeared by the first-order flux without need.

    For the Rusanov flux, up to Courant number 1/2 of sum((|u| + c) / h), where 2 dt / (w h) = 1 / speed, the state is
    the same for both cells and positive: the mean of q + f / speed below and q - f / speed above. What is asked of a
    state is a part of the cell's own value where that is less than the first-order one: beside a heavy gas the mean is
    no measure of a light one, and a contact at rest, which no flux changes, must stay. Density first, then
    pressure, which is concave. Hu, Adams and Shu (2013), J. Comput. Phys. 242, 169; Zhang and Shu (2010), J. Comput.
    Phys. 229, 8918.
    """
    pace = 1 / speed
    middle = mean_and_jump(below.densities, above.densities, below.flux, above.flux, pace)
    # Not formed from the mean, of which a light gas beside a heavy one would be a difference and so be lost.
    lower = jax.tree.map(lambda q, f, g: q + pace * (f - g), below.densities, below.flux, flux)
    upper = jax.tree.map(lambda q, f, g: q + pace * (g - f), above.densities, above.flux, flux)

    def lesser_share(kept: Array, ends: tuple[Array, Array], own: tuple[Array, Array]) -> Array:
        return jnp.minimum(*map(lambda end, least: _share(kept, end, MARGIN * jnp.minimum(kept, least)), ends, own))

    densities = below.densities.density, above.densities.density
    share = formed_once(lesser_share(middle.density, (lower.density, upper.density), densities))
    inner = _inner_energy(_mix(middle, lower, share)), _inner_energy(_mix(middle, upper, share))
    energies = below.inner_energy, above.inner_energy
    return formed_once(share * lesser_share(_inner_energy(middle), inner, energies))


def _mix(low: Conserved, high: Conserved, share: Array) -> Conserved:
    """`high` where `share` is one, `low` where it is zero."""
    return jax.tree.map(lambda a, b: jnp.where(share < 1, a + share * (b - a), b), low, high)
