"""The steps of a run: how long they may be, and the programs that take them."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.core.model import Model
from simjax.driver.programs.measured_run import MeasuredRun
from simjax.driver.programs.used_names import names_in_programs
from simjax.driver.start.build import integrator_of
from simjax.errors import ConfigurationError
from simjax.jaxpr.varying import vary_like
from simjax.parallel import whole
from simjax.schema.config import Config
from simjax.stepping.one_step import take_step
from simjax.stepping.simulate import Clock, Schedule, advance


class SteppedRun(MeasuredRun):
    """A run with its sizes and the programs that advance it, over a state and a clock with a member axis or without."""

    _file_specs: Any

    def __init__(self, config: Config, given: Sequence[str], absent: Sequence):
        super().__init__(config, given, absent)
        self.integrator = integrator_of(config)
        self._require_stable_courant(config)
        self._limits: Callable | None = None
        self._advance: dict[tuple[Schedule, int, int], Callable] = {}
        several = config.steps_per_exchange
        self.steps_per_exchange = several if isinstance(several, int) else 0  # until it is measured (`exchanges`)

    def _require_stable_courant(self, config: Config) -> None:
        """Refuse a Courant number with which no step is stable."""
        courant, limit = config.time.courant, self.courant_limit
        if courant is not None and courant > limit:
            scheme = f" of {config.time.integrator}" if config.time.integrator else ""
            raise ConfigurationError(
                f"time.courant={courant:g} is above the stable limit {limit:g}{scheme}; write time.courant="
                f"{0.5 * limit:.2g}, or time.dt for a fixed step."
            )

    @abc.abstractmethod
    def build(self, values, files, steps_per_exchange: int = 0) -> tuple[Model, Any]:
        """The model and its parameters on this device, with so many steps between two exchanges of fields."""

    @property
    def steps_together(self) -> int:
        """Steps that stay in one call wherever a run is cut, so that it goes on bit for bit."""
        return max(1, self.steps_per_exchange)

    def _zero_clock(self) -> Clock:
        # Of numbers on the host: each kind of zero would be a program of its own.
        clock = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._clock)
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
        return whole(self._judged(state)[0]).astype(np.float64)

    def is_faulty(self, state) -> bool:
        """Tell whether the state of any member is `faulty`."""
        return bool(np.any(whole(self._judged(state)[1])))

    def faulty(self, model, state, params) -> jax.Array:
        """One where a cell on any device is not finite or not physical, else zero, as where a run asks otherwise."""
        return jnp.zeros((), jnp.int32)

    def _judged(self, state) -> tuple[jax.Array, jax.Array]:
        """Stable steps, and which members are faulty: one program, as every run asks for both of its initial state."""

        def judge(values, files, state):
            model, params = self.build(values, files)
            params = vary_like(params, state)
            return model.domain.min(self.step_limit(model, state, params)), self.faulty(model, state, params)

        if self._limits is None:
            specs = self._one, self._file_specs, self.state_specs
            self._limits = self._compile(judge, (0, None, 0), specs, self._one, name="limits")
        return self._limits(self.values, self.files, state)

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

    def used_parameters(self, schedule: Schedule) -> dict[str, np.ndarray]:
        """Named numbers that the run depends on: those of its programs, those that vary, the user's own."""
        used = self._kept_fact(lambda: sorted(names_in_programs(self, schedule)), "used names", schedule)
        used = {*used, *self.config.parameters, *(variation.value_name for variation in self.config.ensemble.vary)}
        return {name: value for name, value in self.parameters.items() if name in used}

    def single_step(self, schedule: Schedule) -> Callable:
        """Compiled as `advance`, one step, of which the state is kept whatever it holds."""

        def forward(values, files, state, clock, until):
            model, params = self.build(vary_like(values, state), files)
            return take_step(model, self.integrator, params, state, clock, schedule, until)

        specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
        return self._compile(forward, (0, None, 0, 0, None), specs, (self.state_specs, self._one))
