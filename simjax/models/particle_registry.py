"""The families of particle models that a configuration can name."""

from simjax.models.gravity.setup import GravityFamily
from simjax.models.molecular.setup import MolecularFamily
from simjax.models.particle_model import ParticleFamily
from simjax.models.plasma.electromagnetic_setup import ElectromagneticFamily
from simjax.models.plasma.setup import PlasmaFamily
from simjax.models.sph.setup import SmoothedFamily

FAMILIES: dict[str, type[ParticleFamily]] = {
    "electromagnetic_plasma": ElectromagneticFamily,
    "gravity": GravityFamily,
    "molecular_dynamics": MolecularFamily,
    "plasma": PlasmaFamily,
    "smoothed_particles": SmoothedFamily,
}
"""Model name -> its family."""
