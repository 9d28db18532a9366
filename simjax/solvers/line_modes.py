"""Eigenvectors of the second difference of a velocity component along one axis, at cell centres or on faces."""

import functools

import numpy as np

from simjax.core.boundary import Dirichlet, FieldLayout
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.solvers.modes import Modes, table


def component_modes(domain: Domain, layout: FieldLayout, dtype) -> tuple[Modes | None, ...]:
    """The modes of the Laplacian of a component along each axis; None along uniform periodic ones, which have waves.

    layout: with both sides of an axis periodic, or each held at a value or a slope; on faces held at a value.
    """
    found: list[Modes | None] = []
    for axis in range(domain.grid.ndim):
        if layout.is_periodic(axis) and domain.grid.stretch[axis] is None:
            found.append(None)
            continue
        held = [isinstance(side, Dirichlet) for side in layout.boundaries[axis]]
        widths = tuple(np.asarray(domain.grid.widths(axis)).tolist())
        vectors, rates = _found(widths, layout.offset[axis] == FACE, layout.is_periodic(axis), tuple(held))
        found.append(Modes(*(table(np.asarray(part, dtype)) for part in (vectors, rates))))
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _found(
    cells: tuple[float, ...], on_faces: bool, periodic: bool, held: tuple[bool, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and rates of `solvers.modes.Modes`, with the volumes of `axisymmetric_flow.volumes_around`."""
    n, mean = len(cells), float(np.mean(cells))
    widths = np.asarray(cells) / mean
    before = np.roll(widths, 1)
    volumes = 0.5 * (before + widths) if on_faces else widths
    lower = 1 / before if on_faces else 2 / (before + widths)
    upper, beside = np.roll(lower, -1), lower.copy()
    if not periodic and on_faces:
        # The face in the lower wall, which is known: it exchanges nothing, and gives nothing to its neighbour.
        volumes[0], lower[0], upper[0], beside[:2] = widths[0], 0, 0, 0
    elif not periodic:
        beside[0], lower[0], upper[-1] = 0, 2 * held[0] / widths[0], 2 * held[1] / widths[-1]
    with_below = beside[:, None] * np.roll(np.eye(n), -1, axis=1)
    matrix = np.diag(lower + upper) - with_below - with_below.T
    scale = 1 / np.sqrt(volumes)
    values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale[None, :])
    return scale[:, None] * vectors, -values / mean**2
