"""A contestant's side of a comparison: it builds, hands its result over, and then takes its time on request.

Needs numpy alone, as it runs in the environments of other packages.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """What is timed.

    advance: one chunk of work, to its end; a number that it returns is its time by a clock of its own. result: arrays
    by name, after the first chunk. compile_cpu_s: of the processor. text: of the compiled program, where it is XLA's.
    """

    advance: Callable[[], float | None]
    result: Callable[[], Arrays]
    compile_cpu_s: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    text: Callable[[], str] | None = None


def serve(build: Callable[[dict[str, Any], Arrays], Program]) -> None:
    """Build from the problem in the folder given, write the result of one chunk, and time another for every line read.

    A line that is written has the seconds of a chunk, and those of the processor.
    """
    # What packages print must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder, output, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    physics = json.loads((folder / "physics.json").read_text()) | options
    with np.load(folder / "start.npz") as start:
        program = build(physics, dict(start))
    _, growth = peak_growth(program.advance)
    np.savez(output, **program.result())
    own = {"compile_cpu_s": program.compile_cpu_s, "peak_mib": growth, "versions": _versions()}
    report = {**own, **program.figures}
    print(json.dumps(report), file=answers, flush=True)
    for _ in sys.stdin:
        began, busy = time.perf_counter(), _busy()
        own = program.advance()
        taken = time.perf_counter() - began if own is None else own
        print(taken, _busy() - busy, file=answers, flush=True)


def _busy() -> float:
    """Seconds of the processor, with those of programs that it started and that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def peak_growth(call: Callable[[], Any]) -> tuple[Any, float | None]:
    """What `call` returns, and the MiB by which resident memory was larger at its highest during it than before.

    None instead of it where the system does not tell: Linux does.
    """
    gc.collect()
    try:
        # What compilation freed goes back first: memory that is used again would not show.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return call(), None
    before = _peak_resident()
    result = call()
    return result, _peak_resident() - before


def _peak_resident() -> float:
    """MiB of the process's resident memory at its highest since the peak was last reset."""
    # Not getrusage's figure, which does not fall below what the parent process had when it started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _versions() -> dict[str, str]:
    """Versions of the packages that were imported and have one."""
    known = ("jax", "jaxlib", "numpy", "jax_cfd", "exponax", "jax_md", "simjax")
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in known}
    return {name: str(version) for name, version in found.items() if version}


def compiled_loop(step: Callable, state, steps: int):
    """`steps` steps by jax as a user would write them, compiled with the state's memory taken over, and its CPU s."""
    import jax

    def chunk(state):
        return jax.lax.scan(lambda u, _: (step(u), None), state, None, length=steps)[0]

    return compiled(jax.jit(chunk, donate_argnums=0), state)


def compiled(function, *arguments):
    """The compiled program of a jitted function, and the processor's seconds of tracing and compiling."""
    begin = time.process_time()
    program = function.lower(*arguments).compile()
    return program, time.process_time() - begin


def looping(program, state, result: Callable[[Any], Arrays], compile_cpu_s: float) -> Program:
    """A contestant that calls `state = program(state)` again and again."""
    import jax

    held = [state]

    def advance() -> None:
        held[0] = jax.block_until_ready(program(held[0]))

    return Program(advance, lambda: result(held[0]), compile_cpu_s, text=program.as_text)
