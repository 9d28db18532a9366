"""Numbers that are seen of a gas: their units, and where it is kept positive."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.core.model import Measure
from simjax.grid import AXES, Grid
from simjax.models.axisymmetric_grid import dimensions, directions
from simjax.models.measures import times_volume
from simjax.ops import gas
from simjax.ops.riemann import Primitive


def at_floor(w: Primitive, params: Any) -> Array:
    """Truth values: cells whose density or pressure is at its floor in `params`, but for rounding."""
    near = 1 + 1e-3
    result = jnp.zeros(w.density.shape, bool)
    for value, floor in ((w.density, params.density_floor), (w.pressure, params.pressure_floor)):
        result = result if floor is None else result | (value <= near * floor)
    return result


def limited_faces(model: Any, t, state, params) -> Array:
    """The number of faces of the grid where `ops.positivity` changes what passes, in this state of a gas."""
    domain, width, dtype = model.domain, model.width, state.density.dtype
    fields, layouts, walled = model.read(state, params)
    heat, velocity, pressure, scalars, pulls, _ = domain.pad(fields, layouts, width, t)
    padded, pulls = Primitive(pressure / heat, velocity, pressure, scalars), dict(zip(walled, pulls, strict=True))
    spacing = domain.spacing(model.plain, width, dtype)
    total = jnp.zeros((), dtype)
    for axis in range(domain.grid.ndim):
        rises = model.rises(padded, axis, pulls.get(axis), params, spacing)
        limited = gas.limited_faces(padded, axis, domain.grid.ndim, params.gamma, model.scheme, rises)
        # The upper face of a block is the lower one of the next, but where the grid ends.
        cells = limited.shape[axis] - 1
        along = jnp.arange(cells + 1, dtype=jnp.int32).reshape(
            tuple(-1 if k == axis else 1 for k in range(limited.ndim))
        )
        counted = along < cells
        if not model.layouts.pressure.is_periodic(axis):
            counted = counted | (domain.first_index(axis) + along == domain.grid.shape[axis])
        total = total + jnp.sum(limited & counted, dtype=dtype)
    return domain.total(total)


def measures_of(grid: Grid, scalars: int) -> dict[str, Measure]:
    """Units and meanings of the diagnostics of a gas with so many scalars."""
    ndim = dimensions(grid)
    momentum = {1: "kg m-1 s-1", 2: "kg s-1", 3: "kg m s-1"}[ndim]
    return {
        "mass": Measure(times_volume("kg", ndim), "total mass"),
        **{
            f"momentum_{axis}": Measure(momentum, f"total {name}momentum")
            for axis, name in zip(AXES, directions(grid), strict=False)
        },
        "energy": Measure(times_volume("J", ndim), "total energy"),
        **{f"scalar_{k}": Measure(times_volume("kg", ndim), f"total of scalar {k}") for k in range(scalars)},
        "max_mach": Measure("1", "largest Mach number"),
        "minimum_density": Measure("kg m-3", "minimum density"),
        "minimum_pressure": Measure("Pa", "minimum pressure"),
        "limited_faces": Measure("1", "faces with a limited flux"),
        "cells_at_floor": Measure("1", "cells at a floor"),
    }
