"""Numbers of a model's troubles: how many cells have one, how large it is, and where it is largest."""

from collections.abc import Iterable

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.model import GridModel, Measure
from simjax.core.tendency import call_own
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.jaxpr.varying import cast_varying
from simjax.schema.troubles import Trouble

CELLS, WORST = "cells", "worst"
"""Endings of the names of a trouble's numbers, beside the axes: how many cells have it, and how large it is."""


def field_of(model: GridModel, one: Trouble, t, state, params, dtype) -> Array:
    """A trouble in each cell of this block, as numbers of this type.

    Raises:
        ConfigurationError: what finds it does not return one number for each cell.
    """
    found, block = call_own(model, "trouble", one.name, t, state, params), model.domain.block_shape
    if jnp.shape(found) != block:
        raise ConfigurationError(
            f"{type(model).__name__}.troubles: {one.name} has the shape {jnp.shape(found)}; expected {block}, a number "
            "for each cell."
        )
    return cast_varying(jnp.asarray(found).astype(dtype), model.domain.names)


def numbers_of(model: GridModel, troubles: Iterable[Trouble], t, state, params, dtype) -> dict[str, Array]:
    """For each trouble how many cells have it (if they are counted), its worst value, and the centre of that cell.

    Of several such cells it is the first one along x, then y, then z. The place is NaN where the trouble is zero
    everywhere. All are the same on every device.
    """
    domain, result = model.domain, {}
    for one in troubles:
        u = field_of(model, one, t, state, params, dtype)
        worst = domain.min(u) if one.lowest else domain.max(u)
        if one.counted:
            cells = domain.total(jnp.sum(u > one.above, dtype=jnp.int32))
            result[f"{one.name}_{CELLS}"] = cells.astype(dtype)
        result[f"{one.name}_{WORST}"] = worst
        there = one.lowest | (worst != 0)
        for axis, x in zip(AXES, _first_place(domain, (u == worst) | jnp.isnan(u), dtype), strict=False):
            result[f"{one.name}_{axis}"] = jnp.where(there, x, jnp.nan)
    return result


def _first_place(domain: Domain, marked: Array, dtype) -> list[Array]:
    """The centre of the first marked cell: the first along x, among these the first along y, and so on."""
    ndim = domain.grid.ndim
    for axis, n in enumerate(domain.block_shape):
        # By whole numbers, as a place that is formed twice may be rounded in two ways.
        along = domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)
        along = along.reshape(tuple(n if k == axis else 1 for k in range(ndim)))
        marked = marked & (along == domain.min(jnp.where(marked, along, domain.grid.shape[axis])))
    centers = domain.coordinates((CENTER,) * ndim, dtype)
    return [domain.max(jnp.where(marked, x, -jnp.inf)) for x in centers]


def measures_of(troubles: Iterable[Trouble], ndim: int, length_units: str) -> dict[str, Measure]:
    """Units and meanings of the numbers of some troubles."""
    result = {}
    for one in troubles:
        if one.counted:
            result[f"{one.name}_{CELLS}"] = Measure("1", f"cells with {one.having}")
        text = f"{extreme(one)} {one.long_name}"
        result[f"{one.name}_{WORST}"] = Measure(one.units, text)
        result |= {f"{one.name}_{axis}": Measure(length_units, f"{axis} of the {text}") for axis in AXES[:ndim]}
    return result


def extreme(one: Trouble) -> str:
    """The word for the worst of its values."""
    return "lowest" if one.lowest else "largest"
