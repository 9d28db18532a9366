"""The class of a run by the family of its model: of fields, and of particles."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.schema.config import Config
from simjax.schema.model_schema import FIELDS, PARTICLES

__all__ = ["CompiledRun", "compiled_run", "run_class"]

RUNS = {FIELDS: "field_run:CompiledFieldRun", PARTICLES: "particle_run:CompiledParticleRun"}
"""The class of runs of each family of models, and its module, which is imported when such a model runs."""


def run_class(config: Config) -> type[CompiledRun]:
    """The class of runs of a configuration."""
    module, _, name = RUNS[config.schema.family].partition(":")
    return getattr(import_module(f"simjax.driver.programs.{module}"), name)


def compiled_run(config: Config, given: Sequence[str] = (), absent: Sequence = (), start: Any = None) -> CompiledRun:
    """The programs of a configuration.

    given: paths such as "initial.velocity" of fields that are arguments of a run, in the place of formulas.
    absent: devices for which programs are made and not run, as of `CompiledRun`.
    start: what its `places` returned, where that is known.

    Raises ConfigurationError for a path that is no field.
    """
    return run_class(config)(config, given, absent, start)
