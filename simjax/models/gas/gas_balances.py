"""Balances of mass, momentum, energy and scalars of a gas."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from simjax.core.face_planes import FacePlane, at_faces
from simjax.grid import AXES
from simjax.models.conserved import MADE, Balanced, inside, over_areas
from simjax.models.face_fluxes import through_cells
from simjax.models.gas.entropic_pressure import padded_gas
from simjax.ops.difference import shift
from simjax.ops.riemann import Conserved


def balanced_names(ndim: int, scalars: int) -> tuple[str, ...]:
    """Quantities that have balances, in the order of the state."""
    momentum = (f"momentum_{axis}" for axis in AXES[:ndim])
    return ("mass", *momentum, "energy", *(f"scalar_{number}" for number in range(scalars)))


class GasBalances(Balanced):
    """Balances of a gas, whose class has the fluxes and what gravity adds; beside `models.gas.compressible`."""

    def explicit_fluxes(self: Any, t, state, params, plane):
        found, widths = self.conserved_fluxes(t, state, params, plane), self._widths(state.density.dtype)
        return self._named(jax.tree.map(lambda f: through_cells(self.domain, f, widths, plane), found))

    def unknown_fluxes(self: Any, names, plane):
        if self.bodies is None or plane.number in (0, self.domain.grid.shape[plane.axis]):
            return ""
        return "expected a side beside bodies, got a plane inside the grid, where bodies may lie; name a side"

    def conductivities(self, params):
        return {} if params.conductivity is None else {"energy": params.conductivity}

    def frictionless(self, params):
        return (
            "" if params.viscosity is not None else "expected physics.viscosity, without which walls have no friction"
        )

    def wall_scales(self: Any, t, state, params, plane):
        """Density and kinematic viscosity, means over a wall."""
        place = 0 if plane.number == 0 else state.density.shape[plane.axis] - 1
        beside = lax.slice_in_dim(state.density, place, place + 1, axis=plane.axis)
        flux = through_cells(self.domain, beside, self._widths(beside.dtype), plane)
        whole = plane.counted(self.domain, jnp.sum(jnp.broadcast_to(flux.areas, beside.shape)))
        total, area = self.domain.total((flux.total(self.domain, plane), whole))
        return total / area, params.viscosity * area / total

    def conserved_fluxes(self: Any, t, state, params, plane: FacePlane) -> Conserved:
        """Densities of the fluxes through the faces in a plane, as the scheme has them."""
        fields, layouts, walled = self.read(state, params, t)

        def flux(heat, velocity, pressure, scalars, pulls, conducted, entropic, spacing):
            padded = padded_gas(heat, velocity, pressure, scalars, entropic, self.scheme)
            conducted = (*conducted, heat)[0]
            pull = dict(zip(walled, pulls, strict=True)).get(plane.axis)
            return self._axis_flux(padded, conducted, plane.axis, pull, params, spacing)[0]

        return at_faces(self.domain, flux, fields, layouts, self.width, plane, t)

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

    def _named(self: Any, q: Conserved) -> dict[str, Any]:
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
