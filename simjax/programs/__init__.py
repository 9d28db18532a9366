"""The compiled functions of a run: initial state, advance, observe; one member or many, one device or many."""

from simjax.config import Config
from simjax.programs.common import Programs
from simjax.programs.fields import FieldPrograms
from simjax.programs.particles import ParticlePrograms

__all__ = ["FieldPrograms", "ParticlePrograms", "Programs", "programs_for"]


def programs_for(config: Config) -> Programs:
    """The programs of a configuration."""
    return ParticlePrograms(config) if config.schema.of_particles else FieldPrograms(config)
