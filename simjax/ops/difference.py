"""Finite differences on padded blocks, valid mode: they read ghost cells and return the interior.

`spacing` has one number per spatial axis, which also says how many of the last axes are spatial. `width` is how
many ghost cells the block carries on every side.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def shift(
    u: Float[Array, "..."], ndim: int, axis: int | None = None, by: int = 0, width: int = 1
) -> Float[Array, "..."]:
    """The interior of a padded block, displaced by `by` cells along spatial axis `axis`: u[i + by]."""
    return shift_by(u, tuple(by if k == axis else 0 for k in range(ndim)), width)


def shift_by(u: Float[Array, "..."], displacement: Sequence[int], width: int = 1) -> Float[Array, "..."]:
    """The interior of a padded block, displaced by one count of cells per spatial axis."""
    leading = u.ndim - len(displacement)
    starts = (0,) * leading + tuple(width + d for d in displacement)
    stops = u.shape[:leading] + tuple(n - width + d for n, d in zip(u.shape[leading:], displacement, strict=True))
    return lax.slice(u, starts, stops)


def laplacian(u: Float[Array, "..."], spacing: Sequence[float], width: int = 1) -> Float[Array, "..."]:
    """Second-order Laplacian: sum over axes of (u[i-1] - 2 u[i] + u[i+1]) / h^2."""
    ndim = len(spacing)
    center = shift(u, ndim, width=width)
    terms = [second_difference(u, center, axis, ndim, h, width) for axis, h in enumerate(spacing)]
    return sum(terms[1:], terms[0])


def second_difference(
    u: Float[Array, "..."], center: Float[Array, "..."], axis: int, ndim: int, h: float, width: int = 1
) -> Float[Array, "..."]:
    """(u[i-1] - 2 u[i] + u[i+1]) / h^2 along one axis; `center` is u[i], the interior."""
    return (shift(u, ndim, axis, 1, width) - 2 * center + shift(u, ndim, axis, -1, width)) * (1 / h**2)


def advect_central(
    u: Float[Array, "..."], velocity: Float[Array, " axes"], spacing: Sequence[float], width: int = 1
) -> Float[Array, "..."]:
    """a . grad(u) by second-order central differences; `velocity` (ndim,)."""
    ndim = len(spacing)
    terms = [
        velocity[axis] * (0.5 / h) * (shift(u, ndim, axis, 1, width) - shift(u, ndim, axis, -1, width))
        for axis, h in enumerate(spacing)
    ]
    return sum(terms[1:], terms[0])


def advect_upwind(
    u: Float[Array, "..."], velocity: Float[Array, " axes"], spacing: Sequence[float], width: int = 1
) -> Float[Array, "..."]:
    """a . grad(u) by first-order upwind differences; `velocity` (ndim,)."""
    ndim = len(spacing)
    center = shift(u, ndim, width=width)
    terms = []
    for axis, h in enumerate(spacing):
        a = velocity[axis]
        behind = center - shift(u, ndim, axis, -1, width)
        ahead = shift(u, ndim, axis, 1, width) - center
        terms.append((jnp.maximum(a, 0) * behind + jnp.minimum(a, 0) * ahead) * (1 / h))
    return sum(terms[1:], terms[0])
