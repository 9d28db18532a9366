"""Fluxes of a transported scalar through the faces of its cells, valid mode.

Blocks are padded by `width` cells on every side; a flux is given on the n + 1 faces of the n cells along its axis, so
that what leaves a cell enters the next one. Velocity component i is stored on the faces normal to axis i, a cell
owning its lower one. Along a stretched axis schemes interpolate over the numbers of the cells, in which the grid is
uniform; a width there is the difference of the faces' places that the scheme takes of fluxes (`widths`), so that it
keeps its order where the stretching is smooth, and a constant stays one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.ops.axisymmetric_divergence import RADIAL, divergence_along
from simjax.ops.difference import second_difference, shift
from simjax.ops.reconstruction import INTERPOLATIONS, around_faces, pad_only, values_at_faces
from simjax.ops.spacing import Spacing, along, between_centers, pairs, scaled, without_ends


@dataclass(frozen=True)
class AdvectionScheme:
    """Scheme that carries a scalar through faces.

    sides: the `2 interpolated` cells around a face -> (left, right) values on it. reach: how many faces beyond on
    either side enter the flux, with `weights` of the second and fourth difference of what passes; they turn
    point values on faces into a flux whose differences are derivatives to high order, in any dimension and with any
    velocity (Deng and Zhang 2000, J. Comput. Phys. 165, 22). order: where the solution is smooth.
    """

    sides: Callable[[Sequence[Array]], tuple[Array, Array]]
    interpolated: int
    reach: int
    order: int

    @property
    def width(self) -> int:
        """Ghost cells needed."""
        return self.interpolated + self.reach


def _two_points(cells):
    value = 0.5 * (cells[0] + cells[1])
    return value, value


def _four_points(cells):
    value = (9 / 16) * (cells[1] + cells[2]) - (1 / 16) * (cells[0] + cells[3])
    return value, value


def _upwind(name: str, reach: int = 0) -> AdvectionScheme:
    interpolation = INTERPOLATIONS[name]
    return AdvectionScheme(
        lambda cells: values_at_faces(cells, interpolation), interpolation.width, reach, interpolation.order
    )


SCHEMES: dict[str, AdvectionScheme] = {
    "central": AdvectionScheme(_two_points, 1, 0, 2),
    "central4": AdvectionScheme(_four_points, 2, 1, 4),
    "upwind": _upwind("first_order"),
    "minmod": _upwind("minmod"),
    "van_leer": _upwind("van_leer"),
    "mc": _upwind("mc"),
    "weno5": _upwind("weno5", reach=2),
}
"""central, central4: means of two and four cells; upwind: of first order; minmod, van_leer, mc: limited slopes, second
order without new extremes (TVD); weno5: fifth order, almost without them."""


FLUX_WEIGHTS: dict[int, tuple[float, ...]] = {
    0: (1.0,),
    1: (-1 / 24, 13 / 12, -1 / 24),
    2: (3 / 640, -29 / 480, 1067 / 960, -29 / 480, 3 / 640),
}
"""Reach -> weights of what passes neighbouring faces in a flux whose differences are derivatives to that order."""


def carried(left: Float[Array, "..."], right: Float[Array, "..."], velocity: Float[Array, "..."]) -> Array:
    """Upwind flux: velocity times the value on the side from which it blows."""
    return jnp.maximum(velocity, 0) * left + jnp.minimum(velocity, 0) * right


def godunov_burgers(left: Float[Array, "..."], right: Float[Array, "..."]) -> Array:
    """The exact flux u^2 / 2 between two states. LeVeque (2002), Finite Volume Methods, eq. 12.4."""
    rising, falling = jnp.maximum(left, 0), jnp.minimum(right, 0)
    return 0.5 * jnp.maximum(rising * rising, falling * falling)


def advection_tendency(
    c: Float[Array, "..."],
    velocity: Sequence[Float[Array, "..."]],
    scheme: AdvectionScheme,
    spacing: Sequence[Spacing],
    taper: Array | None = None,
) -> Float[Array, "..."]:
    """-div(velocity c); `c` and each component of `velocity` padded by `scheme.width`.

    taper: of cells that are rings, padded likewise, for a scheme that has no `reach`.
    """
    return conservative_tendency(c, carried_by(velocity, scheme), scheme, spacing, taper)


def carried_by(velocity: Sequence[Float[Array, "..."]], scheme: AdvectionScheme) -> Callable[..., Array]:
    """`flux(left, right, axis)` of what a velocity carries; each component is padded by `scheme.width`."""
    ndim = len(velocity)

    def flux(left, right, axis):
        u = pad_only(velocity[axis], axis, ndim, scheme.width)
        # Lower faces from `reach` before the first cell's to `reach` after the last cell's upper one.
        start = scheme.interpolated
        u = lax.slice_in_dim(u, start, start + left.shape[axis - ndim], axis=u.ndim + axis - ndim)
        return carried(left, right, u)

    return flux


def conservative_tendency(
    c: Float[Array, "..."],
    flux: Callable[..., Array],
    scheme: AdvectionScheme,
    spacing: Sequence[Spacing],
    taper: Array | None = None,
) -> Float[Array, "..."]:
    """-div of `flux(left, right, axis)`, given on faces; `c`, arrays of widths and `taper` padded by `scheme.width`."""
    ndim = len(spacing)
    taper = None if taper is None else shift(taper, ndim, width=scheme.width)
    terms = []
    for axis, h in enumerate(spacing):
        passing = flux_on_faces(c, flux, scheme, axis, ndim)
        h = without_ends(along(h, axis, ndim, scheme.width), axis, scheme.interpolated)
        terms.append(divergence_along(passing, axis, ndim, widths(h, axis, ndim, scheme.reach), taper))
    return -sum(terms[1:], terms[0])


def flux_on_faces(
    c: Float[Array, "..."], flux: Callable[..., Array], scheme: AdvectionScheme, axis: int, ndim: int
) -> Float[Array, "..."]:
    """`flux(left, right, axis)` as it enters the tendency, on the n + 1 faces along `axis`."""
    cells = around_faces(pad_only(c, axis, ndim, scheme.width), axis, ndim, scheme.interpolated)
    return _as_mean(flux(*scheme.sides(cells), axis), axis, ndim, scheme.reach)


def widths(spacing: Spacing, axis: int, ndim: int, reach: int) -> Spacing:
    """Widths of cells as a scheme of this `reach` has them, from the true ones of `reach` more cells at both ends.

    They are the differences of what the scheme makes of the places of faces, as it does of fluxes; with no reach the
    true ones.
    """
    return _as_mean(spacing, axis, ndim, reach) if isinstance(spacing, Array) else spacing


def _as_mean(flux: Array, axis: int, ndim: int, reach: int) -> Array:
    """The flux whose difference over h is the derivative to order 2 reach + 2: F - F''/24 + 3 F''''/640."""
    array_axis = flux.ndim - ndim + axis
    n = flux.shape[array_axis] - 2 * reach

    def shifted(by: int) -> Array:
        return lax.slice_in_dim(flux, reach + by, reach + by + n, axis=array_axis)

    if reach == 0:
        return flux
    near = shifted(1) + shifted(-1)
    if reach == 1:
        return (13 / 12) * shifted(0) - (1 / 24) * near
    return (1067 / 960) * shifted(0) - (29 / 480) * near + (3 / 640) * (shifted(2) + shifted(-2))


def face_diffusivity(kappa: Float[Array, "..."], axis: int, ndim: int, spacing: Spacing = 1.0) -> Float[Array, "..."]:
    """The harmonic mean of two cells, on n + 1 faces: what half a cell of either conducts in series.

    So the flux through layers is exact, and no flux passes into a cell without diffusivity. `kappa` padded by one, and
    widths along `axis` too.
    """
    below, above = around_faces(pad_only(kappa, axis, ndim, 1), axis, ndim, 1)
    before, behind = pairs(spacing, axis)
    total = scaled(below, behind) + scaled(above, before)
    mean = 0.5 * (before + behind)
    return jnp.where(total > 0, scaled(2 * below * above, mean) / jnp.where(total > 0, total, 1), 0)


def diffusion_tendency(
    c: Float[Array, "..."],
    kappa: Sequence[Float[Array, "..."]],
    spacing: Sequence[Spacing],
    reach: int = 0,
    taper: Array | None = None,
) -> Float[Array, "..."]:
    """div(kappa grad c); `c` padded by one, `kappa` on the n + 1 faces of each axis, `taper` of the cells if rings.

    Arrays of widths have `reach` + 1 ghost cells along their axis: the divergence takes the `widths` of this reach, and
    so keeps the same total as the advection.
    """
    ndim = len(spacing)
    terms = []
    for axis, (k, h) in enumerate(zip(kappa, spacing, strict=True)):
        slope = conducted(c, k, without_ends(h, axis, reach), axis, ndim)
        own = widths(without_ends(h, axis, 1), axis, ndim, reach)
        terms.append(divergence_along(slope, axis, ndim, own, taper))
    return sum(terms[1:], terms[0])


def conducted(
    c: Float[Array, "..."], kappa: Float[Array, "..."], spacing: Spacing, axis: int, ndim: int
) -> Float[Array, "..."]:
    """kappa dc/dx on the n + 1 faces along `axis`; `c` padded by one, and widths along `axis` too."""
    below, above = around_faces(pad_only(c, axis, ndim, 1), axis, ndim, 1)
    return kappa * (above - below) * (1 / between_centers(spacing, axis))


def laplacian(
    c: Float[Array, "..."], spacing: Sequence[Spacing], scheme: AdvectionScheme, taper: Array | None = None
) -> Float[Array, "..."]:
    """div grad c beside the advection of a scheme; `c`, arrays of widths and `taper` padded by `scheme.width`.

    Along stretched axes it takes the widths of the scheme, and so keeps the same total.
    """
    ndim, width = len(spacing), scheme.width
    taper = None if taper is None else shift(taper, ndim, width=width)
    center, terms = shift(c, ndim, width=width), []
    for axis, h in enumerate(spacing):
        if not isinstance(h, Array) and (taper is None or axis != RADIAL):
            terms.append(second_difference(c, center, axis, ndim, h, width))
            continue
        line = pad_only(c, axis, ndim, width)
        below, above = around_faces(line, axis, ndim, 1)
        around = along(h, axis, ndim, width)
        slope = scaled(above - below, 1 / between_centers(around, axis))
        where, faces = slope.ndim - ndim + axis, slope.shape[axis - ndim]
        slope = lax.slice_in_dim(slope, width - 1, faces - width + 1, axis=where)
        own = widths(without_ends(around, axis, scheme.interpolated), axis, ndim, scheme.reach)
        terms.append(divergence_along(slope, axis, ndim, own, taper))
    return sum(terms[1:], terms[0])
