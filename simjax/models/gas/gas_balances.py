"""Balances of mass, momentum, energy and scalars of a gas."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from simjax.grid import AXES
from simjax.models.conserved import MADE, Balanced, at_side, inside, over_areas, through_side
from simjax.models.gas.entropic_pressure import padded_gas
from simjax.ops.difference import shift
from simjax.ops.riemann import Conserved


def balanced_names(ndim: int, scalars: int) -> tuple[str, ...]:
    """Quantities that have balances, in the order of the state."""
    momentum = (f"momentum_{axis}" for axis in AXES[:ndim])
    return ("mass", *momentum, "energy", *(f"scalar_{number}" for number in range(scalars)))


class GasBalances(Balanced):
    """Balances of a gas, whose class has the fluxes and what gravity adds; beside `models.gas.compressible`."""

    def flux_at_side(self: Any, t, state, params, axis, side) -> Conserved:
        """Fluxes along an axis through the faces in a side of this block, as the scheme has them."""
        fields, layouts, walled = self.read(state, params, t)

        def flux(heat, velocity, pressure, scalars, pulls, conducted, entropic, spacing):
            padded = padded_gas(heat, velocity, pressure, scalars, entropic, self.scheme)
            conducted = (*conducted, heat)[0]
            pull = dict(zip(walled, pulls, strict=True)).get(axis)
            return self._axis_flux(padded, conducted, axis, pull, params, spacing)[0]

        return at_side(self.domain, flux, fields, layouts, self.width, axis, side, t)

    def passing(self: Any, t, state, params, axis, side):
        found = self.flux_at_side(t, state, params, axis, side)
        widths = self._widths(state.density.dtype)
        return self._named(jax.tree.map(lambda f: through_side(self.domain, f, widths, axis, side), found))

    def made(self: Any, t, state, params):
        fields, layouts, walled = self.read(state, params, t)
        widths, (_, _, pressure, *_) = self._widths(state.density.dtype), fields
        rates = {}
        if self.domain.grid.axisymmetric:
            # The sides of a ring push outwards.
            rates["momentum_x"] = 2 * math.pi * over_areas(pressure, pressure, widths)
        if not self.gravity_axes:
            return {MADE: rates}

        def fallen(heat, velocity, pressure, scalars, pulls, _, entropic, spacing):
            padded = padded_gas(heat, velocity, pressure, scalars, entropic, self.scheme)
            inner = jnp.zeros_like(shift(pressure, self.domain.grid.ndim, width=self.width))
            added = Conserved(inner, (inner,) * len(velocity), inner, (inner,) * len(scalars))
            for axis in self.gravity_axes:
                pull = dict(zip(walled, pulls, strict=True)).get(axis)
                _, mass, rises, stretch = self._axis_flux(padded, heat, axis, pull, params, spacing)
                added = self._fallen(added, mass, rises, stretch, axis, params, spacing)
            return jax.tree.map(lambda rate: rate * (1 / self.domain.grid.mean_spacing[0]), added)

        found = self.domain.apply_spaced(fallen, fields, layouts, self.width, t)
        given = self._named(jax.tree.map(lambda rate: inside(self.domain, rate, state.density, widths), found))
        return {MADE: {name: rate + rates.get(name, 0.0) for name, rate in given.items()}}

    def balanced(self: Any):
        return {name: self.measures()[name] for name in balanced_names(self.domain.grid.ndim, self.scalars)}

    def amounts(self: Any, state, params):
        widths = self._widths(state.density.dtype)
        q = Conserved(state.density, state.momentum, state.energy, state.scalars)
        return self._named(jax.tree.map(lambda u: inside(self.domain, u, u, widths), q))

    def _named(self: Any, q: Conserved) -> dict[str, Array]:
        names = balanced_names(self.domain.grid.ndim, self.scalars)
        return dict(zip(names, (q.density, *q.momentum, q.energy, *q.scalars), strict=True))

    def unbalanced(self: Any, names):
        if self.bodies is None:
            return ""
        return (
            "expected a gas without bodies, as what passes their surface is told apart from balances (mass_from_bodies "
            "and energy_from_bodies among the diagnostics), and got coefficients.solid; leave the balance out"
        )

    def is_closed(self: Any, axis):
        return self._is_periodic(axis)
