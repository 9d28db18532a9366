"""What the benchmarks measure with: timings in turns, a copy to compare with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import jaxlib

from benchmarks.machine import machine


def environment() -> dict[str, object]:
    """Versions and hardware that a figure belongs to."""
    device = jax.devices()[0]
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "device": f"{device.platform}: {device.device_kind}",
        **machine(),
    }


def time_alternately(calls: Mapping[str, Callable[[], float | None]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, `repeats` times each, in turns, so that other load on the machine hits all alike.

    A call that returns a number has timed itself. Each is called once beforehand without being counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(-1, repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            own = call()
            elapsed = time.perf_counter() - begin if own is None else own
            if repeat >= 0:
                seconds[name].append(elapsed)
    return seconds


def summary(seconds: Sequence[float], steps: int, cells: int) -> dict[str, float]:
    """Median and least time per step, and cells advanced by one step per second at the median."""
    median = statistics.median(seconds) / steps
    return {
        "ms_per_step": rounded(1e3 * median),
        "ms_per_step_least": rounded(1e3 * min(seconds) / steps),
        "cell_updates_per_s": rounded(cells / median),
    }


def rounded(x: float) -> float:
    """`x` to four significant digits."""
    return float(f"{x:.4g}")


def compile_timed(function: Callable, *arguments) -> tuple[Callable, float]:
    """The compiled program of a jitted function, and the seconds that tracing and compiling took."""
    begin = time.perf_counter()
    program = function.lower(*arguments).compile()
    return program, time.perf_counter() - begin


def repeatedly(program: Callable, carry) -> Callable[[], None]:
    """A call that runs `carry = program(carry)` to completion; `program` may take the carry's memory over."""
    held = [carry]

    def run() -> None:
        held[0] = jax.block_until_ready(program(held[0]))

    return run


def copy_call(mebibytes: int = 64, times: int = 8) -> tuple[Callable[[], None], float]:
    """A call that copies an array into another one `times` times, and the gigabytes it reads and writes.

    One addition per number, as the compiler would drop a bare copy; the donated array lends its memory to the
    result, so nothing is allocated.
    """
    program = jax.jit(lambda target, source: source + 1, donate_argnums=0, keep_unused=True)
    arrays = [jnp.zeros(mebibytes * 2**18, jnp.float32) for _ in range(2)]

    def run() -> None:
        for _ in range(times):
            arrays[:] = arrays[1], program(*arrays)
        jax.block_until_ready(arrays)

    return run, 2 * arrays[0].nbytes * times / 1e9


def effective_throughput(seconds: Sequence[float], steps: int, stages: int, state_bytes: int) -> float:
    """T_eff in GB/s: bytes that must move, one read and one write of the unknowns per stage, over the time.

    Omlin and Raess (2024), Proc. JuliaCon Conf. 6, 138, eq. 1.
    """
    return 2 * state_bytes * stages * steps / statistics.median(seconds) / 1e9
