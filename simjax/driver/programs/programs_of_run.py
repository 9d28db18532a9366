"""The compiled functions of a run, with what is said and written of it: of fields, and of particles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simjax.config.read_stretched_grid import grid_of
from simjax.core.domain import Domain
from simjax.driver.loop import field_faults, particle_faults
from simjax.driver.output import member_statistics
from simjax.driver.output.field_checks import field_checks
from simjax.driver.output.particle_checks import particle_checks
from simjax.driver.output.run_scene import scene_of_fields, scene_of_particles
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.field_instruments import instrument_of_fields
from simjax.driver.programs.particle_instruments import instrument_of_particles
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.driver.programs.programs_of_particles import CompiledParticles
from simjax.driver.programs.programs_of_statistics import statistic_of_fields, statistic_of_quantities
from simjax.driver.start.build import check_sides, describe_model
from simjax.grid import AXES
from simjax.instruments.operators import Snapshot
from simjax.instruments.particle_operators import EveryParticle
from simjax.io.grid_output import GridWriter
from simjax.io.particle_output import ParticleWriter
from simjax.models.measures import measure_of, squared
from simjax.schema.config import Config
from simjax.schema.model_schema import FIELDS, PARTICLES

__all__ = ["CompiledFieldRun", "CompiledParticleRun", "CompiledRun", "compiled_run", "run_class"]


class CompiledFieldRun(CompiledFields):
    """A run of fields on a grid: its programs, and what is said and written of it."""

    def refuse_start(self, state):
        field_faults.refuse_start(self, state)

    def refuse_sides(self, config):
        check_sides(config, self.domain)

    def first_fault(self, state, clock, schedule, steps):
        return field_faults.first_fault(self, state, clock, schedule, steps)

    def failing_steps(self, state, clock, schedule, steps, members):
        return field_faults.failing_steps(self, state, clock, schedule, steps, members)

    def checks(self, config, numbers):
        return field_checks(config, self, numbers)

    def writer(self, folder, config, options):
        return GridWriter(
            folder,
            self.grid,
            self.outputs,
            periodic=[axis.periodic for axis in config.boundaries],
            time_units=config.schema.time_units,
            length_units=config.schema.length_units,
            member_numbers=config.ensemble.members,
            statistics=self.config.ensemble.statistics,
            reduced=self.observed,
            **options,
        )

    def scene(self):
        return scene_of_fields(self)

    def instrument(self, source):
        return instrument_of_fields(source, self)

    def statistic(self, source):
        return statistic_of_fields(source, self)

    def with_statistics(self, fields, clock):
        return member_statistics.reduced(self, fields, clock)

    def written_statistics(self, statistics, ranges):
        return member_statistics.as_written(self, statistics, ranges)

    def reading_units(self, kind, variable):
        if kind == "diagnostic":
            measure = measure_of(self.model.measures(), variable)
            return "1" if measure is None else measure.units
        units = next(output.units for output in self.model.outputs() if output.name == variable)
        return squared(units) if kind == "spectrum" else units

    def snapshot(self, variable, shape):
        return Snapshot(variable)

    def components_of(self, path, count):
        section, name = path.split(".", 1)
        schema, ndim = self.config.schema, self.config.ndim
        known = schema.fields if section == "initial" else schema.coefficients
        field = next(field for field in known if field.name == name)
        if section == "initial":
            offsets = tuple(layout.offset for layout in self.model.component_layouts()[name])
        else:
            offsets = tuple(field.offset(ndim, component) for component in range(count))
        return field.components(ndim, count), field.units, offsets

    @classmethod
    def described(cls, config):
        model, _ = describe_model(config, Domain(grid_of(config.grid_of_fields())))
        known = {**{one.name: one for one in model.outputs()}, **model.measures()}
        return {name: {"long_name": one.long_name, "units": one.units} for name, one in known.items()}


class CompiledParticleRun(CompiledParticles):
    """A run of particles in a box: its programs, and what is said and written of it."""

    def refuse_start(self, state):
        particle_faults.refuse_start(self, state)

    def first_fault(self, state, clock, schedule, steps):
        return particle_faults.first_fault(self, state, clock, schedule, steps)

    def checks(self, config, numbers):
        return particle_checks(config, self, numbers)

    def writer(self, folder, config, options):
        family, start = self.family, self.start_of
        bounds, charge = family.bounds, family.charge(start)
        chosen = np.arange(start.count) if self.written is None else self.written
        return ParticleWriter(
            folder,
            lower=bounds.lower,
            upper=bounds.upper,
            periodic=bounds.periodic,
            names=self.names,
            scalars=family.scalars,
            numbers=chosen,
            of=start.count,
            species=start.species[chosen],
            species_names=family.species,
            mass=family.mass(start)[chosen],
            charge=None if charge is None else charge[chosen],
            **options,
        )

    def scene(self):
        return scene_of_particles(self)

    def instrument(self, source):
        return instrument_of_particles(source, self)

    def statistic(self, source):
        return statistic_of_quantities(source, self)

    def reading_units(self, kind, variable):
        return "1"

    def snapshot(self, variable, shape):
        return EveryParticle(variable, shape(), self.domain.grid.lengths, self.family.bounds.periodic)

    def components_of(self, path, count):
        name = path.split(".", 1)[1]
        return tuple(f"{name}_{axis}" for axis in AXES[: self.config.ndim]), "1", ()


RUNS: dict[str, type[CompiledRun]] = {FIELDS: CompiledFieldRun, PARTICLES: CompiledParticleRun}
"""The class of runs of each family of models."""


def run_class(config: Config) -> type[CompiledRun]:
    """The class of runs of a configuration."""
    return RUNS[config.schema.family]


def compiled_run(config: Config, given: Sequence[str] = (), absent: Sequence = (), start: Any = None) -> CompiledRun:
    """The programs of a configuration.

    given: paths such as "initial.velocity" of fields that are arguments of a run, in the place of formulas.
    absent: devices for which programs are made and not run, as of `CompiledRun`.
    start: what its `places` returned, where that is known.

    Raises ConfigurationError for a path that is no field.
    """
    return run_class(config)(config, given, absent, start)
