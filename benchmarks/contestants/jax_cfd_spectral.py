"""jax-cfd's vorticity equation in a Fourier basis.

Crank-Nicolson with a Runge-Kutta method of order four, its own choice; its default filter beyond two thirds of the
wavenumbers is on.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax_cfd.base import grids
from jax_cfd.spectral import equations, time_stepping

from benchmarks.contest import Program, compiled_loop, looping, serve


def step_of(physics, shape, viscosity):
    """jax-cfd's step of a spectrum."""
    grid = grids.Grid(shape, domain=((0, 2 * np.pi),) * 2)
    return time_stepping.crank_nicolson_rk4(equations.NavierStokes2D(viscosity, grid, smooth=True), physics["dt"])


def build(physics, start) -> Program:
    vorticity = jnp.asarray(start["vorticity"], jnp.float32)
    step = step_of(physics, vorticity.shape, physics["viscosity"])
    spectrum = jax.block_until_ready(jnp.fft.rfft2(vorticity))

    def result(spectrum):
        return {"vorticity": np.asarray(jnp.fft.irfft2(spectrum, vorticity.shape))}

    program, seconds = compiled_loop(step, spectrum, physics["steps"])
    return looping(program, spectrum, result, seconds)


if __name__ == "__main__":
    serve(build)
