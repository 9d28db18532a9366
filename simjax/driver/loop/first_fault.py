"""Sentences on what went wrong in a run: which field or particle, where and when; and what a user may try."""

from __future__ import annotations

from collections.abc import Collection

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.programs.programs_of_run import CompiledFieldRun, CompiledParticleRun, CompiledRun
from simjax.driver.start.build import build_model
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.models.balances import fields_of
from simjax.parallel import first_true, largest, on_first_device, rows_true, whole
from simjax.processes import processes
from simjax.schema.config_errors import closest
from simjax.status import ESCAPED, OK, STEP_COLLAPSED, STEP_SHRUNK, UNBALANCED
from simjax.stepping.faults import limits_told, times_on_host
from simjax.stepping.simulate import Clock, Schedule, time_of


def advice_for(programs: CompiledRun, status: int = OK) -> str:
    """Advice to a user whose run failed with this status."""
    return "Write velocities that balance at all times." if status & UNBALANCED else programs.advice


def refuse_objective(programs: CompiledRun) -> None:
    """Raise ConfigurationError where the objective is no diagnostic of this run."""
    objective, known = programs.config.objective, sorted(programs.observed_shapes()[1])
    if objective is not None and objective not in known:
        close = closest(objective, known)
        hint = f"did you mean objective={close}?" if close else f"known are {', '.join(known)}."
        raise ConfigurationError(f"objective={objective}: no diagnostic of model={programs.config.model}; {hint}")


def refuse_start(programs: CompiledRun, state) -> None:
    """Raise ConfigurationError where an initial state is not finite, or its fields are not physical."""
    if isinstance(programs, CompiledParticleRun):
        found = _not_finite(programs, state)
        if found:
            where = f"the {found[1]} of particle {found[0]} is not finite at the start"
            raise ConfigurationError(f"particles: {where}; {programs.family.at_start}.")
    elif isinstance(programs, CompiledFieldRun):
        fault = _wrong_cell(programs, state)
        if fault is not None:
            what, index, count = fault
            cells = f"{count} such cell" if count == 1 else f"{count} such cells"
            place = f"at index {index}{_place(programs, index)} ({cells})"
            raise ConfigurationError(f"initial.{what} {place}; check its formula or file.")


def _place(programs: CompiledFieldRun, index: tuple[int, ...]) -> str:
    """The centre of a cell by the last numbers of an index, as ends a sentence; nothing where it is none."""
    grid, cell = programs.grid, index[-programs.grid.ndim :]
    if len(index) < grid.ndim or any(k >= n for k, n in zip(cell, grid.shape, strict=True)):
        return ""
    places = (f"{name}={grid.coordinates(axis, CENTER)[cell[axis]]:.4g}" for axis, name in enumerate(AXES[: grid.ndim]))
    return f", in the cell at {', '.join(places)}"


def first_fault(programs: CompiledRun, state, clock: Clock, schedule: Schedule, steps: int) -> str:
    """Repeat `steps` steps one by one and say which fault happened first, where and when."""
    if isinstance(programs, CompiledParticleRun):
        return _first_of_particles(programs, state, clock, schedule, steps)
    assert isinstance(programs, CompiledFieldRun)
    return _first_of_fields(programs, state, clock, schedule, steps)


def failing_steps(
    programs: CompiledRun, state, clock: Clock, schedule: Schedule, steps: int, members: Collection[int]
) -> dict[int, int]:
    """Repeat `steps` steps one by one and return the step at which each of these members of an ensemble failed.

    state, clock: those at which the members were frozen. A member that does not go wrong again is left out.
    """
    found: dict[int, int] = {}
    if not members or not isinstance(programs, CompiledFieldRun):
        return found
    single = programs.single_step(schedule)
    clock = eqx.tree_at(lambda c: c.status, clock, jax.tree.map(jnp.zeros_like, clock.status))
    for _ in range(steps):
        state, clock = single(programs.values, programs.files, state, clock, jnp.asarray(2**30, jnp.int32))
        wrong = whole(clock.status) != OK
        rows = [row for cells in jax.tree.leaves(programs.wrong_cells(state)) for row in rows_true(cells)]
        wrong[[row for own in processes().gather(rows) for row in own]] = True
        now = whole(clock.step)
        found |= {member: int(now[member]) for member in members if wrong[member] and member not in found}
        if len(found) == len(members):
            break
    return found


# ---------------------------------------------------------------------- fields


def _first_of_fields(programs: CompiledFieldRun, state, clock: Clock, schedule: Schedule, steps: int) -> str:
    single = programs.single_step(schedule)
    for _ in range(steps):
        state, clock = single(programs.values, programs.files, state, clock, jnp.asarray(2**30, jnp.int32))
        unbalanced = _imbalance(programs, clock, schedule)
        if unbalanced:
            return unbalanced
        fault = _wrong_cell(programs, state)
        if fault is not None:
            return f"{fault[0]} at index {fault[1]}, step {int(np.max(whole(clock.step)))}"
        if np.any(whole(clock.status) & (STEP_COLLAPSED | STEP_SHRUNK)):
            told = jax.tree.map(whole, clock)
            time, step = float(np.min(times_on_host(told, schedule))), int(np.max(told.step))
            shrunk = np.any(told.status & STEP_SHRUNK)
            further = "; resume with limits.step_shrink=null to go on nevertheless" if shrunk else ""
            return f"{limits_told(told)}, step {step}, t={time:.6g}; {_largest(state)}{further}"
    return "a field that the steps one by one did not reproduce"


def _wrong_cell(programs: CompiledFieldRun, state) -> tuple[str, tuple[int, ...], int] | None:
    """Find values of `state` that are not finite or not physical: their kind, the first index, and their number."""
    infinite, unphysical = programs.wrong_cells(state)
    leaves = jax.tree_util.tree_leaves_with_path(fields_of(infinite))
    named = {f"{_field_name(path)} is not finite": cells for path, cells in leaves}
    found = {what: first_true(cells) for what, cells in (named | unphysical).items()}
    told = processes().gather(found)
    for what in found:
        wrong = [own[what] for own in told]
        counts, places = zip(*filter(None, wrong), strict=True) if any(wrong) else ((), ())
        if places:
            return what, tuple(min(places)), sum(counts)
    return None


def _imbalance(programs: CompiledFieldRun, clock: Clock, schedule: Schedule) -> str:
    """Describe the imbalance of the first member's prescribed velocities at the end of a step, and its time."""
    first = jax.tree.map(lambda leaf: np.atleast_1d(whole(leaf))[0], clock)
    if not first.status & UNBALANCED:
        return ""
    numbers = programs.parameters.items()
    values = {name: jnp.asarray(np.atleast_1d(value)[0], programs.dtype) for name, value in numbers}
    files = jax.tree.map(on_first_device, programs.fields)
    model, params = build_model(programs.config, programs.domain.unsplit(), values, files)
    time = time_of(jax.tree.map(jnp.asarray, first), schedule)
    return f"{model.explain(time, params)}, at t={float(time):.6g}, step {int(first.step)}"


def _largest(state) -> str:
    """Say where every field is largest in absolute value; what limits a step is usually the huge one."""
    told = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(fields_of(state)):
        size, index = max(processes().gather(largest(leaf)))
        told.append(f"{_field_name(path)} {size:.3g} at index {tuple(index)}")
    return f"largest absolute values: {', '.join(told)}"


def _field_name(path) -> str:
    """The path of a leaf as a user would write it: `velocity_y` for `.velocity[1]`, `u` for `['u']`."""
    *names, last = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    component = AXES[int(last)] if names and last.isdigit() and int(last) < len(AXES) else last
    return ".".join(names) + ("_" if last.isdigit() else "." if names else "") + component


# ---------------------------------------------------------------------- particles


def _first_of_particles(programs: CompiledParticleRun, state, clock: Clock, schedule: Schedule, steps: int) -> str:
    single = programs.single_step(schedule)
    for _ in range(steps):
        before = state
        state, clock = single(programs.values, programs.files, state, clock, jnp.asarray(2**30, jnp.int32))
        step = int(np.max(whole(clock.step)))
        if np.any(whole(clock.status) & ESCAPED):
            return f"{_escaped(programs, before, state)}, step {step - 1}"
        found = _not_finite(programs, state)
        if found:
            return f"the {found[1]} of particle {found[0]} is not finite, step {step}"
        meaningless = _unphysical(programs, state)
        if meaningless:
            return f"{meaningless[1]} of particle {meaningless[0]}, step {step}"
    return "particles in steps of which none went wrong alone"


def _not_finite(programs: CompiledParticleRun, state) -> tuple[int, str] | None:
    """The first particle with a value that is not finite, and the name of that value."""
    state = fields_of(state)
    ids, slots, ndim = whole(state.ids), programs.slots(state), programs.cells.ndim
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        wrong = ~np.isfinite(whole(leaf))
        if slots(wrong) and wrong.any():
            where = tuple(np.argwhere(wrong)[0][-(ndim + 1) :])
            return int(ids.reshape(-1, *ids.shape[-ndim - 1 :])[0][where]), path[-1].name
    return None


def _unphysical(programs: CompiledParticleRun, state) -> tuple[int, str] | None:
    """The first particle with an unphysical state, and the reason."""
    model, params = programs.build(*jax.tree.map(on_first_device, (programs.values, programs.files)))
    host = jax.tree.map(whole, state)
    for what, where in model.unphysical(host, params).items():
        numbers = np.asarray(fields_of(host).ids)[np.asarray(where)]
        if numbers.size:
            return int(numbers[0]), what
    return None


def _escaped(programs: CompiledParticleRun, before, state) -> str:
    """The first particle that left the box, and its place before."""
    before, state = fields_of(before), fields_of(state)
    ids, left, ndim, grid = whole(before.ids), whole(state.ids), programs.cells.ndim, programs.domain.grid
    number = int(np.setdiff1d(ids[ids >= 0], left[left >= 0])[0])
    i = np.argwhere(ids == number)[0]
    cell = i[-ndim:]
    within = whole(before.position)[(..., *i[-ndim - 1 :])].reshape(-1, ndim)[0]
    place = np.asarray(grid.lower) + (cell + 0.5) * np.asarray(grid.spacing) + within
    where = ", ".join(f"{axis}={x:.6g}" for axis, x in zip(AXES, place, strict=False))
    return f"particle {number} at {where}"
