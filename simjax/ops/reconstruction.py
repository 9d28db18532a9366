"""Values on both sides of every face from the cells around it: limited slopes and weighted essentially non-oscillatory.

A block that is padded along one axis only has n cells and `width` ghost cells at both ends there, hence n + 1 faces
around its cells; face j lies between cells j - 1 and j. *left* is the value just below a face, *right* just above it.
Both come from one function of the cells in upwind order, so the mirrored block has the mirrored values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.ops.spacing import Spacing, fitted
from simjax.stencil.windows import difference_of_neighbors

Limiter = Callable[[Array, Array], Array]
"""`limiter(behind, ahead)` -> slope of a cell (times its width) from the differences to its two neighbours."""


def minmod(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """The smaller of two differences of one sign, else zero. Roe (1986), Annu. Rev. Fluid Mech. 18, 337."""
    smaller = jnp.where(jnp.abs(behind) < jnp.abs(ahead), behind, ahead)
    return jnp.where(behind * ahead > 0, smaller, 0)


def van_leer(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """The harmonic mean of two differences of one sign, else zero. van Leer (1974), J. Comput. Phys. 14, 361."""
    product = behind * ahead
    monotone = product > 0
    return jnp.where(monotone, 2 * product / jnp.where(monotone, behind + ahead, 1), 0)


def monotonized_central(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """The central difference, at most twice either one-sided one. van Leer (1977), J. Comput. Phys. 23, 276."""
    return minmod(0.5 * (behind + ahead), 2 * minmod(behind, ahead))


LIMITERS: dict[str, Limiter] = {"mc": monotonized_central, "van_leer": van_leer, "minmod": minmod}


@dataclass(frozen=True)
class Reconstruction:
    """A way to face values.

    width: ghost cells needed. order: of accuracy where the solution is smooth. upwind: from 2 width - 1 cells in
    the order of the flow, the value at the face ahead of the middle one; its keyword `noise` is a squared difference
    that counts as none, and `cut` what intermediate values pass through (`stencil.materialise.held_in_reverse`).
    """

    width: int
    order: int
    upwind: Callable[..., Array]


def as_it_is(values):
    """Return the argument unchanged."""
    return values


def _limited(limiter: Limiter) -> Reconstruction:
    def upwind(behind, center, ahead, noise=0.0, cut=as_it_is):
        return center + 0.5 * limiter(center - behind, ahead - center)

    return Reconstruction(2, 2, upwind)


def _weno5(first: Sequence[float], second: Sequence[float], third: Sequence[float], ideal: Sequence[float]):
    """Three parabolas' values at the face, weighted towards the smoothest and near `ideal` where all are smooth.

    Weights "Z" of Borges, Carmona, Costa and Don (2008), J. Comput. Phys. 227, 3191, eq. 25 with p = 2, from
    smoothness indicators divided by their sum, so that they depend neither on units nor on the precision. Differences
    below 1024 roundings of the value itself, and a roughness below `noise`, count as none: otherwise rounding would
    pick the weights of a uniform state, and their derivatives.
    """

    def upwind(a, b, c, d, e, noise=0.0, cut=as_it_is):
        # Differences from the middle: the derivatives of the weights times the value itself would cancel badly.
        a, b, d, e = a - c, b - c, d - c, e - c
        bend = a - 2 * b, b + d, e - 2 * d
        tilt = a - 4 * b, b - d, e - 4 * d
        rough = cut([13 / 12 * x * x + 0.25 * y * y for x, y in zip(bend, tilt, strict=True)])
        kind = jnp.finfo(c.dtype)
        noise = noise + (1024 * float(kind.eps) * c) ** 2 + float(kind.tiny) ** 0.48
        scale = 1 / (rough[0] + rough[2] + rough[1] + noise)
        jump = ((rough[0] - rough[2]) * scale) ** 2
        square = [((r + noise) * scale + 1e-6) ** 2 for r in rough]
        products = square[1] * square[2], square[0] * square[2], square[0] * square[1]
        # (1 + jump / square_k) times the product of all three squares: one division for three weights.
        weights = [g * (s + jump) * q for g, s, q in zip(ideal, square, products, strict=True)]
        values = (
            first[0] * a + first[1] * b,
            second[0] * b + second[2] * d,
            third[1] * d + third[2] * e,
        )
        total = weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2]
        return c + total / (weights[0] + weights[1] + weights[2])

    return Reconstruction(3, 5, upwind)


def _linear(*weights: float) -> Reconstruction:
    """A linear combination of the cells, whatever the solution is."""
    width = (len(weights) + 1) // 2

    def upwind(*points, noise=0.0, cut=as_it_is):
        center = points[width - 1]
        # Differences from the middle, so that a uniform state stays one to the last bit.
        terms = [g * (u - center) for g, u in zip(weights, points, strict=True) if u is not center]
        return center + sum(terms[1:], terms[0])

    return Reconstruction(width, len(weights), upwind)


_SIMPLE = {
    **{name: _limited(limiter) for name, limiter in LIMITERS.items()},
    "first_order": Reconstruction(1, 1, lambda center, noise=0.0, cut=None: center),
}

RECONSTRUCTIONS: dict[str, Reconstruction] = {
    "weno5": _weno5((2 / 6, -7 / 6, 11 / 6), (-1 / 6, 5 / 6, 2 / 6), (2 / 6, 5 / 6, -1 / 6), (0.1, 0.6, 0.3)),
    **_SIMPLE,
}
"""Face values from cell *averages* (of a field, or of a flux function whose differences are to be derivatives)."""

INTERPOLATIONS: dict[str, Reconstruction] = {
    "weno5": _weno5(
        (3 / 8, -10 / 8, 15 / 8), (-1 / 8, 6 / 8, 3 / 8), (3 / 8, 6 / 8, -1 / 8), (1 / 16, 10 / 16, 5 / 16)
    ),
    **_SIMPLE,
}
"""Face values from *point values* at cell centres. The same up to second order."""

LINEAR5 = _linear(3 / 128, -20 / 128, 90 / 128, 60 / 128, -5 / 128)
"""Face values from point values: the limit of "weno5" of `INTERPOLATIONS` in smooth fields."""


def pad_only(u: Float[Array, "..."], axis: int, ndim: int, width: int) -> Float[Array, "..."]:
    """A block padded by `width` along all of the last `ndim` axes, cut to the interior along all but `axis`."""
    for k in range(ndim):
        if k != axis:
            array_axis = u.ndim - ndim + k
            u = lax.slice_in_dim(u, width, u.shape[array_axis] - width, axis=array_axis)
    return u


def around_faces(u: Float[Array, "..."], axis: int, ndim: int, width: int) -> list[Float[Array, "..."]]:
    """The 2 width cells around each of the n + 1 faces, from below to above; `u` is padded along `axis` only."""
    array_axis = u.ndim - ndim + axis
    faces = u.shape[array_axis] - 2 * width + 1
    return [lax.slice_in_dim(u, k, k + faces, axis=array_axis) for k in range(2 * width)]


def values_at_faces(cells: Sequence[Float[Array, "..."]], scheme: Reconstruction) -> tuple[Array, Array]:
    """(left, right) from the `2 scheme.width` cells around each face, from below to above."""
    return scheme.upwind(*cells[:-1]), scheme.upwind(*reversed(cells[1:]))


def difference_of_faces(flux: Float[Array, "..."], axis: int, ndim: int, spacing: Spacing) -> Float[Array, "..."]:
    """(flux[j + 1] - flux[j]) / h on the n cells between n + 1 faces."""
    return per_spacing(difference_of_neighbors(flux, flux.ndim - ndim + axis), spacing)


def per_spacing(difference: Float[Array, "..."], spacing: Spacing) -> Float[Array, "..."]:
    """Differences divided by the distances between their points."""
    return difference * fitted(1 / spacing, difference)
