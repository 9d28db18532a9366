"""Speed of transport: an explicit TVD step against a copy, and an implicit solve in units of copies; prints JSON."""

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
from simjax.core.boundary import PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.grid import CENTER, FACE
from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar import transport
from simjax.ops.scalar_fluxes import SCHEMES
from simjax.solvers.multigrid import multigrid, solve_elliptic

TOLERANCE, CONTRAST = 1e-8, 1e3


def layered_flow(domain: Domain, scheme: str, diffusive: bool, dtype=np.float32) -> Case:
    """A scalar in a shear flow, periodic but for walls along the last axis; diffusivities over three decades."""
    grid = domain.grid
    ndim = grid.ndim

    def waves(offset, phase):
        x = np.meshgrid(*(2 * np.pi * grid.coordinates(k, offset[k]) for k in range(ndim)), indexing="ij", sparse=True)
        return np.prod(np.broadcast_arrays(*(np.sin(v + phase + k) for k, v in enumerate(x))), axis=0)

    sides = [(PeriodicSide(), PeriodicSide())] * (ndim - 1) + [(SlipWall(), SlipWall())]
    model = transport.Transport(domain, sides, scheme, tolerance=TOLERANCE)
    offsets = [tuple(FACE if k == axis else CENTER for k in range(ndim)) for axis in range(ndim)]
    velocity = tuple(jnp.asarray(waves(offset, axis), dtype) for axis, offset in enumerate(offsets))
    center = waves((CENTER,) * ndim, 0.0)
    diffusivity = jnp.asarray(1e-3 * CONTRAST ** (0.5 * center), dtype) if diffusive else None
    state = transport.State(jnp.asarray(1 + 0.5 * center, dtype))
    return Case(model, transport.Params(velocity, diffusivity), state, 0.2 * min(grid.spacing) / ndim)


def measure_step(shape: tuple[int, ...], scheme: str, integrator: str, repeats: int) -> dict[str, object]:
    """Explicit steps of advection beside a copy.

    T_eff counts what a stage must move: the concentration in and out, and each velocity component in.
    """
    case, table = layered_flow(unit_box(shape), scheme, False), INTEGRATORS[integrator]
    cells = case.model.domain.grid.cells
    steps = max(4, int(2e7 / (cells * table.stages)))
    function, carry = chunk(case, table, steps)
    program, compile_seconds = compile_timed(function, carry)
    check(carry := program(carry))
    copy, copied = copy_call()
    seconds = time_alternately({"simjax": repeatedly(program, carry), "copy": copy}, repeats)
    fields = (2 + len(shape)) / 2
    throughput = effective_throughput(
        seconds["simjax"], steps, table.stages, int(fields * case.state.concentration.nbytes)
    )
    copy_throughput = copied / statistics.median(seconds["copy"])
    return {
        "shape": shape,
        "scheme": scheme,
        "integrator": integrator,
        "stages": table.stages,
        **summary(seconds["simjax"], steps, cells),
        "t_eff_gb_per_s": rounded(throughput),
        "copy_gb_per_s": rounded(copy_throughput),
        "t_eff_of_copy": rounded(throughput / copy_throughput),
        "compile_s": rounded(compile_seconds),
    }


def measure_solve(shape: tuple[int, ...], repeats: int) -> dict[str, object]:
    """One implicit diffusion of a step ten times longer than the spacing over the speed, float64, from nothing."""
    case = layered_flow(unit_box(shape), "upwind", True, np.float64)
    _, operator, hierarchy = jax.jit(case.model.prepare)(case.params)
    right, shift = case.state.concentration, 1 / (10 * min(case.model.domain.grid.spacing))

    def solve(operator, hierarchy, right):
        return solve_elliptic(operator, hierarchy, right, shift, tolerance=TOLERANCE)

    def cycle(hierarchy, right):
        return hierarchy.cycle(right, shift, hierarchy.inverses(shift))

    programs = {
        "solve": (jax.jit(solve), (operator, hierarchy, right)),
        "cycle": (jax.jit(cycle), (hierarchy, right)),
        "operator": (jax.jit(lambda operator, x: operator(x, shift)), (operator, right)),
        "copy": (jax.jit(lambda x: x + 1), (right,)),
        "setup": (jax.jit(multigrid), (operator,)),
    }
    compiled = {name: (function.lower(*given).compile(), given) for name, (function, given) in programs.items()}
    iterations = int(compiled["solve"][0](*compiled["solve"][1]).iterations)

    def call(name):
        program, arguments = compiled[name]
        return lambda: jax.block_until_ready([program(*arguments) for _ in range(4)]) and None

    seconds = time_alternately({name: call(name) for name in compiled}, repeats)
    milliseconds = {name: 1e3 * statistics.median(times) / 4 for name, times in seconds.items()}
    return {
        "shape": shape,
        "dtype": "float64",
        "tolerance": TOLERANCE,
        "contrast": CONTRAST,
        "iterations": iterations,
        "ms": {name: rounded(time) for name, time in milliseconds.items()},
        "copies": {name: rounded(time / milliseconds["copy"]) for name, time in milliseconds.items() if name != "copy"},
        "cells_per_s": rounded(int(np.prod(shape)) / milliseconds["solve"] * 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["512x512", "96x96x96"])
    parser.add_argument("--schemes", nargs="+", default=["van_leer"], choices=SCHEMES)
    parser.add_argument("--integrator", default="ssprk3", choices=INTEGRATORS)
    parser.add_argument("--repeats", type=int, default=7, help="timings of each program; medians are printed")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    result = {
        "benchmark": "transport with variable velocity, float32; implicit variable diffusion, float64",
        "environment": environment(),
        "explicit": [
            measure_step(shape, scheme, options.integrator, options.repeats)
            for shape in shapes
            for scheme in options.schemes
        ],
        "implicit": [measure_solve(shape, options.repeats) for shape in shapes],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
