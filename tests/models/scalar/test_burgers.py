"""Burgers' equation: shocks, fans, characteristics, the Cole-Hopf solution, and axes that are alike."""

import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from scalars import march, once, places, random_field
from scipy.special import ive

from simjax.core.boundary import Inflow, Outflow
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.scalar.burgers import SCHEMES as UPWIND
from simjax.models.scalar.burgers import Burgers, Params


def viscosity(nu=0.0):
    return Params(jnp.asarray(nu))


@pytest.mark.parametrize("scheme", UPWIND)
@pytest.mark.slow
def test_a_shock_moves_at_its_speed(scheme):
    """Between 1.2 and 0.4 at their mean: the integral follows it to rounding, the profile to a cell or two."""
    grid = Grid((100,), (0.0,), (2.0,))
    (x,), (h,) = places(grid), grid.spacing
    model = Burgers(Domain(grid), [(Inflow(scalar=1.2), Outflow())], scheme)
    start = np.where(x < 0.5, 1.2, 0.4)
    final = march(model, viscosity(), start, end=1.0, steps=150)
    assert float(jnp.sum(final) - np.sum(start)) * h == pytest.approx(0.8 * 0.8, rel=1e-12)
    assert float(jnp.sum(jnp.abs(final - np.where(x < 1.3, 1.2, 0.4)))) < 2 * 0.8
    # Limited schemes overshoot nothing, weno5 by less than two per cent of the jump.
    slack = 0.016 if scheme == "weno5" else 1e-12
    assert float(final.max()) < 1.2 + slack and float(final.min()) > 0.4 - slack


@pytest.mark.parametrize("scheme", UPWIND)
@pytest.mark.slow
def test_a_rarefaction_opens_through_zero_speed(scheme):
    """From -0.5 to 1: the entropy solution is a fan x / t, without a standing jump."""
    grid = Grid((120,), (-1.5,), (1.5,))
    (x,) = places(grid)
    model = Burgers(Domain(grid), [(Outflow(), Outflow())], scheme)
    final = march(model, viscosity(), np.where(x < 0, -0.5, 1.0), end=0.8, steps=80)
    error = float(jnp.mean(jnp.abs(final - np.clip(x / 0.8, -0.5, 1.0))))
    # Two corners, each smeared over some cells: a few tenths of h |log h| = 0.09 at first order, less else.
    assert error < (0.03 if scheme == "upwind" else 0.01)
    assert float(jnp.max(jnp.abs(jnp.diff(final)))) < 0.12


@pytest.mark.parametrize(
    ("scheme", "order", "sizes"),
    [
        ("upwind", 1, (128, 256)),
        ("minmod", 1.6, (64, 128)),
        ("van_leer", 1.7, (64, 128)),
        ("mc", 1.7, (64, 128)),
        ("weno5", 4.5, (64, 128)),
    ],
)
@pytest.mark.slow
def test_before_the_shock_characteristics_are_followed_at_the_scheme_s_order(scheme, order, sizes):
    """sin x on a periodic line until t = 0.5, half the time at which it breaks: u = sin(x - u t)."""

    def error(n):
        grid = Grid((n,), (0.0,), (2 * np.pi,))
        (x,) = places(grid)
        exact = np.sin(x)
        for _ in range(60):
            # Newton's method; a fixed point of a contraction by half.
            exact = exact - (exact - np.sin(x - 0.5 * exact)) / (1 + 0.5 * np.cos(x - 0.5 * exact))
        final = march(
            Burgers(Domain(grid), [PERIODIC], scheme), viscosity(), np.sin(x), end=0.5, steps=n, integrator="rk4"
        )
        return float(jnp.mean(jnp.abs(final - exact)))

    errors = [error(n) for n in sizes]
    # First order converges from below; limiters lose some at the two extrema.
    assert np.log2(errors[0] / errors[1]) > order - 0.15


@pytest.mark.parametrize("integrator", ["rk4", "ars222"])
@pytest.mark.slow
def test_viscous_burgers_against_cole_hopf(integrator):
    """sin x with nu = 0.1 at t = 1; (Hopf 1950, Cole 1951) with modified Bessel functions."""
    nu, t = 0.1, 1.0
    k = np.arange(1, 60)[:, None]

    def exact(x):
        amplitudes = ive(k, 1 / (2 * nu)) * np.exp(-nu * k**2 * t)
        return (
            4
            * nu
            * (k * amplitudes * np.sin(k * x)).sum(0)
            / (ive(0, 1 / (2 * nu)) + 2 * (amplitudes * np.cos(k * x)).sum(0))
        )

    assert exact(np.array([2 * np.pi / 64])) == pytest.approx(0.0477951541309, rel=1e-11)

    def error(n):
        grid = Grid((n,), (0.0,), (2 * np.pi,))
        (x,) = places(grid)
        model = Burgers(Domain(grid), [PERIODIC], "weno5")
        final = march(model, viscosity(nu), np.sin(x), end=t, steps=n, integrator=integrator)
        return float(jnp.max(jnp.abs(final - exact(x))))

    errors = [error(n) for n in (64, 128)]
    # Central diffusion: second order.
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.25 and errors[1] < 1e-3


@pytest.mark.slow
def test_burgers_is_the_same_along_every_axis():
    grid = Grid((10, 12, 8))
    c = random_field(grid.shape) - 0.5
    for scheme in ("mc", "weno5"):
        rhs = [
            once(
                Burgers(Domain(Grid(tuple(grid.shape[k] for k in order))), [PERIODIC] * 3, scheme),
                viscosity(),
                c.transpose(order),
            )
            for order in ((0, 1, 2), (2, 0, 1))
        ]
        np.testing.assert_allclose(rhs[0].transpose(2, 0, 1), rhs[1], rtol=0, atol=1e-14)
        assert float(jnp.sum(rhs[0])) == pytest.approx(0.0, abs=1e-12)


def test_burgers_refuses_schemes_without_an_upwind_side():
    with pytest.raises(ConfigurationError, match="physics.scheme='central': .* write upwind, minmod"):
        Burgers(Domain(Grid((8,))), [PERIODIC], "central")
