"""First derivatives between the two halves of a staggered grid, of second and fourth order, valid mode.

A field at cell centres has its derivative on faces and the other way round. Blocks are padded by `halo(order)`
ghost cells on every side; results are on the interior. Levander (1988), Geophysics 53, 1425.
"""

from collections.abc import Sequence

from jax import Array
from jaxtyping import Float

from simjax.grid import FACE
from simjax.ops.difference import shift, shift_by

WEIGHTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (9 / 8, -1 / 24)}
"""Order -> weights of the differences over 1, 3, ... spacings."""


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


def mean_to(u: Float[Array, "..."], offset: Sequence[float]) -> Float[Array, "..."]:
    """Mean at `offset` of the cells around it, from values at cell centres in a block padded by one."""
    axes = [axis for axis, place in enumerate(offset) if place == FACE]
    corners = [()]
    for axis in range(len(offset)):
        corners = [(*corner, by) for corner in corners for by in ((0, -1) if axis in axes else (0,))]
    terms = [shift_by(u, corner) for corner in corners]
    return sum(terms[1:], terms[0]) * (1 / len(terms))


def stiffest_square(density: Float[Array, "..."], spacing: Sequence[float], order: int) -> Float[Array, "..."]:
    """Bound on the square of the largest frequency of rho div((1/rho) grad p), in every cell.

    Gershgorin's theorem: the row's sum of absolute entries; 4 sum 1/h^2 at second order and constant density.
    """
    ndim, width = len(spacing), halo(order)
    entries = []
    for axis, h in enumerate(spacing):

        def buoyancy(face: int, axis: int = axis):
            return 2 / (shift(density, ndim, axis, face, width) + shift(density, ndim, axis, face - 1, width))

        for k, w in enumerate(WEIGHTS[order]):
            entries.append((buoyancy(1 + k) + buoyancy(-k)) * (2 * abs(w) * largest_symbol(order) / h**2))
    return shift(density, ndim, width=width) * sum(entries[1:], entries[0])
