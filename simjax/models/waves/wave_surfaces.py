"""Means of a medium given as a function of place, around each value of a field, along surfaces in it and across.

Along a surface between two media E and H go on, across it eps E and mu H do. So a component of E that has the mean
<eps> along a surface has the mean 1 / <1/eps> across it, and one at an angle, n being its part of the unit normal,

    1/eps = n^2 <1/eps> + (1 - n^2) / <eps>,

the diagonal of the tensor of Farjadpour et al. (2006), Opt. Lett. 31, 2972, and Kottke et al. (2008), PRE 77, 036611.
What this leaves out couples the components of E to each other, at surfaces oblique to the grid.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import FACE
from simjax.ops.spacing import Spacing

Function = Callable[..., Any]
"""`f(*coordinates)` -> a property of the medium at places, one array of coordinates for each axis."""

LATTICES = {2: (233, 144), 3: (117, 94)}
"""Number of axes -> places in a cell, and the multiplier of a lattice rule, two of Fibonacci's numbers in a plane.

No two places share a coordinate, so that a plane along the grid is found to 1/233 of a cell, where as many in rows
would find it to 1/15. A lattice is its own image about its middle: means of linear functions are exact. The share of a
cell on one side of an oblique plane is off by 0.004, in space by 0.014.
"""
ROWS = {2: 8, 3: 5}
"""Number of axes -> rows of places across a ball, their own mirror images: planes along the grid have exact normals."""


def mean(domain: Domain, layout: FieldLayout, given: Function) -> Array:
    """The mean of a property around each value of a field with this layout, `(*block_shape)`."""
    at, places = _sampler(domain, layout, given), _lattice(domain.grid.ndim)
    return _total(at, places) / len(places)


def effective(domain: Domain, layout: FieldLayout, axis: int, given: Function) -> Array:
    """A positive property as the component along `axis` of a field has it, `(*block_shape)`; see above.

    A component across the plane of a grid (no axis of it) lies along all surfaces. NaN where the property is not
    positive.
    """
    ndim = domain.grid.ndim
    places, checked = _lattice(ndim), _sampler(domain, layout, lambda *x: _positive(given(*x)))
    if axis >= ndim:
        return _total(checked, places) / len(places)

    def both(place: Array) -> tuple[Array, Array]:
        value = checked(place)
        return value, 1 / value

    plain, inverse = (total / len(places) for total in _total(both, places))
    across = _across(domain, layout, axis, checked, plain)
    return 1 / (across * inverse + (1 - across) / plain)


def _across(domain: Domain, layout: FieldLayout, axis: int, at: Callable, plain: Array) -> Array:
    """The square of the normal's component along `axis`, from a slope over the ball of one cell's width around.

    Weights fall to zero at its surface: the slope across a plane that cuts a ball is along the plane's normal. What
    varies by less than the root of a rounding has no normal, so that derivatives stay finite.
    """
    ndim = domain.grid.ndim
    ball = _ball(ndim)
    weights = 1 - np.sum(ball**2, axis=1, keepdims=True)
    moments = weights * ball / np.sum(weights * ball**2, axis=0)

    def terms(row: Array) -> tuple[Array, ...]:
        value = at(row[:ndim])
        return tuple(value * row[ndim + k].astype(value.dtype) for k in range(ndim))

    changes = _total(terms, np.concatenate([ball, moments], axis=1))
    widths = [width for _, width in _cells(domain, layout, plain.dtype)]
    slopes = [change * (widths[axis] / width) for change, width in zip(changes, widths, strict=True)]
    squares = [slope**2 for slope in slopes]
    return squares[axis] / (sum(squares) + float(jnp.finfo(plain.dtype).eps) * plain**2)


def _lattice(ndim: int) -> np.ndarray:
    """Places in a cell from -1/2 to 1/2 along each axis, `(places, axes)`."""
    count, multiplier = LATTICES[ndim]
    number, middle = np.arange(count), count // 2
    steps = [multiplier**k % count for k in range(ndim)]
    return np.stack([(step * (number - middle) + middle) % count - middle for step in steps], axis=1) / count


def _ball(ndim: int) -> np.ndarray:
    """Places in the unit ball, `(places, axes)`."""
    rows = (2 * np.arange(ROWS[ndim]) + 1) / ROWS[ndim] - 1
    cube = np.stack(np.meshgrid(*(rows,) * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)
    return cube[np.sum(cube**2, axis=1) < 1]


def _positive(value: Array | float) -> Array:
    value = jnp.asarray(value)
    return jnp.where(value > 0, value, jnp.nan)


def _total(function: Callable, rows: np.ndarray):
    """The sum of `function` over rows of numbers; for its derivative each term is computed anew."""
    again, first, rest = jax.checkpoint(function), jnp.asarray(rows[0]), jnp.asarray(rows[1:])
    return lax.scan(lambda total, row: (jax.tree.map(jnp.add, total, again(row)), None), again(first), rest)[0]


def _sampler(domain: Domain, layout: FieldLayout, given: Function) -> Callable[[Array], Array]:
    """The property as a function of a place in the cell around each value, in widths of that cell from its middle.

    Beyond a wall lies the mirror image of the medium, beyond a periodic side its other end.
    """
    cells, grid = _cells(domain, layout, jnp.result_type(float)), domain.grid

    def inside(x: Array, axis: int) -> Array:
        lower, upper = grid.lower[axis], grid.upper[axis]
        beyond = (x + upper - lower, x + lower - upper) if layout.is_periodic(axis) else (2 * lower - x, 2 * upper - x)
        return jnp.where(x < lower, beyond[0], jnp.where(x > upper, beyond[1], x))

    def at(place: Array) -> Array:
        x = [inside(middle + place[axis] * width, axis) for axis, (middle, width) in enumerate(cells)]
        return jnp.broadcast_to(jnp.asarray(given(*x)), domain.block_shape)

    return at


def _cells(domain: Domain, layout: FieldLayout, dtype) -> list[tuple[Array, Spacing]]:
    """Middles and widths, along each axis, of the cells around values: of the grid's own, or from middle to middle."""
    places, faces = (domain.coordinates(offset, dtype) for offset in (layout.offset, (FACE,) * domain.grid.ndim))
    found: list[tuple[Array, Spacing]] = []
    for axis, width in enumerate(domain.spacing(layout, 1, dtype)):
        if not isinstance(width, Array):
            found.append((places[axis], width))
            continue
        n = domain.block_shape[axis]
        before, own = (lax.slice_in_dim(width, k, k + n, axis=axis) for k in (0, 1))
        if layout.offset[axis] == FACE:
            found.append((faces[axis] + (own - before) / 4, (own + before) / 2))
        else:
            found.append((faces[axis] + own / 2, own))
    return found
