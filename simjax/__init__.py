"""simjax: differentiable simulation for accelerators in JAX. Names are loaded when first used."""

from importlib import import_module

_HOMES = {
    "Boundary": "core.boundary", "Dirichlet": "core.boundary", "FieldLayout": "core.boundary",
    "Inflow": "core.boundary", "Neumann": "core.boundary", "NoSlipWall": "core.boundary",
    "Outflow": "core.boundary", "Periodic": "core.boundary", "PeriodicSide": "core.boundary",
    "GasInflow": "core.boundary", "ScalarSide": "core.boundary", "SlipWall": "core.boundary",
    "center_layout": "core.boundary", "face_layout": "core.boundary",
    "Domain": "core.domain", "Grid": "core.grid",
    "ExplicitModel": "core.model", "Model": "core.model", "Output": "core.model",
    "INTEGRATORS": "integrators.table", "Integrator": "integrators.integrator",
    "Clock": "clock", "Schedule": "clock", "Trajectory": "stepping", "advance": "stepping",
    "simulate": "stepping", "integrate": "stepping", "status_of": "faults", "raise_on_fault": "faults",
    "reasons": "core.status", "Binomial": "adjoint.plan", "Budget": "adjoint.plan",
    "decompose": "parallel", "distribute": "parallel", "make_mesh": "parallel",
    "Simulation": "simulation", "Result": "result", "load": "simulation", "configure": "simulation",
    "RunFunction": "differentiable",
    "register": "build", "CenteredModel": "models.centered", "SpectralModel": "models.spectral",
    # Equations: the class of each, which has its `Params` and `State`.
    "AdvectionDiffusion": "models.advection_diffusion", "Incompressible": "models.incompressible",
    "PassiveScalar": "models.passive_scalar", "Compressible": "models.compressible", "Acoustic": "models.acoustic",
    "Maxwell": "models.maxwell", "Vorticity": "models.vorticity", "SpectralVelocity": "models.spectral_velocity",
    "ViscousBurgers": "models.nonlinear_waves", "KortewegDeVries": "models.nonlinear_waves",
    "KuramotoSivashinsky": "models.nonlinear_waves", "AllenCahn": "models.phase_fields",
    "CahnHilliard": "models.phase_fields", "SwiftHohenberg": "models.patterns", "GrayScott": "models.patterns",
    "Schroedinger": "models.schroedinger", "Transport": "models.transport", "Burgers": "models.burgers",
    "Absorbing": "models.absorbing", "FreeSurface": "models.absorbing", "GasScheme": "ops.gas",
    "velocity_at_centers": "models.collocation", "velocity_on_faces": "models.collocation",
    "Cells": "particles.cells", "Pairs": "particles.pairs", "Skin": "particles.arrangement",
    "ParticleMesh": "particles.mesh", "MolecularDynamics": "models.molecular", "Gravity": "models.gravity",
    "SmoothedParticles": "models.smoothed_particles", "ElectrostaticPlasma": "models.particle_in_cell",
    "ElectromagneticPlasma": "models.electromagnetic_plasma",
    "Closure": "models.closure", "LocalNetwork": "models.closure", "with_closure": "models.closure",
    "InverseProblem": "inversion.problem", "Search": "inversion.search",
    "SimjaxError": "core.errors", "ConfigurationError": "core.errors", "NumericalError": "core.errors",
    "InputOutputError": "core.errors", "ResourceError": "core.errors", "CheckpointError": "core.errors",
    "Stopped": "core.errors", "Interrupted": "core.errors",
    "open_run": "io.read", "check_run": "io.read", "open_universe": "io.universe", "certify": "certify",
}  # fmt: skip

# What is called otherwise where it is defined.
_OWN_NAMES = {"ViscousBurgers": "Burgers", "GasScheme": "Scheme"}


def __dir__():
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'simjax' has no attribute {name!r}")
    value = getattr(import_module(f"simjax.{_HOMES[name]}"), _OWN_NAMES.get(name, name))
    # A module of that name has come by the import, and is called like its function.
    return globals().setdefault(name, value)
