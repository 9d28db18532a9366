"""The registry of models a configuration can name. Importing it does not import jax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from simjax.schema.model_schema import ModelSchema

HOMES = {
    "advection_diffusion": "scalar.advection_diffusion:AdvectionDiffusion",
    "incompressible": "flow.incompressible:Incompressible",
    "passive_scalar": "flow.passive_scalar:PassiveScalar",
    "boussinesq": "flow.boussinesq:Boussinesq",
    "compressible": "gas.compressible:Compressible",
    "acoustic": "waves.acoustic:Acoustic",
    "maxwell_tm": "waves.maxwell:Maxwell",
    "maxwell_te": "waves.maxwell:Maxwell",
    "maxwell": "waves.maxwell:Maxwell",
    "vorticity": "flow.fourier.vorticity:Vorticity",
    "spectral_velocity": "flow.fourier.spectral_velocity:SpectralVelocity",
    "viscous_burgers": "spectral.nonlinear_waves:ViscousBurgers",
    "korteweg_de_vries": "spectral.nonlinear_waves:KortewegDeVries",
    "kuramoto_sivashinsky": "spectral.nonlinear_waves:KuramotoSivashinsky",
    "allen_cahn": "spectral.phase_fields:AllenCahn",
    "cahn_hilliard": "spectral.phase_fields:CahnHilliard",
    "swift_hohenberg": "spectral.patterns:SwiftHohenberg",
    "gray_scott": "spectral.patterns:GrayScott",
    "schroedinger": "spectral.schroedinger:Schroedinger",
    "transport": "scalar.transport:Transport",
    "burgers": "scalar.burgers:Burgers",
    "molecular_dynamics": "molecular.molecular_setup:MolecularFamily",
    "gravity": "gravity.gravity_setup:GravityFamily",
    "electrostatic_pic": "plasma.electrostatic_setup:PlasmaFamily",
    "electromagnetic_pic": "plasma.electromagnetic_setup:ElectromagneticFamily",
    "sph": "sph.sph_setup:SmoothedFamily",
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
        """Register a model by name; it replaces an earlier model of that name."""
        self._schemas[schema.name] = schema


MODELS = Models(HOMES)
