"""PhiFlow's flow on a staggered grid in a periodic box of side 2 pi: convection by central differences, then viscosity.

Its pressure is solved for by conjugate gradients to 1e-5, which take half the time of what it chooses by itself.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from phi.jax.flow import PERIODIC, Box, StaggeredGrid, advect, diffuse, dual, fluid, math, spatial

from benchmarks.contest import Program, compiled_loop, looping, serve


def build(physics, start) -> Program:
    shape = next(iter(start.values())).shape
    names = "xyz"[: len(shape)]
    box, dt = Box(**dict.fromkeys(names, 2 * np.pi)), physics["dt"]
    y = (jnp.arange(shape[1]) + 0.5) * (2 * jnp.pi / shape[1])
    force = jnp.broadcast_to(physics["force"] * jnp.sin(physics["wavenumber"] * y), shape).astype(jnp.float32)

    def velocity_of(fields):
        values = math.stack(
            {name: math.tensor(u, spatial(*names)) for name, u in zip(names, fields, strict=True)}, dual("vector")
        )
        return StaggeredGrid(values, PERIODIC, bounds=box, **dict(zip(names, shape, strict=True)))

    def step(fields):
        velocity = velocity_of(fields)
        pushed = velocity + dt * advect.differential(velocity, velocity)
        pushed = pushed + dt * velocity_of([force, *(jnp.zeros_like(force) for _ in names[1:])])
        pushed = diffuse.explicit(pushed, physics["viscosity"], dt)
        found, _ = fluid.make_incompressible(pushed, solve=math.Solve("CG", 1e-5, 1e-5))
        return tuple(found.values.vector.dual[name].native([*names]) for name in names)

    fields = tuple(jnp.asarray(u, jnp.float32) for u in start.values())
    program, seconds = compiled_loop(step, fields, physics["steps"])
    return looping(program, fields, lambda fields: dict(zip(start, map(np.asarray, fields), strict=True)), seconds)


if __name__ == "__main__":
    serve(build)
