"""Smooth random fields that depend on position alone: the same at every resolution and on every decomposition."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import Grid

MODES = 64


def random_modes(key: Array, grid: Grid, coordinates: tuple[Array, ...], wavenumber: float) -> Array:
    """A periodic random field of zero mean and about unit variance at `coordinates`.

    Sum of 64 plane waves sqrt(2 / 64) cos(2 pi k . (x - lower) / L + phase), each component of k an integer drawn
    uniformly from -wavenumber..wavenumber, k not zero; nearly Gaussian by the central limit theorem.
    """
    dtype = coordinates[0].dtype
    wave_key, phase_key = jax.random.split(key)
    limit = max(1, int(wavenumber))
    waves = jax.random.randint(wave_key, (MODES, grid.ndim), -limit, limit + 1, dtype=jnp.int32)
    nought = jnp.all(waves == 0, axis=1)
    waves = waves.at[:, 0].set(jnp.where(nought, 1, waves[:, 0])).astype(dtype)
    # Drawn in float32 whatever the precision of the run, so that it does not change the field.
    phases = jax.random.uniform(phase_key, (MODES,), jnp.float32, 0.0, 2 * jnp.pi).astype(dtype)
    positions = [
        (x - low) * (2 * jnp.pi / length) for x, low, length in zip(coordinates, grid.lower, grid.lengths, strict=True)
    ]

    def add(total, mode):
        wave, phase = mode
        angle = sum(wave[axis] * x for axis, x in enumerate(positions)) + phase
        return total + jnp.cos(angle), None

    zero = 0 * sum(positions)
    return lax.scan(add, zero + 0 * phases[0], (waves, phases))[0] * (2 / MODES) ** 0.5
