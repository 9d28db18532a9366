"""Flows in a periodic square or cube, with which simjax answers Mosaic, and gradients of their end."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.grid import AXES, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier_flow import Params
from simjax.models.flow.spectral_velocity import SpectralVelocity
from simjax.models.flow.vorticity import Vorticity
from simjax.stepping.simulate import Schedule, simulate


@functools.partial(jax.jit, static_argnames=("steps", "extent"))
def final_velocity(velocity, viscosity, dt, *, steps: int, extent: float):
    """The velocity after `steps` of `dt`, in a box of side `extent`, differentiable in all three arrays.

    `velocity` has the shape (n, n, 1, 2) or (n, n, n, 3), viscosity and dt have (1,).
    """
    axes = velocity.shape[-1]
    shape = velocity.shape[:axes]
    model = (Vorticity if axes == 2 else SpectralVelocity)(Domain(Grid(shape, upper=(extent,) * axes)))
    params = Params(viscosity[0], jnp.zeros_like(viscosity[0]))
    components = tuple(velocity[..., k].reshape(shape) for k in range(axes))
    start = model.state_from({"velocity": components}, params)
    schedule = Schedule(steps=steps, dt=dt[0])
    end = simulate(model, INTEGRATORS["etdrk4"], params, start, schedule, frames=1).state
    seen = model.observe(0.0, end, params)
    return jnp.stack([seen[f"velocity_{axis}"] for axis in AXES[:axes]], axis=-1).reshape(velocity.shape)


@functools.partial(jax.jit, static_argnames=("wanted", "steps", "extent"))
def pulled_back(arrays, cotangent, *, wanted: tuple[str, ...], steps: int, extent: float):
    """Gradients with respect to the `wanted` of `arrays` (v0, viscosity, dt), for the cotangent of the velocity."""

    def run(some):
        given = {**arrays, **some}
        return final_velocity(given["v0"], given["viscosity"], given["dt"], steps=steps, extent=extent)

    _, pull = jax.vjp(run, {name: arrays[name] for name in wanted})
    return pull(cotangent)[0]


def refusal(inputs) -> str | None:
    """A sentence where a problem of Mosaic is none of a periodic box."""
    if inputs.obstacle is not None or not inputs.boundary_conditions.is_fully_periodic:
        return "This adapter has periodic boxes without obstacles: leave boundary_conditions and obstacle out."
    if not math.isfinite(inputs.domain_extent) or inputs.domain_extent <= 0:
        return f"domain_extent={inputs.domain_extent}: expected a length above zero."
    return None
