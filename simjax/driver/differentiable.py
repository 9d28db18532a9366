"""A configured run as a function that JAX differentiates: whole arrays in, whole arrays out, on any mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from simjax.arguments import as_number, require_kind, shown, taken_over
from simjax.config.structure import frozen
from simjax.core.model import GridModel
from simjax.core.shots import Shots
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.output.instrument import RunInstrument
from simjax.driver.programs.programs_of_statistics import CompiledStatistics
from simjax.driver.shared_programs import share
from simjax.driver.start.mesh_choice import with_devices
from simjax.errors import ConfigurationError, NumericalError
from simjax.notebook import line
from simjax.ops.samples import between
from simjax.parallel import distribute, prepend_axis
from simjax.schema.config import Config
from simjax.schema.time_statistics import StatisticsConfig
from simjax.status import OK, spoiled
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.clock import Clock, Schedule
from simjax.stepping.faults import is_traced, status_of
from simjax.stepping.moments import Total
from simjax.stepping.simulate import Trajectory

TRACES = "receivers"
"""Name under which the records of the receivers of shots are observed."""


class RunFunction:
    """`run(values, fields, shots)`: the run of a configuration as a pure function of its numbers and fields.

    `jax.grad`, `jax.jit` and, on one device, `jax.vmap` take it as any function. Arrays are whole, in units of the
    simulation, on one device or cut over the mesh of the configuration; what is computed of them needs no collectives.
    Functions of one structure share their compiled program, whatever their numbers. Cells move with the numbers that
    `grid.stretch` is made of.

    Args:
        config: with one member, whose time.end is a multiple of time.output_every.
        fields: paths such as "initial.velocity" and "coefficients.diffusivity" of fields that are arguments; of
            particles "initial.position" and "initial.velocity". Others follow from the configuration and `values`.
        variables: names of what is observed: variables, entries of `outputs` and of `statistics`; by default the
            variables that the run would write.
        checkpoint: what reverse mode keeps, as of `simulate`.

    Raises ConfigurationError for a path that is no field, a name that is no variable, and a run that has no gradient.

    Examples:
        >>> run = sj.load("kolmogorov", ["grid.shape=[16,16]", "time.end=0.1"]).differentiable(variables=[])
        >>> energy = lambda values: run(values).observed["kinetic_energy"][-1]
        >>> bool(jax.grad(energy)({"viscosity": run.values["viscosity"]})["viscosity"] < 0)
        True
    """

    values: dict[str, np.ndarray]
    """The configuration's numbers by name: those of `physics` and `parameters`."""

    fields: dict[str, tuple[Array, ...]]
    """The configuration's fields at the paths that are arguments, component by component, on the mesh."""

    times: np.ndarray
    """`(frames + 1,)`: the start and the end of every frame."""

    def __init__(
        self,
        config: Config,
        *,
        fields: Sequence[str] = (),
        variables: Sequence[str] | None = None,
        checkpoint: Checkpoint = "auto",
    ):
        _require_names("fields", fields)
        if variables is not None:
            _require_names("variables", variables)
        expected = "a Config; write sj.load(NAME).differentiable(fields=[...])"
        require_kind("RunFunction: config", config, Config, expected)
        config = with_devices(config)
        rollout = DifferentiableRun(config, given=tuple(fields), checkpoint=checkpoint, moving=True)
        self.values, self.times = rollout.start_values(), rollout.times()
        self._known = rollout.start_fields()
        self.fields = {path: self._known[path.split(".", 1)[0]][path.split(".", 1)[1]] for path in fields}
        self._dtype, self._schedule = rollout.dtype, rollout.schedule
        names, instruments, statistics = _chosen(rollout, variables)
        rollout.provide_room(self.values, self._known)
        operators = frozen({one.source.name: one.operators for one in instruments})
        self._rollout, self._seen = rollout.bare(), (names, instruments, statistics)
        self._key = ("run function", rollout.structure, names, operators, frozen(statistics))
        self._program = share(self._key, lambda: _program(rollout.bare(), names, instruments, statistics))

    @functools.cached_property
    def step_times(self) -> np.ndarray:
        """`(steps + 1,)`: the start and the end of every step, at which receivers of shots record.

        Raises ConfigurationError where steps have no fixed length.
        """
        return self._rollout.step_times()

    def __repr__(self) -> str:
        rows = [
            ("numbers", ", ".join(self.values)),
            ("fields", ", ".join(self.fields)),
            ("frames", len(self.times) - 1),
        ]
        return line("RunFunction", rows)

    def __call__(
        self,
        values: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        shots: Shots | None = None,
    ) -> Trajectory:
        """The run with these numbers and fields, and the configuration's own where none is given.

        Args:
            values: by name, scalars.
            fields: by path, a tuple with an array for each component, of the grid's shape or `(particles,)`, or the
                array of a scalar.
            shots: of waves, sources and receivers in the place of the configuration's: a run for each shot, all of them
                in one program.

        Returns:
            The last `state` and `clock`, and `observed`: every variable `(frames + 1, *grid.shape)`, of particles
            `(frames + 1, ..., particles)` by their numbers, every diagnostic `(frames + 1,)` by name, and of an entry
            of `outputs` what it reads, each variable `(frames + 1, ...)` by name, at `times`; of one of `statistics`
            the variables of its file, by name, over the whole run. With `shots` variables and diagnostics have an axis
            of shots in front, and `observed["receivers"]`, `(shots, receivers, times)`, is what the receivers recorded
            (pressure of sound, electric field of light) at `step_times` or `shots.recorded`.

        Raises NumericalError where the run fails; inside a transform, where nothing can be raised, all of it is NaN.
        """
        chosen = {**self.values, **_known_among("values", {} if values is None else values, self.values)}
        numbers = {name: as_number(f"values[{name!r}]", value, self._dtype) for name, value in chosen.items()}
        given = {section: dict(arrays) for section, arrays in self._known.items()}
        for path, components in _known_among("fields", {} if fields is None else fields, self.fields).items():
            section, name = path.split(".", 1)
            given_parts = components if isinstance(components, (tuple, list)) else (components,)
            parts = tuple(taken_over(part) for part in given_parts)
            shapes, expected = ([np.shape(part) for part in each] for each in (parts, self.fields[path]))
            if shapes != expected:
                raise ConfigurationError(
                    f"fields[{path!r}]: expected {len(expected)} array(s) of shape {expected[0]}, got {shapes}."
                )
            given[section][name] = tuple(jnp.asarray(part, self._dtype) for part in parts)
        if shots is None:
            state, clock, *observed = self._program(numbers, given)
        else:
            state, clock, *observed = self._run_shots(numbers, given, shots)
        if not is_traced(clock):
            _raise_if_stopped(clock, self._schedule)
        return Trajectory(state, clock, {name: u for one in observed for name, u in one.items()})

    def _run_shots(self, numbers, given, shots: Shots):
        require_kind("shots", shots, Shots, "simjax.Shots(sources=..., signals=..., times=..., receivers=...)")
        if not isinstance(self._rollout.model, GridModel):
            raise ConfigurationError(
                "shots: expected a model of waves, such as acoustic or maxwell_tm; leave shots out."
            )
        rollout, (names, instruments, statistics), times = self._rollout, self._seen, self.step_times
        shots = shots.on(rollout.domain.grid, self._dtype, times[0], times[-1])
        if statistics:
            raise ConfigurationError(
                f"variables: expected no statistics beside shots, got {statistics[0].name!r}; leave one of the two out."
            )
        if TRACES in (one.source.name for one in instruments):
            raise ConfigurationError(
                f"variables: expected no entry of outputs named {TRACES!r} beside shots, whose records have this name; "
                "leave it out."
            )
        key = (*self._key, "shots", shots.at_once)
        program = share(key, lambda: _program(rollout, names, instruments, statistics, shots.at_once))
        return program(numbers, given, shots)


def _raise_if_stopped(clock: Clock, schedule: Schedule) -> None:
    """Raises NumericalError for a run, or the first of the runs of shots, that stopped on the way."""
    stopped = np.flatnonzero(np.atleast_1d(np.asarray(clock.status)) != OK)
    if stopped.size:
        of_shots = np.ndim(clock.status) > 0
        first = jax.tree.map(lambda u: u[stopped[0]], clock) if of_shots else clock
        raise NumericalError(
            f"The run{f' of shot {stopped[0]}' if of_shots else ''} stopped early: {status_of(first, schedule)}. Write "
            "a smaller time.dt or time.courant, or a larger time.tolerance, or other numbers. Inside jax.jit and "
            "jax.grad such a run is NaN."
        )


def _require_names(argument: str, given: Any) -> None:
    """Raises ConfigurationError for what is no list of texts."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise ConfigurationError(f"{argument}={shown(given)}: expected a list of names; write {argument}=['NAME'].")


def _known_among(argument: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        first = next(iter(known), "name")
        raise ConfigurationError(f"{argument}={shown(given)}: expected a mapping by name, such as {{{first!r}: ...}}.")
    for name in given:
        if name not in known:
            more = "; name it in differentiable(fields=[...])" if argument == "fields" else ""
            raise ConfigurationError(f"{argument}[{name!r}]: expected one of {', '.join(known) or 'none'}{more}.")
    return given


def _chosen(
    rollout: DifferentiableRun, variables: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[RunInstrument, ...], tuple[StatisticsConfig, ...]]:
    """The variables, the instruments, and the statistics in time that are observed."""
    known = rollout.programs.variable_names
    wanted, config = rollout.config.output.fields if variables is None else variables, rollout.config
    if wanted is not None:
        # A field is all its components, as where they are written.
        written = config.schema.written(config.ndim, config.counts)
        wanted = [variable for name in wanted for variable in written.get(name, (name,))]
    outputs = {one.name: one for one in config.outputs if one.kind_class.fitted}
    statistics = {one.name: one for one in config.statistics}
    for name in wanted or ():
        if name not in known and name not in outputs and name not in statistics:
            raise ConfigurationError(
                f"variables: expected names among {', '.join((*known, *outputs, *statistics))}, got {name!r}; "
                "diagnostics are always observed, write variables=[] for them alone."
            )
        if name in statistics and statistics[name].window is not None:
            raise ConfigurationError(
                f"variables: expected statistics over the whole run, and {name!r} has a window; leave the window out."
            )
    chosen = known if wanted is None else [name for name in wanted if name in known]
    others = [name for name in wanted or () if name not in known]
    read = tuple(RunInstrument.of(outputs[name], rollout.programs) for name in others if name in outputs)
    return tuple(chosen), read, tuple(statistics[name] for name in others if name in statistics)


def _program(
    rollout: DifferentiableRun,
    names: tuple[str, ...],
    instruments: tuple[RunInstrument, ...],
    sources: tuple[StatisticsConfig, ...],
    at_once: int | None | Literal[False] = False,
) -> Callable:
    """Compiled `(values, fields) -> (state, clock, *observed)` on the mesh.

    at_once: of `Shots`, which are then a third argument.
    """

    programs = rollout.programs
    statistics = CompiledStatistics.of(programs, sources)
    time_units = programs.config.schema.time_units
    described = {name: one.described(time_units) for name, one in statistics.entries.items()}
    seen = {output.name: output for one in instruments for output in one.variables}

    def observe(model, t, state, params, values):
        found = programs.variables(model, t, state, params)
        readings = {}
        if instruments:
            view = programs.view(model, t, state, params, values, [*seen.values()])
            readings = {one.source.name: one.read(view) for one in instruments}
        return {name: found[name] for name in names}, programs.diagnostics(model, t, state, params), readings

    def run(values, fields, shot=None):
        trajectory, start = rollout.run(values, fields, observe, statistics, shot)
        together = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
        gathered = {
            name: statistics.entries[name].values(trajectory.sums[name], rollout.domain, own, _total, jnp)
            for name, own in described.items()
        }
        together = *together, gathered
        if shot is not None:
            together = *together, {TRACES: _traces(rollout, trajectory.recorded, shot)}
        state, observed = spoiled((trajectory.state, together), trajectory.clock.status)
        return state, trajectory.clock, *observed

    def run_shots(values, fields, shots: Shots):
        own, shared = shots.parted()

        def one(shot):
            return run(values, fields, eqx.combine(shot, shared))

        if shots.at_once is None or shots.at_once >= shots.count:
            return jax.vmap(one)(own)
        # Steps that are undone need no more memory for all shots than two states of each.
        some = one if rollout.checkpoint == "reverse" else jax.checkpoint(one, prevent_cse=False)
        return lax.map(some, own, batch_size=shots.at_once)

    everywhere, field = PartitionSpec(), PartitionSpec(None, *programs.variable_spec)
    _, state = rollout.state_specs()
    specs = everywhere, rollout.field_specs()
    readings = {
        one.source.name: {
            name: PartitionSpec(None, *operator.spec(rollout.domain)) for name, operator in one.operators.items()
        }
        for one in instruments
    }
    gathered = {name: statistics.value_specs(name, own) for name, own in described.items()}
    results = state, everywhere, field, everywhere, readings, gathered
    if at_once is False:
        return distribute(run, rollout.mesh, in_specs=specs, out_specs=results)
    specs, results = (*specs, everywhere), (*prepend_axis(results, None), everywhere)
    return distribute(run_shots, rollout.mesh, in_specs=specs, out_specs=results)


def _traces(rollout: DifferentiableRun, recorded: Array, shot: Shots) -> Array:
    """Records of the receivers, `(receivers, times)`, from this block's part after every step."""
    traces = rollout.domain.total(recorded).T
    if shot.recorded is None:
        return traces
    return between(jnp.asarray(rollout.step_times(), traces.dtype), traces, shot.recorded)


def _total(total: Total) -> Array:
    return total.value if total.low is None else total.value + total.low
