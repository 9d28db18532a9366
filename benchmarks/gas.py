"""Speed of a compressible gas in two and three dimensions, beside a copy; prints JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, check, chunk, unit_box
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
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.integrators.table import INTEGRATORS
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme

SCHEMES = {
    "weno5 characteristic hllc": GasScheme("weno5", "characteristic", "hllc"),
    "mc primitive hllc": GasScheme("mc", "primitive", "hllc"),
}
INTEGRATOR = "ssprk3"


def sheared_gas(domain: Domain, scheme: GasScheme, dtype=np.float32) -> Case:
    """A smooth periodic flow at Mach numbers up to a half, in the unit box."""
    shape = domain.grid.shape
    model = Compressible(domain, [(PeriodicSide(), PeriodicSide())] * len(shape), scheme)
    params = Params(jnp.asarray(1.4, dtype))
    phases = [2 * np.pi * domain.grid.coordinates(axis, CENTER) for axis in range(len(shape))]
    waves = np.meshgrid(*phases, indexing="ij")
    turned = [*waves[1:], waves[0]]

    def field(values):
        return jnp.asarray(np.broadcast_to(values, shape), dtype)

    state = model.state_from(
        {
            "density": (field(1 + 0.2 * np.sin(waves[0])),),
            "velocity": tuple(field(0.5 * np.sin(wave)) for wave in turned),
            "pressure": (field(1 + 0.1 * np.cos(waves[-1])),),
        },
        params,
    )
    return Case(model, params, state, 0.1 * float(model.stable_dt(state, params)))


def measure_case(shape: tuple[int, ...], name: str, repeats: int) -> dict[str, object]:
    """Rate and throughput of simjax's own loop, beside a copy, and the operations of one tendency as compiled."""
    case, scheme = sheared_gas(unit_box(shape), SCHEMES[name]), INTEGRATORS[INTEGRATOR]
    cells = case.model.domain.grid.cells
    steps = max(2, int(4e6 / cells))
    function, carry = chunk(case, scheme, steps)
    program, compile_seconds = compile_timed(function, carry)
    check(carry := program(carry))
    copy, copied = copy_call()
    seconds = time_alternately({"simjax": repeatedly(program, carry), "copy": copy}, repeats)
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(case.state))
    throughput = effective_throughput(seconds["simjax"], steps, scheme.stages, nbytes)
    copy_throughput = copied / statistics.median(seconds["copy"])
    tendency = jax.jit(lambda *arguments: case.model.rhs(*arguments))
    stage = tendency.lower(jnp.float32(0), case.state, case.params).compile()
    flops = stage.cost_analysis().get("flops", float("nan")) / cells
    rates = summary(seconds["simjax"], steps, cells)
    return {
        "shape": shape,
        "scheme": name,
        "integrator": INTEGRATOR,
        **rates,
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "flops_per_cell_and_stage": rounded(flops),
        "gflops_per_s": rounded(flops * rates["cell_updates_per_s"] * scheme.stages / 1e9),
        "compile_s": rounded(compile_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["512x512", "96x96x96"])
    parser.add_argument("--repeats", type=int, default=3, help="timings of each program; medians are printed")
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    result = {
        "benchmark": "compressible Euler, periodic, float32",
        "environment": environment(),
        "bound": "arithmetic: T_eff is a few hundredths of a copy",
        "cases": [measure_case(shape, name, options.repeats) for shape in shapes for name in SCHEMES],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
