"""An incompressible flow that carries a scalar: what a dye and heat have in common."""

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux, at_faces
from simjax.core.given_values import called
from simjax.core.model import ExplicitModel, Measure, Output
from simjax.models.axisymmetric_grid import dimensions, relative_volumes, tapers_of
from simjax.models.conserved import MADE, Balanced, inside
from simjax.models.face_fluxes import through_cells
from simjax.models.flow import incompressible
from simjax.models.flow.bodies import solid_setup, solid_stage, surface_readings
from simjax.models.flow.bodies.solid_scalars import Cells, SolidSurface, integral
from simjax.models.flow.choices import check_flow
from simjax.models.flow.features import Choices, refusals, unbalanced
from simjax.models.flow.flow_troubles import TROUBLES
from simjax.models.flow.sides.openings import is_open, with_outlet_specs
from simjax.models.flow.step.momentum import with_field_specs
from simjax.models.measures import total_measure
from simjax.models.scalar.conserved_scalar import Source, statistics, statistics_measures, widths
from simjax.models.stretching import require_transport
from simjax.ops import scalar_fluxes
from simjax.ops.spacing import Spacing, along
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Real, key
from simjax.schema.units import product_of_units

USUAL_PRANDTL = 0.7


class Params(incompressible.Params):
    """turbulent_prandtl Pr_t: eddy viscosity over eddy diffusivity; None: 0.7."""

    turbulent_prandtl: Array | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        require_at_least("CarryingFlow.Params", {"turbulent_prandtl": self.turbulent_prandtl}, strictly=True)

    @property
    def eddy_share(self) -> Array:
        """Eddy diffusivity over eddy viscosity."""
        given = self.turbulent_prandtl
        return 1 / (jnp.asarray(USUAL_PRANDTL, jnp.result_type(self.viscosity)) if given is None else given)


@dataclass(frozen=True)
class Keys(incompressible.Incompressible.Keys):
    """Keys of `Incompressible` and of the diffusion by eddies."""

    turbulent_prandtl: float = key(Real(above=0.0), USUAL_PRANDTL, about="eddy viscosity over eddy diffusivity")


class CarryingFlow(ExplicitModel, Balanced):
    """dc/dt = -div(u c) + div((D + nu_t / Pr_t) grad c) + s, c at cell centres, u that of an `Incompressible` flow.

    Fluxes through the same faces on which the flow is free of divergence, advection by one of
    `ops.scalar_fluxes.SCHEMES`; one time step and its stages are those of the flow. D is the diffusivity of the
    parameters, nu_t the eddy viscosity of the flow, if any, and Pr_t the turbulent Prandtl (or Schmidt) number.
    """

    carried: ClassVar[str]
    """The name of the scalar in states, files and configurations."""

    rank: ClassVar[int] = 1
    """The rank of the scalar in pictures, as `Output` has it."""

    units: ClassVar[str]

    troubles = TROUBLES
    taken_through = incompressible.Incompressible.taken_through

    flow: incompressible.Incompressible
    layout: FieldLayout
    source: Source | None
    surface: SolidSurface | None
    cells: Cells | None
    """Cells around bodies that do not move, where they were found before the steps."""
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str,
        *,
        forces: Sequence[incompressible.Force | None] | None = None,
        source: Source | None = None,
        pressure_solver: str = "auto",
        turbulence: str = "none",
        advection: str = "central2",
        surface: SolidSurface | None = None,
    ):
        require_one_of(f"{type(self).__name__}.scheme", scheme, scalar_fluxes.SCHEMES)
        solid = None if surface is None else surface.solid
        self.scheme = scheme
        self.flow = incompressible.Incompressible(domain, sides, forces, pressure_solver, solid, turbulence, advection)
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides], self.units)
        require_transport(scheme, domain, self.layout)
        raise_first(refusals(self.choices))
        if surface is not None:
            raise_first(solid_setup.refusals_at_surface(surface, self.carried))
        self.surface, self.cells, self.source = surface, None, source

    @classmethod
    def of(cls, setup, **others):
        """The model of a `models.declaration.Setup`, with other arguments of its constructor."""
        return cls(
            setup.domain,
            setup.sides,
            setup.keys.scheme,
            forces=setup.forces("velocity") or None,
            source=setup.source(cls.carried),
            pressure_solver=setup.keys.pressure_solver,
            turbulence=setup.keys.turbulence,
            advection=setup.keys.advection,
            surface=solid_setup.surface_of(setup, cls.carried),
            **others,
        )

    @abc.abstractmethod
    def with_flow(self, flow: incompressible.State, scalar: Array) -> Any:
        """The state of a flow and the scalar, or their tendency."""

    @property
    def domain(self) -> Domain:
        return self.flow.domain

    @property
    def choices(self) -> Choices:
        """The choices of the flow, and those of the scalar."""
        return dataclasses.replace(self.flow.choices, carried=self.carried, scheme=self.scheme)

    def scalar(self, state) -> Array:
        """The carried scalar of a state."""
        return getattr(state, self.carried)

    @property
    def loops_over_stages(self) -> bool:
        return self.flow.loops_over_stages

    def constant_parts(self, params):
        """Coefficients of bodies that do not move."""
        if self.surface is None or self.surface.solid.moving:
            return None
        now = jnp.zeros((), jnp.result_type(params.viscosity))
        return self.flow.constant_parts(params), self.around_bodies(now)

    def with_parts(self, parts):
        flow, cells = parts
        found = eqx.tree_at(lambda model: model.flow, self, self.flow.with_parts(flow))
        return eqx.tree_at(lambda model: model.cells, found, cells, is_leaf=lambda leaf: leaf is None)

    def around_bodies(self, t) -> Cells:
        """The cells around bodies at time `t`, a number of the type of the scalar."""
        if self.cells is not None:
            return self.cells
        assert self.surface is not None
        return self.surface.cells(self.domain, self.layout, t, t.dtype)

    def scalar_tendency(self, t, state, params) -> Array:
        """-div(u c) + D lap(c) + s."""
        c = self.scalar(state)
        if self.surface is not None:
            source = 0.0 if self.source is None else self.made_by_source(t, params, c.dtype)
            cells = self.around_bodies(jnp.asarray(t, c.dtype))
            fluxes = self.through_faces(t, state, params, cells)
            reach = solid_stage.reach_of(self.domain, params.diffusivity, state.reaction)
            exchanged = cells.exchanged(self.domain, self.layout, c, t, self.surface, reach)
            fluxes = fluxes + params.diffusivity * exchanged
            return cells.gained(self.domain, self.layout, fluxes, source, t, self.surface)
        slope = self.transported(t, state, params, c, self.layout, params.diffusivity)
        return slope if self.source is None else slope + self.made_by_source(t, params, slope.dtype)

    def transported(self, t, state, params, c: Array, layout: FieldLayout, diffusivity: Array) -> Array:
        """-div(u c) + div((D + nu_t / Pr_t) grad c) of a scalar with this layout and diffusivity, without bodies."""
        scheme = scalar_fluxes.SCHEMES[self.scheme]

        def tendency(c, velocity, rings, h):
            advection = scalar_fluxes.advection_tendency(c, velocity, scheme, h, *rings)
            return advection + diffusivity * scalar_fluxes.laplacian(c, h, scheme, *rings)

        rings = tapers_of(self.domain, layout, c)
        layouts = (layout, self.flow.layouts_at(t, state, scheme.width), (layout,) * len(rings))
        slope = self.domain.apply_spaced(tendency, (c, state.velocity, rings), layouts, scheme.width, t)
        if self.flow.momentum.has_eddies(params):
            layouts = self.flow.layouts_for(t, state)
            eddies = self.flow.momentum.eddy_diffusion(t, c, layout, state.velocity, layouts, params, scheme.reach)
            slope = slope + params.eddy_share * eddies
        return slope

    def through_faces(self, t, state, params, cells: Cells) -> Array:
        """-div(u c) + div((D + nu_t / Pr_t) grad c) by the parts of faces that are open around bodies."""
        domain, scheme, c = self.domain, scalar_fluxes.SCHEMES[self.scheme], self.scalar(state)
        velocity, swelling = solid_stage.flow_through_faces(self.flow, t, state, self.flow.layouts_at(t, state))

        def carried(c, velocity, h):
            return scalar_fluxes.advection_tendency(c, velocity, scheme, h)

        layouts = self.flow.layouts_at(t, state, scheme.width)
        slope = domain.apply_spaced(carried, (c, cells.carrying(velocity)), (self.layout, layouts), scheme.width, t)
        if swelling is not None:  # what a body gains in a cell by itself leaves the cell, and carries nothing
            slope = slope + swelling * c
        return slope + self.conducted(t, state, params, cells)

    def conducted(self, t, state, params, cells: Cells) -> Array:
        """div((D + nu_t / Pr_t) grad c) by the parts of faces that are open around bodies."""
        domain, c = self.domain, self.scalar(state)
        padded, spacing = domain.pad(c, self.layout, 1, t), domain.spacing(self.layout, 1, c.dtype)
        return scalar_fluxes.diffusion_tendency(padded, cells.conducting(self._diffusivity(t, state, params)), spacing)

    def _diffusivity(self, t, state, params) -> list[Array]:
        """D + nu_t / Pr_t on this block's n + 1 faces along each axis."""
        domain, block = self.domain, self.domain.block_shape
        shapes = [tuple(n + (k == axis) for k, n in enumerate(block)) for axis in range(domain.grid.ndim)]
        found = [jnp.broadcast_to(params.diffusivity, shape) for shape in shapes]
        if not self.flow.momentum.has_eddies(params):
            return found
        eddies = self.flow.momentum.eddy_viscosity(t, state.velocity, self.flow.layouts_for(t, state), params)
        padded = domain.pad(params.eddy_share * eddies, self.flow.momentum.layout, 1)
        spacing = domain.spacing(self.layout, 1, eddies.dtype)
        ndim = domain.grid.ndim
        return [
            k + scalar_fluxes.face_diffusivity(padded, axis, ndim, h)
            for axis, (k, h) in enumerate(zip(found, spacing, strict=True))
        ]

    def made_by_source(self, t, params, dtype) -> Array:
        """Rate at which the source makes the scalar."""
        assert self.source is not None
        places = self.domain.coordinates(self.layout.offset, dtype)
        return called(self.source, "source(t, coordinates, params)", (t, places, params), self.domain.block_shape)

    def widths(self, dtype) -> tuple[Spacing, ...]:
        """Widths of cells as the scheme has them."""
        return widths(self.domain, self.layout, scalar_fluxes.SCHEMES[self.scheme], dtype)

    def made(self, t, state, params):
        """Rates of the scalar by its source, and those of the flow."""
        c, rates = self.scalar(state), {}
        if self.source is not None:
            rate = inside(self.domain, self.made_by_source(t, params, c.dtype), c, self.widths(c.dtype))
            rates = {MADE: {self.carried: rate}}
        return {**self.flow.made(t, state, params), **rates}

    def made_by(self, name):
        return (MADE,) if name == self.carried else self.flow.made_by(name)

    def made_by_constraints(self, change, params):
        return self.flow.made_by_constraints(change, params)

    def unbalanced(self, names):
        return unbalanced(self.choices, names)

    def passing(self, t, state, params, plane):
        own = self.fluxes_of_scalars(t, state, params, plane)
        totals = {name: flux.total(self.domain, plane) for name, flux in own.items()}
        return {**self.flow.passing(t, state, params, plane), **totals}

    def explicit_fluxes(self, t, state, params, plane):
        own = self.fluxes_of_scalars(t, state, params, plane)
        return {**self.flow.explicit_fluxes(t, state, params, plane), **own}

    def flux_measures(self):
        own = self.balanced()
        return {**self.flow.flux_measures(), **{name: own[name] for name in own if name not in self.flow.balanced()}}

    def unknown_fluxes(self, names, plane):
        return self.flow.unknown_fluxes(names, plane)

    def flux_offset(self, name):
        return self.flow.flux_offset(name)

    def conductivities(self, params):
        return {self.carried: params.diffusivity}

    def wall_scales(self, t, state, params, plane):
        return self.flow.wall_scales(t, state, params, plane)

    def fluxes_of_scalars(self, t, state, params, plane: FacePlane) -> dict[str, Flux]:
        """The fluxes of all that is carried."""
        c = self.scalar(state)
        return {self.carried: self.carried_through(t, state, params, c, self.layout, params.diffusivity, plane)}

    def carried_through(
        self, t, state, params, c: Array, layout: FieldLayout, diffusivity: Array, plane: FacePlane
    ) -> Flux:
        """The flux of a scalar with this layout and diffusivity through the faces in a plane."""
        scheme, domain, axis = scalar_fluxes.SCHEMES[self.scheme], self.domain, plane.axis
        ndim = domain.grid.ndim

        def carried(c, *others):
            *velocity, _ = others
            return scalar_fluxes.flux_on_faces(c, scalar_fluxes.carried_by(velocity, scheme), scheme, axis, ndim)

        def conducted(c, h):
            return scalar_fluxes.conducted(c, diffusivity, along(h[axis], axis, ndim, 1), axis, ndim)

        fields, layouts = (c, *state.velocity), (layout, *self.flow.layouts_at(t, state, scheme.width))
        flux = at_faces(domain, carried, fields, layouts, scheme.width, plane, t)
        flux = flux - at_faces(domain, conducted, (c,), (layout,), 1, plane, t)
        if self.flow.momentum.has_eddies(params):
            kinds, reach = self.flow.layouts_for(t, state), scheme.reach
            eddies = self.flow.momentum.eddy_flux(t, c, layout, state.velocity, kinds, params, reach, plane)
            flux = flux - params.eddy_share * eddies
        return through_cells(domain, flux, self.widths(flux.dtype), plane)

    def balanced(self):
        own = total_measure(self.carried, self.layout.units, dimensions(self.domain.grid))
        return {self.carried: own, **self.flow.balanced()}

    def amounts(self, state, params):
        c = self.scalar(state)
        return {**self.flow.amounts(state, params), self.carried: inside(self.domain, c, c, self.widths(c.dtype))}

    def is_closed(self, axis):
        return self.layout.is_periodic(axis)

    def constrain(self, t, dt, state, params):
        flow, c = self.flow.constrain(t, dt, state, params), self.scalar(state)
        if self.surface is None:
            return self.with_flow(flow, c)
        reach = solid_stage.reach_of(self.domain, params.diffusivity, state.reaction)
        cells = self.around_bodies(jnp.asarray(t, c.dtype))
        return self.with_flow(flow, cells.joined(self.domain, c, self.layout, t, self.surface, reach))

    def notes(self):
        return self.flow.notes()

    def fault(self, t, params):
        return self.flow.fault(t, params)

    def explain(self, t, params):
        return self.flow.explain(t, params)

    def largest_diffusivity(self, params) -> Array:
        """The largest of viscosity and diffusivities."""
        return jnp.maximum(params.viscosity, params.diffusivity)

    def stable_dt(self, state, params):
        """The step of the flow with the largest of viscosity and diffusivities."""
        larger = self.largest_diffusivity(params)
        spread = jnp.maximum(params.eddy_share, 1) if self.flow.momentum.has_eddies(params) else 1.0
        return self.flow.longest_step(state, dataclasses.replace(params, viscosity=larger), spread)

    def acceleration(self, t, state, params) -> Sequence[Array | None] | None:
        """The acceleration of the flow by the scalar, a field for each component, if any."""
        return None

    def diagnostics(self, t, state, params):
        """Diagnostics of the flow, and total, mean, variance, minimum and maximum of the scalar, in the fluid.

        temperature_flux, ...: around bodies, what they give to the fluid in a time.
        """
        c, domain = self.scalar(state), self.domain
        found = self.flow.diagnostics(t, state, params, self.acceleration(t, state, params))
        if self.surface is not None:
            cells = self.around_bodies(jnp.asarray(t, c.dtype))
            fluxes = self.through_faces(t, state, params, cells)
            given = cells.from_bodies(domain, self.layout, fluxes, c, params.diffusivity, t, self.surface)
            given = integral(domain, self.layout, given)
            return found | cells.statistics(domain, self.layout, c, self.carried) | {f"{self.carried}_flux": given}
        of_cells = relative_volumes(domain, self.layout, self.widths(c.dtype), c.dtype)
        return found | statistics(domain, c, of_cells, self.carried)

    def roundings(self, t, dt, state, params, tendency):
        return self.flow.roundings(t, dt, state, params, tendency)

    def measures(self):
        found = self.flow.measures() | statistics_measures(self.domain, self.units, self.carried)
        if self.surface is None:
            return found
        total = total_measure(self.carried, self.units, dimensions(self.domain.grid)).units
        given = Measure(product_of_units(total, "s-1"), f"{self.carried} from the bodies")
        return found | {f"{self.carried}_flux": given}

    def written(self, t, state) -> Array:
        """The scalar as files and pictures have it."""
        c = self.scalar(state)
        if self.surface is None:
            return c
        return self.around_bodies(jnp.asarray(t, c.dtype)).written(self.domain, c, self.layout, t, self.surface)

    def along_bodies(self, t, state, params, points):
        """Readings of the flow along bodies, the scalar and its flux; see `models.flow.bodies.surface_readings`."""
        surface = surface_readings.surface_of_flow(self.flow, t, params, points)
        found = surface_readings.along_flow(surface, self.flow, t, state, params)
        return surface_readings.known_along(
            surface, found | surface_readings.along_scalar(surface, self, t, state, params)
        )

    def component_layouts(self):
        return self.flow.component_layouts() | {self.carried: (self.layout,)}

    def state_from(self, fields, params):
        return self.with_flow(self.flow.state_from(fields, params), fields[self.carried][0])

    def partition_specs(self, state, params):
        state_specs, params_specs = super().partition_specs(state, params)
        return with_outlet_specs(self.domain, state_specs), with_field_specs(self.domain, params_specs, params)

    def free_faces(self, t, state, params):
        return self.flow.free_faces(t, state, params)

    def outputs(self):
        return (
            Output(self.carried, self.layout.offset, self.units, self.carried, rank=self.rank),
            *self.flow.outputs(),
        )


def check_carrying(config: Any, carried: str) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration of a flow that carries this scalar."""
    yield from solid_setup.check_surface(config, carried)
    yield from check_flow(config, carried)


def passes_sides(config: Any) -> bool:
    """Tell whether a carried scalar may pass a side of a configuration."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    return is_open(config) or any({*wall.fields} - {"velocity"} for wall in walls)
