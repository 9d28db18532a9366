"""Models with conserved quantities: the amount inside, the flux through sides, the sources."""

import abc
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux
from simjax.core.model import Measure
from simjax.grid import AXES, CENTER
from simjax.jaxpr.varying import cast_varying
from simjax.models.face_fluxes import circumferences
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
    def explicit_fluxes(self, t, state, params, plane: FacePlane) -> Mapping[str, Flux]:
        """Fluxes of the explicit part of the tendency through faces of this block, towards larger coordinates."""

    def implicit_fluxes(self, t, state, params, plane: FacePlane) -> Mapping[str, Flux]:
        """Fluxes of the implicit part."""
        return {}

    def fluxes(self, t, state, params, plane: FacePlane) -> dict[str, Flux]:
        """Fluxes of the whole tendency."""
        found = dict(self.explicit_fluxes(t, state, params, plane))
        for name, more in self.implicit_fluxes(t, state, params, plane).items():
            found[name] = Flux(found[name].density + more.density, more.areas)
        return found

    def flux_measures(self) -> dict[str, Measure]:
        """The quantities of which there are `fluxes`, with the units of their amounts."""
        return self.balanced()

    def unknown_fluxes(self, names: tuple[str, ...], plane: FacePlane) -> str:
        """Tell, as an error does, why fluxes of these quantities through a plane are not known; "" if they are."""
        return ""

    def flux_offset(self, name: str) -> tuple[float, ...]:
        """The place of a flux in its cells along the axes of its plane; that across it is unused."""
        return (CENTER,) * self.domain.grid.ndim

    def conductivities(self, params) -> Mapping[str, Array]:
        """The coefficient k of the part -k dq/dx of a flux, by the quantities that have one number."""
        return {}

    def frictionless(self, params) -> str:
        """Tell, as an error does, why walls have no friction; "" if they have."""
        return ""

    def passing(self, t, state, params, plane: FacePlane) -> Amounts:
        """Rates at which the explicit part of the tendency carries through a plane, towards larger coordinates."""
        found = self.explicit_fluxes(t, state, params, plane)
        return {name: flux.total(self.domain, plane) for name, flux in found.items()}

    def passing_implicitly(self, t, state, params, plane: FacePlane) -> Amounts:
        """Rates at which amounts pass in the implicit part of the tendency."""
        found = self.implicit_fluxes(t, state, params, plane)
        return {name: flux.total(self.domain, plane) for name, flux in found.items()}

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


def as_amounts(quantities: tuple[str, ...], values: Mapping[str, Array], dtype) -> Array:
    """The numbers of these quantities in their order; zero where there is none."""
    return jnp.stack([jnp.asarray(values.get(name, 0.0), dtype) for name in quantities])


def added_up(domain: Domain, numbers: Array) -> Array:
    """The sum over all blocks, also of numbers that are the same on each, such as those of a constant field."""
    return domain.total(cast_varying(numbers, domain.names))
