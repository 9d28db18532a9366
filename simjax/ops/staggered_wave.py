"""First derivatives between the two halves of a staggered grid, of second and fourth order, valid mode.

A field at cell centres has its derivative on faces and the other way round. Blocks are padded by `halo(order)`
ghost cells on every side; results are on the interior. Levander (1988), Geophysics 53, 1425.

Along a stretched axis differences are taken over the numbers of the cells, in which the grid is uniform, and divided by
widths, the derivative of the place with respect to the number to the same order (`FACE_WIDTHS`, `CENTER_WIDTHS`). As
both derivatives are the same differences but for these, they stay adjoint, weighted by them, and energy is conserved.
"""

from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jaxtyping import Float

from simjax.grid import FACE
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.difference import shift, shift_by
from simjax.ops.spacing import Spacing

WEIGHTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (9 / 8, -1 / 24)}
"""Order -> weights of the differences over 1, 3, ... spacings."""

FACE_WIDTHS: dict[int, tuple[float, ...]] = {2: (1 / 2, 1 / 2), 4: (-1 / 12, 7 / 12, 7 / 12, -1 / 12)}
CENTER_WIDTHS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (-1 / 24, 26 / 24, -1 / 24)}
"""Order -> weights of the widths of the cells around a face or a cell in what a derivative there is divided by."""


def halo(order: int) -> int:
    """Ghost cells that a derivative of this order reads on every side."""
    return len(WEIGHTS[order])


def largest_symbol(order: int) -> float:
    """The largest value of h/2 |symbol| over all waves: the time step shrinks by it."""
    return sum(abs(w) for w in WEIGHTS[order])


def diff_to_center(u: Float[Array, "..."], axis: int, spacing: Sequence[float], order: int) -> Float[Array, "..."]:
    """du/dx along `axis` at centres from values on faces: sum over k of w_k (u[i+1+k] - u[i-k]) / h."""
    return _difference(u, axis, spacing, order, ahead=1)


def diff_to_face(u: Float[Array, "..."], axis: int, spacing: Sequence[float], order: int) -> Float[Array, "..."]:
    """du/dx along `axis` on lower faces from values at centres: sum over k of w_k (u[i+k] - u[i-1-k]) / h."""
    return _difference(u, axis, spacing, order, ahead=0)


def _difference(u, axis: int, spacing: Sequence[float], order: int, ahead: int):
    ndim, width = len(spacing), halo(order)
    terms = [
        (shift(u, ndim, axis, ahead + k, width) - shift(u, ndim, axis, ahead - 1 - k, width)) * (w / spacing[axis])
        for k, w in enumerate(WEIGHTS[order])
    ]
    return sum(terms[1:], terms[0])


def laplacian(u: Float[Array, "..."], spacing: Sequence[float], order: int, width: int) -> Float[Array, "..."]:
    """The sum over axes of the derivative of the derivative, on faces or at centres alike; `2 halo - 1` ghosts or more.

    div(grad u) of a field at centres, to rounding. `width`: ghost cells of the block, on a uniform grid.
    """
    ndim, reach = len(spacing), 2 * halo(order) - 1
    first = [*(-w for w in reversed(WEIGHTS[order])), *WEIGHTS[order]]
    weights = np.convolve(first, first)
    terms = [
        (float(w) / h**2) * shift(u, ndim, axis, k - reach, width)
        for axis, h in enumerate(spacing)
        for k, w in enumerate(weights)
    ]
    return sum(terms[1:], terms[0])


def mean_to(u: Float[Array, "..."], offset: Sequence[float]) -> Float[Array, "..."]:
    """Mean at `offset` of the cells around it, from values at cell centres in a block padded by one."""
    axes = [axis for axis, place in enumerate(offset) if place == FACE]
    corners = [()]
    for axis in range(len(offset)):
        corners = [(*corner, by) for corner in corners for by in ((0, -1) if axis in axes else (0,))]
    terms = [shift_by(u, corner) for corner in corners]
    return sum(terms[1:], terms[0]) * (1 / len(terms))


def combined(widths: Array, axis: int, weights: Sequence[float]) -> Array:
    """Sums with `weights` of as many neighbouring widths along `axis`, wherever there are so many."""
    n = widths.shape[axis] - len(weights) + 1
    terms = [w * lax.slice_in_dim(widths, k, k + n, axis=axis) for k, w in enumerate(weights)]
    return sum(terms[1:], terms[0])


def stiffest_halo(order: int, stretched: bool) -> int:
    """Ghost cells that `stiffest_square` reads on every side."""
    return 2 * halo(order) - 1 if stretched else halo(order)


def stiffest_square(
    density: Float[Array, "..."], spacing: Sequence[Spacing], order: int, width: int, taper: Array | None = None
) -> Float[Array, "..."]:
    """Bound on the square of the largest frequency of rho div((1/rho) grad p), in every cell.

    Gershgorin's theorem: the row's sum of absolute entries; 4 sum 1/h^2 at second order and constant density. Blocks
    are padded by `width`. taper: of cells that are rings, which the first axis crosses; then of second order.
    """
    ndim = len(spacing)
    around = None if taper is None else shift(taper, ndim, width=width)
    entries = []
    for axis, h in enumerate(spacing):

        def widths(first: int, weights: Sequence[float], axis: int = axis, h: Spacing = h):
            assert isinstance(h, Array)
            terms = [w * shift(h, ndim, axis, first + k, width) for k, w in enumerate(weights)]
            return sum(terms[1:], terms[0])

        def buoyancy(face: int, axis: int = axis, h: Spacing = h, widths=widths):
            value = 2 / (shift(density, ndim, axis, face, width) + shift(density, ndim, axis, face - 1, width))
            weights = FACE_WIDTHS[order]
            return value if not isinstance(h, Array) else value / widths(face - len(weights) // 2, weights)

        for k, w in enumerate(WEIGHTS[order]):
            factor = 2 * abs(w) * largest_symbol(order)
            weights = CENTER_WIDTHS[order]
            share = factor / h**2 if not isinstance(h, Array) else factor / widths(-(len(weights) // 2), weights)
            above, below = buoyancy(1 + k), buoyancy(-k)
            if around is not None and axis == RADIAL:
                above, below = (1 + around) * above, (1 - around) * below
            entries.append((above + below) * share)
    return shift(density, ndim, width=width) * sum(entries[1:], entries[0])
