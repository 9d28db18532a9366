"""Speed of stencils as Pallas kernels and by XLA, of steps and of their gradients, beside a copy; prints JSON.

On a GPU or TPU. `--trial` takes small grids, on which kernels are interpreted on a CPU: it shows that all of this runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, Unprojected, advected_scalar, check, chunk, heat, kolmogorov
from benchmarks.gas import SCHEMES, sheared_gas
from benchmarks.measure import (
    compile_timed,
    copy_call,
    effective_throughput,
    environment,
    repeatedly,
    rounded,
    summary,
    time_alternately,
)
from benchmarks.waves import wave
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS


@dataclass(frozen=True)
class Row:
    """What is built on a domain; its integrator, its grid on an accelerator, and the steps of one timing there.

    trial: the integrator of a trial, where compiling three stages of a gas for a CPU would take minutes.
    several: counts of steps that one kernel takes.
    """

    build: Callable[[Domain], Case]
    integrator: str
    shape: tuple[int, ...]
    steps: int = 20
    trial: str | None = None
    several: tuple[int, ...] = ()


WAVE = partial(wave, "acoustic", order=2, sides="periodic", medium="uniform")
MC, WENO5 = (partial(sheared_gas, scheme=SCHEMES[name]) for name in ("mc primitive hllc", "weno5 characteristic hllc"))

# Unknowns of 0.25 to 1 GiB. What is compiled fastest comes first.
CASES = {
    "heat 2-D": Row(heat, "euler", (8192, 8192), several=(1, 4)),
    "heat 3-D": Row(heat, "euler", (512, 512, 512), several=(1, 2)),
    "advection-diffusion 3-D": Row(advected_scalar, "euler", (512, 512, 512), several=(1,)),
    "acoustic 3-D": Row(WAVE, "leapfrog", (384, 384, 384), several=(1,)),
    "navier-stokes stage 2-D": Row(partial(kolmogorov, equations=Unprojected), "euler", (4096, 4096)),
    "navier-stokes 2-D": Row(kolmogorov, "kutta3", (4096, 4096)),
    "gas 3-D mc hllc": Row(MC, "ssprk3", (256, 256, 256), steps=4, trial="euler"),
    "gas 3-D weno5 hllc": Row(WENO5, "ssprk3", (192, 192, 192), steps=4, trial="euler"),
}
TRIAL = {2: (16, 128), 3: (8, 8, 128)}
TRIAL_STEPS = 3  # an odd number, of which each is compiled once
# What is interpreted compiles for longer than it runs.
TRIAL_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if jax.__version_info__ < (0, 11):  # later ones know no other emitters
    TRIAL_FLAGS += " --xla_cpu_use_fusion_emitters=false"
IMPLEMENTATIONS = ("xla", "pallas", "auto")


class Turns:
    """Programs of one case that are timed in turns, and what came of those that failed or found no time."""

    def __init__(self, row: Row, shape: tuple[int, ...], trial: bool, gradients: bool, until: float):
        self.row, self.shape, self.gradients, self.until = row, shape, gradients, until
        self.integrator = row.trial if trial and row.trial else row.integrator
        self.scheme = INTEGRATORS[self.integrator]
        self.steps = TRIAL_STEPS if trial else row.steps
        self.calls: dict[str, Callable] = {}
        self.ends: dict[str, list[np.ndarray]] = {}
        self.rows: dict[str, dict[str, object]] = {}

    def add(self, implementation: str, upper: Sequence[float], several: int = 0) -> None:
        """Compile a chunk of steps, and a gradient; "auto" has the kernels of one of the others.

        several: steps in one kernel; 0 for a kernel for each stencil.
        """
        grid, name = Grid(self.shape, upper=upper), f"{implementation}, {several} steps" if several else implementation
        row = self.rows[name] = {}
        try:
            case = self.row.build(Domain(grid, implementation=implementation, steps_per_exchange=several))
            self._in_time()
            function, carry = chunk(case, self.scheme, self.steps)
            program, seconds = compile_timed(function, carry)
            row["compile_s"] = rounded(seconds)
            check(carry := program(carry))
            self.ends[name] = [np.asarray(leaf) for leaf in jax.tree.leaves(carry[0])]
            self.calls[name] = repeatedly(program, carry)
            if several or not self.gradients or implementation == "auto":
                return
            self._in_time()
            gradient, seconds = compile_timed(_gradient(case, self.scheme), case.state)
            row["gradient_compile_s"] = rounded(seconds)
            jax.block_until_ready(gradient(case.state))
            self.calls[f"{name} gradient"] = partial(_wait, gradient, case.state)
        except Exception as error:  # the others are still worth their figures
            row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]

    def _in_time(self) -> None:
        if time.monotonic() > self.until:
            raise TimeoutError("left out, as --minutes are over")


def measure_case(name: str, trial: bool, gradients: bool, repeats: int, until: float) -> dict[str, object]:
    """Rates, throughputs, and what a gradient of the step takes over the step."""
    row = CASES[name]
    shape = TRIAL[len(row.shape)] if trial else row.shape
    turns = Turns(row, shape, trial, gradients, until)
    upper = (2 * np.pi if name.startswith("navier-stokes") else 1.0,) * len(shape)
    for implementation in IMPLEMENTATIONS:
        turns.add(implementation, upper)
    for several in row.several:
        if turns.steps % several == 0:  # else those left over would be a program of their own
            turns.add("pallas", upper, several)
    copy, copied = copy_call(64 if trial else 1024)
    seconds = time_alternately({**turns.calls, "copy": copy}, repeats)
    copy_throughput = copied / statistics.median(seconds["copy"])
    for implementation in turns.ends:
        turns.rows[implementation] |= figures(turns, implementation, seconds, copy_throughput)
    return {
        "case": name,
        "shape": shape,
        "integrator": turns.integrator,
        "copy_gb_per_s": rounded(copy_throughput),
        **turns.rows,
    }


def figures(turns: Turns, implementation: str, seconds, copy_throughput: float) -> dict[str, object]:
    """Of one implementation; ratios to XLA are of the medians in the same turns."""
    ends, times, steps = turns.ends[implementation], seconds[implementation], turns.steps
    throughput = effective_throughput(times, steps, turns.scheme.stages, sum(leaf.nbytes for leaf in ends))
    found: dict[str, object] = {
        **summary(times, steps, int(np.prod(turns.shape))),
        "t_eff_gb_per_s": rounded(throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
    }
    if gradient := seconds.get(f"{implementation} gradient"):
        found["gradient_over_step"] = rounded(statistics.median(gradient) * steps / statistics.median(times))
    if "xla" in turns.ends and implementation != "xla":
        found["faster_than_xla"] = rounded(statistics.median(seconds["xla"]) / statistics.median(times))
        pairs = zip(ends, turns.ends["xla"], strict=True)
        found["largest_difference"] = rounded(max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs))
    return found


def _gradient(case: Case, scheme) -> Callable:
    """Of the mean square after one step, with respect to the state before it."""
    dtype = jax.tree.leaves(case.state)[0].dtype

    def loss(state):
        prepared = scheme.prepare(case.model, case.params, case.dt)
        after = scheme.step(case.model, jnp.zeros((), dtype), jnp.asarray(case.dt, dtype), state, case.params, prepared)
        return sum(jnp.mean(u * u) for u in jax.tree.leaves(after))

    return jax.jit(jax.grad(loss))


def _wait(program: Callable, state) -> None:
    jax.block_until_ready(program(state))


def _told() -> list[str]:
    """A list to which the choice of every kernel is added."""
    lines: list[str] = []
    handler, log = logging.Handler(), logging.getLogger("simjax")
    handler.emit = lambda record: lines.append(record.getMessage())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--repeats", type=int, default=5, help="timings of each program; medians are printed")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which nothing more is compiled")
    parser.add_argument("--no-gradients", dest="gradients", action="store_false", help="time steps alone")
    parser.add_argument("--trial", action="store_true", help="small grids, three steps, one timing")
    options = parser.parse_args()
    if options.trial:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {TRIAL_FLAGS}"
    begin, lines, cases = time.monotonic(), _told(), []
    if jax.default_backend() == "cpu" and not options.trial:
        parser.error("expected a GPU or a TPU; a CPU came, on which kernels are only interpreted: write --trial.")
    until = begin + 60 * options.minutes
    for name in options.cases:
        repeats = 1 if options.trial else options.repeats
        cases.append(measure_case(name, options.trial, options.gradients, repeats, until))
        print(f"{time.monotonic() - begin:.0f} s: {json.dumps(cases[-1])}", file=sys.stderr)
    result = {
        "benchmark": "stencils by XLA and as Pallas kernels, float32",
        "environment": environment(),
        "device": jax.devices()[0].device_kind,
        "minutes": rounded((time.monotonic() - begin) / 60),
        "cases": cases,
        "kernels": lines,
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
