"""White noise in space and time on the cells of a grid: what a model says of it, and the numbers that are drawn."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError

SEEDS = 2**32


class WhiteNoise(NamedTuple):
    """The noise of a model: each cell of each field has a Brownian path of its own.

    seed: a whole number, or several, from which the paths follow; those of floating point are rounded. amplitudes: a
    tree like the state, of the field's units per square root of time: by how much a cell changes, as a standard
    deviation, in a unit of time; None for a field without noise.
    """

    seed: Any
    amplitudes: Any


def check_seed(name: str, seed) -> None:
    """Refuse a plain number that is no seed.

    Raises:
        ConfigurationError: it is not whole, or out of range.
    """
    plain = isinstance(seed, int | float | np.number)
    if plain and not (seed == int(seed) and 0 <= seed < SEEDS):
        raise ConfigurationError(f"{name}: seed={seed}: expected a whole number from 0 to below 2^32.")


def standard_normals(domain: Domain, seed, number: Array, field: int, dtype) -> tuple[Array, Array]:
    """Two standard normal numbers for each cell of this block, all independent: arrays of `domain.block_shape`.

    They are a function of the seed, the number of the step, the field and the place of the cell in the whole grid, of
    nothing else: neither decomposition nor restart changes them, and reverse mode forms them again. A call of Threefry
    (Salmon et al. 2011, SC11) gives a cell 64 bits, half of them for each number.
    """
    key = jax.random.key(0, impl="threefry2x32")
    for counted in (*map(_whole, jax.tree.leaves(seed)), number, field):
        key = jax.random.fold_in(key, counted)
    ndim, shape = domain.grid.ndim, domain.block_shape
    first, *others = (
        jnp.asarray(domain.first_index(axis)).astype(jnp.uint32) + jnp.arange(shape[axis], dtype=jnp.uint32)
        for axis in range(ndim)
    )
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first)
    if others:  # by a line or plane each, so that the number of a cell in it has 32 bits
        place = others[0]
        for axis, index in enumerate(others[1:], 2):
            place = (place[:, None] * np.uint32(domain.grid.shape[axis]) + index[None]).reshape(-1)
        keys = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(keys, place)
    words = jax.random.key_data(keys).reshape(*shape, 2)
    return _normal(words[..., 0], dtype), _normal(words[..., 1], dtype)


def _whole(seed) -> Any:
    """A seed as 32 bits; a run's numbers are of floating point, and derivatives move them a little."""
    return np.uint32(seed) if isinstance(seed, int) else jnp.round(jnp.asarray(seed)).astype(jnp.uint32)


def _normal(bits: Array, dtype) -> Array:
    """Standard normal numbers, up to 5.2 in size, of random bits.

    Of 23 of them, so that the uniform numbers are exact in float32, and a run in another precision has the same noise.
    """
    uniform = (bits >> np.uint32(9)).astype(jnp.float32) * np.float32(2.0**-22) + np.float32(2.0**-23 - 1)
    return math.sqrt(2) * lax.erf_inv(uniform.astype(dtype))
