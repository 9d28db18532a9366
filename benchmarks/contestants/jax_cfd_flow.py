"""jax-cfd's finite-volume flow in a periodic box of side 2 pi, with its default pressure solve (real FFT).

`convection` is linear, which is simjax's scheme, or van_leer, which jax-cfd takes by itself.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax_cfd.base as cfd
import numpy as np
from jax_cfd.base import advection, time_stepping

from benchmarks.contest import Program, compiled_loop, looping, serve

STEPPERS = {
    "euler": time_stepping.forward_euler,
    "midpoint": time_stepping.midpoint_rk2,
    "rk4": time_stepping.classic_rk4,
}


def step_of(physics, grid, viscosity):
    """jax-cfd's step function."""
    dt = physics["dt"]

    def linear(v):
        return tuple(advection.advect_linear(u, v, dt) for u in v)

    convect, forcing = (linear if physics["convection"] == "linear" else None), None
    if physics.get("force"):
        forcing = cfd.forcings.kolmogorov_forcing(grid, scale=physics["force"], k=physics["wavenumber"])
    return cfd.equations.semi_implicit_navier_stokes(
        density=1.0,
        viscosity=viscosity,
        dt=dt,
        grid=grid,
        convect=convect,
        forcing=forcing,
        time_stepper=STEPPERS[physics["integrator"]],
    )


def velocity_of(fields, grid):
    """Fields on lower faces as jax-cfd's, which stores a cell's upper face where simjax stores the lower one."""
    periodic = cfd.boundaries.periodic_boundary_conditions(grid.ndim)
    return tuple(
        cfd.grids.GridVariable(cfd.grids.GridArray(jnp.roll(u, -1, axis), offset, grid), periodic)
        for axis, (u, offset) in enumerate(zip(fields, grid.cell_faces, strict=True))
    )


def build(physics, start) -> Program:
    fields = [jnp.asarray(u, jnp.float32) for u in start.values()]
    grid = cfd.grids.Grid(fields[0].shape, domain=((0, 2 * np.pi),) * len(fields))
    step = step_of(physics, grid, physics["viscosity"])
    velocity = jax.tree.map(jnp.array, velocity_of(fields, grid))

    def result(velocity):
        return {name: np.roll(u.data, 1, axis) for axis, (name, u) in enumerate(zip(start, velocity, strict=True))}

    program, seconds = compiled_loop(step, velocity, physics["steps"])
    return looping(program, velocity, result, seconds)


if __name__ == "__main__":
    serve(build)
