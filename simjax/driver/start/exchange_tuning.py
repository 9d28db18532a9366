"""Choice by measurement of the steps between two exchanges: `steps_per_exchange: auto`."""

import hashlib
import json
import logging
import statistics
import time as wall
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.start.environment import device_name, versions
from simjax.errors import ConfigurationError
from simjax.schema.config import Config
from simjax.stencil.kernels import timing_cache
from simjax.stencil.kernels.timing_cache import Key, Seconds
from simjax.stencil.kernels.tuning import PATIENCE, REPETITIONS, faster, first_line, told, tuner, wanted
from simjax.stepping.simulate import Schedule

LOG = logging.getLogger("simjax")
UNBLOCKED = 0
CANDIDATES = (UNBLOCKED, 1, 2, 4, 8)
STEPS = 16
"""Of one repetition: whole blocks of every candidate."""
LONGEST = 10.0
"""Seconds of all repetitions together, but for three that there are at least."""

# What changes no time of a step.
INDIFFERENT = (
    "experiment_name",
    "title",
    "resume",
    "seed",
    "steps_per_exchange",
    "exact",
    "output",
    "checkpoint",
    "limits",
    "inverse",
    "verify",
)


def key_of(config: Config) -> Key:
    """Everything on which the times of a run's steps depend."""
    mapping = {name: value for name, value in config.write().items() if name not in INDIFFERENT}
    mapping["time"] = {name: value for name, value in mapping["time"].items() if name != "end"}
    return {
        "device": device_name(),
        "jax": jax.__version__,
        "simjax": versions()["simjax"],
        "run": hashlib.sha256(json.dumps(mapping, sort_keys=True, default=str).encode()).hexdigest()[:32],
        "candidates": [str(count) for count in CANDIDATES],
        "steps": STEPS,
    }


def kept(config: Config, count: int) -> dict[str, Any]:
    """Record of the choice for a checkpoint: blocked steps are rounded in another way than others."""
    return {"count": count, "key": timing_cache.path_of(key_of(config), Path()).stem}


def chosen_before(config: Config, meta: dict[str, Any]) -> int | None:
    """The choice that a checkpoint keeps, if it was made for the same configuration, devices and versions."""
    found = meta.get("steps_per_exchange")
    return found["count"] if found and found == kept(config, found["count"]) else None


def choose(programs: CompiledRun, schedule: Schedule, state, clock, before: int | None) -> tuple[int, str]:
    """Steps between two exchanges, and a sentence on them: those of `before`, or by timing steps from a state.

    Unblocked steps are left for others that are faster by more than noise. What was measured for the configuration,
    the devices and the versions is not measured again, and nothing is compiled then.
    """
    if before is not None:
        return before, f"steps_per_exchange=auto is {before}, as before."
    begin, seconds = wall.monotonic(), {}
    if wanted():
        seconds = tuner().times(key_of(programs.config), lambda: _timed(programs, schedule, state, clock))
    count = fastest(seconds)
    times = f"{STEPS} steps took by number {told(seconds)}" if seconds else "nothing was measured"
    return count, f"steps_per_exchange=auto is {count}: {times} (chosen in {wall.monotonic() - begin:.1f} s)."


def fastest(seconds: Seconds) -> int:
    """The number of steps whose times are the shortest; unblocked where that is as fast but for noise."""
    if not seconds:
        return UNBLOCKED
    best = min(seconds, key=lambda name: statistics.median(seconds[name]))
    plain = seconds.get(str(UNBLOCKED))
    return int(best) if plain is None or faster(seconds[best], plain) else UNBLOCKED


def _fits(count: int, schedule: Schedule) -> bool:
    """Tell whether a frame is blocks of so many steps, or nearly: those left over are a program of their own."""
    if schedule.dt is None:
        return count <= 1
    return count <= schedule.steps and 10 * (schedule.steps % max(1, count)) <= schedule.steps


def _timed(programs: CompiledRun, schedule: Schedule, state, clock) -> dict[str, list[float]]:
    """Seconds of `STEPS` steps for every candidate that is not refused, in turns."""
    carried = programs.copy(state, clock)
    until = jnp.asarray(2**30, jnp.int32)  # whatever frames these steps complete

    def call(program) -> float:
        nonlocal carried
        begin = wall.perf_counter()
        carried = jax.block_until_ready(program(programs.values, programs.files, *carried, until))
        return wall.perf_counter() - begin

    begin, calls, once = wall.perf_counter(), {}, {}
    for count in CANDIDATES:
        if not _fits(count, schedule) or wall.perf_counter() - begin > PATIENCE:
            continue
        program = programs.advance_by(schedule, STEPS, count)
        try:
            call(program)
            calls[str(count)], once[str(count)] = program, call(program)
        except ConfigurationError:  # it cannot be blocked, or not so deep
            continue
        except jax.errors.JaxRuntimeError as error:  # nor compiled, or it finds no memory
            LOG.info("steps_per_exchange=%d is left out: %s", count, first_line(error))
            carried = programs.copy(state, clock)
    seconds = {name: [] for name in calls}
    for _ in range(min(REPETITIONS, max(3, int(LONGEST / sum(once.values(), 1e-9))))):
        for name, program in calls.items():
            seconds[name].append(call(program))
    return seconds
