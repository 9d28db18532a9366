"""simjax: differentiable simulation for accelerators in JAX. Names are loaded when first used."""

import time as _time
from importlib import import_module
from typing import TYPE_CHECKING

_IMPORTED_AT, _COMPUTED_BEFORE = _time.monotonic(), _time.process_time()
"""When simjax was imported, and for how many seconds the process had computed by then (`environment.process_start`)."""

_NAMES = {
    # a run from a configuration
    "driver.simulation": "Simulation",
    "driver.configured": "load configure",
    "driver.result": "Result",
    "driver.goodput": "Goodput goodput",
    "report.picture": "Picture",
    "driver.differentiable": "RunFunction",
    "io.read": "open_run open_output check_files",
    "io.universe": "open_universe",
    "io.windows": "TrajectoryWindows",
    "data.batches": "batches",
    # learned terms
    "learning.learner": "Learner",
    "learning.training": "Stage train",
    "learning.loss": "WindowLoss",
    "learning.rollout_loss": "RolloutLoss",
    "learning.low_rank": "LowRank",
    "learning.paths": "array_paths",
    "learning.flax_module": "from_flax",
    # inverse problems, certificates, programs
    "inverse.problem": "InverseProblem",
    "inverse.search": "Search",
    "certificate.certify": "certify",
    "inspect.inspect_program": "inspect_program",
    # grids, sides, devices
    "grid": "Grid Lines",
    "core.boundary": (
        "Boundary Dirichlet FieldLayout Inflow Neumann NoSlipWall Outflow Periodic PeriodicSide "
        "ScalarSide Side SlipWall center_layout face_layout"
    ),
    "models.robin": "Robin ExchangeSide",
    "models.flow.openings": "OpenSide",
    "models.flow.turbulent_inflow": "TurbulentInflow",
    "models.flow.wall_model": "WallModel",
    "models.gas.boundaries": "GasInflow GasOutflow GasWall",
    "models.waves.pml": "AbsorbingSide FreeSurface",
    "core.domain": "Domain",
    "parallel": "decompose distribute make_mesh",
    # time
    "stepping.clock": "Clock Schedule",
    "stepping.simulate": "Trajectory advance simulate integrate",
    "stepping.checkpointing.plan": "Binomial Budget",
    "stepping.faults": "status_of raise_on_fault",
    "integrators.adaptive": "error_controlled",
    "integrators.stochastic": "stochastic",
    "integrators.table": "INTEGRATORS",
    "integrators.integrator": "Integrator",
    "integrators.storage": "Stored",
    # a model of one's own
    "core.model": "ExplicitModel Measure Model Output",
    "models.cell_centred": "CenteredModel",
    "models.spectral.base": "SpectralModel",
    "models.declaration": "model Setup",
    "schema.sides": "side",
    "driver.build": "register",
    "schema.model_schema": "FieldSchema",
    "schema.kinds": "key Choice Flag Integer ListOf Real Text",
    "models.closure": "Closure LocalNetwork with_closure",
    "models.collocation": "velocity_at_centers velocity_on_faces",
    # equations of fields
    "models.scalar.advection_diffusion": "AdvectionDiffusion",
    "models.scalar.transport": "Transport",
    "models.scalar.burgers": "Burgers",
    "models.flow.incompressible": "Incompressible",
    "models.flow.solids": "Solid",
    "models.flow.free_body": "body_params",
    "instruments.body_surface": "nearest_points rays_around",
    "models.flow.solid_scalars": "SolidSurface",
    "models.flow.passive_scalar": "PassiveScalar",
    "models.flow.boussinesq": "Boussinesq",
    "models.flow.vorticity": "Vorticity",
    "models.flow.spectral_velocity": "SpectralVelocity",
    "models.gas.compressible": "Compressible",
    "ops.gas": "GasScheme",
    "models.waves.acoustic": "Acoustic",
    "models.waves.maxwell": "Maxwell",
    "models.spectral.nonlinear_waves": "ViscousBurgers KortewegDeVries KuramotoSivashinsky",
    "models.spectral.phase_fields": "AllenCahn CahnHilliard",
    "models.spectral.patterns": "SwiftHohenberg GrayScott",
    "models.spectral.schroedinger": "Schroedinger",
    # particles
    "models.molecular.molecular_dynamics": "MolecularDynamics",
    "models.molecular.pair_potentials": "PairPotential DistancePotential",
    "models.gravity.gravity": "Gravity",
    "models.plasma.electrostatic": "ElectrostaticPlasma",
    "models.plasma.electromagnetic": "ElectromagneticPlasma",
    "models.sph.sph": "WeaklyCompressibleSPH",
    "particles.cells": "Cells",
    "particles.pairs": "Pairs",
    "particles.neighbor_policy": "NeighborPolicy",
    "particles.mesh": "ParticleMesh",
    # what goes wrong
    "errors": (
        "SimjaxError ConfigurationError NumericalError InputOutputError ResourceError CheckpointError "
        "Stopped Interrupted"
    ),
    "status": "reasons",
}
"""Module -> the public names in it, by subject."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

# What is called otherwise where it is defined.
_OWN_NAMES = {"ViscousBurgers": "Burgers", "GasScheme": "Scheme"}

if TYPE_CHECKING:  # the same names for editors and type checkers, which run nothing
    __version__: str
    from simjax.certificate.certify import certify as certify
    from simjax.core.boundary import Boundary as Boundary
    from simjax.core.boundary import Dirichlet as Dirichlet
    from simjax.core.boundary import FieldLayout as FieldLayout
    from simjax.core.boundary import Inflow as Inflow
    from simjax.core.boundary import Neumann as Neumann
    from simjax.core.boundary import NoSlipWall as NoSlipWall
    from simjax.core.boundary import Outflow as Outflow
    from simjax.core.boundary import Periodic as Periodic
    from simjax.core.boundary import PeriodicSide as PeriodicSide
    from simjax.core.boundary import ScalarSide as ScalarSide
    from simjax.core.boundary import Side as Side
    from simjax.core.boundary import SlipWall as SlipWall
    from simjax.core.boundary import center_layout as center_layout
    from simjax.core.boundary import face_layout as face_layout
    from simjax.core.domain import Domain as Domain
    from simjax.core.model import ExplicitModel as ExplicitModel
    from simjax.core.model import Measure as Measure
    from simjax.core.model import Model as Model
    from simjax.core.model import Output as Output
    from simjax.data.batches import batches as batches
    from simjax.driver.build import register as register
    from simjax.driver.configured import configure as configure
    from simjax.driver.configured import load as load
    from simjax.driver.differentiable import RunFunction as RunFunction
    from simjax.driver.goodput import Goodput as Goodput
    from simjax.driver.goodput import goodput as goodput
    from simjax.driver.result import Result as Result
    from simjax.driver.simulation import Simulation as Simulation
    from simjax.errors import CheckpointError as CheckpointError
    from simjax.errors import ConfigurationError as ConfigurationError
    from simjax.errors import InputOutputError as InputOutputError
    from simjax.errors import Interrupted as Interrupted
    from simjax.errors import NumericalError as NumericalError
    from simjax.errors import ResourceError as ResourceError
    from simjax.errors import SimjaxError as SimjaxError
    from simjax.errors import Stopped as Stopped
    from simjax.grid import Grid as Grid
    from simjax.grid import Lines as Lines
    from simjax.inspect.inspect_program import inspect_program as inspect_program
    from simjax.instruments.body_surface import nearest_points as nearest_points
    from simjax.instruments.body_surface import rays_around as rays_around
    from simjax.integrators.adaptive import error_controlled as error_controlled
    from simjax.integrators.integrator import Integrator as Integrator
    from simjax.integrators.stochastic import stochastic as stochastic
    from simjax.integrators.storage import Stored as Stored
    from simjax.integrators.table import INTEGRATORS as INTEGRATORS
    from simjax.inverse.problem import InverseProblem as InverseProblem
    from simjax.inverse.search import Search as Search
    from simjax.io.read import check_files as check_files
    from simjax.io.read import open_output as open_output
    from simjax.io.read import open_run as open_run
    from simjax.io.universe import open_universe as open_universe
    from simjax.io.windows import TrajectoryWindows as TrajectoryWindows
    from simjax.learning.flax_module import from_flax as from_flax
    from simjax.learning.learner import Learner as Learner
    from simjax.learning.loss import WindowLoss as WindowLoss
    from simjax.learning.low_rank import LowRank as LowRank
    from simjax.learning.paths import array_paths as array_paths
    from simjax.learning.rollout_loss import RolloutLoss as RolloutLoss
    from simjax.learning.training import Stage as Stage
    from simjax.learning.training import train as train
    from simjax.models.cell_centred import CenteredModel as CenteredModel
    from simjax.models.closure import Closure as Closure
    from simjax.models.closure import LocalNetwork as LocalNetwork
    from simjax.models.closure import with_closure as with_closure
    from simjax.models.collocation import velocity_at_centers as velocity_at_centers
    from simjax.models.collocation import velocity_on_faces as velocity_on_faces
    from simjax.models.declaration import Setup as Setup
    from simjax.models.declaration import model as model
    from simjax.models.flow.boussinesq import Boussinesq as Boussinesq
    from simjax.models.flow.free_body import body_params as body_params
    from simjax.models.flow.incompressible import Incompressible as Incompressible
    from simjax.models.flow.openings import OpenSide as OpenSide
    from simjax.models.flow.passive_scalar import PassiveScalar as PassiveScalar
    from simjax.models.flow.solid_scalars import SolidSurface as SolidSurface
    from simjax.models.flow.solids import Solid as Solid
    from simjax.models.flow.spectral_velocity import SpectralVelocity as SpectralVelocity
    from simjax.models.flow.turbulent_inflow import TurbulentInflow as TurbulentInflow
    from simjax.models.flow.vorticity import Vorticity as Vorticity
    from simjax.models.flow.wall_model import WallModel as WallModel
    from simjax.models.gas.boundaries import GasInflow as GasInflow
    from simjax.models.gas.boundaries import GasOutflow as GasOutflow
    from simjax.models.gas.boundaries import GasWall as GasWall
    from simjax.models.gas.compressible import Compressible as Compressible
    from simjax.models.gravity.gravity import Gravity as Gravity
    from simjax.models.molecular.molecular_dynamics import MolecularDynamics as MolecularDynamics
    from simjax.models.molecular.pair_potentials import DistancePotential as DistancePotential
    from simjax.models.molecular.pair_potentials import PairPotential as PairPotential
    from simjax.models.plasma.electromagnetic import ElectromagneticPlasma as ElectromagneticPlasma
    from simjax.models.plasma.electrostatic import ElectrostaticPlasma as ElectrostaticPlasma
    from simjax.models.robin import ExchangeSide as ExchangeSide
    from simjax.models.robin import Robin as Robin
    from simjax.models.scalar.advection_diffusion import AdvectionDiffusion as AdvectionDiffusion
    from simjax.models.scalar.burgers import Burgers as Burgers
    from simjax.models.scalar.transport import Transport as Transport
    from simjax.models.spectral.base import SpectralModel as SpectralModel
    from simjax.models.spectral.nonlinear_waves import Burgers as _ViscousBurgers
    from simjax.models.spectral.nonlinear_waves import KortewegDeVries as KortewegDeVries
    from simjax.models.spectral.nonlinear_waves import KuramotoSivashinsky as KuramotoSivashinsky
    from simjax.models.spectral.patterns import GrayScott as GrayScott
    from simjax.models.spectral.patterns import SwiftHohenberg as SwiftHohenberg
    from simjax.models.spectral.phase_fields import AllenCahn as AllenCahn
    from simjax.models.spectral.phase_fields import CahnHilliard as CahnHilliard
    from simjax.models.spectral.schroedinger import Schroedinger as Schroedinger
    from simjax.models.sph.sph import WeaklyCompressibleSPH as WeaklyCompressibleSPH
    from simjax.models.waves.acoustic import Acoustic as Acoustic
    from simjax.models.waves.maxwell import Maxwell as Maxwell
    from simjax.models.waves.pml import AbsorbingSide as AbsorbingSide
    from simjax.models.waves.pml import FreeSurface as FreeSurface
    from simjax.ops.gas import Scheme as _GasScheme
    from simjax.parallel import decompose as decompose
    from simjax.parallel import distribute as distribute
    from simjax.parallel import make_mesh as make_mesh
    from simjax.particles.cells import Cells as Cells
    from simjax.particles.mesh import ParticleMesh as ParticleMesh
    from simjax.particles.neighbor_policy import NeighborPolicy as NeighborPolicy
    from simjax.particles.pairs import Pairs as Pairs
    from simjax.report.picture import Picture as Picture
    from simjax.schema.kinds import Choice as Choice
    from simjax.schema.kinds import Flag as Flag
    from simjax.schema.kinds import Integer as Integer
    from simjax.schema.kinds import ListOf as ListOf
    from simjax.schema.kinds import Real as Real
    from simjax.schema.kinds import Text as Text
    from simjax.schema.kinds import key as key
    from simjax.schema.model_schema import FieldSchema as FieldSchema
    from simjax.schema.sides import side as side
    from simjax.status import reasons as reasons
    from simjax.stepping.checkpointing.plan import Binomial as Binomial
    from simjax.stepping.checkpointing.plan import Budget as Budget
    from simjax.stepping.clock import Clock as Clock
    from simjax.stepping.clock import Schedule as Schedule
    from simjax.stepping.faults import raise_on_fault as raise_on_fault
    from simjax.stepping.faults import status_of as status_of
    from simjax.stepping.simulate import Trajectory as Trajectory
    from simjax.stepping.simulate import advance as advance
    from simjax.stepping.simulate import integrate as integrate
    from simjax.stepping.simulate import simulate as simulate

    GasScheme = _GasScheme
    ViscousBurgers = _ViscousBurgers
else:
    __all__ = [*_HOMES]


def __dir__():
    return sorted({*_HOMES, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str):
    if name == "__version__":
        # Only here: the names of all packages take a twentieth of a second to import.
        from importlib.metadata import version

        return version("simjax")
    if name not in _HOMES:
        raise AttributeError(f"module 'simjax' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"simjax.{_HOMES[name]}"), _OWN_NAMES.get(name, name))
    return value
