"""The compiled functions of a run of fields on a grid."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.core.model import Output
from simjax.driver.build import build_model, check_sides, describe_model, exact_errors, initial_state, read_files
from simjax.driver.compiled import Programs
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, Grid
from simjax.io.grid_output import GridWriter
from simjax.jaxpr.varying import vary_like
from simjax.models import faces
from simjax.parallel import decompose
from simjax.schema.config import Config, FileSource
from simjax.status import OK, STEP_COLLAPSED, STEP_SHRUNK, UNBALANCED
from simjax.stepping.faults import limits_told, times_on_host
from simjax.stepping.simulate import Clock, Schedule, time_of


class FieldPrograms(Programs):
    """Everything compiled for a model of fields. outputs: what is written."""

    units = ("cells", "cells/s")
    seconds = (1e-8, 1e-10)
    advice = "Try a finer grid, a smaller time.dt or time.courant, or more viscosity."

    def __init__(self, config: Config):
        super().__init__(config)
        self.time_units, self.length_units = ("1", "1") if config.schema.dimensionless else ("s", "m")
        grid = config.grid_of_fields()
        self.grid = Grid(grid.shape, grid.lower, grid.upper)
        self.size = self.grid.cells
        self.domain = decompose(self.grid, self.mesh, overlap=config.mesh.overlap, implementation=config.implementation)
        self.model, params = describe_model(config, self.domain)
        check_sides(config, self.domain)
        self.choose_variables()
        self._member = jax.eval_shape(self._member_state)
        self._check_memory("a coarser grid.shape")
        self.state_specs = self._member_specs(self.model.partition_specs(self._member, params)[0])
        self.values = self._place_values()
        files, self.notes = read_files(config, self.grid)
        files = jax.tree.map(lambda u: u.astype(self.dtype), files)
        self._file_specs = jax.tree.map(lambda _: self.domain.spec(), files)
        self.files = self._place(files, self._file_specs)
        self._faults: Callable | None = None
        self._starter: Callable | None = None

    def choose_variables(self):
        self._layouts = faces.output_layouts(self.model)
        self.outputs = self._selected(self.model.outputs())

    def _selected(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        """Outputs that are written: the model's own, then those derived from them."""
        chosen, ndim = self.config.output.fields, self.grid.ndim
        if chosen is None:
            return outputs
        written = self.config.schema.written(ndim, self.config.counts)
        names = [variable for name in chosen for variable in written[name]]
        own = {output.name: output for output in outputs}
        derived = []
        for name, source in self.config.schema.derived(ndim).items():
            if name not in names or name in own:
                continue
            like = own[source.components[0]]
            text = source.long_name or f"{like.long_name} at cell centres"
            derived.append(Output(name, (CENTER,) * ndim, like.units, text, "", source.vector, source.component))
        return (*(output for output in outputs if output.name in names), *derived)

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

    def starter(self):
        if self._starter is None:

            def begin(values, files, member):
                model, params = self.build(values, files)
                return initial_state(self.config, model, params, values, member, files["initial"], self.dtype)

            specs = (self._one, self._file_specs, self._one)
            self._starter = self._compile(begin, (0, None, 0), specs, self.state_specs)
        return self._starter

    def start(self):
        state = self.starter()(self.values, self.files, self._place_members())
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
        named = {f"{_field_name(path)} is not finite": cells for path, cells in leaves}
        for what, cells in (named | unphysical).items():
            where = np.argwhere(np.asarray(cells))
            if len(where):
                return what, tuple(int(i) for i in where[0]), len(where)
        return None

    def observe(self):
        if self._observe is None:
            walled = self._walled()

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
                observed = (self._written(model, fields, walled, t, state, params), diagnostics)
                return *jax.tree.map(lambda u: jnp.where(good, u, jnp.nan), observed), jnp.zeros_like(clock.status)

            specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
            kinds = (self._member_specs(self.domain.spec()), self._one, self._one)
            self._observe = self._compile(look, (0, None, 0, 0, None), specs, kinds)
        return self._observe

    def _walled(self) -> dict[str, tuple[int, ...]]:
        """Axes along which a written variable lies on faces, the upper wall's among them."""
        return {o.name: faces.walled_faces(o, self._layouts[o.name]) for o in self.outputs if o.name in self._layouts}

    def _written(self, model, fields, walled, t, state, params) -> dict[str, Any]:
        """The variables to write on this block, with what lies on upper wall faces beside them."""
        derived = self.config.schema.derived(self.grid.ndim)
        layouts, free = faces.output_layouts(model), model.free_faces(t, state, params)
        result = {}
        for output in self.outputs:
            name = output.name
            if name not in fields:
                parts = faces.centered_components(model, fields, free, derived[name].components, t)
                result[name] = parts[0] if derived[name].centered else faces.magnitude(parts)
                continue
            result[name] = fields[name]
            if walled.get(name):
                beyond = faces.upper_faces(model.domain, fields[name], layouts[name], walled[name], free.get(name), t)
                result |= {_beyond(name, axes): piece for axes, piece in beyond.items()}
        return result

    def assemble(self, fields):
        result = {output.name: fields[output.name] for output in self.outputs}
        for name, axes in self._walled().items():
            if axes:
                u = result[name]
                first = u.ndim - self.grid.ndim
                whole = np.empty([n + (k - first in axes) for k, n in enumerate(u.shape)], u.dtype)
                whole[tuple(slice(n) for n in u.shape)] = u
                for beyond, piece in ((b, fields[_beyond(name, b)]) for b in faces.subsets(axes)):
                    at = [slice(n) for n in u.shape]
                    last = [slice(None)] * u.ndim
                    for axis in beyond:
                        at[first + axis] = last[first + axis] = slice(-1, None)
                    whole[tuple(at)] = piece[tuple(last)]
                result[name] = whole
        return result

    def open_writer(self, folder: Path, schedule: Schedule, **options: Any) -> GridWriter:
        return GridWriter(
            folder, self.grid, self.outputs, members=self.members, parameters=self.used_parameters(schedule),
            dtype=self.dtype, periodic=[axis.periodic for axis in self.config.boundaries],
            about=self.describe_numbers(self.model.measures()), time_units=self.time_units,
            length_units=self.length_units, **options,
        )  # fmt: skip

    def first_fault(self, state, clock: Clock, schedule: Schedule, steps: int) -> str:
        single = self._single_step(schedule)
        for _ in range(steps):
            state, clock = single(self.values, self.files, state, clock, jnp.asarray(2**30, jnp.int32))
            unbalanced = self._imbalance(clock, schedule)
            if unbalanced:
                return unbalanced
            fault = self._fault(state)
            if fault is not None:
                return f"{fault[0]} at index {fault[1]}, step {int(np.max(np.asarray(clock.step)))}"
            if np.any(np.asarray(clock.status) & (STEP_COLLAPSED | STEP_SHRUNK)):
                time, step = float(np.min(times_on_host(clock, schedule))), int(np.max(np.asarray(clock.step)))
                shrunk = np.any(np.asarray(clock.status) & STEP_SHRUNK)
                further = "; resume with limits.step_shrink=null to go on nevertheless" if shrunk else ""
                return f"{limits_told(clock)}, step {step}, t={time:.6g}; {_largest(state)}{further}"
        return "a field that the steps one by one did not reproduce"

    def _imbalance(self, clock: Clock, schedule: Schedule) -> str:
        """Describe the imbalance of the first member's prescribed velocities at the end of a step, and its time."""
        first = jax.tree.map(lambda leaf: np.atleast_1d(np.asarray(leaf))[0], clock)
        if not first.status & UNBALANCED:
            return ""
        values = {name: jnp.asarray(np.atleast_1d(value)[0], self.dtype) for name, value in self.parameters.items()}
        model, params = build_model(self.config, self.domain.unsplit(), values, self.files)
        time = time_of(jax.tree.map(jnp.asarray, first), schedule)
        return f"{model.explain(time, params)}, at t={float(time):.6g}, step {int(first.step)}"


def _largest(state) -> str:
    """Say where every field is largest in absolute value; what limits a step is usually the huge one."""
    told = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        size = np.abs(np.asarray(leaf))
        index = tuple(int(i) for i in np.unravel_index(np.argmax(size), size.shape))
        told.append(f"{_field_name(path)} {size[index]:.3g} at index {index}")
    return f"largest absolute values: {', '.join(told)}"


def _beyond(name: str, axes: tuple[int, ...]) -> str:
    """The name, among what is observed, of a variable's values on upper wall faces of `axes`."""
    return f"{name} beyond {''.join(AXES[axis] for axis in axes)}"


def _field_name(path) -> str:
    """The path of a leaf as a user would write it: `velocity_y` for `.velocity[1]`, `u` for `['u']`."""
    *names, last = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    component = AXES[int(last)] if names and last.isdigit() and int(last) < len(AXES) else last
    return ".".join(names) + ("_" if last.isdigit() else "." if names else "") + component
