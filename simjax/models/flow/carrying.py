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
from simjax.core.model import ExplicitModel, Output
from simjax.models.axisymmetric import dimensions, relative_volumes, tapers_of
from simjax.models.conserved import MADE, Balanced, at_side, inside, through_side
from simjax.models.flow import incompressible
from simjax.models.flow.advection import check_scalar as check_carried
from simjax.models.flow.advection import scalar_refusals
from simjax.models.flow.axisymmetry import check_scalar, check_scalar_configuration
from simjax.models.flow.momentum import check_momentum, with_field_specs
from simjax.models.flow.openings import is_open, with_outlet_specs
from simjax.models.measures import total_measure
from simjax.models.scalar.transport import Source, statistics, statistics_measures, widths
from simjax.models.stretching import require_transport
from simjax.ops import transport
from simjax.ops.spacing import Spacing, along
from simjax.schema.kinds import Real, key

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

    Fluxes through the same faces on which the flow is free of divergence, advection by one of `ops.transport.SCHEMES`;
    one time step and its stages are those of the flow. D is the diffusivity of the parameters, nu_t the eddy viscosity
    of the flow, if any, and Pr_t the turbulent Prandtl (or Schmidt) number.
    """

    carried: ClassVar[str]
    """The name of the scalar in states, files and configurations."""

    units: ClassVar[str]

    flow: incompressible.Incompressible
    layout: FieldLayout
    source: Source | None
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
    ):
        require_one_of(f"{type(self).__name__}.scheme", scheme, transport.SCHEMES)
        self.flow = incompressible.Incompressible(domain, sides, forces, pressure_solver, None, turbulence, advection)
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides], self.units)
        require_transport(scheme, domain, self.layout)
        check_scalar(domain, sides, scheme)
        check_carried(advection, scheme)
        self.source = source
        self.scheme = scheme

    @classmethod
    def of(cls, setup):
        """The model of a `models.declaration.Setup`."""
        return cls(
            setup.domain, setup.sides, setup.keys.scheme,
            forces=setup.forces("velocity") or None,
            source=setup.source(cls.carried),
            pressure_solver=setup.keys.pressure_solver,
            turbulence=setup.keys.turbulence,
            advection=setup.keys.advection,
        )  # fmt: skip

    @abc.abstractmethod
    def with_flow(self, flow: incompressible.State, scalar: Array) -> Any:
        """The state of a flow and the scalar, or their tendency."""

    @property
    def domain(self) -> Domain:
        return self.flow.domain

    def scalar(self, state) -> Array:
        """The carried scalar of a state."""
        return getattr(state, self.carried)

    def scalar_tendency(self, t, state, params) -> Array:
        """-div(u c) + D lap(c) + s."""
        scheme, c = transport.SCHEMES[self.scheme], self.scalar(state)

        def tendency(c, velocity, rings, h):
            advection = transport.advection_tendency(c, velocity, scheme, h, *rings)
            return advection + params.diffusivity * transport.laplacian(c, h, scheme, *rings)

        rings = tapers_of(self.domain, self.layout, c)
        layouts = (self.layout, self.flow.layouts_at(t, state, scheme.width), (self.layout,) * len(rings))
        slope = self.domain.apply_spaced(tendency, (c, state.velocity, rings), layouts, scheme.width, t)
        if self.flow.momentum.has_eddies(params):
            layouts = self.flow.layouts_at(t, state, scheme.reach + 2)
            eddies = self.flow.momentum.eddy_diffusion(
                t, self.scalar(state), self.layout, state.velocity, layouts, params, scheme.reach
            )
            slope = slope + params.eddy_share * eddies
        return slope if self.source is None else slope + self.made_by_source(t, params, slope.dtype)

    def made_by_source(self, t, params, dtype) -> Array:
        """Rate at which the source makes the scalar."""
        assert self.source is not None
        return self.source(t, self.domain.coordinates(self.layout.offset, dtype), params)

    def widths(self, dtype) -> tuple[Spacing, ...]:
        """Widths of cells as the scheme has them."""
        return widths(self.domain, self.layout, transport.SCHEMES[self.scheme], dtype)

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
        return self.flow.unbalanced(names)

    def passing(self, t, state, params, axis, side):
        scheme, domain, ndim = transport.SCHEMES[self.scheme], self.domain, self.domain.grid.ndim

        def carried(c, *others):
            *velocity, _ = others
            return transport.flux_on_faces(c, transport.carried_by(velocity, scheme), scheme, axis, ndim)

        def conducted(c, h):
            return transport.conducted(c, params.diffusivity, along(h[axis], axis, ndim, 1), axis, ndim)

        c = self.scalar(state)
        fields, layouts = (c, *state.velocity), (self.layout, *self.flow.layouts_at(t, state, scheme.width))
        flux = at_side(domain, carried, fields, layouts, scheme.width, axis, side, t)
        flux = flux - at_side(domain, conducted, (c,), (self.layout,), 1, axis, side, t)
        if self.flow.momentum.has_eddies(params):
            kinds, reach = self.flow.layouts_at(t, state, scheme.reach + 2), scheme.reach
            eddies = self.flow.momentum.eddy_flux(t, c, self.layout, state.velocity, kinds, params, reach, axis, side)
            flux = flux - params.eddy_share * eddies
        own = through_side(domain, flux, self.widths(flux.dtype), axis, side)
        return {**self.flow.passing(t, state, params, axis, side), self.carried: own}

    def balanced(self):
        own = total_measure(self.carried, self.layout.units, dimensions(self.domain.grid))
        return {self.carried: own, **self.flow.balanced()}

    def amounts(self, state, params):
        c = self.scalar(state)
        return {**self.flow.amounts(state, params), self.carried: inside(self.domain, c, c, self.widths(c.dtype))}

    def is_closed(self, axis):
        return self.layout.is_periodic(axis)

    def constrain(self, t, dt, state, params):
        return self.with_flow(self.flow.constrain(t, dt, state, params), self.scalar(state))

    def fault(self, t, params):
        return self.flow.fault(t, params)

    def explain(self, t, params):
        return self.flow.explain(t, params)

    def stable_dt(self, state, params):
        """The step of the flow with the larger of viscosity and diffusivity."""
        larger = jnp.maximum(params.viscosity, params.diffusivity)
        spread = jnp.maximum(params.eddy_share, 1) if self.flow.momentum.has_eddies(params) else 1.0
        return self.flow.longest_step(state, dataclasses.replace(params, viscosity=larger), spread)

    def acceleration(self, t, state, params) -> Sequence[Array | None] | None:
        """The acceleration of the flow by the scalar, a field for each component, if any."""
        return None

    def diagnostics(self, t, state, params):
        """Diagnostics of the flow, and total, mean, variance, minimum and maximum of the scalar."""
        c, domain = self.scalar(state), self.domain
        found = self.flow.diagnostics(t, state, params, self.acceleration(t, state, params))
        of_cells = relative_volumes(domain, self.layout, self.widths(c.dtype), c.dtype)
        return found | statistics(domain, c, of_cells, self.carried)

    def measures(self):
        return self.flow.measures() | statistics_measures(self.domain, self.units, self.carried)

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
        return (Output(self.carried, self.layout.offset, self.units, self.carried), *self.flow.outputs())


def check_carrying(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration of a flow that carries a scalar."""
    yield from check_momentum(config)
    yield from check_scalar_configuration(config)
    yield from scalar_refusals(config.physics.advection, config.physics.scheme)


def passes_sides(config: Any) -> bool:
    """Tell whether a carried scalar may pass a side of a configuration."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    return is_open(config) or any({*wall.fields} - {"velocity"} for wall in walls)
