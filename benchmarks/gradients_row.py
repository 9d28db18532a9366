"""One row of `gradients.py`, in an interpreter that has the package: what a gradient costs beside its forward run.

Reads `initial.npz` and `physics.json` in the folder given and prints one line of JSON. The loss is the mean square of
the fields at the end; its gradient is taken with respect to the fields at the beginning and to the viscosity.

Memory is measured, not computed: `*_peak_mib` is the growth of the process's resident memory to its highest during
one call, from what it was just before, when program and arguments are there (Linux; the kernel's peak is reset before
each call). `*_temp_mib` beside it is what the compiler sets aside for temporaries.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from measure import compile_timed, rounded


def repeated(step, state, steps: int, plan: str):
    """`step` applied `steps` times, as the peers' users do it: as it is ("none"), or with each step checkpointed."""
    body = {"none": step, "every_step": jax.checkpoint(lambda state: step(state), prevent_cse=False)}[plan]
    return jax.lax.scan(lambda state, _: (body(state), None), state, None, length=steps)[0]


def mean_square(fields):
    return sum(jnp.mean(u * u) for u in fields)


def simjax_plan(plan: str):
    """A policy by name, or `binomial_19` and the like."""
    from simjax.stepping.checkpointing.plan import Binomial

    kind, _, states = plan.partition("_")
    return Binomial(int(states)) if kind == "binomial" else plan


def simjax_finite_volume(shape, physics, steps: int, plan: str):
    import equinox as eqx
    from cases import kolmogorov, kolmogorov_box

    from simjax.integrators.table import INTEGRATORS
    from simjax.models.flow.incompressible import State
    from simjax.stepping.simulate import Schedule, simulate

    case, dt = kolmogorov(kolmogorov_box(shape)), physics["dt"]

    def loss(fields, viscosity):
        params = eqx.tree_at(lambda p: p.viscosity, case.params, viscosity)
        schedule, checkpoint = Schedule(steps * dt, dt=dt), simjax_plan(plan)
        scheme = INTEGRATORS[physics["integrator"]]
        end = simulate(case.model, scheme, params, State(fields), schedule, frames=1, checkpoint=checkpoint)
        return mean_square(end.state.velocity)

    return loss


def simjax_spectral(shape, physics, steps: int, plan: str):
    from cases import kolmogorov_box

    from simjax.integrators.table import INTEGRATORS
    from simjax.models.flow.fourier_flow import Params
    from simjax.models.flow.vorticity import Vorticity
    from simjax.stepping.simulate import Schedule, simulate

    model, dt = Vorticity(kolmogorov_box(shape)), physics["dt"]

    def loss(fields, viscosity):
        params = Params(viscosity, jnp.zeros_like(viscosity))
        schedule, checkpoint = Schedule(steps * dt, dt=dt), simjax_plan(plan)
        scheme, start = INTEGRATORS[physics["integrator"]], model.state_from({"vorticity": fields}, params)
        end = simulate(model, scheme, params, start, schedule, frames=1, checkpoint=checkpoint)
        return mean_square([model.observe(0.0, end.state, params)["vorticity"]])

    return loss


def jax_cfd_finite_volume(shape, physics, steps: int, plan: str, convection: str):
    """simjax's scheme ("linear") or jax-cfd's default convection ("van_leer"), explicit diffusion, real FFT solve."""
    import jax_cfd.base as cfd
    from jax_cfd.base import advection, time_stepping

    grid = cfd.grids.Grid(shape, domain=((0, 2 * np.pi),) * 2)
    periodic = cfd.boundaries.periodic_boundary_conditions(2)

    def linear(v):
        return tuple(advection.advect_linear(u, v, physics["dt"]) for u in v)

    def loss(fields, viscosity):
        step = cfd.equations.semi_implicit_navier_stokes(
            density=1.0, viscosity=viscosity, dt=physics["dt"], grid=grid,
            convect=linear if convection == "linear" else None,
            forcing=cfd.forcings.kolmogorov_forcing(grid, scale=physics["force"], k=physics["wavenumber"]),
            time_stepper=time_stepping.midpoint_rk2,
        )  # fmt: skip
        # jax-cfd stores a cell's upper face where simjax stores the lower one.
        start = tuple(
            cfd.grids.GridVariable(cfd.grids.GridArray(jnp.roll(u, -1, axis), offset, grid), periodic)
            for axis, (u, offset) in enumerate(zip(fields, grid.cell_faces, strict=True))
        )
        return mean_square(u.data for u in repeated(step, start, steps, plan))

    return loss


def jax_cfd_spectral(shape, physics, steps: int, plan: str):
    """Crank-Nicolson with a Runge-Kutta method of order four, jax-cfd's own choice; its default filter is on."""
    import jax_cfd.base.grids as grids
    from jax_cfd.spectral import equations, time_stepping

    grid = grids.Grid(shape, domain=((0, 2 * np.pi),) * 2)

    def loss(fields, viscosity):
        equation = equations.NavierStokes2D(viscosity, grid, smooth=True)
        step = time_stepping.crank_nicolson_rk4(equation, physics["dt"])
        end = repeated(step, jnp.fft.rfft2(fields[0]), steps, plan)
        return mean_square([jnp.fft.irfft2(end, shape)])

    return loss


def exponax_spectral(shape, physics, steps: int, plan: str):
    """ETDRK2, on the vorticity's spectrum."""
    import exponax

    def loss(fields, viscosity):
        # Its velocity is the negative of the one whose curl is the vorticity.
        stepper = exponax.stepper.NavierStokesVorticity(
            2, 2 * np.pi, shape[0], physics["dt"],
            diffusivity=viscosity, vorticity_convection_scale=-1.0, order=2,
        )  # fmt: skip
        end = repeated(stepper.step_fourier, jnp.fft.rfft2(fields[0][None]), steps, plan)
        return mean_square([jnp.fft.irfft2(end[0], shape)])

    return loss


def phiflow_finite_volume(shape, physics, steps: int, plan: str):
    """Semi-Lagrangian advection, explicit diffusion and the package's pressure solve, without force."""
    from phi.jax.flow import PERIODIC, Box, Solve, StaggeredGrid, advect, diffuse, dual, fluid, math, spatial

    box = Box(x=2 * np.pi, y=2 * np.pi)

    def step(fields, viscosity):
        parts = {axis: math.wrap(u, spatial("x,y")) for axis, u in zip("xy", fields, strict=True)}
        velocity = StaggeredGrid(math.stack(parts, dual("vector")), PERIODIC, box, x=shape[0], y=shape[1])
        velocity = advect.semi_lagrangian(velocity, velocity, physics["dt"])
        velocity = diffuse.explicit(velocity, math.wrap(viscosity), physics["dt"])
        # Relative tolerances alone: cotangents are small beside one.
        velocity, _ = fluid.make_incompressible(velocity, (), Solve("CG", 1e-5, 0.0))
        return tuple(velocity.values[{"~vector": axis}].native("x,y") for axis in "xy")

    def loss(fields, viscosity):
        return mean_square(repeated(lambda fields: step(fields, viscosity), fields, steps, plan))

    return loss


LOSSES = {
    ("simjax", "finite_volume"): simjax_finite_volume,
    ("simjax", "spectral"): simjax_spectral,
    ("jax_cfd", "finite_volume"): functools.partial(jax_cfd_finite_volume, convection="linear"),
    ("jax_cfd_van_leer", "finite_volume"): functools.partial(jax_cfd_finite_volume, convection="van_leer"),
    ("jax_cfd", "spectral"): jax_cfd_spectral,
    ("exponax", "spectral"): exponax_spectral,
    ("phiflow", "finite_volume"): phiflow_finite_volume,
}


def peak_resident() -> float:
    """MiB of the process's resident memory at its highest since the peak was last reset."""
    # Not getrusage's figure, which does not fall below what the parent process had when it started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def peak_growth(call) -> tuple[object, float]:
    """What `call` returns, and the MiB by which resident memory was larger at its highest during it than before."""
    gc.collect()
    # What compilation freed goes back first: memory that is used again would not show.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_resident()
    result = jax.block_until_ready(call())
    return result, peak_resident() - before


def row(build, steps: int, plan: str, start, viscosity, repeats: int) -> dict[str, object]:
    """Time and memory of the loss alone, and of the loss with its gradient under `plan`."""
    programs, figures = {}, {}
    for name, function in (
        # The forward run by itself has nothing to store.
        ("forward", build(steps, "none")),
        ("gradient", jax.value_and_grad(build(steps, plan), argnums=(0, 1))),
    ):
        programs[name], figures[f"{name}_compile_s"] = compile_timed(jax.jit(function), start, viscosity)
    # The first run starts threads; the ones that are measured for memory are not timed.
    jax.block_until_ready(programs["forward"](start, viscosity))
    for name, program in programs.items():
        result, figures[f"{name}_peak_mib"] = peak_growth(functools.partial(program, start, viscosity))
        figures[f"{name}_temp_mib"] = program.memory_analysis().temp_size_in_bytes / 2**20
    loss, (slopes, viscosity_slope) = result
    values = {
        "jax": jax.__version__,
        "loss": float(loss),
        "viscosity_slope": float(viscosity_slope),
        "start_slope_norm": float(jnp.sqrt(sum(jnp.sum(g * g) for g in slopes))),
    }
    del result, slopes
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program(start, viscosity))
            seconds[name].append(time.perf_counter() - begin)
    for name, taken in seconds.items():
        figures[f"{name}_ms_per_step"] = 1e3 * statistics.median(taken) / steps
    figures["gradient_over_forward"] = figures["gradient_ms_per_step"] / figures["forward_ms_per_step"]
    figures["gradient_over_forward_least_times"] = min(seconds["gradient"]) / min(seconds["forward"])
    return {name: rounded(figure) for name, figure in figures.items()} | values


def compilation(build, lengths, plans, start, viscosity, repeats: int) -> list[dict[str, object]]:
    """Seconds to trace and compile loss and gradient, by length and plan, in turns: median, and least processor time.

    The processors' time hardly changes with what else the machine does.
    """
    choices = list(zip(lengths, plans, strict=True))
    seconds: dict[tuple[int, str], list[tuple[float, float]]] = {choice: [] for choice in choices}

    # The first turn also loads code.
    for _ in range(repeats + 1):
        for steps, plan in choices:
            jax.clear_caches()
            function = jax.jit(jax.value_and_grad(build(steps, plan), argnums=(0, 1)))
            begin = time.process_time()
            elapsed = compile_timed(function, start, viscosity)[1]
            seconds[steps, plan].append((elapsed, time.process_time() - begin))
    result = []
    for steps, plan in choices:
        elapsed, busy = zip(*seconds[steps, plan][1:], strict=True)
        figures = {"compile_s": rounded(statistics.median(elapsed)), "compile_cpu_s_least": rounded(min(busy))}
        result.append({"steps": steps, "plan": plan} | figures)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--package", required=True)
    parser.add_argument("--problem", required=True)
    parser.add_argument("--plans", nargs="+", required=True)
    parser.add_argument("--steps", nargs="+", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--only-compile", action="store_true")
    options = parser.parse_args()
    physics = json.loads((options.folder / "physics.json").read_text())
    with np.load(options.folder / "initial.npz") as fields:
        start = tuple(jnp.asarray(fields[name], jnp.float32) for name in sorted(fields))
    build = functools.partial(LOSSES[options.package, options.problem], start[0].shape, physics)
    viscosity = jnp.asarray(physics["viscosity"], jnp.float32)
    if options.only_compile:
        result = compilation(build, options.steps, options.plans, start, viscosity, options.repeats)
    else:
        (steps,), (plan,) = options.steps, options.plans
        result = row(build, steps, plan, start, viscosity, options.repeats)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
