"""simjax's advection-diffusion (forward Euler) and acoustic waves in a uniform medium (leapfrog), second order."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import advected_scalar, unit_box
from benchmarks.contest import Program, serve
from benchmarks.contestants.simjax_loop import in_a_run
from benchmarks.waves import LEAPFROG, wave
from simjax.driver.start.environment import keep_loops_threaded
from simjax.integrators.runge_kutta import INTEGRATORS


def build(physics, start) -> Program:
    # As a run does it.
    keep_loops_threaded()
    domain = unit_box(start["field"].shape)
    field = jnp.asarray(start["field"], jnp.float32)
    if physics["equation"] == "diffusion":
        case, scheme = advected_scalar(domain), INTEGRATORS["euler"]
        state = eqx.tree_at(lambda s: s.concentration, case.state, field)
    else:
        case, scheme = wave("acoustic", domain, 2, "periodic", "uniform"), LEAPFROG
        state = eqx.tree_at(lambda s: s.pressure, case.state, field)

    def result(state):
        return {"field": np.asarray(jax.tree.leaves(state)[0]), "start": np.asarray(start["field"], np.float32)}

    return in_a_run(replace(case, state=state, dt=physics["dt"]), scheme, physics["steps"], result)


if __name__ == "__main__":
    serve(build)
