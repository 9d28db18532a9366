"""Places of points and boxes among the values of a field: on uniform and on stretched axes."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.domain import Domain
from simjax.core.stretched import Places, places_around
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE, Grid

Line = tuple[Places, Places]
"""Faces (n + 1,) and centres (n,) along a stretched axis: of numpy, or of jax where they change with a parameter."""


def around(
    domain: Domain, positions: Places, offset: Sequence[float], periodic: Sequence[bool], dtype
) -> tuple[list[Array], list[Array]]:
    """Along each axis the number of the value below every position, and the fraction of the way to the next one.

    positions: (axes, ...), in units of the domain.
    """
    found = [
        beside(domain, axis, positions[axis], offset[axis], periodic[axis], dtype) for axis in range(domain.grid.ndim)
    ]
    return [below for below, _ in found], [fraction for _, fraction in found]


def beside(domain: Domain, axis: int, positions: Places, offset: float, wraps: bool, dtype) -> tuple[Array, Array]:
    """The numbers and the fractions of `around` along one axis.

    Beyond the outermost values of an axis that does not wrap the last distance goes on. Places that are known are
    looked up on the host in float64: in float32 a position on a long axis would lose a part of a cell. Where places or
    positions change with a parameter the fractions have derivatives, and the reading is continuous where a value passes
    a position. Positions that are traced lie in the box of an axis that is stretched and periodic.
    """
    grid, line = domain.grid, line_of(domain, axis)
    if line is None:
        number = (positions - grid.lower[axis]) / grid.mean_spacing[axis] - offset
        below = module_of(number).floor(number)
        return jnp.asarray(below, jnp.int32), jnp.asarray(number - below, dtype)
    values = values_along(line, offset)
    values = places_around(values, line[0], 1, True) if wraps else values
    if isinstance(positions, jax.Array):
        values = jnp.asarray(values, positions.dtype)
    if values.shape[0] == 1:
        return jnp.zeros(np.shape(positions), jnp.int32), jnp.zeros(np.shape(positions), dtype)
    below = module_of(values).clip(last_not_above(values, positions), 0, values.shape[0] - 2)
    fraction = (positions - values[below]) / (values[below + 1] - values[below])
    return jnp.asarray(below - int(wraps), jnp.int32), jnp.asarray(fraction, dtype)


def last_not_above(values: Places, positions: Places) -> Places:
    """The number of the last of increasing `values` that is not above each position."""
    if module_of(values, positions) is np:
        return np.searchsorted(values, positions, side="right") - 1
    # Halved step by step without a loop, whose carry would have to vary between devices as the places do. To compare
    # with all of them would take memory for each pair of a position and a value.
    below, (count,) = jnp.asarray(-1, jnp.int32), np.shape(values)
    for step in (1 << k for k in reversed(range(count.bit_length()))):
        ahead = below + step
        fits = (ahead < count) & (jnp.asarray(values)[jnp.minimum(ahead, count - 1)] <= positions)
        below = jnp.where(fits, ahead, below)
    return below


def line_of(domain: Domain, axis: int) -> Line | None:
    """Places along a stretched axis; None: it is uniform."""
    line = domain.grid.stretch[axis]
    if line is None:
        return None
    return domain.lines[axis] or (np.asarray(line.faces), np.asarray(line.centers))


def module_of(*places: Places):
    """The module of functions of these places: jax.numpy where any of them may be traced, else numpy."""
    return jnp if any(isinstance(one, jax.Array) for one in places) else np


def require_cartesian(what: str, grid: Grid) -> None:
    """Refuse an axisymmetric grid, whose cells would have to count with their radii.

    Raises:
        ConfigurationError: it is one.
    """
    if grid.axisymmetric:
        raise ConfigurationError(
            f"{what} needs a Cartesian grid, and this one is axisymmetric; observe with PointSensors or LineOfSight."
        )


def values_along(line: Line, offset: float) -> Places:
    """Places of the values of a field at this offset."""
    return line[1] if offset == CENTER else line[0][:-1]


def edges_along(line: Line, offset: float, wraps: bool) -> Places:
    """The n + 1 edges of what each value along a stretched axis stands for: cells, or from centre to centre.

    The outermost stored face stands also for what lies between the last centre and the upper wall.
    """
    faces, centers = line
    if offset != FACE:
        return faces
    if wraps:
        return module_of(faces).concatenate([centers[-1:] - (faces[-1] - faces[0]), centers])
    return module_of(faces).concatenate([faces[:1], centers[:-1], faces[-1:]])


def extents_along(domain: Domain, axis: int, offset: float, wraps: bool) -> Places | None:
    """The n lengths that values along an axis stand for, over their mean; None: all alike.

    That of a face in a lower wall is counted on both sides of it, as on a uniform axis.
    """
    line = line_of(domain, axis)
    if line is None:
        return None
    edges = edges_along(line, offset, wraps)
    extents = edges[1:] - edges[:-1]
    if offset == FACE and not wraps:
        faces, centers = line
        before = centers[-2:-1] if len(centers) > 1 else 2 * faces[:1] - centers[:1]
        inner = [2 * extents[:1], extents[1:-1]] if len(centers) > 1 else []
        extents = module_of(faces).concatenate([*inner, centers[-1:] - before])
    return extents / extents.mean()
