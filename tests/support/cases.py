"""Small problems, one for each way in which models, walls and steps combine, for tests that run all of them.

Grids have another size along every axis, so that a mixed-up axis cannot go unnoticed, and stay divisible by all
meshes of eight devices used here. A grid model without problems written for it has the one that its declaration gives.
"""

import cases_flow
import cases_gas
import cases_particles
import cases_spectral
import cases_transport
import cases_waves
from cases_declared import declared

from simjax.models.registry import MODELS

WRITTEN = {
    "advection_diffusion": (
        "advection-1d",
        "advection-2d-walls",
        "advection-2d-periodic",
        "advection-3d-walls",
        "stretched-advection-2d",
        "axisymmetric-advection-2d",
    ),
    "incompressible": (
        "flow-2d-periodic",
        "flow-2d-walls",
        "flow-2d-stretched",
        "flow-2d-outflow",
        "flow-2d-open",
        "flow-2d-central4",
        "flow-2d-upwind",
        "flow-2d-dynamic",
        "flow-2d-implicit",
        "flow-2d-axisymmetric",
        "flow-2d-solid",
        "flow-2d-axisymmetric-solid",
        "flow-2d-moving-solid",
        "flow-2d-free-body",
        "flow-3d-periodic",
        "flow-3d-walls",
        "flow-3d-outflow",
    ),
    "passive_scalar": ("passive-scalar-2d-walls", "passive-scalar-2d-eddies", "passive-scalar-2d-solid"),
    "boussinesq": ("boussinesq-2d-walls", "boussinesq-2d-scalars", "boussinesq-2d-moving-solid"),
    "compressible": (
        "gas-1d-weno",
        "gas-1d-atmosphere",
        "gas-2d-igr",
        "gas-1d-stretched",
        "gas-2d-walls",
        "gas-2d-solid",
        "gas-2d-warm-solid",
        "gas-2d-moving-solid",
        "gas-2d-characteristic",
        "gas-2d-axisymmetric",
        "gas-3d-periodic",
    ),
    "acoustic": ("acoustic-1d", "acoustic-2d", "acoustic-2d-stretched", "acoustic-2d-axisymmetric", "acoustic-3d"),
    "maxwell_te": (
        "maxwell-2d",
        "maxwell-2d-poles",
        "maxwell-2d-incident",
        "maxwell-2d-mode",
        "maxwell-2d-stretched",
        "maxwell-2d-axisymmetric",
    ),
    "maxwell": ("maxwell-3d",),
    "vorticity": ("spectral-vorticity-2d", "spectral-vorticity-2d-courant"),
    "spectral_velocity": ("spectral-velocity-3d",),
    "korteweg_de_vries": ("semilinear-kdv-1d",),
    "gray_scott": ("semilinear-gray-scott-2d",),
    "schroedinger": ("semilinear-schroedinger-2d",),
    "transport": (
        "transport-1d-walls",
        "transport-2d-implicit",
        "transport-2d-stretched",
        "transport-2d-axisymmetric",
        "transport-2d-stretched-implicit",
        "transport-3d-implicit",
    ),
    "burgers": ("burgers-1d-weno5", "burgers-2d-stretched"),
    "molecular_dynamics": ("particles-liquid-2d",),
    "gravity": ("particles-stars-2d",),
    "electrostatic_pic": ("particles-plasma-2d",),
    "electromagnetic_pic": ("particles-radiating-plasma-2d",),
    "sph": ("particles-water-2d",),
}
"""Names of the problems written for a model; every registered model of particles has one."""

KEYS = {"kuramoto_sivashinsky": {"form": "height"}}  # a slope has a component per axis

DECLARED = {name: declared(name, **KEYS.get(name, {})) for name in MODELS if name not in WRITTEN}

CASES = (
    *cases_flow.CASES,
    *cases_gas.CASES,
    *cases_waves.CASES,
    *cases_spectral.CASES,
    *cases_transport.CASES,
    *DECLARED.values(),
    *cases_particles.CASES,
)
