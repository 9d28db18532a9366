"""The Lennard-Jones liquid by JAX-MD: its neighbour list, Dense."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax_md import energy, quantity, simulate, space

from benchmarks.contest import Program, compiled, looping, serve

SKIN = 0.5


def build(physics, start) -> Program:
    cutoff, box = physics["cutoff"], physics["box"]
    position = jnp.asarray(start["position"], jnp.float32)
    displacement, shift = space.periodic(box)
    neighbours, energy_of = energy.lennard_jones_neighbor_list(
        displacement,
        box,
        r_cutoff=cutoff,
        r_onset=cutoff - 1e-3,
        dr_threshold=SKIN,
        format=energy.partition.NeighborListFormat.Dense,
    )
    listed = neighbours.allocate(position, extra_capacity=8)
    init, apply = simulate.nve(energy_of, shift, physics["dt"])
    state = init(jax.random.key(0), position, kT=1.0, neighbor=listed)
    state = state.set(momentum=jnp.asarray(start["velocity"], jnp.float32))
    at_start = float(energy_of(position, neighbor=listed)) / len(position)

    def step(_, carry):
        state, listed = carry
        listed = listed.update(state.position)
        return apply(state, neighbor=listed), listed

    def result(carry):
        state, listed = carry
        if bool(listed.did_buffer_overflow):
            raise SystemExit("JAX-MD's list of neighbours overflowed")
        temperature = float(quantity.temperature(momentum=state.momentum))
        return {"potential_energy_at_start": at_start, "temperature": temperature}

    program, seconds = compiled(
        jax.jit(lambda carry: jax.lax.fori_loop(0, physics["steps"], step, carry)), (state, listed)
    )
    return looping(program, (state, listed), result, seconds)


if __name__ == "__main__":
    serve(build)
