"""The pressure of a box against that of its bath."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.models.molecular.barostat import Box, PressureParams, StochasticCellRescaling
from simjax.models.molecular.langevin import BathParams
from simjax.particles.cells import Cells


@dataclasses.dataclass
class Gas:
    """A system that is known by its kinetic energy alone."""

    cells: Cells

    def kinetic_energy(self, state):
        return 0.5 * jnp.sum(state.velocity**2)


@dataclasses.dataclass
class Moving:
    velocity: jnp.ndarray
    ensemble: Box


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_box_follows_the_pressure_of_momentum_and_forces_in_every_dimension(ndim):
    """P = (2 K + W) / (d V), without noise: the box shrinks below more pressure than this, and grows below less."""
    cells = Cells(Domain(Grid((3,) * ndim, (0.0,) * ndim, (2.0,) * ndim)), 8, (True,) * ndim)
    velocity, scale, virial = jnp.asarray(np.random.default_rng(0).normal(size=(ndim, 5))), 1.1, 1.7
    compressibility, period, dt = 0.3, 0.5, 0.1
    state = Moving(velocity, Box(jnp.asarray(scale), jnp.asarray(virial)))
    inner = (float(jnp.sum(velocity**2)) + virial) / (ndim * (2 * scale) ** ndim)
    cold = BathParams(jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0, jnp.int32))
    for above in (0.2, -0.1):
        numbers = (jnp.asarray(number) for number in (inner + above, compressibility, period))
        params, step = PressureParams(cold, *numbers), jnp.asarray(dt)
        after = StochasticCellRescaling()._rescaled(Gas(cells), jnp.asarray(0, jnp.int32), step, state, params)
        growth = np.exp(-compressibility / period * above * dt / ndim)
        # A few roundings of either.
        assert float(after.ensemble.scale) == pytest.approx(scale * growth, rel=1e-14)
        np.testing.assert_allclose(after.velocity, velocity / growth, rtol=1e-14)
