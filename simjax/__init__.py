"""simjax: differentiable simulation for accelerators in JAX. Names are loaded when first used."""

from importlib import import_module

_NAMES = {
    "grid": "Grid",
    "errors": (
        "SimjaxError ConfigurationError NumericalError InputOutputError ResourceError CheckpointError Stopped "
        "Interrupted"
    ),
    "status": "reasons",
    "core.boundary": (
        "Boundary Dirichlet FieldLayout Inflow Neumann NoSlipWall Outflow Periodic PeriodicSide GasInflow "
        "ScalarSide SlipWall center_layout face_layout"
    ),
    "core.domain": "Domain",
    "core.model": "ExplicitModel Model Output",
    "parallel": "decompose distribute make_mesh",
    "integrators.table": "INTEGRATORS",
    "integrators.integrator": "Integrator",
    "stepping.clock": "Clock Schedule",
    "stepping.simulate": "Trajectory advance simulate integrate",
    "stepping.faults": "status_of raise_on_fault",
    "stepping.checkpointing.plan": "Binomial Budget",
    "driver.simulation": "Simulation load configure",
    "driver.result": "Result",
    "driver.differentiable": "RunFunction",
    "driver.build": "register",
    "models.declaration": "model Setup",
    "schema.model_schema": "FieldSchema",
    "schema.kinds": "key Choice Flag Integer ListOf Real Text",
    "models.cell_centred": "CenteredModel",
    "models.spectral.base": "SpectralModel",
    "models.scalar.advection_diffusion": "AdvectionDiffusion",
    "models.flow.incompressible": "Incompressible",
    "models.flow.passive_scalar": "PassiveScalar",
    "models.gas.compressible": "Compressible",
    "models.waves.acoustic": "Acoustic",
    "models.waves.maxwell": "Maxwell",
    "models.flow.vorticity": "Vorticity",
    "models.flow.spectral_velocity": "SpectralVelocity",
    "models.spectral.nonlinear_waves": "ViscousBurgers KortewegDeVries KuramotoSivashinsky",
    "models.spectral.phase_fields": "AllenCahn CahnHilliard",
    "models.spectral.patterns": "SwiftHohenberg GrayScott",
    "models.spectral.schroedinger": "Schroedinger",
    "models.scalar.transport": "Transport",
    "models.scalar.burgers": "Burgers",
    "models.waves.pml": "Absorbing FreeSurface",
    "ops.gas": "GasScheme",
    "models.collocation": "velocity_at_centers velocity_on_faces",
    "particles.cells": "Cells",
    "particles.pairs": "Pairs",
    "particles.neighbor_policy": "Skin",
    "particles.mesh": "ParticleMesh",
    "models.molecular.molecular_dynamics": "MolecularDynamics",
    "models.gravity.gravity": "Gravity",
    "models.sph.sph": "SmoothedParticles",
    "models.plasma.electrostatic": "ElectrostaticPlasma",
    "models.plasma.electromagnetic": "ElectromagneticPlasma",
    "models.closure": "Closure LocalNetwork with_closure",
    "inverse.problem": "InverseProblem",
    "inverse.search": "Search",
    "io.read": "open_run check_run",
    "io.universe": "open_universe",
    "certificate.certify": "certify",
}
"""Module -> the public names in it."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

# What is called otherwise where it is defined.
_OWN_NAMES = {"ViscousBurgers": "Burgers", "GasScheme": "Scheme"}


def __dir__():
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'simjax' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"simjax.{_HOMES[name]}"), _OWN_NAMES.get(name, name))
    return value
