"""Operators on the staggered (MAC) grid, valid mode, width 1.

Velocity component i lives on the faces normal to axis i; a cell owns its lower face. Every argument is a block
padded by one ghost cell on every side; every result is on the interior. Second order: Harlow and Welch (1965),
Phys. Fluids 8, 2182.
"""

from collections.abc import Sequence

from jax import Array, lax
from jaxtyping import Float

from simjax.grid import CENTER
from simjax.ops.difference import laplacian, shift, shift_by


def diff_to_center(u: Float[Array, "..."], axis: int, spacing: Sequence[float]) -> Float[Array, "..."]:
    """du/dx at cell centres from values on the faces normal to `axis`."""
    ndim = len(spacing)
    return (shift(u, ndim, axis, 1) - shift(u, ndim)) * (1 / spacing[axis])


def diff_to_face(u: Float[Array, "..."], axis: int, spacing: Sequence[float]) -> Float[Array, "..."]:
    """du/dx on the lower faces normal to `axis` from values at cell centres."""
    ndim = len(spacing)
    return (shift(u, ndim) - shift(u, ndim, axis, -1)) * (1 / spacing[axis])


def mean_at(u: Float[Array, "..."], offset: Sequence[float], place: Sequence[float]) -> Float[Array, "..."]:
    """A field that lives at `offset` in its cell, at `place`: the mean of two neighbours along each axis that differs.

    Second order. The result has one ghost cell fewer on every side, along every axis.
    """
    ndim = len(offset)
    for axis, (here, there) in enumerate(zip(offset, place, strict=True)):
        where, n = u.ndim - ndim + axis, u.shape[axis - ndim]
        center = lax.slice_in_dim(u, 1, n - 1, axis=where)
        if here != there:
            # A cell owns its lower face: its centre lies between that and the next one, the face behind the centre.
            first = 2 if there == CENTER else 0
            center = 0.5 * (center + lax.slice_in_dim(u, first, n - 2 + first, axis=where))
        u = center
    return u


def divergence(velocity: Sequence[Float[Array, "..."]], spacing: Sequence[float]) -> Float[Array, "..."]:
    """Sum over axes of du_i/dx_i at cell centres."""
    terms = [diff_to_center(u, axis, spacing) for axis, u in enumerate(velocity)]
    return sum(terms[1:], terms[0])


def advection(velocity: Sequence[Float[Array, "..."]], component: int, spacing: Sequence[float]) -> Float[Array, "..."]:
    """Divergence of momentum flux, sum over j of d(u_j u_i)/dx_j, on the faces of component i.

    Central and conservative: fluxes are products of means, at cell centres for j = i and on cell edges else.
    """
    ndim = len(spacing)
    u = velocity[component]
    total = None
    for axis, h in enumerate(spacing):
        if axis == component:
            center = shift(u, ndim)
            ahead = center + shift(u, ndim, axis, 1)
            behind = center + shift(u, ndim, axis, -1)
            flux = (ahead * ahead - behind * behind) * (0.25 / h)
        else:
            a = velocity[axis]
            center = shift(u, ndim)
            above = (shift(u, ndim, axis, 1) + center) * _mean_across(a, component, axis, 1, ndim)
            below = (center + shift(u, ndim, axis, -1)) * _mean_across(a, component, axis, 0, ndim)
            flux = (above - below) * (0.25 / h)
        total = flux if total is None else total + flux
    assert total is not None
    return total


def _mean_across(a: Float[Array, "..."], component: int, axis: int, by: int, ndim: int) -> Float[Array, "..."]:
    """Twice the mean of transporting component `axis` at the edge it shares with component `component`."""
    here = tuple(by if k == axis else 0 for k in range(ndim))
    behind = tuple(h - (k == component) for k, h in enumerate(here))
    return shift_by(a, here) + shift_by(a, behind)


def momentum_tendency(
    velocity: Sequence[Float[Array, "..."]], viscosity, spacing: Sequence[float]
) -> tuple[Float[Array, "..."], ...]:
    """viscosity lap(u_i) - sum_j d(u_j u_i)/dx_j for every component, each on its own faces."""
    return tuple(
        viscosity * laplacian(u, spacing) - advection(velocity, component, spacing)
        for component, u in enumerate(velocity)
    )


def vorticity(
    velocity: Sequence[Float[Array, "..."]], plane: tuple[int, int], spacing: Sequence[float]
) -> Float[Array, "..."]:
    """dv/dx - du/dy on the lower edges of cells, with (x, y) = `plane` and (u, v) those components."""
    x, y = plane
    return diff_to_face(velocity[y], x, spacing) - diff_to_face(velocity[x], y, spacing)


def vorticity_at_center(
    velocity: Sequence[Float[Array, "..."]], plane: tuple[int, int], spacing: Sequence[float]
) -> Float[Array, "..."]:
    """dv/dx - du/dy at cell centres: the mean of `vorticity` over the four edges around."""
    ndim = len(spacing)

    def derivative(component: int, axis: int) -> Float[Array, "..."]:
        """Central difference along `axis` of the component's mean over its two faces."""
        u = velocity[component]
        terms = []
        for by in (1, -1):
            here = tuple(by if k == axis else 0 for k in range(ndim))
            ahead = tuple(h + (k == component) for k, h in enumerate(here))
            terms.append(shift_by(u, here) + shift_by(u, ahead))
        return (terms[0] - terms[1]) * (0.25 / spacing[axis])

    x, y = plane
    return derivative(y, x) - derivative(x, y)
