"""Viscous stress and heat conduction at faces of a cell-centred grid, second order, compact."""

from collections.abc import Sequence

from jax import Array, lax

from simjax.ops.riemann import Conserved
from simjax.ops.spacing import Spacing


class _Faces:
    """The n + 1 faces normal to `axis` of blocks padded by `width` along every axis, and the cells around them."""

    def __init__(self, axis: int, spacing: Sequence[Spacing], width: int):
        self.axis, self.spacing, self.width = axis, spacing, width

    def _cells(self, u: Array, side: int, along: int = 0, by: int = 0) -> Array:
        """The cells below (side 0) or above (1) each face, or those `by` cells further along another axis."""
        leading = u.ndim - len(self.spacing)
        starts, stops = [0] * leading, list(u.shape[:leading])
        for k, size in enumerate(u.shape[leading:]):
            normal = k == self.axis
            shift = side if normal else by * (k == along)
            starts.append(self.width - normal + shift)
            stops.append(size - self.width + shift)
        return lax.slice(u, starts, stops)

    def mean(self, u: Array) -> Array:
        return 0.5 * (self._cells(u, 0) + self._cells(u, 1))

    def slope(self, u: Array, along: int) -> Array:
        """du/dx along an axis: between the two cells, or the mean of their central differences."""
        h = self.spacing[along]
        if along == self.axis:
            distance = 0.5 * (self._cells(h, 0) + self._cells(h, 1)) if isinstance(h, Array) else h
            return (self._cells(u, 1) - self._cells(u, 0)) * (1 / distance)
        if isinstance(h, Array):  # half the distance between the centres of the neighbours
            h = 0.5 * self._cells(h, 0) + 0.25 * (self._cells(h, 0, along, 1) + self._cells(h, 0, along, -1))
        ahead, behind = ((self._cells(u, 0, along, by) + self._cells(u, 1, along, by)) for by in (1, -1))
        return (ahead - behind) * (0.25 / h)


def viscous_flux(
    velocity: tuple[Array, ...],
    temperature: Array,
    axis: int,
    spacing: Sequence[Spacing],
    width: int,
    viscosity: Array,
    conductivity: Array,
) -> Conserved:
    """Flux of momentum -tau and of energy -tau . u - k grad(T) through the faces normal to `axis`; none of mass.

    tau = mu (grad u + grad u^T - 2/3 div(u) 1), Stokes's hypothesis. All fields are padded by `width` along every
    axis, widths along stretched ones too; the faces are n + 1 along `axis` and n along the others.
    """
    faces = _Faces(axis, spacing, width)
    slopes = [faces.slope(u, axis) for u in velocity]
    divergence, stress = slopes[axis], list(slopes)
    for k in range(len(spacing)):
        if k != axis:
            divergence = divergence + faces.slope(velocity[k], k)
            stress[k] = viscosity * (slopes[k] + faces.slope(velocity[axis], k))
    stress[axis] = viscosity * (2 * slopes[axis] - (2 / 3) * divergence)
    work = conductivity * faces.slope(temperature, axis)
    # The normal first, so that both axes of a flow symmetric about the diagonal are summed in one order.
    for k in sorted(range(len(spacing)), key=lambda k: k != axis):
        work = work + stress[k] * faces.mean(velocity[k])
    return Conserved(0 * work, tuple(-tension for tension in stress), -work)
