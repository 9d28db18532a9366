"""Cells of bodies in a gas that fluxes read, and the room for them in a block: counted before anything is compiled."""

import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from scipy import ndimage

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, Grid
from simjax.models.flow.bodies.solid_geometry import on_block

MOST_CELLS = 2**24
"""Cells of a grid up to which ghost cells are counted before anything is compiled."""
MOST_RATIO = 1.5
"""The most by which widths of cells beside a surface may differ on a stretched grid, of one axis and between axes."""


def room_for(
    domain: Domain, layout: FieldLayout, known: Array | Callable, reach: int, spare: float, times: Sequence[float] = ()
) -> int | None:
    """Room for the ghost cells of a block: `spare` times as many as a distance has, and 64; None where it is not known.

    known: an array of the whole grid, or a function `(t, *coordinates)`. times: at which a body that moves is looked
    at; none: it rests. Where the surface passes the centre of a cell, rounding may decide otherwise in a program, so
    that `spare` is above one.
    """
    most = 0
    if domain.grid.cells * max(len(times), 1) > MOST_CELLS or isinstance(known, Tracer | jax.ShapeDtypeStruct):
        return None
    with jax.ensure_compile_time_eval():
        whole, ndim = domain.unsplit(), domain.grid.ndim
        for t in times or (0.0,):
            distance = on_block(known, whole, (CENTER,) * ndim, t, jnp.result_type(float))
            if isinstance(distance, Tracer):
                return None
            inside = np.asarray(distance) > 0
            for axis in range(ndim):
                sizes = [(reach, reach) if k == axis else (0, 0) for k in range(ndim)]
                inside = np.pad(inside, sizes, mode="wrap" if layout.is_periodic(axis) else "edge")
            share = inside.astype(float)
            if times:
                share[~ndimage.binary_erosion(inside, np.ones((3,) * ndim), border_value=1)] *= 0.5
            behind = np.asarray(behind_surface(jnp.asarray(share), reach, reach))
            _require_even(whole.grid, behind)
            blocks = [k for n, size in zip(behind.shape, domain.block_shape, strict=True) for k in (n // size, size)]
            most = max(most, behind.reshape(blocks).sum(tuple(range(1, 2 * ndim, 2))).max())
    return int(spare * most) + 64


def _require_even(grid: Grid, behind: np.ndarray) -> None:
    """Refuse cells beside a surface whose widths differ much: images of ghost cells lie within so many of them.

    Raises:
        ConfigurationError: with the largest ratio.
    """
    if not grid.stretched or not behind.any():
        return
    near = [grid.widths(axis)[places] for axis, places in enumerate(np.nonzero(behind))]
    ratio = (np.max(near, 0) / np.min(near, 0)).max()
    if ratio > MOST_RATIO:
        raise ConfigurationError(
            f"coefficients.solid: expected cells that are at most {MOST_RATIO:g} times as long as wide beside the "
            f"surface of bodies in a gas, and got {ratio:.3g} times; write grid.shape and grid.stretch with cells of "
            "one width there."
        )


def behind_surface(share: Array, reach: int, width: int) -> Array:
    """Cells read otherwise than they are, with gas within `reach` cells along an axis or beside a corner.

    share: of its own state with which each cell is read, zero in bodies, with `width` more cells around.
    """
    ndim, gas = share.ndim, share > 0
    ways = set(itertools.product((-1, 0, 1), repeat=ndim))
    for axis in range(ndim):
        ways |= {tuple(by if k == axis else 0 for k in range(ndim)) for by in range(-reach, reach + 1)}
    near = functools.reduce(jnp.logical_or, (moved(gas, way, width) for way in sorted(ways)))
    return near & (moved(share, (0,) * ndim, width) < 1)


def moved(u: Array, way: Sequence[int], width: int) -> Array:
    """The interior of a block with `width` more cells, moved by so many cells along the axes."""
    return jax.lax.slice(u, [width + by for by in way], [n - width + by for n, by in zip(u.shape, way, strict=True)])
