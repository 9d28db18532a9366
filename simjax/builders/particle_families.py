"""The families of particle models that a configuration can name."""

from simjax.builders.particle_family import ParticleFamily
from simjax.builders.particles import MolecularFamily

FAMILIES: dict[str, type[ParticleFamily]] = {"molecular_dynamics": MolecularFamily}
"""Model name -> its family."""
