"""Moments of the kernel that smears the surface of a body over the cells around it."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def kernel_moments(distance: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """mu0, the share of the kernel that lies in the fluid, and mu1, its first moment, at a distance from the surface.

    distance: in half widths of the kernel, positive in the fluid. The kernel is 15/16 (1 - x^2)^2 on [-1, 1];
    mu0 = integral of the kernel up to the distance, mu1 = - integral of x times it. Both are exactly zero a half width
    inside the body; written as products, they lose no digits near there.
    """
    inside = jnp.clip(1 + distance, 0.0, 2.0)
    mu0 = inside**3 * (1.25 - 0.9375 * inside + 0.1875 * inside**2)
    # From the other end where that is the nearer one, so that it is exactly one there.
    other = jnp.clip(1 - distance, 0.0, 2.0)
    mu0 = jnp.where(distance > 0, 1 - other**3 * (1.25 - 0.9375 * other + 0.1875 * other**2), mu0)
    return mu0, 0.15625 * (inside * other) ** 3
