"""The push of charged particles through electric and magnetic fields."""

import jax.numpy as jnp
from jax import Array


def rotated(velocity: Array, angle: Array) -> Array:
    """`velocity` turned about `angle` / 2, a vector whose length is the tangent of half the angle: `(3, ...)` each.

    The length of the velocity is kept to rounding. Boris (1970), Proc. 4th Conf. Numerical Simulation of Plasmas.
    """
    bent = velocity + cross(velocity, angle)
    factor = 2 / (1 + sum(a * a for a in angle))
    return velocity + cross(bent, angle * factor[None])


def boris(velocity: Array, electric: Array, magnetic: Array, charge_to_mass: Array, dt) -> Array:
    """Velocity after dv/dt = (q/m) (E + v x B) over `dt`: half the kick by E, the turn about B, half the kick.

    velocity, electric, magnetic: `(3, ...)`. charge_to_mass: `(1, ...)`. With relativistic particles `velocity` is
    u = gamma v, and `magnetic` B / gamma at the middle of the kick.
    """
    kick = 0.5 * dt * charge_to_mass * electric
    return rotated(velocity + kick, 0.5 * dt * charge_to_mass * magnetic) + kick


def cross(a: Array, b: Array) -> Array:
    """The vector product of `(3, ...)` and `(3, ...)`."""
    return jnp.stack([a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3] for k in range(3)])
