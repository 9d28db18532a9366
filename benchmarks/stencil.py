"""Speed of advection-diffusion against a copy; prints JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from benchmarks.cases import advected_scalar, chunk, unit_box
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
from simjax.integrators.runge_kutta import INTEGRATORS


def steps_for(cells: int, stages: int) -> int:
    """An even number of steps that takes a few tenths of a second."""
    return max(4, int(2e8 / (cells * stages)) // 2 * 2)


def measure_case(shape: tuple[int, ...], integrator: str, repeats: int) -> dict[str, object]:
    """Rate, throughput and compile time of simjax's own loop, beside a copy."""
    case, scheme = advected_scalar(unit_box(shape)), INTEGRATORS[integrator]
    cells = case.model.domain.grid.cells
    steps = steps_for(cells, scheme.stages)
    function, carry = chunk(case, scheme, steps)
    program, compile_seconds = compile_timed(function, carry)
    copy, copied = copy_call()
    seconds = time_alternately({"simjax": repeatedly(program, carry), "copy": copy}, repeats)
    nbytes = case.state.concentration.nbytes
    throughput = effective_throughput(seconds["simjax"], steps, scheme.stages, nbytes)
    copy_throughput = copied / statistics.median(seconds["copy"])
    return {
        "shape": shape,
        "integrator": integrator,
        "stages": scheme.stages,
        **summary(seconds["simjax"], steps, cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["512x512", "1024x1024", "128x128x128"])
    parser.add_argument("--integrators", nargs="+", default=["euler", "kutta3"], choices=INTEGRATORS)
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    runs = [(shape, name) for shape in shapes for name in options.integrators]
    result: dict[str, object] = {
        "benchmark": "advection-diffusion, central, periodic, float32",
        "environment": environment(),
        "cases": [measure_case(shape, name, options.repeats) for shape, name in runs],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
