"""The change of the pressure in a stage around bodies."""

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.jaxpr.jaxpr_parts import part
from simjax.models.flow.bodies.solids import Immersion
from simjax.solvers.capacitance import Unobstructed, solve_around
from simjax.solvers.multigrid import solve_elliptic

MOST_ITERATIONS = 400
"""Most iterations of conjugate gradients for the pressure. With the direct solve without bodies, a plate three cells
thick took 140 in double precision."""


@part("pressure solve")
def potential(immersion: Immersion, domain: Domain, divergence: Array, gained: Array | None, impulse: Array) -> Array:
    """phi with div(beta grad phi) = divergence - gained, zero in bodies; of zero mean in the fluid if none is given at
    a side, but for a constant where nothing is iterated: `solid_stage.pressure` takes it away.

    gained: what bodies gain by themselves; None: nothing. phi changes the impulse of the pressure, and is as exact as
    that needs: to a hundred roundings of their sum, or by a direct solve to those of the operator's terms.
    Where it is iterated for, bodies may cut the fluid into regions that nothing joins, of which each has a constant of
    its own: a term of a hundred roundings of the operator holds these constants, whose gradient vanishes, and changes
    phi by no more.
    What flows by the profile of the velocity follows the neighbours of a face, and their correction by phi is left out:
    it vanishes with the change of the pressure, and the operator stays symmetric.
    """
    operator, connected, box = immersion.operator, immersion.active, immersion.box
    right = jnp.where(connected, divergence if gained is None else divergence - gained, 0.0)
    if immersion.spread is not None:
        # Nothing passes the sides: all cells together have no divergence, so that what cells with a pressure have too
        # much is what others miss, and what bodies gain.
        more = jnp.zeros((), right.dtype) if gained is None else box.cut(gained)
        missed = jnp.where(box.cut(connected), more, box.cut(divergence))
        mass = box.cut(operator.mass) if operator.mass.ndim else operator.mass
        right = right + immersion.spread * domain.sum(mass * missed)

    volumes = jnp.where(connected, operator.mass, 0.0)
    whole = domain.sum(volumes)

    def iterated(right: Array, impulse: Array) -> Array:
        eps = float(jnp.finfo(right.dtype).eps)
        shift = 100 * eps * sum(1 / h**2 for h in domain.grid.mean_spacing)
        known = operator(impulse, 0.0)
        return solve_elliptic(
            operator,
            immersion.inverse,
            right - volumes * (domain.sum(right) / whole) if operator.closed else right,
            shift,
            tolerance=100 * eps,
            limit=MOST_ITERATIONS,
            scale=jnp.sqrt(domain.dot(known, known)),
        ).solution

    found = solve_around(operator, immersion.inverse, -volumes * right, lax.stop_gradient(impulse), iterated)
    known = isinstance(immersion.inverse, Unobstructed) and immersion.inverse.joined
    mean = domain.sum(volumes * found) / whole if operator.closed and not known else 0.0
    return jnp.where(connected, found - mean, 0.0)
