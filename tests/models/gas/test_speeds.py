"""One flux for strong shocks along the grid and for flows far below the speed of sound (`hllc_all_speed`)."""

import jax.numpy as jnp
import numpy as np
import pytest
from gas_runs import PERIODIC, gas, run, seen, start
from gas_speeds import TURN, gresho, kinetic_energy, shock_at_rest, shock_in_a_duct, speed_across

from simjax.ops.gas import GasScheme

WENO = GasScheme()
LIMITED = GasScheme("mc", "primitive")
FIRST = GasScheme("first_order", "primitive")
NOISE = 1e-6


@pytest.mark.parametrize("odd_even", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["random", "odd_even"])
def test_noise_of_a_shock_along_the_grid_does_not_grow(odd_even):
    """First order, on a short way: HLLC makes 13 times as much of the random noise, and twice as much of the other."""
    model, state = shock_in_a_duct(FIRST, (120, 8), noise=NOISE, odd_even=odd_even)
    # The noise itself: what a shock of Mach 6 makes of it at once is less.
    assert speed_across(run(model, state, 14.0)) < NOISE


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NOISE, 1e-2])
def test_noise_of_a_shock_in_a_duct_does_not_grow_by_the_default_scheme(noise):
    """Large noise, too, at which the weights are not those of the shock alone."""
    model, state = shock_in_a_duct(WENO, noise=noise)
    sizes = []
    for _ in range(4):
        state = run(model, state, 10.0)
        sizes.append(speed_across(state) / noise)
    assert max(sizes) < 0.5 and sizes[-1] < sizes[0], sizes


@pytest.mark.slow
@pytest.mark.parametrize("mach, between", [(7.0, 0.5), (10.0, 0.3), (10.0, 0.0)])
def test_noise_across_a_shock_at_rest_decays(mach, between):
    """HLLC makes hundreds of times as much of it at Mach 10."""
    model, state = shock_at_rest(WENO, mach, between, noise=NOISE)
    assert speed_across(run(model, state, 40.0)) < 0.1 * NOISE


def kept(scheme, mach, integrator="rk4"):
    model, state = gresho(scheme, mach)
    last = run(model, state, TURN, courant=1.0, most=200_000, integrator=integrator, quick=False)
    return float(kinetic_energy(last) / kinetic_energy(state))


@pytest.mark.slow
@pytest.mark.parametrize("mach", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("scheme", [WENO, LIMITED], ids=["weno", "mc"])
def test_a_slow_vortex_keeps_its_energy(scheme, mach):
    """Nor gains any. HLLC leaves 61 % at Mach 0.01 by limited slopes."""
    assert 0.95 < kept(scheme, mach) <= 1


def boxed(scheme, cells=8):
    return gas((cells, cells), [PERIODIC] * 2, scheme, upper=(float(cells),) * 2)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [WENO, LIMITED], ids=["weno", "mc"])
def test_noise_of_a_gas_at_rest_does_not_grow(scheme):
    """Pressures and velocities in tenths of a percent of those of sound, through a hundred widths of a cell."""
    model = boxed(scheme)
    noise = 1e-3 * np.random.default_rng(0).uniform(-1, 1, model.domain.grid.shape)
    state = start(model, 1.4, (0.0, 0.0), 1 + noise)
    _, velocity, pressure = seen(model, run(model, state, 150.0))
    # A quarter of what pressures lose is left in velocities that hardly change any more, as nothing divides them.
    assert float(jnp.abs(pressure - pressure.mean()).max()) < 2e-4
    assert float(jnp.abs(velocity[0]).max()) < 3e-4


@pytest.mark.slow
def test_checkerboards_decay():
    model = boxed(LIMITED)
    x, y = np.indices(model.domain.grid.shape)
    for sign, swing, size in (((-1.0) ** (x + y), 0.0, 1e-3), (0.0, (-1.0) ** x, 0.1)):
        state = start(model, 1.4, (size * swing, 0.0), 1 + size * sign)
        _, velocity, pressure = seen(model, run(model, state, 100.0))
        left = max(float(jnp.abs(pressure - pressure.mean()).max()), float(jnp.abs(velocity[0]).max()))
        # A velocity of Mach number m decays by m c / h of itself, hence as 1 / t.
        assert left < 0.2 * size
