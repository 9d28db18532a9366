"""The error of 16-bit fields between steps, measured against single precision on the first steps of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.programs.programs_of_run import CompiledRun, compiled_run
from simjax.integrators.storage import is_kept
from simjax.stepping.clock import Schedule

FIRST = 32
"""Steps after which the error is measured, or as many as the first frame has."""


def storage_error(programs: CompiledRun, schedule: Schedule, state, clock) -> str:
    """A sentence about the field that differs most, by the root mean square over that of its variation."""
    plain = compiled_run(dataclasses.replace(programs.config, storage=None))
    steps, until = min(FIRST, schedule.steps), np.int32(1)
    both = []
    for run, start in ((programs, (state, clock)), (plain, plain.start())):
        program = run.advance(schedule, steps)
        both.append(program(run.values, run.files, *run.copy(*start), until)[0])
    errors = jax.device_get(jax.jit(lambda found, exact: _errors(programs, found, exact))(*both))
    name, error = max(errors.items(), key=lambda one: one[1])
    assert programs.config.storage is not None
    return (
        f"Fields are kept in {programs.config.storage.dtype} between steps: after {steps} steps {name} differs from "
        f"single precision by {error:.1e} of its variation{', the others by less' if len(errors) > 1 else ''}."
    )


def _errors(programs: CompiledRun, found: Any, exact: Any) -> dict[str, jax.Array]:
    """Differences of all fields, by their place in the state."""
    pairs = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(exact), strict=True)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): jnp.sqrt(jnp.mean((u - v) ** 2))
        / jnp.maximum(jnp.std(v), jnp.finfo(v.dtype).tiny)
        for (path, u), v in pairs
        if is_kept(programs.domain, u)
    }
