"""A gas on grids whose cells differ in width: order, conservation, equilibria, walls, positivity, Sod's tube."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from exact_riemann import SOD
from gas_runs import CLOSED, IDEAL, MUSCL, OPEN, PERIODIC, WENO, centers, run, seen, start, tube

from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.models.gas.boundaries import GasWall
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme

WAVY = "s + 0.1*sin(2*pi*s)"  # widths differ by a factor of four, smooth where it wraps
ENDS = "s - 0.5*s*s*(1 - s)"  # four times finer at one end


def gas(shape, sides, scheme=WENO, text=WAVY, **options):
    grid = Grid(shape, stretch=[lines("formula", text, n, 0.0, 1.0) for n in shape])
    return Compressible(Domain(grid), sides, scheme, **options)


def volumes(model, params=IDEAL):
    """Of the cells, as the scheme has them, by what the model itself adds up."""
    rest = start(model, 1.0, (0.0,) * model.domain.grid.ndim, 1.0)

    def mass(density):
        return model.diagnostics(0.0, Compressible.State(density, rest.momentum, rest.energy), params)["mass"]

    return jax.grad(mass)(rest.density)


def rhs(model, state, params=IDEAL):
    return jax.jit(lambda state: model.rhs(0.0, state, params), compiler_options=QUICK)(state)


def wave(model, t):
    """A density wave carried along the diagonal by a uniform flow."""
    velocity = (1.0, 0.5, -0.7)[: model.domain.grid.ndim]
    density = 1 + 0.2 * jnp.sin(2 * jnp.pi * (sum(centers(model)) - sum(velocity) * t))
    return start(model, density, velocity, 1.0)


def tendency_error(scheme, shape):
    """Median error of the tendencies of the wave: at its extrema limiters are of first order."""
    model = gas(shape, [PERIODIC] * len(shape), scheme)
    state, wanted = jax.jvp(lambda t: wave(model, t), (0.0,), (1.0,))
    pairs = zip(*map(jax.tree.leaves, (rhs(model, state), wanted)), strict=True)
    return sum(float(jnp.median(jnp.abs(a - b))) for a, b in pairs)


@pytest.mark.parametrize(
    ("scheme", "coarse", "order"),
    [
        (WENO, (48,), 5),
        (GasScheme("van_leer", "primitive", "hllc"), (64,), 2),
        pytest.param(MUSCL, (32, 32), 2, marks=pytest.mark.slow),
        pytest.param(GasScheme("weno5", "primitive", "rusanov"), (32, 32), 5, marks=pytest.mark.slow),
        pytest.param(MUSCL, (12, 12, 12), 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_schemes_keep_their_order_where_the_stretching_is_smooth(scheme, coarse, order):
    errors = [tendency_error(scheme, shape) for shape in (coarse, tuple(2 * n for n in coarse))]
    # Weights approach their ideal ones late, so that errors fall faster at first.
    assert order - 0.25 < np.log2(errors[0] / errors[1]) < order + 0.9, errors


def rough(model, seed=0, params=IDEAL):
    random = np.random.default_rng(seed)
    shape = model.domain.grid.shape
    density, pressure = (jnp.asarray(1 + random.random(shape)) for _ in range(2))
    velocity = tuple(jnp.asarray(random.normal(size=shape)) for _ in shape)
    return start(model, density, velocity, pressure, params=params)


VISCOUS = Params(jnp.asarray(1.4), jnp.asarray(0.1), jnp.asarray(0.2))


@pytest.mark.parametrize(
    ("shape", "scheme"), [((12, 10), WENO), pytest.param((8, 9, 10), MUSCL, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_totals_stay_and_a_uniform_flow_stays_one(shape, scheme):
    model = gas(shape, [PERIODIC] * len(shape), scheme)
    change, weights = rhs(model, rough(model), VISCOUS), volumes(model)
    assert float(jnp.abs(weights.sum() - 1)) < 1e-14
    for slope in jax.tree.leaves(change):
        weighed = weights * slope
        assert abs(float(weighed.sum())) < 1e-13 * float(jnp.abs(weighed).sum())  # a sum of some hundred terms
    stream = start(model, 1.3, (0.7, -0.4, 0.2)[: len(shape)], 0.9)
    for slope in jax.tree.leaves(rhs(model, stream, VISCOUS)):
        assert float(jnp.abs(slope).max()) < 1e-11  # rounding of fluxes of order one over widths of 0.03


@pytest.mark.slow
def test_an_atmosphere_at_rest_stays_and_falling_gas_keeps_its_energy():
    """Isothermal; between centres the pressure falls by the weight of half a cell of each."""
    n, heat = 24, 0.25
    params = Params(jnp.asarray(1.4), gravity=jnp.asarray([-1.0]))
    model = gas((n,), [CLOSED], WENO, ENDS, gravity_axes=(0,))
    widths = model.domain.grid.widths(0)
    drops = 0.25 * (widths[1:] + widths[:-1]) / heat
    pressure = np.concatenate([[1.0], np.cumprod((1 - drops) / (1 + drops))])
    still = rhs(model, start(model, pressure / heat, (0.0,), pressure, params=params), params)
    # Rounding of pressures of one over the least width of 0.02.
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(still)) < 1e-12
    falling = rhs(model, rough(model, 3, params), params)
    middles = np.asarray(model.domain.grid.stretch[0].faces)
    height = 0.5 * (middles[1:] + middles[:-1])
    weights = volumes(model, params)
    gained = weights * (falling.energy + falling.density * height)
    assert abs(float(gained.sum())) < 1e-13 * float(jnp.abs(gained).sum())


def couette_error(n, axis):
    """Of the tendency of a sheared gas between walls of one temperature, in steady balance of friction and heat."""
    along = 1 - axis
    speed, mu, k = 2.0, 0.3, 0.5
    wall = tuple(speed if a == along else 0.0 for a in range(2))
    shape = tuple(n if a == axis else 4 for a in range(2))
    sides = [(GasWall(temperature=1.0), GasWall(wall, temperature=1.0)) if a == axis else PERIODIC for a in range(2)]
    model = gas(shape, sides, MUSCL, ENDS)
    params = Params(jnp.asarray(1.4), jnp.asarray(mu), jnp.asarray(k))
    y = centers(model)[axis]
    # Energy: k T'' + mu u'^2 = 0.
    heat = 1 + 0.5 * mu / k * speed**2 * y * (1 - y)
    velocity = [speed * y if a == along else 0.0 for a in range(2)]
    state = start(model, 1 / heat, velocity, 1.0, params=params)
    slopes = rhs(model, state, params)
    inner = tuple(slice(2, -2) if a == axis else slice(None) for a in range(2))
    return float(jnp.mean(jnp.abs(slopes.energy[inner]))), float(jnp.mean(jnp.abs(slopes.momentum[along][inner])))


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_friction_and_heat_are_in_balance_to_second_order(axis):
    errors = np.array([couette_error(n, axis) for n in (24, 48)])
    assert np.all(np.log2(errors[0] / errors[1]) > 1.8), errors


@pytest.mark.slow
def test_diverging_shear_is_of_second_order():
    """All viscous terms of a smooth flow in a plane, without what carries it: the difference with and without them."""

    def field(x, y):
        two = 2 * jnp.pi
        return jnp.sin(two * x) * jnp.cos(two * y), jnp.cos(two * (x + y)), 1 + 0.2 * jnp.sin(two * (x - y))

    mu, k, errors = 0.3, 0.7, []
    viscous = Params(jnp.asarray(1.4), jnp.asarray(mu), jnp.asarray(k))
    for n in (24, 48):
        model = gas((n, n), [PERIODIC] * 2, GasScheme("first_order", "primitive", "rusanov"))
        x, y = jnp.broadcast_arrays(*centers(model))
        u, v, heat = field(x, y)
        state = start(model, 1 / heat, (u, v), 1.0)
        found = jax.tree.map(jnp.subtract, rhs(model, state, viscous), rhs(model, state))

        def stress(x, y):
            (ux, vx, tx), (uy, vy, ty) = (jax.jacfwd(field, axis)(x, y) for axis in (0, 1))
            u, v, _ = field(x, y)
            div = ux + vy
            tau = mu * (2 * ux - 2 / 3 * div), mu * (uy + vx), mu * (2 * vy - 2 / 3 * div)
            heat = tau[0] * u + tau[1] * v + k * tx, tau[1] * u + tau[2] * v + k * ty
            return jnp.stack([jnp.stack([tau[0], tau[1]]), jnp.stack([tau[1], tau[2]]), jnp.stack(heat)])

        slopes = jax.jit(jax.vmap(jax.jacfwd(stress, (0, 1))))(x.ravel(), y.ravel())
        exact = (slopes[0][:, :, 0] + slopes[1][:, :, 1]).T.reshape(3, n, n)
        pairs = zip((*found.momentum, found.energy), exact, strict=True)
        errors.append([float(jnp.mean(jnp.abs(a - b))) for a, b in pairs])
    order = np.log2(np.divide(*errors))
    assert np.all((order > 1.8) & (order < 2.3)), order


def sod_error(model):
    """Mean error of density, velocity and pressure over the length of the tube."""
    found = seen(model, run(model, tube(model, SOD), 0.2))
    exact = SOD.sample(centers(model)[0], 0.2)
    widths = model.domain.grid.widths(0)
    flat = (found[0], found[1][0], found[2])
    return [float(np.sum(widths * np.abs(np.asarray(a) - b))) for a, b in zip(flat, exact, strict=True)]


@pytest.mark.slow
def test_sod_beside_a_uniform_grid():
    """200 cells: 0.4 of the mean where the jump starts, 1.4 where the shock arrives, over which it is spread."""
    uniform = sod_error(Compressible(Domain(Grid((200,))), [OPEN], WENO))
    density, velocity, pressure = np.divide(sod_error(gas((200,), [OPEN], WENO)), uniform)
    assert density < 0.9 and velocity < 1.25 and pressure < 0.85, (density, velocity, pressure)


GROWING = np.exp(0.3 * np.abs(np.arange(-20, 20)))  # by a third from cell to cell, away from the middle
JUMP = np.where(np.arange(40) < 20, 1.0, 8.0)
STRONG = ((1.0, -3.7, 0.4), (1.0, 3.7, 0.4)), ((1.0, 0.0, 1e3), (1.0, 0.0, 1e-2)), ((1.0, 60.0, 1.0), (1.0, -60.0, 1.0))
FAST_BESIDE_THIN = (((1.0, 0.0, 0.01), (0.01, 10.0, 0.01)),)
"""Only the neighbour's width tells how long a step the thin cells at rest bear."""


@pytest.mark.parametrize(
    ("scheme", "widths", "problems"),
    [
        pytest.param(WENO, GROWING, STRONG, id="weno"),
        pytest.param(MUSCL, GROWING, STRONG, id="muscl", marks=pytest.mark.slow),
        pytest.param(GasScheme("first_order", "primitive", "rusanov"), JUMP, FAST_BESIDE_THIN, id="jump"),
    ],
)
@pytest.mark.slow
def test_colliding_and_parting_streams_stay_positive(scheme, widths, problems):
    """At the longest step that promises it."""
    x = np.concatenate([[0.0], np.cumsum(widths)]) / widths.sum()
    model = Compressible(Domain(Grid((40,), stretch=[Lines(x)])), [OPEN], scheme)
    below = jnp.arange(40) < 20
    states = []
    for left, right in problems:
        density, velocity, pressure = (jnp.where(below, a, b) for a, b in zip(left, right, strict=True))
        states.append(start(model, density, (velocity,), pressure))

    def step(state, _):
        dt = 0.5 * model.stable_dt(state, IDEAL)
        state = jax.tree.map(lambda u, s: u + dt * s, state, model.rhs(0.0, state, IDEAL))
        seen = model.diagnostics(0.0, state, IDEAL)
        return state, (seen["minimum_density"], seen["minimum_pressure"])

    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    advance = jax.jit(jax.vmap(lambda state: jax.lax.scan(step, state, None, length=60)[1]), compiler_options=QUICK)
    for least in advance(together):
        assert np.all(np.asarray(least) > 0)  # also false for what is not a number


def test_an_abrupt_stretching_is_refused_with_weno5():
    grid = Grid((8,), stretch=[Lines([0, 1, 2, 3, 4, 44, 45, 46, 47])])
    Compressible(Domain(grid), [CLOSED], MUSCL)
    with pytest.raises(ConfigurationError, match="physics.reconstruction=weno5: cells along x change too abruptly"):
        Compressible(Domain(grid), [CLOSED], WENO)
