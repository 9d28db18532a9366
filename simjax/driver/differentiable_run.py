"""A configured run, of fields or particles, as one differentiable function of its numbers and arrays, on any mesh."""

import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.config.structure import frozen
from simjax.core.model import GridModel
from simjax.driver.loop.advice import advice_for
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.programs.programs_of_statistics import CompiledStatistics
from simjax.driver.shared_programs import share
from simjax.driver.start.build import Plan, plan_frames
from simjax.errors import ConfigurationError, NumericalError
from simjax.jaxpr.varying import vary_like
from simjax.parallel import distribute
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig
from simjax.status import OK, reasons
from simjax.stepping.attempts import most_attempts
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.simulate import Trajectory, simulate, time_of
from simjax.stepping.watching import Gathered

Fields = Mapping[str, Mapping[str, Any]]
"""Section -> name -> arrays: of "initial" and "coefficients" a tuple of components, of "particles" what is given of
each particle, `(..., particles)`."""

Guess = tuple[Mapping[str, float], Mapping[str, Any]]
"""Numbers by name, and formulas of the components of fields by path."""

# Of the steps that the initial state asks for in a frame: room for a flow that becomes faster.
COURANT_ROOM = 1.5
# Of the steps that the configuration takes in a frame by its errors: room for other numbers.
CONTROL_ROOM = 1.5
# Steps of a guess shorter than this share of the configuration's get no room: it is refused, as its run would not end.
SHORTER_GUESS = 100


class DifferentiableRun:
    """The run of a configuration as a function `run(values, fields)` of this device's blocks, to be distributed.

    `values` are all its numbers by name, scalars; `fields` are arrays: those that are given in the place of formulas,
    those from files, and where particles start. What the configuration says that they are, `start_values` and
    `start_fields` tell. A frame is `time.output_every`.

    Args:
        config: a configuration without an ensemble.
        sizes: devices per mesh axis, in place of the configuration's.
        given: paths such as "initial.velocity" or "coefficients.diffusivity" of fields to be given as arrays; of
            particles "initial.position" and "initial.velocity", an array `(particles,)` for each axis.
        checkpoint: what reverse mode keeps, as of `simulate`.
        guess: numbers by name and formulas of fields by path where a search begins: Courant-limited frames have room
            for its steps as well.
        moving: whether cells follow the numbers that the stretching of the grid is made of.

    Raises:
        ConfigurationError: a path that is no field, an ensemble, or an end between two output times.
    """

    def __init__(
        self,
        config: Config,
        *,
        sizes: Mapping[str, int] | None = None,
        given: Sequence[str] = (),
        checkpoint: Checkpoint = "auto",
        guess: Guess = ({}, {}),
        moving: bool = False,
    ):
        if config.ensemble.size > 1 or config.ensemble.vary:
            raise ConfigurationError("ensemble: expected one member, as a gradient is that of one run; leave it out.")
        if not isinstance(config.steps_per_exchange, int):
            raise ConfigurationError(
                "steps_per_exchange=auto is measured where a run starts, and a gradient is none; write a number, such "
                "as steps_per_exchange=0."
            )
        overlap = config.mesh.overlap
        mesh = config.mesh if sizes is None else MeshConfig(overlap=overlap, **sizes)
        self.config = dataclasses.replace(config, mesh=mesh)
        self.checkpoint: Checkpoint = checkpoint
        self.programs = compiled_run(self.config, given)
        self.programs.moving = moving
        self.plan = self._planned(guess)
        self.schedule, self.frames = self.plan.schedule, self.plan.whole

    @property
    def domain(self):
        """The grid, or the cells of particles, and how they are cut."""
        return self.programs.domain

    @property
    def mesh(self):
        """The device mesh; None for one device."""
        return self.programs.mesh

    @property
    def dtype(self):
        """The precision of the run."""
        return self.programs.dtype

    @property
    def model(self) -> GridModel:
        """The model of fields, with shapes in place of arrays."""
        return self.programs.model

    @property
    def notes(self) -> list[str]:
        """Sentences about files that were converted or regridded on reading."""
        return self.programs.notes

    # ------------------------------------------------------------------ what the configuration says

    def start_values(self) -> dict[str, np.ndarray]:
        """Every number by name, in the run's precision."""
        return self.programs.host_values()

    def start_fields(self, formulas: Mapping[str, Any] | None = None) -> Fields:
        """All arrays as the configuration has them, or by path as `formulas` say, whole, placed on the mesh."""
        return self.programs.start_fields(formulas)

    def field_specs(self) -> dict[str, Any]:
        """The partition of `fields`."""
        return self.programs.field_specs()

    def state_specs(self):
        """Shapes of the whole state, and its partition."""
        return self.programs.member_shapes, self.programs.state_specs

    def times(self) -> np.ndarray:
        """`(frames + 1,)`: the start and the end of every frame."""
        return float(self.schedule.start) + np.arange(self.frames + 1) * self.schedule.interval

    def step_times(self) -> np.ndarray:
        """`(steps + 1,)`: the start and the end of every step.

        Raises ConfigurationError where steps have no fixed length.
        """
        if self.schedule.dt is None:
            limit = "courant" if self.schedule.tolerance is None else "tolerance"
            raise ConfigurationError(
                f"time.{limit}={getattr(self.schedule, limit):g}: expected steps of a fixed length, at whose ends "
                f"receivers record; write a number for time.dt, and leave out time.{limit}."
            )
        within = self.schedule.dt * np.arange(self.schedule.steps)
        return np.append((self.times()[:-1, None] + within).ravel(), self.times()[-1])

    def later_variables(self, field: str) -> tuple[str, ...] | None:
        """The variables that hold the components of an initial field later in the run; None where none do."""
        names = self.config.schema.field(field).components(self.config.ndim, self.config.counts[field])
        places = {output.name: output.offset for output in self.model.outputs()}
        layouts = self.model.component_layouts()[field]
        same = all(places.get(name) == layout.offset for name, layout in zip(names, layouts, strict=True))
        return names if same else None

    # ------------------------------------------------------------------ the run

    def run(
        self,
        values,
        fields: Fields,
        observe: Callable | None = None,
        statistics: CompiledStatistics | None = None,
        shot: Any = None,
    ) -> tuple[Trajectory, Any]:
        """All frames from the initial state; see `begin` and `advance`."""
        fields = self.prepared(values, fields)
        state, status = self.begin(values, fields)
        trajectory, start = self.advance(values, fields, state, observe, statistics=statistics, shot=shot)
        if not self.programs.regrows:  # the beginning has always room
            return trajectory, start
        return eqx.tree_at(lambda run: run.clock.status, trajectory, trajectory.clock.status | status), start

    def prepared(self, values, fields: Fields) -> Fields:
        """Add to `fields` the arrays that both `begin` and `advance` need of them, so that these are computed once."""
        return self.programs.prepared(values, fields)

    def begin(self, values, fields: Fields) -> tuple[Any, Array]:
        """This block's initial state, walls imposed and constraints satisfied, and bits of `status`."""
        return self.programs.begin(values, fields, self._steps_per_exchange)

    def taken(self, values, fields: Fields) -> dict[str, Any]:
        """This block of initial fields by path as the model takes them, those that it may change."""
        return self.programs.taken(values, self.prepared(values, fields))

    def advance(
        self,
        values,
        fields: Fields,
        state,
        observe: Callable | None = None,
        *,
        first_frame: Array | int = 0,
        frames: int | None = None,
        statistics: CompiledStatistics | None = None,
        shot: Any = None,
    ) -> tuple[Trajectory, Any]:
        """`frames` frames (by default all) of this block from `state`, which is that before frame `first_frame`.

        shot: sources in the place of the configuration's, and receivers, of which this block's part is `recorded`.

        `observe(model, t, state, params, values)` gives what is recorded at the end of each frame; the second result is
        what it gives at the beginning.
        """
        # What is observed is made of numbers that are the same on all devices, and is so too, by its type.
        given = values
        built: Any = self.programs.build(values, fields, self._steps_per_exchange)
        seen, known = built

        def watch(t, state, _):
            return None if observe is None else observe(seen, t, state, known, given)

        # Cast here, numbers inside walls and forces have their gradients summed over devices once, not in each step.
        values = vary_like(values, state)
        built = self.programs.build(values, fields, self._steps_per_exchange)
        (model, params), hear = built, None
        if shot is not None:
            known, _ = seen.with_shot(known, shot)
            params, hear = model.with_shot(params, vary_like(shot, state))

        gathered = None
        if statistics:
            gatherings = statistics.gatherings(self.schedule, seen, known, {}, given)
            gathered = Gathered(gatherings, statistics.starts_of_frames(self.plan))
        clock = dataclasses.replace(self.programs.clock_at_start(), frame=jnp.asarray(first_frame, jnp.int32))
        trajectory = simulate(
            model,
            self.programs.integrator,
            params,
            state,
            self.schedule,
            clock=clock,
            frames=self.frames if frames is None else frames,
            observe=watch,
            record=None if hear is None else lambda t, state: hear(state),
            checkpoint=self.checkpoint,
            on_fault="keep",  # callers ask the status
            gathered=gathered,
        )
        return trajectory, watch(time_of(clock, self.schedule), state, known)

    @property
    def _steps_per_exchange(self) -> int:
        several = self.config.steps_per_exchange
        assert isinstance(several, int)
        return several

    # ------------------------------------------------------------------ room

    def provide_room(self, values, fields: Fields) -> None:
        """Give particles as much room as the run with these arguments needs; fields need none.

        Raises NumericalError where the run stops for another reason, or needs ever more room.
        """
        if self.programs.regrows:
            self.enlarge(lambda: self._status(values, fields))

    def enlarge(self, status_of: Callable[[], int]) -> None:
        """Grow the room of particles until `status_of`, a run of them, tells of none that is missing.

        Raises NumericalError where it stops for another reason, or needs ever more room.
        """
        while (status := status_of()) != OK:
            if not self.make_room(status):
                raise NumericalError(
                    f"the run that is to be differentiated stopped, as {reasons(status)}: expected one without a "
                    f"fault. {advice_for(self.programs)}"
                )

    def make_room(self, status: int) -> bool:
        """Give more room where a run with this status lacked room alone; return whether it did.

        Raises NumericalError where it needs ever more.
        """
        missing = self.programs.missing_room(np.asarray(status))
        if missing:
            self.programs.grow(missing)
        return bool(missing)

    def _status(self, values, fields: Fields) -> int:
        """The status with which the run ends."""
        bare = self.bare()

        def status(values, fields) -> Array:
            return bare.run(values, fields)[0].clock.status

        def make():
            specs = PartitionSpec(), bare.field_specs()
            return distribute(status, self.mesh, in_specs=specs, out_specs=PartitionSpec())

        return int(share(("status", self.structure), make)(values, fields))

    def with_checkpoint(self, checkpoint: Checkpoint) -> "DifferentiableRun":
        """The same run with another checkpoint plan for reverse mode."""
        other = copy.copy(self)
        other.checkpoint = checkpoint
        return other

    # ------------------------------------------------------------------ making it

    def _planned(self, guess: Guess) -> Plan:
        steps = 1
        if self.config.time.tolerance is not None:
            steps = self._controlled_steps(guess)
        elif self.config.time.dt is None:
            steps = self._courant_steps(guess)
        plan = plan_frames(self.config, steps)
        if plan.tail is not None or plan.whole == 0:
            time = self.config.time
            whole = max(1, round(time.end / time.output_every)) * time.output_every
            raise ConfigurationError(
                f"time.end={time.end:g}: expected a multiple of time.output_every={time.output_every:g} where a run is "
                f"differentiated; write time.end={whole:g}."
            )
        return plan

    def _courant_steps(self, guess: Guess) -> int:
        """Steps that a frame may take, from the stable steps of the initial state and of the guess."""
        time = self.config.time
        assert time.courant is not None
        longest = time.courant * self.stable_dt()
        if any(guess):
            # Where nothing limits the configuration's own steps, a frame is one of them.
            own = min(longest, time.output_every)
            longest = min(longest, max(time.courant * self.stable_dt(*guess), own / SHORTER_GUESS))
        every = min(time.output_every, time.end)
        return math.ceil(COURANT_ROOM * every / longest) + 2 if math.isfinite(longest) else 2

    def _controlled_steps(self, guess: Guess) -> int:
        """Steps that a frame may take, from those that the configuration and the guess take, rejected ones included."""
        taken = max(self._attempts(), self._attempts(*guess) if any(guess) else 0)
        return math.ceil(CONTROL_ROOM * taken) + 2

    def _attempts(self, numbers: Mapping[str, float] | None = None, formulas: Mapping[str, Any] | None = None) -> int:
        """The most steps that a frame took, with some numbers and fields replaced: a run without derivatives."""
        programs, several, plan = self.programs.bare(), self._steps_per_exchange, plan_frames(self.config, 1)

        def count(values, fields):
            fields = programs.prepared(values, fields)
            state, _ = programs.begin(values, fields, several)
            model, params = programs.build(vary_like(values, state), fields, several)
            begin = state, programs.clock_at_start()
            return most_attempts(model, programs.integrator, params, *begin, plan.schedule, frames=plan.whole)

        def make():
            specs = PartitionSpec(), self.field_specs()
            return distribute(count, self.mesh, in_specs=specs, out_specs=PartitionSpec())

        program = share(("attempts", self.programs.structure(), plan.schedule, plan.whole), make)
        return int(program(*self._replaced(numbers, formulas)))

    def _replaced(self, numbers: Mapping[str, float] | None, formulas: Mapping[str, Any] | None) -> tuple[Any, Any]:
        """The numbers and fields of the run, with some replaced."""
        replaced = {name: np.asarray(number, self.dtype) for name, number in (numbers or {}).items()}
        return {**self.start_values(), **replaced}, self.start_fields(formulas)

    def stable_dt(self, numbers: Mapping[str, float] | None = None, formulas: Mapping[str, Any] | None = None) -> float:
        """The stable step of the initial state at Courant number one, with some numbers and fields replaced."""
        programs, several = self.programs.bare(), self._steps_per_exchange

        def limit(values, fields):
            fields = programs.prepared(values, fields)
            state, _ = programs.begin(values, fields, several)
            model, params = programs.build(values, fields, several)
            return programs.domain.min(programs.step_limit(model, state, vary_like(params, state)))

        def make():
            specs = PartitionSpec(), self.field_specs()
            return distribute(limit, self.mesh, in_specs=specs, out_specs=PartitionSpec())

        program = share(("stable_dt", self.programs.structure()), make)
        return float(program(*self._replaced(numbers, formulas)))

    @property
    def structure(self) -> Hashable:
        """The key of `run`, `begin` and `advance`: programs made of them serve every run with this key."""
        return self.programs.structure(), frozen(self.checkpoint), frozen(self.schedule), self.frames

    def bare(self) -> "DifferentiableRun":
        """A copy without arrays, to be kept with a compiled program."""
        bare = copy.copy(self)
        bare.programs = self.programs.bare()
        return bare
