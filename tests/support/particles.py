"""Sets of particles for tests, and what plain loops over all pairs make of them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK

from simjax.core.domain import Domain
from simjax.particles import cells as storage
from simjax.particles.cells import Cells, cells_for

# One operation at a time, each is compiled alone.
pack = jax.jit(storage.pack, compiler_options=QUICK)
unpack = jax.jit(storage.unpack, static_argnums=3, compiler_options=QUICK)


def scattered(count: int, lengths, nearest: float, seed: int = 0) -> np.ndarray:
    """`(ndim, count)` points of a periodic box at random, no two nearer than `nearest`."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)[:, None]
    chosen = np.empty((len(lengths), 0))
    while chosen.shape[1] < count:
        point = rng.random((len(lengths), 1)) * lengths
        apart = chosen - point
        apart -= lengths * np.round(apart / lengths)
        if chosen.shape[1] == 0 or np.min(np.sum(apart**2, axis=0)) > nearest**2:
            chosen = np.concatenate([chosen, point], axis=1)
    return chosen


def fcc(cells: int, density: float) -> tuple[np.ndarray, float]:
    """Points `(3, 4 cells^3)` of a face-centred cubic lattice, and the length of its box."""
    basis = np.array([[0.25, 0.25, 0.25], [0.75, 0.75, 0.25], [0.75, 0.25, 0.75], [0.25, 0.75, 0.75]])
    corners = np.array(list(itertools.product(range(cells), repeat=3)))
    constant = (4 / density) ** (1 / 3)
    return (corners[:, None] + basis).reshape(-1, 3).T * constant, cells * constant


def stored(position: np.ndarray, lengths, reach: float, *, capacity: int = 16, periodic=None, blocks=()):
    """Particles packed into cells on one device: the cells, positions within them, and ids."""
    periodic = (True,) * len(lengths) if periodic is None else periodic
    grid = cells_for((0.0,) * len(lengths), lengths, reach, periodic, blocks)
    cells = Cells(Domain(grid), capacity, tuple(periodic))
    within, ids, _, lost = pack(cells, jnp.asarray(position), ())
    assert int(lost) == 0
    return cells, within, ids


def separations(position: np.ndarray, lengths, periodic, cutoff: float):
    """All ordered pairs nearer than `cutoff`, with all periodic images: indices i, j and x_i - x_j `(ndim, pairs)`."""
    ndim, count = position.shape
    images = [range(-2, 3) if p else (0,) for p in periodic]
    first, second, apart = [], [], []
    for image in itertools.product(*images):
        shift = (np.asarray(image) * np.asarray(lengths))[:, None, None]
        x = position[:, :, None] - position[:, None, :] + shift
        near = np.sum(x**2, axis=0) < cutoff**2
        if not any(image):
            near &= ~np.eye(count, dtype=bool)
        i, j = np.nonzero(near)
        first.append(i), second.append(j), apart.append(x[:, i, j])
    return np.concatenate(first), np.concatenate(second), np.concatenate(apart, axis=1)
