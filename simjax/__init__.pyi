"""The public names by subject: where each is, which `simjax` imports when it is first asked for."""

# a run from a configuration
from simjax.driver.mode_amplitudes import mode_amplitudes as mode_amplitudes
from simjax.driver.simulation import Simulation as Simulation
from simjax.driver.configured import load as load, configure as configure
from simjax.driver.result import Result as Result
from simjax.driver.loop.goodput import Goodput as Goodput, goodput as goodput
from simjax.report.picture import Picture as Picture
from simjax.driver.differentiable import RunFunction as RunFunction
from simjax.core.shots import Shots as Shots
from simjax.io.shot_files import read_shots as read_shots, write_shots as write_shots
from simjax.io.read import open_run as open_run, open_output as open_output, check_files as check_files
from simjax.io.far_field import far_field as far_field
from simjax.io.universe import open_universe as open_universe
from simjax.io.state_windows import TrajectoryWindows as TrajectoryWindows
from simjax.data.batches import batches as batches

# learned terms
from simjax.learning.learner import Learner as Learner
from simjax.learning.training import Stage as Stage, train as train
from simjax.learning.loss import WindowLoss as WindowLoss
from simjax.learning.rollout_loss import RolloutLoss as RolloutLoss
from simjax.learning.low_rank import LowRank as LowRank
from simjax.learning.paths import array_paths as array_paths
from simjax.learning.flax_module import from_flax as from_flax

# inverse problems, certificates, programs
from simjax.inverse.problem import InverseProblem as InverseProblem
from simjax.inverse.search import Search as Search
from simjax.certificate.certify import certify as certify
from simjax.inspect.inspect_program import inspect_program as inspect_program

# grids, sides, devices
from simjax.grid import Grid as Grid, Lines as Lines
from simjax.core.boundary import (
    Boundary as Boundary,
    Dirichlet as Dirichlet,
    FieldLayout as FieldLayout,
    Inflow as Inflow,
    Neumann as Neumann,
    NoSlipWall as NoSlipWall,
    Outflow as Outflow,
    Periodic as Periodic,
    PeriodicSide as PeriodicSide,
    ScalarSide as ScalarSide,
    Side as Side,
    SlipWall as SlipWall,
    center_layout as center_layout,
    face_layout as face_layout,
)
from simjax.models.robin import Robin as Robin, ExchangeSide as ExchangeSide
from simjax.models.flow.sides.openings import OpenSide as OpenSide
from simjax.models.flow.sides.turbulent_inflow import TurbulentInflow as TurbulentInflow
from simjax.models.flow.sides.wall_model import WallModel as WallModel
from simjax.models.gas.boundaries import (
    CharacteristicInflow as CharacteristicInflow,
    CharacteristicOutflow as CharacteristicOutflow,
    GasInflow as GasInflow,
    GasOutflow as GasOutflow,
    GasWall as GasWall,
)
from simjax.models.waves.pml import AbsorbingSide as AbsorbingSide, FreeSurface as FreeSurface
from simjax.core.domain import Domain as Domain
from simjax.parallel import decompose as decompose, distribute as distribute, make_mesh as make_mesh

# time
from simjax.stepping.clock import Clock as Clock, Schedule as Schedule
from simjax.stepping.simulate import (
    Trajectory as Trajectory,
    advance as advance,
    simulate as simulate,
    integrate as integrate,
)
from simjax.stepping.checkpointing.plan import Binomial as Binomial, Budget as Budget
from simjax.stepping.faults import reasons as reasons, status_of as status_of, raise_on_fault as raise_on_fault
from simjax.integrators.adaptive import error_controlled as error_controlled
from simjax.integrators.stochastic import stochastic as stochastic
from simjax.integrators.table import INTEGRATORS as INTEGRATORS
from simjax.integrators.integrator import Integrator as Integrator
from simjax.integrators.storage import Stored as Stored

# a model of one's own
from simjax.core.model import ExplicitModel as ExplicitModel, Measure as Measure, Model as Model, Output as Output
from simjax.schema.troubles import trouble as trouble
from simjax.core.measure_checks import Conserved as Conserved, Falling as Falling
from simjax.models.cell_centred import CenteredModel as CenteredModel
from simjax.models.spectral.base import SpectralModel as SpectralModel
from simjax.models.declaration import model as model, Setup as Setup
from simjax.schema.side_declarations import side as side
from simjax.driver.start.build import register as register
from simjax.schema.model_schema import FieldSchema as FieldSchema
from simjax.schema.kinds import (
    key as key,
    Choice as Choice,
    Flag as Flag,
    Integer as Integer,
    ListOf as ListOf,
    Real as Real,
    Text as Text,
)
from simjax.models.closure import Closure as Closure, LocalNetwork as LocalNetwork, with_closure as with_closure
from simjax.models.collocation import velocity_at_centers as velocity_at_centers, velocity_on_faces as velocity_on_faces

# equations of fields
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion as AdvectionDiffusion
from simjax.models.scalar.transport import Transport as Transport
from simjax.models.scalar.burgers import Burgers as Burgers
from simjax.models.flow.incompressible import Incompressible as Incompressible
from simjax.models.flow.bodies.solids import Solid as Solid
from simjax.models.flow.bodies.free_body import body_params as body_params
from simjax.instruments.body_surface import nearest_points as nearest_points, rays_around as rays_around
from simjax.instruments.instrument import (
    Coordinate as Coordinate,
    FieldInstrument as FieldInstrument,
    Instrument as Instrument,
    Layout as Layout,
)
from simjax.schema.instrument_declarations import instrument as instrument
from simjax.schema.site import AxisName as AxisName, PerAxis as PerAxis, Point as Point, Points as Points
from simjax.models.flow.bodies.solid_scalars import SolidSurface as SolidSurface
from simjax.models.flow.passive_scalar import PassiveScalar as PassiveScalar
from simjax.models.flow.boussinesq import Boussinesq as Boussinesq
from simjax.models.flow.fourier.vorticity import Vorticity as Vorticity
from simjax.models.flow.fourier.spectral_velocity import SpectralVelocity as SpectralVelocity
from simjax.models.gas.compressible import Compressible as Compressible
from simjax.ops.gas import GasScheme as GasScheme
from simjax.models.waves.acoustic import Acoustic as Acoustic
from simjax.models.waves.maxwell import Maxwell as Maxwell
from simjax.models.waves.incident_setup import IncidentWave as IncidentWave
from simjax.models.waves.mode_setup import ModeSource as ModeSource
from simjax.models.waves.poles import DebyePole as DebyePole, DrudePole as DrudePole, LorentzPole as LorentzPole
from simjax.models.spectral.nonlinear_waves import (
    ViscousBurgers as ViscousBurgers,
    KortewegDeVries as KortewegDeVries,
    KuramotoSivashinsky as KuramotoSivashinsky,
)
from simjax.models.spectral.phase_fields import AllenCahn as AllenCahn, CahnHilliard as CahnHilliard
from simjax.models.spectral.patterns import SwiftHohenberg as SwiftHohenberg, GrayScott as GrayScott
from simjax.models.spectral.schroedinger import Schroedinger as Schroedinger

# particles
from simjax.models.molecular.molecular_dynamics import MolecularDynamics as MolecularDynamics
from simjax.models.molecular.pair_potentials import (
    PairPotential as PairPotential,
    DistancePotential as DistancePotential,
)
from simjax.models.gravity.gravity import Gravity as Gravity
from simjax.models.plasma.electrostatic import ElectrostaticPlasma as ElectrostaticPlasma
from simjax.models.plasma.electromagnetic import ElectromagneticPlasma as ElectromagneticPlasma
from simjax.models.sph.sph import WeaklyCompressibleSPH as WeaklyCompressibleSPH
from simjax.particles.cells import Cells as Cells
from simjax.particles.pairs import Pairs as Pairs
from simjax.particles.neighbor_policy import NeighborPolicy as NeighborPolicy
from simjax.particles.mesh import ParticleMesh as ParticleMesh

# what goes wrong
from simjax.errors import (
    SimjaxError as SimjaxError,
    ConfigurationError as ConfigurationError,
    NumericalError as NumericalError,
    InputOutputError as InputOutputError,
    ResourceError as ResourceError,
    CheckpointError as CheckpointError,
    Stopped as Stopped,
    Interrupted as Interrupted,
)

__version__: str
_IMPORTED_AT: float
_COMPUTED_BEFORE: float
