"""Momentum and work that gravity adds to a gas, cell by cell."""

from collections.abc import Sequence

from jax import Array, lax

from simjax.ops.riemann import Conserved
from simjax.ops.spacing import Spacing, along, between_centers, without_ends


def fallen(
    slope: Conserved,
    mass: Array,
    rises: Sequence[Array],
    stretch: Spacing,
    axis: int,
    pull: Array,
    spacing: Sequence[Spacing],
    width: int,
    unit: float,
) -> Conserved:
    """`slope` of a block, times `unit`, with what gravity adds along an axis.

    mass: its flux on the n + 1 faces. rises: hydrostatic differences of pressure around each face. stretch: widths of
    the n cells over `unit`. pull: the acceleration. spacing: widths padded by `width`.
    """
    ndim = len(spacing)
    fall = _mean_of_faces(rises[width - 1], axis, ndim) / stretch
    momentum = tuple(m + fall if k == axis else m for k, m in enumerate(slope.momentum))
    if isinstance(stretch, Array):  # so that the work in all cells is what mass loses in falling between centres
        distances = between_centers(along(spacing[axis], axis, ndim, width), axis)
        work = pull * _mean_of_faces(mass * without_ends(distances, axis, width - 1), axis, ndim) / stretch
    else:
        work = unit * pull * _mean_of_faces(mass, axis, ndim)
    return slope._replace(momentum=momentum, energy=slope.energy + work)


def _mean_of_faces(flux: Array, axis: int, ndim: int) -> Array:
    """The mean of each cell's two faces along `axis`."""
    array_axis = flux.ndim - ndim + axis
    n = flux.shape[array_axis] - 1
    below, above = (lax.slice_in_dim(flux, k, k + n, axis=array_axis) for k in (0, 1))
    return 0.5 * (below + above)
