"""Operators on the staggered (MAC) grid, valid mode, width 1.

Velocity component i lives on the faces normal to axis i; a cell owns its lower face. Every argument is a block
padded by one ghost cell on every side; every result is on the interior. Second order: Harlow and Welch (1965),
Phys. Fluids 8, 2182. `spacing` has a number for each uniform axis and a padded block of widths for each stretched one.
A velocity's own cell reaches from centre to centre along its axis, and has the width of the cells across it.

Around an axis of symmetry, in (r, z) without swirl, cells are rings: `taper` is a padded block of their factors, as in
`ops.axisymmetric_divergence`, and a radial velocity's own cell counts with the radius of the face. What carries the
radial velocity u is formed of means of r u and of volumes times w, so that no kinetic energy comes from it either.
What is found on the axis itself means nothing: u is imposed there.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.grid import CENTER
from simjax.ops.axisymmetric_divergence import RADIAL, areas
from simjax.ops.difference import second_difference, shift, shift_by
from simjax.ops.spacing import Spacing, apart, scaled, width_of


def diff_to_center(
    u: Float[Array, "..."], axis: int, spacing: Sequence[Spacing], taper: Array | None = None
) -> Float[Array, "..."]:
    """du/dx at cell centres from values on the faces normal to `axis`; 1/r d(r u)/dr of rings."""
    ndim = len(spacing)
    above, below = shift(u, ndim, axis, 1), shift(u, ndim)
    if taper is not None and axis == RADIAL:
        below, above = _weighed(below, above, taper, ndim)
    return scaled(above - below, 1 / width_of(spacing[axis], axis, ndim))


def _weighed(below: Array, above: Array, taper: Array, ndim: int, by: int = 0) -> tuple[Array, Array]:
    """Fluxes through the lower and upper face across r of the cells i + by, times areas over those at centres."""
    lower, upper = areas(taper, ndim, by)
    return lower * below, upper * above


def diff_to_face(u: Float[Array, "..."], axis: int, spacing: Sequence[Spacing]) -> Float[Array, "..."]:
    """du/dx on the lower faces normal to `axis` from values at cell centres."""
    ndim = len(spacing)
    return scaled(shift(u, ndim) - shift(u, ndim, axis, -1), 1 / apart(spacing[axis], axis, ndim))


def mean_to_face(u: Float[Array, "..."], axis: int, ndim: int) -> Float[Array, "..."]:
    """The mean of the two cells beside the lower face normal to `axis`, from values at cell centres."""
    return 0.5 * (shift(u, ndim) + shift(u, ndim, axis, -1))


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


def divergence(
    velocity: Sequence[Float[Array, "..."]], spacing: Sequence[Spacing], taper: Array | None = None
) -> Float[Array, "..."]:
    """Sum over axes of du_i/dx_i at cell centres; 1/r d(r u)/dr + dw/dz of rings."""
    terms = [diff_to_center(u, axis, spacing, taper) for axis, u in enumerate(velocity)]
    return sum(terms[1:], terms[0])


Carrying = Callable[[int, tuple[Array, Array]], tuple[Array, Array]]
"""`carrying(axis, by)` -> fluxes through the faces ahead and behind along an axis, from twice the velocities there, of
twice what is carried."""


def advection(
    velocity: Sequence[Float[Array, "..."]],
    component: int,
    spacing: Sequence[Spacing],
    taper: Array | None = None,
    carrying: Carrying | None = None,
) -> Float[Array, "..."]:
    """Divergence of momentum flux, sum over j of d(u_j u_i)/dx_j, on the faces of component i.

    Central and conservative: fluxes are products of means, at cell centres for j = i and on cell edges else. What
    carries u_i into its own cell is half of what flows into either of the cells beside the face, while u_i itself is
    the plain mean of two neighbours whatever their widths: so no kinetic energy comes from a flow without divergence
    (Verstappen and Veldman 2003, J. Comput. Phys. 187, 343). `carrying` takes the place of that plain mean.
    """
    ndim = len(spacing)
    u = velocity[component]
    center, total = shift(u, ndim), None
    for axis, h in enumerate(spacing):
        rings = None if axis != RADIAL else taper
        means = center + shift(u, ndim, axis, 1), center + shift(u, ndim, axis, -1)
        if axis == component:
            by = means if rings is None else _carried_along_radius(u, rings, ndim)
        else:
            ahead, behind = (carried_across(velocity[axis], component, axis, k, spacing, taper) for k in (1, 0))
            by = ahead, behind
        above, below = (means[0] * by[0], means[1] * by[1]) if carrying is None else carrying(axis, by)
        if rings is not None and axis != component:
            below, above = _weighed(below, above, rings, ndim)
        own = apart(h, axis, ndim) if axis == component else width_of(h, axis, ndim)
        flux = scaled(above - below, 0.25 / own)
        total = flux if total is None else total + flux
    assert total is not None
    return total


def carried_across(
    a: Float[Array, "..."], component: int, axis: int, by: int, spacing: Sequence[Spacing], taper: Array | None = None
) -> Float[Array, "..."]:
    """Twice the mean of transporting component `axis` over the face that a cell of component `component` has there.

    Half of that face is one of either of the cells beside it, and counts with its width, and with its radius if a ring.
    """
    ndim = len(spacing)
    here = tuple(by if k == axis else 0 for k in range(ndim))
    behind = tuple(h - (k == component) for k, h in enumerate(here))
    h = spacing[component]
    shares = [
        width_of(h, component, ndim, k) / apart(h, component, ndim) if isinstance(h, Array) else 1.0 for k in (0, -1)
    ]
    if taper is not None and component == RADIAL:
        shares = [share / area for share, area in zip(shares, _areas_beside_face(taper, ndim), strict=True)]
    return scaled(shift_by(a, here), shares[0]) + scaled(shift_by(a, behind), shares[1])


def _carried_along_radius(u: Array, taper: Array, ndim: int) -> tuple[Array, Array]:
    """Twice the means of r u at the centres ahead of and behind each face across r, over its radius."""
    (_, upper), (lower, _) = areas(taper, ndim), areas(taper, ndim, -1)
    center, (above, below) = shift(u, ndim), _areas_beside_face(taper, ndim)
    return (
        center + upper / above * shift(u, ndim, RADIAL, 1),
        center + lower / below * shift(u, ndim, RADIAL, -1),
    )


def _areas_beside_face(taper: Array, ndim: int) -> tuple[Array, Array]:
    """The area of the lower face across r over that at the centre above it, and below it; on the axis one."""
    (above, _), (_, below) = areas(taper, ndim), areas(taper, ndim, -1)
    return jnp.where(above > 0, above, 1.0), below


def apart_along(h: Spacing, axis: int, ndim: int, on_faces: bool) -> tuple[Spacing, Spacing, Spacing]:
    """Distance to the place below, width of its own volume, and distance to the place above, along an axis.

    h: widths of cells with one more all around. on_faces: of lower faces normal to the axis, else of cell centres.
    """
    if on_faces:
        return width_of(h, axis, ndim, -1), apart(h, axis, ndim), width_of(h, axis, ndim)
    return apart(h, axis, ndim), width_of(h, axis, ndim), apart(h, axis, ndim, 1)


def laplacian(
    u: Float[Array, "..."], spacing: Sequence[Spacing], component: int | None = None, taper: Array | None = None
) -> Float[Array, "..."]:
    """Laplacian of a velocity component on its own faces, or of a field at cell centres.

    Of a radial velocity its part along the radius, d/dr(1/r d(r u)/dr) + d2u/dz2.
    """
    ndim = len(spacing)
    center = shift(u, ndim)
    terms = []
    for axis, h in enumerate(spacing):
        rings = taper if axis == RADIAL else None
        if rings is None and not isinstance(h, Array):
            terms.append(second_difference(u, center, axis, ndim, h))
            continue
        below, own, above = apart_along(h, axis, ndim, axis == component)
        slopes = []
        for by, distance in ((0, above), (-1, below)):
            high = shift(u, ndim, axis, 1) if by == 0 else center
            low = center if by == 0 else shift(u, ndim, axis, -1)
            if rings is not None and axis == component:
                low, high = _weighed(low, high, rings, ndim, by)
            slopes.append(scaled(high - low, 1 / distance))
        rise, fall = slopes
        if rings is not None and axis != component:
            fall, rise = _weighed(fall, rise, rings, ndim)
        terms.append(scaled(rise - fall, 1 / own))
    return sum(terms[1:], terms[0])


def vorticity(
    velocity: Sequence[Float[Array, "..."]], plane: tuple[int, int], spacing: Sequence[Spacing]
) -> Float[Array, "..."]:
    """dv/dx - du/dy on the lower edges of cells, with (x, y) = `plane` and (u, v) those components."""
    x, y = plane
    return diff_to_face(velocity[y], x, spacing) - diff_to_face(velocity[x], y, spacing)


def vorticity_at_center(
    velocity: Sequence[Float[Array, "..."]], plane: tuple[int, int], spacing: Sequence[Spacing]
) -> Float[Array, "..."]:
    """dv/dx - du/dy at cell centres: the mean of `vorticity` over the four edges around.

    Of a derivative along a stretched axis that mean is weighted by distances, as a difference over both is.
    """
    x, y = plane
    return slope_at_center(velocity[y], y, x, spacing) - slope_at_center(velocity[x], x, y, spacing)


def slope_at_center(
    u: Float[Array, "..."], component: int, axis: int, spacing: Sequence[Spacing]
) -> Float[Array, "..."]:
    """du/dx along another axis at cell centres: central difference of the component's mean over its two faces."""
    ndim = len(spacing)
    terms = []
    for by in (1, -1):
        here = tuple(by if k == axis else 0 for k in range(ndim))
        ahead = tuple(h + (k == component) for k, h in enumerate(here))
        terms.append(shift_by(u, here) + shift_by(u, ahead))
    h = spacing[axis]
    return scaled(terms[0] - terms[1], 0.5 / (apart(h, axis, ndim) + apart(h, axis, ndim, 1)))


def velocity_at_center(velocity: Sequence[Float[Array, "..."]]) -> list[Float[Array, "..."]]:
    """Each component at cell centres: the mean of its two faces."""
    ndim = len(velocity)
    return [0.5 * (shift(u, ndim) + shift(u, ndim, axis, 1)) for axis, u in enumerate(velocity)]


def gradient_at_center(
    velocity: Sequence[Float[Array, "..."]], spacing: Sequence[Spacing]
) -> tuple[tuple[Float[Array, "..."], ...], ...]:
    """du_i/dx_j at cell centres, a row for each component: on the diagonal the parts of the divergence."""
    axes = range(len(spacing))
    return tuple(
        tuple(
            diff_to_center(u, axis, spacing) if axis == component else slope_at_center(u, component, axis, spacing)
            for axis in axes
        )
        for component, u in enumerate(velocity)
    )


def turned(
    velocity: Sequence[Float[Array, "..."]], plane: tuple[int, int], spacing: Sequence[Spacing]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """(v, -u) on the faces of u and of v, (x, y) = `plane` and (u, v) those components, so that no work is done.

    Both are formed at cell centres from means over two faces; a face has half of what either cell beside it holds.
    """
    ndim = len(spacing)

    def on_faces(other: int, own: int) -> Array:
        terms = []
        for by in (0, -1):
            here = tuple(by if k == own else 0 for k in range(ndim))
            ahead = tuple(h + (k == other) for k, h in enumerate(here))
            mean = 0.5 * (shift_by(velocity[other], here) + shift_by(velocity[other], ahead))
            h = spacing[own]
            share = width_of(h, own, ndim, by) / apart(h, own, ndim) if isinstance(h, Array) else 1.0
            terms.append(scaled(mean, share))
        return 0.5 * (terms[0] + terms[1])

    x, y = plane
    return on_faces(y, x), -on_faces(x, y)
