"""A configured run as a function that JAX differentiates: whole arrays in, whole arrays out, on any mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import shown, taken_over
from simjax.config.structure import frozen
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.output.instrument import RunInstrument
from simjax.driver.shared_programs import share
from simjax.driver.start.mesh_choice import with_devices
from simjax.errors import ConfigurationError, NumericalError
from simjax.notebook import line
from simjax.parallel import distribute
from simjax.schema.config import Config
from simjax.status import OK, spoiled
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.faults import is_traced, status_of
from simjax.stepping.simulate import Trajectory


class RunFunction:
    """`run(values, fields)`: the run of a configuration as a pure function of its numbers and fields.

    `jax.grad`, `jax.jit` and, on one device, `jax.vmap` take it as any function. Arrays are whole, in units of the
    simulation, on one device or cut over the mesh of the configuration; what is computed of them needs no collectives.
    Functions of one structure share their compiled program, whatever their numbers. Cells move with the numbers that
    `grid.stretch` is made of.

    Args:
        config: with one member, whose time.end is a multiple of time.output_every.
        fields: paths such as "initial.velocity" and "coefficients.diffusivity" of fields that are arguments; of
            particles "initial.position" and "initial.velocity". Others follow from the configuration and `values`.
        variables: names of what is observed, variables and entries of `outputs`; by default the variables that the run
            would write.
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
        config = with_devices(config)
        rollout = DifferentiableRun(config, given=tuple(fields), checkpoint=checkpoint, moving=True)
        self.values, self.times = rollout.start_values(), rollout.times()
        self._known = rollout.start_fields()
        self.fields = {path: self._known[path.split(".", 1)[0]][path.split(".", 1)[1]] for path in fields}
        self._dtype, self._schedule = rollout.dtype, rollout.schedule
        names, instruments = _chosen(rollout, variables)
        rollout.provide_room(self.values, self._known)
        operators = frozen({one.source.name: one.operators for one in instruments})
        self._program = share(
            ("run function", rollout.structure, names, operators),
            lambda: _program(rollout.bare(), names, instruments),
        )

    def __repr__(self) -> str:
        rows = [
            ("numbers", ", ".join(self.values)),
            ("fields", ", ".join(self.fields)),
            ("frames", len(self.times) - 1),
        ]
        return line("RunFunction", rows)

    def __call__(self, values: Mapping[str, Any] | None = None, fields: Mapping[str, Any] | None = None) -> Trajectory:
        """The run with these numbers and fields, and the configuration's own where none is given.

        Args:
            values: by name, scalars.
            fields: by path, a tuple with an array for each component, of the grid's shape or `(particles,)`, or the
                array of a scalar.

        Returns:
            The last `state` and `clock`, and `observed`: every variable `(frames + 1, *grid.shape)`, of particles
            `(frames + 1, ..., particles)` by their numbers, every diagnostic `(frames + 1,)` by name, and of an entry
            of `outputs` what it reads, each variable `(frames + 1, ...)` by name, at `times`.

        Raises NumericalError where the run fails; inside a transform, where nothing can be raised, all of it is NaN.
        """
        chosen = {**self.values, **_known_among("values", {} if values is None else values, self.values)}
        numbers = {name: _number(name, value, self._dtype) for name, value in chosen.items()}
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
        state, clock, *observed = self._program(numbers, given)
        if not is_traced(clock) and int(clock.status) != OK:
            raise NumericalError(
                f"The run stopped early: {status_of(clock, self._schedule)}. Write a smaller time.dt or time.courant, "
                "or a larger time.tolerance, or other numbers. Inside jax.jit and jax.grad such a run is NaN."
            )
        return Trajectory(state, clock, {name: u for one in observed for name, u in one.items()})


def _number(name: str, value: Any, dtype) -> jax.Array:
    try:
        return jnp.asarray(taken_over(value), dtype)
    except (TypeError, ValueError):
        raise ConfigurationError(f"values[{name!r}]={shown(value)}: expected a number.") from None


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
) -> tuple[tuple[str, ...], tuple[RunInstrument, ...]]:
    """The variables, and the instruments, that are observed."""
    known = rollout.programs.variable_names
    wanted, config = rollout.config.output.fields if variables is None else variables, rollout.config
    if wanted is not None:
        # A field is all its components, as where they are written.
        written = config.schema.written(config.ndim, config.counts)
        wanted = [variable for name in wanted for variable in written.get(name, (name,))]
    outputs = {one.name: one for one in config.outputs if one.kind_class.fitted}
    for name in wanted or ():
        if name not in known and name not in outputs:
            raise ConfigurationError(
                f"variables: expected names among {', '.join((*known, *outputs))}, got {name!r}; diagnostics are "
                "always observed, write variables=[] for them alone."
            )
    chosen = known if wanted is None else [name for name in wanted if name in known]
    read = (outputs[name] for name in wanted or () if name not in known)
    return tuple(chosen), tuple(RunInstrument.of(one, rollout.programs) for one in read)


def _program(rollout: DifferentiableRun, names: tuple[str, ...], instruments: tuple[RunInstrument, ...]) -> Callable:
    """Compiled `(values, fields) -> Trajectory` on the mesh."""

    programs = rollout.programs
    seen = {output.name: output for one in instruments for output in one.variables}

    def observe(model, t, state, params, values):
        found = programs.variables(model, t, state, params)
        readings = {}
        if instruments:
            view = programs.view(model, t, state, params, values, [*seen.values()])
            readings = {one.source.name: one.read(view) for one in instruments}
        return {name: found[name] for name in names}, programs.diagnostics(model, t, state, params), readings

    def run(values, fields):
        trajectory, start = rollout.run(values, fields, observe)
        together = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
        state, observed = spoiled((trajectory.state, together), trajectory.clock.status)
        return state, trajectory.clock, *observed

    everywhere, field = PartitionSpec(), PartitionSpec(None, *programs.variable_spec)
    _, state = rollout.state_specs()
    specs = everywhere, rollout.field_specs()
    readings = {
        one.source.name: {
            name: PartitionSpec(None, *operator.spec(rollout.domain)) for name, operator in one.operators.items()
        }
        for one in instruments
    }
    return distribute(run, rollout.mesh, in_specs=specs, out_specs=(state, everywhere, field, everywhere, readings))
