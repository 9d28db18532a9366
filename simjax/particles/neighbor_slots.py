"""Numbers of slots: of the flattened padded block, and of the cells around one."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.particles.cells import Cells


def own_slot(cells: Cells) -> Array:
    """Position of every slot of the block in the flattened padded block, `cells.shape` int32."""
    flat = jnp.zeros((1,) * (cells.ndim + 1), jnp.int32)
    for axis, n in enumerate(cells.shape):
        ghost = 0 if axis == 0 else 1
        index = jnp.arange(n, dtype=jnp.int32) + ghost
        flat = flat * (n + 2 * ghost) + index.reshape(tuple(n if k == axis else 1 for k in range(cells.ndim + 1)))
    return flat


def displacements(ndim: int) -> np.ndarray:
    """The neighbouring cells of a cell and itself, `(3**ndim, ndim)` int32 of -1, 0 and 1."""
    return np.array(list(itertools.product((-1, 0, 1), repeat=ndim)), np.int32)


def cell_strides(cells: Cells) -> np.ndarray:
    """Distance in the flattened padded cells between neighbours along each axis, `(ndim,)`."""
    shape = cells.padded_shape[1:]
    return np.array([math.prod(shape[axis + 1 :]) for axis in range(cells.ndim)])


def slots_around(cells: Cells) -> np.ndarray:
    """Numbers of the slots in the cells around one, counted cell by cell from its own first, `(1, slots)` int32."""
    first = displacements(cells.ndim) @ cell_strides(cells) * cells.capacity
    return (first[:, None] + np.arange(cells.capacity)).astype(np.int32).reshape(1, -1)
