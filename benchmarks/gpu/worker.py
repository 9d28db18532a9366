"""The rows of one group, timed in this process: `python -m benchmarks.gpu.worker GROUP NAME...`.

Writes a line of JSON before each row and after it, and before all of them one about the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from benchmarks.contest import Program
from benchmarks.gpu.builders import NotHere
from benchmarks.gpu.rows import GROUPS, Row
from benchmarks.measure import rounded

REPEATS, SECONDS = 5, 2.0
"""Timings of a row at the least, unless they take longer than so many seconds together."""
PEERS = ("jax", "jaxlib", "jax_cfd", "exponax", "jax_md", "deepwave", "torch", "openmm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=[group.name for group in GROUPS])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--trial", action="store_true")
    parser.add_argument("--no-profile", dest="profile", action="store_false")
    options = parser.parse_args()
    # What packages print must not stand among the lines.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(**told: Any) -> None:
        print(json.dumps(told), file=lines, flush=True)

    tell(environment=environment())
    group = next(group for group in GROUPS if group.name == options.group)
    for row in group.rows:
        if row.name in options.names:
            tell(begin=row.name)
            tell(row={**head(row), **outcome(lambda row=row: measured(row, options.trial, options.profile))})


def environment() -> dict[str, str]:
    """The device and versions of jax."""
    import jax

    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
    }


def head(row: Row) -> dict[str, Any]:
    """What a row is of."""
    return {"name": row.name, "row": row.compared, "what": row.what, "by": row.by}


def outcome(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Figures, or `failed`, why there are none: other rows are still worth theirs."""
    try:
        return measure()
    except (Exception, SystemExit) as error:
        words = str(error).strip().splitlines()
        told = words[0] if words else "no reason given"
        return {"failed": told[:200] if isinstance(error, NotHere) else f"{type(error).__name__}: {told}"[:200]}


def measured(row: Row, trial: bool, profile: bool) -> dict[str, Any]:
    """Times of a step, and what its program and its trace say."""
    size = row.size(trial)
    program = row.build(size)
    own = dict(program.figures)
    steps = 1 if row.whole else int(own.pop("steps", size.steps)) * (1 if trial else row.per_step)
    program.advance()
    program.result()
    seconds = timed(program.advance, 2 if trial else REPEATS)
    found: dict[str, Any] = {
        "ms": rounded(1e3 * statistics.median(seconds) / steps),
        "ms_least": rounded(1e3 * min(seconds) / steps),
        "timings": len(seconds),
        "steps": size.steps,
    }
    if program.compile_cpu_s is not None:
        found["compile_cpu_s"] = rounded(program.compile_cpu_s)
    if "gigabytes" in own:
        found["gb_per_s"] = rounded(own.pop("gigabytes") / (1e-3 * found["ms"]))
    if "gradient_over_forward" in own:
        found["over_forward"] = rounded(own.pop("gradient_over_forward"))
    found |= own
    found |= by_the_model(program, steps, row.whole)
    if profile:
        found |= outcome_of_trace(program, steps)
    found["versions"] = versions()
    return found


def timed(call: Callable[[], float | None], least: int) -> list[float]:
    """Seconds of calls, so many or as many as there is time for."""
    seconds: list[float] = []
    while not seconds or (len(seconds) < least and sum(seconds) < SECONDS):
        begin = time.perf_counter()
        own = call()
        seconds.append(time.perf_counter() - begin if own is None else own)
    return seconds


def by_the_model(program: Program, steps: int, whole: bool) -> dict[str, Any]:
    """Launches of a step by the text of its program, and the time that `simjax.inspect` gives them on an H100."""
    import jax

    if program.text is None or jax.default_backend() != "gpu":
        return {}
    from simjax.chips import CHIPS
    from simjax.inspect.hlo import parse
    from simjax.inspect.links import Switch
    from simjax.inspect.time_estimate import Estimator

    parsed = parse(program.text())
    model = Estimator(parsed, CHIPS["h100"], Switch(1))
    tally = model.tally(parsed[parsed.entry]) if whole else model.step(steps)[0]
    return {
        "launches": rounded(sum(tally.launches.values())),
        "gb": rounded(tally.work.bytes / 1e9),
        "model_ms": rounded(1e3 * tally.seconds),
    }


def outcome_of_trace(program: Program, steps: int) -> dict[str, Any]:
    """The dearest launches, or why they are not known: the time is worth telling without them."""
    from benchmarks.gpu.trace import traced

    found = outcome(lambda: traced(program.advance, steps))
    return {"not_traced": found["failed"]} if "failed" in found else found


def versions() -> dict[str, str]:
    """Versions of the packages that were imported so far."""
    return {name: metadata.version(name) for name in PEERS if name in sys.modules}


if __name__ == "__main__":
    main()
