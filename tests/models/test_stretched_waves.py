"""Sound and light on grids whose cells differ in width: order, energy, time step, sources, layers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from wave_steps import run

from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE, Grid, Lines
from simjax.models.waves.acoustic import Acoustic, Params
from simjax.models.waves.maxwell import Maxwell
from simjax.models.waves.maxwell import Params as Light
from simjax.models.waves.pml import AbsorbingLayer, AbsorbingSide, FreeSurface
from simjax.models.waves.point_sources import SampledSignal

WAVY, ENDS = "s + 0.1*sin(2*pi*s)", "s - 0.5*s*s*(1 - s)"  # smooth where it wraps; four times finer at the upper end
RIGID, LAYERS = (SlipWall(), SlipWall()), (AbsorbingSide(), AbsorbingSide())


def stretched(*axes):
    """A grid of (formula, cells, length) along each axis."""
    return Grid([n for _, n, _ in axes], stretch=[lines("formula", text, n, 0.0, length) for text, n, length in axes])


def medium(grid, seed):
    return jnp.asarray(1 + 0.5 * np.random.default_rng(seed).random(grid.shape))


def noise(model, params):
    rng = np.random.default_rng(2)
    fields = {
        name: tuple(jnp.asarray(rng.normal(size=model.domain.grid.shape)) for _ in layouts)
        for name, layouts in model.component_layouts().items()
    }
    return model.constrain(0.0, 0.0, model.state_from(fields, params), params)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.slow
def test_derivatives_keep_their_order_where_the_stretching_is_smooth(order):
    """Of p and u in both places; of light they are the same."""
    errors = []
    for n in (32, 64):
        model, params = Acoustic(Domain(stretched((WAVY, n, 1.0))), [PERIODIC], order=order), Params(*jnp.ones(2))
        (center,), (face,) = (model.domain.coordinates((place,)) for place in (CENTER, FACE))
        state = model.state_from({"pressure": (jnp.sin(2 * np.pi * center),), "velocity": (0.0 * face,)}, params)
        change = model.kick(0.0, 1.0, state, params, model.prepare(params)).velocity[0]
        state = dataclasses.replace(state, velocity=(jnp.cos(2 * np.pi * face),))
        rise = model.drift(0.0, 1.0, state, params, model.prepare(params)).pressure - state.pressure
        exact = -2 * np.pi * jnp.cos(2 * np.pi * face), 2 * np.pi * jnp.sin(2 * np.pi * center)
        errors.append([float(jnp.mean(jnp.abs(a - b))) for a, b in zip((change, rise), exact, strict=True)])
    found = np.log2(np.divide(*errors))
    assert np.all(np.abs(found - order) < 0.1), found  # the next term is (k h)^2 smaller


def test_a_mode_between_rigid_and_free_sides_at_second_order():
    errors = []
    for n in (16, 32):
        grid = stretched((ENDS, n, 1.0), (WAVY, n, 2.0))
        model, params = Acoustic(Domain(grid), [(SlipWall(), FreeSurface()), PERIODIC]), Params(*jnp.ones(2))
        x, y = model.domain.coordinates((0.5, 0.5))
        k = 1.5 * np.pi, np.pi
        mode = jnp.cos(k[0] * x) * jnp.cos(k[1] * y)
        start = model.state_from({"pressure": (mode,), "velocity": (jnp.zeros(grid.shape),) * 2}, params)
        steps, end = 5 * n, 0.7
        last, _ = run(model, params, start, end / steps, steps, lambda t, state: None)
        exact = mode * np.cos(np.hypot(*k) * end)
        errors.append(float(jnp.max(jnp.abs(last.pressure - exact))))
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2, errors


@pytest.mark.slow
def test_a_mode_of_a_cavity_at_second_order():
    errors = []
    for n in (16, 32):
        grid = stretched((ENDS, n, 1.0), (ENDS, n, 2.0))
        model, params = Maxwell(Domain(grid), [RIGID] * 2), Light(*jnp.ones(2))
        x, y = model.domain.coordinates((0.0, 0.0))
        mode = jnp.sin(np.pi * x) * jnp.sin(np.pi * y)
        start = model.state_from({"electric": (mode,), "magnetic": (jnp.zeros(grid.shape),) * 2}, params)
        steps, end = 5 * n, 0.7
        last, _ = run(model, params, start, end / steps, steps, lambda t, state: None)
        errors.append(float(jnp.max(jnp.abs(last.electric[0] - mode * np.cos(np.sqrt(2) * np.pi * end)))))
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2, errors


def rough(kind, order):
    """A model in a rough medium, with walls and free surfaces of every kind."""
    if kind == "sound":
        grid = stretched((WAVY, 12, 1.0), (ENDS, 16, 1.5))
        sides = [(SlipWall(), FreeSurface()), (FreeSurface(), SlipWall())]
        return Acoustic(Domain(grid), sides, order=order), Params(medium(grid, 0), medium(grid, 1))
    grid = stretched((WAVY, 8, 1.0), (ENDS, 12, 1.5), (WAVY, 10, 0.8))
    return Maxwell(Domain(grid), [RIGID, RIGID, PERIODIC], order=order), Light(medium(grid, 0), medium(grid, 1))


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("sound", 2),
        *(
            pytest.param(kind, order, marks=pytest.mark.slow)
            for kind, order in (("sound", 4), ("light", 2), ("light", 4))
        ),
    ],
)
@pytest.mark.slow
def test_energy_and_time_reversal_at_the_longest_step(kind, order):
    model, params = rough(kind, order)
    start = noise(model, params)
    dt = 0.999 * model.domain.min(model.stable_dt(start, params))
    end, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    np.testing.assert_allclose(energy, energy[0], rtol=1e-13)  # rounding: sums of some hundred numbers over 60 steps
    back, _ = run(model, params, end, -dt, 60, lambda t, state: None)
    back = model.kick(0.0, back.lag, back, params, model.prepare(params))
    for name in model.component_layouts():
        for found, begun in zip(
            jax.tree.leaves(getattr(back, name)), jax.tree.leaves(getattr(start, name)), strict=True
        ):
            np.testing.assert_allclose(found, begun, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.slow
def test_the_time_step_is_below_the_bound_and_near_it(order):
    grid = stretched((ENDS, 12, 1.0))
    model, params = Acoustic(Domain(grid), [RIGID], order=order), Params(*jnp.ones(2))
    prepared = model.prepare(params)

    @jax.jit
    @jax.vmap
    def second_derivative(pressure):
        state = model.state_from({"pressure": (pressure,), "velocity": (jnp.zeros(12),)}, params)
        state = model.constrain(0.0, 1.0, model.kick(0.0, 1.0, state, params, prepared), params)
        return model.drift(0.0, 1.0, state, params, prepared).pressure - pressure

    fastest = np.sqrt(-np.linalg.eigvals(second_derivative(jnp.eye(12)).T).real.min())
    longest = float(jnp.min(model.stable_dt(None, params)))
    assert 0.85 < longest * fastest / 2 <= 1


@pytest.mark.slow
def test_a_source_injects_its_volume_and_may_be_exchanged_with_a_receiver():
    grid = stretched((ENDS, 24, 2.4), (WAVY, 20, 2.0))
    model = Acoustic(Domain(grid), [RIGID, PERIODIC])
    places = jnp.asarray([[0.93, 1.01], [1.87, 1.55]])
    steady = SampledSignal(jnp.asarray([-1.0, 9.0]), jnp.asarray([1.0, 1.0]))

    def after(places, steps):
        params = Params(medium(grid, 0), jnp.asarray(1.3), places[:1], (steady,), places[1:])
        rest = model.state_from(
            {"pressure": (jnp.zeros(grid.shape),), "velocity": (jnp.zeros(grid.shape),) * 2}, params
        )
        dt = 0.9 * float(jnp.min(model.stable_dt(rest, params)))
        end, seen = run(model, params, rest, dt, steps, lambda t, state: model.receive(t, state, params))
        return params, dt, end, seen

    params, dt, end, _ = after(places, 1)
    volumes = np.outer(*(grid.widths(axis) for axis in range(2)))
    expanded = np.sum(volumes * np.asarray(end.pressure / (params.density * params.speed**2)))
    assert expanded == pytest.approx(dt, rel=2e-3)  # the kernel's own error, see test_point_sources
    there, back = (after(both, 60)[3] for both in (places, places[::-1]))
    np.testing.assert_allclose(there, back, rtol=0, atol=1e-12 * np.abs(there).max())  # rounding of 60 steps
    # Where pressure is linear along x the receiver reads its place, to the second order of places between cells.
    ramp = jnp.broadcast_to(model.domain.coordinates((0.5, 0.5))[0], grid.shape)
    read = model.receive(0.0, dataclasses.replace(end, pressure=ramp), params)
    assert float(read[0]) == pytest.approx(1.87, abs=0.01)


@pytest.mark.slow
def test_layers_on_a_stretched_axis():
    """On equal widths they are those of a uniform axis; on others each has the thickness of its own cells."""
    sides, speed = [LAYERS], jnp.asarray(1.0)
    plain = AbsorbingLayer(Domain(Grid((20,), (0.0,), (2.0,))), 5, sides)
    same = AbsorbingLayer(Domain(Grid((20,), stretch=[Lines(np.linspace(0, 2, 21))])), 5, sides)
    for place in (FACE, CENTER):
        for a, b in zip(*(jax.tree.leaves(layer.profile(0, place, speed)) for layer in (plain, same)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)  # rounding of places, to the third power of depths
    uneven = AbsorbingLayer(Domain(stretched((ENDS, 20, 2.0))), 5, sides)
    profile = uneven.profile(0, FACE, speed)
    assert profile is not None
    lines = np.r_[0:5, 15:20]  # of which a profile has values
    np.testing.assert_array_equal(lines[np.flatnonzero(profile.weight)], [1, 2, 3, 4, 16, 17, 18, 19])
    grid = uneven.domain.grid
    thickness = [grid.widths(0)[own].sum() for own in (slice(5), slice(-5, None))]
    x = grid.coordinates(0, FACE)[[2, 18]]
    depth = np.divide([thickness[0] - x[0], x[1] - (2.0 - thickness[1])], thickness)
    expected = (2 * np.log(1e6) * depth**3 + 0.5 * np.pi * (1 - depth)) / thickness
    rate = np.asarray(profile.rate)[np.isin(lines, [2, 18])]
    np.testing.assert_allclose(rate, expected, rtol=1e-12)  # rounding of places


@pytest.mark.slow
def test_what_layers_of_growing_cells_send_back():
    """Of waves of ten cells along a line, cells that grow by 2 % each send back a thousandth, by 5 % eight."""

    def trace(layer, ratio, sides):
        outer = ratio ** np.arange(1, layer + 1)
        widths = np.concatenate([np.full(layer, 1.0), np.full(60, 1.0), outer])
        grid = Grid((widths.size,), stretch=[Lines(np.concatenate([[0], np.cumsum(widths)]) - layer)])
        model = Acoustic(Domain(grid), [sides], layer_cells=12)
        times = jnp.arange(0.0, 60.0, 0.05)
        a = np.pi * 0.1 * times - 1.2 * np.pi
        pulse = SampledSignal(times, a * jnp.exp(-a * a))
        params = Params(*jnp.ones(2), jnp.asarray([[8.3]]), (pulse,), jnp.asarray([[30.5], [56.5]]))
        rest = model.state_from({"pressure": (jnp.zeros(grid.shape),), "velocity": (jnp.zeros(grid.shape),)}, params)
        return np.asarray(run(model, params, rest, 0.8, 170, lambda t, s: model.receive(t, s, params))[1])

    free = trace(80, 1.0, RIGID)
    back = [np.abs(trace(12, ratio, LAYERS) - free).max() / np.abs(free).max() for ratio in (1.0, 1.02, 1.05)]
    assert back[0] < 3e-4 and back[1] < 2e-3 and back[2] < 1.2e-2, back


def test_an_abrupt_stretching_is_refused_at_fourth_order():
    grid = Grid((8,), stretch=[Lines([0, 1, 2, 3, 4, 5, 45, 46, 47])])
    Acoustic(Domain(grid), [RIGID])
    with pytest.raises(ConfigurationError, match=r"physics.order=4: cells along x change too abruptly.*at cell 4"):
        Acoustic(Domain(grid), [RIGID], order=4)
