"""Exponax's equations in a Fourier basis: a flow as vorticity, and ensembles of flames and of spots, by `jax.vmap`."""

from __future__ import annotations

import exponax
import jax
import jax.numpy as jnp
import numpy as np
from exponax import stepper

from benchmarks.contest import Program, compiled_loop, looping, serve


def stepper_of(physics, cells: int):
    """Exponax's stepper of an equation, at its default dealiasing."""
    place = {"num_points": cells, "dt": physics["dt"], "order": int(physics["integrator"].removeprefix("etdrk"))}
    length = physics["length"]
    if physics["equation"] == "vorticity":
        # Its velocity is the negative of the one whose curl is the vorticity.
        return stepper.NavierStokesVorticity(
            2, length, diffusivity=physics["viscosity"], vorticity_convection_scale=-1.0, **place
        )
    own = physics["parameters"]
    if physics["equation"] == "kuramoto_sivashinsky":
        return stepper.KuramotoSivashinskyConservative(
            1,
            length,
            single_channel=True,
            second_order_scale=own["instability"],
            fourth_order_scale=own["damping"],
            **place,
        )
    return stepper.reaction.GrayScott(
        2,
        length,
        diffusivity_1=own["diffusivity_u"],
        diffusivity_2=own["diffusivity_v"],
        feed_rate=own["feed"],
        kill_rate=own["kill"],
        **place,
    )


def build(physics, start) -> Program:
    axes = physics["axes"]
    fields = jnp.stack([jnp.asarray(u, jnp.float32) for u in start.values()], axis=-axes - 1)
    cells = fields.shape[-1]
    step = stepper_of(physics, cells).step_fourier

    def to_spectrum(u):
        return exponax.fft(u, num_spatial_dims=axes)

    def to_grid(spectrum):
        return exponax.ifft(spectrum, num_spatial_dims=axes, num_points=cells)

    if physics["equation"] != "vorticity":
        step, to_spectrum, to_grid = map(jax.vmap, (step, to_spectrum, to_grid))
    spectrum = jax.block_until_ready(jax.jit(to_spectrum)(fields))

    def result(spectrum):
        found = np.asarray(jax.jit(to_grid)(spectrum))
        return {name: np.take(found, place, axis=-axes - 1) for place, name in enumerate(start)}

    program, seconds = compiled_loop(step, spectrum, physics["steps"])
    return looping(program, spectrum, result, seconds)


if __name__ == "__main__":
    serve(build)
