"""Keeping density and pressure positive: face values drawn to their cell, fluxes mixed with a first-order one."""

import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.staging import held
from simjax.ops.riemann import Conserved, Primitive, mean_and_jump, squared_norm

MARGIN = 0.1
"""Face values, and what the fluxes leave of a cell, stay above this part of the cell's, or of the first-order value."""


def _share(kept: Array, value: Array) -> Array:
    """The largest share s <= 1 with kept + s (value - kept) >= MARGIN kept."""
    low = MARGIN * kept
    beyond = value < low
    return jnp.where(beyond, (kept - low) / jnp.where(beyond, kept - value, 1), 1)


def limit_state(face: Primitive, cell: Primitive) -> Primitive:
    """`face` drawn to its cell's values until density and pressure are positive.

    Zhang and Shu (2010), J. Comput. Phys. 229, 8918, in primitive variables, where both conditions are linear.
    """
    share = held(jnp.minimum(_share(cell.density, face.density), _share(cell.pressure, face.pressure)))

    def draw(value, kept):
        return jnp.where(share < 1, kept + share * (value - kept), value)

    velocity = tuple(map(draw, face.velocity, cell.velocity))
    return Primitive(draw(face.density, cell.density), velocity, draw(face.pressure, cell.pressure), face.scalars)


def _left_over(q: Conserved, flux: Conserved, pace: Array) -> Conserved:
    """q - pace flux, without scalars."""
    momentum = tuple(m - pace * f for m, f in zip(q.momentum, flux.momentum, strict=True))
    return Conserved(q.density - pace * flux.density, momentum, q.energy - pace * flux.energy)


def _inner_energy(q: Conserved) -> Array:
    """Energy that is not kinetic: pressure but for a factor."""
    return q.energy - 0.5 * squared_norm(q.momentum) / q.density


def limit_flux(
    flux: Conserved, below: tuple[Conserved, Conserved], above: tuple[Conserved, Conserved], speed: Array
) -> Conserved:
    """`flux` mixed with the Rusanov flux of the cells' own values as far as positivity asks.

    `below` and `above` are (conserved densities, their exact flux) of the two cells at a face, `speed` the larger
    |u| + c of the two. A cell stays positive in a forward Euler step if, for each of its faces alone,
    q -+ 2 dt / (w h) flux is, with weights w of the axes that sum to one. The Rusanov flux has that property up to
    Courant number 1/2 of sum((|u| + c) / h), where 2 dt / (w h) = 1 / speed. Density first, then pressure, which is
    concave. Hu, Adams and Shu (2013), J. Comput. Phys. 242, 169.
    """
    first = held(mean_and_jump(below[1], above[1], below[0], above[0], speed))
    pace = 1 / speed
    ends = [
        (_left_over(q, first, direction), _left_over(q, flux, direction))
        for q, direction in ((below[0], pace), (above[0], -pace))
    ]
    share = held(_least([_share(low.density, high.density) for low, high in ends]))
    mixed = [(low, _mix(low, high, share)) for low, high in ends]
    share = held(share * _least([_share(_inner_energy(low), _inner_energy(high)) for low, high in mixed]))
    return _mix(first, flux, share)


def _least(shares: list[Array]) -> Array:
    return jnp.minimum(*shares)


def _mix(low: Conserved, high: Conserved, share: Array) -> Conserved:
    """`high` where `share` is one, `low` where it is zero."""
    return jax.tree.map(lambda a, b: jnp.where(share < 1, a + share * (b - a), b), low, high)
