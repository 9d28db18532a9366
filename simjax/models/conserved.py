"""Models with conserved quantities: the amount inside, the flux through sides, the sources."""

import abc
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain, flatten_layouts
from simjax.core.model import Measure
from simjax.grid import AXES, LOWER
from simjax.jaxpr.varying import cast_varying
from simjax.models.axisymmetric_grid import lower_radii
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing, fitted

Amounts = Mapping[str, Array]
"""A number for each conserved quantity, by name."""

Accounts = Mapping[str, Amounts]
"""Amounts by what makes them."""

MADE = "made"
"""The name of all that makes an amount, where nothing tells more."""


def through(axis: int, side: int) -> str:
    """Name of the amount that enters through a side."""
    return f"in_{AXES[axis]}_{('lower', 'upper')[side]}"


class Accountable(abc.ABC):
    """A model with quantities of which the changes are known.

    Amounts, and rates in amounts per time, are those of this block alone: whoever asks for them adds up the blocks,
    with `added_up`.
    """

    domain: Any

    @abc.abstractmethod
    def balanced(self) -> dict[str, Measure]:
        """The quantities, with the units of their amounts."""

    @abc.abstractmethod
    def amounts(self, state, params) -> Amounts:
        """Integrals over this block, by quantity."""

    def made_by(self, name: str) -> tuple[str, ...]:
        """Names of all that makes a quantity; they begin with `made`."""
        return (MADE,)

    def unbalanced(self, names: tuple[str, ...]) -> str:
        """Tell, as an error does, why balances of these quantities do not hold with these sides; "" if they do."""
        return ""

    @abc.abstractmethod
    def is_closed(self, axis: int) -> bool:
        """Tell whether nothing has a place to pass along an axis, such as a periodic one."""


class Balanced(Accountable):
    """A model given by its tendency whose quantities have balances."""

    @abc.abstractmethod
    def passing(self, t, state, params, axis: int, side: int) -> Amounts:
        """Rates at which the explicit part of the tendency carries through a side, towards larger coordinates."""

    def passing_implicitly(self, t, state, params, axis: int, side: int) -> Amounts:
        """Rates at which amounts pass through a side in the implicit part of the tendency."""
        return {}

    def made(self, t, state, params) -> Accounts:
        """Rates at which the explicit part makes amounts inside."""
        return {}

    def made_by_constraints(self, change, params) -> Accounts:
        """Amounts that `constrain` made by a change of the state, of quantities linear in it."""
        return {MADE: self.amounts(change, params)}


class SplitBalanced(Accountable):
    """A model in two halves that act on each other, of which each tells what it makes, sides included."""

    @abc.abstractmethod
    def kicked(self, dt, before, after, params, prepared) -> Accounts:
        """Amounts that `kick` made in `dt` of the state `before` it."""

    @abc.abstractmethod
    def drifted(self, t, dt, before, after, params, prepared) -> Accounts:
        """Amounts that `drift` made."""


def lines_around_side(padded, axis: int, side: int, width: int, ndim: int):
    """The `width` cells on both sides of a side of a block, of arrays (or a tree) with as many ghost cells."""

    def cut(u: Array) -> Array:
        where = u.ndim - ndim + axis
        start = 0 if side == LOWER else u.shape[where] - 2 * width
        return lax.slice_in_dim(u, start, start + 2 * width, axis=where)

    return jax.tree.map(cut, padded)


def at_side(domain: Domain, stencil: Callable, fields: tuple, layouts, width: int, axis: int, side: int, t=0.0) -> Any:
    """`stencil(*padded, spacing)` of `Domain.apply_spaced`, on the cells around a side alone.

    A stencil that gives fluxes on the n + 1 faces along `axis` gives those of the faces in the side.
    """
    ndim = domain.grid.ndim
    padded = domain.pad(fields, layouts, width, t)
    leaves, tree = jax.tree.flatten(fields)
    spacing: list[Spacing] = list(domain.spacing(flatten_layouts(layouts, tree)[0], width, leaves[0].dtype))
    shape = tuple(n + 2 * width for n in domain.block_shape)
    spacing = [jnp.broadcast_to(h, shape) if isinstance(h, Array) else h for h in spacing]
    near = lines_around_side((*padded, *(h for h in spacing if isinstance(h, Array))), axis, side, width, ndim)
    widths = iter(near[len(padded) :])
    return stencil(*near[: len(padded)], tuple(next(widths) if isinstance(h, Array) else h for h in spacing))


def through_side(domain: Domain, flux: Array, widths: tuple[Spacing, ...], axis: int, side: int) -> Array:
    """The sum over a side's faces of a flux times their areas, where this block has the side; else zero.

    widths: of this block's cells, as the scheme has them.
    """
    for k, h in enumerate(widths):
        if k != axis and isinstance(h, Array):
            flux = flux * fitted(h, flux)
    if domain.grid.axisymmetric:
        ends = domain.grid.lower[RADIAL], domain.grid.upper[RADIAL]
        flux = flux * (2 * math.pi * ends[side] if axis == RADIAL else circumferences(domain, widths, flux.dtype))
    area = math.prod(h for k, h in enumerate(widths) if k != axis and not isinstance(h, Array))
    entry = domain.split[axis]
    outermost = 0 if side == LOWER or entry is None else entry[1] - 1
    total = jnp.sum(flux) * area
    return total if entry is None else jnp.where(domain.block_index(axis) == outermost, total, 0)


def inside(domain: Domain, u: Array, like: Array, widths: tuple[Spacing, ...]) -> Array:
    """The sum over this block's cells of a rate per volume times their volumes."""
    if domain.grid.axisymmetric:
        u = u * circumferences(domain, widths, like.dtype)
    return over_areas(u, like, widths)


def over_areas(u: Array, like: Array, widths: tuple[Spacing, ...]) -> Array:
    """The sum over this block's cells of `u` times their volumes; where cells are rings, the areas that they turn."""
    u = jnp.broadcast_to(u, like.shape)
    for h in widths:
        if isinstance(h, Array):
            u = u * fitted(h, u)
    return jnp.sum(u) * math.prod(h for h in widths if not isinstance(h, Array))


def circumferences(domain: Domain, widths: tuple[Spacing, ...], dtype) -> Array:
    """Lengths 2 pi r of the rings that this block's cells are, (n, 1)."""
    return 2 * math.pi * (lower_radii(domain, dtype) + 0.5 * widths[RADIAL])


def as_amounts(quantities: tuple[str, ...], values: Mapping[str, Array], dtype) -> Array:
    """The numbers of these quantities in their order; zero where there is none."""
    return jnp.stack([jnp.asarray(values.get(name, 0.0), dtype) for name in quantities])


def added_up(domain: Domain, numbers: Array) -> Array:
    """The sum over all blocks, also of numbers that are the same on each, such as those of a constant field."""
    return domain.total(cast_varying(numbers, domain.names))
