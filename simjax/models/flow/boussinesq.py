"""Incompressible flow that heat drives, by Boussinesq's approximation."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.grid import AXES
from simjax.models.declaration import model
from simjax.models.flow import carrying, incompressible, several_scalars
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solid_setup import SOLID, SOLID_VELOCITY, surface_fields
from simjax.models.flow.bodies.surface_readings import names_along
from simjax.models.flow.carrying import check_carrying
from simjax.models.flow.features import EXCLUSIONS
from simjax.models.flow.several_scalars import SCALARS, SeveralScalars, check_scalars, one_per_scalar, scalar_params
from simjax.models.flow.step.budgets import BUOYANCY, FORCES, budget_names
from simjax.models.flow.step.momentum import EDDY_VISCOSITY, momentum_params
from simjax.models.flow.step.momentum_fluxes import flux_names
from simjax.models.fluid_outputs import RANK_OF_TEMPERATURE
from simjax.models.scalar.conserved_scalar import Source
from simjax.ops import scalar_fluxes, staggered
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.kinds import Choice, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema


class State(incompressible.State):
    """temperature, and any number of scalars: `(*grid.shape)` each, cell centres."""

    temperature: Array
    scalars: tuple[Array, ...] = ()


class Params(several_scalars.Params):
    """diffusivity kappa: of heat, length^2 / time. expansion beta: 1 / temperature. reference T0: a temperature.

    gravity g: `(ndim,)`, length / time^2.
    """

    diffusivity: Array
    expansion: Array
    reference: Array
    gravity: Array

    def __check_init__(self):
        require_at_least("Boussinesq.Params", {"diffusivity": self.diffusivity})


def _check(config: Any) -> Iterator[tuple[str, str]]:
    yield from check_carrying(config, "temperature")
    yield from check_scalars(config)


@model(
    "boussinesq",
    fields=(FieldSchema("temperature", units="K"), incompressible.VELOCITY, SCALARS),
    sides=("flow with heat", "flow.outflow", "flow.open", "flow.wall_model"),
    diagnosed=incompressible.flow_variables,
    along_bodies=names_along("temperature"),
    least_axes=2,
    stretched=True,
    axisymmetric=True,
    coefficients=(SOLID, SOLID_VELOCITY, *surface_fields("temperature", "K"), EDDY_VISCOSITY),
    exclusions=EXCLUSIONS,
    check=_check,
    balanced=lambda ndim, counts: (
        "temperature",
        *budget_names(ndim),
        *(f"scalar_{number}" for number in range(counts.get("scalars", 0))),
    ),
    passing=lambda ndim, counts: (
        "temperature",
        *flux_names(ndim),
        *(f"scalar_{number}" for number in range(counts.get("scalars", 0))),
    ),
)
class Boussinesq(SeveralScalars):
    """du/dt = -div(u u) - grad(p) + nu lap(u) - alpha u - beta (T - T0) g + f, dT/dt = -div(u T) + kappa lap(T) + s.

    u velocity with div(u) = 0, T temperature, p kinematic pressure less the hydrostatic one at T0, g gravity, beta
    thermal expansion, nu viscosity, kappa thermal diffusivity, alpha linear drag; f and s are added (Boussinesq 1903;
    Spiegel and Veronis 1960, Astrophys. J. 131, 442: where beta (T - T0) and heights over the scale height are small).
    The flow as in `Incompressible`, its sides and its time step; heat by one of `ops.scalar_fluxes.SCHEMES`, through
    the same faces, and out of walls where their temperature or its slope is given. The temperature at a face is the
    mean of the two cells beside it. Takes stretched grids, and axisymmetric ones with gravity along z.

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
    class Keys(carrying.Keys):
        diffusivity: float = key(Real(low=0.0), 0.0, units="m2 s-1", about="thermal diffusivity kappa")
        expansion: float = key(Real(), 1.0, units="K-1", about="thermal expansion beta")
        reference_temperature: float = key(Real(), 0.0, units="K", about="T0, at which nothing rises")
        gravity: tuple[float, ...] = key(
            ListOf(Real(), 1, 3, noun="numbers, one per axis", per_axis=True),
            units="m s-2",
            about="acceleration of gravity",
        )
        scheme: str = key(Choice(tuple(scalar_fluxes.SCHEMES)), "central", about="advective flux of heat and scalars")
        scalar_diffusivity: tuple[float, ...] = key(
            one_per_scalar(Real(low=0.0)), (), units="m2 s-1", about="diffusivity of each of initial.scalars"
        )
        scalar_expansion: tuple[float, ...] = key(
            one_per_scalar(Real()),
            (),
            about="beta_k of each: 0 does not act on the flow, below 0 it makes the fluid denser",
        )

    carried = "temperature"
    rank = RANK_OF_TEMPERATURE
    units = "K"

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "central",
        *,
        forces: Sequence[incompressible.Force | None] | None = None,
        source: Source | None = None,
        pressure_solver: str = "auto",
        turbulence: str = "none",
        advection: str = "central2",
        surface: SolidSurface | None = None,
        scalars: int = 0,
        scalar_sources: Sequence[Source | None] | None = None,
    ):
        super().__init__(
            domain,
            sides,
            scheme,
            forces=forces,
            source=source,
            pressure_solver=pressure_solver,
            turbulence=turbulence,
            advection=advection,
            surface=surface,
            scalars=scalars,
            scalar_sources=scalar_sources,
        )

    @classmethod
    def configured(cls, setup):
        values, axes = setup.values, AXES[: setup.domain.grid.ndim]
        scalars = {"scalars": setup.config.counts.get("scalars", 0), "scalar_sources": setup.forces("scalars") or None}
        return cls.of(setup, **scalars), Params(
            values["viscosity"],
            values["drag"],
            values["diffusivity"],
            values["expansion"],
            values["reference_temperature"],
            jnp.stack([values[f"gravity_{axis}"] for axis in axes]),
            turbulent_prandtl=values["turbulent_prandtl"],
            **momentum_params(setup),
            **scalar_params(setup),
        )

    def with_flow(self, flow, scalar):
        return State(flow.velocity, scalar, outlets=flow.outlets, reaction=flow.reaction)

    def acceleration(self, t, state, params) -> tuple[Array, ...]:
        """-beta (T - T0) g, less the sum of beta_k s_k g, for each component on its faces."""
        heat, strength = self._on_faces(t, state.temperature, self.layout), -params.expansion * params.gravity
        found = tuple(strength[axis] * (mean - params.reference) for axis, mean in enumerate(heat))
        for number, (s, layout) in enumerate(zip(state.scalars, self.scalar_layouts, strict=True)):
            strength = -params.scalar_expansion[number] * params.gravity
            means = enumerate(self._on_faces(t, s, layout))
            found = tuple(total + strength[axis] * mean for total, (axis, mean) in zip(found, means, strict=True))
        return found

    def _on_faces(self, t, c: Array, layout: FieldLayout) -> tuple[Array, ...]:
        """Means of the two cells beside the faces of each component."""
        ndim = self.domain.grid.ndim

        def on_faces(c):
            return tuple(staggered.mean_to_face(c, axis, ndim) for axis in range(ndim))

        return self.domain.apply(on_faces, c, layout, 1, t)

    def rhs(self, t, state, params):
        flow = self.flow.accelerated(t, state, params, self.acceleration(t, state, params))
        slope = self.with_flow(flow, self.scalar_tendency(t, state, params))
        return dataclasses.replace(slope, scalars=self.scalar_tendencies(t, state, params))

    def unphysical(self, state, params):
        if not self.domain.grid.axisymmetric:
            return {}
        return {"gravity along r": jnp.broadcast_to(params.gravity[RADIAL] != 0, self.domain.block_shape)}

    def made(self, t, state, params):
        pushed = self.flow.pushed(state.velocity, self.acceleration(t, state, params))
        return {**super().made(t, state, params), BUOYANCY: pushed}

    def made_by(self, name):
        found = super().made_by(name)
        return (*found, BUOYANCY) if FORCES in found else found

    def observe(self, t, state, params) -> dict[str, Array]:
        pressure = self.flow.pressure(t, state, params, self.acceleration(t, state, params))
        scalars = {f"scalars_{number}": s for number, s in enumerate(state.scalars)}
        return {"temperature": self.written(t, state)} | scalars | self.flow.observed(t, state, pressure)


Boussinesq.Params, Boussinesq.State = Params, State
