"""The dynamic coefficient of Smagorinsky's model from what a second, wider filter finds in the resolved flow.

Valid mode: `axes` are those along which that test filter acts, in a block with one ghost cell on every side. It is
(1/6, 4/6, 1/6), as wide as two cells by its second moment. The stress between both filters is resolved,
L = F(u u) - F(u) F(u), and the model has 2 l^2 (F(|S| S) - a |F(S)| F(S)) for it, a the ratio of the squared widths of
the filters and l^2 = C^2 D^2, with the same C for both: nu_t = l^2 |S| (Germano, Piomelli, Moin and Cabot 1991, Phys.
Fluids A 3, 1760; least squares of Lilly 1992, Phys. Fluids A 4, 633).
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from simjax.ops.eddy_viscosity import Gradient, strain_rate

OUTER = 1 / 6
"""The weight of either neighbour in the test filter."""

WIDTH = 2
"""The width of the test filter in cells."""

Symmetric = dict[tuple[int, int], Array]
"""Parts (i, j), i <= j, of a symmetric tensor."""


def contractions(velocity: Sequence[Array], gradient: Gradient, axes: Sequence[int]) -> tuple[Array, Array]:
    """L : M and M : M, of which the means give l^2; the velocity and its gradient at cell centres."""
    ndim = len(velocity)
    stress = resolved_stress([_within(u, axes, ndim) for u in velocity], axes)
    model = modelled_stress([[_within(part, axes, ndim) for part in row] for row in gradient], axes)
    mean = sum(stress[i, i] for i in range(ndim)) / ndim
    stress = {(i, j): part - mean if i == j else part for (i, j), part in stress.items()}
    return _product(stress, model), _product(model, model)


def squared_length(resolved: Array, modelled: Array) -> Array:
    """l^2 from means of both `contractions`; zero where there is no strain, or energy would come from the eddies."""
    some = modelled > 0
    return jnp.where(some, jnp.maximum(resolved, 0) / jnp.where(some, modelled, 1), 0)


def resolved_stress(velocity: Sequence[Array], axes: Sequence[int]) -> Symmetric:
    """F(u_i u_j) - F(u_i) F(u_j) from differences alone, so that a uniform stream adds nothing, nor rounding.

    Axis by axis, as the covariance under two filters is what the second leaves of that under the first, and that under
    the second of what the first leaves.
    """
    ndim, found = len(velocity), {}
    for axis in axes:
        rises = []
        for u in velocity:
            below, here, above = _three(u, axis, ndim)
            rises.append((here - below, above - here))
        for i in range(ndim):
            for j in range(i, ndim):
                (a, b), (c, d) = rises[i], rises[j]
                own = OUTER * (1 - 2 * OUTER) * (a * c + b * d) + OUTER**2 * ((a + b) * (c + d))
                found[i, j] = filtered(found[i, j], [axis], ndim) + own if (i, j) in found else own
        velocity = [filtered(u, [axis], ndim) for u in velocity]
    return found


def modelled_stress(gradient: Gradient, axes: Sequence[int]) -> Symmetric:
    """2 (F(|S| S) - a |F(S)| F(S)): the model's stress between both filters over l^2."""
    ndim = len(gradient)
    size, parts = strain_rate(gradient), [(i, j) for i in range(ndim) for j in range(i, ndim)]
    strain = {(i, j): 0.5 * (gradient[i][j] + gradient[j][i]) for i, j in parts}
    wide = {part: filtered(s, axes, ndim) for part, s in strain.items()}
    wide_size = strain_rate([[wide[min(i, j), max(i, j)] for j in range(ndim)] for i in range(ndim)])
    ratio = WIDTH ** (2 * len(axes) / ndim)
    return {part: 2 * (filtered(size * strain[part], axes, ndim) - ratio * wide_size * wide[part]) for part in parts}


def filtered(u: Array, axes: Sequence[int], ndim: int) -> Array:
    """The test filter along some axes, which lose a cell at both ends."""
    for axis in axes:
        below, here, above = _three(u, axis, ndim)
        u = OUTER * (below + above) + (1 - 2 * OUTER) * here
    return u


def _three(u: Array, axis: int, ndim: int) -> list[Array]:
    """Each cell's neighbour below, itself and the one above along an axis, without the cells at both ends."""
    where, n = u.ndim - ndim + axis, u.shape[axis - ndim]
    return [lax.slice_in_dim(u, k, n - 2 + k, axis=where) for k in range(3)]


def _within(u: Array, axes: Sequence[int], ndim: int) -> Array:
    """A block without its ghost cells along axes that are not filtered."""
    for axis in set(range(ndim)) - {*axes}:
        u = _three(u, axis, ndim)[1]
    return u


def _product(one: Symmetric, other: Symmetric) -> Array:
    """The sum of products of all parts."""
    terms = [(1 if i == j else 2) * (part * other[i, j]) for (i, j), part in one.items()]
    return sum(terms[1:], terms[0])
