"""Acoustic waves: the scheme's exact frequency, its orders, energy, time reversal, interfaces and point sources."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from wave_steps import frequency, run

from simjax.core.boundary import Outflow, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.acoustic import Acoustic, Params
from simjax.models.waves.pml import AbsorbingSide, FreeSurface
from simjax.ops.staggered_wave import largest_symbol

RIGID, FREE = (SlipWall(), SlipWall()), (FreeSurface(), FreeSurface())
LAYERS = (AbsorbingSide(), AbsorbingSide())


def at_rest(model, params, pressure):
    zeros = tuple(jnp.zeros_like(pressure) for _ in model.layouts)
    return model.state_from({"pressure": (pressure,), "velocity": zeros}, params)


MODES = {
    "1-D periodic": (Grid((24,), (0.0,), (2.0,)), [PERIODIC], lambda m, length: 2 * np.pi * m / length, np.cos),
    "1-D rigid": (Grid((24,), (0.0,), (2.0,)), [RIGID], lambda m, length: np.pi * m / length, np.cos),
    "1-D rigid and free": (
        Grid((24,), (0.0,), (2.0,)),
        [(SlipWall(), FreeSurface())],
        lambda m, length: np.pi * (m - 0.5) / length,
        np.cos,
    ),
    "2-D free": (Grid((16, 24), (0.0, 0.0), (1.0, 2.0)), [FREE] * 2, lambda m, length: np.pi * m / length, np.sin),
    "3-D periodic": (
        Grid((8, 12, 10), (0.0,) * 3, (1.0, 2.0, 1.5)),
        [PERIODIC] * 3,
        lambda m, length: 2 * np.pi * m / length,
        np.cos,
    ),
}


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("name", MODES)
@pytest.mark.slow
def test_modes_oscillate_at_the_scheme_s_exact_frequency(name, order):
    grid, sides, wavenumber, shape = MODES[name]
    model, speed, steps = Acoustic(Domain(grid), sides, order=order), 1.3, 40
    params = Params(jnp.asarray(speed), jnp.asarray(0.8))
    k = [wavenumber(m, length) for m, length in zip((2, 3, 1), grid.lengths, strict=False)]
    x = model.domain.coordinates((0.5,) * grid.ndim)
    mode = functools.reduce(jnp.multiply, (shape(k[axis] * v) for axis, v in enumerate(x)))
    dt = 0.9 * float(model.stable_dt(None, params))
    _, seen = run(model, params, at_rest(model, params, mode), dt, steps, lambda t, state: state.pressure)
    phase = frequency(k, grid.spacing, order, speed, dt) * dt * np.arange(1, steps + 1)
    exact = np.cos(phase).reshape((-1,) + (1,) * grid.ndim) * np.asarray(mode)
    # Rounding of sines and of 40 steps.
    np.testing.assert_allclose(seen, exact, rtol=0, atol=1e-12)


def test_the_pressure_obeys_the_scalar_wave_equation_s_second_order_scheme():
    """p(t + dt) - 2 p(t) + p(t - dt) = (c dt)^2 lap(p) + the difference of two injected volumes, between walls."""
    grid, dt, steps = Grid((9, 8), (0.0, 0.0), (0.9, 1.2)), 0.05, 12
    speed = 1 + 0.3 * np.random.default_rng(8).random(grid.shape)
    cell, h = (4, 3), grid.spacing
    place = jnp.asarray([[h[0] * 4.5, h[1] * 3.5]])
    model = Acoustic(Domain(grid), [(SlipWall(), SlipWall())] * 2)
    params = Params(jnp.asarray(speed), jnp.asarray(1.0), place, (jnp.cos,))
    fields = {"pressure": (jnp.zeros(grid.shape),), "velocity": (jnp.zeros(grid.shape),) * 2}
    _, seen = run(model, params, model.state_from(fields, params), dt, steps, lambda t, state: state.pressure)

    before, now, volume_before = np.zeros(grid.shape), np.zeros(grid.shape), 0.0
    for step, found in enumerate(seen):
        beyond = np.pad(now, 1, mode="edge")
        bends = ((np.roll(beyond, 1, k) + np.roll(beyond, -1, k) - 2 * beyond)[1:-1, 1:-1] / h[k] ** 2 for k in (0, 1))
        after, volume = 2 * now - before + (speed * dt) ** 2 * sum(bends), np.cos((step + 0.5) * dt)
        after[cell] += dt * speed[cell] ** 2 * (volume - volume_before) / (h[0] * h[1])
        before, now, volume_before = now, after, volume
        # Rounding of a dozen steps, and the sine of pi at the cells around the source's, 1e-16 of its volume.
        np.testing.assert_allclose(found, now, rtol=0, atol=1e-13 * np.abs(now).max())


def test_a_published_frequency():
    """Mode 1 between walls a unit apart, 32 cells, Courant number 1/2: 3.140646274665986 against pi."""
    model, params = Acoustic(Domain(Grid((32,))), [RIGID]), Params(jnp.asarray(1.0), jnp.asarray(1.0))
    mode = jnp.cos(jnp.pi * model.domain.coordinates((0.5,))[0])
    dt, steps = 0.5 / 32, 32
    _, seen = run(model, params, at_rest(model, params, mode), dt, steps, lambda t, state: state.pressure[0])
    # Near a zero of the cosine the phase follows from its value without loss.
    found = np.arccos(float(seen[steps - 1] / mode[0])) / (steps * dt)
    assert found == pytest.approx(3.140646274665986, rel=1e-13)


def test_membrane_modes_approach_the_continuous_frequencies():
    """f = c/2 sqrt(m^2 + n^2) of a unit square held at its rim, by the scheme's exact frequency, at second order."""
    for m, n, exact in [(1, 1, 0.7071067811865476), (1, 3, 1.5811388300841898), (3, 3, 2.1213203435596424)]:
        k = (np.pi * m, np.pi * n)
        errors = [frequency(k, (1 / c, 1 / c), 2, 1.0, 0.5 / c) / (2 * np.pi) - exact for c in (64, 128)]
        assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)  # the next term is (k h)^2 / 20 smaller
        assert abs(errors[1]) < 2e-4 * exact


def medium(grid, seed):
    return jnp.asarray(1 + 0.5 * np.random.default_rng(seed).random(grid.shape))


@pytest.mark.parametrize("order", [pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize(
    "sides",
    [[PERIODIC, RIGID], [FREE, PERIODIC], [(SlipWall(), FreeSurface()), (FreeSurface(), SlipWall())]],
    ids=["periodic rigid", "free periodic", "mixed"],
)
def test_energy_and_time_reversal_in_a_rough_medium(sides, order):
    grid = Grid((12, 16), (0.0, 0.0), (1.0, 1.5))
    model, params = Acoustic(Domain(grid), sides, order=order), Params(medium(grid, 0), medium(grid, 1))
    rng = np.random.default_rng(2)
    noise = [jnp.asarray(rng.normal(size=grid.shape)) for _ in range(3)]
    start = model.state_from({"pressure": (noise[0],), "velocity": tuple(noise[1:])}, params)
    start = model.constrain(0.0, 0.0, start, params)
    # Just below the bound that stable_dt promises, in a medium where it is nowhere sharp.
    dt = 0.999 * model.domain.min(model.stable_dt(start, params))
    end, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    # Rounding: sums of some hundred numbers over 60 steps.
    np.testing.assert_allclose(energy, energy[0], rtol=1e-13)
    back, _ = run(model, params, end, -dt, 60, lambda t, state: None)
    back = model.kick(0.0, back.lag, back, params, model.prepare(params))
    for found, begun in zip(back.velocity + (back.pressure,), start.velocity + (start.pressure,), strict=True):
        np.testing.assert_allclose(found, begun, rtol=0, atol=1e-12)


def test_waves_in_matched_layers_at_second_order():
    """Where rho c is constant nothing is reflected: p = f(t - tau), tau = integral of dx / c."""

    def error(n):
        grid = Grid((n,))
        model = Acoustic(Domain(grid), [PERIODIC])
        slowness = [1 + 0.3 * np.sin(2 * np.pi * grid.coordinates(0, offset)) for offset in (0.5, 0.0)]
        delays = [
            x + 0.3 * (1 - np.cos(2 * np.pi * x)) / (2 * np.pi) for x in (grid.coordinates(0, o) for o in (0.5, 0.0))
        ]
        params = Params(jnp.asarray(1 / slowness[0]), jnp.asarray(slowness[0]))
        wave = [jnp.asarray(np.sin(-4 * np.pi * delay)) for delay in delays]
        start = model.state_from({"pressure": (wave[0],), "velocity": (wave[1],)}, params)
        steps = 4 * n
        end, _ = run(model, params, start, 1.0 / steps, steps, lambda t, state: None)
        return float(jnp.sqrt(jnp.mean((end.pressure - wave[0]) ** 2)))

    errors = [error(n) for n in (64, 128)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.03)


@pytest.mark.slow
def test_fourth_order_in_a_smooth_medium():
    """Grids three times as fine share cell centres; with one time step for all, what differs is the error in space."""
    ends = []
    for n in (24, 72, 216):
        model = Acoustic(Domain(Grid((n,))), [RIGID], order=4)
        (x,) = model.domain.coordinates((0.5,))
        params = Params(1 + 0.3 * jnp.sin(2 * jnp.pi * x) ** 2, jnp.asarray(1.0))
        pulse = jnp.cos(2 * jnp.pi * x)
        ends.append(run(model, params, at_rest(model, params, pulse), 1 / 1000, 500, lambda t, s: None)[0].pressure)
    coarse = np.abs(ends[0] - ends[1][1::3]).max()
    fine = np.abs(ends[1] - ends[2][1::3]).max()
    # The coarse grid has 16 cells per wave, where terms of sixth order are still some per cent.
    assert np.log(coarse / fine) / np.log(3) == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize(("density", "speed", "reflected", "passed"), [(2.0, 2.0, 0.6, 1.6), (1.0, 2.0, 1 / 3, 4 / 3)])
@pytest.mark.slow
def test_reflection_and_transmission_at_an_interface(density, speed, reflected, passed):
    """R = (Z2 - Z1) / (Z2 + Z1), T = 2 Z2 / (Z2 + Z1), Z = rho c."""
    model = Acoustic(Domain(Grid((800,), (0.0,), (4.0,))), [LAYERS])
    (x,) = model.domain.coordinates((0.5,))
    beyond = x > 2
    params = Params(jnp.where(beyond, speed, 1.0), jnp.where(beyond, density, 1.0))

    def pulse(x):
        return jnp.exp(-(((x - 1.2) / 0.1) ** 2))

    moving = pulse(model.domain.coordinates((0.0,))[0])
    start = model.state_from({"pressure": (pulse(x),), "velocity": (moving,)}, params)
    end, _ = run(model, params, start, 1 / 800, 1120, lambda t, state: None)
    pressure = np.asarray(end.pressure)
    # At t = 1.4 the reflection is at x = 1.4, what passed is 0.6 c2 beyond the interface. The pulse is 20 cells wide
    # at half its width: its peak loses (k h)^2 of some 1e-3 to dispersion.
    assert pressure[x < 2].max() == pytest.approx(reflected, abs=2e-3)
    assert pressure[x > 2].max() == pytest.approx(passed, abs=4e-3)
    assert abs(float(x[np.argmax(np.where(x < 2, pressure, 0))]) - 1.4) < 0.02


class Ricker(eqx.Module):
    """The integral of Ricker's wavelet (1 - 2 a^2) exp(-a^2), a = pi f (t - delay), times a strength."""

    strength: jax.Array
    frequency: float = 15.0
    delay: float = 0.1

    def __call__(self, t):
        return self.strength * (t - self.delay) * jnp.exp(-((jnp.pi * self.frequency * (t - self.delay)) ** 2))


def wavelet(t):
    square = (np.pi * 15.0 * (t - 0.1)) ** 2
    return (1 - 2 * square) * np.exp(-square)


def cylindrical(t, r, c):
    """Convolution of the wavelet with H(t - r/c) / (2 pi sqrt(t^2 - r^2/c^2)), by t = (r/c) cosh(u)."""
    u = np.linspace(0, np.arccosh(max(1.0 + 1e-12, t[-1] * c / r)), 20001)
    values = wavelet(t[:, None] - (r / c * np.cosh(u))[None, :])
    return np.trapezoid(values, u, axis=1) / (2 * np.pi)


def traces(shape, spacing, distances, end, courant):
    """Pressure at distances from a source in water, fourth order, absorbing layers all around."""
    c, layer, ndim = 1500.0, 12, len(shape)
    lower = (-(layer + 8) * spacing,) + (-shape[1] / 2 * spacing,) * (ndim - 1)
    grid = Grid(shape, lower, tuple(a + n * spacing for a, n in zip(lower, shape, strict=True)))
    model = Acoustic(Domain(grid), [LAYERS] * ndim, order=4, layer_cells=layer)
    # Neither source nor receivers are on the grid.
    origin = 0.37 * spacing
    places = [[origin + r, *(origin,) * (ndim - 1)] for r in (0.0, *distances)]
    params = Params(
        jnp.asarray(c),
        jnp.asarray(1000.0),
        jnp.asarray(places[:1]),
        (Ricker(jnp.asarray(1e-3)),),
        jnp.asarray(places[1:]),
    )
    dt = courant * float(model.stable_dt(None, params))
    start = at_rest(model, params, jnp.zeros(shape))
    steps = int(end / dt)
    _, seen = run(model, params, start, dt, steps, lambda t, state: model.receive(t, state, params))
    return dt * np.arange(1, steps + 1), np.asarray(seen)


# At the wavelet's frequency and steps of 1.2 ms a wave is early by (w dt)^2 / 24 = 5e-4 of its phase, 19 rad in 300 m.
LOST_PER_METRE = 0.01 / 300


@pytest.mark.slow
def test_a_point_source_in_two_dimensions():
    """rho times the 2-D Green's function convolved with Ricker's wavelet."""
    peaks = {300.0: 0.0445709, 600.0: 0.0314861, 900.0: 0.0256984}
    t, seen = traces((160, 48), 7.5, tuple(peaks), 0.8, 0.4)
    for k, (r, peak) in enumerate(peaks.items()):
        exact = cylindrical(t, r, 1500.0)
        # Peaks by adaptive quadrature; this one is between steps of 1.2 ms.
        assert exact.max() == pytest.approx(peak, rel=2e-3)
        assert np.abs(seen[:, k] - exact).max() < LOST_PER_METRE * r * peak


@pytest.mark.slow
def test_a_point_source_in_three_dimensions():
    """rho q'(t - r/c) / (4 pi r)."""
    distances = (300.0, 450.0)
    t, seen = traces((106, 52, 52), 6.25, distances, 0.5, 0.3)
    for k, r in enumerate(distances):
        exact = wavelet(t - r / 1500) / (4 * np.pi * r)
        assert np.abs(seen[:, k] - exact).max() < LOST_PER_METRE * r / (4 * np.pi * r)


def surveyed(grid, places, **media):
    model = Acoustic(Domain(grid), [LAYERS, (AbsorbingSide(), FreeSurface())], layer_cells=5)
    params = Params(
        media.get("speed", medium(grid, 4)),
        medium(grid, 5),
        places[:1],
        (Ricker(jnp.asarray(1.0), 2.0, 0.3),),
        places[1:],
    )
    return model, params


def trace(places, speed=None):
    grid = Grid((28, 24), (0.0, 0.0), (2.8, 2.4))
    model, params = surveyed(grid, places, **({} if speed is None else {"speed": speed}))
    start = at_rest(model, params, jnp.zeros(grid.shape))
    return run(model, params, start, 0.03, 60, lambda t, state: model.receive(t, state, params))[1][:, 0]


@pytest.mark.slow
def test_source_and_receiver_may_be_exchanged():
    """Reciprocity holds of the discrete scheme, whatever the medium and with its layers."""
    places = jnp.asarray([[0.93, 1.01], [1.87, 1.95]])
    there, back = trace(places), trace(places[::-1])
    assert np.abs(there).max() > 1e-3
    # Rounding of 60 steps. Both points' kernels end before the layers begin.
    np.testing.assert_allclose(there, back, rtol=0, atol=1e-12 * np.abs(there).max())


@pytest.mark.slow
def test_derivatives_with_respect_to_speed_and_to_the_source_s_place():
    grid = Grid((28, 24), (0.0, 0.0), (2.8, 2.4))
    places, speed = jnp.asarray([[0.93, 1.01], [1.87, 1.55]]), medium(grid, 4)
    directions = jnp.asarray([[0.6, -0.8], [0.0, 0.0]]), jnp.asarray(np.random.default_rng(6).normal(size=grid.shape))

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.value_and_grad
    def misfit(e):
        return jnp.sum(trace(places + e[0] * directions[0], speed + e[1] * directions[1]) ** 2)

    slopes = misfit(jnp.zeros(2))[1]
    step = 1e-5
    for k in range(2):
        e = jnp.zeros(2).at[k].set(step)
        # Central differences: step^2 of truncation, 1e-16 / step of rounding.
        assert float(slopes[k]) == pytest.approx(float(misfit(e)[0] - misfit(-e)[0]) / (2 * step), rel=1e-6)


def test_the_courant_number_of_the_fourth_order_scheme():
    grid = Grid((16, 16))
    models = [Acoustic(Domain(grid), [RIGID] * 2, order=order) for order in (2, 4)]
    limits = [float(model.stable_dt(None, Params(*jnp.ones(2)))) for model in models]
    assert limits[0] == pytest.approx(1 / np.sqrt(2) / 16, rel=1e-14)
    assert limits[1] == pytest.approx(limits[0] / largest_symbol(4), rel=1e-14)
    uniform = Params(jnp.ones(grid.shape), jnp.ones(grid.shape))
    bound = models[1].stable_dt(None, uniform)
    np.testing.assert_allclose(bound, limits[1], rtol=1e-14)


def test_what_is_refused():
    domain = Domain(Grid((16, 16)))
    with pytest.raises(ConfigurationError, match="order=3: expected one of"):
        Acoustic(domain, [RIGID] * 2, order=3)
    with pytest.raises(ConfigurationError, match="boundaries.y: .* kinds periodic, rigid, free, absorbing"):
        Acoustic(domain, [RIGID, (Outflow(), SlipWall())])
