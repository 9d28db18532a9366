"""The compiled functions of a run: initial state, advance, observe; one member or many, one device or many."""

from collections.abc import Sequence

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_fields import CompiledFieldRun
from simjax.driver.programs.programs_of_particles import CompiledParticleRun
from simjax.schema.config import Config

__all__ = ["CompiledFieldRun", "CompiledParticleRun", "CompiledRun", "compiled_run"]


def compiled_run(config: Config, given: Sequence[str] = (), absent: Sequence = ()) -> CompiledRun:
    """The programs of a configuration.

    given: paths such as "initial.velocity" of fields that are arguments of a run, in the place of formulas.
    absent: devices for which programs are made and not run, as of `CompiledRun`.

    Raises ConfigurationError for a path that is no field.
    """
    return (CompiledParticleRun if config.schema.of_particles else CompiledFieldRun)(config, given, absent)
