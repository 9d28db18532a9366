"""Speed of stencils as Pallas kernels and by XLA, of steps and of their gradients, beside a copy; prints JSON.

On a GPU or TPU. `--trial` takes small grids, on which kernels are interpreted on a CPU: it shows that all of this runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, advected_scalar, check, chunk, kolmogorov
from gas import SCHEMES, sheared_gas
from measure import (
    compile_timed,
    copy_call,
    effective_throughput,
    environment,
    repeatedly,
    rounded,
    summary,
    time_alternately,
)
from waves import wave

from simjax.core.domain import Domain
from simjax.core.grid import Grid
from simjax.integrators.table import INTEGRATORS

# What is built on a domain, its integrator, and the grid on an accelerator: unknowns of 0.25 to 1 GiB.
CASES: dict[str, tuple[Callable[[Domain], Case], str, tuple[int, ...]]] = {
    "advection-diffusion 2-D": (advected_scalar, "euler", (8192, 8192)),
    "advection-diffusion 3-D": (advected_scalar, "euler", (512, 512, 512)),
    "acoustic 3-D": (
        partial(wave, "acoustic", order=2, sides="periodic", medium="uniform"), "leapfrog", (384, 384, 384),
    ),
    "navier-stokes 2-D": (kolmogorov, "kutta3", (4096, 4096)),
    "gas 3-D mc hllc": (partial(sheared_gas, scheme=SCHEMES["mc primitive hllc"]), "ssprk3", (256, 256, 256)),
    "gas 3-D weno5 hllc": (
        partial(sheared_gas, scheme=SCHEMES["weno5 characteristic hllc"]), "ssprk3", (192, 192, 192),
    ),
}  # fmt: skip
TRIAL = {2: (16, 128), 3: (8, 8, 128)}
IMPLEMENTATIONS = ("xla", "pallas")


def measure_case(name: str, trial: bool, steps: int, repeats: int) -> dict[str, object]:
    """Rates, throughputs, and what a gradient of the step takes over the step."""
    build, integrator, shape = CASES[name]
    shape = TRIAL[len(shape)] if trial else shape
    scheme = INTEGRATORS[integrator]
    calls, ends, compiled = {}, {}, {}
    for implementation in IMPLEMENTATIONS:
        case = build(Domain(Grid(shape, upper=_upper(name, shape)), implementation=implementation))
        function, carry = chunk(case, scheme, steps)
        program, compiled[implementation] = compile_timed(function, carry)
        check(carry := program(carry))
        ends[implementation] = jax.device_get(carry[0])
        calls[implementation] = repeatedly(program, carry)
        gradient, _ = compile_timed(_gradient(case, scheme), case.state)
        calls[f"{implementation} gradient"] = partial(_wait, gradient, case.state)
    calls["copy"], copied = copy_call()
    seconds = time_alternately(calls, repeats)
    copy_throughput = copied / statistics.median(seconds["copy"])
    leaves = jax.tree.leaves(ends["xla"])
    nbytes, cells = sum(leaf.nbytes for leaf in leaves), int(np.prod(shape))
    rows = {}
    for implementation in IMPLEMENTATIONS:
        throughput = effective_throughput(seconds[implementation], steps, scheme.stages, nbytes)
        step = statistics.median(seconds[implementation]) / steps
        rows[implementation] = {
            **summary(seconds[implementation], steps, cells),
            "t_eff_gb_per_s": rounded(throughput),
            "t_eff_of_copy": rounded(throughput / copy_throughput),
            "gradient_over_step": rounded(statistics.median(seconds[f"{implementation} gradient"]) / step),
            "compile_s": rounded(compiled[implementation]),
        }
    difference = max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(jax.tree.leaves(ends["pallas"]), leaves, strict=True)
    )
    return {
        "case": name,
        "shape": shape,
        "integrator": integrator,
        "copy_gb_per_s": rounded(copy_throughput),
        "largest_difference": rounded(difference),
        **rows,
    }


def _upper(name: str, shape: tuple[int, ...]) -> tuple[float, ...]:
    return (2 * np.pi if name.startswith("navier-stokes") else 1.0,) * len(shape)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5, help="timings of each program; medians are printed")
    parser.add_argument("--trial", action="store_true", help="small grids, two steps, one timing")
    options = parser.parse_args()
    if jax.default_backend() == "cpu" and not options.trial:
        parser.error("expected a GPU or a TPU; a CPU came, on which kernels are only interpreted: write --trial.")
    steps, repeats = (2, 1) if options.trial else (options.steps, options.repeats)
    result = {
        "benchmark": "stencils by XLA and as Pallas kernels, float32",
        "environment": environment(),
        "device": jax.devices()[0].device_kind,
        "cases": [measure_case(name, options.trial, steps, repeats) for name in options.cases],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
