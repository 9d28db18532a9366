"""The compiled functions of a run: initial state, advance, observe; one member or many, one device or many."""

from simjax.driver.compiled import Programs
from simjax.driver.compiled_fields import FieldPrograms
from simjax.driver.compiled_particles import ParticlePrograms
from simjax.schema.config import Config

__all__ = ["FieldPrograms", "ParticlePrograms", "Programs", "programs_for"]


def programs_for(config: Config) -> Programs:
    """The programs of a configuration."""
    return ParticlePrograms(config) if config.schema.of_particles else FieldPrograms(config)
