"""The Lennard-Jones liquid by JAX-MD, in an interpreter that has it; `particles.py` starts it.

Reads `initial.npz` (positions, velocities and the box) in the folder given, compiles, prints one line of JSON, and then
times `--steps` more steps for every line that arrives on its input.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax_md import energy, quantity, simulate, space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--skin", type=float, default=0.5)
    arguments = parser.parse_args()
    given = np.load(arguments.folder / "initial.npz")
    box, cutoff, dt = float(given["box"]), float(given["cutoff"]), float(given["dt"])
    position = jnp.asarray(given["position"], jnp.float32)
    displacement, shift = space.periodic(box)
    neighbours, energy_of = energy.lennard_jones_neighbor_list(
        displacement, box, r_cutoff=cutoff, r_onset=cutoff - 1e-3, dr_threshold=arguments.skin,
        format=energy.partition.NeighborListFormat.Dense,
    )  # fmt: skip
    listed = neighbours.allocate(position, extra_capacity=8)
    init, apply = simulate.nve(energy_of, shift, dt)
    state = init(jax.random.key(0), position, kT=1.0, neighbor=listed)
    state = state.set(momentum=jnp.asarray(given["velocity"], jnp.float32))

    def step(_, carry):
        state, listed = carry
        listed = listed.update(state.position)
        return apply(state, neighbor=listed), listed

    advance = jax.jit(lambda carry: jax.lax.fori_loop(0, arguments.steps, step, carry))
    report = {"potential_energy": float(energy_of(position, neighbor=listed)) / len(position)}
    state, listed = jax.block_until_ready(advance((state, listed)))
    report["overflow"] = bool(listed.did_buffer_overflow)
    report["temperature"] = float(quantity.temperature(momentum=state.momentum))
    print(json.dumps(report), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        state, listed = jax.block_until_ready(advance((state, listed)))
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
