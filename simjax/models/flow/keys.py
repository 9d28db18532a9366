"""Physics keys of a scalar in a uniform velocity, of incompressible flow and of a scalar in that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simjax.models.scalar.keys import SCHEMES
from simjax.schema.kinds import Choice, ListOf, Real, entry
from simjax.schema.model_schema import FLOW_WALLS, SCALAR_WALLS, FieldSchema, ModelSchema


@dataclass(frozen=True)
class AdvectionDiffusionPhysics:
    """dc/dt + a . grad c = kappa lap c."""

    diffusivity: float = entry(Real(low=0.0), units="m2 s-1", about="diffusivity kappa")
    velocity: tuple[float, ...] = entry(
        ListOf(Real(), 1, 3, noun="numbers, one per axis", per_axis=True),
        units="m s-1",
        about="constant velocity a",
    )
    scheme: str = entry(Choice(("central", "upwind")), "central", about="advective flux")


@dataclass(frozen=True)
class IncompressiblePhysics:
    """du/dt + (u . grad) u = -grad p + nu lap u - alpha u + f, div u = 0."""

    viscosity: float = entry(Real(low=0.0), units="m2 s-1", about="kinematic viscosity nu")
    drag: float = entry(Real(low=0.0), 0.0, units="s-1", about="linear drag alpha")


@dataclass(frozen=True)
class PassiveScalarPhysics(IncompressiblePhysics):
    """Incompressible flow and dc/dt = -div(u c) + D lap c + s."""

    diffusivity: float = entry(Real(low=0.0), 0.0, units="m2 s-1", about="diffusivity D of the scalar")
    scheme: str = entry(Choice(SCHEMES), "van_leer", about="advective flux of the scalar")


def _derived(ndim: int) -> tuple[str, ...]:
    return "pressure", "vorticity" if ndim == 2 else "vorticity_magnitude"


def _flow_losing_energy(config: Any) -> tuple[str, ...]:
    return () if "velocity" in config.forcing or not config.walls_at_rest else ("kinetic_energy",)


def _kept_scalar(config: Any) -> tuple[tuple[str, str], ...]:
    return () if "concentration" in config.forcing else (("mean_concentration", "maximum_concentration"),)


SCHEMAS = (
    ModelSchema(
        "advection_diffusion",
        AdvectionDiffusionPhysics,
        fields=(FieldSchema("concentration"),),
        walls=SCALAR_WALLS,
        forced=(),
        conserved=lambda config: (("mean_concentration", "maximum_concentration"),) if config.periodic else (),
    ),
    ModelSchema(
        "incompressible",
        IncompressiblePhysics,
        fields=(FieldSchema("velocity", vector=True, units="m s-1"),),
        walls=FLOW_WALLS,
        diagnosed=_derived,
        least_axes=2,
        falling=_flow_losing_energy,
    ),
    ModelSchema(
        "passive_scalar",
        PassiveScalarPhysics,
        fields=(FieldSchema("concentration"), FieldSchema("velocity", vector=True, units="m s-1")),
        walls={kind: keys for kind, keys in FLOW_WALLS.items() if kind != "inflow"},
        diagnosed=_derived,
        least_axes=2,
        conserved=_kept_scalar,
        falling=_flow_losing_energy,
    ),
)
