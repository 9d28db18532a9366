"""Motion of particles: displacements, velocities and diffusion."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from simjax.particles.cells import Cells, counted
from simjax.particles.neighbor_policy import Particles


def unwrapped(cells: Cells, particles: Particles) -> Array:
    """Coordinates of particles as if periodic sides did not bring them back, `(ndim, *cells.shape)`."""
    lengths = cells.domain.grid.lengths
    images = [
        count.astype(particles.position.dtype) * length for count, length in zip(particles.image, lengths, strict=True)
    ]
    return cells.absolute(particles.position) + jnp.stack(images)


def mean_square_displacement(cells: Cells, particles: Particles, reference: Array) -> Array:
    """Mean over particles of |x - reference|^2, a scalar.

    reference: `(ndim, particles)` unwrapped coordinates in the order of ids, as `unpack` gives those of `unwrapped`.
    """
    there = reference.at[:, jnp.where(particles.ids >= 0, particles.ids, 0)].get(mode="promise_in_bounds")
    square = jnp.sum((unwrapped(cells, particles) - there) ** 2, axis=0)
    return _mean(cells, particles, square)


def diffusion_coefficient(times: Array, displacement: Array, ndim: int) -> Array:
    """The slope of the mean-square displacement over times, by least squares, over 2 ndim: Einstein's relation.

    times, displacement: `(samples,)`, from where motion is diffusive.
    """
    times = times - jnp.mean(times)
    return jnp.sum(times * (displacement - jnp.mean(displacement))) / jnp.sum(times**2) / (2 * ndim)


def velocity_moments(cells: Cells, particles: Particles, velocity: Array, mass: Array) -> dict[str, Array]:
    """Moments of u = sqrt(m) v over all particles, each `(ndim,)`; those of a Maxwell distribution in brackets.

    "mean" of u (0), "temperature": the variance of u (kT), "skewness" (0) and "kurtosis" (3).

    velocity: `(ndim, *cells.shape)`. mass: of every slot, `(1, *cells.shape)`.
    """
    scaled = jnp.sqrt(mass) * velocity
    mean = _mean(cells, particles, scaled)
    apart = scaled - mean.reshape(-1, *(1,) * len(cells.shape))
    variance, third, fourth = (_mean(cells, particles, apart**power) for power in (2, 3, 4))
    # Particles at rest have no shape of their distribution.
    safe = jnp.where(variance > 0, variance, 1)
    return {"mean": mean, "temperature": variance, "skewness": third / safe**1.5, "kurtosis": fourth / safe**2}


def _mean(cells: Cells, particles: Particles, values: Array) -> Array:
    """Mean over all particles of `(..., *cells.shape)`: `(...)`."""
    axes = tuple(range(-len(cells.shape), 0))
    total = cells.domain.total(jnp.sum(jnp.where(particles.ids >= 0, values, 0), axis=axes))
    return total / counted(cells, particles.ids).astype(values.dtype)


def closest_images(lengths: Sequence[float], periodic: Sequence[bool], position: Array, near: Array) -> Array:
    """`position` moved by whole lengths of the box along its periodic axes to where it is closest to `near`.

    Both are coordinates `(..., ndim, particles)`. The difference from `near` is then that of the nearest images.
    """
    along = (*(1,) * (position.ndim - 2), -1, 1)
    turns = jax.lax.stop_gradient(jnp.round((near - position) / jnp.asarray(lengths, position.dtype).reshape(along)))
    moved = turns * jnp.asarray(lengths, position.dtype).reshape(along)
    return position + jnp.where(jnp.asarray(periodic).reshape(along), moved, 0)
