"""Eddy viscosities of large-eddy simulation from the gradient of the resolved velocity, one point at a time.

A gradient is g[i][j] = du_i/dx_j, a square of arrays with a row for each axis; `widths` are those of the filter, the
cells', along each axis. Every viscosity is homogeneous in the gradient, of degree one, and has derivatives everywhere
but those of a square root at zero, which count as zero.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from simjax.ops.spacing import Spacing, scaled

Gradient = Sequence[Sequence[Array]]


def smagorinsky(gradient: Gradient, widths: Sequence[Spacing]) -> Array:
    """D^2 |S|, |S|^2 = 2 S : S, with the filter's width D (Smagorinsky 1963, Mon. Weather Rev. 91, 99)."""
    return scaled(strain_rate(gradient), *squared_width(widths))


def vreman(gradient: Gradient, widths: Sequence[Spacing]) -> Array:
    """sqrt(B / (g : g)), B the second invariant of b_ij = sum over m of D_m^2 du_i/dx_m du_j/dx_m.

    None in pure shear, and in other flows that are not turbulent (Vreman 2004, Phys. Fluids 16, 3670, eqs. 5 to 8).
    """
    axes = range(len(gradient))

    def product(i: int, j: int) -> Array:
        terms = [scaled(gradient[i][m] * gradient[j][m], widths[m] * widths[m]) for m in axes]
        return sum(terms[1:], terms[0])

    invariant = sum(product(i, i) * product(j, j) - product(i, j) * product(i, j) for i in axes for j in axes if i < j)
    square = _square(gradient)
    return root(jnp.maximum(invariant, 0) / _or_one(square))


def wale(gradient: Gradient, widths: Sequence[Spacing]) -> Array:
    """D^2 (s : s)^(3/2) / ((S : S)^(5/2) + (s : s)^(5/4)), s the traceless symmetric part of g g.

    None in pure shear, and of the third power of the distance from a wall (Nicoud and Ducros 1999, Flow Turbul.
    Combust. 62, 183, eqs. 10 and 13). A plane is a slab of space in which nothing depends on the third place.
    """
    size = root(_square(gradient))
    g = [[slope / _or_one(size) for slope in row] for row in gradient]
    axes = range(len(g))
    squared = [[sum((g[i][k] * g[k][j] for k in axes), jnp.zeros_like(size)) for j in axes] for i in axes]
    third = sum((squared[i][i] for i in axes), jnp.zeros_like(size)) / 3
    symmetric = [[0.5 * (squared[i][j] + squared[j][i]) for j in axes] for i in axes]
    traceless = [[part - third if i == j else part for j, part in enumerate(row)] for i, row in enumerate(symmetric)]
    # Of a plane the third diagonal part has the trace alone.
    beyond = (3 - len(g)) * third * third
    vortical, strained = root(root(_square(traceless) + beyond)), strain_rate(g) * 0.5**0.5
    rate = vortical**6 / _or_one(strained**5 + vortical**5)
    return scaled(size * rate, *squared_width(widths))


def strain_rate(gradient: Gradient) -> Array:
    """|S| = sqrt(2 S : S)."""
    axes = range(len(gradient))
    terms = [2 * gradient[i][i] * gradient[i][i] for i in axes]
    terms += [
        (gradient[i][j] + gradient[j][i]) * (gradient[i][j] + gradient[j][i]) for i in axes for j in axes if i < j
    ]
    return root(sum(terms[1:], terms[0]))


def root(x: Array) -> Array:
    """sqrt(x) of x >= 0, with the derivative zero at zero."""
    return jnp.where(x > 0, jnp.sqrt(_or_one(x)), 0)


def _or_one(x: Array) -> Array:
    return jnp.where(x > 0, x, 1)


def _square(tensor: Gradient) -> Array:
    """The sum of the squares of all parts."""
    terms = [part * part for row in tensor for part in row]
    return sum(terms[1:], terms[0])


def squared_width(widths: Sequence[Spacing]) -> list[Spacing]:
    """Factors of D^2, D the width of a cube of the cell's volume (in a plane, of a square of its area)."""
    return [h if len(widths) == 2 else h ** (2 / 3) for h in widths]


VISCOSITIES: dict[str, tuple[Callable[[Gradient, Sequence[Spacing]], Array], float, int]] = {
    "smagorinsky": (smagorinsky, 0.17, 2),
    "vreman": (vreman, 0.07, 1),
    "wale": (wale, 0.325, 2),
}
"""Viscosity over the power of the constant that it is proportional to, the usual constant, and the power."""
