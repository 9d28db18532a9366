"""Small problems of the semilinear equations: one real field that cannot be cut, two that react, a complex one."""

import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.grid import CENTER, Grid
from simjax.models.spectral.nonlinear_waves import KortewegDeVries
from simjax.models.spectral.patterns import GrayScott
from simjax.models.spectral.schroedinger import Params, Schroedinger
from simjax.stepping.simulate import Schedule

_line = Grid((24,), (0.0,), (2.0,))
_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))


def _smooth(model, params):
    grid = model.domain.grid
    names = model.component_layouts()
    fields = {name: (smooth_field(grid, (CENTER,) * grid.ndim, seed),) for seed, name in enumerate(names)}
    return model.state_from(fields, params)


def _supply(t, x, params):
    return jnp.sin(x[0] + t) * params["feed"]


def _weighed(model, t, state, params):
    """The fields on the grid: a spectrum's own layout has no place for weights."""
    return model.observe(t, state, params)


def _numbers(**values):
    return lambda: {name: jnp.asarray(value) for name, value in values.items()}


def _trapped():
    return Params(jnp.asarray(-0.7), 1.5 + smooth_field(_plane, (CENTER,) * 2, 5))


CASES = (
    # 0.02 / 0.015 is no integer: coefficients are formed anew for the shortened step.
    Case(
        "semilinear-kdv-1d",
        _line,
        lambda domain: KortewegDeVries(domain, [PERIODIC]),
        _numbers(nonlinearity=1.5, dispersion=0.02),
        _smooth,
        "etdrk4",
        Schedule(0.02, dt=0.015),
        cuts=False,
        weighed=_weighed,
    ),
    Case(
        "semilinear-gray-scott-2d",
        _plane,
        lambda domain: GrayScott(domain, [PERIODIC] * 2, {"u": _supply}),
        _numbers(diffusivity_u=0.05, diffusivity_v=0.02, feed=0.4, kill=0.3),
        _smooth,
        "etdrk3",
        Schedule(0.05, dt=0.05),
        checkpoint="two_level",
        weighed=_weighed,
    ),
    Case(
        "semilinear-schroedinger-2d",
        _plane,
        lambda domain: Schroedinger(domain, [PERIODIC] * 2),
        _trapped,
        _smooth,
        "etdrk2",
        Schedule(0.05, dt=0.05),
        checkpoint="none",
        weighed=_weighed,
        partitioned=(),
    ),
)
