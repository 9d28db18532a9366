"""Gases that are hard at one end of the Mach numbers: strong shocks along the grid with noise across, slow vortices."""

import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.boundary import Outflow, PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.models.gas.boundaries import GasInflow, GasOutflow
from simjax.models.gas.compressible import Compressible, Params

IDEAL = Params(jnp.asarray(1.4))
PERIODIC = PeriodicSide(), PeriodicSide()
TURN = 0.4 * np.pi
"""Time in which the fastest ring of Gresho's vortex turns once."""


def jump(mach: float) -> tuple[float, float]:
    """Ratios of density and pressure across a shock; Rankine and Hugoniot."""
    return 2.4 * mach**2 / (0.4 * mach**2 + 2), 1 + 2.8 / 2.4 * (mach**2 - 1)


def _state(model, density, velocity, pressure):
    def field(value):
        return jnp.broadcast_to(jnp.asarray(value, float), model.domain.grid.shape)

    fields = {"density": (field(density),), "velocity": tuple(map(field, velocity)), "pressure": (field(pressure),)}
    return model.state_from(fields, IDEAL)


def _centers(model):
    return model.domain.coordinates((0.5,) * model.domain.grid.ndim)


def _crossed(scheme, shape, stream, beyond):
    """A duct of cells of width one, periodic across."""
    return Compressible(Domain(Grid(shape, upper=tuple(map(float, shape)))), [(stream, beyond), PERIODIC], scheme)


def shock_in_a_duct(scheme, shape=(330, 16), mach=6.0, noise=1e-6, odd_even=False):
    """A shock that runs into a gas at rest whose sound travels a cell in unit time, and noise before it.

    Random noise of the density in 25 cells before the shock; `odd_even`: that of Quirk (1994), Int. J. Numer. Meth.
    Fluids 18, 555, of the middle row all along the duct, here of the density as the grid has straight lines.
    """
    density, pressure = jump(mach)
    speed = mach * (1 - 1 / density)
    model = _crossed(
        scheme, shape, GasInflow(density=1.4 * density, pressure=pressure, velocity=(speed, 0.0)), Outflow()
    )
    x, y = _centers(model)
    behind = x < 10
    if odd_even:
        rough = jnp.where(jnp.floor(y) == shape[1] // 2, (-1.0) ** jnp.floor(x), 0)
    else:
        rough = jnp.where((x > 6) & (x < 30), np.random.default_rng(0).uniform(-1, 1, shape), 0)
    rest = jnp.where(behind, 1.4 * density, 1.4) * (1 + noise * rough)
    return model, _state(model, rest, (jnp.where(behind, speed, 0), 0), jnp.where(behind, pressure, 1))


def shock_at_rest(scheme, mach=7.0, between=0.5, cells=25, noise=1e-6):
    """A shock that stands within one cell, where density and pressure are `between` those on its sides, and noise of
    the velocity across. Dumbser, Moschetta and Gressier (2004), J. Comput. Phys. 197, 647."""
    density, pressure = jump(mach)
    stream = GasInflow(density=1.4, pressure=1.0, velocity=(mach, 0.0))
    model = _crossed(scheme, (cells, cells), stream, GasOutflow(pressure=pressure))
    x, _ = _centers(model)
    part = jnp.clip(jnp.floor(x) - cells // 2, -1, 1)
    part = jnp.where(part < 0, 0, jnp.where(part > 0, 1, between))
    across = noise * np.random.default_rng(0).uniform(-1, 1, (cells, cells))
    rho = 1.4 * (1 + part * (density - 1))
    return model, _state(model, rho, (1.4 * mach / rho, across), 1 + part * (pressure - 1))


def gresho(scheme, mach, cells=40):
    """Gresho's vortex, at rest by its pressure: |u| = 5 r to r = 0.2 and 2 - 5 r to 0.4, `mach` at the fastest."""
    model = Compressible(Domain(Grid((cells, cells))), [PERIODIC] * 2, scheme)
    x, y = (centers - 0.5 for centers in _centers(model))
    r = jnp.sqrt(x * x + y * y)
    swirl = jnp.where(r < 0.2, 5, jnp.where(r < 0.4, 2 / r - 5, 0))
    ring = 12.5 * r**2 + 4 * (1 - 5 * r - np.log(0.2) + jnp.log(r))
    rise = jnp.where(r < 0.2, 12.5 * r**2, jnp.where(r < 0.4, ring, 4 * np.log(2) - 2))
    return model, _state(model, 1.0, (-swirl * y, swirl * x), 1 / (1.4 * mach**2) + rise)


def kinetic_energy(state):
    return 0.5 * jnp.sum(sum(m * m for m in state.momentum) / state.density)


def speed_across(state):
    """The largest |velocity_y|."""
    return jax.device_get(jnp.abs(state.momentum[1] / state.density).max())
