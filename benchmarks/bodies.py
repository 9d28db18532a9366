"""Cost of bodies in an incompressible flow: steps, gradients with respect to a shape, and memory; prints JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.measure import compile_timed, environment, repeatedly, rounded, time_alternately
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.incompressible import Incompressible, Params
from simjax.solvers.multigrid import multigrid
from simjax.stepping.simulate import Schedule, simulate

INTEGRATOR, VISCOSITY, RADIUS = "kutta3", 2e-3, 0.15
# Steps before anything is timed, so that the pressure has left the start behind.
SETTLED = 20
# Of a step around a body, over one without; of value and gradient, over the value.
SOUGHT_STEP, SOUGHT_GRADIENT = 2.5, 4.0
# WaterLily.jl, nanoseconds for each cell and step on one core, as its authors give it.
WATERLILY_NS = 172


def flow(shape: tuple[int, ...], dtype, solver: str | None, radius: Any = RADIUS, beside: int | None = None):
    """Taylor and Green's vortex on a stream in a periodic box: model, parameters, state and step.

    solver: of the pressure around a ball in the middle; None: without a ball. beside: see `Solid`.
    """
    domain, ndim = Domain(Grid(shape)), len(shape)

    def distance(t, *x):
        return jnp.sqrt(sum((v - 0.5) ** 2 for v in x)) - radius

    sides = [(PeriodicSide(), PeriodicSide())] * ndim
    body = None if solver is None else Solid(distance, beside=beside)
    model = Incompressible(domain, sides, pressure_solver=solver or "auto", solid=body)
    velocity = []
    for axis, layout in enumerate(model.layouts):
        x, y = (2 * math.pi * v for v in domain.coordinates(layout.offset, dtype)[:2])
        swirl = (1 + 0.5 * jnp.sin(x) * jnp.cos(y), -0.5 * jnp.cos(x) * jnp.sin(y), jnp.zeros((), dtype))[axis]
        velocity.append(jnp.broadcast_to(swirl, shape).astype(dtype))
    params = Params(jnp.asarray(VISCOSITY, dtype), jnp.zeros((), dtype))
    return model, params, model.state_from({"velocity": tuple(velocity)}, params), 0.2 / shape[0]


def stepping(shape: tuple[int, ...], dtype, solver: str | None, steps: int) -> tuple[Callable, dict[str, Any]]:
    """A call that takes steps from a settled flow, and what is told of its program."""
    model, params, state, dt = flow(shape, dtype, solver)
    scheme, dt = INTEGRATORS[INTEGRATOR], jnp.asarray(dt, dtype)
    prepare = jax.jit(lambda: scheme.prepare(model, params, dt))
    parts = jax.block_until_ready(prepare())

    def advance(state, parts):
        return jax.lax.fori_loop(0, steps, lambda k, s: scheme.step(model, k * dt, dt, s, params, parts), state)

    program, _ = compile_timed(jax.jit(advance), state, parts)
    told = {"temp_mib": rounded(program.memory_analysis().temp_size_in_bytes / 2**20)}
    if parts is not None:
        told["prepare_ms"] = rounded(1e3 * min(time_alternately({"": lambda: _ready(prepare)}, 2)[""]))
        told["solver"] = f"{model.around.method} with {model.around.capacity} sources"
    call = repeatedly(lambda state: program(state, parts), state)
    for _ in range(-(-SETTLED // steps)):
        call()
    return call, told


def _ready(function: Callable) -> None:
    jax.block_until_ready(function())


def cycle_in_tendencies(shape: tuple[int, ...], dtype) -> tuple[Callable, Callable]:
    """A multigrid cycle around the ball, and the tendency of the flow without it, each a call."""
    model, params, state, _ = flow(shape, dtype, "multigrid")
    immersion, _ = jax.jit(lambda: model.constant_parts(params))()
    hierarchy = jax.jit(lambda: multigrid(immersion.operator))()
    right = jnp.where(immersion.active, state.velocity[0], 0.0)
    cycle = jax.jit(lambda u: hierarchy.cycle(u, 0.0, hierarchy.inverses(0.0)))
    plain, params, state, _ = flow(shape, dtype, None)
    tendency = jax.jit(lambda state: plain.rhs(0.0, state, params))
    return lambda: _ready(lambda: cycle(right)), lambda: _ready(lambda: tendency(state))


def gradients(shape: tuple[int, ...], dtype, steps: int) -> dict[str, Any]:
    """Value and gradient of an energy after some steps, for the radius, and without a ball for the viscosity."""
    known = flow(shape, dtype, "auto")[0].around.capacity

    def energy(number, solver):
        radius, viscosity = (number, VISCOSITY) if solver else (RADIUS, number)
        model, _, state, dt = flow(shape, dtype, solver, radius, known)
        params = Params(jnp.asarray(viscosity, dtype), jnp.zeros((), dtype))
        end = simjax_run(model, params, state, dt, steps)
        return sum(jnp.mean(u * u) for u in end.velocity)

    calls, told = {}, {}
    for name, solver, number in (("body", "auto", RADIUS), ("no_body", None, VISCOSITY)):
        number = jnp.asarray(number, dtype)
        for kind, function in (("value", energy), ("gradient", jax.value_and_grad(energy))):
            program, _ = compile_timed(jax.jit(function, static_argnums=1), number, solver)
            calls[f"{name}_{kind}"] = lambda program=program, number=number: _ready(lambda: program(number))
            told[f"{name}_{kind}_temp_mib"] = rounded(program.memory_analysis().temp_size_in_bytes / 2**20)
    least = {name: min(seconds) for name, seconds in time_alternately(calls, 2).items()}
    ratio = least["body_gradient"] / least["body_value"]
    return told | {
        "steps": steps,
        **{f"{name}_ms_per_step": rounded(1e3 * seconds / steps) for name, seconds in least.items()},
        "gradient_over_forward": rounded(ratio),
        "at_most_sought": SOUGHT_GRADIENT,
        "reached": ratio <= SOUGHT_GRADIENT,
    }


def simjax_run(model, params, state, dt: float, steps: int):
    """The state after steps, through the loop of configured runs with its plan of checkpoints."""
    schedule = Schedule(steps * dt, dt=dt)
    return simulate(model, INTEGRATORS[INTEGRATOR], params, state, schedule, frames=1, on_fault="keep").state


def steps_of(shape: tuple[int, ...], dtype, steps: int, repeats: int) -> dict[str, Any]:
    """Steps without a body, and around one with both solvers, in turns."""
    made = {
        name: stepping(shape, dtype, None if name == "periodic" else name, steps)
        for name in ("periodic", "spectral", "multigrid")
    }
    calls = {name: call for name, (call, _) in made.items()}
    cycle, tendency = cycle_in_tendencies(shape, dtype)
    seconds = time_alternately(calls | {"cycle": cycle, "tendency": tendency}, repeats)
    least = {name: min(times) for name, times in seconds.items()}
    ratios = {name: least[name] / least["periodic"] for name in calls if name != "periodic"}
    return {
        "grid": "x".join(map(str, shape)),
        "precision": jnp.dtype(dtype).name,
        **{name: {"ms_per_step_least": rounded(1e3 * least[name] / steps), **told} for name, (_, told) in made.items()},
        "over_periodic": {name: rounded(ratio) for name, ratio in ratios.items()},
        "at_most_sought": SOUGHT_STEP,
        "reached": min(ratios.values()) <= SOUGHT_STEP,
        "cycle_in_tendencies": rounded(least["cycle"] / least["tendency"]),
    }


def on_one_core(steps: int, repeats: int) -> dict[str, Any]:
    """Nanoseconds for each cell and step of 64^3 cells in single precision: this process runs on one core."""
    found = {}
    for name, solver in (("periodic", None), ("body", "auto")):
        call, told = stepping((64, 64, 64), jnp.float32, solver, steps)
        least = min(time_alternately({name: call}, repeats)[name])
        found[name] = {"ns_per_cell_and_step": rounded(1e9 * least / steps / 64**3), **told}
    return found | {"waterlily_ns_per_cell_and_step": WATERLILY_NS, "cores": len(os.sched_getaffinity(0))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["256x256", "64x64x64"], help="grids, such as 256x256")
    parser.add_argument("--steps", type=int, default=4, help="of a call")
    parser.add_argument("--repeats", type=int, default=5, help="timings of each program; the least counts")
    parser.add_argument("--only-one-core", action="store_true", help="what `taskset -c 0` runs")
    options = parser.parse_args()
    if options.only_one_core:
        json.dump(on_one_core(options.steps, options.repeats), sys.stdout)
        return
    jax.config.update("jax_enable_x64", True)
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    rows = []
    for shape in shapes:
        for dtype in (jnp.float32, jnp.float64):
            rows.append(steps_of(shape, dtype, options.steps, options.repeats))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    slopes = {}
    for shape in shapes:
        slopes["x".join(map(str, shape))] = gradients(shape, jnp.float32, options.steps)
        print(json.dumps(slopes), file=sys.stderr, flush=True)
    alone = ["taskset", "-c", "0", sys.executable, "-m", "benchmarks.bodies", "--only-one-core"]
    done = subprocess.run(alone, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    result = {
        "benchmark": "incompressible flow around a ball of radius 0.15 in a periodic box, kutta3",
        "environment": environment(),
        "steps": rows,
        "gradients": slopes,
        "one_core": json.loads(done.stdout.splitlines()[-1]),
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
