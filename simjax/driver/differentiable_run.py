"""A configured run as one differentiable function of its numbers and fields, on any mesh."""

import copy
import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.config.structure import frozen, structure_of
from simjax.driver.build import (
    build_model,
    coefficient_fields,
    describe_model,
    initial_fields,
    initial_state,
    named_values,
    plan_frames,
    read_files,
)
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.jaxpr.varying import vary_like
from simjax.parallel import decompose, distribute, make_mesh, shardings
from simjax.schema.config import Config, FileSource
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.simulate import Clock, Schedule, Trajectory, simulate, time_of

SECTIONS = ("initial", "coefficients")
Fields = Mapping[str, Mapping[str, tuple[Array, ...]]]
"""Section -> field -> components."""

# Of the steps that the initial state asks for in a frame: room for a flow that becomes faster.
COURANT_ROOM = 1.5

# Programs kept for others of the same structure.
MOST_SHARED = 64
_SHARED: OrderedDict[Hashable, Any] = OrderedDict()
Shared = TypeVar("Shared")


def share(key: Hashable, make: Callable[[], Shared]) -> Shared:
    """Return what `make` made for this key the first time; the least recently used of too many is forgotten.

    A key that cannot be compared, as one that holds arrays, shares nothing.
    """
    try:
        hash(key)
    except TypeError:
        return make()
    if key not in _SHARED:
        _SHARED[key] = make()
        while len(_SHARED) > MOST_SHARED:
            _SHARED.popitem(last=False)
    _SHARED.move_to_end(key)
    return _SHARED[key]


def forget_programs() -> None:
    """Drop every shared program, and with it the memory of what was compiled for it."""
    _SHARED.clear()


class Rollout:
    """The run of a configuration as a function `run(values, fields)` of this device's blocks, to be distributed.

    `values` are all its numbers by name, scalars; `fields` are those that are given as arrays instead of by formulas:
    section ("initial", "coefficients") -> field -> components. What the configuration says that they are,
    `start_values` and `start_fields` tell. A frame is `time.output_every`.

    Args:
        config: a configuration without an ensemble.
        sizes: devices per mesh axis, in place of the configuration's.
        given: paths such as "initial.velocity" or "coefficients.diffusivity" of fields to be given as arrays.
        checkpoint: what reverse mode keeps, as of `simulate`.

    Raises:
        ConfigurationError: a path that is no field, an ensemble, or an end between two output times.
    """

    def __init__(
        self, config: Config, *, sizes: Mapping[str, int] | None = None, given: Sequence[str] = (),
        checkpoint: Checkpoint = "auto",
    ):  # fmt: skip
        if config.ensemble.size > 1 or config.ensemble.vary:
            raise ConfigurationError("ensemble: expected one member, as a gradient is that of one run; leave it out.")
        self.config = config
        self.checkpoint: Checkpoint = checkpoint
        self.dtype = jnp.dtype(config.precision)
        grid = config.grid_of_fields()
        self.grid = Grid(grid.shape, grid.lower, grid.upper)
        sizes = {name: getattr(config.mesh, name) for name in AXES} if sizes is None else sizes
        self.mesh = make_mesh(sizes)
        several = config.steps_per_exchange
        if not isinstance(several, int):
            raise ConfigurationError(
                "steps_per_exchange=auto is measured where a run starts, and a gradient is none; write a number, such "
                "as steps_per_exchange=0."
            )
        self.domain = decompose(
            self.grid, self.mesh, overlap=config.mesh.overlap, implementation=config.implementation,
            steps_per_exchange=several,
        )  # fmt: skip
        self.model, _ = describe_model(config, self.domain)
        self.integrator = INTEGRATORS[config.time.integrator]
        files, self.notes = read_files(config, self.grid)
        self._files = jax.tree.map(lambda u: u.astype(self.dtype), files)
        self._counts = _component_counts(config, self.model)
        self._taken = self._with_given(given)
        self.schedule, self.frames = self._planned()

    # ------------------------------------------------------------------ what the configuration says

    def start_values(self) -> dict[str, np.ndarray]:
        """Every number by name, in the run's precision."""
        return {name: np.asarray(value, self.dtype) for name, value in named_values(self.config).items()}

    def start_fields(self) -> Fields:
        """The given fields and those from files as the configuration has them, whole, placed on the mesh."""

        config, domain, dtype, specs = self.config, self.domain, self.dtype, self.field_specs()

        def evaluate(values, files):
            model, _ = build_model(config, domain, values, files)
            found = {
                "initial": initial_fields(config, model, values, 0, files["initial"], dtype),
                "coefficients": coefficient_fields(config, domain, values, files["coefficients"]),
            }
            return {section: {name: found[section][name] for name in specs[section]} for section in SECTIONS}

        return self._distributed("start_fields", evaluate, specs)(self.start_values(), self._placed_files())

    def field_specs(self) -> dict[str, dict[str, tuple[PartitionSpec, ...]]]:
        """The partition of `fields`."""
        return {
            section: {
                name: (self.domain.spec(),) * self._counts[section, name]
                for name, source in getattr(self._taken, section).items()
                if isinstance(source, FileSource)
            }
            for section in SECTIONS
        }

    def state_specs(self):
        """Shapes of the whole state, and its partition."""

        def describe(values, files):
            domain = self.domain.unsplit()
            model, params = build_model(self.config, domain, values, files)
            return initial_state(self.config, model, params, values, 0, files["initial"], self.dtype)

        state = jax.eval_shape(describe, self.start_values(), self._files)
        _, params = describe_model(self.config, self.domain)
        return state, self.model.partition_specs(state, params)[0]

    def times(self) -> np.ndarray:
        """`(frames + 1,)`: the start and the end of every frame."""
        return float(self.schedule.start) + np.arange(self.frames + 1) * self.schedule.interval

    # ------------------------------------------------------------------ the run

    def run(self, values, fields: Fields, observe: Callable | None = None) -> tuple[Trajectory, Any]:
        """All frames from the initial state; see `begin` and `advance`."""
        return self.advance(values, fields, self.begin(values, fields), observe)

    def begin(self, values, fields: Fields):
        """This block's initial state, walls imposed and constraints satisfied."""
        model, params = build_model(self._taken, self.domain, values, fields)
        return initial_state(self._taken, model, params, values, 0, fields["initial"], self.dtype)

    def advance(
        self, values, fields: Fields, state, observe: Callable | None = None,
        *, first_frame: Array | int = 0, frames: int | None = None,
    ) -> tuple[Trajectory, Any]:  # fmt: skip
        """`frames` frames (by default all) of this block from `state`, which is that before frame `first_frame`.

        `observe(model, t, state, params)` gives what is recorded at the end of each frame; the second result is what
        it gives at the beginning.
        """
        # Cast here, numbers inside walls and forces have their gradients summed over devices once, not in each step.
        values = vary_like(values, state)
        model, params = build_model(self._taken, self.domain, values, fields)

        def watch(t, state, params):
            return None if observe is None else observe(model, t, state, params)

        clock = dataclasses.replace(Clock.zero(self.dtype), frame=jnp.asarray(first_frame, jnp.int32))
        trajectory = simulate(
            model, self.integrator, params, state, self.schedule, clock=clock,
            frames=self.frames if frames is None else frames, observe=watch, checkpoint=self.checkpoint,
            on_fault="keep",  # callers ask the status
        )  # fmt: skip
        return trajectory, watch(time_of(clock, self.schedule), state, vary_like(params, state))

    # ------------------------------------------------------------------ making it

    def _with_given(self, given: Sequence[str]) -> Config:
        """The configuration with the `given` fields in the place of their formulas."""
        sections = {section: dict(getattr(self.config, section)) for section in SECTIONS}
        for path in given:
            section, _, name = path.partition(".")
            if (section, name) not in self._counts:
                known = ", ".join(".".join(pair) for pair in self._counts)
                raise ConfigurationError(f"{path}: expected a field of the run; there are {known or 'none'}.")
            variables = (name,) * self._counts[section, name]
            sections[section][name] = FileSource(Path(), variables)
        initial, coefficients = (sections[section] for section in SECTIONS)
        return dataclasses.replace(self.config, initial=initial, coefficients=coefficients)

    def _planned(self) -> tuple[Schedule, int]:
        plan = plan_frames(self.config, 1 if self.config.time.dt is not None else self._courant_steps())
        if plan.tail is not None or plan.whole == 0:
            time = self.config.time
            whole = max(1, round(time.end / time.output_every)) * time.output_every
            raise ConfigurationError(
                f"time.end={time.end:g}: expected a multiple of time.output_every={time.output_every:g} where a run is "
                f"differentiated; write time.end={whole:g}."
            )
        return plan.schedule, plan.whole

    def _courant_steps(self) -> int:
        """Steps that a frame may take, from the stable step of the initial state."""
        time = self.config.time
        assert time.courant is not None
        longest = time.courant * self.stable_dt()
        every = min(time.output_every, time.end)
        return math.ceil(COURANT_ROOM * every / longest) + 2 if math.isfinite(longest) else 2

    def stable_dt(self) -> float:
        """The stable step of the initial state at Courant number one."""

        config, domain, dtype, integrator = self.config, self.domain, self.dtype, self.integrator

        def limit(values, files):
            model, params = build_model(config, domain, values, files)
            state = initial_state(config, model, params, values, 0, files["initial"], dtype)
            return domain.min(integrator.stable_dt(model, state, vary_like(params, state)))

        program = self._distributed("stable_dt", limit, PartitionSpec())
        return float(program(self.start_values(), self._placed_files()))

    def _distributed(self, name: str, function: Callable, results) -> Callable:
        """`function(values, files)` on the mesh, compiled once for all runs of this structure."""
        specs = PartitionSpec(), jax.tree.map(lambda _: self.domain.spec(), self._files)
        # What is given instead of evaluated is told by the results.
        key = (name, self._builder, structure_of(self.config), self.mesh, frozen(results))
        return share(key, lambda: distribute(function, self.mesh, in_specs=specs, out_specs=results))

    @property
    def _builder(self) -> Callable | None:
        """The function that makes the model: another one once a model of this name is registered again."""
        return self.config.schema.configured

    @property
    def structure(self) -> Hashable:
        """The key of `run`, `begin` and `advance`: programs made of them serve every run with this key."""
        of_run = frozen(self.checkpoint), frozen(self.schedule), self.frames
        return self._builder, structure_of(self._taken), self.mesh, *of_run

    def bare(self) -> "Rollout":
        """The same with shapes in place of the arrays from files, to be kept with a program."""
        bare = copy.copy(self)
        bare._files = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape, u.dtype), self._files)
        return bare

    def _placed_files(self):
        specs = jax.tree.map(lambda _: self.domain.spec(), self._files)
        return jax.tree.map(jax.device_put, self._files, shardings(self.mesh, specs))


def _component_counts(config: Config, model) -> dict[tuple[str, str], int]:
    """Number of components of every field that the configuration gives: (section, name) -> count."""
    layouts = model.component_layouts()
    counts = {("initial", name): len(layouts[name]) for name in layouts if name in config.initial}
    for field in config.schema.coefficients:
        if field.name in config.coefficients:
            source = config.coefficients[field.name]
            counts["coefficients", field.name] = len(source if isinstance(source, tuple) else source.variables)
    return counts
