"""The launches of a program that took longest, by the trace of one call."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import rounded

DEAREST = 5
NAME_LENGTH = 60
HOLDS_OTHERS = ("while", "cond", "call")


def traced(call: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Launches of a step, their milliseconds, and the dearest of them; `not_traced` tells why there is none of it."""
    import jax

    from simjax.driver.loop.profile import events_of

    options: Any = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            call()
        return dearest(events_of(Path(folder)), steps)


def dearest(events: Sequence[Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """The same from the events of a trace in Chrome's format.

    Of a GPU all that ran on its streams is counted; of a processor operations of XLA, each a launch.
    """
    streams = _streams(events)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        about = event.get("args") or {}
        if event.get("ph") != "X" or (streams and (event.get("pid"), event.get("tid")) not in streams):
            continue
        operation = str(about.get("hlo_op", ""))
        if streams or (operation and not operation.startswith(HOLDS_OTHERS)):
            times[str(event["name"]), operation].append(1e-3 * float(event.get("dur", 0.0)))
    if not times:
        return {"not_traced": "the trace has no operation of the device"}
    longest = sorted(times.items(), key=lambda item: -sum(item[1]))[:DEAREST]
    return {
        "traced_launches": rounded(sum(map(len, times.values())) / steps),
        "traced_ms": rounded(sum(map(sum, times.values())) / steps),
        "dearest": [
            {
                "kernel": name[:NAME_LENGTH],
                "operation": operation,
                "launches": rounded(len(own) / steps),
                "ms": rounded(sum(own) / steps),
            }
            for (name, operation), own in longest
        ],
    }


def _streams(events: Sequence[Mapping[str, Any]]) -> set[tuple[Any, Any]]:
    """Process and thread of each stream of a GPU; none on a processor."""
    named = {
        (event.get("name"), event.get("pid"), event.get("tid") if event.get("name") == "thread_name" else None): str(
            (event.get("args") or {}).get("name", "")
        )
        for event in events
        if event.get("ph") == "M"
    }
    gpus = {pid for (kind, pid, _), told in named.items() if kind == "process_name" and "GPU:" in told}
    return {
        (pid, tid)
        for (kind, pid, tid), told in named.items()
        if kind == "thread_name" and pid in gpus and told.startswith("Stream")
    }
