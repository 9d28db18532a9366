"""Profile of a few steps: a trace for XProf, Perfetto and TensorBoard, and where the time of a step goes."""

from __future__ import annotations

import gzip
import json
import math
import re
import time as wall
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.start.environment import device_name
from simjax.errors import InputOutputError
from simjax.io.files import write_text
from simjax.jaxpr.jaxpr_parts import BETWEEN, OTHER, PROFILE_NAME, part_of
from simjax.processes import processes
from simjax.stepping.simulate import Schedule

FOLDER = "profile"
CALLS = 3
# A copy larger than any cache of a processor.
COPIED_BYTES = 2**26
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)")
_NAME = re.compile(r'metadata=\{[^}]*op_name="([^"]*)"')
_HOLDS_OTHERS = re.compile(r" (?:while|conditional|call)\(")


def profiled(program: Any, arguments: Callable[[], tuple], folder: Path | None, steps: int = 1) -> dict[str, Any]:
    """Trace a few calls of a program, and say where the time of a step goes.

    The result has s, bytes and operations of one step: `seconds` with the trace, which is the sum of `parts` and
    `between operations`, and `seconds_untraced` without.

    Args:
        program: that of `steps` steps. arguments: returns those of a call, which may be donated.
        folder: that of the trace; None where another process writes it.
    """
    compiled = program.lower(*arguments()).compile()

    def seconds() -> float:
        given = jax.block_until_ready(arguments())
        begin = wall.perf_counter()
        jax.block_until_ready(compiled(*given))
        return (wall.perf_counter() - begin) / steps

    seconds()  # what is done at a first call only is done
    untraced = min(seconds() for _ in range(CALLS))
    if folder is None:
        for _ in range(CALLS):
            seconds()
        return {}
    options: Any = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        for _ in range(CALLS):
            seconds()
    text = compiled.as_text() or ""
    module = text.partition(",")[0].removeprefix("HloModule ").strip()
    times = times_by_part(events_of(folder), module, text)
    parts = {name: spent / (CALLS * steps) for name, spent in times.items()}
    between = parts.pop(BETWEEN, 0.0)
    return {
        "device": device_name(),
        "steps": CALLS * steps,
        "seconds": sum(parts.values()) + between,
        "seconds_untraced": untraced,
        "parts": parts,
        BETWEEN: between,
        **_limits(compiled, untraced),
    }


def _limits(compiled: Any, seconds: float) -> dict[str, float | None]:
    """The work of a step as the compiler counts it, which counts what is in a loop once; rates; memory at the peak."""
    cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    moved, operations = float(cost.get("bytes accessed", 0.0)), float(cost.get("flops", 0.0))
    copied = copy_rate()
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    if peak is None and memory is not None:
        peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {
        "bytes": moved,
        "flops": operations,
        "bytes_per_second": moved / seconds,
        "flops_per_second": operations / seconds,
        "copy_bytes_per_second": copied,
        "share_of_copy": moved / seconds / copied,
        "flops_per_byte": operations / moved if moved else None,
        "peak_bytes": None if peak is None else float(peak),
    }


def copy_rate(size: int = COPIED_BYTES, times: int = 8) -> float:
    """Bytes per second, read and written, of a copy on one device: a field that changes in its place many times."""
    again = jax.jit(lambda u: jax.lax.fori_loop(0, times, lambda _, u: u + u, u), donate_argnums=0)
    field = again(jnp.zeros(size // 4, jnp.float32))
    fastest = math.inf
    for _ in range(CALLS):
        begin = wall.perf_counter()
        field = jax.block_until_ready(again(field))
        fastest = min(fastest, wall.perf_counter() - begin)
    return 2 * size * times / fastest


# ---------------------------------------------------------------------- the trace


def events_of(folder: Path) -> list[dict[str, Any]]:
    """All events of the newest trace in a folder."""
    traces = sorted(folder.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_mtime)
    if not traces:
        return []
    with gzip.open(traces[-1], "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def times_by_part(events: Sequence[Mapping[str, Any]], module: str, text: str) -> dict[str, float]:
    """Seconds of each part in the operations of a program, over all of its calls.

    At every instant of a call the time belongs to the parts of the operations that run then, to each in proportion to
    their number; to the part of a loop or a branch where only that runs; and to `between operations` where nothing
    does. So the times add up to that of the calls.

    Args:
        events: of a trace, in the format of Chrome, with times in microseconds.
        module, text: name and text of the program, whose operations carry names such as `jit(step)/tendency/mul`.
    """
    parts, containers = parts_of_operations(text)
    calls: dict[Any, list[tuple[float, int, bool, str | None]]] = defaultdict(list)
    for event in events:
        about = event.get("args") or {}
        if event.get("ph") != "X" or about.get("hlo_module") != module or "hlo_op" not in about:
            continue
        operation, begin = str(about["hlo_op"]), float(event["ts"])
        holds, inside = operation in containers, parts.get(operation)
        end = begin + float(event.get("dur", 0.0))
        calls[about.get("run_id")] += [(begin, 1, holds, inside), (end, -1, holds, inside)]
    times: dict[str, float] = defaultdict(float)
    for ends in calls.values():
        running: tuple[Counter, Counter] = Counter(), Counter()  # operations, and what holds others
        before = min(at for at, *_ in ends)
        for at, change, holds, inside in sorted(ends, key=lambda end: end[:2]):
            # Outside of all parts an operation is another one, and a loop or a branch is what lies between.
            shares = +running[0] or +running[1] or Counter([BETWEEN])
            for name, count in shares.items():
                times[name] += 1e-6 * (at - before) * count / shares.total()
            before = at
            running[holds][inside or (BETWEEN if holds else OTHER)] += change
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def parts_of_operations(text: str) -> tuple[dict[str, str | None], set[str]]:
    """The part of each operation of a program, None outside of all, and operations that hold others.

    One that the compiler has put in without a name belongs to the part of the first of its operands that has one.
    """
    lines = [found.groups() for found in map(_INSTRUCTION.match, text.splitlines()) if found]
    parts = {name: part_of(told[1]) for name, rest in lines if (told := _NAME.search(rest)) is not None}
    for name, rest in lines:
        if name not in parts:
            known = (parts.get(operand) for operand in re.findall(r"%([\w.\-]+)", rest))
            parts[name] = next((part for part in known if part is not None), None)
    return parts, {name for name, rest in lines if _HOLDS_OTHERS.search(rest)}


def profile_run(programs: CompiledRun, schedule: Schedule, state: Any, clock: Any, until: int, folder: Path) -> str:
    """Write a profile of steps from a state of a run, which is kept, and return a sentence about it.

    The run goes on where that fails. Of several processes all take the steps, and the first writes.
    """
    first, steps = processes().first, programs.steps_together
    # Of particles, all steps for which one list of neighbours serves.
    program = programs.single_step(schedule) if steps == 1 else programs.advance(schedule, steps)

    def arguments() -> tuple:
        return programs.values, programs.files, *programs.copy(state, clock), jnp.asarray(until, jnp.int32)

    try:
        found = profiled(program, arguments, folder / FOLDER if first else None, steps)
        if not first:
            return ""
        write_text(folder / PROFILE_NAME, json.dumps(found, indent=1) + "\n")
    except (InputOutputError, OSError, RuntimeError, ValueError) as error:
        return f"profile: no trace could be taken ({error})."
    dearest, seconds = next(iter(found["parts"].items()), ("nothing known", 0.0))
    share = seconds / found["seconds"] if found["seconds"] else 0.0
    return (
        f"profile: a step takes {1e3 * found['seconds_untraced']:.3g} ms, of which {100 * share:.0f} % is {dearest}; "
        f"{folder / FOLDER} opens in XProf, Perfetto and TensorBoard."
    )
