"""Budgets of momentum of an incompressible flow, and of kinetic energy in a box that it does not leave."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.face_planes import FacePlane, at_faces, inner
from simjax.core.model import Measure, Rounding
from simjax.grid import AXES, LOWER, UPPER
from simjax.models.axisymmetric_grid import dimensions, tapers_of
from simjax.models.conserved import Accounts, Balanced
from simjax.models.flow.bodies.solid_setup import bodies_move
from simjax.models.flow.features import unbalanced
from simjax.models.flow.sides.openings import is_open, with_first_line
from simjax.models.flow.step import momentum_fluxes
from simjax.models.measures import length_power
from simjax.ops import staggered
from simjax.ops.spacing import scaled
from simjax.schema.units import product_of_units

KINETIC_ENERGY = "kinetic_energy"
VISCOSITY, FORCES, DRAG, PRESSURE, BUOYANCY = (
    f"made_by_{name}" for name in ("viscosity", "forces", "drag", "pressure", "buoyancy")
)


def budget_names(ndim: int) -> tuple[str, ...]:
    """Quantities of a flow that have budgets: momentum along each axis, kinetic energy."""
    return (*(f"momentum_{axis}" for axis in AXES[:ndim]), KINETIC_ENERGY)


def flow_variables(ndim: int) -> tuple[str, ...]:
    """Variables that are written beside the velocity."""
    return "pressure", "vorticity" if ndim == 2 else "vorticity_magnitude"


def falling_energy(config: Any) -> tuple[tuple[str, str], ...]:
    """Diagnostics that never rise: the energy of a flow that nothing drives. Bodies that move do work on it."""
    driven = "velocity" in config.forcing or config.physics.bulk_velocity is not None or config.physics.body is not None
    driven = driven or not config.walls_at_rest or is_open(config) or config.physics.advection.startswith("upwind")
    return () if driven or bodies_move(config) else ((KINETIC_ENERGY, "enstrophy"),)


class FlowBudgets(Balanced):
    """Momentum and kinetic energy, over density, on the faces inside the box of `models.flow.incompressible`.

    d/dt sum(u_i) = friction at sides + what is carried in there - alpha sum(u_i) + sum(f_i) + push of the pressure, to
    rounding: the pressure is what the projection changes. d/dt sum(|u|^2 / 2) = work of moving walls - dissipation
    - alpha sum(|u|^2) + sum(f . u): the pressure and the convective terms do no work, and what is left is the scheme's
    error in time. What a side that a component crosses pulls at, and lets in, is the flow half a cell away from it: its
    momentum reaches from the first cell's centre to the last one's. On an axisymmetric grid amounts are those in space,
    and momentum_y has its balance, along z.
    """

    def balanced(self: Any):
        volume = length_power(dimensions(self.domain.grid))
        momentum, energy = (product_of_units(units, volume) for units in ("m s-1", "m2 s-2"))
        *along, last = budget_names(self.domain.grid.ndim)
        measures = {name: Measure(momentum, f"{name[-1]}-momentum over density") for name in along}
        return measures | {last: Measure(energy, "kinetic energy over density")}

    def made_by(self, name: str) -> tuple[str, ...]:
        return (VISCOSITY, FORCES, DRAG) if name == KINETIC_ENERGY else (FORCES, DRAG, PRESSURE)

    def unbalanced(self: Any, names):
        return unbalanced(self.choices, names)

    def roundings(self: Any, t, dt, state, params, tendency):
        """Rounding of the divergence.

        A rounding of the velocity leaves |u| / h. The projection takes grad(phi) from what a step adds, whose phi may
        be as large as dt |du/dt| L, or around bodies dt p: a rounding of phi leaves phi / h^2. So large it is under
        gravity in a closed box alone, where less than one rounding was found: a third of it counts.
        """
        grid, domain, slopes = self.domain.grid, self.domain, tendency().velocity
        narrowest = [float(np.min(grid.widths(axis))) for axis in range(grid.ndim)]
        crossed: Any = sum(domain.max(jnp.abs(u)) / h for u, h in zip(state.velocity, narrowest, strict=True))
        pushed: Any = sum(domain.max(jnp.abs(a)) * length for a, length in zip(slopes, grid.lengths, strict=True))
        if state.reaction is not None:
            pushed = pushed + domain.max(jnp.abs(state.reaction.pressure))
        taken = dt.astype(pushed.dtype) * pushed * sum(1 / h**2 for h in narrowest)
        # Both faces of a cell along each axis may be rounded.
        return {"max_divergence": Rounding(crossed + taken / 3, 2 * crossed)}

    def is_closed(self: Any, axis):
        return self.projection.layout.is_periodic(axis)

    def amounts(self: Any, state, params):
        momentum, square = self._summed(state.velocity), self._summed([u * u for u in state.velocity])
        return self._named(momentum, 0.5 * sum(square))

    def passing(self: Any, t, state, params, plane):
        fluxes, work = [], jnp.zeros((), state.velocity[0].dtype)
        for component in range(len(state.velocity)):
            if component == plane.axis:
                fluxes.append(self._through_end(t, state, params, plane))
                continue
            flux, at_wall = momentum_fluxes.viscous(self, t, state, params, component, plane)
            work = work + momentum_fluxes.areas(self, flux * at_wall, component, plane).total(self.domain, plane)
            if momentum_fluxes.crossed(self, plane):
                flux = flux + momentum_fluxes.carried(self, t, state, component, plane)
            fluxes.append(momentum_fluxes.areas(self, flux, component, plane).total(self.domain, plane))
        return self._named(fluxes, work)

    def explicit_fluxes(self: Any, t, state, params, plane):
        return momentum_fluxes.through(self, t, state, params, plane)

    def flux_measures(self: Any):
        return momentum_fluxes.measures(self)

    def unknown_fluxes(self: Any, names, plane):
        return momentum_fluxes.unknown(self, names, plane)

    def flux_offset(self: Any, name):
        return momentum_fluxes.offset(self, name)

    def wall_scales(self: Any, t, state, params, plane):
        """Density, that which momentum is over, and kinematic viscosity."""
        return jnp.ones_like(params.viscosity), params.viscosity

    def made(self: Any, t, state, params) -> Accounts:
        velocity = state.velocity
        forces = [jnp.broadcast_to(self._force(i, t, params, u), u.shape) for i, u in enumerate(velocity)]

        def spread(components, rings, h):
            return tuple(staggered.laplacian(u, h, component, *rings) for component, u in enumerate(components))

        rings = tapers_of(self.domain, self.projection.layout, velocity[0])
        layouts = (self.layouts_at(t, state), (self.projection.layout,) * len(rings))
        slopes = self.domain.apply_spaced(spread, (velocity, rings), layouts, width=1, t=t)
        viscous = params.viscosity * sum(self._summed([u * k for u, k in zip(velocity, slopes, strict=True)]))
        sides = [k for k in range(self.domain.grid.ndim) if not self.is_closed(k)]
        for axis in sides:
            for end, sign in ((LOWER, 1), (UPPER, -1)):
                viscous = (
                    viscous
                    - sign * self.passing(t, state, params, FacePlane.of_side(self.domain, axis, end))[KINETIC_ENERGY]
                )
        dragged = self.pushed(velocity, [-params.drag * u for u in velocity])
        return {VISCOSITY: {KINETIC_ENERGY: viscous}, FORCES: self.pushed(velocity, forces), DRAG: dragged}

    def pushed(self, velocity: Sequence[Array], acceleration: Sequence[Array]) -> dict[str, Array]:
        """Momentum and work, per time, of an acceleration of each component."""
        work = sum(self._summed([u * a for u, a in zip(velocity, acceleration, strict=True)]))
        return self._named(self._summed(acceleration), work)

    def made_by_constraints(self: Any, change, params):
        momentum = self._named(self._summed(change.velocity), 0.0)
        return {PRESSURE: {name: push for name, push in momentum.items() if name != KINETIC_ENERGY}}

    def _named(self: Any, momentum, energy) -> dict[str, Array]:
        return dict(zip(budget_names(self.domain.grid.ndim), (*momentum, energy), strict=True))

    def _summed(self: Any, components: Sequence[Array]) -> list[Array]:
        """The sum of each component times the volumes around its faces inside the box, on this block."""
        inner = list(self.domain.impose(tuple(components), self.projection.still_walls()))
        for axis in (one.axis for one in self.openings if one.side == LOWER):
            inner[axis] = with_first_line(self.domain, inner[axis], axis, jnp.zeros((), inner[axis].dtype))
        return [jnp.sum(scaled(u, *momentum_fluxes.extents(self, i, u.dtype))) for i, u in enumerate(inner)]

    def _through_end(self: Any, t, state, params, plane: FacePlane) -> Array:
        """Flux that a component carries and pulls through the centres of the cells beside a side that it crosses."""
        axis, ndim, first = plane.axis, self.domain.grid.ndim, 2 if plane.number == 0 else 1

        def near(padded, h):
            below, above = (jax.lax.slice_in_dim(padded, k, k + 1, axis=axis) for k in (first, first + 1))
            width = h[axis]
            if isinstance(width, Array):
                width = jax.lax.slice_in_dim(width, first, first + 1, axis=axis)
            flux = 0.25 * (above + below) ** 2 - params.viscosity * (above - below) / width
            return inner(flux, axis, ndim, 2)

        layout = self.layouts_at(t, state, 2)[axis]
        flux = at_faces(self.domain, near, (state.velocity[axis],), (layout,), 2, plane, t)
        return momentum_fluxes.areas(self, flux, axis, plane).total(self.domain, plane)
