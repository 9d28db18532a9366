"""The compiled functions of a run: initial state, advance, observe; one member or many, one device or many."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.build import (
    build_model,
    describe_model,
    exact_errors,
    initial_state,
    named_values,
    read_files,
)
from simjax.config import Config, FileSource
from simjax.core.errors import ConfigurationError, ResourceError
from simjax.core.grid import AXES, Grid
from simjax.core.model import Output
from simjax.core.status import OK
from simjax.core.varying import vary_like
from simjax.integrators.table import INTEGRATORS
from simjax.parallel import ENSEMBLE, decompose, distribute, make_mesh, prepend_axis, shardings
from simjax.runtime import available_memory
from simjax.stepping import Clock, Schedule, advance, take_step

# In states of one member, read from compiled programs (float32, 256^2 and 64^3): temporaries of a step, 4.0 with
# Euler to 9.8 with rk4, and observed fields on their way to the disk, 2 of each of two frames.
WORKING_COPIES = 14


class Programs:
    """Everything compiled for one configuration, over `values`, `state` and `clock` with a member axis or without.

    `values` are the named numbers and `files` the fields that came from files, placed on the devices; `notes` say what
    was done to those; `state_specs` is the partition of the state.
    """

    def __init__(self, config: Config):
        self.config = config
        self.dtype = jnp.dtype(config.precision)
        self.grid = Grid(config.grid.shape, config.grid.lower, config.grid.upper)
        self.mesh = make_mesh({name: getattr(config.mesh, name) for name in (ENSEMBLE, *AXES)})
        self.domain = decompose(self.grid, self.mesh, overlap=config.mesh.overlap, implementation=config.implementation)
        several = config.steps_per_exchange
        self.steps_per_exchange = several if isinstance(several, int) else 0  # until it is measured (`exchanges`)
        self.integrator = INTEGRATORS[config.time.integrator]
        host_values = named_values(config)
        ensemble = config.ensemble.size > 1 or bool(config.ensemble.vary)
        self.members = config.ensemble.size if ensemble else None
        self.parameters = host_values
        self.model, params = describe_model(config, self.domain)
        self.outputs = self._selected(self.model.outputs())
        self._axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        self._member = jax.eval_shape(self._member_state)
        self._check_memory()
        self.state_specs = self._member_specs(self.model.partition_specs(self._member, params)[0])
        self._one = self._member_specs(PartitionSpec())
        self.values = self._place({n: np.asarray(v, self.dtype) for n, v in host_values.items()}, self._one)
        files, self.notes = read_files(config, self.grid)
        files = jax.tree.map(lambda u: u.astype(self.dtype), files)
        self._file_specs = jax.tree.map(lambda _: self.domain.spec(), files)
        self.files = self._place(files, self._file_specs)
        self._observe: Callable | None = None
        self._faults: Callable | None = None
        self._advance: dict[tuple[Schedule, int, int], Callable] = {}

    def _selected(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        chosen = self.config.output.fields
        return outputs if chosen is None else tuple(o for o in outputs if o.name in chosen)

    def _member_state(self):
        """One member's whole state; only its shapes and dtypes are ever asked for."""
        values = {name: jnp.zeros((), self.dtype) for name in self.parameters}
        whole = jnp.zeros(self.grid.shape, self.dtype)
        files = {
            section: {
                name: (whole,) * len(source.variables)
                for name, source in getattr(self.config, section).items()
                if isinstance(source, FileSource)
            }
            for section in ("initial", "coefficients")
        }
        model, params = build_model(self.config, self.domain.unsplit(), values, files)
        return initial_state(self.config, model, params, values, 0, files["initial"], self.dtype)

    # ------------------------------------------------------------------ placement

    def _member_specs(self, specs):
        return specs if self.members is None else prepend_axis(specs, self._axis)

    def _place(self, tree, specs):
        """Host arrays put on the devices; `specs` is one spec for all or a tree of them."""
        if isinstance(specs, PartitionSpec):
            specs = jax.tree.map(lambda _: specs, tree)
        return jax.tree.map(jax.device_put, tree, shardings(self.mesh, specs))

    def _vectorise(self, fn: Callable, in_axes: tuple) -> Callable:
        """`fn` over this device's members, all at once or in batches that fit in memory."""
        if self.members is None:
            return fn
        mapped = jax.vmap(fn, in_axes=in_axes)
        local = self.members // (self.mesh.shape[ENSEMBLE] if self._axis and self.mesh is not None else 1)
        batch = self.config.ensemble.batch or self._fitting_batch(local)
        if batch >= local:
            return mapped

        def in_batches(*args):
            shared = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is None]
            own = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is not None]

            def one(own_args):
                rest, each = iter(shared), iter(own_args)
                return fn(*(next(rest) if axis is None else next(each) for axis in in_axes))

            return jax.lax.map(one, own, batch_size=batch)

        return in_batches

    def _compile(self, fn: Callable, in_axes: tuple, in_specs: tuple, out_specs, donate=()) -> Callable:
        mapped = self._vectorise(fn, in_axes)
        return distribute(mapped, self.mesh, in_specs=in_specs, out_specs=out_specs, donate=donate)

    # ------------------------------------------------------------------ memory

    def state_bytes(self) -> int:
        """Bytes of one member's state on one device."""
        devices = math.prod(dict(self.mesh.shape)[name] for name in self.domain.names) if self.mesh else 1
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._member)) // devices

    def _memory(self) -> int | None:
        limit = self.config.limits.memory
        return int(limit * 2**30) if limit is not None else available_memory()

    def _fitting_batch(self, local: int) -> int:
        memory = self._memory()
        if memory is None:
            return local
        room = memory // 2 - local * 2 * self.state_bytes()
        return max(1, min(local, room // (WORKING_COPIES * self.state_bytes())))

    def _check_memory(self) -> None:
        memory = self._memory()
        members = 1 if self.members is None else self.members // self.config.mesh.ensemble
        state = self.state_bytes()
        needed = state * (2 * members + WORKING_COPIES)
        if memory is not None and needed > memory:
            raise ResourceError(
                f"about {needed / 2**30:.1f} GiB per device are needed ({members} member(s) x 2 states of "
                f"{state / 2**30:.2f} GiB and {WORKING_COPIES} working copies), {memory / 2**30:.1f} GiB are there; "
                "use a coarser grid.shape, precision=float32, a smaller ensemble.size or more devices (mesh.x, mesh.y)."
            )

    # ------------------------------------------------------------------ programs

    def start(self) -> tuple[Any, Clock]:
        """The initial state and clock.

        Raises:
            ConfigurationError: a field is not finite or not physical at some cell.
        """
        members = np.arange(self.members or 1, dtype=np.int32)
        member = self._place(members if self.members is not None else members[0], self._one)

        def begin(values, files, member):
            model, params = build_model(self.config, self.domain, values, files)
            return initial_state(self.config, model, params, values, member, files["initial"], self.dtype)

        specs = (self._one, self._file_specs, self._one)
        state = self._compile(begin, (0, None, 0), specs, self.state_specs)(self.values, self.files, member)
        self._check_initial(state)
        return state, self._zero_clock()

    def _zero_clock(self) -> Clock:
        clock = jax.tree.map(np.asarray, Clock.zero(self.dtype))
        if self.members is not None:
            shape = (self.members,)
            clock = jax.tree.map(lambda leaf: np.broadcast_to(leaf, shape), clock)
        return self._place(clock, self._one)

    def _check_initial(self, state) -> None:
        fault = self._first_fault(state)
        if fault is not None:
            what, index, count = fault
            raise ConfigurationError(
                f"initial.{what} at index {index} ({count} such cells); check its formula or file."
            )

    def _first_fault(self, state) -> tuple[str, tuple[int, ...], int] | None:
        """What is not finite or not physical in `state`, the first such index, and how many there are."""
        if self._faults is None:

            def look(values, files, state):
                model, params = build_model(self.config, self.domain, vary_like(values, state), files)
                return jax.tree.map(lambda u: ~jnp.isfinite(u), state), model.unphysical(state, params)

            specs = (self._one, self._file_specs, self.state_specs)
            results = (self.state_specs, self._member_specs(self.domain.spec()))
            self._faults = self._compile(look, (0, None, 0), specs, results)
        infinite, unphysical = self._faults(self.values, self.files, state)
        leaves = jax.tree_util.tree_leaves_with_path(infinite)
        named = {f"{_field_name(path)[1:]} is not finite": cells for path, cells in leaves}
        for what, cells in (named | unphysical).items():
            where = np.argwhere(np.asarray(cells))
            if len(where):
                return what, tuple(int(i) for i in where[0]), len(where)
        return None

    def stable_dt(self, state) -> float:
        """The smallest stable step of all members at Courant number one, on the host."""

        def limit(values, files, state):
            model, params = build_model(self.config, self.domain, values, files)
            return model.domain.min(self.integrator.stable_dt(model, state, vary_like(params, state)))

        program = self._compile(limit, (0, None, 0), (self._one, self._file_specs, self.state_specs), self._one)
        return float(np.min(np.asarray(program(self.values, self.files, state))))

    def advance(self, schedule: Schedule, steps: int) -> Callable:
        """Compiled `(values, files, state, clock, until) -> (state, clock)`; the state is donated."""
        key = schedule, steps, self.steps_per_exchange
        if key not in self._advance:
            self._advance[key] = self.advance_by(*key)
        return self._advance[key]

    def advance_by(self, schedule: Schedule, steps: int, steps_per_exchange: int) -> Callable:
        """As `advance`, with so many steps between two exchanges; compiled anew."""
        domain = dataclasses.replace(self.domain, steps_per_exchange=steps_per_exchange)

        def forward(values, files, state, clock, until):
            model, params = build_model(self.config, domain, vary_like(values, state), files)
            return advance(model, self.integrator, params, state, clock, schedule, steps=steps, until=until)

        specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
        return self._compile(forward, (0, None, 0, 0, None), specs, (self.state_specs, self._one), donate=(2,))

    def observe(self) -> Callable:
        """Compiled `(values, files, state, clock, t) -> (fields, diagnostics)`."""
        if self._observe is None:
            names = [output.name for output in self.outputs]

            def look(values, files, state, clock, t):
                values = vary_like(values, state)
                model, params = build_model(self.config, self.domain, values, files)
                fields = model.observe(t, state, params)
                diagnostics = model.diagnostics(t, state, params)
                diagnostics |= exact_errors(self.config, model, fields, values, t)
                if self.config.schema.limited:
                    limit = model.domain.min(self.integrator.stable_dt(model, state, params))
                    diagnostics["courant"] = jnp.where(jnp.isfinite(limit), clock.dt / limit, 0.0)
                # A frozen member has no fields at this time.
                good = clock.status == OK
                return jax.tree.map(
                    lambda u: jnp.where(good, u, jnp.nan),
                    ({name: fields[name] for name in names}, diagnostics),
                )

            specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
            fields = {name: self._member_specs(self.domain.spec()) for name in names}
            self._observe = self._compile(look, (0, None, 0, 0, None), specs, (fields, self._one))
        return self._observe

    def copy(self, state, clock):
        """A copy that outlives donation."""
        return jax.tree.map(jnp.copy, (state, clock))

    def template(self):
        """Shapes, dtypes and shardings of (state, clock), to restore a checkpoint onto these devices."""
        clock = jax.eval_shape(lambda: Clock.zero(self.dtype))
        specs = self.state_specs, jax.tree.map(lambda _: self._one, clock)
        lead = () if self.members is None else (self.members,)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(lead + leaf.shape, leaf.dtype, sharding=sharding),
            (self._member, clock),
            shardings(self.mesh, specs),
        )

    def first_fault(self, state, clock: Clock, schedule: Schedule, steps: int) -> str:
        """Which field became not finite or unphysical first, where and when: `steps` steps again, one by one."""
        single = self._single_step(schedule)
        for _ in range(steps):
            state, clock = single(self.values, self.files, state, clock, jnp.asarray(2**30, jnp.int32))
            fault = self._first_fault(state)
            if fault is not None:
                return f"{fault[0]} at index {fault[1]}, step {int(np.max(np.asarray(clock.step)))}"
        return "a field that the steps one by one did not reproduce"

    def _single_step(self, schedule: Schedule) -> Callable:
        def forward(values, files, state, clock, until):
            model, params = build_model(self.config, self.domain, vary_like(values, state), files)
            return take_step(model, self.integrator, params, state, clock, schedule, until)

        specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
        return self._compile(forward, (0, None, 0, 0, None), specs, (self.state_specs, self._one))


def _field_name(path) -> str:
    """`.velocity[1]` as a user would write it: `.velocity_y`."""
    text = jax.tree_util.keystr(path)
    for number, axis in enumerate(AXES):
        text = text.replace(f"[{number}]", f"_{axis}")
    return text
