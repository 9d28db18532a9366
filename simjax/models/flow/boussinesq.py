"""Incompressible flow that heat drives, by Boussinesq's approximation."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Output
from simjax.grid import AXES
from simjax.models.axisymmetric import relative_volumes
from simjax.models.declaration import model
from simjax.models.flow import incompressible
from simjax.models.flow.openings import with_outlet_specs
from simjax.models.flow.passive_scalar import scalar_tendency
from simjax.models.scalar.transport import Source, statistics, statistics_measures, widths
from simjax.models.stretching import require_transport
from simjax.ops import staggered, transport
from simjax.schema.kinds import Choice, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema


class State(incompressible.State):
    """temperature: `(*grid.shape)`, cell centres."""

    temperature: Array


class Params(incompressible.Params):
    """diffusivity kappa: of heat, length^2 / time. expansion beta: 1 / temperature. reference T0: a temperature.

    gravity g: `(ndim,)`, length / time^2.
    """

    diffusivity: Array
    expansion: Array
    reference: Array
    gravity: Array

    def __check_init__(self):
        require_at_least("Boussinesq.Params", {"diffusivity": self.diffusivity})


@model(
    "boussinesq",
    fields=(FieldSchema("temperature", units="K"), incompressible.VELOCITY),
    sides=("flow with heat", "flow.outflow", "flow.open"),
    diagnosed=incompressible.flow_variables,
    least_axes=2,
    stretched=True,
)
class Boussinesq(ExplicitModel):
    """du/dt = -div(u u) - grad(p) + nu lap(u) - alpha u - beta (T - T0) g + f, dT/dt = -div(u T) + kappa lap(T) + s.

    u velocity with div(u) = 0, T temperature, p kinematic pressure less the hydrostatic one at T0, g gravity, beta
    thermal expansion, nu viscosity, kappa thermal diffusivity, alpha linear drag; f and s are added (Boussinesq 1903;
    Spiegel and Veronis 1960, Astrophys. J. 131, 442: where beta (T - T0) and heights over the scale height are small).
    The flow as in `Incompressible`, its sides and its time step; heat by one of `ops.transport.SCHEMES`, through the
    same faces, and out of walls where their temperature or its slope is given. The temperature at a face is the mean
    of the two cells beside it. Takes stretched grids.

    Rayleigh's number is beta |g| dT L^3 / (nu kappa), Prandtl's nu / kappa.

    Examples:
        >>> numbers = {"viscosity": 0.01, "diffusivity": 0.01, "expansion": 1.0, "gravity": [0.0, -1.0]}
        >>> run = sj.configure(
        ...     sj.Boussinesq, grid={"shape": [16, 16]}, physics=numbers, boundaries={"y": "no_slip"},
        ...     initial={"velocity": ["0", "0"], "temperature": "0.1*sin(2*pi*x)"},
        ...     time={"end": 0.1, "output_every": 0.1},
        ... )
    """

    @dataclass(frozen=True, kw_only=True)
    class Keys(incompressible.Incompressible.Keys):
        diffusivity: float = key(Real(low=0.0), 0.0, units="m2 s-1", about="thermal diffusivity kappa")
        expansion: float = key(Real(), 1.0, units="K-1", about="thermal expansion beta")
        reference_temperature: float = key(Real(), 0.0, units="K", about="T0, at which nothing rises")
        gravity: tuple[float, ...] = key(
            ListOf(Real(), 1, 3, noun="numbers, one per axis", per_axis=True), units="m s-2",
            about="acceleration of gravity",
        )  # fmt: skip
        scheme: str = key(Choice(tuple(transport.SCHEMES)), "central", about="advective flux of heat")

    flow: incompressible.Incompressible
    layout: FieldLayout
    source: Source | None
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "central",
        *,
        forces: Sequence[incompressible.Force | None] | None = None,
        source: Source | None = None,
        pressure_solver: str = "auto",
    ):
        require_one_of("Boussinesq.scheme", scheme, transport.SCHEMES)
        self.flow = incompressible.Incompressible(domain, sides, forces, pressure_solver)
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides], "K")
        require_transport(scheme, domain, self.layout)
        self.source = source
        self.scheme = scheme

    @classmethod
    def configured(cls, setup):
        model = cls(
            setup.domain, setup.sides, setup.keys.scheme,
            forces=setup.forces("velocity") or None,
            source=setup.source("temperature"),
            pressure_solver=setup.keys.pressure_solver,
        )  # fmt: skip
        values, axes = setup.values, AXES[: setup.domain.grid.ndim]
        return model, Params(
            values["viscosity"], values["drag"], values["diffusivity"], values["expansion"],
            values["reference_temperature"], jnp.stack([values[f"gravity_{axis}"] for axis in axes]),
        )  # fmt: skip

    @property
    def domain(self) -> Domain:
        return self.flow.domain

    def buoyancy(self, t, state, params) -> tuple[Array, ...]:
        """-beta (T - T0) g, for each component on its faces."""

        def on_faces(temperature):
            ndim = self.domain.grid.ndim
            return tuple(staggered.mean_to_face(temperature, axis, ndim) for axis in range(ndim))

        means = self.domain.apply(on_faces, state.temperature, self.layout, 1, t)
        strength = -params.expansion * params.gravity
        return tuple(strength[axis] * (mean - params.reference) for axis, mean in enumerate(means))

    def rhs(self, t, state, params):
        slope = scalar_tendency(self.flow, self.layout, self.scheme, t, state, state.temperature, params.diffusivity)
        if self.source is not None:
            slope = slope + self.source(t, self.domain.coordinates(self.layout.offset, slope.dtype), params)
        return _with_heat(self.flow.accelerated(t, state, params, self.buoyancy(t, state, params)), slope)

    def constrain(self, t, dt, state, params):
        return _with_heat(self.flow.constrain(t, dt, state, params), state.temperature)

    def fault(self, t, params):
        return self.flow.fault(t, params)

    def explain(self, t, params):
        return self.flow.explain(t, params)

    def stable_dt(self, state, params):
        """That of the flow with the larger of viscosity and diffusivity."""
        larger = jnp.maximum(params.viscosity, params.diffusivity)
        return self.flow.stable_dt(state, dataclasses.replace(params, viscosity=larger))

    def diagnostics(self, t, state, params):
        """Diagnostics of the flow, and total, mean, variance, minimum and maximum of the temperature."""
        temperature, domain = state.temperature, self.domain
        scheme = transport.SCHEMES[self.scheme]
        sizes = widths(domain, self.layout, scheme, temperature.dtype)
        of_cells = relative_volumes(domain, self.layout, sizes, temperature.dtype)
        return self.flow.diagnostics(t, state, params) | statistics(domain, temperature, of_cells, "temperature")

    def measures(self):
        return self.flow.measures() | statistics_measures(self.domain, self.layout.units, "temperature")

    def component_layouts(self):
        return self.flow.component_layouts() | {"temperature": (self.layout,)}

    def state_from(self, fields, params):
        return _with_heat(self.flow.state_from(fields, params), fields["temperature"][0])

    def partition_specs(self, state, params):
        state_specs, params_specs = super().partition_specs(state, params)
        return with_outlet_specs(self.domain, state_specs), params_specs

    def free_faces(self, t, state, params):
        return self.flow.free_faces(t, state, params)

    def outputs(self):
        return (Output("temperature", self.layout.offset, "K", "temperature"), *self.flow.outputs())

    def observe(self, t, state, params) -> dict[str, Array]:
        pressure = self.flow.pressure(t, state, params, self.buoyancy(t, state, params))
        return {"temperature": state.temperature} | self.flow.observed(t, state, pressure)


def _with_heat(flow: incompressible.State, temperature: Array) -> State:
    return State(flow.velocity, temperature, outlets=flow.outlets)


Boussinesq.Params, Boussinesq.State = Params, State
