"""simjax's finite-volume flow in a periodic box of side 2 pi, in the loop of a run."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from benchmarks.cases import flow, kolmogorov_box
from benchmarks.contest import Program, serve
from benchmarks.contestants.simjax_loop import in_a_run, mesh_of
from simjax.integrators.runge_kutta import INTEGRATORS


def build(physics, start) -> Program:
    velocity = tuple(jnp.asarray(u, jnp.float32) for u in start.values())
    mesh = mesh_of(physics)
    case = flow(
        kolmogorov_box(velocity[0].shape, mesh),
        velocity,
        physics["viscosity"],
        physics["dt"],
        force=physics["force"],
        wavenumber=physics["wavenumber"],
    )

    def result(state):
        return {name: np.asarray(u) for name, u in zip(start, state.velocity, strict=True)}

    return in_a_run(case, INTEGRATORS[physics["integrator"]], physics["steps"], result, mesh)


if __name__ == "__main__":
    serve(build)
