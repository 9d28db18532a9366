"""Balances of the energy of waves that a leapfrog advances: sources, conductors, and layers as open sides."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from simjax.grid import LOWER, UPPER
from simjax.jaxpr.varying import cast_varying
from simjax.models.conserved import Amounts, SplitBalanced, through
from simjax.models.waves.pml import AbsorbingLayer

ENERGY, SOURCES, CONDUCTION, STEPS = "energy", "made_by_sources", "made_by_conduction", "made_by_steps"


class WaveEnergy(SplitBalanced):
    """The energy of a leapfrog's staggered halves p(t) and u(t - lag), and what changes it.

    E = (p, p) / 2 + (u, u + 2 lag a) / 2 with a the acceleration of u by p, and products weighed by the medium: what a
    leapfrog of equal steps conserves. Two derivatives that are adjoint exchange energy and make none. So a kick to u'
    of which d is the layers' part, and a drift to p' of which s is theirs and that of sources, make
    ((u + u', d) + (p + p', s)) / 2; a kick of length k that is not twice the lag makes (k/2 - lag) (u - u', a), which
    is of second order in the change of the step. A layer's part is what leaves through the side that it stands at.
    """

    layer: AbsorbingLayer

    @abc.abstractmethod
    def prepare(self, params) -> Any:
        """See `core.model.SplitModel`."""

    @abc.abstractmethod
    def kicked_product(self, one, other, params, prepared) -> Array:
        """The product of two states' kicked halves over this block, an energy."""

    @abc.abstractmethod
    def drifted_product(self, one, other, params, prepared) -> Array:
        """The product of their drifted halves."""

    @abc.abstractmethod
    def accelerated(self, t, dt, state, params, prepared) -> Any:
        """The state whose kicked half the other half changed for `dt`, without layers."""

    @abc.abstractmethod
    def kicked_by_layers(self, dt, after, prepared, axis: int) -> Any:
        """Changes by layers along an axis in the kick that led to `after`; zero in all other parts of the state."""

    @abc.abstractmethod
    def drifted_by_layers(self, dt, after, prepared, axis: int) -> Any:
        """The same of the drift, times what conduction divides it by."""

    @abc.abstractmethod
    def drifted_by_sources(self, t, dt, after, params, prepared) -> Any:
        """Changes by sources in the drift, times what conduction divides it by."""

    def energy(self, t, state, params) -> Array:
        """The energy, see `WaveEnergy`: without sources, losses and layers constant to rounding from the end of the
        first step on, as long as steps are equal."""
        return self.domain.total(self.amounts(state, params)[ENERGY])

    def amounts(self, state, params):
        state, params = jax.tree.map(lambda u: cast_varying(u, self.domain.names), (state, params))
        prepared = self.prepare(params)
        later = self.accelerated(0.0, 2 * state.lag, state, params, prepared)
        kicked = self.kicked_product(state, later, params, prepared)
        return {ENERGY: 0.5 * (kicked + self.drifted_product(state, state, params, prepared))}

    def kicked(self, dt, before, after, params, prepared):
        def product(one, other):
            return self.kicked_product(one, other, params, prepared)

        twice = _sum(before, after)
        accounts = self._by_layers(lambda axis: self.kicked_by_layers(dt, after, prepared, axis), twice, product)
        pulled = _difference(self.accelerated(0.0, dt, before, params, prepared), before)
        changed = (0.5 - before.lag / dt) * product(_difference(before, after), pulled)
        return accounts | {STEPS: {ENERGY: changed}}

    def drifted(self, t, dt, before, after, params, prepared):
        def product(one, other):
            return self.drifted_product(one, other, params, prepared)

        twice = _sum(before, after)
        accounts = self._by_layers(lambda axis: self.drifted_by_layers(dt, after, prepared, axis), twice, product)
        if prepared.sources is None:
            return accounts
        fed = self.drifted_by_sources(t, dt, after, params, prepared)
        return accounts | {SOURCES: {ENERGY: 0.5 * product(twice, fed)}}

    def _by_layers(self, change: Callable, twice, product: Callable) -> dict[str, Amounts]:
        """Half the products of `twice` the mean state with what the layers at each side changed."""
        accounts = {}
        for axis in range(self.domain.grid.ndim):
            for side in (LOWER, UPPER):
                if self.layer.sides[axis][side]:
                    own = self.layer.of_side(change(axis), axis, side)
                    accounts[through(axis, side)] = {ENERGY: 0.5 * product(twice, own)}
        return accounts

    def balanced(self):
        return {ENERGY: self.measures()[ENERGY]}

    @abc.abstractmethod
    def measures(self) -> Any:
        """See `core.model.Model`."""

    def made_by(self, name):
        return SOURCES, STEPS

    def is_closed(self, axis):
        return not self.layer.absorbs(axis)


def _sum(one, other):
    return jax.tree.map(jnp.add, one, other)


def _difference(one, other):
    return jax.tree.map(jnp.subtract, one, other)
