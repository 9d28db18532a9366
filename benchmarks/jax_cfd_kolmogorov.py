"""jax-cfd's finite-volume step on the flow of `navier_stokes.py`, in an interpreter that has jax-cfd.

Started by `navier_stokes.py --jax-cfd-python`. Reads `initial.npz` in the folder given, compiles, writes the
velocity after the first chunk to `final.npz`, prints one line of JSON, and then times one more chunk for
every line that arrives on its input.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import jax_cfd.base as cfd
import numpy as np
from jax_cfd.base import advection, time_stepping

STEPPERS = {
    "euler": time_stepping.forward_euler,
    "midpoint": time_stepping.midpoint_rk2,
    "rk4": time_stepping.classic_rk4,
}


def build(shape, physics, convection: str, integrator: str):
    """jax-cfd's step function, with its default pressure solve (real FFT).

    `convection` is linear, which is simjax's scheme, or van_leer, which jax-cfd takes by itself.
    """
    grid = cfd.grids.Grid(shape, domain=((0, 2 * np.pi),) * 2)
    dt = physics["dt"]

    def linear(v):
        return tuple(advection.advect_linear(u, v, dt) for u in v)

    step = cfd.equations.semi_implicit_navier_stokes(
        density=1.0, viscosity=physics["viscosity"], dt=dt, grid=grid,
        convect=linear if convection == "linear" else None,
        forcing=cfd.forcings.kolmogorov_forcing(grid, scale=physics["force"], k=physics["wavenumber"]),
        time_stepper=STEPPERS[integrator],
    )  # fmt: skip
    return grid, step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--convection", choices=["linear", "van_leer"], required=True)
    parser.add_argument("--integrator", choices=STEPPERS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    start = np.load(options.folder / "initial.npz")
    physics = json.loads((options.folder / "physics.json").read_text())
    grid, step = build(start["velocity_x"].shape, physics, options.convection, options.integrator)
    periodic = cfd.boundaries.periodic_boundary_conditions(2)
    # jax-cfd stores a cell's upper face where simjax stores the lower one.
    velocity = tuple(
        cfd.grids.GridVariable(cfd.grids.GridArray(np.roll(start[name], -1, axis), offset, grid), periodic)
        for axis, (name, offset) in enumerate(zip(("velocity_x", "velocity_y"), grid.cell_faces, strict=True))
    )
    velocity = jax.tree.map(jax.numpy.asarray, velocity)

    def chunk(v):
        return jax.lax.scan(lambda u, _: (step(u), None), v, None, length=options.steps)[0]

    program = jax.jit(chunk, donate_argnums=0)
    begin = time.perf_counter()
    program = program.lower(velocity).compile()
    compile_seconds = time.perf_counter() - begin
    velocity = jax.block_until_ready(program(velocity))
    final = [np.roll(np.asarray(u.data), 1, axis) for axis, u in enumerate(velocity)]
    np.savez(options.folder / "final.npz", velocity_x=final[0], velocity_y=final[1])
    print(json.dumps({"jax": jax.__version__, "compile_s": compile_seconds}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        velocity = jax.block_until_ready(program(velocity))
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
