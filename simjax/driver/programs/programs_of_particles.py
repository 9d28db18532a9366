"""The compiled functions of a run of particles, and the room that they need."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.config.structure import frozen, structure_of
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.shared_programs import share
from simjax.driver.start.build import not_a_field
from simjax.driver.start.taken_start import POSITIONS
from simjax.errors import NumericalError
from simjax.grid import AXES, Grid
from simjax.instruments.instrument import View
from simjax.io.checkpoint import require_meta
from simjax.models.balances import fields_of
from simjax.models.capacities import Capacities, divisor, multiple
from simjax.models.particle_balances import ParticlesWithBalances, bare_model, particles_with_balances
from simjax.models.particle_model import evaluated, family_of
from simjax.models.particles_of_file import count_outside
from simjax.models.placement import Start, chosen_particles
from simjax.parallel import decompose, distribute, place, region, shardings, whole
from simjax.particles.cells import EMPTY, Cells, enlarged, unpack
from simjax.schema.config import Config
from simjax.status import BLOCK_FULL, CELL_FULL, LIST_FULL, NON_FINITE, OK, SKIN_PASSED

GROWTH = 1.5
MOST_GROWTHS = 12


class CompiledParticles(CompiledRun):
    """Compiled programs of particles. names: the variables that are written, beside the fixed ones.
    written: numbers of the particles that are written, in their order; None: all.

    start: the particles as they start, where they are known; else they are placed as the configuration says.
    """

    regrows = True
    smaller = "fewer particles"
    content = "particles"

    def __init__(self, config: Config, given: Sequence[str] = (), absent: Sequence = (), start: Start | None = None):
        super().__init__(config, given, absent, start)
        self.family = family_of(config)
        self.measures = self.family.measures
        for path in given:
            known = [f"initial.{name}" for name in config.schema.given_at_start]
            if path not in known:
                raise not_a_field(path, known)
        self._given = tuple(path.split(".", 1)[1] for path in given)
        self.seconds, self.advice, self.units = (
            self.family.seconds,
            self.family.advice,
            ("particles", self.family.units),
        )
        self.start_of = self.family.start() if start is None else start
        self.size = self.particles = self.start_of.count
        self.choose_variables()
        self.written = chosen_particles(config, self.start_of)
        self._growths = 0
        self.notes = [*self.start_of.notes]
        if self.written is not None:
            self.notes.append(f"Frames hold {len(self.written)} of {self.size} particles.")
        known = {"position": self.start_of.position, "species": self.start_of.species, **self.start_of.others}
        files = {name: np.asarray(u, self.dtype if u.dtype.kind == "f" else np.int32) for name, u in known.items()}
        self._file_specs = jax.tree.map(lambda _: PartitionSpec(), files)
        self._file_shapes = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape, u.dtype), files)
        blocks = [getattr(config.mesh, name) for name in AXES[: config.ndim]]
        self._make(self.family.first_capacities(self.start_of, self.parameters, blocks))
        slots = config.neighbor_list.cell_capacity
        if slots is not None and self._capacities.cell_capacity > multiple(slots):
            self.notes.append(
                f"A cell starts with more than {slots} particles and can hold {self._capacities.cell_capacity} now."
            )
        self.require_least_memory()
        self.values = self._place_values()
        self.files = self._place(files, self._file_specs)

    @classmethod
    def places(cls, config):
        return family_of(config).start()

    # ------------------------------------------------------------------ arrays that are arguments

    def field_specs(self):
        given = {name: (PartitionSpec(),) * self.config.ndim for name in self._given}
        return {"initial": given, "coefficients": {}, "particles": self._file_specs}

    def start_fields(self, formulas=None):
        found, values = {}, jax.tree.map(jnp.asarray, self.host_values())
        at = jnp.asarray(self.start_of.position, self.dtype)
        for name in self._given:
            own = (formulas or {}).get(f"initial.{name}")
            u = evaluated(own, values, at) if own is not None else at if name == "position" else self._start_velocity()
            found[name] = tuple(place(part, shardings(self.mesh, PartitionSpec())) for part in u)
        return {"initial": found, "coefficients": {}, "particles": self.files}

    def _start_velocity(self) -> Array:
        """Velocities `(ndim, particles)` by number, as the configuration has them at the start."""

        bare = self.bare()

        def velocity(values, files):
            state = fields_of(bare.initial_state(values, files, 0)[0])
            return unpack(bare.cells, state.ids, state.velocity, bare.size)

        def make():
            specs = PartitionSpec(), bare._file_specs
            return distribute(velocity, bare.mesh, in_specs=specs, out_specs=PartitionSpec())

        return share(("start velocity", self.structure()), make)(self.host_values(), self.files)

    def begin(self, values, fields, steps_per_exchange=0):
        given = {name: jnp.stack(components) for name, components in fields["initial"].items()}
        state, lost, fault = self.initial_state(values, {**fields["particles"], **given}, 0)
        return state, self.domain.max(fault) | jnp.where(lost > 0, CELL_FULL, OK).astype(jnp.int32)

    def structure(self):
        capacities = frozen(dataclasses.asdict(self._capacities))
        given = self._given, tuple((name, u.shape) for name, u in sorted(self._file_shapes.items()))
        return self.config.schema.configured, structure_of(self.config), self.mesh, given, capacities, self.size

    def variables(self, model, t, state, params):
        return self._arrays(model, state, params)

    def view(self, model, t, state, params, values, more=()):
        numbers = functools.cache(lambda: self.diagnostics(model, t, state, params))
        found = self._arrays(model, state, params)
        balances = functools.cache(lambda: model.readings(state, params)) if self.config.outputs.balanced else dict
        return View(
            self.domain,
            self.cells.periodic,
            found,
            numbers,
            cells=self.cells,
            particles=fields_of(state),
            balances=balances,
        )

    def diagnostics(self, model, t, state, params):
        found = super().diagnostics(model, t, state, params)
        return {name: u.astype(self.dtype) for name, u in found.items() if name != "status"}

    @property
    def variable_names(self):
        return self.config.variables()

    @property
    def variable_spec(self):
        return PartitionSpec()

    def bare(self):
        bare = super().bare()
        bare.start_of, bare._starter = None, None  # pyright: ignore[reportAttributeAccessIssue]
        return bare

    # ------------------------------------------------------------------ what follows from the room

    def choose_variables(self):
        chosen = self.config.output.fields
        self.names = tuple(n for n in self.config.variables() if chosen is None or n in chosen)

    def _make(self, capacities: Capacities) -> None:
        """Make all that follows from the capacities; programs compiled for others are forgotten."""
        bounds = self.family.bounds
        self._capacities = capacities
        self.domain = decompose(
            Grid(capacities.cells, bounds.lower, bounds.upper), self.mesh, overlap=self.config.mesh.overlap
        )
        self.cells = Cells(self.domain, capacities.cell_capacity, bounds.periodic)
        self.model, params = eqx.filter_eval_shape(lambda: self._model(self.cells, self._blank_values()))
        self._require_own(self.model)
        self._member = self._kept_fact(self._member_state, "state")
        self.state_specs = self._member_specs(self.model.partition_specs(self._member, params)[0])
        self._observe, self._advance, self._limits, self._starter = None, {}, None, None
        self.instrument_programs = {}

    def _member_state(self):
        """Shapes and dtypes of one member's whole state."""
        cells = Cells(self.domain.unsplit(), self._capacities.cell_capacity, self.cells.periodic)

        def state(files):
            return self._begun(cells, self._blank_values(), files, jnp.zeros((), jnp.int32))[0]

        return jax.eval_shape(state, self._file_shapes)

    def _blank_values(self) -> dict[str, Array]:
        """Numbers for a trace that asks for shapes only."""
        return {name: jnp.zeros((), self.dtype) for name in self.parameters}

    def _model(self, cells: Cells, values):
        model, params = self.family.model(cells, self._capacities, values)
        quantities = self.config.outputs.balanced
        return (particles_with_balances(model, quantities) if quantities else model), params

    def _begun(self, cells: Cells, values, files, member):
        """One member's first state, how many particles found no place, and bits of `status`."""
        model, params = self._model(cells, values)
        state, lost, fault = self.family.state(bare_model(model), params, values, files, member)
        return (model.accounts(state, params) if isinstance(model, ParticlesWithBalances) else state), lost, fault

    def build(self, values, files, steps_per_exchange=0):
        return self._model(self.cells, values)

    @property
    def steps_together(self) -> int:
        return self._capacities.rebuild_every

    # ------------------------------------------------------------------ beginning and end of a piece

    def start(self):
        begin = jax.device_put(np.zeros((), self.dtype))
        while True:
            state, lost, fault = self.starter()(self.values, self.files, self._place_members())
            state, lost, clock = self._begun_state(state), int(np.max(whole(lost))), self._zero_clock()
            bits = CELL_FULL if lost else self.missing_room(whole(fault))
            if not bits:
                status = self.observe()(self.values, self.files, state, clock, begin)[2]
                bits = self.missing_room(whole(status))
            if not bits:
                break
            self.notes.append(self.grow(bits))
        wrapped = count_outside(self.family.bounds, self.start_of.position)
        self.start_changes = {POSITIONS: float(wrapped)} if wrapped else {}
        return state, clock

    def starter(self):
        if self._starter is None:
            specs, results = (self._one, self._file_specs, self._one), (self.state_specs, self._one, self._one)
            self._starter = self._compile(self.initial_state, (0, None, 0), specs, results, name="start")
        return self._starter

    def initial_state(self, values, files, member):
        """One member's state before the first step, how many particles found no place, and bits of `status`."""
        return self._begun(self.cells, values, files, member)

    def observe(self):
        if self._observe is None:
            kept, chosen = self.names, self.written

            def look(values, files, state, clock, t):
                model, params = self.build(values, files)
                diagnostics = super(CompiledParticles, self).diagnostics(model, t, state, params)
                status = diagnostics.pop("status", jnp.zeros((), jnp.int32))
                good = clock.status == OK
                arrays = {name: u for name, u in self._arrays(model, state, params).items() if name in kept}
                if chosen is not None:
                    arrays = {name: u[..., chosen] for name, u in arrays.items()}
                real = {name: u.astype(self.dtype) for name, u in diagnostics.items()}
                # A frozen member has neither at this time.
                arrays, diagnostics = jax.tree.map(
                    lambda u: jnp.where(good, u, jnp.nan if jnp.issubdtype(u.dtype, jnp.inexact) else 0), (arrays, real)
                )
                return arrays, diagnostics, jnp.where(good, status, 0)

            specs = (self._one, self._file_specs, self.state_specs, self._one, PartitionSpec())
            self._observe = self._compile(look, (0, None, 0, 0, None), specs, self._one, name="observe")
        return self._observe

    def _arrays(self, model, state, params) -> dict[str, Array]:
        """Per-particle arrays `(..., particles)` by number, on every device; positions within the box."""
        model = bare_model(model)
        state = self.family.seen(model, fields_of(state), params)
        grid, dtype = self.cells.domain.grid, state.position.dtype
        axes = (grid.ndim, *(1,) * (grid.ndim + 1))
        lengths = jnp.asarray(grid.lengths, dtype).reshape(axes)
        from_side = self.cells.absolute(state.position) - jnp.asarray(grid.lower, dtype).reshape(axes)
        round_ = jnp.floor(from_side / lengths)
        round_ = jnp.where(jnp.asarray(self.cells.periodic).reshape(axes), round_, jnp.zeros_like(round_))
        position = from_side - round_ * lengths + jnp.asarray(grid.lower, dtype).reshape(axes)
        image = state.image + round_.astype(jnp.int32)
        arrays = {"position": position, "image": image, **self.family.arrays(model, state, params)}
        return {name: unpack(self.cells, state.ids, u, self.size) for name, u in arrays.items()}

    @property
    def cut_shape(self):
        return () if self.members is None else (self.members,), self._one

    def ranges_of(self, bounds, share, shares):
        # All particles are seen on every device: processes that hold the same members write equal shares of them.
        count = self.size if self.written is None else len(self.written)
        found = {} if shares == 1 else {"particle": (count * share // shares, count * (share + 1) // shares)}
        return found | ({} if bounds in ((), ((0, self.members),)) else {"member": bounds[0]})

    def assemble(self, fields, ranges):
        lead = () if self.members is None else (ranges.get("member", (0, self.members)),)
        own = ranges.get("particle", (0, self.size if self.written is None else len(self.written)))
        return {name: region(u, [*lead, *((0, n) for n in u.shape[len(lead) : -1]), own]) for name, u in fields.items()}

    # ------------------------------------------------------------------ room

    def room(self) -> Mapping[str, Any]:
        return {**dataclasses.asdict(self._capacities), "cells": list(self._capacities.cells)}

    def template(self, room):
        names = [field.name for field in dataclasses.fields(Capacities)]
        require_meta(room, {name: tuple if name == "cells" else int for name in names})
        wanted = Capacities(**{**{name: room[name] for name in names}, "cells": tuple(room["cells"])})
        if wanted != self._capacities:
            self._make(wanted)
        return super().template(room)

    def missing_room(self, status):
        growable = CELL_FULL | LIST_FULL | BLOCK_FULL | (SKIN_PASSED if self._capacities.rebuild_every > 1 else 0)
        if self.family.on_mesh and self._capacities.rebuild_every > 1:
            # What has gone too far takes nothing from the mesh: its values become those of no number.
            status = np.where(np.asarray(status) & SKIN_PASSED, np.asarray(status) & ~NON_FINITE, status)
        bits = 0
        for one in np.atleast_1d(np.asarray(status)).tolist():
            bits |= one if one & ~growable == 0 else 0
        return bits

    def regrow(self, bits, state):
        before = self._capacities.cell_capacity
        told = self.grow(bits)
        return (state if self._capacities.cell_capacity == before else self._enlarged(state)), told

    def grow(self, bits: int) -> str:
        """New programs with more of what the bits say was too little, and a sentence."""
        now, more, told = self._capacities, {}, []
        if bits & CELL_FULL:
            more["cell_capacity"] = capacity = multiple(GROWTH * now.cell_capacity)
            told.append(f"a cell was full with {now.cell_capacity} particles and can hold {capacity} now")
        if bits & LIST_FULL:
            more["max_neighbors"] = neighbors = math.ceil(GROWTH * now.max_neighbors)
            told.append(f"a particle had more than {now.max_neighbors} neighbours and can have {neighbors} now")
        if bits & BLOCK_FULL:
            more["max_particles"] = particles = min(self.size, math.ceil(GROWTH * now.max_particles))
            told.append(f"a device had more than {now.max_particles} particles and can have {particles} now")
        if bits & SKIN_PASSED:
            more["rebuild_every"] = steps = divisor(now.rebuild_every, now.rebuild_every // 2)
            told.append(f"particles went too far in {now.rebuild_every} steps and are arranged anew after {steps} now")
        sentence = "; ".join(told)
        if self._growths >= MOST_GROWTHS:
            raise NumericalError(
                f"{sentence[:1].upper()}{sentence[1:]}: this is the {MOST_GROWTHS + 1}th time, and a run gives up "
                "then; particles gather in one place or fly apart. Try a smaller time.dt or another start."
            )
        self._growths += 1
        self._make(dataclasses.replace(now, **more))
        return f"{sentence[:1].upper()}{sentence[1:]}; the steps since are done again."

    def _enlarged(self, state):
        """The state with as many slots in a cell as there are now, all new ones empty."""
        ndim, capacity, slots = self.cells.ndim, self._capacities.cell_capacity, self.slots(state)

        def more(path, leaf):
            values = whole(leaf)
            if not slots(values):
                return values
            empty = EMPTY if jax.tree_util.keystr(path).endswith(".ids") else 0
            return enlarged(values, ndim, capacity, empty)

        return self._place(jax.tree_util.tree_map_with_path(more, state), self.state_specs)

    def slots(self, state) -> Callable[[np.ndarray], bool]:
        """Tell whether an array of the state has one entry per slot, not per cell of a mesh."""
        # A mesh has components where cells have slots: never as many, since slots come in groups.
        last, ids = self.cells.ndim + 1, fields_of(state).ids
        return lambda values: values.ndim >= ids.ndim and values.shape[-last:] == ids.shape[-last:]
