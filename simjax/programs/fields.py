"""The compiled functions of a run of fields on a grid."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
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
    read_files,
)
from simjax.config import Config, FileSource
from simjax.core.errors import ConfigurationError
from simjax.core.grid import AXES, Grid
from simjax.core.model import Output
from simjax.core.status import OK, STEP_COLLAPSED, STEP_SHRUNK
from simjax.core.varying import vary_like
from simjax.faults import limits_told, times_on_host
from simjax.io.grid_output import GridWriter
from simjax.parallel import decompose
from simjax.programs.common import Programs
from simjax.stepping import Clock, Schedule


class FieldPrograms(Programs):
    """Everything compiled for a model of fields. outputs: what is written."""

    units, time_units = ("cells", "cells/s"), "s"
    seconds = (1e-8, 1e-10)
    advice = "Try a finer grid, a smaller time.dt or time.courant, or more viscosity."

    def __init__(self, config: Config):
        super().__init__(config)
        grid = config.grid_of_fields()
        self.grid = Grid(grid.shape, grid.lower, grid.upper)
        self.size = self.grid.cells
        self.domain = decompose(self.grid, self.mesh, overlap=config.mesh.overlap, implementation=config.implementation)
        self.model, params = describe_model(config, self.domain)
        self.outputs = self._selected(self.model.outputs())
        self._member = jax.eval_shape(self._member_state)
        self._check_memory("a coarser grid.shape")
        self.state_specs = self._member_specs(self.model.partition_specs(self._member, params)[0])
        self.values = self._place_values()
        files, self.notes = read_files(config, self.grid)
        files = jax.tree.map(lambda u: u.astype(self.dtype), files)
        self._file_specs = jax.tree.map(lambda _: self.domain.spec(), files)
        self.files = self._place(files, self._file_specs)
        self._faults: Callable | None = None

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

    def build(self, values, files, steps_per_exchange=0):
        domain = dataclasses.replace(self.domain, steps_per_exchange=steps_per_exchange)
        return build_model(self.config, domain, values, files)

    def start(self):
        def begin(values, files, member):
            model, params = self.build(values, files)
            return initial_state(self.config, model, params, values, member, files["initial"], self.dtype)

        specs = (self._one, self._file_specs, self._one)
        begin = self._compile(begin, (0, None, 0), specs, self.state_specs)
        state = begin(self.values, self.files, self._place_members())
        self._check_initial(state)
        return state, self._zero_clock()

    def _check_initial(self, state) -> None:
        fault = self._fault(state)
        if fault is not None:
            what, index, count = fault
            raise ConfigurationError(
                f"initial.{what} at index {index} ({count} such cells); check its formula or file."
            )

    def _fault(self, state) -> tuple[str, tuple[int, ...], int] | None:
        """What is not finite or not physical in `state`, the first such index, and how many there are."""
        if self._faults is None:

            def look(values, files, state):
                model, params = self.build(vary_like(values, state), files)
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

    def observe(self):
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
                observed = ({name: fields[name] for name in names}, diagnostics)
                return *jax.tree.map(lambda u: jnp.where(good, u, jnp.nan), observed), jnp.zeros_like(clock.status)

            specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
            fields = {name: self._member_specs(self.domain.spec()) for name in names}
            self._observe = self._compile(look, (0, None, 0, 0, None), specs, (fields, self._one, self._one))
        return self._observe

    def open_writer(self, folder: Path, **options: Any) -> GridWriter:
        return GridWriter(
            folder, self.grid, self.outputs, members=self.members, parameters=self.parameters, dtype=self.dtype,
            **options,
        )  # fmt: skip

    def first_fault(self, state, clock: Clock, schedule: Schedule, steps: int) -> str:
        single = self._single_step(schedule)
        for _ in range(steps):
            state, clock = single(self.values, self.files, state, clock, jnp.asarray(2**30, jnp.int32))
            fault = self._fault(state)
            if fault is not None:
                return f"{fault[0]} at index {fault[1]}, step {int(np.max(np.asarray(clock.step)))}"
            if np.any(np.asarray(clock.status) & (STEP_COLLAPSED | STEP_SHRUNK)):
                time, step = float(np.min(times_on_host(clock, schedule))), int(np.max(np.asarray(clock.step)))
                shrunk = np.any(np.asarray(clock.status) & STEP_SHRUNK)
                further = "; resume with limits.step_shrink=null to go on nevertheless" if shrunk else ""
                return f"{limits_told(clock)}, step {step}, t={time:.6g}; {_largest(state)}{further}"
        return "a field that the steps one by one did not reproduce"


def _largest(state) -> str:
    """Where every field is largest in absolute value, in words: of what limits the step, one is usually huge."""
    told = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        size = np.abs(np.asarray(leaf))
        index = tuple(int(i) for i in np.unravel_index(np.argmax(size), size.shape))
        told.append(f"{_field_name(path)[1:]} {size[index]:.3g} at index {index}")
    return f"largest absolute values: {', '.join(told)}"


def _field_name(path) -> str:
    """`.velocity[1]` as a user would write it: `.velocity_y`."""
    text = jax.tree_util.keystr(path)
    for number, axis in enumerate(AXES):
        text = text.replace(f"[{number}]", f"_{axis}")
    return text
