"""Small problems of the spectral family: flows, and the semilinear equations."""

import cases_semilinear
import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.grid import CENTER, Grid
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.random_forcing import Band
from simjax.models.flow.fourier.spectral_velocity import SpectralVelocity
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.stepping.checkpointing.plan import Binomial
from simjax.stepping.simulate import Schedule

_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_box = Grid((8, 12, 16), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))


def stirring(t, x, params):
    """A shear force, as in Kolmogorov flow, that depends on time and on the viscosity."""
    return jnp.sin(2 * np.pi / 4 * (x[1] + 1)) * jnp.cos(t) * (1 + params.viscosity)


def _velocity(model, params):
    grid = model.domain.grid
    fields = tuple(smooth_field(grid, (CENTER,) * grid.ndim, seed) for seed in range(grid.ndim))
    return model.state_from({"velocity": fields}, params)


def _params():
    return Params(jnp.asarray(0.05), jnp.asarray(0.1), jnp.asarray(1e-3), jnp.asarray(0.4))


def observed(model, t, state, params):
    """The fields on the grid: a spectrum's own layout has no place for weights."""
    return model.observe(t, state, params)


CASES = (
    Case(
        "spectral-vorticity-2d",
        _plane,
        lambda domain: Vorticity(domain, [PERIODIC] * 2, (stirring, None), band=Band(1.5, 3.2)),
        _params,
        _velocity,
        "etdrk2",
        Schedule(0.05, dt=0.025),
        checkpoint=Binomial(2),
        weighed=observed,
    ),
    Case(
        "spectral-vorticity-2d-courant",
        _plane,
        lambda domain: Vorticity(domain, [PERIODIC] * 2, (stirring, None)),
        lambda: Params(jnp.asarray(0.05), jnp.asarray(0.1)),
        _velocity,
        "imex_euler",
        Schedule(0.1, courant=0.4, max_steps=4),
        weighed=observed,
    ),
    Case(
        "spectral-velocity-3d",
        _box,
        lambda domain: SpectralVelocity(domain, [PERIODIC] * 3, (stirring, None, None), band=Band(1.0, 2.2)),
        _params,
        _velocity,
        "etdrk1",
        Schedule(0.05, dt=0.05),
        checkpoint="none",
        weighed=observed,
    ),
    *cases_semilinear.CASES,
)
