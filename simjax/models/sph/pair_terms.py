"""Pair terms of a smoothed fluid: of continuity, of momentum, and of what walls see.

i is the particle that gets, j its partner, x = x_i - x_j, v = v_i - v_j, V = m / rho the volumes, and grad W the
kernel's gradient at i. All particles have one mass m.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.models.sph.kernels import SmoothingKernel

FLUID, WALL, MOVING_WALL = 0, 1, 2
"""Species: fluid, walls that stay where they are (and may slide along themselves), walls that move with theirs."""
SOFTENING = 0.01
"""Share of h^2 added to r^2 where artificial viscosity divides by it."""


class Moving(eqx.Module):
    """Quantities of a particle for continuity: velocity `(ndim, ...)`, density, volume, species."""

    velocity: Array
    density: Array
    volume: Array
    species: Array


class Pressing(eqx.Module):
    """Quantities of a particle for momentum: velocity `(ndim, ...)`, volume, pressure, species.

    drift: `(ndim, ...)`, by how much it is carried faster than it flows; None where it is carried with the flow.
    """

    velocity: Array
    drift: Array | None
    volume: Array
    pressure: Array
    species: Array


def dot(x, y) -> Array:
    """Sum of products of the components of two vectors, each given along the first axis."""
    products = [a * b for a, b in zip(x, y, strict=True)]
    return sum(products[1:], products[0])


def density_rate(kernel: SmoothingKernel) -> Callable[..., Any]:
    """d rho_i/dt = sum V_j (rho_i v . grad W - 2 delta h c psi (dW/dr) / r).

    psi = rho_j - rho_i + rho_0 g . x / c^2 leaves out the density differences of a fluid at rest under gravity, so
    that these do not diffuse away at a free surface; fluid does not diffuse into walls.
    Molteni and Colagrossi (2009), Comput. Phys. Commun. 180, 861, eq. 14; Fourtakas et al. (2019), Comput. Fluids 190,
    346, eq. 17. params: those of the model.
    """

    def pair(x, here: Moving, there: Moving, params):
        slope = kernel.slope(dot(x, x))
        approach = dot([a - b for a, b in zip(here.velocity, there.velocity, strict=True)], x)
        at_rest = params.density / params.sound_speed**2 * dot(params.gravity, x)
        excess = there.density - here.density + at_rest
        both = (here.species == FLUID) & (there.species == FLUID)
        diffusivity = 2 * params.density_diffusion * kernel.length * params.sound_speed
        diffused = jnp.where(both, diffusivity * excess, jnp.zeros_like(excess))
        return there.volume * slope * (here.density * approach - diffused)

    return pair


def forces(kernel: SmoothingKernel, slip: bool) -> Callable[..., Any]:
    """Force per volume squared on i, without gravity; its sum times 1 / m is the acceleration.

    (V_i^2 + V_j^2) (-p grad W + (A_i + A_j) . grad W / 2 + eta v (dW/dr) / r) + artificial viscosity, with
    p = (p_i V_i + p_j V_j) / (V_i + V_j) weighted by densities, eta = rho_0 nu, and A = rho v (drift) the momentum
    that goes with being carried otherwise than the flow. Where there is drift, also `crowding`,
    -(V_i^2 + V_j^2) grad W: what a uniform pressure of one would do.
    Adami, Hu and Adams (2012), J. Comput. Phys. 231, 7057, eq. 6-8; (2013), J. Comput. Phys. 241, 292, eq. 5-14;
    artificial viscosity: Monaghan and Gingold (1983), J. Comput. Phys. 52, 374, eq. 3.1.
    slip: walls exert no friction. params: (those of the model, m).
    """

    def pair(x, here: Pressing, there: Pressing, shared):
        params, mass = shared
        square = dot(x, x)
        slope = kernel.slope(square)
        gradient = [slope * component for component in x]
        weight = here.volume**2 + there.volume**2
        both = here.volume + there.volume
        pressure = (here.pressure * here.volume + there.pressure * there.volume) / both
        v = [a - b for a, b in zip(here.velocity, there.velocity, strict=True)]
        friction = weight * params.density * params.viscosity * slope
        # m alpha c h min(v . x, 0) / (rho (r^2 + 0.01 h^2)), rho = 2 m / (V_i + V_j), times m as all terms here.
        damping = params.artificial_viscosity * params.sound_speed * kernel.length * mass
        approach = jnp.minimum(dot(v, x), 0) / (square + SOFTENING * kernel.length**2)
        push = 0.5 * damping * approach * both
        if slip:
            rubs = (here.species == FLUID) & (there.species == FLUID)
            friction, push = (jnp.where(rubs, u, jnp.zeros_like(u)) for u in (friction, push))
        force = [(push - weight * pressure) * g + friction * u for g, u in zip(gradient, v, strict=True)]
        if here.drift is None or there.drift is None:
            return {"force": tuple(force)}
        carried = 0.5 * weight * mass
        mine = carried / here.volume * dot(here.drift, gradient)
        # Where no particle is, there is no volume.
        theirs = carried / jnp.where(there.volume > 0, there.volume, here.volume) * dot(there.drift, gradient)
        force = [f + mine * a + theirs * b for f, a, b in zip(force, here.velocity, there.velocity, strict=True)]
        return {"force": tuple(force), "crowding": tuple(-weight * g for g in gradient)}

    return pair


def seen_by_walls(kernel: SmoothingKernel) -> Callable[..., Any]:
    """Sums over the fluid around a wall particle: sum W, sum (p_j + rho_j g . x) W, sum v_j W.

    Adami, Hu and Adams (2012), J. Comput. Phys. 231, 7057, eq. 22 and 27. here, there: (velocity, density, pressure,
    species); params: gravity.
    """

    def pair(x, here, there, gravity):
        velocity, density, pressure, species = there
        weight = jnp.where(species == FLUID, kernel.value(dot(x, x)), jnp.zeros_like(density))
        return {
            "weight": weight,
            "pressure": weight * (pressure + density * dot(gravity, x)),
            "velocity": tuple(weight * u for u in velocity),
        }

    return pair
