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

from simjax.core.domain import Domain
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.mesh_choice import with_devices
from simjax.driver.simulation import Simulation
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.learning.loss import Batch
from simjax.models.closure import Closure, in_precision
from simjax.parallel import ENSEMBLE, distribute, place, prepend_axis, shardings
from simjax.schema.config import Config
from simjax.status import spoiled
from simjax.stepping.checkpointing.plan import Checkpoint

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
        self, simulation: Simulation | Config, fields: Sequence[str] | None = None, *, unroll: int, pushforward: int = 0,
        noise: float = 0.0, mesh: Mapping[str, int] | None = None,
        error: Callable[[States, States, Domain], Array] = relative_error, checkpoint: Checkpoint = "auto",
    ):  # fmt: skip
        config = simulation if isinstance(simulation, Config) else simulation.config
        self.unroll, self.pushforward, self.noise, self.error = unroll, pushforward, noise, error
        self._check()
        for name in mesh or {}:
            if name not in (ENSEMBLE, *AXES[: config.ndim]):
                raise ConfigurationError(
                    f"mesh={dict(mesh or {})!r}: expected devices over ensemble, {', '.join(AXES[: config.ndim])}."
                )
        if config.schema.of_particles:
            raise ConfigurationError(f"model={config.model}: expected a model of fields, which takes a closure.")
        if config.time.dt is None:
            raise ConfigurationError(
                "time.courant: expected steps of one length, as all windows are advanced together; write time.dt."
            )
        names = tuple(config.initial if fields is None else fields)
        self._run = DifferentiableRun(
            with_devices(config), sizes=mesh, given=[f"initial.{name}" for name in names], checkpoint=checkpoint
        )
        self.variables = {name: self._variables_of(name) for name in names}
        self._values, self._fields = self._run.start_values(), self._run.start_fields()

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
        shape = self._run.domain.grid.shape
        for name in (name for names in self.variables.values() for name in names):
            if name not in batch:
                raise ConfigurationError(
                    f"windows have no {name!r}: expected {', '.join(map(', '.join, self.variables.values()))}, or name "
                    "fewer fields."
                )
            values = np.asarray(batch[name], dtype)[:, : self.states]
            # Files have the upper walls' faces too, which are no part of a state.
            values = values[(..., *(slice(n) for n in shape))]
            if values.shape[2:] != shape:
                raise ConfigurationError(
                    f"windows have {name!r} on {values.shape[2:]} cells: expected grid.shape={list(shape)}, or windows "
                    "on that grid (coarsen)."
                )
            found[name] = values
        if len(times) % (groups := self._groups):
            raise ConfigurationError(
                f"batches of {len(times)} windows: expected a multiple of mesh={{'ensemble': {groups}}}."
            )
        placements = shardings(self._run.mesh, self._specs(found))
        return {name: place(values, placements[name]) for name, values in found.items()}

    @property
    def _groups(self) -> int:
        mesh = self._run.mesh
        return 1 if mesh is None else dict(mesh.shape).get(ENSEMBLE, 1)

    def _shown(self, batch: Mapping[str, Any]) -> list[str]:
        """Names of the configuration's numbers that a batch has."""
        return [name for name in self._values if name in batch]

    def _specs(self, names) -> dict[str, PartitionSpec]:
        axis = ENSEMBLE if self._groups > 1 else None
        fields = {name for own in self.variables.values() for name in own}
        field = PartitionSpec(axis, None, *self._run.domain.spec())
        return {name: field if name in fields else PartitionSpec(axis) for name in names}

    # ------------------------------------------------------------------ the error

    def __call__(self, module: Closure, batch: Mapping[str, Array], key: Array) -> Array:
        """The error of each window, `(windows,)`; NaN where its run fails.

        Args:
            module: the closure. batch: as `placed` returns it. key: of the noise.
        """
        if not isinstance(module, Closure):
            raise ConfigurationError(
                f"expected a simjax.Closure to be trained, got {type(module).__name__}; write simjax.Closure(module, "
                "fields=(...), width=...)."
            )
        arrays, rest = eqx.partition(module, eqx.is_array)
        specs = self._specs(batch)
        known = PartitionSpec(), self._run.field_specs()
        axis = ENSEMBLE if self._groups > 1 else None

        def errors(arrays, batch, values, fields):
            def one(window):
                return self._error(eqx.combine(arrays, rest), window, values, fields)

            return jax.vmap(one)(batch)

        program = distribute(
            errors, self._run.mesh, in_specs=(PartitionSpec(), specs, *known), out_specs=PartitionSpec(axis)
        )
        return program(arrays, self._noisy(batch, key), self._values, self._fields)

    def _noisy(self, batch: Mapping[str, Array], key: Array) -> dict[str, Array]:
        """The batch with noise in its first states, drawn for whole fields, so that it is the same on any mesh."""
        if self.noise == 0:
            return dict(batch)
        found = dict(batch)
        for number, name in enumerate(name for own in self.variables.values() for name in own):
            first = batch[name][:, 0]
            size = jnp.sqrt(jnp.mean(first**2, axis=tuple(range(1, first.ndim)), keepdims=True))
            noise = jax.random.normal(jax.random.fold_in(key, number), first.shape, first.dtype)
            found[name] = batch[name].at[:, 0].add(self.noise * size * noise)
        return found

    def _error(self, module: Closure, window: Mapping[str, Array], values, fields) -> Array:
        """The error of one window, of this device's blocks."""
        run = self._run
        states = {field: tuple(window[name] for name in names) for field, names in self.variables.items()}
        first = {field: tuple(u[0] for u in components) for field, components in states.items()}
        values = {**values, **{name: window[name] for name in self._shown(window)}}
        own = {**fields, "initial": {**fields["initial"], **first}, "modules": {"closure": in_precision(module, run.dtype)}}
        own = run.prepared(values, own)
        state, _ = run.begin(values, own)
        start = window["first frame"]
        status = []
        if self.pushforward:
            before, _ = run.advance(values, own, state, first_frame=start, frames=self.pushforward)
            state = jax.lax.stop_gradient(before.state)
            status.append(before.clock.status)
        trajectory, _ = run.advance(
            values, own, state, self._observed, first_frame=start + self.pushforward, frames=self.unroll
        )
        status.append(trajectory.clock.status)
        target = {f: tuple(u[1 + self.pushforward : self.states] for u in parts) for f, parts in states.items()}
        error = self.error(trajectory.observed, target, run.domain)
        for one in status:
            error = spoiled(error, one)
        return error

    def _observed(self, model, t, state, params) -> States:
        found = model.observe(t, state, params)
        return {field: tuple(found[name] for name in names) for field, names in self.variables.items()}

