"""The vorticity equation by another package, in an interpreter that has it; `spectral.py` starts it.

exponax 0.2.0 (ETDRK of any order) or jax-cfd 0.2.1 (Crank-Nicolson with a Runge-Kutta method of order four). Reads
`initial.npz` and `physics.json` in the folder given, compiles, writes the vorticity after the first chunk to
`final.npz`, prints one line of JSON, and then times one more chunk for every line that arrives on its input.
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


def exponax_step(n: int, physics, order: int):
    """Step on the vorticity's spectrum, to the spectrum and from it."""
    import exponax

    # Its velocity is the negative of the one whose curl is the vorticity.
    stepper = exponax.stepper.NavierStokesVorticity(
        2, 2 * np.pi, n, physics["dt"], diffusivity=physics["viscosity"], vorticity_convection_scale=-1.0, order=order
    )
    to = exponax.fft(jnp.zeros((1, n, n), jnp.float32), num_spatial_dims=2).dtype
    return (
        stepper.step_fourier,
        lambda w: jnp.fft.rfft2(w[None]).astype(to),
        lambda s: jnp.fft.irfft2(s[0], (n, n)),
    )


def jax_cfd_step(n: int, physics, order: int):
    """The same of jax-cfd; its default filter beyond two thirds of the wavenumbers is on."""
    import jax_cfd.base.grids as grids
    from jax_cfd.spectral import equations, time_stepping

    grid = grids.Grid((n, n), domain=((0, 2 * np.pi),) * 2)
    equation = equations.NavierStokes2D(physics["viscosity"], grid, smooth=True)
    step = time_stepping.crank_nicolson_rk4(equation, physics["dt"])
    return step, jnp.fft.rfft2, lambda s: jnp.fft.irfft2(s, (n, n))


STEPS = {"exponax": exponax_step, "jax_cfd": jax_cfd_step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--package", choices=STEPS, required=True)
    parser.add_argument("--order", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    start = np.load(options.folder / "initial.npz")["vorticity"]
    physics = json.loads((options.folder / "physics.json").read_text())
    step, to_spectrum, to_grid = STEPS[options.package](start.shape[0], physics, options.order)

    def chunk(spectrum):
        return jax.lax.scan(lambda s, _: (step(s), None), spectrum, None, length=options.steps)[0]

    spectrum = jax.block_until_ready(to_spectrum(jnp.asarray(start)))
    begin = time.perf_counter()
    program = jax.jit(chunk, donate_argnums=0).lower(spectrum).compile()
    compile_seconds = time.perf_counter() - begin
    spectrum = jax.block_until_ready(program(spectrum))
    np.savez(options.folder / "final.npz", vorticity=np.asarray(to_grid(spectrum)))
    print(json.dumps({"jax": jax.__version__, "compile_s": compile_seconds}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        spectrum = jax.block_until_ready(program(spectrum))
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
