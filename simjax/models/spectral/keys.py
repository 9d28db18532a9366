"""Physics keys of the semilinear equations solved in a Fourier basis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, Real, entry
from simjax.schema.model_schema import IMEX, FieldSchema, ModelSchema

INTEGRATORS = ("etdrk4", "etdrk1", "etdrk2", "etdrk3", *IMEX)
"""Schemes for a stiff linear part that is diagonal in the Fourier basis, the default first."""

SPECTRAL: dict[str, Any] = {"walls": {}, "integrators": INTEGRATORS, "limited": False}
"""Properties of the schema of every such equation: periodic, and without a Courant number."""


@dataclass(frozen=True)
class ViscousBurgersPhysics:
    """du/dt = -u du/dx + nu d2u/dx2."""

    viscosity: float = entry(Real(low=0.0), 0.01, units="m2 s-1", about="viscosity nu")


@dataclass(frozen=True)
class KortewegDeVriesPhysics:
    """du/dt = -alpha u du/dx - beta d3u/dx3."""

    nonlinearity: float = entry(Real(), 6.0, about="nonlinearity alpha")
    dispersion: float = entry(Real(), 1.0, about="dispersion beta")


@dataclass(frozen=True)
class KuramotoSivashinskyPhysics:
    """du/dt = -u du/dx - a d2u/dx2 - b d4u/dx4, or of the height whose slope is u."""

    instability: float = entry(Real(), 1.0, about="instability a")
    damping: float = entry(Real(above=0.0), 1.0, about="damping b")
    form: str = entry(Choice(("slope", "height")), "slope", about="what u is: slope of the front, or its height")


@dataclass(frozen=True)
class AllenCahnPhysics:
    """du/dt = M (epsilon^2 lap(u) + u - u^3)."""

    mobility: float = entry(Real(low=0.0), 1.0, units="s-1", about="mobility M")
    epsilon: float = entry(Real(above=0.0), 0.01, units="m", about="thickness epsilon of interfaces")


@dataclass(frozen=True)
class CahnHilliardPhysics:
    """du/dt = M lap(u^3 - u - epsilon^2 lap(u))."""

    mobility: float = entry(Real(low=0.0), 1.0, units="m2 s-1", about="mobility M")
    epsilon: float = entry(Real(above=0.0), 0.01, units="m", about="thickness epsilon of interfaces")


@dataclass(frozen=True)
class SwiftHohenbergPhysics:
    """du/dt = r u - (q^2 + lap)^2 u + g u^2 - u^3."""

    growth: float = entry(Real(), 0.2, about="growth r of waves of the wavenumber q")
    wavenumber: float = entry(Real(low=0.0), 1.0, about="wavenumber q")
    asymmetry: float = entry(Real(), 0.0, about="asymmetry g")


@dataclass(frozen=True)
class GrayScottPhysics:
    """du/dt = D_u lap(u) - u v^2 + F (1 - u), dv/dt = D_v lap(v) + u v^2 - (F + K) v."""

    diffusivity_u: float = entry(Real(low=0.0), 2e-5, units="m2 s-1", about="diffusivity D_u of the fuel")
    diffusivity_v: float = entry(Real(low=0.0), 1e-5, units="m2 s-1", about="diffusivity D_v of the catalyst")
    feed: float = entry(Real(low=0.0), 0.04, units="s-1", about="feed F")
    kill: float = entry(Real(low=0.0), 0.06, units="s-1", about="kill K")


@dataclass(frozen=True)
class SchroedingerPhysics:
    """i dpsi/dt = -lap(psi) / 2 + (V + g |psi|^2) psi."""

    interaction: float = entry(Real(), -1.0, about="interaction g, below zero focusing")


def _one_axis_of_slope(config: Any) -> Iterable[tuple[str, str]]:
    if config.physics.form == "slope" and len(config.grid.shape) > 1:
        yield (
            "physics.form",
            f"physics.form = 'slope': expected 'height' for grid.shape={list(config.grid.shape)}, a slope has "
            "a component per axis; write physics.form=height",
        )


def _schema(
    name: str, physics: type, fields: tuple[str, ...] = ("u",), units: str = "1", **properties: Any
) -> ModelSchema:
    schemas = tuple(FieldSchema(field, units=units) for field in fields)
    return ModelSchema(name, physics, schemas, **(SPECTRAL | properties))


SCHEMAS: tuple[ModelSchema, ...] = (
    _schema("viscous_burgers", ViscousBurgersPhysics, units="m s-1"),
    _schema("korteweg_de_vries", KortewegDeVriesPhysics, dimensionless=True),
    _schema("kuramoto_sivashinsky", KuramotoSivashinskyPhysics, check=_one_axis_of_slope, dimensionless=True),
    _schema("allen_cahn", AllenCahnPhysics),
    _schema("cahn_hilliard", CahnHilliardPhysics),
    _schema("swift_hohenberg", SwiftHohenbergPhysics, dimensionless=True),
    _schema("gray_scott", GrayScottPhysics, ("u", "v")),
    _schema(
        "schroedinger",
        SchroedingerPhysics,
        ("real_part", "imaginary_part"),
        diagnosed=lambda ndim: ("density",),
        coefficients=(FieldSchema("potential", optional=True),),
        forced=(),
        dimensionless=True,
    ),
)
