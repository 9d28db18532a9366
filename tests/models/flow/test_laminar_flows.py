"""Laminar flows with closed solutions: a wake behind a grid, and a stream that swings in a pipe."""

import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from exact_flows import advance, difference, parameters, sampled
from scipy.special import jv

from simjax.core.boundary import Inflow, NoSlipWall, SlipWall
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible, State
from simjax.stepping.simulate import Schedule


@pytest.mark.slow
def test_the_wake_of_a_grid_stays_as_it_is_at_second_order():
    """u = 1 - exp(l x) cos(2 pi y), v = l / (2 pi) exp(l x) sin(2 pi y), l = Re / 2 - (Re^2 / 4 + 4 pi^2)^(1/2)
    (Kovasznay 1948, Proc. Camb. Phil. Soc. 44, 58), at Re = 40."""
    decay = 20 - np.sqrt(400 + 4 * np.pi**2)
    u = lambda t, x, y: 1 - jnp.exp(decay * x) * jnp.cos(2 * np.pi * y)  # noqa: E731
    v = lambda t, x, y: decay / (2 * np.pi) * jnp.exp(decay * x) * jnp.sin(2 * np.pi * y)  # noqa: E731

    def error(n):
        domain, ends = Domain(Grid((n, n), (-0.5, -0.5), (1.0, 0.5))), Inflow((u, v))
        model = Incompressible(domain, [(ends, ends), PERIODIC])
        exact = sampled(model, (u, v))
        # Three times as long as the stream needs from end to end: a steady flow is left.
        final = advance(model, parameters(1 / 40), exact, Schedule(4.5, dt=0.12 / n), integrator="kutta3").state
        return difference(final, exact)

    coarse, fine = error(16), error(32)
    # Second order, from one halving, where the flow is not resolved finely yet.
    assert fine < 1e-2 and 1.7 < np.log2(coarse / fine) < 2.3


@pytest.mark.slow
def test_a_stream_swings_in_a_pipe_as_womersley_says():
    """w = Re[G / (i omega) (1 - J0(k r) / J0(k)) exp(i omega t)], k = i^(3/2) Wo, for a push G cos(omega t) (Womersley
    1955, J. Physiol. 127, 553), at Wo = (omega / nu)^(1/2) R = 4."""
    womersley, viscosity = 4.0, 1.0
    rate, wave = womersley**2 * viscosity, 1j**1.5 * womersley

    def exact(r, t):
        return np.real((1 - jv(0, wave * r) / jv(0, wave)) / (1j * rate) * np.exp(1j * rate * t))

    def error(n):
        domain = Domain(Grid((n, 2), (0.0, 0.0), (1.0, 1.0), axisymmetric=True))
        push = lambda t, x, params: jnp.cos(rate * t)  # noqa: E731
        model = Incompressible(domain, [(SlipWall(), NoSlipWall()), PERIODIC], (None, push))
        r, period = domain.grid.coordinates(0, 0.5), 2 * np.pi / rate
        begin = State((jnp.zeros((n, 2)), jnp.asarray(np.tile(exact(r, 0.0)[:, None], (1, 2)))))
        steps = 2 * n * n
        final = advance(model, parameters(viscosity), begin, Schedule(period, dt=period / steps), integrator="kutta3")
        return np.abs(np.asarray(final.state.velocity[1])[:, 0] - exact(r, period)).max() * rate

    # The centre swings by 1.2321 G / omega.
    assert np.abs(exact(0.0, np.linspace(0, 2 * np.pi / rate, 1000))).max() * rate == pytest.approx(1.2320773, rel=1e-5)
    coarse, fine = error(8), error(16)
    assert fine < 1e-2 and 1.7 < np.log2(coarse / fine) < 2.3
