"""Common part of the compiled functions of a run: placement, members, memory, steps."""

import abc
import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Measure, Model, Output
from simjax.core.tendency import call_own
from simjax.driver.programs import program_memory
from simjax.driver.programs.kept_executables import KeptExecutables, kept_executables, signature
from simjax.driver.programs.program_identity import is_foreign
from simjax.driver.programs.program_memory import over_members
from simjax.driver.programs.used_names import names_in_programs
from simjax.driver.shared_programs import copies
from simjax.driver.start.build import integrator_of, named_values
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.operators import View
from simjax.io.segments import Ranges
from simjax.jaxpr.varying import vary_like
from simjax.models.measures import by_component
from simjax.parallel import ENSEMBLE, distribute, make_mesh, place, prepend_axis, shardings, whole
from simjax.schema.config import Config
from simjax.schema.ensemble import sample_members
from simjax.schema.formula import Formula
from simjax.schema.statistics import NO_STATISTICS
from simjax.stepping.one_step import take_step
from simjax.stepping.simulate import Clock, Schedule, advance

SECTIONS = ("initial", "coefficients")
"""Sections of fields that may be arguments of a run."""


class CompiledRun(abc.ABC):
    """Everything compiled for one configuration, over `values`, `state` and `clock` with a member axis or without.

    `values` are the named numbers and `files` the arrays that are given, placed on the devices; `notes` say what was
    done to those; `state_specs` is the partition of the state; `size` counts one member's cells or particles, and
    `seconds` is a first guess of what a step of one takes: on a CPU, and elsewhere.

    absent: devices for which programs are made and not run, which need not be there: `values` and `files` are shapes,
    nothing is read, and no memory is asked for.
    """

    seconds: tuple[float, float]
    smaller: str
    """Advice that makes a member's state smaller."""
    content: str
    """Noun for the things that it advances, such as cells or particles."""
    units: tuple[str, str]
    """Things that `size` counts, and units of the speed of a run."""
    advice: str
    """Advice to a user whose run fails."""
    measures: Mapping[str, Measure]
    """Units and meanings of its diagnostics, those first that are shown first, and what must hold of them."""
    regrows = False
    """Whether a run can need more room than it was given; its calls keep the state that goes in."""

    domain: Domain
    size: int
    files: Any
    values: Any
    state_specs: Any
    notes: list[str]
    _member: Any
    _file_specs: Any

    def __init__(self, config: Config, given: Sequence[str] = (), absent: Sequence = ()):
        self.config = config
        self.dtype = jnp.dtype(config.precision)
        self._absent = tuple(absent)
        self.kept: KeptExecutables | None = None if absent or given else kept_executables(config)
        self.mesh = make_mesh({name: getattr(config.mesh, name) for name in (ENSEMBLE, *AXES)}, absent or None)
        self.integrator = integrator_of(config)
        self.parameters = named_values(config)
        self.members = config.ensemble.size if config.ensemble.several else None
        self._axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        self._one = self._member_specs(PartitionSpec())
        self.available_memory = None if absent else program_memory.usable_memory(config)  # absent devices do not tell
        self.counted_from = np.zeros(self.members or 1, np.int32)  # the frame from which a member's statistics count
        self._observe: Callable | None = None
        self._limits: Callable | None = None
        self._advance: dict[tuple[Schedule, int, int], Callable] = {}
        self.instrument_programs: dict[Hashable, Callable] = {}  # of `CompiledInstruments`, shared by groups of members
        several = config.steps_per_exchange
        self.steps_per_exchange = several if isinstance(several, int) else 0  # until it is measured (`exchanges`)

    # ------------------------------------------------------------------ what fields and particles do in their own way

    @abc.abstractmethod
    def build(self, values, files, steps_per_exchange: int = 0) -> tuple[Model, Any]:
        """The model and its parameters on this device, with so many steps between two exchanges of fields."""

    @abc.abstractmethod
    def start(self) -> tuple[Any, Clock]:
        """The initial state and clock."""

    @abc.abstractmethod
    def observe(self) -> Callable:
        """Compiled `(values, files, state, clock, t) -> (arrays, diagnostics, status)`.

        status: bits of `status` that are set where the observation itself lacked room.
        """

    @abc.abstractmethod
    def field_specs(self) -> dict[str, Any]:
        """The partition of `fields`, the arrays that `begin` and `build` take: section -> name -> components."""

    @abc.abstractmethod
    def start_fields(self, formulas: Mapping[str, tuple[Formula, ...]] | None = None) -> dict[str, Any]:
        """The arrays of `field_specs` as the configuration has them, or as `formulas` by path say, on the mesh."""

    @abc.abstractmethod
    def begin(self, values, fields, steps_per_exchange: int = 0) -> tuple[Any, Array]:
        """This block's state before the first step, walls imposed, and bits of `status`; differentiable."""

    def prepared(self, values, fields) -> Any:
        """`fields` with what the model forms of them once, for `begin` and `build`; differentiable."""
        return fields

    @abc.abstractmethod
    def variables(self, model, t, state, params) -> dict[str, Array]:
        """Everything that can be seen of a state, by name: this block of fields, or `(..., particles)` by number."""

    @abc.abstractmethod
    def view(self, model, t, state, params, more: Sequence[Output] = ()) -> View:
        """A state as instruments look at it; more: variables that are made of the model's own, to be seen too."""

    def diagnostics(self, model, t, state, params) -> dict[str, Array]:
        """The model's own numbers of a state, by name, vectors by component."""
        found = call_own(model, "diagnostics", t, state, params)
        return by_component(found, type(model).__name__, self.config.ndim)

    @property
    @abc.abstractmethod
    def variable_names(self) -> tuple[str, ...]:
        """Names of the `variables` that the run writes."""

    @property
    @abc.abstractmethod
    def variable_spec(self) -> PartitionSpec:
        """The partition of each of the `variables`."""

    def bare(self) -> Self:
        """A copy without arrays, to be kept with a program that outlives this run."""
        bare = copy.copy(self)
        bare.files, bare.values, bare._observe, bare._limits, bare.kept = None, None, None, None, None
        bare._advance, bare.instrument_programs = {}, {}
        return bare

    @property
    def member_shapes(self) -> Any:
        """Shapes and dtypes of one member's whole state."""
        return self._member

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

    @property
    def steps_together(self) -> int:
        """Steps that stay in one call wherever a run is cut, so that it goes on bit for bit."""
        return max(1, self.steps_per_exchange)

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

    def room(self) -> Mapping[str, Any]:
        """Sizes on which a checkpoint's shapes depend beside the configuration, for JSON."""
        return {}

    def used_parameters(self, schedule: Schedule) -> dict[str, np.ndarray]:
        """Named numbers that the run depends on: those of its programs, those that vary, the user's own."""
        used = self._kept_fact(lambda: sorted(names_in_programs(self, schedule)), "used names", schedule)
        used = {*used, *self.config.parameters, *(variation.value_name for variation in self.config.ensemble.vary)}
        return {name: value for name, value in self.parameters.items() if name in used}

    def _kept_fact(self, make: Callable[[], Any], *name: Hashable) -> Any:
        """The result of `make`, which traces, or that of an earlier process of this run."""
        return make() if self.kept is None else self.kept.fact(make, *name, tuple(self.room().items()))

    def _require_own(self, model: Any) -> None:
        """Keep nothing of a model with code that no key of executables tells, such as a user's."""
        if self.kept is not None and is_foreign(model):
            self.kept = None

    # ------------------------------------------------------------------ placement

    def _member_specs(self, specs):
        return specs if self.members is None else prepend_axis(specs, self._axis)

    def _place(self, tree, specs):
        """Host arrays put on the devices; `specs` is one spec for all or a tree of them."""
        if isinstance(specs, PartitionSpec):
            specs = jax.tree.map(lambda _: specs, tree)
        put = _shape_on if self._absent else place
        return jax.tree.map(put, tree, self._shardings(specs))

    def _shardings(self, specs):
        return shardings(self.mesh, specs, self._absent[0] if self._absent else None)

    def host_values(self) -> dict[str, np.ndarray]:
        """Every number by name, in the run's precision."""
        return {name: np.asarray(value, self.dtype) for name, value in self.parameters.items()}

    def _place_values(self):
        return self._place(self.host_values(), self._one)

    def _begun_state(self, state):
        """An initial state on the devices that it is computed on, as those of later steps are.

        Else, where it depends on no argument, jax takes it for one without a place, and compiles everything twice.
        """
        return self._place(state, self.state_specs)

    def _place_members(self):
        members = np.asarray(self.config.ensemble.members, np.int32)
        return self._place(members if self.members is not None else members[0], self._one)

    def _compile(
        self, fn: Callable, in_axes: tuple, in_specs: tuple, out_specs, donate=(), name: Hashable = None
    ) -> Callable:
        """The compiled program of `fn`, of one member, for this run's members.

        name: under which it is kept for later processes, beside the configuration; None: it is not.
        """

        def make(batch: int):
            mapped = fn if self.members is None else over_members(fn, in_axes, self.local_members, batch)
            program = distribute(mapped, self.mesh, in_specs=in_specs, out_specs=out_specs, donate=donate)
            if self.kept is None or name is None:
                return program
            return self.kept.program(program, name, tuple(self.room().items()), batch)

        batch = self.config.ensemble.batch
        if self.members is None or batch is not None:
            return make(batch or 1)
        return program_memory.MemberProgram(make, self.local_members, self._room_for_members)

    # ------------------------------------------------------------------ memory

    @property
    def local_members(self) -> int:
        """Members on each device."""
        return (self.members or 1) // self.config.mesh.ensemble

    def state_bytes(self) -> int:
        """Bytes of one member's state on one device."""
        devices = math.prod(dict(self.mesh.shape)[name] for name in self.domain.names) if self.mesh else 1
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._member)) // devices

    def _room_for_members(self) -> int | None:
        """Bytes that a program over members may fill, beside frames on their way to the disk."""
        if self.available_memory is None:
            return None
        return int(program_memory.FILLED * self.available_memory) - self.frame_bytes()

    def frame_bytes(self) -> int:
        """Bytes on each device of the frames that are on their way to the disk."""
        parts = 1 if self.mesh is None else self.mesh.size
        frame = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.observed_shapes()))
        return program_memory.FRAMES * frame // parts

    def require_least_memory(self, frames: int = 0) -> None:
        """Raises ResourceError where not even the state and `frames` bytes fit, before anything is compiled or put on
        a device."""
        least = program_memory.least_memory(self.state_bytes(), self.local_members, donated=not self.regrows)
        dataclasses.replace(least, frames=frames).require(self.available_memory, self._memory_advice)

    def require_memory(self, program: Callable, state, clock, *until) -> program_memory.RunMemory | None:
        """The memory that the run needs, of which `program` is what advances the state; both are compiled here.

        Raises:
            ResourceError: it is more than there is.
        """
        given = self.values, self.files, state, clock
        look = program_memory.memory_of(self.observe(), *given, jax.device_put(np.zeros((), self.dtype)))
        step = program_memory.memory_of(program, *given, *until)
        found = program_memory.run_memory(step, look, cut=self.mesh is not None)
        if found is not None:
            found.require(self.available_memory, self._memory_advice)
        return found

    @property
    def _memory_advice(self) -> str:
        """Advice where memory is short."""
        members = "a smaller ensemble.group or ensemble.size, " if self.members is not None else ""
        precision = "precision=float32, " if self.config.precision == "float64" else ""
        axes = "mesh.x, mesh.y" if self.config.ndim > 1 else "mesh.x"
        return f"{self.smaller}, {precision}{members}or more devices ({axes})"

    # ------------------------------------------------------------------ programs

    def clock_at_start(self) -> Clock:
        """The clock of one member before the first step."""
        return Clock.zero(self.dtype, controlled=self.config.time.tolerance is not None)

    def _zero_clock(self) -> Clock:
        # Of numbers on the host: each kind of zero would be a program of its own.
        clock = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self.clock_at_start))
        if self.members is not None:
            shape = (self.members,)
            clock = jax.tree.map(lambda leaf: np.broadcast_to(leaf, shape), clock)
        return self._place(clock, self._one)

    def stable_dt(self, state) -> float:
        """The smallest stable step of all members at Courant number one, on the host."""
        return float(np.min(self.stable_steps(state)))

    @property
    def stages(self) -> int:
        """Evaluations of the tendency, or of forces, per step."""
        return 1 if self.integrator is None else self.integrator.stages

    @property
    def courant_limit(self) -> float:
        """The largest stable Courant number."""
        return 1.0 if self.integrator is None else self.integrator.courant_limit

    def step_limit(self, model, state, params) -> jax.Array:
        """The step at Courant number one, on this device."""
        if self.integrator is None:
            return model.stable_dt(state, params)
        return self.integrator.stable_dt(model, state, params)

    def stable_steps(self, state) -> np.ndarray:
        """The stable step of every member at Courant number one, on the host: `(members,)`, or one of a single run."""

        def limit(values, files, state):
            model, params = self.build(values, files)
            return model.domain.min(self.step_limit(model, state, vary_like(params, state)))

        if self._limits is None:
            specs = self._one, self._file_specs, self.state_specs
            self._limits = self._compile(limit, (0, None, 0), specs, self._one, name="limits")
        return whole(self._limits(self.values, self.files, state)).astype(np.float64)

    def checked_step(self, state) -> float:
        """The smallest stable step at Courant number one, for an initial state.

        Raises:
            ConfigurationError: time.dt is longer than it may be; of an ensemble, for which member.
        """
        limits = np.atleast_1d(self.stable_steps(state))
        limit, time = float(np.min(limits)), self.config.time
        largest = limit * self.courant_limit
        if time.dt is not None and time.dt > largest:
            whose = ""
            if self.members is not None:
                count = int(np.sum(time.dt > limits * self.courant_limit))
                whose = f" of {self.member_named(int(np.argmin(limits)))}"
                whose += f", the strictest of {count} that it is too long for" if count > 1 else ""
            scheme = f" of {time.integrator}" if time.integrator else ""
            others = ", or time.dt=null and time.courant=0.5" if self.config.schema.limited else ""
            raise ConfigurationError(
                f"time.dt={time.dt:g} is above the stable limit {largest:.3g}{scheme} for the initial "
                f"state{whose}; write time.dt={0.5 * largest:.2g}{others}."
            )
        return limit

    def member_named(self, member: int) -> str:
        """A member by its number and by what varies, such as `member 3 (physics.viscosity=0.1)`."""
        varied = {path: numbers[member] for path, numbers in sample_members(self.config).items()}
        values = ", ".join(f"{path}={number:.6g}" for path, number in varied.items())
        return f"member {self.config.ensemble.members[member]}" + (f" ({values})" if values else "")

    def advance(self, schedule: Schedule, steps: int) -> Callable:
        """Compiled `(values, files, state, clock, until) -> (state, clock)`; the state is donated unless it regrows."""
        key = schedule, steps, self.steps_per_exchange
        if key not in self._advance:
            self._advance[key] = self.advance_by(*key)
        return self._advance[key]

    def advance_by(self, schedule: Schedule, steps: int, steps_per_exchange: int) -> Callable:
        """Like `advance`, with so many steps between two exchanges; compiled anew."""

        def forward(values, files, state, clock, until):
            model, params = self.build(vary_like(values, state), files, steps_per_exchange)
            return advance(model, self.integrator, params, state, clock, schedule, steps=steps, until=until)

        specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
        donate, name = () if self.regrows else (2,), ("advance", schedule, steps, steps_per_exchange)
        results = self.state_specs, self._one
        return self._compile(forward, (0, None, 0, 0, None), specs, results, donate=donate, name=name)

    def traced_step(self, schedule: Schedule) -> Any:
        """The jaxpr of one step on a device; nothing is compiled."""
        until = jax.ShapeDtypeStruct((), jnp.int32)
        program: Any = self.advance_by(schedule, 1, 0)
        return program.trace(self.values, self.files, *self.template(self.room()), until).jaxpr.jaxpr

    def observed_shapes(self):
        """Shapes and dtypes of the fields and diagnostics that `observe` returns."""
        time = jax.ShapeDtypeStruct((), self.dtype)
        return self.observe().eval_shape(self.values, self.files, *self.template(self.room()), time)

    def copy(self, *trees):
        """Copies of trees of arrays, such as a state and its clock, that outlive donation; made by one program."""
        program = copies if self.kept is None else self.kept.program(copies, "copy", signature(trees))
        return program(*trees)

    def template(self, room: Mapping[str, Any]):
        """Shapes, dtypes and shardings of (state, clock), to restore a checkpoint onto these devices.

        room: that of the checkpoint, which these programs have from now on.
        """
        clock = jax.eval_shape(self.clock_at_start)
        specs = self.state_specs, jax.tree.map(lambda _: self._one, clock)
        lead = () if self.members is None else (self.members,)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(lead + leaf.shape, leaf.dtype, sharding=sharding),
            (self._member, clock),
            self._shardings(specs),
        )

    def single_step(self, schedule: Schedule) -> Callable:
        """Compiled as `advance`, one step, of which the state is kept whatever it holds."""

        def forward(values, files, state, clock, until):
            model, params = self.build(vary_like(values, state), files)
            return take_step(model, self.integrator, params, state, clock, schedule, until)

        specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
        return self._compile(forward, (0, None, 0, 0, None), specs, (self.state_specs, self._one))


def _shape_on(leaf, sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype, sharding=sharding)
