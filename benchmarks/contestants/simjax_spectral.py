"""simjax's equations in a Fourier basis: a flow as vorticity, and ensembles of flames and of spots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from benchmarks.cases import Case
from benchmarks.contest import Program, compiled, looping, serve
from benchmarks.contestants.simjax_loop import in_a_run
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier_flow import Params
from simjax.models.flow.vorticity import Vorticity
from simjax.models.spectral.nonlinear_waves import KuramotoSivashinsky
from simjax.models.spectral.patterns import GrayScott
from simjax.parallel import distribute
from simjax.stepping.simulate import Clock, Schedule, advance

ENSEMBLES = {"kuramoto_sivashinsky": KuramotoSivashinsky, "gray_scott": GrayScott}


def vorticity(physics, start, domain: Domain) -> Program:
    model, params = Vorticity(domain), Params(jnp.float32(physics["viscosity"]), jnp.float32(0.0))
    state = model.state_from({"vorticity": (jnp.asarray(start["vorticity"], jnp.float32),)}, params)

    def result(state):
        return {"vorticity": np.asarray(model.observe(0.0, state, params)["vorticity"])}

    scheme = INTEGRATORS[physics["integrator"]]
    return in_a_run(Case(model, params, state, physics["dt"]), scheme, physics["steps"], result)


def ensemble(physics, start, domain: Domain) -> Program:
    """All members at once, by `jax.vmap` of the loop of a run."""
    model = ENSEMBLES[physics["equation"]](domain)
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
        fields = jax.vmap(lambda state: model.observe(0.0, state, params))(carry[0])
        return {name: np.asarray(fields[name]) for name in start}

    carry = jax.jit(jax.vmap(member))({name: jnp.asarray(u, jnp.float32) for name, u in start.items()})
    program = distribute(run, None, in_specs=PartitionSpec(), out_specs=PartitionSpec(), donate=(0,))
    program, seconds = compiled(program, carry)
    return looping(program, carry, result, seconds)


def build(physics, start) -> Program:
    cells = next(iter(start.values())).shape
    axes = physics["axes"]
    domain = Domain(Grid(cells[-axes:], upper=(physics["length"],) * axes))
    return (vorticity if physics["equation"] == "vorticity" else ensemble)(physics, start, domain)


if __name__ == "__main__":
    serve(build)
