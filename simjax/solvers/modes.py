"""Eigenvectors of the second difference along an axis: one dense product in the place of a Fourier transform.

For stretched axes, for the distance r from an axis of symmetry, and for axes whose ends differ: with a slope of zero at
one and a value of zero at the other.

Along an axis the operator is W^-1 S, with the widths W = diag(h), and S of differences between neighbours over the
distances of their centres; along r both times the radii, of centres and of faces. W^-1/2 S W^-1/2 is symmetric, so that
with its eigenvectors the Laplacian is diagonal along all axes at once: Lynch, Rice and Thomas (1964), Numer. Math. 6,
185.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.boundary import Dirichlet, FieldLayout
from simjax.core.domain import Domain
from simjax.jaxpr.jaxpr_table import table
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.solvers.dense import eigenvectors
from simjax.solvers.transforms import product


class Modes(eqx.Module):
    """Eigenvectors of W^-1/2 S W^-1/2 along an axis, in mean widths, with W^-1/2 on their outer side.

    vectors: W^-1/2 Q, `(n, n)`, a column for each mode; rates: eigenvalues of -S, none of them above zero, `(n,)`.
    """

    vectors: Array
    rates: Array

    def forward(self, u: Array, axis: int) -> Array:
        """Q^T W^-1/2 u: the spectrum of a field that was multiplied by volumes."""
        return product(self.vectors.T, u, axis % u.ndim)

    def inverse(self, spectrum: Array, axis: int) -> Array:
        """W^-1/2 Q times the spectrum."""
        return product(self.vectors, spectrum, axis % spectrum.ndim)

    def count(self, n: int) -> int:
        return n

    def eigenvalues(self, index: Array, n: int, spacing: float) -> Array:
        """Rates of the modes `index`, consecutive numbers as reals: those of one device."""
        del n, spacing
        size = index.shape[0]
        blocks = self.rates.reshape(-1, size)
        first = lax.broadcasted_iota(index.dtype, (blocks.shape[0], 1), 0) * size
        return jnp.sum(jnp.where(first == index[0], blocks, 0), axis=0)


def mixed_axes(layout: FieldLayout) -> tuple[int, ...]:
    """Axes with a value of zero at one end and a slope of zero at the other."""
    return tuple(axis for axis, ends in enumerate(map(_held, layout.boundaries)) if ends[0] != ends[1])


def _held(pair) -> tuple[bool, bool]:
    """Tell which ends of an axis are held at zero, half a cell away."""
    return isinstance(pair[0], Dirichlet), isinstance(pair[1], Dirichlet)


def modes_along(domain: Domain, layout: FieldLayout, dtype) -> tuple[Modes | None, ...]:
    """The modes of each stretched or mixed axis and of r, for homogeneous boundaries of `layout`; None along others.

    Found once on the host, but where the places of cells are traced: then by the program, and without a gradient, as
    the solution of a linear system has one by itself.
    """
    grid = domain.grid
    found: list[Modes | None] = [None] * grid.ndim
    for axis in sorted({*grid.stretched, *mixed_axes(layout), *((RADIAL,) if grid.axisymmetric else ())}):
        rings = grid.axisymmetric and axis == RADIAL
        ends = _held(layout.boundaries[axis])
        given, line = domain.lines[axis], grid.stretch[axis]
        if given is None:
            count, box = grid.shape[axis] + 1, (grid.lower[axis], grid.upper[axis])
            faces = tuple(np.linspace(*box, count).tolist()) if line is None else line.faces
            vectors, rates = _on_host(faces, layout.is_periodic(axis), ends, rings)
            found[axis] = Modes(*(table(np.asarray(values, dtype)) for values in (vectors, rates)))
        else:
            faces = lax.stop_gradient(jnp.asarray(given[0], dtype))
            found[axis] = Modes(*_found(faces, layout.is_periodic(axis), ends, rings, jnp, eigenvectors))
    return tuple(found)


@functools.lru_cache(maxsize=8)
def _on_host(
    faces: tuple[float, ...], periodic: bool, held: tuple[bool, bool], rings: bool
) -> tuple[np.ndarray, np.ndarray]:
    return _found(np.asarray(faces), periodic, held, rings, np, np.linalg.eigh)


def _found(faces, periodic: bool, held: tuple[bool, bool], rings: bool, module: Any, decomposed: Callable):
    """Vectors and rates; `held`: which ends are at zero, half a cell away; rings: whether faces are at radii.

    module: of array operations. decomposed: finds eigenvalues and eigenvectors of a matrix of it.
    """
    n = faces.shape[0] - 1
    mean = (faces[-1] - faces[0]) / n
    widths = (faces[1:] - faces[:-1]) / mean
    between = 2 / (widths + module.roll(widths, 1))  # across lower faces
    volumes, ends = widths, (1.0, 1.0)
    if rings:
        radii = 2 * faces / (faces[-1] + faces[0])
        volumes, between = widths * 0.5 * (radii[1:] + radii[:-1]), between * radii[:-1]
        ends = radii[0], radii[-1]
    if periodic:
        lower, upper, beside = between, module.roll(between, -1), between
    else:
        inside = np.arange(n) > 0
        beside = module.where(inside, between, 0.0)
        lower = module.where(inside, between, 2 * held[0] * ends[0] / widths)
        upper = module.where(inside[::-1], module.roll(between, -1), 2 * held[1] * ends[1] / widths)
    # Each cell with the one below it; a cell that is its own neighbour exchanges nothing.
    with_below = beside[:, None] * np.roll(np.eye(n), -1, axis=1)
    matrix = module.diag(lower + upper) - with_below - with_below.T
    scale = 1 / module.sqrt(volumes)
    values, vectors = decomposed(scale[:, None] * matrix * scale[None, :])
    rates = -values / mean**2
    if not any(held):  # the constant, of which rounding would leave a tiny rate
        constant = module.sqrt(volumes / n)
        first = np.arange(n) == 0
        vectors = module.where(first, constant[:, None], vectors)
        rates = module.where(first, 0.0, rates)
    return scale[:, None] * vectors, rates
