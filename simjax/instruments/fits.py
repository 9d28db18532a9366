"""Polynomials that are nearest to the values of a decomposed field around points, by least squares."""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.stretched import Places
from simjax.instruments.places import beside, line_of, values_along

RADIUS = 3.5
"""Widths of cells from a point within which values count: so that three lines of them do across any plane surface."""
REACH = 4
"""Values on each side of a point, along every axis, among which these are."""
RIDGE = 1e-3
"""Weight of the terms beyond the first one where too few values decide on them; values beside a point have one."""
BENT = 0.2
"""Weight of the quadratic terms of a slope: small where three lines of values decide on them, the most in narrow gaps.
"""


class Around(NamedTuple):
    """Values around points, 2 `REACH` of them along every axis.

    cells: numbers in this block, `(points, 2 REACH)` by axis. held: whether the block has them. places: from the
    points, in widths, `(points, axes, 2 REACH, ...)`. widths: of cells at the points, `(points, axes)`.
    """

    cells: tuple[Array, ...]
    held: tuple[Array, ...]
    places: Array
    widths: Array


def values_around(domain: Domain, positions: Array, offset: Sequence[float], periodic: Sequence[bool]) -> Around:
    """The values around `positions` `(points, axes)`, in units of the domain, of fields at this offset."""
    ndim, steps = domain.grid.ndim, jnp.arange(1 - REACH, REACH + 1, dtype=jnp.int32)[None]
    cells, held, along, widths = [], [], [], []
    for axis, block in enumerate(domain.block_shape):
        x, n, line = positions[:, axis], domain.grid.shape[axis], line_of(domain, axis)
        below, fraction = beside(domain, axis, x, offset[axis], periodic[axis], x.dtype)
        number = below[:, None] + steps
        if line is None:
            h = jnp.full_like(x, domain.grid.mean_spacing[axis])
            along.append(steps.astype(x.dtype) - fraction[:, None])
        else:
            places = _placed(values_along(line, offset[axis]), number, domain.grid.lengths[axis], x.dtype)
            h = places[:, REACH] - places[:, REACH - 1]
            along.append((places - x[:, None]) / h[:, None])
        mine = (jnp.mod(number, n) if periodic[axis] else number) - domain.block_index(axis) * block
        cells.append(jnp.clip(mine, 0, block - 1))
        held.append((mine >= 0) & (mine < block))
        widths.append(h)
    places = jnp.stack(jnp.broadcast_arrays(*(_spread(one, axis, ndim) for axis, one in enumerate(along))), 1)
    return Around(tuple(cells), tuple(held), places, jnp.stack(widths, 1))


def _placed(values: Places, number: Array, length: float, dtype) -> Array:
    """Places of values by number; beyond the ends of an axis they go on as at its other end."""
    n = values.shape[0]
    turns = jnp.floor_divide(number, n)
    return jnp.asarray(values, dtype)[number - turns * n] + length * turns.astype(dtype)


def _spread(u: Array, axis: int, ndim: int) -> Array:
    """Numbers `(points, n)` along an axis as `(points, ..., n, ...)`."""
    return u.reshape(u.shape[0], *(u.shape[1] if k == axis else 1 for k in range(ndim)))


def gathered(domain: Domain, around: Around, *fields: Array) -> tuple[Array, ...]:
    """The values of fields around points, each `(points, 2 REACH, ...)`; zero where there are none."""
    ndim = domain.grid.ndim
    index = tuple(_spread(one, axis, ndim) for axis, one in enumerate(around.cells))
    held = functools.reduce(jnp.logical_and, (_spread(one, axis, ndim) for axis, one in enumerate(around.held)))
    # Selected before they are added up, so that a NaN elsewhere in this block stays there.
    return domain.total(tuple(jnp.where(held, field[index], 0) for field in fields))


def nearness(around: Around) -> Array:
    """Weights that fall with the distance r from a point, in widths: (1 - (r / RADIUS)^2)^2."""
    return jnp.maximum(1 - jnp.sum(around.places**2, 1) / RADIUS**2, 0) ** 2


def least_squares(terms: Sequence[Array], weights: Array, values: Array, ridges: Sequence[float]) -> Array:
    """Coefficients `(points, terms)` of the sum of terms nearest to `values` at each point.

    terms, weights, values: `(points, ...)`. The difference of each value counts with the square of its weight, and each
    coefficient with the square of its ridge.
    """
    points, count, dtype = values.shape[0], len(terms), values.dtype
    rows = jnp.stack([(weights * term).reshape(points, -1) for term in (*terms, values)], -1)
    ridge = jnp.diag(jnp.asarray([*ridges, 0.0], dtype))[:count]
    columns = jnp.concatenate([rows, jnp.broadcast_to(ridge, (points, *ridge.shape))], 1)
    # Modified Gram-Schmidt with the values as the last column: as accurate as Householder's QR (Bjorck 1967, BIT 7, 1).
    # LAPACK's, of many matrices, waits for ever where two calls share a pool of as many threads (jaxlib 0.10 to 0.12).
    upper = []
    for _ in range(count):
        first, columns = columns[..., 0], columns[..., 1:]
        size = jnp.linalg.norm(first, axis=1)
        unit = first / size[:, None]
        shares = jnp.einsum("pn,pnk->pk", unit, columns, precision="highest")
        columns = columns - unit[..., None] * shares[:, None]
        upper.append((size, shares))
    found: list[Array] = []
    for size, shares in reversed(upper):
        rest = shares[:, -1] - sum((shares[:, k] * one for k, one in enumerate(found)), jnp.zeros_like(size))
        found.insert(0, rest / size)
    return jnp.stack(found, 1)


def value_at(values: Array, weights: Array, around: Around) -> Array:
    """The value at points, `(points,)`, of the quadratic that is nearest to the values around them."""
    linear, quadratic = _terms(around)
    terms = [jnp.ones_like(values), *linear, *quadratic]
    return least_squares(terms, weights * nearness(around), values, [0.0] + [RIDGE] * (len(terms) - 1))[:, 0]


def slope_from(depth: Array, values: Array, weights: Array, around: Around) -> Array:
    """The slope against `depth` at points, `(points,)`, of values that vanish with it: depth times a quadratic."""
    linear, quadratic = _terms(around)
    unit = jnp.exp(jnp.mean(jnp.log(around.widths), 1)).reshape(-1, *(1,) * (depth.ndim - 1))
    terms = [depth / unit, *(depth / unit * term for term in (*linear, *quadratic))]
    ridges = [0.0] + [RIDGE] * len(linear) + [BENT] * len(quadratic)
    return least_squares(terms, weights * nearness(around), values / unit, ridges)[:, 0]


def _terms(around: Around) -> tuple[list[Array], list[Array]]:
    """The linear and the quadratic terms of a polynomial around points."""
    x = [*jnp.moveaxis(around.places, 1, 0)]
    return x, [a * b for a, b in itertools.combinations_with_replacement(x, 2)]
