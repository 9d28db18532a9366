"""The volume that prescribed velocities drive through the sides of a box, which an incompressible flow must balance."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from simjax.core.boundary import Dirichlet, FieldLayout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, LOWER, UPPER, Grid
from simjax.jaxpr.varying import cast_varying
from simjax.models.axisymmetric_grid import dimensions, mean_length, ring_volumes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import relative, scaled
from simjax.status import OK, UNBALANCED

# In roundings of the flux. An imbalance of 100 of them, over the length of the box, is a divergence below that of the
# projection's rounding, which may be 100 roundings of the velocity over the spacing (`driver.output.run_checks`). A sum
# on a device is rounded as well: of a million values by the root of that many roundings.
TOLERANCE, TOLERANCE_OF_SUMS = 100, 1000

Place = tuple[int, int]
"""(axis, side) of a side of the box."""


def open_sides(layouts: Sequence[FieldLayout]) -> tuple[Place, ...]:
    """Sides through which a velocity is prescribed that is not just zero."""
    found = []
    for axis, layout in enumerate(layouts):
        for side in (LOWER, UPPER):
            boundary = layout.boundaries[axis][side]
            if not isinstance(boundary, Dirichlet):
                continue
            if not isinstance(boundary.value, int | float) or boundary.value != 0:
                found.append((axis, side))
    return tuple(found)


def fluxes(domain: Domain, layouts: Sequence[FieldLayout], t, dtype) -> tuple[Array, ...]:
    """Volume per time (in a plane, area) that flows into the box through each of `open_sides`.

    layouts: of the velocity's components on a staggered grid.
    """
    result = []
    for place in open_sides(layouts):
        axis, side = place
        speed, faces = _speed_on(domain, layouts, place, t, dtype)
        result.append(total(domain, axis, speed, faces) * (1 if side == LOWER else -1))
    return tuple(result)


def total(domain: Domain, axis: int, speed: Array, faces: int) -> Array:
    """The integral over a side across `axis` of a velocity on this block's part of it, one or `faces` values."""
    own = jnp.sum(speed) * (_face(domain, axis) * faces / speed.size)
    # Blocks one behind the other along the axis know the same line of the side: one of them counts.
    return domain.total(cast_varying(jnp.where(domain.block_index(axis) == 0, own, 0), domain.names))


def area(domain: Domain, axis: int) -> float:
    """The area of a side across `axis` (in a plane, its length), on an axisymmetric grid across z."""
    return math.prod(length for k, length in enumerate(domain.grid.lengths) if k != axis) * mean_length(domain.grid)


def fault(domain: Domain, layouts: Sequence[FieldLayout], t, dtype) -> Array:
    """`UNBALANCED` where what flows in at time `t` is not what flows out, else `OK`: the same on all devices."""
    through = jax.lax.stop_gradient(jnp.stack(fluxes(domain, layouts, t, dtype)))
    allowed = TOLERANCE_OF_SUMS * jnp.finfo(dtype).eps * jnp.sum(jnp.abs(through))
    # Written so that what is not a number counts as unbalanced.
    return jnp.where(jnp.abs(jnp.sum(through)) <= allowed, OK, UNBALANCED).astype(jnp.int32)


def require_balance(domain: Domain, layouts: Sequence[FieldLayout]) -> bool:
    """Refuse prescribed velocities that bring in another volume than they take out; whether they must be watched.

    They must where they depend on time, or on numbers that are only known while a program runs; those that depend on
    time are computed here for t = 0.

    Raises:
        ConfigurationError: what flows in is not what flows out.
    """
    places = open_sides(layouts)
    if not places:
        return False
    whole, dtype = domain.unsplit(), jnp.result_type(float)
    closed = jax.make_jaxpr(lambda t: [_speed_on(whole, layouts, place, t, dtype)[0] for place in places])(0.0)
    if any(isinstance(value, Tracer) for value in closed.consts):
        return True
    with jax.ensure_compile_time_eval():
        speeds = [np.asarray(speed, np.float64) for speed in jaxpr_as_fun(closed)(jnp.zeros((), dtype))]
    through = {}
    for (axis, side), speed in zip(places, speeds, strict=True):
        area = whole.grid.cells // whole.grid.shape[axis] * _face(whole, axis)
        through[axis, side] = float(np.mean(speed)) * area * (1 if side == LOWER else -1)
    (time,) = closed.jaxpr.invars
    varies = any(v is time for v in closed.jaxpr.outvars) or any(v is time for e in closed.jaxpr.eqns for v in e.invars)
    told = described(through, float(jnp.finfo(dtype).eps), whole.grid, "at t = 0 " if varies else "")
    if told:
        raise ConfigurationError(f"{told}; {_advice(through)}")
    return varies


def described(through: dict[Place, float], rounding: float, grid: Grid, when: str = "") -> str:
    """Describe the imbalance of fluxes into the box, with each of them; "" if they balance to `TOLERANCE` roundings."""
    net, gross = sum(through.values()), sum(map(abs, through.values()))
    if abs(net) <= TOLERANCE * rounding * gross:
        return ""
    units = f"m{dimensions(grid)} s-1"
    each = ", ".join(
        f"{abs(flux):.6g} {units} flows {'in' if flux > 0 else 'out' if flux < 0 else 'through'} at {_name(place)}"
        for place, flux in through.items()
    )
    others = " and nothing through the other sides" if len(through) < 2 * grid.ndim else ""
    return f"boundaries: an incompressible flow must let out what it lets in, but {when}{each}{others}"


def _advice(through: dict[Place, float]) -> str:
    """Say what to write: the velocity through one of the sides multiplied, or another side opened."""
    net = sum(through.values())
    for place, flux in reversed(through.items()):
        factor = (flux - net) / flux if flux else 0.0
        if factor > 0 and len(through) > 1:
            return f"multiply the velocity at {_name(place)} by {factor!r}."
    if len(through) > 1:
        return "a positive velocity flows in at a lower side and out at an upper one: turn one of them around."
    ((axis, side),) = through
    other = _name((axis, UPPER if side == LOWER else LOWER))
    return f"write outflow at another side, such as {other}, or kind: inflow with the velocity of this one."


def _name(place: Place) -> str:
    return f"boundaries.{AXES[place[0]]}.{('lower', 'upper')[place[1]]}"


def _face(domain: Domain, axis: int) -> float:
    """Mean area of a cell's face."""
    spacing = domain.grid.mean_spacing
    return math.prod(spacing) / spacing[axis]


def _speed_on(domain: Domain, layouts: Sequence[FieldLayout], place: Place, t, dtype) -> tuple[Array, int]:
    """The prescribed velocity through a side at this block's faces, or one for equally many each; their number.

    Times their areas, in mean ones, where these differ.
    """
    axis, side = place
    like = jax.ShapeDtypeStruct(domain.block_shape, dtype)
    speed = domain.prescribed(like, layouts[axis], axis, side, t)
    assert speed is not None
    return weighed(domain, layouts[axis], place, speed)


def weighed(domain: Domain, layout: FieldLayout, place: Place, speed: Array) -> tuple[Array, int]:
    """A velocity through a side times the areas of its faces where these differ, in mean ones; their number here.

    Faces that are rings count with their whole length.
    """
    axis, side = place
    across = [k for k in domain.grid.stretched if k != axis]
    if domain.grid.axisymmetric and axis == RADIAL:
        speed = speed * (2 * math.pi * (domain.grid.lower, domain.grid.upper)[side][axis])
    elif domain.grid.axisymmetric:
        speed = speed * ring_volumes(1.0, domain, layout, speed.dtype)
    if across:
        speed = jnp.broadcast_to(speed, tuple(1 if k == axis else n for k, n in enumerate(domain.block_shape)))
        widths, mean = domain.spacing(layout, 0, speed.dtype), domain.grid.mean_spacing
        speed = scaled(speed, *(relative(widths[k], mean[k]) for k in across))
    return speed, int(np.prod(domain.block_shape)) // domain.block_shape[axis]
