"""The push of charged particles through electric and magnetic fields."""

import jax.numpy as jnp
from jax import Array


def boris(velocity: Array, electric: Array, magnetic: Array, charge_to_mass: Array, dt, light: Array | None = None):
    """Velocity after du/dt = (q/m) (E + v x B) over `dt`: half the kick by E, the turn about B, half the kick.

    The turn keeps the length of u to rounding. Boris (1970), Proc. 4th Conf. on Numerical Simulation of Plasmas, 3.

    Args:
        velocity: u, `(3, ...)`; v itself, or gamma v where the speed of light is given.
        electric, magnetic: at the particles, `(3, ...)`.
        charge_to_mass: q/m, `(1, ...)`.
        light: speed of light, scalar; None: particles are not relativistic.
    """
    kick = 0.5 * dt * charge_to_mass * electric
    velocity = velocity + kick
    angle = 0.5 * dt * charge_to_mass * magnetic
    if light is not None:
        angle = angle / lorentz_factor(velocity, light)[None]
    bent = velocity + cross(velocity, angle)
    factor = 2 / (1 + jnp.sum(angle**2, axis=0))
    return velocity + cross(bent, angle * factor[None]) + kick


def lorentz_factor(velocity: Array, light: Array) -> Array:
    """gamma of u = gamma v, `(3, ...)`: sqrt(1 + u^2 / c^2)."""
    return jnp.sqrt(1 + jnp.sum(velocity**2, axis=0) / light**2)


def boosted(velocity: Array, frame: Array, light: Array) -> Array:
    """gamma v `(3, ...)` of what has `velocity` = gamma v in a frame that moves with `frame`, a velocity `(3, ...)`."""
    factor = 1 / jnp.sqrt(1 - jnp.sum(frame**2, axis=0) / light**2)
    along = jnp.sum(frame * velocity, axis=0) / light**2
    return velocity + frame * (factor * (lorentz_factor(velocity, light) + factor / (factor + 1) * along))[None]


def cross(a: Array, b: Array) -> Array:
    """The vector product of `(3, ...)` and `(3, ...)`."""
    return jnp.stack([a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3] for k in range(3)])
