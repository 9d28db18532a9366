"""The compiled functions of a run of fields, with what is said and written of it."""

from simjax.config.read_stretched_grid import grid_of
from simjax.core.domain import Domain
from simjax.driver.loop import field_faults
from simjax.driver.output import member_statistics
from simjax.driver.output.field_checks import field_checks
from simjax.driver.output.run_scene import scene_of_fields
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.driver.start.build import check_sides, describe_model
from simjax.io.grid_output import GridWriter
from simjax.models.troubles import measures_of


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

    def statistic(self, source):
        from simjax.driver.programs.programs_of_statistics import statistic_of_fields

        return statistic_of_fields(source, self)

    def with_statistics(self, fields, clock):
        return member_statistics.reduced(self, fields, clock)

    def written_statistics(self, statistics, ranges):
        return member_statistics.as_written(self, statistics, ranges)

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
        asked = measures_of(config.troubles, config.ndim, config.schema.length_units)
        known = {**{one.name: one for one in model.outputs()}, **model.measures(), **asked}
        return {name: {"long_name": one.long_name, "units": one.units} for name, one in known.items()}
