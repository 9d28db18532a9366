"""Viscous stress on the staggered (MAC) grid with a viscosity that varies in space, valid mode, width 1."""

from collections.abc import Sequence

from jax import Array
from jaxtyping import Float

from simjax.ops.difference import shift, shift_by
from simjax.ops.spacing import Spacing, apart, scaled, width_of


def stress_divergence(
    velocity: Sequence[Float[Array, "..."]], viscosity: Float[Array, "..."], spacing: Sequence[Spacing]
) -> tuple[Float[Array, "..."], ...]:
    """div(2 nu S) for every component on its own faces, 2 S = grad u + grad u^T.

    viscosity nu: at cell centres, padded by one like the velocity. Stresses lie at centres on the diagonal and on edges
    else, where nu is the mean of the four cells around. What leaves a cell enters the next one, so that momentum
    is conserved, and the energy falls by the sum of 2 nu S : S over those places. Where nu is constant and the flow
    free of divergence this is nu lap(u), to rounding.
    """
    ndim = len(spacing)
    result = []
    for component in range(ndim):
        terms = []
        for axis, h in enumerate(spacing):
            if axis == component:
                ahead, behind = (_tension(velocity, viscosity, axis, by, spacing) for by in (0, -1))
                own = apart(h, axis, ndim)
            else:
                ahead, behind = (shear_on_edges(velocity, viscosity, component, axis, by, spacing) for by in (1, 0))
                own = width_of(h, axis, ndim)
            terms.append(scaled(ahead - behind, 1 / own))
        result.append(sum(terms[1:], terms[0]))
    return tuple(result)


def _tension(velocity: Sequence[Array], viscosity: Array, axis: int, by: int, spacing: Sequence[Spacing]) -> Array:
    """2 nu du_i/dx_i at the centres `by` cells further along axis i."""
    ndim, u = len(spacing), velocity[axis]
    slope = shift(u, ndim, axis, by + 1) - shift(u, ndim, axis, by)
    return scaled(2 * shift(viscosity, ndim, axis, by) * slope, 1 / width_of(spacing[axis], axis, ndim, by))


def shear_on_edges(
    velocity: Sequence[Array], viscosity: Array, component: int, axis: int, by: int, spacing: Sequence[Spacing]
) -> Array:
    """nu (du_i/dx_j + du_j/dx_i) on the lower edges of the cells `by` further along axis j, with i the component."""
    ndim = len(spacing)

    def at(u: Array, *back: int) -> Array:
        return shift_by(u, tuple(by * (k == axis) - (k in back) for k in range(ndim)))

    own, other = velocity[component], velocity[axis]
    slope = scaled(at(own) - at(own, axis), 1 / apart(spacing[axis], axis, ndim, by))
    slope = slope + scaled(at(other) - at(other, component), 1 / apart(spacing[component], component, ndim))
    around = at(viscosity) + at(viscosity, component) + at(viscosity, axis) + at(viscosity, component, axis)
    return 0.25 * around * slope
