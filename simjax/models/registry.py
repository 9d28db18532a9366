"""The registry of models a configuration can name, and their numbers. Importing it does not import jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from simjax.schema.kinds import ListOf, Real
from simjax.schema.model_schema import AXES, ModelSchema

HOMES = {
    "advection_diffusion": "scalar.advection_diffusion:AdvectionDiffusion",
    "incompressible": "flow.incompressible:Incompressible",
    "passive_scalar": "flow.passive_scalar:PassiveScalar",
    "compressible": "gas.compressible:Compressible",
    "acoustic": "waves.acoustic:Acoustic",
    "maxwell_tm": "waves.maxwell:Maxwell",
    "maxwell_te": "waves.maxwell:Maxwell",
    "maxwell": "waves.maxwell:Maxwell",
    "vorticity": "flow.vorticity:Vorticity",
    "spectral_velocity": "flow.spectral_velocity:SpectralVelocity",
    "viscous_burgers": "spectral.nonlinear_waves:Burgers",
    "korteweg_de_vries": "spectral.nonlinear_waves:KortewegDeVries",
    "kuramoto_sivashinsky": "spectral.nonlinear_waves:KuramotoSivashinsky",
    "allen_cahn": "spectral.phase_fields:AllenCahn",
    "cahn_hilliard": "spectral.phase_fields:CahnHilliard",
    "swift_hohenberg": "spectral.patterns:SwiftHohenberg",
    "gray_scott": "spectral.patterns:GrayScott",
    "schroedinger": "spectral.schroedinger:Schroedinger",
    "transport": "scalar.transport:Transport",
    "burgers": "scalar.burgers:Burgers",
    "molecular_dynamics": "molecular.setup:MolecularFamily",
    "gravity": "gravity.setup:GravityFamily",
    "electrostatic_pic": "plasma.setup:PlasmaFamily",
    "electromagnetic_pic": "plasma.electromagnetic_setup:ElectromagneticFamily",
    "sph": "sph.setup:SmoothedFamily",
}
"""Model -> the module in `models` and the class that declares it (`models.declaration.model`)."""


class Models(Mapping[str, ModelSchema]):
    """Declarations of models, by name; the module of a model is imported when it is asked for."""

    def __init__(self, homes: Mapping[str, str]):
        self._homes = dict(homes)
        self._schemas: dict[str, ModelSchema] = {}

    def __getitem__(self, name: str) -> ModelSchema:
        if name not in self._schemas:
            module, _, model = self._homes[name].partition(":")
            self.add(getattr(import_module(f"simjax.models.{module}"), model).declarations[name])
        return self._schemas[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._homes, **self._schemas})

    def __len__(self) -> int:
        return len({*self._homes, *self._schemas})

    def __contains__(self, name: object) -> bool:
        return name in self._homes or name in self._schemas

    def add(self, schema: ModelSchema) -> None:
        """Make a model known by its name, in the place of another of that name."""
        self._schemas[schema.name] = schema


MODELS = Models(HOMES)


def parameter_values(physics: Any) -> dict[str, float]:
    """The numbers of a validated physics section by the names that formulas know (`velocity_x`, ...)."""
    values: dict[str, float] = {}
    for field in dataclasses.fields(physics):
        kind, value = field.metadata["kind"], getattr(physics, field.name)
        if isinstance(kind, Real) and value is not None and not field.metadata["fixed"]:
            values[field.name] = value
        elif isinstance(kind, ListOf) and kind.per_axis:
            values |= {f"{field.name}_{axis}": number for axis, number in zip(AXES, value or (0.0,) * 3, strict=False)}
    return values


def named_numbers(config: Any) -> dict[str, float]:
    """Every number of a configuration by its name in formulas; keys of the section particles begin with `start_`."""
    values = {**parameter_values(config.physics), **config.parameters}
    if config.particles is not None:
        values |= {f"start_{name}": value for name, value in parameter_values(config.particles).items()}
    return values


def parameter_attributes(physics: type, ndim: int) -> dict[str, dict[str, str]]:
    """Units and meanings of the numbers of a section, by the names of `parameter_values`, as its keys declare them."""
    found: dict[str, dict[str, str]] = {}
    for field in dataclasses.fields(physics):
        about, units = field.metadata["about"], field.metadata["units"]
        kind, meaning = field.metadata["kind"], (about or field.name.replace("_", " "))
        if isinstance(kind, ListOf) and kind.per_axis:
            found |= {
                f"{field.name}_{axis}": {"long_name": f"{meaning}, {axis}", "units": units} for axis in AXES[:ndim]
            }
        else:
            found[field.name] = {"long_name": meaning, "units": units}
    return found
