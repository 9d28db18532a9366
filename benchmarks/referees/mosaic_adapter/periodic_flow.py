"""Flows in a periodic square or cube, with which simjax answers Mosaic."""

from __future__ import annotations

import jax.numpy as jnp

from simjax.core.domain import Domain
from simjax.grid import AXES, Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.spectral_velocity import SpectralVelocity
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.stepping.simulate import Schedule, simulate


def final_velocity(velocity, viscosity, dt, *, steps: int, extent: float):
    """The velocity after `steps` of `dt`, in a box of side `extent`.

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
