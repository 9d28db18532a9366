"""Places of points and boxes among the values of a field, in float64 on the host: on uniform and on stretched axes."""

from collections.abc import Sequence

import numpy as np

from simjax.core.domain import Domain
from simjax.core.stretched import places_around
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, FACE, Grid, Lines


def numbers(
    domain: Domain, positions: np.ndarray, offset: Sequence[float], periodic: Sequence[bool]
) -> tuple[np.ndarray, ...]:
    """Positions (axes, ...) in numbers of the values beside them: 2.25 is a quarter of the way from value 2 to 3."""
    grid = domain.grid
    return tuple(
        number_along(domain, axis, np.asarray(positions[axis]), offset[axis], periodic[axis])
        for axis in range(grid.ndim)
    )


def number_along(domain: Domain, axis: int, positions: np.ndarray, offset: float, wraps: bool) -> np.ndarray:
    """The numbers along one axis. Beyond the outermost values of an axis that does not wrap the last distance goes on.

    Formed on the host: in float32 a position on a long axis would lose a part of a cell.
    """
    grid, line = domain.grid, line_of(domain, axis)
    if line is None:
        return (positions - grid.lower[axis]) / grid.mean_spacing[axis] - offset
    faces, values = np.asarray(line.faces), values_along(line, offset)
    if wraps:
        around = places_around(values, faces, 1, True)
        return np.interp(positions, around, np.arange(-1, len(values) + 1, dtype=float))
    if len(values) == 1:
        return np.zeros_like(positions)
    below = np.clip(np.searchsorted(values, positions, side="right") - 1, 0, len(values) - 2)
    return below + (positions - values[below]) / (values[below + 1] - values[below])


def line_of(domain: Domain, axis: int) -> Lines | None:
    """Places along a stretched axis; None: it is uniform.

    Raises:
        ConfigurationError: the domain has places of its own, which may change with a parameter.
    """
    if domain.lines[axis] is not None:
        raise ConfigurationError(
            f"Domain.lines gives places of its own along {AXES[axis]}, where instruments need those of the grid; "
            "leave lines out and write Grid(..., stretch=...)."
        )
    return domain.grid.stretch[axis]


def require_cartesian(what: str, grid: Grid) -> None:
    """Refuse an axisymmetric grid, whose cells would have to count with their radii.

    Raises:
        ConfigurationError: it is one.
    """
    if grid.axisymmetric:
        raise ConfigurationError(
            f"{what} needs a Cartesian grid, and this one is axisymmetric; observe with PointSensors or LineOfSight."
        )


def values_along(line: Lines, offset: float) -> np.ndarray:
    """Places of the values of a field at this offset."""
    return np.asarray(line.centers if offset == CENTER else line.faces[:-1])


def edges_along(line: Lines, offset: float, wraps: bool) -> np.ndarray:
    """The n + 1 edges of what each value along a stretched axis stands for: cells, or from centre to centre.

    The outermost stored face stands also for what lies between the last centre and the upper wall.
    """
    faces, centers = np.asarray(line.faces), np.asarray(line.centers)
    if offset != FACE:
        return faces
    if wraps:
        return np.concatenate([[centers[-1] - (faces[-1] - faces[0])], centers])
    return np.concatenate([faces[:1], centers[:-1], faces[-1:]])


def extents_along(domain: Domain, axis: int, offset: float, wraps: bool) -> np.ndarray | None:
    """The n lengths that values along an axis stand for, over their mean; None: all alike.

    That of a face in a lower wall is counted on both sides of it, as on a uniform axis.
    """
    line = line_of(domain, axis)
    if line is None:
        return None
    extents = np.diff(edges_along(line, offset, wraps))
    if offset == FACE and not wraps:
        faces, centers = np.asarray(line.faces), np.asarray(line.centers)
        extents[0] *= 2
        extents[-1] = centers[-1] - (centers[-2] if len(centers) > 1 else 2 * faces[0] - centers[0])
    return extents / extents.mean()
