"""Sentences on what went wrong in a run of particles: which particle, where and when."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.loop.fault import Fault
from simjax.driver.programs.programs_of_particles import CompiledParticles
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.balances import fields_of
from simjax.parallel import on_first_device, whole
from simjax.status import ESCAPED
from simjax.stepping.simulate import Clock, Schedule


def refuse_start(programs: CompiledParticles, state) -> None:
    """Raise ConfigurationError where an initial state is not finite."""
    found = _not_finite(programs, state)
    if found:
        where = f"the {found[1]} of particle {found[0]} is not finite at the start"
        raise ConfigurationError(f"particles: {where}; {programs.family.at_start}.")


def first_fault(programs: CompiledParticles, state, clock: Clock, schedule: Schedule, steps: int) -> Fault:
    """Repeat `steps` steps one by one and say which fault happened first, where and when."""
    single = programs.single_step(schedule)
    for _ in range(steps):
        before = state
        state, clock = single(programs.values, programs.files, state, clock, jnp.asarray(2**30, jnp.int32))
        step = int(np.max(whole(clock.step)))
        if np.any(whole(clock.status) & ESCAPED):
            return Fault(f"{_escaped(programs, before, state)}, step {step - 1}")
        found = _not_finite(programs, state)
        if found:
            return Fault(f"the {found[1]} of particle {found[0]} is not finite, step {step}")
        meaningless = _unphysical(programs, state)
        if meaningless:
            return Fault(f"{meaningless[1]} of particle {meaningless[0]}, step {step}")
    return Fault("particles in steps of which none went wrong alone")


def _not_finite(programs: CompiledParticles, state) -> tuple[int, str] | None:
    """The first particle with a value that is not finite, and the name of that value."""
    state = fields_of(state)
    ids, slots, ndim = whole(state.ids), programs.slots(state), programs.cells.ndim
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        wrong = ~np.isfinite(whole(leaf))
        if slots(wrong) and wrong.any():
            where = tuple(np.argwhere(wrong)[0][-(ndim + 1) :])
            return int(ids.reshape(-1, *ids.shape[-ndim - 1 :])[0][where]), path[-1].name
    return None


def _unphysical(programs: CompiledParticles, state) -> tuple[int, str] | None:
    """The first particle with an unphysical state, and the reason."""
    model, params = programs.build(*jax.tree.map(on_first_device, (programs.values, programs.files)))
    host = jax.tree.map(whole, state)
    for what, where in model.unphysical(host, params).items():
        numbers = np.asarray(fields_of(host).ids)[np.asarray(where)]
        if numbers.size:
            return int(numbers[0]), what
    return None


def _escaped(programs: CompiledParticles, before, state) -> str:
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
