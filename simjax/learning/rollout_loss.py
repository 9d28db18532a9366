"""The error of runs with a closure in them, against the saved states of other runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import require_kind
from simjax.core.domain import Domain
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.simulation import Simulation
from simjax.driver.start.mesh_choice import with_devices
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.learning.loss import Batch
from simjax.models.closure import Closure, in_precision
from simjax.notebook import line
from simjax.parallel import ENSEMBLE, distribute, place, shardings
from simjax.schema.config import Config
from simjax.status import spoiled
from simjax.stepping.checkpointing.plan import Checkpoint
from simjax.stepping.simulate import Trajectory

States = Mapping[str, tuple[Array, ...]]
"""By field, its components `(states, ...)` on this device's block."""

# Share of the distance of two states by which rounding may move their times.
ROUNDING = 1e-3


def relative_error(predicted: States, target: States, domain: Domain) -> Array:
    """Mean over fields and states of |u - v|^2 / |v|^2: squares of fields over the whole grid, v the target.

    A target that is zero everywhere counts with |v| = 1.
    """
    errors = []
    for name, components in target.items():
        pairs = zip(predicted[name], components, strict=True)
        distance = sum(_square(u - v, domain) for u, v in pairs)
        size = sum(_square(v, domain) for v in components)
        errors.append(jnp.mean(distance / jnp.where(size > 0, size, jnp.ones_like(size))))
    return jnp.mean(jnp.stack(errors))


def _square(u: Array, domain: Domain) -> Array:
    """The mean square of each state over the grid."""
    return jax.vmap(lambda one: domain.mean(one**2))(u)


class RolloutLoss:
    """The error of a run that begins with the first state of a window, over the window's next states.

    The run is that of a configuration with a closure in its equation, on the windows' grid, which may be coarser than
    that of the runs that they are from. Numbers of the configuration that a window has too, such as the viscosity, are
    the window's. Fixed steps, whose frames `time.output_every` are the windows' distance of states.

    The mesh {"ensemble": 2, "x": 2} has the two halves of a batch at once, each cut along x; the error and its gradient
    are those of one device to rounding.

    Args:
        simulation: the solver, a simulation or a configuration, without an ensemble.
        fields: names of initial fields whose components the windows have; None: all of the model.
        unroll: states that are compared, one after the other.
        pushforward: states before these, which the run takes from the window's first one without a derivative
            (Brandstetter, Worrall and Welling 2022, arXiv:2202.03376): the closure learns from states that it led to.
        noise: standard deviation of what is added to the first state, in root mean squares of its fields
            (Sanchez-Gonzalez et al. 2020, arXiv:2002.09405).
        mesh: devices over the windows of a batch, "ensemble", and over axes of space; None: those of the configuration.
        error: function `(predicted, target, domain) -> scalar` of this device's blocks.
        checkpoint: what reverse mode keeps, as of `simulate`.

    Raises:
        ConfigurationError: an argument is none, or the configuration has an ensemble or steps by a Courant number.

    Examples:
        >>> coarse = sj.load("kolmogorov", ["grid.shape=[16,16]", "time.output_every=0.1", "time.dt=0.05"])
        >>> loss = sj.RolloutLoss(coarse, ["velocity"], unroll=4)
    """

    def __init__(
        self,
        simulation: Simulation | Config,
        fields: Sequence[str] | None = None,
        *,
        unroll: int,
        pushforward: int = 0,
        noise: float = 0.0,
        mesh: Mapping[str, int] | None = None,
        error: Callable[[States, States, Domain], Array] = relative_error,
        checkpoint: Checkpoint = "auto",
    ):
        expected = "a Simulation; write sj.load(NAME)"
        require_kind("RolloutLoss: simulation", getattr(simulation, "config", simulation), Config, expected)
        config = simulation if isinstance(simulation, Config) else simulation.config
        self.unroll, self.pushforward, self.noise, self.error = unroll, pushforward, noise, error
        self._check()
        for name in mesh or {}:
            if name not in (ENSEMBLE, *AXES[: config.ndim]):
                raise ConfigurationError(
                    f"mesh={dict(mesh or {})!r}: expected devices over ensemble, {', '.join(AXES[: config.ndim])}."
                )
        if refusal := config.schema.refusal("closure"):
            raise ConfigurationError(f"model={config.model}: {refusal}")
        if config.time.dt is None:
            raise ConfigurationError(
                "time.courant and time.tolerance: expected steps of one length, as all windows are advanced together; "
                "write time.dt."
            )
        names = tuple(config.initial if fields is None else fields)
        self._run = DifferentiableRun(
            with_devices(config), sizes=mesh, given=[f"initial.{name}" for name in names], checkpoint=checkpoint
        )
        self._variables = {name: self._variables_of(name) for name in names}
        self._values, self._fields = self._run.start_values(), self._run.start_fields()

    def __repr__(self) -> str:
        rows = [("fields", ", ".join(self._variables)), ("unroll", self.unroll), ("pushforward", self.pushforward)]
        return line("RolloutLoss", [*rows, ("noise", self.noise or None)])

    def _check(self) -> None:
        for name, value, least in (("unroll", self.unroll, 1), ("pushforward", self.pushforward, 0)):
            if not isinstance(value, int) or value < least:
                raise ConfigurationError(f"{name}={value!r}: expected a whole number of states, {least} or more.")
        if not 0 <= self.noise < np.inf:
            raise ConfigurationError(f"noise={self.noise!r}: expected a number of root mean squares, 0 or more.")

    def _variables_of(self, field: str) -> tuple[str, ...]:
        variables = self._run.later_variables(field)
        if variables is None:
            raise ConfigurationError(
                f"fields: {field!r} cannot be told from a later state of {self._run.config.model}; leave it out, or "
                "take another model."
            )
        return variables

    def unrolled(self, unroll: int, *, pushforward: int = 0, noise: float | None = None) -> RolloutLoss:
        """The same loss over other states of a window, and with other noise."""
        other = copy.copy(self)
        other.unroll, other.pushforward = unroll, pushforward
        other.noise = self.noise if noise is None else noise
        other._check()
        return other

    # ------------------------------------------------------------------ batches

    @property
    def states(self) -> int:
        """States of a window that are needed."""
        return 1 + self.pushforward + self.unroll

    def placed(self, batch: Batch) -> dict[str, Array]:
        """The fields, times and numbers of a batch on the mesh; each process has the whole batch.

        Raises ConfigurationError where windows are too short, at other times than the run's frames or on another grid.
        """
        times, dtype = np.asarray(batch["time"], np.float64), self._run.dtype
        every = float(self._run.schedule.interval)
        if times.shape[1] < self.states:
            raise ConfigurationError(
                f"windows of {times.shape[1]} states: expected {self.states} or more, the first one, "
                f"pushforward={self.pushforward} and unroll={self.unroll}; write length={self.states}."
            )
        if not np.allclose(np.diff(times[:, : self.states]), every, rtol=ROUNDING, atol=0):
            raise ConfigurationError(
                f"windows have states {np.diff(times).max():.6g} apart: expected time.output_every={every:g}; write "
                "that distance there, or other windows (every)."
            )
        first = np.rint((times[:, 0] - float(self._run.schedule.start)) / every).astype(np.int32)
        found: dict[str, Any] = {"first frame": first}
        for name in self._shown(batch):
            found[name] = np.asarray(batch[name], dtype)
        found |= {name: self._states_of(name, batch) for own in self._variables.values() for name in own}
        if len(times) % (groups := self._groups):
            raise ConfigurationError(
                f"batches of {len(times)} windows: expected a multiple of mesh={{'ensemble': {groups}}}."
            )
        placements = shardings(self._run.mesh, self._specs(found))
        return {name: place(values, placements[name]) for name, values in found.items()}

    def _states_of(self, name: str, batch: Batch) -> np.ndarray:
        """The states of a variable that are needed, `(windows, states, *grid.shape)`."""
        if name not in batch:
            known = ", ".join(map(", ".join, self._variables.values()))
            raise ConfigurationError(f"windows have no {name!r}: expected {known}, or name fewer fields.")
        values = np.asarray(batch[name], self._run.dtype)[:, : self.states]
        shape, sides = self._run.domain.grid.shape, self._run.config.boundaries
        # Files have the upper walls' faces too, which are no part of a state.
        beyond = [n + (not side.periodic) for n, side in zip(shape, sides, strict=False)]
        if not all(n in pair for n, pair in zip(values.shape[2:], zip(shape, beyond, strict=True), strict=True)):
            raise ConfigurationError(
                f"windows have {name!r} on {values.shape[2:]} cells: expected grid.shape={list(shape)}, or windows on "
                "that grid (coarsen)."
            )
        return values[(..., *(slice(n) for n in shape))]

    @property
    def everywhere(self) -> jax.sharding.Sharding:
        """Placement of the weights: whole, on each device of the mesh."""
        return shardings(self._run.mesh, PartitionSpec())

    @property
    def _groups(self) -> int:
        mesh = self._run.mesh
        return 1 if mesh is None else dict(mesh.shape).get(ENSEMBLE, 1)

    def _shown(self, batch: Mapping[str, Any]) -> list[str]:
        """Names of the configuration's numbers that a batch has."""
        return [name for name in self._values if name in batch]

    def _specs(self, names) -> dict[str, PartitionSpec]:
        axis = ENSEMBLE if self._groups > 1 else None
        fields = {name for own in self._variables.values() for name in own}
        field = PartitionSpec(axis, None, *self._run.domain.spec())
        return {name: field if name in fields else PartitionSpec(axis) for name in names}

    # ------------------------------------------------------------------ runs

    def __call__(self, module: Closure | None, batch: Mapping[str, Array], key: Array) -> Array:
        """The error of each window, `(windows,)`; NaN where its run fails.

        Args:
            module: the closure; None: the configuration as it is.
            batch: as `placed` returns it.
            key: of the noise.
        """
        axis = ENSEMBLE if self._groups > 1 else None
        return self._of_windows(self._error, PartitionSpec(axis), module, self._noisy(batch, key))

    def predicted(self, module: Closure | None, batch: Batch, states: int) -> dict[str, Array]:
        """The run from the first state of each window, by variable `(windows, states, *grid.shape)`, that one included.

        A run that fails is NaN.
        """
        one = self.unrolled(1)
        placed = {name: values if values.ndim == 1 else values[:, :1] for name, values in one.placed(batch).items()}
        specs = {name: spec for name, spec in self._specs(placed).items() if len(spec) > 1}

        def run(module, window, values, fields):
            _, trajectory, start = one._run_from(module, window, values, fields, states - 1)
            together = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
            found = {n: u for f, own in self._variables.items() for n, u in zip(own, together[f], strict=True)}
            return spoiled(found, trajectory.clock.status)

        return eqx.filter_jit(lambda module, batch: self._of_windows(run, specs, module, batch))(module, placed)

    def _of_windows(self, one: Callable, out_specs, module: Closure | None, batch: Mapping[str, Array]):
        """`one(module, window, values, fields)` of each window, on the mesh."""
        if not isinstance(module, Closure | None):
            raise ConfigurationError(
                f"expected a simjax.Closure to be trained, got {type(module).__name__}; write simjax.Closure(module, "
                "fields=(...), width=...)."
            )
        arrays, rest = eqx.partition(module, eqx.is_array)

        def windows(arrays, batch, values, fields):
            whole = eqx.combine(arrays, rest)
            return jax.vmap(lambda window: one(whole, window, values, fields))(batch)

        specs = PartitionSpec(), self._specs(batch), PartitionSpec(), self._run.field_specs()
        program = distribute(windows, self._run.mesh, in_specs=specs, out_specs=out_specs)
        return program(arrays, batch, self._values, self._fields)

    def _noisy(self, batch: Mapping[str, Array], key: Array) -> dict[str, Array]:
        """The batch with noise in its first states, drawn for whole fields, so that it is the same on any mesh."""
        found = dict(batch)
        for number, name in enumerate(name for own in self._variables.values() for name in own if self.noise):
            first = batch[name][:, 0]
            size = jnp.sqrt(jnp.mean(first**2, axis=tuple(range(1, first.ndim)), keepdims=True))
            noise = jax.random.normal(jax.random.fold_in(key, number), first.shape, first.dtype)
            found[name] = batch[name].at[:, 0].add(self.noise * size * noise)
        return found

    def _error(self, module: Closure | None, window: Mapping[str, Array], values, fields) -> Array:
        """The error of one window, of this device's blocks."""
        before, trajectory, _ = self._run_from(module, window, values, fields, self.unroll)
        first = 1 + self.pushforward
        target = {f: tuple(window[name][first : self.states] for name in own) for f, own in self._variables.items()}
        error = self.error(trajectory.observed, target, self._run.domain)
        return spoiled(error, before | trajectory.clock.status)

    def _run_from(
        self, module: Closure | None, window, values, fields, frames: int
    ) -> tuple[Array, Trajectory, States]:
        """The run after the `pushforward`, and what is seen at its beginning; first the status before that."""
        run, start = self._run, window["first frame"]
        first = {field: tuple(window[name][0] for name in own) for field, own in self._variables.items()}
        values = {**values, **{name: window[name] for name in self._shown(window)}}
        own = {**fields, "initial": {**fields["initial"], **first}}
        if module is not None:
            own["modules"] = {"closure": in_precision(module, run.dtype)}
        own = run.prepared(values, own)
        state, status = run.begin(values, own)
        if self.pushforward:
            before, _ = run.advance(values, own, state, first_frame=start, frames=self.pushforward)
            state, status = jax.lax.stop_gradient(before.state), before.clock.status
        start = start + self.pushforward
        return status, *run.advance(values, own, state, self._observed, first_frame=start, frames=frames)

    def _observed(self, model, t, state, params, _) -> States:
        found = model.observe(t, state, params)
        return {field: tuple(found[name] for name in own) for field, own in self._variables.items()}
