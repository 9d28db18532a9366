"""The compiled functions of a run, of fields or particles, one member or many: how it begins and what is seen of it."""

import abc
import copy
import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.model import Measure, Output
from simjax.core.tendency import call_own
from simjax.driver.loop.fault import Fault
from simjax.driver.output.statistic import Statistic
from simjax.driver.programs.stepped_run import SteppedRun
from simjax.driver.start.build import named_values
from simjax.driver.start.taken_start import told_changes
from simjax.instruments.instrument import View
from simjax.io.frame_output import FrameWriter
from simjax.io.run_numbers import RunNumbers
from simjax.io.segments import Ranges
from simjax.models.measures import by_component, measure_of
from simjax.report.check import Check
from simjax.report.scene import Scene
from simjax.schema.config import Config
from simjax.schema.formula import Formula
from simjax.schema.statistics import NO_STATISTICS
from simjax.schema.time_statistics import StatisticsConfig
from simjax.stepping.simulate import Clock, Schedule

SECTIONS = ("initial", "coefficients")
"""Sections of fields that may be arguments of a run."""
MemberStatistics = tuple[dict[str, dict[str, jax.Array]], jax.Array] | tuple[()]
"""Arrays by statistic and variable, and how many members count; empty where none are asked for."""


class CompiledRun(SteppedRun):
    """Everything compiled for one configuration, over `values`, `state` and `clock` with a member axis or without.

    `values` are the named numbers and `files` the arrays that are given, placed on the devices; `notes` say what was
    done to those; `state_specs` is the partition of the state; `seconds` is a first guess of what a step of a cell or a
    particle takes: on a CPU, and elsewhere. `particles` is how many there are; None of fields.

    absent: devices for which programs are made and not run, which need not be there: `values` and `files` are shapes,
    nothing is read, and no memory is asked for.
    start: what `places` returned, where it is known; else it is asked for here.
    """

    seconds: tuple[float, float]
    content: str
    """Noun for the things that it advances, such as cells or particles."""
    units: tuple[str, str]
    """Things that `size` counts, and units of the speed of a run."""
    advice: str
    """Advice to a user whose run fails."""
    measures: Mapping[str, Measure]
    """Units and meanings of its diagnostics, those first that are shown first, and what must hold of them."""
    moving = False
    """True where cells follow the numbers that a stretching is made of, which then have derivatives."""

    model: Any
    notes: list[str]
    particles: int | None = None
    start_changes: dict[str, float]
    """Changes of the start by the model, by path: relative L2 norms of fields, the number of wrapped particles."""

    def __init__(self, config: Config, given: Sequence[str] = (), absent: Sequence = (), start: Any = None):
        super().__init__(config, given, absent)
        self.start_of = start
        self.start_changes = {}
        self.counted_from = np.zeros(self.members or 1, np.int32)  # the frame from which a member's statistics count
        self._observe: Callable | None = None
        self.instrument_programs: dict[Hashable, Callable] = {}  # of `CompiledInstruments`, shared by groups of members

    @classmethod
    def places(cls, config: Config) -> Any:
        """Find what a run starts from on every mesh alike; None where that is formulas and files."""
        return None

    # ------------------------------------------------------------------ what fields and particles do in their own way

    @abc.abstractmethod
    def start(self) -> tuple[Any, Clock]:
        """The initial state and clock."""

    @abc.abstractmethod
    def field_specs(self) -> dict[str, Any]:
        """The partition of `fields`, the arrays that `begin` and `build` take: section -> name -> components."""

    @abc.abstractmethod
    def start_fields(self, formulas: Mapping[str, tuple[Formula, ...]] | None = None) -> dict[str, Any]:
        """The arrays of `field_specs` as the configuration has them, or as `formulas` by path say, on the mesh."""

    @abc.abstractmethod
    def begin(self, values, fields, steps_per_exchange: int = 0) -> tuple[Any, Array]:
        """This block's state before the first step, walls imposed, and bits of `status`; differentiable."""

    def taken(self, values, fields) -> dict[str, Any]:
        """This block of initial fields by path as the model takes them, those that it may change; as `begin`."""
        return {}

    def prepared(self, values, fields) -> Any:
        """`fields` with what the model forms of them once, for `begin` and `build`; differentiable."""
        return fields

    @abc.abstractmethod
    def variables(self, model, t, state, params) -> dict[str, Array]:
        """Everything that can be seen of a state, by name: this block of fields, or `(..., particles)` by number."""

    @abc.abstractmethod
    def view(self, model, t, state, params, values, more: Sequence[Output] = ()) -> View:
        """A state as instruments look at it; more: variables that are made of the model's own and of the run's numbers
        `values`, to be seen too."""

    def diagnostics(self, model, t, state, params) -> dict[str, Array]:
        """The model's own numbers of a state, by name, vectors by component."""
        found = call_own(model, "diagnostics", t, state, params)
        return by_component(found, type(model).__name__, self.config.ndim)

    @functools.cached_property
    def seen_shapes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Shapes and dtypes of all variables and diagnostics of a state by name, with an axis of members in front."""

        def look(values, files, state, t):
            model, params = self.build(values, files)
            return self.variables(model, t, state, params), self.diagnostics(model, t, state, params)

        specs = (self._one, self._file_specs, self.state_specs, PartitionSpec())
        program: Any = self._compile(
            look, (0, None, 0, None), specs, (self._member_specs(self.variable_spec), self._one)
        )
        state, _ = self.template(self.room())
        return program.eval_shape(self.values, self.files, state, jax.ShapeDtypeStruct((), self.dtype))

    def measure_of(self, name: str) -> Measure:
        """Units and meaning of one of the diagnostics."""
        found = measure_of(self.measures, name) or Measure("1", "")
        return found if found.long_name else dataclasses.replace(found, long_name=name.replace("_", " "))

    @property
    @abc.abstractmethod
    def variable_names(self) -> tuple[str, ...]:
        """Names of the `variables` that the run writes."""

    @property
    @abc.abstractmethod
    def variable_spec(self) -> PartitionSpec:
        """The partition of each of the `variables`."""

    @abc.abstractmethod
    def structure(self) -> Hashable:
        """The key of `begin` and `build`: programs of equal keys serve each other's numbers and arrays."""

    @abc.abstractmethod
    def assemble(self, fields: Mapping[str, Array], ranges: Ranges) -> dict[str, np.ndarray]:
        """Arrange the arrays that `observe` returned as variables of a file, without a time axis."""

    @property
    @abc.abstractmethod
    def cut_shape(self) -> tuple[tuple[int, ...], PartitionSpec]:
        """Shape of what is cut over devices and written, members first, and how it is cut."""

    @abc.abstractmethod
    def ranges_of(self, bounds: Sequence[tuple[int, int]], share: int, shares: int) -> Ranges:
        """The ranges that are written of the block of `cut_shape` within `bounds`, by the process number `share` of
        the `shares` that hold it."""

    @abc.abstractmethod
    def starter(self) -> Callable:
        """Compiled `(values, files, members) -> (state, ...)`, the state before the first step of each member."""

    @abc.abstractmethod
    def choose_variables(self) -> None:
        """Take the variables that the section `output` asks for, of which `observe` returns the values."""

    # ------------------------------------------------------------------ what is said and written of it

    @abc.abstractmethod
    def refuse_start(self, state) -> None:
        """Raise ConfigurationError where an initial state is not finite, or not physical."""

    def told_start(self) -> list[str]:
        """Sentences about what the model changed of the start that was made last.

        Raises:
            ConfigurationError: that is more than `limits.start_change`.
        """
        through = "" if self.config.schema.of_particles else self.model.taken_through
        return told_changes(self.start_changes, self.config, through, self.particles)

    def refuse_sides(self, config: Config) -> None:
        """Raise ConfigurationError where the sides of some members of `config` do not go together."""
        return

    @abc.abstractmethod
    def first_fault(self, state, clock: Clock, schedule: Schedule, steps: int) -> Fault:
        """Repeat `steps` steps one by one and say which fault happened first, where and when."""

    def failing_steps(
        self, state, clock: Clock, schedule: Schedule, steps: int, members: Collection[int]
    ) -> dict[int, int]:
        """Repeat `steps` steps one by one and return the step at which each of these members of an ensemble failed.

        state, clock: those at which the members were frozen. A member is left out that does not go wrong again, or of
        which this is not known.
        """
        return {}

    @abc.abstractmethod
    def checks(self, config: Config, numbers: RunNumbers) -> list[Check]:
        """Check what this model must keep; `numbers` are those of the finished run."""

    @abc.abstractmethod
    def writer(self, folder: Path, config: Config, options: Mapping[str, Any]) -> FrameWriter:
        """A writer of the frames that are observed; `options` are those of every `FrameWriter`."""

    @abc.abstractmethod
    def scene(self) -> Scene:
        """The things that pictures of the run show beside its variables."""

    @abc.abstractmethod
    def statistic(self, source: StatisticsConfig) -> Statistic:
        """A time statistic of variables or quantities, which no instrument reads."""

    def with_statistics(self, fields: dict[str, Any], clock: Clock) -> tuple[dict[str, Any], MemberStatistics]:
        """Reduce observed fields to the members that are written and the statistics over members."""
        return fields, ()

    def written_statistics(self, statistics: MemberStatistics, ranges: Ranges) -> dict[str, np.ndarray]:
        """Statistics over members by the names of their variables, as the writer takes them, within `ranges`."""
        return {}

    @abc.abstractmethod
    def components_of(self, path: str, count: int) -> tuple[tuple[str, ...], str, tuple[tuple[float, ...], ...]]:
        """Names, units and places in their cells of the `count` components of a field that is given as arrays."""

    @classmethod
    def described(cls, config: Config) -> dict[str, dict[str, str]]:
        """Units and meanings of the variables and diagnostics of a configuration, where its model tells them."""
        return {}

    # ------------------------------------------------------------------ others like it

    def bare(self) -> Self:
        """A copy without arrays, to be kept with a program that outlives this run."""
        bare = copy.copy(self)
        bare.files, bare.values, bare._observe, bare._limits, bare.kept = None, None, None, None, None
        bare._advance, bare.instrument_programs = {}, {}
        return bare

    def of_members(self, config: Config) -> Self:
        """The same programs for the members of `config`, which differs from their own in the members alone."""
        self.observe()  # compiled once for all
        self.starter()
        other = copy.copy(self)
        other.config, other.parameters, other.notes = config, named_values(config), []
        other.members = config.ensemble.size
        other.values = other._place_values()
        other.counted_from = np.zeros(config.ensemble.size, np.int32)
        return other

    def of_all_variables(self) -> "CompiledRun":
        """A copy whose `observe` returns, and whose writer takes, every variable of the model."""
        everything = copy.copy(self)
        output = dataclasses.replace(self.config.output, fields=None)
        ensemble = dataclasses.replace(self.config.ensemble, statistics=NO_STATISTICS)
        everything.config = dataclasses.replace(self.config, output=output, ensemble=ensemble)
        everything._observe, everything.kept = None, None
        everything.choose_variables()
        return everything

    # ------------------------------------------------------------------ room that may be missing

    def missing_room(self, status: np.ndarray) -> int:
        """Bits of the members' statuses that more room would clear."""
        return 0

    def grow(self, bits: int) -> str:
        """Make room for what the bits say was too little, and return a sentence about it.

        Raises:
            NumericalError: it has grown too often.
        """
        raise AssertionError("Programs that never miss room are never asked to grow.")

    def regrow(self, bits: int, state) -> tuple[Any, str]:
        """The state in programs with the room that `bits` ask for, and a sentence about it.

        Raises:
            NumericalError: it has grown too often.
        """
        raise AssertionError("Programs that never miss room are never asked to regrow.")
