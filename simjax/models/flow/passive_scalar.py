"""A passive scalar in incompressible flow: dye, smoke, heat without buoyancy."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Output
from simjax.models.axisymmetric import relative_volumes
from simjax.models.conserved import Balanced, at_side, inside, through_side
from simjax.models.declaration import model
from simjax.models.flow import incompressible
from simjax.models.flow.openings import is_open, with_outlet_specs
from simjax.models.measures import total_measure
from simjax.models.scalar.transport import Source, statistics, statistics_measures, widths
from simjax.models.stretching import require_transport
from simjax.ops import transport
from simjax.ops.spacing import Spacing, along
from simjax.schema.kinds import Choice, Real, key
from simjax.schema.model_schema import FieldSchema


class State(incompressible.State):
    """concentration: `(*grid.shape)`, cell centres."""

    concentration: Array


class Params(incompressible.Params):
    """diffusivity D: of the scalar, length^2 / time."""

    diffusivity: Array

    def __check_init__(self):
        require_at_least("PassiveScalar.Params", {"diffusivity": self.diffusivity})


def _conserved(config: Any) -> tuple[tuple[str, str], ...]:
    changed = "concentration" in config.forcing or passes_sides(config)
    return () if changed else (("mean_concentration", "maximum_concentration"),)


@model(
    "passive_scalar",
    fields=(FieldSchema("concentration"), incompressible.VELOCITY),
    sides=("flow with scalar", "flow.outflow", "flow.open"),
    diagnosed=incompressible.flow_variables,
    least_axes=2,
    stretched=True,
    balanced=lambda ndim, counts: ("concentration",),
    conserved=_conserved,
    falling=incompressible.falling_energy,
)
class PassiveScalar(ExplicitModel, Balanced):
    """dc/dt = -div(u c) + D lap(c) + s, with u the velocity of an `Incompressible` flow that c does not act on.

    Fluxes through the same faces on which the flow is free of divergence: the scalar is conserved, and a constant
    stays constant, to rounding. Advection by one of `ops.transport.SCHEMES`, diffusion of second order; one time step
    and its stages are those of the flow. What passes a wall is said by the scalar's value or slope there, otherwise
    nothing; where a velocity is prescribed the scalar is too.
    The limited schemes keep to the range of the initial values, central ones do not where the scalar is not resolved:
    filaments thin to (D / strain rate)^(1/2) (Batchelor 1959, J. Fluid Mech. 5, 113). Takes stretched grids.

    Examples:
        >>> run = sj.configure(
        ...     sj.PassiveScalar, grid={"shape": [16, 16]}, physics={"viscosity": 0.01, "diffusivity": 0.01},
        ...     initial={"velocity": ["sin(2*pi*y)", "0"], "concentration": "x"},
        ...     time={"end": 0.1, "output_every": 0.1},
        ... )
    """

    @dataclass(frozen=True)
    class Keys(incompressible.Incompressible.Keys):
        diffusivity: float = key(Real(low=0.0), 0.0, units="m2 s-1", about="diffusivity D of the scalar")
        scheme: str = key(Choice(tuple(transport.SCHEMES)), "van_leer", about="advective flux of the scalar")

    flow: incompressible.Incompressible
    layout: FieldLayout
    source: Source | None
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "van_leer",
        *,
        forces: Sequence[incompressible.Force | None] | None = None,
        source: Source | None = None,
        pressure_solver: str = "auto",
    ):
        require_one_of("PassiveScalar.scheme", scheme, transport.SCHEMES)
        self.flow = incompressible.Incompressible(domain, sides, forces, pressure_solver)
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides])
        require_transport(scheme, domain, self.layout)
        self.source = source
        self.scheme = scheme

    @classmethod
    def configured(cls, setup):
        model = cls(
            setup.domain, setup.sides, setup.keys.scheme,
            forces=setup.forces("velocity") or None,
            source=setup.source("concentration"),
            pressure_solver=setup.keys.pressure_solver,
        )  # fmt: skip
        values = setup.values
        return model, Params(values["viscosity"], values["drag"], values["diffusivity"])

    @property
    def domain(self) -> Domain:
        return self.flow.domain

    def rhs(self, t, state, params):
        slope = scalar_tendency(self.flow, self.layout, self.scheme, t, state, state.concentration, params.diffusivity)
        if self.source is not None:
            slope = slope + self._made(t, params, slope.dtype)
        return _with_scalar(self.flow.rhs(t, state, params), slope)

    def _made(self, t, params, dtype) -> Array:
        """Rate at which the source makes the scalar."""
        assert self.source is not None
        return self.source(t, self.domain.coordinates(self.layout.offset, dtype), params)

    def made(self, t, state, params):
        c = state.concentration
        if self.source is None:
            return {}
        return {"concentration": inside(self._made(t, params, c.dtype), c, self._widths(c.dtype))}

    def passing(self, t, state, params, axis, side):
        scheme, domain, ndim = transport.SCHEMES[self.scheme], self.domain, self.domain.grid.ndim

        def carried(c, *others):
            *velocity, _ = others
            return transport.flux_on_faces(c, transport.carried_by(velocity, scheme), scheme, axis, ndim)

        def conducted(c, h):
            return transport.conducted(c, params.diffusivity, along(h[axis], axis, ndim, 1), axis, ndim)

        c = state.concentration
        fields, layouts = (c, *state.velocity), (self.layout, *self.flow.layouts_at(t, state, scheme.width))
        flux = at_side(domain, carried, fields, layouts, scheme.width, axis, side, t)
        flux = flux - at_side(domain, conducted, (c,), (self.layout,), 1, axis, side, t)
        return {"concentration": through_side(domain, flux, self._widths(flux.dtype), axis, side)}

    def balanced(self):
        return {"concentration": total_measure("concentration", self.layout.units, self.domain.grid.ndim)}

    def amounts(self, state, params):
        c = state.concentration
        return {"concentration": inside(c, c, self._widths(c.dtype))}

    def is_closed(self, axis):
        return self.layout.is_periodic(axis)

    def _widths(self, dtype) -> tuple[Spacing, ...]:
        """Widths of cells as the scheme has them."""
        return widths(self.domain, self.layout, transport.SCHEMES[self.scheme], dtype)

    def constrain(self, t, dt, state, params):
        return _with_scalar(self.flow.constrain(t, dt, state, params), state.concentration)

    def fault(self, t, params):
        return self.flow.fault(t, params)

    def explain(self, t, params):
        return self.flow.explain(t, params)

    def stable_dt(self, state, params):
        """That of the flow with the larger of viscosity and diffusivity."""
        larger = jnp.maximum(params.viscosity, params.diffusivity)
        return self.flow.stable_dt(state, dataclasses.replace(params, viscosity=larger))

    def diagnostics(self, t, state, params):
        """Diagnostics of the flow and of a transported scalar: total, mean, variance, minimum and maximum."""
        c, domain = state.concentration, self.domain
        of_cells = relative_volumes(domain, self.layout, self._widths(c.dtype), c.dtype)
        return self.flow.diagnostics(t, state, params) | statistics(domain, c, of_cells)

    def measures(self):
        return self.flow.measures() | statistics_measures(self.domain, self.layout.units)

    def component_layouts(self):
        return self.flow.component_layouts() | {"concentration": (self.layout,)}

    def state_from(self, fields, params):
        return _with_scalar(self.flow.state_from(fields, params), fields["concentration"][0])

    def partition_specs(self, state, params):
        state_specs, params_specs = super().partition_specs(state, params)
        return with_outlet_specs(self.domain, state_specs), params_specs

    def free_faces(self, t, state, params):
        return self.flow.free_faces(t, state, params)

    def outputs(self):
        return (Output("concentration", self.layout.offset, self.layout.units, "concentration"), *self.flow.outputs())

    def observe(self, t, state, params) -> dict[str, Array]:
        return {"concentration": state.concentration} | self.flow.observe(t, state, params)


def scalar_tendency(
    flow: incompressible.Incompressible, layout: FieldLayout, scheme: str, t, state: incompressible.State, c: Array,
    diffusivity: Array,
) -> Array:  # fmt: skip
    """-div(u c) + D lap(c) of a scalar at cell centres that a flow carries, by one of `ops.transport.SCHEMES`."""
    advection = transport.SCHEMES[scheme]

    def tendency(c, *others):
        *velocity, h = others
        carried = transport.advection_tendency(c, velocity, advection, h)
        return carried + diffusivity * transport.laplacian(c, h, advection)

    layouts = (layout, *flow.layouts_at(t, state, advection.width))
    return flow.domain.apply_spaced(tendency, (c, *state.velocity), layouts, advection.width, t)


def passes_sides(config: Any) -> bool:
    """Tell whether a carried scalar may pass a side of a configuration."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    return is_open(config) or any({*wall.fields} - {"velocity"} for wall in walls)


def _with_scalar(flow: incompressible.State, concentration: Array) -> State:
    return State(flow.velocity, concentration, outlets=flow.outlets)


PassiveScalar.Params, PassiveScalar.State = Params, State
