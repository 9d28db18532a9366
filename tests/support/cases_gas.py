"""Small gases for the tests that run every model in every layout.

States vary by a fifth or so about a uniform one: no shock, as rounding decides nothing in the limiters then. Grids are
such that the smallest block still has the ghost cells of its scheme, and the largest an interior without them.
"""

import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.core.boundary import NoSlipWall, Outflow, SlipWall
from simjax.core.mappings import lines
from simjax.grid import CENTER, Grid
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.boundaries import (
    CharacteristicInflow,
    CharacteristicOutflow,
    GasInflow,
    GasOutflow,
    GasWall,
)
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.stepping.simulate import Schedule


def _ideal():
    return Params(jnp.asarray(1.4))


def _heavy():
    return Params(jnp.asarray(1.4), gravity=jnp.asarray([-0.5]))


def _real():
    return Params(jnp.asarray(1.4), jnp.asarray(0.02), jnp.asarray(0.03), jnp.asarray([0.0, -0.5]))


def _viscous():
    return Params(jnp.asarray(1.4), jnp.asarray(0.02), jnp.asarray(0.03))


def _sticky():
    return Params(jnp.asarray(1.4), jnp.asarray(0.02), jnp.asarray(0.03), jnp.asarray([-0.5]))


def _initial(model, params):
    grid = model.domain.grid

    def waves(seed):
        return smooth_field(grid, (CENTER,) * grid.ndim, seed)

    fields = {
        "density": (1 + 0.1 * waves(0),),
        "velocity": tuple(0.2 * waves(k + 1) for k in range(grid.ndim)),
        "pressure": (1 + 0.1 * waves(4),),
        "scalars": tuple(0.5 + 0.2 * waves(5 + k) for k in range(model.scalars)),
    }
    return model.state_from(fields, params)


def _gas(sides, scheme, **options):
    return lambda domain: Compressible(domain, sides, scheme, **options)


def _around(solid, temperature=None):
    return _gas(
        [PERIODIC, (_slip, GasOutflow(0.9))],
        GasScheme("van_leer", "primitive", "hllc"),
        scalars=1,
        solid=solid,
        solid_temperature=temperature,
    )


def _disc(t, x, y):
    """The distance from a body that lies on the corner of blocks, and on the periodic side."""
    return jnp.minimum(jnp.hypot(x - 3.3, y - 1.1), jnp.hypot(x + 3.0, y - 1.1)) - 0.9


def _moved_disc(t, x, y):
    return _disc(t, x - 0.6 * t, y + 0.3 * t)


_moving = Solid(_moved_disc, (lambda t, x, y: 0.6 + 0 * x, lambda t, x, y: -0.3 + 0 * y), True)


def _lid(t, *x):
    return 0.3 * (1 + 0.5 * jnp.sin(3 * t)) * jnp.cos(0.4 * x[0])


def _warm(t, *x):
    return 1.3 + 0.2 * jnp.cos(x[0] + t)


_line = Grid((32,), (0.0,), (2.0,))
_stretched = Grid((32,), stretch=(lines("formula", "s - 0.5*s*s*(1 - s)", 32, 0.0, 2.0),))
_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_wide = Grid((64, 32), (0.0, -1.0), (2 * np.pi, 3.0))
# Ghost cells of bodies that move reach ten cells, and so many a block of four along y has to have.
_tall = Grid((64, 48), (0.0, -1.0), (2 * np.pi, 3.0))
_fine = Grid((32, 32), (0.0, -1.0), (2 * np.pi, 6.5))
_rings = Grid((16, 24), (0.0, -1.0), (1.5, 3.0), axisymmetric=True)
_box = Grid((12, 10, 10), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))
_inflow = GasInflow(1.1, _warm, (0.4, 0.1), (0.7,))
_slip = SlipWall()

CASES = (
    Case(
        "gas-1d-weno",
        _line,
        _gas([(_slip, Outflow())], GasScheme("weno5", "characteristic", "hllc_all_speed"), count_limited=True),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, dt=0.008),
        checkpoint="two_level",
        frames=1,
    ),
    Case(
        "gas-1d-atmosphere",
        _line,
        _gas([(_slip, _slip)], GasScheme("mc", "primitive", "rusanov"), gravity_axes=(0,), count_limited=True),
        _heavy,
        _initial,
        "williamson3",
        Schedule(0.04, courant=0.4, max_steps=4),
        frames=1,
    ),
    Case(
        "gas-1d-stretched",
        _stretched,
        _gas([(_slip, GasWall(temperature=1.2))], GasScheme("weno5", "primitive", "rusanov"), gravity_axes=(0,)),
        _sticky,
        _initial,
        "euler",
        Schedule(0.012, courant=0.4, max_steps=3),
        frames=1,
    ),
    Case(
        "gas-2d-walls",
        _plane,
        _gas(
            [(_inflow, GasOutflow(0.9)), (GasWall(temperature=_warm), NoSlipWall((_lid, 0.0)))],
            GasScheme("van_leer", "primitive", "hllc_all_speed"),
            gravity_axes=(1,),
            scalars=1,
            gas_constant=0.8,
        ),
        _real,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
    Case(
        "gas-2d-characteristic",
        _plane,
        _gas(
            [
                (
                    CharacteristicInflow(1.1, _warm, (0.4, 0.1), (0.7,)),
                    CharacteristicOutflow(_warm, velocity=(0.4, 0.1)),
                ),
                (_slip, CharacteristicOutflow(0.9, 0.5, 3.0)),
            ],
            GasScheme("mc", "characteristic", "hllc"),
            scalars=1,
        ),
        _viscous,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
    Case(
        "gas-2d-solid",
        _wide,
        _around(Solid(_disc)),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
    Case(
        "gas-2d-warm-solid",
        _wide,
        _around(Solid(_disc), 1.2),
        _viscous,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
    Case(
        "gas-2d-moving-solid",
        _tall,
        _around(_moving),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
    Case(
        "gas-2d-igr",
        _fine,
        _gas([(_inflow, GasOutflow(0.9)), (_slip, _slip)], GasScheme("igr", "primitive", "rusanov"), scalars=1),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, courant=0.4, max_steps=2),
        frames=1,
    ),
    Case(
        "gas-2d-axisymmetric",
        _rings,
        _gas([(_slip, GasOutflow(0.9)), PERIODIC], GasScheme("minmod", "primitive", "rusanov")),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, courant=0.4, max_steps=2),
        frames=1,
    ),
    Case(
        "gas-3d-periodic",
        _box,
        _gas([PERIODIC] * 3, GasScheme("minmod", "primitive", "hll")),
        _ideal,
        _initial,
        "euler",
        Schedule(0.02, dt=0.01),
        frames=1,
    ),
)
