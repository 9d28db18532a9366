"""A passive scalar in incompressible flow: dye, smoke, heat without buoyancy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array

from simjax.arguments import require_at_least
from simjax.core.boundary import Side
from simjax.core.domain import Domain
from simjax.models.declaration import model
from simjax.models.flow import carrying, incompressible
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solid_setup import SOLID, SOLID_VELOCITY, surface_fields
from simjax.models.flow.bodies.surface_readings import names_along
from simjax.models.flow.carrying import CarryingFlow, check_carrying, passes_sides
from simjax.models.flow.features import EXCLUSIONS
from simjax.models.flow.step.budgets import budget_names, falling_energy
from simjax.models.flow.step.momentum import EDDY_VISCOSITY, momentum_params
from simjax.models.flow.step.momentum_fluxes import flux_names
from simjax.models.scalar.conserved_scalar import Source
from simjax.ops import scalar_fluxes
from simjax.schema.kinds import Choice, Real, key
from simjax.schema.model_schema import FieldSchema


class State(incompressible.State):
    """concentration: `(*grid.shape)`, cell centres."""

    concentration: Array


class Params(carrying.Params):
    """diffusivity D: of the scalar, length^2 / time."""

    diffusivity: Array

    def __check_init__(self):
        require_at_least("PassiveScalar.Params", {"diffusivity": self.diffusivity})


def _conserved(config: Any) -> tuple[tuple[str, ...], ...]:
    given = {"solid_concentration", "solid_flux"} & {*config.coefficients}
    changed = "concentration" in config.forcing or passes_sides(config) or bool(given)
    return () if changed else (("mean_concentration", "minimum_concentration", "maximum_concentration"),)


@model(
    "passive_scalar",
    fields=(FieldSchema("concentration"), incompressible.VELOCITY),
    sides=("flow with scalar", "flow.outflow", "flow.open", "flow.wall_model"),
    diagnosed=incompressible.flow_variables,
    along_bodies=names_along("concentration"),
    least_axes=2,
    stretched=True,
    axisymmetric=True,
    balanced=lambda ndim, counts: ("concentration", *budget_names(ndim)),
    passing=lambda ndim, counts: ("concentration", *flux_names(ndim)),
    conserved=_conserved,
    falling=falling_energy,
    coefficients=(SOLID, SOLID_VELOCITY, *surface_fields("concentration"), EDDY_VISCOSITY),
    exclusions=EXCLUSIONS,
    check=lambda config: check_carrying(config, "concentration"),
)
class PassiveScalar(CarryingFlow):
    """dc/dt = -div(u c) + D lap(c) + s, with u the velocity of an `Incompressible` flow that c does not act on.

    Fluxes through the same faces on which the flow is free of divergence: the scalar is conserved, and a constant
    stays constant, to rounding. Advection by one of `ops.scalar_fluxes.SCHEMES`, diffusion of second order; one time
    step and its stages are those of the flow. What passes a wall is said by the scalar's value or slope there,
    otherwise nothing; where a velocity is prescribed the scalar is too.
    The limited schemes keep to the range of the initial values, central ones do not where the scalar is not resolved:
    filaments thin to (D / strain rate)^(1/2) (Batchelor 1959, J. Fluid Mech. 5, 113). Takes stretched grids, and
    axisymmetric ones.

    Examples:
        >>> run = sj.configure(
        ...     sj.PassiveScalar, grid={"shape": [16, 16]}, physics={"viscosity": 0.01, "diffusivity": 0.01},
        ...     initial={"velocity": ["sin(2*pi*y)", "0"], "concentration": "x"},
        ...     time={"end": 0.1, "output_every": 0.1},
        ... )
    """

    @dataclass(frozen=True)
    class Keys(carrying.Keys):
        diffusivity: float = key(Real(low=0.0), 0.0, units="m2 s-1", about="diffusivity D of the scalar")
        scheme: str = key(Choice(tuple(scalar_fluxes.SCHEMES)), "van_leer", about="advective flux of the scalar")

    carried = "concentration"
    units = "1"

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "van_leer",
        *,
        forces: Sequence[incompressible.Force | None] | None = None,
        source: Source | None = None,
        pressure_solver: str = "auto",
        turbulence: str = "none",
        advection: str = "central2",
        surface: SolidSurface | None = None,
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
        )

    @classmethod
    def configured(cls, setup):
        values = setup.values
        return cls.of(setup), Params(
            values["viscosity"],
            values["drag"],
            values["diffusivity"],
            turbulent_prandtl=values["turbulent_prandtl"],
            **momentum_params(setup),
        )

    def with_flow(self, flow, scalar):
        return State(flow.velocity, scalar, outlets=flow.outlets, reaction=flow.reaction)

    def rhs(self, t, state, params):
        return self.with_flow(self.flow.rhs(t, state, params), self.scalar_tendency(t, state, params))

    def observe(self, t, state, params) -> dict[str, Array]:
        return {"concentration": self.written(t, state)} | self.flow.observe(t, state, params)


PassiveScalar.Params, PassiveScalar.State = Params, State
