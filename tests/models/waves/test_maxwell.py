"""Electromagnetic waves: Yee's exact frequency, cavities, energy, time reversal, losses, a slab, a line current."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from scipy.special import hankel2
from wave_steps import frequency, run, symbol

from simjax.core.boundary import Outflow, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.maxwell import Maxwell, Params
from simjax.models.waves.pml import AbsorbingSide

CONDUCTOR = (SlipWall(), SlipWall())
LAYERS = (AbsorbingSide(), AbsorbingSide())


def zeros(layouts, grid):
    return tuple(jnp.zeros(grid.shape) for _ in layouts)


def with_electric(model, params, electric):
    fields = {"electric": tuple(electric), "magnetic": zeros(model.magnetic_layouts, model.domain.grid)}
    return model.state_from(fields, params)


def cavity_mode(model, k, amplitudes):
    """E_i = a_i cos(k_i x_i) prod sin(k_j x_j): tangential E vanishes on the walls, div E does if a . K does."""
    ndim, electric = model.domain.grid.ndim, []
    components = {"tm": (2,), "te": (0, 1), "full": (0, 1, 2)}[model.polarisation]
    for c, layout in zip(components, model.electric_layouts, strict=True):
        x = model.domain.coordinates(layout.offset)
        factors = [jnp.cos(k[axis] * x[axis]) if axis == c else jnp.sin(k[axis] * x[axis]) for axis in range(ndim)]
        electric.append(amplitudes[c] * functools.reduce(jnp.multiply, factors))
    return electric


CAVITIES = {
    "tm": (Grid((16, 24), (0.0, 0.0), (1.0, 2.0)), (2, 3)),
    "te": (Grid((16, 24), (0.0, 0.0), (1.0, 2.0)), (2, 3)),
    "full": (Grid((8, 12, 10), (0.0,) * 3, (1.0, 2.0, 1.5)), (1, 2, 3)),
}


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("polarisation", CAVITIES)
@pytest.mark.slow
def test_cavity_modes_oscillate_at_yee_s_exact_frequency(polarisation, order):
    grid, numbers = CAVITIES[polarisation]
    model, steps = Maxwell(Domain(grid), [CONDUCTOR] * grid.ndim, polarisation=polarisation, order=order), 40
    params = Params(jnp.asarray(1.7), jnp.asarray(0.6))
    k = [np.pi * m / length for m, length in zip(numbers, grid.lengths, strict=True)]
    # No charge: orthogonal to the discrete wave vector.
    discrete = [symbol(q, h, order) for q, h in zip(k, grid.spacing, strict=True)]
    amplitudes = (0, 0, 1) if polarisation == "tm" else np.cross((*discrete, 0)[:3], (0.3, -0.5, 0.8))
    if polarisation == "te":
        amplitudes = (discrete[1], -discrete[0], 0)
    start = with_electric(model, params, cavity_mode(model, k, amplitudes))
    dt = 0.9 * float(model.stable_dt(start, params))
    _, seen = run(model, params, start, dt, steps, lambda t, state: state.electric)
    phase = frequency(k, grid.spacing, order, 1 / np.sqrt(1.7 * 0.6), dt) * dt * np.arange(1, steps + 1)
    for found, begun in zip(seen, start.electric, strict=True):
        exact = np.cos(phase).reshape((-1,) + (1,) * grid.ndim) * np.asarray(begun)
        # Rounding of sines, of the amplitudes' orthogonality, and of 40 steps.
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12 * np.abs(begun).max())


def test_cavity_frequencies_approach_the_table():
    """f = c/2 sqrt((m/a)^2 + (n/b)^2 + (p/d)^2), a 1.0, b 0.5, d 0.75 m, in Hz, at second order."""
    table = {
        (1, 0, 1): 249827048.33333334,
        (1, 1, 0): 335178157.6148753,
        (0, 1, 1): 360305693.1054615,
        (1, 1, 1): 390242324.65562654,
        (1, 0, 2): 426904647.32832474,
        (2, 0, 1): 360305693.1054615,
    }
    c, lengths = 299792458.0, (1.0, 0.5, 0.75)
    for numbers, exact in table.items():
        k = [np.pi * m / length for m, length in zip(numbers, lengths, strict=True)]
        errors = []
        for n in (32, 64):
            h = [length / n for length in lengths]
            errors.append(frequency(k, h, 2, c, 0.5 * min(h) / c / 2) / (2 * np.pi) / exact - 1)
        assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)
        assert abs(errors[1]) < 1e-3


def medium(grid, seed):
    return jnp.asarray(1 + 0.5 * np.random.default_rng(seed).random(grid.shape))


def noise(model, params, seed):
    rng = np.random.default_rng(seed)
    fields = {
        name: tuple(jnp.asarray(rng.normal(size=model.domain.grid.shape)) for _ in layouts)
        for name, layouts in model.component_layouts().items()
    }
    return model.constrain(0.0, 0.0, model.state_from(fields, params), params)


@pytest.mark.parametrize(
    ("sides", "polarisation", "lossy"),
    [
        pytest.param([PERIODIC, CONDUCTOR], "tm", False, id="tm"),
        pytest.param([CONDUCTOR] * 2, "te", True, id="te lossy"),
        pytest.param([CONDUCTOR, PERIODIC, CONDUCTOR], "full", False, id="3-D", marks=pytest.mark.slow),
    ],
)
def test_energy_and_time_reversal_in_a_rough_medium(sides, polarisation, lossy):
    grid = Grid((8, 12, 10)[: len(sides)], (0.0,) * len(sides), (1.0, 1.5, 0.8)[: len(sides)])
    model = Maxwell(Domain(grid), sides, polarisation=polarisation)
    params = Params(medium(grid, 0), medium(grid, 1), 0.3 * medium(grid, 2) if lossy else None)
    start = noise(model, params, 3)
    dt = 0.999 * model.stable_dt(start, params)
    end, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    if lossy:
        assert energy[-1] < 0.7 * energy[0]
    else:
        # Rounding: sums of some hundred numbers over 60 steps.
        np.testing.assert_allclose(energy, energy[0], rtol=1e-13)
    # The trapezoidal rule of conduction is reversible too, though what decayed grows back with its rounding.
    back, _ = run(model, params, end, -dt, 60, lambda t, state: None)
    back = model.kick(0.0, back.lag, back, params, model.prepare(params))
    for found, begun in zip(back.electric + back.magnetic, start.electric + start.magnetic, strict=True):
        np.testing.assert_allclose(found, begun, rtol=0, atol=1e-12)


def test_a_uniform_field_decays_by_conduction():
    """E_n = ((1 - s) / (1 + s))^n with s = sigma dt / (2 eps), exp(-sigma t / eps) at second order."""
    model = Maxwell(Domain(Grid((4, 6))), [PERIODIC] * 2, polarisation="te")
    params = Params(jnp.asarray(2.0), jnp.asarray(1.0), jnp.asarray(0.5))
    start = with_electric(model, params, (jnp.ones((4, 6)), -jnp.ones((4, 6))))
    end, _ = run(model, params, start, 0.05, 20, lambda t, state: None)
    s = 0.5 * 0.05 / (2 * 2.0)
    np.testing.assert_allclose(end.electric[0], ((1 - s) / (1 + s)) ** 20, rtol=1e-14)
    np.testing.assert_allclose(end.electric[1], -np.exp(-0.25), rtol=2e-4)


@pytest.mark.parametrize("polarisation", ["tm", "te"])
@pytest.mark.slow
def test_reflection_of_a_slab_of_index_two(polarisation):
    """r = (n1 - n2) / (n1 + n2) = -1/3, t = 2/3, of E along y or z across a boundary normal to x."""
    grid = Grid((800, 4), (0.0, 0.0), (4.0, 0.02))
    model = Maxwell(Domain(grid), [LAYERS, PERIODIC], polarisation=polarisation)
    across = -1 if polarisation == "te" else 0
    x = model.domain.coordinates(model.electric_layouts[across].offset)[0]
    center = model.domain.coordinates((0.5, 0.5))[0]
    params = Params(jnp.where(center > 2, 4.0, 1.0) * jnp.ones(grid.shape), jnp.asarray(1.0))

    def pulse(x):
        return jnp.exp(-(((x - 1.2) / 0.1) ** 2)) * jnp.ones(grid.shape)

    which = -1 if polarisation == "tm" else 0
    halfway = model.domain.coordinates(model.magnetic_layouts[which].offset)[0]
    electric, magnetic = (list(zeros(kinds, grid)) for kinds in (model.electric_layouts, model.magnetic_layouts))
    electric[across] = pulse(x)
    # A wave along +x: (Ez, Hy) = (f, -f), (Ey, Hz) = (f, f).
    magnetic[which] = -pulse(halfway) if polarisation == "tm" else pulse(halfway)
    start = model.state_from({"electric": tuple(electric), "magnetic": tuple(magnetic)}, params)
    end, _ = run(model, params, start, 1 / 320, 448, lambda t, state: None)
    seen, x = np.asarray(end.electric[across])[:, 0], np.asarray(x)[:, 0]
    # 20 cells at half width: the peak loses (k h)^2 of some 1e-3 to dispersion, twice that where it is half as wide.
    assert seen[x < 1.95].min() == pytest.approx(-1 / 3, abs=2e-3)
    assert seen[x > 2.05].max() == pytest.approx(2 / 3, abs=4e-3)


class Switched:
    """sin(w t), switched on smoothly over three periods."""

    def __init__(self, frequency):
        self.frequency = frequency

    def __call__(self, t):
        rise = jnp.clip(t * self.frequency / (6 * jnp.pi), 0.0, 1.0)
        return jnp.sin(self.frequency * t) * rise * rise * (3 - 2 * rise)


def test_a_line_current_radiates_hankel_s_function():
    """E_z = -(w mu / 4) H0^(2)(k r) per unit current along z, times exp(i w t)."""
    h, n, w = 0.05, 90, 2 * np.pi
    lower = -n * h / 2
    grid = Grid((n, n), (lower, lower), (-lower, -lower))
    model = Maxwell(Domain(grid), [LAYERS] * 2, polarisation="tm")
    distances = np.array([0.4, 0.8, 1.2])
    angles = np.array([0.3, 1.1, 2.5])
    receivers = 0.013 + np.stack([distances * np.cos(angles), distances * np.sin(angles)], axis=1)
    params = Params(
        jnp.asarray(1.0), jnp.asarray(1.0), None, jnp.asarray([[0.013, 0.013]]), (Switched(w),), jnp.asarray(receivers)
    )
    per_period = 40
    dt = 1 / per_period
    start = with_electric(model, params, zeros(model.electric_layouts, grid))
    _, seen = run(model, params, start, dt, 10 * per_period, lambda t, state: model.receive(t, state, params))
    last = np.asarray(seen)[-per_period:]
    t = dt * np.arange(9 * per_period + 1, 10 * per_period + 1)
    # The current is the imaginary part of exp(i w t), so is the field.
    found = 2 / per_period * 1j * np.einsum("t,tr->r", np.exp(-1j * w * t), last)
    exact = -w / 4 * hankel2(0, w * distances)
    # 20 cells per wave: (k h)^2 / 24 = 0.4 % of the phase, 8 rad at most, less what the time step gives back.
    np.testing.assert_allclose(np.abs(found - exact) / np.abs(exact), 0, atol=0.025)


def test_what_is_refused():
    plane, line = Domain(Grid((16, 16))), Domain(Grid((16,)))
    with pytest.raises(ConfigurationError, match="expected 2 axes and polarisation tm or te, or 3 axes"):
        Maxwell(line, [PERIODIC])
    with pytest.raises(ConfigurationError, match="physics.along = z: expected one of x, y, the components of E"):
        Maxwell(plane, [PERIODIC] * 2, polarisation="te", along="z")
    with pytest.raises(ConfigurationError, match="boundaries.x: .* kinds periodic, conductor, absorbing"):
        Maxwell(plane, [(Outflow(), Outflow()), PERIODIC])


def test_sources_and_receivers_follow_a_component():
    """The two components of the te polarisation are each other's mirror image about the diagonal."""
    traces = {}
    for along, places in (("x", [[0.4, 0.55], [0.7, 0.9]]), ("y", [[0.55, 0.4], [0.9, 0.7]])):
        grid = Grid((20, 20))
        model = Maxwell(Domain(grid), [CONDUCTOR] * 2, polarisation="te", along=along)
        places = jnp.asarray(places)
        params = Params(jnp.asarray(1.0), jnp.asarray(1.0), None, places[:1], (jnp.cos,), places[1:])
        start = with_electric(model, params, zeros(model.electric_layouts, grid))
        look = functools.partial(model.receive, params=params)
        traces[along] = run(model, params, start, 0.03, 40, look)[1]
    assert np.abs(traces["x"]).max() > 0.1
    np.testing.assert_allclose(traces["x"], traces["y"], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_gradient_of_the_energy_received_with_respect_to_the_permittivity():
    grid = Grid((16, 18), (0.0, 0.0), (1.6, 1.8))
    model = Maxwell(Domain(grid), [LAYERS, PERIODIC], layer_cells=4)
    places = jnp.asarray([[0.81, 0.5], [0.9, 1.3]])
    direction = jnp.asarray(np.random.default_rng(5).normal(size=grid.shape))

    @jax.jit
    @jax.value_and_grad
    def received(e):
        medium_of = (medium(grid, 4) + e * direction, jnp.asarray(1.0), 0.1 * medium(grid, 6))
        params = Params(*medium_of, places[:1], (jnp.cos,), places[1:])
        start = with_electric(model, params, zeros(model.electric_layouts, grid))
        return jnp.sum(run(model, params, start, 0.05, 30, lambda t, s: model.receive(t, s, params))[1] ** 2)

    step = 1e-5
    difference = float(received(step)[0] - received(-step)[0]) / (2 * step)
    assert float(received(0.0)[1]) == pytest.approx(difference, rel=1e-6)
