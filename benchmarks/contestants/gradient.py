"""Value and gradient of a flow's run: mean square of the fields at its end, by those at its beginning and by viscosity.

By simjax under a checkpoint plan, or by another package as its users write it: as it is (`none`) or with each step
under `jax.checkpoint` (`every_step`).
"""

from __future__ import annotations

import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contest import Program, compiled, serve

FORWARD_TIMINGS = 3


def repeated(step, state, steps: int, plan: str):
    """`step` applied `steps` times."""
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

    from benchmarks.cases import kolmogorov, kolmogorov_box
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
    from benchmarks.cases import kolmogorov_box
    from simjax.integrators.table import INTEGRATORS
    from simjax.models.flow.fourier.fourier_flow import Params
    from simjax.models.flow.fourier.vorticity import Vorticity
    from simjax.stepping.simulate import Schedule, simulate

    model, dt = Vorticity(kolmogorov_box(shape)), physics["dt"]

    def loss(fields, viscosity):
        params = Params(viscosity, jnp.zeros_like(viscosity))
        schedule, checkpoint = Schedule(steps * dt, dt=dt), simjax_plan(plan)
        scheme, start = INTEGRATORS[physics["integrator"]], model.state_from({"vorticity": fields}, params)
        end = simulate(model, scheme, params, start, schedule, frames=1, checkpoint=checkpoint)
        return mean_square([model.observe(0.0, end.state, params)["vorticity"]])

    return loss


def jax_cfd_finite_volume(shape, physics, steps: int, plan: str):
    import jax_cfd.base as cfd

    from benchmarks.contestants.jax_cfd_flow import step_of, velocity_of

    grid = cfd.grids.Grid(shape, domain=((0, 2 * np.pi),) * 2)

    def loss(fields, viscosity):
        end = repeated(step_of(physics, grid, viscosity), velocity_of(fields, grid), steps, plan)
        return mean_square(u.data for u in end)

    return loss


def jax_cfd_spectral(shape, physics, steps: int, plan: str):
    from benchmarks.contestants.jax_cfd_spectral import step_of

    def loss(fields, viscosity):
        end = repeated(step_of(physics, shape, viscosity), jnp.fft.rfft2(fields[0]), steps, plan)
        return mean_square([jnp.fft.irfft2(end, shape)])

    return loss


def exponax_spectral(shape, physics, steps: int, plan: str):
    from benchmarks.contestants.exponax_spectral import stepper_of

    def loss(fields, viscosity):
        step = stepper_of({**physics, "viscosity": viscosity}, shape[0]).step_fourier
        end = repeated(step, jnp.fft.rfft2(fields[0][None]), steps, plan)
        return mean_square([jnp.fft.irfft2(end[0], shape)])

    return loss


LOSSES = {
    ("simjax", "finite_volume"): simjax_finite_volume,
    ("simjax", "spectral"): simjax_spectral,
    ("jax_cfd", "finite_volume"): jax_cfd_finite_volume,
    ("jax_cfd", "spectral"): jax_cfd_spectral,
    ("exponax", "spectral"): exponax_spectral,
}


def loss_of(physics, shape, steps: int, plan: str):
    """The loss as a function of the fields at the beginning and of viscosity."""
    return LOSSES[physics["package"], physics["flow"]](shape, physics, steps, plan)


def build(physics, start) -> Program:
    fields = tuple(jnp.asarray(start[name], jnp.float32) for name in sorted(start))
    arguments = fields, jnp.float32(physics["viscosity"])
    of_steps = functools.partial(loss_of, physics, fields[0].shape, physics["steps"])
    # The forward run by itself has nothing to store.
    forward, _ = compiled(jax.jit(of_steps("none")), *arguments)
    gradient = jax.jit(jax.value_and_grad(of_steps(physics["plan"]), argnums=(0, 1)))
    gradient, seconds = compiled(gradient, *arguments)
    found = []

    def advance() -> None:
        found[:] = [jax.block_until_ready(gradient(*arguments))]

    def result():
        loss, (slopes, by_viscosity) = found[0]
        return {"loss": loss, "by_viscosity": by_viscosity, "by_start": np.stack(slopes)}

    # Before memory is measured: the first run starts threads.
    ratio = _gradient_over_forward(lambda: jax.block_until_ready(forward(*arguments)), advance)
    found.clear()
    return Program(advance, result, seconds, {"gradient_over_forward": ratio}, gradient.as_text)


def _gradient_over_forward(forward, gradient) -> float:
    """Median over pairs of runs, one right after the other, of which the first is not counted."""
    ratios = []
    for _ in range(1 + FORWARD_TIMINGS):
        moments = [time.perf_counter()]
        for call in (forward, gradient):
            call()
            moments.append(time.perf_counter())
        ratios.append((moments[2] - moments[1]) / (moments[1] - moments[0]))
    return statistics.median(ratios[1:])


if __name__ == "__main__":
    serve(build)
