"""Entropic pressure of information-geometric regularisation, which keeps shocks a few cells wide and smooth.

Sigma solves, on cell centres with spacing h and strength alpha,

    Sigma / rho - alpha div(grad(Sigma) / rho) = alpha (tr(G)^2 + tr(G G)),    G = grad(u).

Cao and Schaefer (2023), arXiv 2308.14127; Wilfong et al. (2025), arXiv 2505.07392. Between two cells 1 / rho is that of
their mean density, so that the equation is diagonally dominant by a margin that no jump of density lessens much. It is
solved from zero by a fixed number of weighted Jacobi sweeps, which are linear stencils.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jax import Array
from numpy.polynomial import chebyshev

from simjax.ops.difference import shift
from simjax.ops.riemann import squared_norm

STRENGTH = 2.0
"""alpha over the square of the largest spacing."""

REMAINDER = 0.07
"""Part of the largest Sigma over all waves of a source that the sweeps may leave out of any, at uniform density."""


def strengths(spacing: Sequence[float]) -> tuple[float, ...]:
    """alpha / h^2 along every axis."""
    return tuple(STRENGTH * (max(spacing) / h) ** 2 for h in spacing)


def contraction(ratios: Sequence[float]) -> float:
    """The part of an error that a sweep of Jacobi leaves at most, in a gas of uniform density; by `strengths`."""
    total = 2 * math.fsum(ratios)
    return total / (1 + total)


def relaxations(ratios: Sequence[float]) -> tuple[float, ...]:
    """The weight of each sweep, of as few as leave no more than `REMAINDER`.

    A sweep of weight w multiplies the error of a wave, whose coefficient lies between 1 - r and 1 + r of that of a cell
    with the contraction r, by one less w times that. The product of all stands for the best polynomial in place of one
    over the coefficient: of k sweeps it differs from it by at most f^(k-1) r / (1 + r) of the largest, with
    f = r / (1 + sqrt(1 - r^2)). Waves of two cells, of which Sigma has little, need not converge as long ones do, which
    saves one of four sweeps in one dimension and two of seven in three. Rivlin (1990), Chebyshev Polynomials, sec. 2.4.
    """
    radius = contraction(ratios)
    far, rate = 1 / radius, radius / (1 + math.sqrt(1 - radius**2))
    count = 1
    while rate ** (count - 1) * radius / (1 + radius) > REMAINDER:
        count += 1
    # Chebyshev's series of 1 / (far - x), cut off; the last term stands for all that follow.
    series = 2 * rate ** np.arange(count) / math.sqrt(far**2 - 1)
    series[0] /= 2
    series[-1] /= 1 - rate**2
    left = chebyshev.chebsub([1.0], chebyshev.chebmul([far, -1.0], series))
    # The largest weights first: what they make of short waves the others smooth.
    return tuple(sorted((float(1 / (1 - radius * x)) for x in chebyshev.chebroots(left).real), reverse=True))


def source(velocity: Sequence[Array], ratios: Sequence[float]) -> Array:
    """alpha (tr(G)^2 + tr(G G)) on the n cells of blocks with one ghost cell on every side; central differences."""
    ndim = len(ratios)

    def slope(u: Array, axis: int) -> Array:
        return 0.5 * math.sqrt(ratios[axis]) * (shift(u, ndim, axis, 1) - shift(u, ndim, axis, -1))

    own = tuple(slope(u, axis) for axis, u in enumerate(velocity))
    total = sum(own[1:], own[0])
    result = total * total + squared_norm(own)
    for i, j in combinations(range(ndim), 2):
        result = result + 2 * (slope(velocity[i], j) * slope(velocity[j], i))
    return result


def first_sweep(density: Array, given: Array, weight: float, ratios: Sequence[float]) -> Array:
    """Sigma on the n cells after a sweep from zero; density: with a ghost cell on every side, given: `source`."""
    return weight * _cells(density, ratios)[0] * given


def sweep(entropic: Array, density: Array, given: Array, weight: float, ratios: Sequence[float]) -> Array:
    """Sigma on the n cells after one more sweep; entropic, density: with a ghost cell on every side."""
    ndim = len(ratios)
    share, faces = _cells(density, ratios)
    carried = [
        below * shift(entropic, ndim, axis, -1) + above * shift(entropic, ndim, axis, 1)
        for axis, (below, above) in enumerate(faces)
    ]
    own = shift(entropic, ndim)
    # Axes first, so that what is symmetric about the diagonal stays so to the last bit.
    return own + weight * (share * (given + sum(carried[1:], carried[0])) - own)


def _cells(density: Array, ratios: Sequence[float]) -> tuple[Array, list[tuple[Array, Array]]]:
    """One over the coefficient of a cell's own Sigma; along each axis those of the cells below and above it."""
    ndim = len(ratios)
    own = shift(density, ndim)

    def between(axis: int, side: int) -> Array:
        return 2 * ratios[axis] / (own + shift(density, ndim, axis, side))

    faces = [(between(axis, -1), between(axis, 1)) for axis in range(ndim)]
    pairs = [below + above for below, above in faces]
    return 1 / (1 / own + sum(pairs[1:], pairs[0])), faces
