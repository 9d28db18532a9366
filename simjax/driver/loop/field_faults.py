"""Sentences on what went wrong in a run of fields: which field, where and when."""

from __future__ import annotations

from collections.abc import Collection

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.loop.fault import Fault
from simjax.driver.output.told_troubles import said_of_state
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.driver.start.build import build_model
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.models.balances import fields_of
from simjax.parallel import first_true, largest, on_first_device, rows_true, whole
from simjax.processes import processes
from simjax.status import OK, STEP_COLLAPSED, STEP_SHRUNK, UNBALANCED
from simjax.stepping.faults import limits_told, times_on_host
from simjax.stepping.simulate import Clock, Schedule, time_of


def refuse_start(programs: CompiledFields, state) -> None:
    """Raise ConfigurationError where an initial state is not finite, or its fields are not physical."""
    fault = _wrong_cell(programs, state) if programs.is_faulty(state) else None
    if fault is not None:
        what, index, count = fault
        cells = f"{count} such cell" if count == 1 else f"{count} such cells"
        place = f"at index {index}{_place(programs, index)} ({cells})"
        raise ConfigurationError(f"initial.{what} {place}; check its formula or file.")


def _place(programs: CompiledFields, index: tuple[int, ...]) -> str:
    """The centre of a cell by the last numbers of an index, as ends a sentence; nothing where it is none."""
    grid, cell = programs.grid, index[-programs.grid.ndim :]
    if len(index) < grid.ndim or any(k >= n for k, n in zip(cell, grid.shape, strict=True)):
        return ""
    places = (f"{name}={grid.coordinates(axis, CENTER)[cell[axis]]:.4g}" for axis, name in enumerate(AXES[: grid.ndim]))
    return f", in the cell at {', '.join(places)}"


def failing_steps(
    programs: CompiledFields, state, clock: Clock, schedule: Schedule, steps: int, members: Collection[int]
) -> dict[int, int]:
    """Repeat `steps` steps one by one and return the step at which each of these members of an ensemble failed.

    state, clock: those at which the members were frozen. A member that does not go wrong again is left out.
    """
    found: dict[int, int] = {}
    if not members:
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


def first_fault(programs: CompiledFields, state, clock: Clock, schedule: Schedule, steps: int) -> Fault:
    """Repeat `steps` steps one by one and say which fault happened first, where and when, and what troubled the state
    before that step."""
    single = programs.single_step(schedule)
    for _ in range(steps):
        good = state, clock
        state, clock = single(programs.values, programs.files, state, clock, jnp.asarray(2**30, jnp.int32))
        unbalanced = _imbalance(programs, clock, schedule)
        if unbalanced:
            return Fault(unbalanced)
        fault = _wrong_cell(programs, state)
        if fault is not None:
            what, index, _ = fault
            text = f"{what} at index {index}, step {int(np.max(whole(clock.step)))}"
            row = 0 if programs.members is None else index[0]
            return Fault(text, _troubles(programs, *good, schedule, row))
        if np.any(whole(clock.status) & (STEP_COLLAPSED | STEP_SHRUNK)):
            told = jax.tree.map(whole, clock)
            time, step = float(np.min(times_on_host(told, schedule))), int(np.max(told.step))
            shrunk = np.any(told.status & STEP_SHRUNK)
            further = "; resume with limits.step_shrink=null to go on nevertheless" if shrunk else ""
            text = f"{limits_told(told)}, step {step}, t={time:.6g}; {_largest(state)}{further}"
            return Fault(text, _troubles(programs, *good, schedule))
    return Fault("a field that the steps one by one did not reproduce")


def _troubles(programs: CompiledFields, state, clock: Clock, schedule: Schedule, row: int = 0) -> str:
    """A sentence on what troubled a state, of the member in this row; "" where nothing did that its model names."""
    if not programs.config.schema.troubles:
        return ""
    told = jax.tree.map(whole, clock)
    time, step = (float(np.atleast_1d(one)[row]) for one in (times_on_host(told, schedule), told.step))
    whose = "" if programs.members is None else f" of {programs.member_named(row)}"
    begin = f"Before the fault, at step {step:.0f}{whose}, t={time:.6g}"
    try:
        found = programs.worst_cells(state, time)
    except (jax.errors.JaxRuntimeError, ConfigurationError) as error:
        # More memory than a step may be needed, and a user's own trouble may be wrong; what happened is told anyway.
        return f"{begin}: what troubled cells could not be found ({str(error).splitlines()[0]})."
    said = said_of_state(programs.config.schema.troubles, {name: float(own[row]) for name, own in found.items()})
    return f"{begin}: {'; '.join(said)}." if said else ""


def _wrong_cell(programs: CompiledFields, state) -> tuple[str, tuple[int, ...], int] | None:
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


def _imbalance(programs: CompiledFields, clock: Clock, schedule: Schedule) -> str:
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
