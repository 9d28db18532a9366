"""The compiled functions of a run of fields on a grid."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from simjax.config.read_stretched_grid import grid_of
from simjax.config.structure import frozen, structure_of
from simjax.core.domain import Domain
from simjax.core.ensemble_axis import Members
from simjax.core.mappings import traced_lines
from simjax.core.model import ExplicitModel, Output
from simjax.driver.programs.compiled_run import SECTIONS, CompiledRun
from simjax.driver.programs.constant_parts import ConstantParts, form_parts, parts_on_devices
from simjax.driver.programs.written_fields import WrittenFields, described
from simjax.driver.shared_programs import share
from simjax.driver.start.build import (
    FIRST_PARTS,
    PARTS,
    build_model,
    check_sides,
    coefficient_fields,
    describe_model,
    exact_errors,
    find_files,
    initial_fields,
    initial_fields_and_state,
    not_a_field,
)
from simjax.driver.start.taken_start import TOLD, changed_shares, taken_fields
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.instrument import View
from simjax.instruments.walls import read_walls, told_walls, walls_of
from simjax.integrators.storage import Stored, is_kept
from simjax.io.body_files import BodyField
from simjax.io.initial import FieldFile, require_finite
from simjax.jaxpr.varying import vary_like
from simjax.models import faces
from simjax.models.measures import checked_measures
from simjax.models.troubles import measures_of, numbers_of
from simjax.parallel import decompose, distribute, place_parts, whole
from simjax.report.check import ROUNDING
from simjax.schema.config import Config, Given, component_count
from simjax.schema.statistics import QUANTILES
from simjax.status import OK
from simjax.stepping.clock import Clock
from simjax.stepping.controlled import require_control

ADVICE = "Try a finer grid, a smaller time.dt or time.courant, or more viscosity."
TOLERANCE_ADVICE = "Try a larger time.tolerance or time.absolute_tolerance, precision=float64, or another scheme."
STEPS = ("time_step", "steps", "rejected_steps")
"""Diagnostics of runs with a tolerance."""
ROUNDINGS = 30
"""So many in a step, one on another: those of transforms and of what their sum is taken from."""


class CompiledFields(CompiledRun):
    """Compiled programs of fields.

    fields: those that come from files. described_params: the model's, of which shapes alone count. outputs: what is
    written, of every member. observed: what `observe` returns: these, or all variables where statistics over members
    alone are written.
    """

    seconds = (1e-8, 1e-10)
    smaller = "a coarser grid.shape"
    content, units = "fields", ("cells", "cells/s")

    def __init__(self, config: Config, given: Sequence[str] = (), absent: Sequence = (), start: Any = None):
        super().__init__(config, given, absent, start)
        self.grid = grid_of(config.grid_of_fields())
        self.size = self.grid.cells
        self.domain = decompose(self.grid, self.mesh, overlap=config.mesh.overlap, implementation=config.implementation)
        self.model, params = describe_model(config, self.domain)
        self.described_params = params
        self._require_own(self.model)
        asked = measures_of(config.troubles, self.grid.ndim, config.schema.length_units)
        self.measures = {**checked_measures(self.model), **asked}
        self.advice = ADVICE if config.time.tolerance is None else TOLERANCE_ADVICE
        self._taken = self._with_given(given)
        check_sides(config, self.domain)
        self.choose_variables()
        self._member = self._kept_fact(lambda: jax.eval_shape(self._member_state), "state")
        self.require_least_memory()
        self._require_kept_fields()
        if config.time.tolerance is not None:
            require_control(self.model, self.integrator, params)
        self.state_specs = self._member_specs(self.model.partition_specs(self._member, params)[0])
        self._faults: Callable | None = None
        self._starter: Callable | None = None
        self.first_cells: dict[str, float] = {}  # y+ at walls, of the start that was made last
        self._statistics: Callable | None = None
        self.values = self._place_values()
        self.fields, found = self._read_files()
        self.notes = [*self.model.notes(), *found]

    def _require_kept_fields(self):
        """Refuse `storage` where the state has no real fields."""
        leaves = jax.tree.leaves(self._member)
        if self.config.storage is not None and not any(is_kept(self.domain, leaf) for leaf in leaves):
            raise ConfigurationError(
                f"storage: expected a model of real fields, model={self.config.model} keeps complex amplitudes; leave "
                "storage out."
            )

    def choose_variables(self):
        chosen = self.config.output.fields
        self.outputs = self.model.outputs() if chosen is None else self.outputs_named(chosen)
        self.observed = self.outputs or (self.model.outputs() if self.config.ensemble.statistics else ())
        periodic = tuple(axis.periodic for axis in self.config.boundaries)
        layouts = faces.output_layouts(self.model)
        self._written = WrittenFields(self.config.schema, self.grid, self.observed, layouts, periodic)

    def outputs_named(self, chosen: Sequence[str]) -> tuple[Output, ...]:
        """Outputs by the names that `output.fields` takes: the model's own, those derived from them, its troubles."""
        return described(self.config, self.model.outputs(), chosen)

    def _member_state(self):
        """The state of a member on the whole grid; only its shapes and dtypes are ever asked for, which no constraint
        changes."""
        values = {name: jnp.zeros((), self.dtype) for name in self.parameters}
        whole = jnp.zeros(self.grid.shape, self.dtype)
        fields = {
            section: {name: (whole,) * len(specs) for name, specs in own.items()}
            for section, own in self.field_specs().items()
        }
        model, params = build_model(self._taken, self.domain.unsplit(), values, fields)
        fields = initial_fields(self._taken, model, values, 0, fields["initial"], self.dtype)
        return model.state_from(fields, params)

    # ------------------------------------------------------------------ fields that are arguments

    @functools.cached_property
    def _parts(self) -> tuple[ConstantParts | None, set[str]]:
        """The `constant_parts` of the model, and names of the numbers in them."""
        given = self.domain, self.mesh, self.host_values(), self.fields
        parts, named = parts_on_devices(self.config, *given, absent=bool(self._absent))
        return parts if parts is None or not self._absent else self._place(parts, parts.specs), named

    @functools.cached_property
    def files(self) -> dict[str, Any]:
        """Fields read from files, and arrays that the model computes once from its coefficients."""
        parts, _ = self._parts
        return self.fields if parts is None else {**self.fields, PARTS: parts}

    @functools.cached_property
    def _field_specs(self) -> Any:
        """The partition of fields that come from files."""
        return jax.tree.map(lambda _: self.domain.spec(), self.fields)

    @functools.cached_property
    def _file_specs(self) -> Any:
        parts, _ = self._parts
        return self._field_specs if parts is None else {**self._field_specs, PARTS: parts.specs}

    def used_parameters(self, schedule):
        _, named = self._parts
        return super().used_parameters(schedule) | {name: self.parameters[name] for name in sorted(named)}

    def _read_files(self) -> tuple[Any, list[str]]:
        """Fields that come from files, on the devices, and what was done to them; each device's part is read alone."""
        if self._absent:  # programs are made of shapes alone: nothing is read
            shape = jax.ShapeDtypeStruct(self.grid.shape, self.dtype)
            files = jax.tree.map(lambda _: shape, self.field_specs())
            return self._place(files, jax.tree.map(lambda _: self.domain.spec(), files)), []
        files, notes = find_files(self.config, self.grid)
        sharding = self._shardings(self.domain.spec())

        def placed(file: FieldFile | BodyField):
            return place_parts(lambda bounds: file.read(bounds).astype(self.dtype), self.grid.shape, sharding)

        arrays = jax.tree.map(placed, files)
        require_finite(jax.tree.leaves(files))
        return arrays, notes

    def _with_given(self, given: Sequence[str]) -> Config:
        """Return the configuration with the `given` fields in the place of their formulas."""
        layouts = self.model.component_layouts()
        counts = {("initial", name): len(layouts[name]) for name in layouts if name in self.config.initial}
        for field in self.config.schema.coefficients:
            if field.name in self.config.coefficients:
                counts["coefficients", field.name] = component_count(self.config.coefficients[field.name])
        sections = {section: dict(getattr(self.config, section)) for section in SECTIONS}
        for path in given:
            section, _, name = path.partition(".")
            if (section, name) not in counts:
                raise not_a_field(path, [".".join(pair) for pair in counts])
            sections[section][name] = Given(counts[section, name])
        return dataclasses.replace(self.config, **sections)

    def field_specs(self):
        return {
            section: {
                name: (self.domain.spec(),) * component_count(source)
                for name, source in getattr(self._taken, section).items()
                if not isinstance(source, tuple)
            }
            for section in SECTIONS
        }

    def start_fields(self, formulas=None):
        changed = {section: dict(getattr(self.config, section)) for section in SECTIONS}
        for path, own in (formulas or {}).items():
            section, name = path.split(".", 1)
            changed[section][name] = own
        config, bare, dtype, specs = (
            dataclasses.replace(self.config, **changed),
            self.bare(),
            self.dtype,
            self.field_specs(),
        )

        def evaluate(values, files):
            domain = bare._domain_of(values)
            model, _ = build_model(config, domain, values, files)
            found = {
                "initial": initial_fields(config, model, values, 0, files["initial"], dtype),
                "coefficients": coefficient_fields(config, domain, values, files["coefficients"]),
            }
            return {section: {name: found[section][name] for name in specs[section]} for section in SECTIONS}

        def make():
            return distribute(evaluate, self.mesh, in_specs=(PartitionSpec(), self._field_specs), out_specs=specs)

        key = ("start_fields", config.schema.configured, structure_of(config), self.moving, self.mesh, frozen(specs))
        return share(key, make)(self.host_values(), self.fields)

    def prepared(self, values, fields):
        parts, first = form_parts(self._taken, self._domain_of(values), values, fields)
        found = {} if parts is None else {PARTS: parts}
        return {**fields, **found, **({} if first is None else {FIRST_PARTS: first})}

    def begin(self, values, fields, steps_per_exchange=0):
        model, params, _, state = self._at_start(values, fields, steps_per_exchange)
        return self._kept(model, state, params), jnp.asarray(OK, jnp.int32)

    def taken(self, values, fields):
        model, params, given, state = self._at_start(values, fields)
        return {f"initial.{name}": own for name, own in taken_fields(model, given, state, params).items()}

    def _at_start(self, values, fields, steps_per_exchange=0):
        """The model, its parameters, this block's initial fields as they are given, and the state of these."""
        fields = {**fields, PARTS: fields.get(FIRST_PARTS, fields.get(PARTS))}
        model, params = self.build(values, fields, steps_per_exchange)
        return model, params, *self._begun(self._taken, model, params, values, 0, fields)

    def _begun(self, config: Config, model, params, values, member, files):
        """This block's initial fields and state."""
        return initial_fields_and_state(config, model, params, values, member, files["initial"], self.dtype)

    def _kept(self, model, state, params):
        """An initial state as it is kept between steps."""
        if isinstance(self.integrator, Stored):
            return self.integrator.rounded(model, jnp.zeros((), self.dtype), state, params)
        return state

    def variables(self, model, t, state, params):
        return model.observe(t, state, params)

    def diagnostics(self, model, t, state, params):
        own = super().diagnostics(model, t, state, params)
        return own | numbers_of(model, self.config.troubles, t, state, params, self.dtype)

    def worst_cells(self, state, time: float) -> dict[str, np.ndarray]:
        """Numbers of all troubles that the configuration can have, `(members,)` each; compiled when it is asked for."""
        wanted = tuple(one for one in self.config.schema.troubles if one.check(self.config) is None)

        def look(values, files, state, t):
            model, params = self.build(vary_like(values, state), files)
            return numbers_of(model, wanted, t, state, params, self.dtype)

        specs = (self._one, self._file_specs, self.state_specs, PartitionSpec())
        program = self._compile(look, (0, None, 0, None), specs, self._one, name="troubles")
        found = program(self.values, self.files, state, jnp.asarray(time, self.dtype))
        return {name: np.atleast_1d(whole(number)) for name, number in found.items()}

    def view(self, model, t, state, params, values, more=()):
        fields, offsets = model.observe(t, state, params), {o.name: o.offset for o in (*model.outputs(), *more)}
        beside = [output.name for output in more if output.name not in fields]
        if beside:
            free = model.free_faces(t, state, params)
            made = {name: self._written.derived(name, model, fields, free, t, state, params, values) for name in beside}
            fields = {**fields, **made}
        numbers = functools.cache(lambda: self.diagnostics(model, t, state, params))
        balances = functools.cache(lambda: model.readings(state, params)) if self.config.outputs.balanced else dict
        periodic = tuple(axis.periodic for axis in self.config.boundaries)
        surface = functools.cache(lambda points: model.along_bodies(t, state, params, points))
        return View(
            model.domain,
            periodic,
            fields,
            numbers,
            offsets,
            balances=balances,
            surface=surface,
            fluxes=functools.cache(lambda plane: model.fluxes(t, state, params, plane)),
            conductivities=lambda: model.conductivities(params),
            wall=lambda plane: model.wall_scales(t, state, params, plane),
        )

    @property
    def variable_names(self):
        return tuple(output.name for output in self.model.outputs())

    @property
    def variable_spec(self):
        return self.domain.spec()

    def bare(self):
        bare = super().bare()
        bare._faults, bare._starter, bare._statistics, bare.fields = None, None, None, None
        return bare

    def structure(self):
        return self.config.schema.configured, structure_of(self._taken), self.moving, self.mesh

    # ------------------------------------------------------------------ the run

    def build(self, values, files, steps_per_exchange=0):
        domain = dataclasses.replace(self._domain_of(values), steps_per_exchange=steps_per_exchange)
        return build_model(self._taken, domain, values, files)

    def _domain_of(self, values) -> Domain:
        """The domain, of which cells lie where `values` put them if the run is one that is differentiated."""
        stretch = self.config.grid_as_written().stretch
        if not self.moving or stretch is None or not any(stretch.formulas()):
            return self.domain
        return dataclasses.replace(self.domain, lines=traced_lines(stretch, values, self.grid))

    def starter(self):
        if self._starter is None:

            def begin(values, files, member):
                model, params = self.build(values, files)
                given, state = self._begun(self.config, model, params, values, member, files)
                heights = read_walls(walls, model, jnp.zeros((), self.dtype), state, params)
                return self._kept(model, state, params), changed_shares(model, given, state, params), heights

            walls = walls_of(self.config, self.model, self.described_params)
            specs, results = (self._one, self._file_specs, self._one), (self.state_specs, self._one, self._one)
            self._starter = self._compile(begin, (0, None, 0), specs, results, name="start")
        return self._starter

    def start(self):
        state, shares, heights = self.starter()(self.values, self.files, self._place_members())
        self.first_cells = {side: float(np.max(whole(height))) for side, height in heights.items()}
        largest = {f"initial.{name}": float(np.max(whole(share))) for name, share in shares.items()}
        self.start_changes = {path: share for path, share in largest.items() if share >= TOLD}
        return self._begun_state(state), self._zero_clock()

    def told_start(self):
        return [*super().told_start(), *told_walls(self.first_cells)]

    def faulty(self, model, state, params):
        masks = [~jnp.isfinite(u) for u in jax.tree.leaves(state)] + list(model.unphysical(state, params).values())
        # Not a number of cells, which may be zero again where integers end.
        return model.domain.max(functools.reduce(jnp.logical_or, map(jnp.any, masks)).astype(jnp.int32))

    def wrong_cells(self, state) -> tuple[Any, dict[str, Any]]:
        """Masks of cells that are not finite, a tree like the state, and of unphysical cells, by reason."""
        if self._faults is None:

            def look(values, files, state):
                model, params = self.build(vary_like(values, state), files)
                return jax.tree.map(lambda u: ~jnp.isfinite(u), state), model.unphysical(state, params)

            specs = (self._one, self._file_specs, self.state_specs)
            results = (self.state_specs, self._member_specs(self.domain.spec()))
            self._faults = self._compile(look, (0, None, 0), specs, results, name="wrong cells")
        return self._faults(self.values, self.files, state)

    def observe(self):
        if self._observe is None:
            written = self._written

            def look(values, files, state, clock, t):
                # Numbers stay the same on all devices, so that what is made of them and of sums is so too, by its type.
                model, params = build_model(self.config, self.domain, values, files)
                fields = model.observe(t, state, params)
                diagnostics = self.diagnostics(model, t, state, params)
                diagnostics |= exact_errors(self.config, model, fields, values, t)
                if clock.control is not None:
                    diagnostics |= _of_steps(clock, self.dtype)
                elif self.config.schema.limited:
                    limit = model.domain.min(self.step_limit(model, state, vary_like(params, state)))
                    diagnostics["courant"] = jnp.where(jnp.isfinite(limit), clock.dt / limit, 0.0)
                diagnostics |= self._roundings(model, t, clock.dt, state, params)
                # A frozen member has no fields at this time.
                good = clock.status == OK
                observed = (written.of_block(model, fields, t, state, params, values), diagnostics)
                return *jax.tree.map(lambda u: jnp.where(good, u, jnp.nan), observed), jnp.zeros_like(clock.status)

            specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
            kinds = (self._member_specs(self.domain.spec()), self._one, self._one)
            self._observe = self._compile(look, (0, None, 0, 0, None), specs, kinds, name="observe")
        return self._observe

    def _roundings(self, model, t, dt, state, params) -> dict[str, jax.Array]:
        """The largest that diagnostics may be which would vanish without rounding, by their names and `ROUNDING`."""
        tendency = functools.partial(model.rhs, t, state, params) if isinstance(model, ExplicitModel) else lambda: state
        computed = ROUNDINGS * float(jnp.finfo(self.dtype).eps)
        stored = 0.0 if self.config.storage is None else float(jnp.finfo(self.config.storage.dtype).eps)
        found = model.roundings(t, dt, state, params, tendency)
        return {f"{name}{ROUNDING}": computed * one.computed + stored * one.stored for name, one in found.items()}

    def statistics(self) -> Callable:
        """Compiled `(fields, clock, counted_from) -> (statistics, members)` over the members, on their devices.

        statistics: name of a statistic -> arrays like `fields` without the axis of members, quantiles in front.
        members: how many count, those that are well and past frame number `counted_from`.
        """
        if self._statistics is None:
            wanted, axis = self.config.ensemble.statistics, self._axis
            over = Members(axis, 1 if self.mesh is None or axis is None else self.mesh.shape[axis])

            def reduce(fields, clock, counted_from):
                counted = (clock.status == OK) & (clock.frame >= counted_from)
                ahead = (slice(None), *(None,) * self.grid.ndim)
                known = {name: jnp.where(counted[ahead], u, jnp.nan) for name, u in fields.items()}
                found = {name: {key: getattr(over, name)(u) for key, u in known.items()} for name in wanted.names}
                if wanted.quantiles:
                    found[QUANTILES] = {key: over.quantiles(u, wanted.quantiles) for key, u in known.items()}
                return found, over.total(counted.astype(jnp.int32))

            spec = self.domain.spec()
            results = dict.fromkeys(wanted.names, spec)
            if wanted.quantiles:
                results[QUANTILES] = PartitionSpec(None, *spec)
            given = self._member_specs(spec), self._one, self._one
            self._statistics = distribute(reduce, self.mesh, in_specs=given, out_specs=(results, PartitionSpec()))
        return self._statistics

    def reduced(self, fields, clock) -> tuple[dict[str, dict[str, Any]], Any]:
        """Statistics over the members that count, as `statistics` returns them."""
        return self.statistics()(fields, clock, self._place(self.counted_from, self._one))

    @property
    def cut_shape(self):
        lead = () if self.members is None else (self.members,)
        return (*lead, *self.grid.shape), self._member_specs(self.domain.spec())

    def ranges_of(self, bounds, share, shares):
        names = ("member", *AXES) if self.members is not None else AXES
        found = {}
        for name, (first, last), size in zip(names, bounds, self.cut_shape[0], strict=False):
            if (first, last) != (0, size):
                found[name] = first, last
                beyond = name in AXES and not self.config.boundaries[AXES.index(name)].periodic and last == size
                found |= {f"{name}_face": (first, last + beyond)} if name in AXES else {}
        return found

    def assemble(self, fields, ranges, ahead=None):
        """The same; ahead: names and sizes of the axes before those of space, by default that of the members."""
        members = () if self.members is None else (("member", self.members),)
        return self._written.arranged(fields, ranges, members if ahead is None else ahead)


def _of_steps(clock: Clock, dtype) -> dict[str, jax.Array]:
    """Numbers of the control of errors so far, by the names of `STEPS`."""
    assert clock.control is not None
    return dict(zip(STEPS, (clock.dt, clock.step.astype(dtype), clock.control.rejected.astype(dtype)), strict=True))
