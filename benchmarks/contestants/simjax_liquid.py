"""simjax's Lennard-Jones liquid: the box is cut along x, a block for each device (`devices`), as LAMMPS cuts it."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from benchmarks.contest import Program, compiled, serve
from simjax.core.domain import Domain
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.models.molecular.velocity_verlet import VelocityVerlet
from simjax.parallel import decompose, distribute, make_mesh
from simjax.particles.cells import Cells, cells_for
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.status import OK, reasons
from simjax.stepping.simulate import Clock, Schedule, advance

# Pairs are listed anew every seven steps, within which nothing crosses the skin: a run that it did would fail.
SKIN, STEPS_PER_LIST = 0.45, 7
# Of what runs once.
QUICKLY_COMPILED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Particles of a list of neighbours at this density.
ROWS = 116


def build(physics, start) -> Program:
    count, steps, devices = len(start["position"]), physics["steps"], physics["devices"]
    reach = physics["cutoff"] + SKIN
    grid = cells_for((0.0,) * 3, (physics["box"],) * 3, reach, (True,) * 3, (devices, 1, 1))
    mesh = make_mesh({"x": devices})
    # Room for four tenths more than a cell's share; a fuller cell would stop the run.
    capacity = 8 * math.ceil(1.4 * count / grid.cells / 8)
    # Density varies from block to block by less than a tenth.
    policy = NeighborPolicy(physics["cutoff"], SKIN, ROWS, min(count, count * 11 // (10 * devices)))

    def model_on(domain: Domain) -> MolecularDynamics:
        cells = Cells(domain, capacity, (True,) * 3)
        return MolecularDynamics(
            cells, policy, LennardJones(), steps_per_arrangement=STEPS_PER_LIST, dynamics=VelocityVerlet()
        )

    model, whole = model_on(decompose(grid, mesh)), model_on(Domain(grid))
    one = jnp.ones((), jnp.float32)
    params = Params((one, one), jnp.ones((1,), jnp.float32))
    schedule = Schedule(interval=steps * physics["dt"], dt=physics["dt"])
    given = tuple(jnp.asarray(start[name].T, jnp.float32) for name in ("position", "velocity"))

    def begin(position, velocity, of=model):
        return of.state_from(position, velocity, jnp.zeros((count,), jnp.int32), params)

    def forward(state, clock):
        return advance(model, None, params, state, clock, schedule, steps=steps, until=clock.frame + 1)

    everywhere = PartitionSpec()
    of_state, _ = model.partition_specs(jax.eval_shape(functools.partial(begin, of=whole), *given)[0], params)

    def on_devices(function, inputs, outputs, **options):
        return jax.jit(distribute(function, mesh, in_specs=inputs, out_specs=outputs), **options)

    state, lost = on_devices(
        begin, (everywhere, everywhere), (of_state, everywhere), compiler_options=QUICKLY_COMPILED
    )(*given)
    if int(lost):
        raise SystemExit(f"{int(lost)} particles found no room in their cells")
    measure = on_devices(
        lambda state: model.diagnostics(0.0, state, params), (of_state,), everywhere, compiler_options=QUICKLY_COMPILED
    )
    at_start = float(measure(state)["potential_energy"]) / count
    run = on_devices(forward, (of_state, everywhere), (of_state, everywhere), donate_argnums=0)
    carry = [state, Clock.zero(jnp.dtype("float32"))]
    program, seconds = compiled(run, *carry)

    def step() -> None:
        carry[:] = jax.block_until_ready(program(*carry))
        if int(carry[1].status) != OK:
            raise SystemExit(reasons(int(carry[1].status)))

    def result():
        found = measure(carry[0])
        # Three degrees of freedom of each particle, as the other one counts them.
        temperature = 2 * float(found["kinetic_energy"]) / (3 * count)
        return {"potential_energy_at_start": at_start, "temperature": temperature}

    return Program(step, result, seconds, text=program.as_text)


if __name__ == "__main__":
    serve(build)
