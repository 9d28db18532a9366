"""Arrangement of particles: distributions of the distances between them."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.errors import ConfigurationError
from simjax.particles.cells import Cells, counted
from simjax.particles.neighbor_policy import NeighborPolicy, Particles
from simjax.particles.pairs import Pairs

TOGETHER = 8
"""Distances that one pass over all pairs looks at."""


def partners_within(cells: Cells, particles: Particles, edges: np.ndarray) -> Array:
    """Average number of partners of a particle in each shell edges[k] <= r < edges[k + 1]: `(shells,)`.

    edges: rising distances, the last at most the length of a cell. Carries no gradient.

    Raises:
        ConfigurationError: distances do not rise, or reach further than a cell.
    """
    _check(cells, edges[0], edges[-1], bool(np.all(np.diff(edges) > 0)), "edges")
    bounds = np.stack([edges[:-1], edges[1:]])
    dtype = particles.position.dtype
    return _pair_sums(cells, particles, _in_shell, jnp.asarray(bounds**2, dtype), edges[-1])


def radial_distribution(cells: Cells, particles: Particles, edges: np.ndarray) -> Array:
    """g of each shell edges[k] <= r < edges[k + 1]: its partners over those among as many independent particles.

    That is n_k / ((N - 1) V_k / V) with `partners_within` n_k, the volume V_k of the shell and V of the box: 1 on
    average where N particles stand anywhere. Allen and Tildesley (2017), Computer Simulation of Liquids, eq. 8.18.

    Raises:
        ConfigurationError: as `partners_within`, or the box is not periodic along every axis.
    """
    _check_periodic(cells)
    ball = math.pi ** (cells.ndim / 2) / math.gamma(cells.ndim / 2 + 1)
    shells = np.diff(ball * np.asarray(edges) ** cells.ndim)
    return partners_within(cells, particles, edges) / _expected(cells, particles, shells)


def smooth_radial_distribution(
    cells: Cells, particles: Particles, radii: np.ndarray, width: float, pairs: Pairs | None = None
) -> Array:
    """g at `radii`, each a mean over distances |r - r_k| < width: differentiable in positions, for inverse problems.

    Pairs count by the kernel K(u) = 35/32 (1 - u^2)^3 / width of u = (r - r_k) / width, over the integral of the same
    kernel with independent particles, which is exact: 2, 2 pi r_k or 4 pi (r_k^2 + width^2 / 9) in 1, 2 or 3
    dimensions times (N - 1) / V.

    radii: distances from `width` to the length of a cell less `width`. pairs: those at least as near as radii and width
    reach, where they are listed already; else they are looked for.

    Raises:
        ConfigurationError: a kernel reaches below zero or further than a cell, or the box is not periodic.
    """
    _check_periodic(cells)
    radii = np.asarray(radii)
    _check(cells, radii.min() - width, radii.max() + width, width > 0, "radii and width")
    surface = (np.full(radii.shape, 2.0), 2 * np.pi * radii, 4 * np.pi * (radii**2 + width**2 / 9))[cells.ndim - 1]
    points = np.stack([radii, np.full(radii.shape, width)])
    reach = float(radii.max() + width)
    dtype = particles.position.dtype
    found = _pair_sums(cells, particles, _near_radius, jnp.asarray(points, dtype), reach, pairs)
    return found / _expected(cells, particles, surface)


def _in_shell(square: Array, shell: Array) -> Array:
    return ((square >= shell[0]) & (square < shell[1])).astype(square.dtype)


def _near_radius(square: Array, point: Array) -> Array:
    # Two particles at one place have a distance without slope.
    apart = jnp.where(square > 0, square, 1)
    u = (jnp.where(square > 0, jnp.sqrt(apart), 0) - point[0]) / point[1]
    return 35 / 32 * jnp.where(u * u < 1, 1 - u * u, 0) ** 3 / point[1]


def _pair_sums(
    cells: Cells, particles: Particles, weight: Callable, points: Array, reach: float, pairs: Pairs | None = None
) -> Array:
    """Mean over particles of the sum over partners of `weight(square of distance, points[:, k])`, for each k."""
    if pairs is None:
        # Of the state only this takes part, so that a state of any model does.
        bare = Particles(particles.position, particles.image, particles.ids)
        skin = NeighborPolicy(float(reach), 0.0)
        bare, arrangement, _ = skin.arrange(cells, bare)
        pairs = skin.pairs(cells, bare, arrangement)

    def pair(separation, here, there, group):
        square = sum((x * x for x in separation[1:]), separation[0] * separation[0])
        return tuple(weight(square, group[:, k]) for k in range(TOGETHER))

    count = points.shape[1]
    padded = jnp.pad(points, ((0, 0), (0, -count % TOGETHER)), mode="edge")
    groups = jnp.moveaxis(padded.reshape(points.shape[0], -1, TOGETHER), 1, 0)
    _, sums = lax.scan(lambda _, group: (None, jnp.stack(_totals(pairs.sum(pair, (), group)))), None, groups)
    number = counted(cells, pairs.ids).astype(sums.dtype)
    return cells.domain.total(sums.reshape(-1)[:count]) / number


def _totals(found) -> list[Array]:
    return [jnp.sum(values) for values in found]


def _expected(cells: Cells, particles: Particles, volumes: np.ndarray) -> Array:
    """Number of partners in parts of space of these volumes, if particles stand anywhere."""
    dtype = particles.position.dtype
    others = counted(cells, particles.ids).astype(dtype) - 1
    return others * jnp.asarray(volumes / (cells.domain.grid.cells * cells.domain.grid.cell_volume), dtype)


def _check(cells: Cells, least: float, most: float, rising: bool, what: str):
    length = min(cells.domain.grid.spacing)
    if not (rising and least >= 0 and most <= length * (1 + 1e-12)):
        raise ConfigurationError(
            f"{what} reach from {least:g} to {most:g}: expected distances from 0 that rise to at most {length:g}, the "
            "length of a cell; use fewer distances or longer cells."
        )


def _check_periodic(cells: Cells):
    if not all(cells.periodic):
        raise ConfigurationError(
            f"A radial distribution needs a box that is periodic along all axes, periodic={cells.periodic}; use "
            "partners_within."
        )
