"""The registry of models: their names, physics keys, fields and walls. Importing it does not import jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simjax.config.kinds import Choice, ListOf, Real, entry

AXES = ("x", "y", "z")

# kind of wall -> the keys that it takes, each filled by one value or one value per component
SCALAR_WALLS: dict[str, tuple[str, ...]] = {
    "dirichlet": ("value",),
    "neumann": ("slope",),
    "inflow": ("value",),
    "outflow": (),
}
FLOW_WALLS: dict[str, tuple[str, ...]] = {
    "no_slip": ("velocity",),
    "slip": (),
    "inflow": ("velocity",),
}


@dataclass(frozen=True)
class FieldSchema:
    """A field with an initial condition: a scalar, or a vector with one component per axis."""

    name: str
    vector: bool = False
    units: str = "1"

    def components(self, ndim: int) -> tuple[str, ...]:
        """Names of the variables in the file: `velocity_x`, ...; a scalar is its own."""
        return tuple(f"{self.name}_{axis}" for axis in AXES[:ndim]) if self.vector else (self.name,)


@dataclass(frozen=True)
class ModelSchema:
    """What a registered model lets a configuration say: its physics keys, fields and kinds of walls."""

    name: str
    physics: type
    fields: tuple[FieldSchema, ...]
    walls: dict[str, tuple[str, ...]]
    diagnosed: Callable[[int], tuple[str, ...]] = lambda ndim: ()
    least_axes: int = 1

    def field(self, name: str) -> FieldSchema:
        return next(field for field in self.fields if field.name == name)

    def variables(self, ndim: int) -> tuple[str, ...]:
        """Everything that can be written: components of fields, then diagnosed variables."""
        return tuple(name for field in self.fields for name in field.components(ndim)) + self.diagnosed(ndim)

    def parameters(self) -> dict[str, Real]:
        """Physics keys that hold one number: they are open to `ensemble.vary`."""
        return {
            field.name: field.metadata["kind"]
            for field in dataclasses.fields(self.physics)
            if isinstance(field.metadata["kind"], Real)
        }

    def formula_names(self, ndim: int) -> tuple[str, ...]:
        """Names of the physics in formulas: parameters, and `key_x`, ... of a key with a number per axis."""
        names: list[str] = []
        for field in dataclasses.fields(self.physics):
            kind = field.metadata["kind"]
            if isinstance(kind, ListOf) and kind.per_axis:
                names += [f"{field.name}_{axis}" for axis in AXES[:ndim]]
            elif isinstance(kind, Real):
                names.append(field.name)
        return tuple(names)


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


MODELS: dict[str, ModelSchema] = {
    schema.name: schema
    for schema in (
        ModelSchema(
            "advection_diffusion",
            AdvectionDiffusionPhysics,
            fields=(FieldSchema("concentration"),),
            walls=SCALAR_WALLS,
        ),
        ModelSchema(
            "incompressible",
            IncompressiblePhysics,
            fields=(FieldSchema("velocity", vector=True, units="m s-1"),),
            walls=FLOW_WALLS,
            diagnosed=lambda ndim: ("pressure", "vorticity" if ndim == 2 else "vorticity_magnitude"),
            least_axes=2,
        ),
    )
}


def declare(name: str, parameters: Mapping[str, float], fields: Sequence[str]) -> None:
    """Add a model with scalar `parameters` (name -> default) and cell-centred scalar `fields`."""
    numbers = [(key, float, entry(Real(), float(value))) for key, value in parameters.items()]
    physics = dataclasses.make_dataclass(f"{name}Physics", numbers, frozen=True)
    MODELS[name] = ModelSchema(name, physics, tuple(FieldSchema(field) for field in fields), SCALAR_WALLS)


def parameter_values(physics: Any) -> dict[str, float]:
    """The numbers of a validated physics section by the names that formulas know (`velocity_x`, ...)."""
    values: dict[str, float] = {}
    for field in dataclasses.fields(physics):
        value = getattr(physics, field.name)
        if isinstance(value, float):
            values[field.name] = value
        elif isinstance(value, tuple):
            values |= {f"{field.name}_{axis}": number for axis, number in zip(AXES, value, strict=False)}
    return values
