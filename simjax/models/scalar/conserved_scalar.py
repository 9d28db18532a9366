"""Scalars that fluxes through the faces of cells carry and conserve."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux
from simjax.core.model import ExplicitModel, Measure, Output, SemiImplicitModel
from simjax.models.axisymmetric_grid import dimensions, mean_volume, relative_volumes, tapers_of
from simjax.models.conserved import Balanced, inside
from simjax.models.face_fluxes import through_cells
from simjax.models.measures import of_field, total_measure
from simjax.models.scalar import axisymmetric_scalar
from simjax.notebook import all_in_a_line
from simjax.ops import scalar_fluxes
from simjax.ops.spacing import Spacing, scaled, smallest, without_ends
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Integer, key
from simjax.schema.model_schema import IMEX
from simjax.solvers.elliptic import elliptic
from simjax.solvers.multigrid import multigrid, solve_elliptic

INTEGRATORS = ("ssprk3", "ssprk2", "kutta3", "williamson3", "rk4", "heun", "midpoint", "euler", *IMEX)
"""Diffusion is explicit with the first ones and implicit with the IMEX schemes."""

Source = Callable[..., Array]
"""`source(t, coordinates, params)` -> rate of change of the concentration."""

DIGITS = key(Integer(3, 13), 8, about="digits to which an implicit solve is converged")


class State(eqx.Module):
    """concentration: `(*grid.shape)`, cell centres."""

    concentration: Array

    __repr__ = all_in_a_line


def statistics(domain: Domain, c: Array, volumes: float | Array = 1.0, name: str = "concentration") -> dict[str, Array]:
    """Total (integral over the domain), mean, variance, minimum and maximum of a scalar, a concentration.

    volumes: of the cells, in mean ones.
    """
    total = domain.sum(scaled(c, volumes))
    mean = total / domain.grid.cells
    return {
        f"total_{name}": total * mean_volume(domain.grid),
        f"mean_{name}": mean,
        f"variance_{name}": domain.mean(scaled((c - mean) ** 2, volumes)),
        f"minimum_{name}": domain.min(c),
        f"maximum_{name}": domain.max(c),
    }


def statistics_measures(domain: Domain, units: str, name: str = "concentration") -> dict[str, Measure]:
    """Units and meanings of `statistics` of a scalar in `units`."""
    return of_field(name, units) | {f"total_{name}": total_measure(name, units, dimensions(domain.grid))}


def widths(domain: Domain, layout: FieldLayout, scheme: scalar_fluxes.AdvectionScheme, dtype) -> tuple[Spacing, ...]:
    """Widths of the cells along every axis as a scheme has them."""
    ndim, reach = domain.grid.ndim, scheme.reach
    spacing = domain.spacing(layout, reach, dtype)
    return tuple(scalar_fluxes.widths(h, axis, ndim, reach) for axis, h in enumerate(spacing))


def conserved_mean(config: Any) -> tuple[tuple[str, ...], ...]:
    """Nothing is lost in a periodic box without sources."""
    fed = config.forcing or "source" in config.coefficients
    return (
        (("mean_concentration", "minimum_concentration", "maximum_concentration"),)
        if config.periodic and not fed
        else ()
    )


class ConservedScalar(ExplicitModel, Balanced):
    """One cell-centred scalar c that fluxes through faces change: its total, its balance, what is shown of it.

    A subclass says what the tendency is and what of it passes a side.
    """

    domain: eqx.AbstractVar[Domain]
    layout: eqx.AbstractVar[FieldLayout]
    scheme: eqx.AbstractVar[str]

    @property
    def advection(self) -> scalar_fluxes.AdvectionScheme:
        """The scheme that carries the scalar."""
        return scalar_fluxes.SCHEMES[self.scheme]

    def widths(self, dtype) -> tuple[Spacing, ...]:
        """Widths of the cells along every axis as the scheme has them."""
        return widths(self.domain, self.layout, self.advection, dtype)

    def volumes(self, dtype) -> float | Array:
        """Volumes of the cells, in mean ones, of which fluxes conserve the sum with the scalar; 1.0 if uniform."""
        return relative_volumes(self.domain, self.layout, self.widths(dtype), dtype)

    def least_spacing(self, dtype) -> tuple[Spacing, ...]:
        """The least width of each cell and its two neighbours along every axis, which limits the time step."""
        return tuple(smallest(h, axis) for axis, h in enumerate(self.domain.spacing(self.layout, 1, dtype)))

    def through(self, density: Array, plane: FacePlane) -> dict[str, Flux]:
        """A flux through the faces in a plane as `explicit_fluxes` has it."""
        return {"concentration": through_cells(self.domain, density, self.widths(density.dtype), plane)}

    def balanced(self):
        return {"concentration": total_measure("concentration", self.layout.units, dimensions(self.domain.grid))}

    def amounts(self, state, params):
        c = state.concentration
        return {"concentration": inside(self.domain, c, c, self.widths(c.dtype))}

    def is_closed(self, axis):
        return self.layout.is_periodic(axis)

    def diagnostics(self, t, state, params):
        """Diagnostics of `statistics`."""
        c = state.concentration
        return statistics(self.domain, c, self.volumes(c.dtype))

    def measures(self):
        return statistics_measures(self.domain, self.layout.units)

    def component_layouts(self):
        return {"concentration": (self.layout,)}

    def state_from(self, fields, params):
        return State(fields["concentration"][0])

    def outputs(self):
        return (Output("concentration", self.layout.offset, self.layout.units, "concentration"),)

    def observe(self, t, state, params) -> dict[str, jax.Array]:
        return {"concentration": state.concentration}


class SemiImplicitScalar(ConservedScalar, SemiImplicitModel):
    """dc/dt = -div F(c) + div(kappa grad c) + s, of which diffusion is explicit under a Runge-Kutta scheme.

    Under an IMEX scheme it is implicit: conjugate gradients to the relative residual `tolerance`, preconditioned by
    multigrid. A subclass says what F does and where kappa is.
    """

    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def face_diffusivity(self, params) -> tuple[Array, ...]:
        """kappa on this block's n + 1 faces along each axis."""

    def implicit_rhs(self, t, state, params):
        return State(self._diffusion(t, state.concentration, self.face_diffusivity(params)))

    def _diffusion(self, t, c: Array, kappa) -> Array:
        padded, reach = self.domain.pad(c, self.layout, 1, t), self.advection.reach
        spacing = self.domain.spacing(self.layout, reach + 1, c.dtype)
        rings = tapers_of(self.domain, self.layout, c)
        return scalar_fluxes.diffusion_tendency(padded, kappa, spacing, reach, *rings)

    def prepare(self, params):
        if self.domain.grid.axisymmetric:
            raise_first(axisymmetric_scalar.EXCLUSIONS.refusals(axisymmetric_scalar.IMPLICIT))
        kappa = self.face_diffusivity(params)
        operator = elliptic(self.domain, self.layout, kappa, self.widths(kappa[0].dtype))
        return kappa, operator, multigrid(operator)

    def implicit_solve(self, t, dt, right, params, prepared):
        kappa, operator, hierarchy = prepared
        right = right.concentration
        # Solved for the change alone, which is rounded by a part of itself and keeps the total: with the whole scalar
        # solved for, the same part of that is lost in every step.
        rate = scaled(self._diffusion(t, right, kappa), self.volumes(right.dtype))
        size = jnp.sqrt(self.domain.dot(right, right)) / dt
        solved = solve_elliptic(operator, hierarchy, rate, 1 / dt, tolerance=self.tolerance, scale=size)
        return State(right + solved.solution)

    def implicit_fluxes(self, t, state, params, plane):
        c, (axis, domain), reach = state.concentration, (plane.axis, self.domain), self.advection.reach
        near = plane.lines(domain, domain.pad(c, self.layout, 1, t), 1)
        h = without_ends(domain.spacing(self.layout, reach + 1, c.dtype)[axis], axis, reach)
        kappa = plane.faces(domain, self.face_diffusivity(params)[axis])
        h = plane.lines(domain, h, 1) if isinstance(h, Array) else h
        return self.through(-scalar_fluxes.conducted(near, kappa, h, axis, domain.grid.ndim), plane)
