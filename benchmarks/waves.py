"""Speed of acoustic waves and of Maxwell's equations against a copy, with and without absorbing layers; prints JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, check, chunk, unit_box
from benchmarks.measure import compile_timed, copy_call, environment, repeatedly, rounded, summary, time_alternately
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.integrators.splitting import INTEGRATORS
from simjax.models.waves import acoustic, maxwell
from simjax.models.waves.pml import AbsorbingSide

LEAPFROG = INTEGRATORS["leapfrog"]
RUNS = (
    # model, shape, order, sides, medium
    ("acoustic", (1024, 1024), 2, "periodic", "variable"),
    ("acoustic", (1024, 1024), 4, "periodic", "variable"),
    ("acoustic", (1024, 1024), 4, "absorbing", "variable"),
    ("acoustic", (128, 128, 128), 2, "periodic", "variable"),
    ("acoustic", (128, 128, 128), 4, "periodic", "variable"),
    ("acoustic", (128, 128, 128), 4, "absorbing", "variable"),
    ("maxwell", (1024, 1024), 2, "periodic", "variable"),
    ("maxwell", (128, 128, 128), 2, "periodic", "variable"),
)


def property_of(domain: Domain, medium: str, seed: int):
    """A positive property of the medium: one number, or a smooth field."""
    if medium == "uniform":
        return jnp.asarray(1.0, np.float32)
    x = np.meshgrid(*(domain.grid.coordinates(axis, 0.5) for axis in range(domain.grid.ndim)), indexing="ij")
    return jnp.asarray(1 + 0.3 * np.sin(2 * np.pi * sum(x) + seed), np.float32)


def wave(model: str, domain: Domain, order: int, sides: str, medium: str) -> Case:
    """A smooth pulse of pressure, or of the electric field, at rest."""
    ndim = domain.grid.ndim
    side = AbsorbingSide() if sides == "absorbing" else PeriodicSide()
    walls = [(side, side)] * ndim
    first, second = (property_of(domain, medium, seed) for seed in range(2))
    if model == "acoustic":
        equations = acoustic.Acoustic(domain, walls, order=order)
        params = acoustic.Params(first, second)
    else:
        equations = maxwell.Maxwell(domain, walls, order=order)
        params = maxwell.Params(first, second)
    pulse = property_of(domain, "variable", 2)
    fields = {
        name: tuple(pulse if i == 0 and name in ("pressure", "electric") else 0 * pulse for i in range(len(layouts)))
        for name, layouts in equations.component_layouts().items()
    }
    state = equations.state_from(fields, params)
    return Case(equations, params, state, 0.5 * float(domain.min(equations.stable_dt(state, params))))


def bytes_per_step(case: Case) -> int:
    """What must move: unknowns read and written once, coefficients of the medium read once; layers not counted.

    Omlin and Raess (2024), Proc. JuliaCon Conf. 6, 138, eq. 1.
    """
    state = case.state
    unknowns = [state.pressure, *state.velocity] if hasattr(state, "pressure") else [*state.electric, *state.magnetic]
    known = len(unknowns) if jax.tree.leaves(case.params)[0].ndim else 0
    return (2 * len(unknowns) + known) * unknowns[0].nbytes


def measure(model: str, shape: tuple[int, ...], order: int, sides: str, medium: str, repeats: int) -> dict[str, object]:
    """Rate and throughput of one run's loop, beside a copy."""
    case = wave(model, unit_box(shape), order, sides, medium)
    steps = max(4, int(6e7 / case.model.domain.grid.cells) // 2 * 2)
    function, carry = chunk(case, LEAPFROG, steps)
    program, compile_seconds = compile_timed(function, carry)
    carry = program(carry)
    check(carry)
    copy, copied = copy_call()
    seconds = time_alternately({"simjax": repeatedly(program, carry), "copy": copy}, repeats)
    throughput = bytes_per_step(case) * steps / statistics.median(seconds["simjax"]) / 1e9
    copy_throughput = copied / statistics.median(seconds["copy"])
    return {
        "model": model,
        "shape": shape,
        "order": order,
        "sides": sides,
        "medium": medium,
        **summary(seconds["simjax"], steps, case.model.domain.grid.cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["acoustic", "maxwell"], choices=["acoustic", "maxwell"])
    parser.add_argument("--shapes", nargs="+", default=["1024x1024", "128x128x128"])
    parser.add_argument("--repeats", type=int, default=5, help="timings of each program; medians are printed")
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    runs = [run for run in RUNS if run[0] in options.models and run[1] in shapes]
    result = {
        "benchmark": "leapfrog of acoustic and electromagnetic waves, float32",
        "environment": environment(),
        "cases": [measure(*run, options.repeats) for run in runs],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
