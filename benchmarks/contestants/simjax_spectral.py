"""simjax's equations in a Fourier basis: a flow as vorticity, and ensembles of flames and of spots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.cases import Case
from benchmarks.contest import Program, compiled, looping, serve
from benchmarks.contestants.simjax_loop import in_a_run, mesh_of
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.models.spectral.nonlinear_waves import KuramotoSivashinsky
from simjax.models.spectral.patterns import GrayScott
from simjax.parallel import decompose, distribute
from simjax.stepping.simulate import Clock, Schedule, advance

ENSEMBLES = {"kuramoto_sivashinsky": KuramotoSivashinsky, "gray_scott": GrayScott}


def vorticity(physics, start, grid: Grid) -> Program:
    mesh, whole = mesh_of(physics), Vorticity(Domain(grid))
    model = whole if mesh is None else Vorticity(decompose(grid, mesh))
    params = Params(jnp.float32(physics["viscosity"]), jnp.float32(0.0))
    state = whole.state_from({"vorticity": (jnp.asarray(start["vorticity"], jnp.float32),)}, params)

    def result(state):
        return {"vorticity": np.asarray(whole.observe(0.0, jax.device_get(state), params)["vorticity"])}

    scheme = INTEGRATORS[physics["integrator"]]
    return in_a_run(Case(model, params, state, physics["dt"]), scheme, physics["steps"], result, mesh)


def ensemble(physics, start, grid: Grid) -> Program:
    """All members at once, by `jax.vmap` of the loop of a run; each device has its share of them."""
    model, mesh = ENSEMBLES[physics["equation"]](Domain(grid)), mesh_of(physics, "ensemble")
    members = PartitionSpec() if mesh is None else PartitionSpec("ensemble")
    params = {name: jnp.float32(value) for name, value in physics["parameters"].items()}
    schedule = Schedule(interval=1e6 * physics["dt"], dt=physics["dt"])
    scheme, steps = INTEGRATORS[physics["integrator"]], physics["steps"]

    def member(fields):
        return model.state_from({name: (u,) for name, u in fields.items()}, params), Clock.zero(jnp.dtype("float32"))

    def of_member(carry):
        return advance(model, scheme, params, *carry, schedule, steps=steps, until=1)

    def run(carry):
        return jax.vmap(of_member)(carry)

    def result(carry):
        fields = jax.vmap(lambda state: model.observe(0.0, state, params))(jax.device_get(carry[0]))
        return {name: np.asarray(fields[name]) for name in start}

    carry = jax.jit(jax.vmap(member))({name: jnp.asarray(u, jnp.float32) for name, u in start.items()})
    if mesh is not None:
        carry = jax.device_put(carry, NamedSharding(mesh, members))
    program = distribute(run, mesh, in_specs=members, out_specs=members, donate=(0,))
    program, seconds = compiled(program, carry)
    return looping(program, carry, result, seconds)


def build(physics, start) -> Program:
    cells = next(iter(start.values())).shape
    axes = physics["axes"]
    grid = Grid(cells[-axes:], upper=(physics["length"],) * axes)
    return (vorticity if physics["equation"] == "vorticity" else ensemble)(physics, start, grid)


if __name__ == "__main__":
    serve(build)
