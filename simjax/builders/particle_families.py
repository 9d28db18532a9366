"""The families of particle models that a configuration can name."""

from simjax.builders.electromagnetic_plasma import ElectromagneticFamily
from simjax.builders.gravity import GravityFamily
from simjax.builders.particle_family import ParticleFamily
from simjax.builders.particles import MolecularFamily
from simjax.builders.plasma import PlasmaFamily
from simjax.builders.smoothed import SmoothedFamily

FAMILIES: dict[str, type[ParticleFamily]] = {
    "electromagnetic_plasma": ElectromagneticFamily,
    "gravity": GravityFamily,
    "molecular_dynamics": MolecularFamily,
    "plasma": PlasmaFamily,
    "smoothed_particles": SmoothedFamily,
}
"""Model name -> its family."""
