"""A plane wave that enters a box: nothing outside of an empty one, a cylinder's scattering width, what is refused."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from configurations import changed, refusal
from scipy.special import h2vp, hankel2, jv, jvp
from test_waves_configuration import build
from wave_steps import run

import simjax as sj
from simjax.config import validate
from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.driver.simulation import Simulation
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.maxwell import Maxwell, Params
from simjax.models.waves.pml import AbsorbingSide

LAYERS = (AbsorbingSide(), AbsorbingSide())
WALLS = (SlipWall(), SlipWall())
MEDIUM = jnp.asarray(1.7), jnp.asarray(0.6)


def at_rest(model, params):
    shape = model.domain.grid.shape
    fields = {name: (jnp.zeros(shape),) * len(layouts) for name, layouts in model.component_layouts().items()}
    return model.state_from(fields, params)


def pulse(t):
    return jnp.exp(-(((t - 0.8) / 0.2) ** 2))


WAVES = [
    ("tm", "x", None),
    ("tm", "-y", None),
    ("te", "-x", None),
    ("te", "y", None),
    pytest.param("full", "z", "x", marks=pytest.mark.slow),
    pytest.param("full", "-x", "y", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("polarisation", "direction", "along"), WAVES)
def test_nothing_is_outside_of_an_empty_box(polarisation, direction, along):
    """And inside is the pulse, with the sign that was asked for, at its place."""
    ndim = 3 if polarisation == "full" else 2
    shape = (28, 30, 26)[:ndim]
    grid = Grid(shape, (0.0,) * ndim, tuple(0.04 * n for n in shape))
    wave = sj.IncidentWave((0.24, 0.2, 0.28)[:ndim], (0.8, 0.88, 0.72)[:ndim], direction, along)
    model = Maxwell(Domain(grid), [WALLS] * ndim, polarisation=polarisation, incident=wave)
    params = Params(*MEDIUM, incident=pulse)
    dt = 0.95 * float(model.stable_dt(None, params))
    steps = int(4.0 / dt)
    box = [(6, 20), (5, 22), (7, 18)][:ndim]
    layouts = (*model.electric_layouts, *model.magnetic_layouts)

    def outside(fields):
        sizes = []
        for u, layout in zip(fields, layouts, strict=True):
            inside = tuple(slice(a, b + (place == 0.0)) for (a, b), place in zip(box, layout.offset, strict=True))
            sizes.append(jnp.abs(u.at[inside].set(0.0)).max())
        return jnp.max(jnp.stack(sizes))

    def look(t, state):
        electric = state.electric[model.incident.electric]
        fields = (*state.electric, *state.magnetic)
        return t, outside(fields), electric[tuple((a + b) // 2 for a, b in box)], jnp.abs(electric).max()

    _, (t, leaked, middle, largest) = run(model, params, at_rest(model, params), dt, steps, look)
    print(leaked.max(), largest[-1])
    # Roundings of fields of order one.
    assert leaked.max() < 5e-15 and largest.max() > 0.9
    axis, backwards = "xyz".index(direction[-1]), len(direction) == 2
    begin, end = box[axis]
    cells = end + 1 - (begin + end) // 2 if backwards else (begin + end) // 2 - (begin - 1)
    exact = pulse(t - 0.04 * cells * np.sqrt(1.7 * 0.6))
    # Of eight cells at half the height: the phase is off by (k h)^2 / 24 of some radians.
    np.testing.assert_allclose(middle, exact, rtol=0, atol=0.03)
    # What the end of the wave's own line sends back of what came: 1e-9, of waves of fifteen cells.
    assert largest[-1] < 1e-8


@pytest.mark.slow
def test_a_wave_fills_a_periodic_axis_and_meets_a_film():
    """A film of index 2 as thick as half a wave in it sends nothing back to the places in front of the box."""
    grid = Grid((120, 5), (0.0, 0.0), (3.0, 0.125))
    wave = sj.IncidentWave((0.5, None), (2.5, None), "x")
    model = Maxwell(Domain(grid), [LAYERS, PERIODIC], incident=wave)
    w = 2 * np.pi

    def tone(t):
        rise = jnp.clip(t / 3, 0.0, 1.0)
        return jnp.sin(w * t) * rise * rise * (3 - 2 * rise)

    def reflected(thickness):
        def film(x, y):
            return jnp.where((x > 1.5) & (x < 1.5 + thickness), 4.0, 1.0)

        params = Params(film, jnp.asarray(1.0), incident=tone)
        _, seen = run(model, params, at_rest(model, params), 0.0125, 800, lambda t, state: state.electric[0][16, 2])
        return float(jnp.abs(seen[-80:]).max())

    # 1/4 wave: r = (4 - 1) / (4 + 1); 20 cells a wave in the film.
    assert reflected(0.125) == pytest.approx(0.6, abs=0.01)
    assert reflected(0.25) < 0.02


CONFIGURED = {
    "model": "maxwell_te",
    "precision": "float64",
    "parameters": {"height": 1.5},
    "physics": {
        "layer_cells": 4,
        "along": "x",
        "receivers": [[0.9, 0.6]],
        "incident": {"lower": [0.7, 0.4], "upper": [1.2, 0.8], "direction": "-y", "signal": "height*sin(9*t)**2"},
    },
    "grid": {"shape": [20, 14], "upper": [2.0, 1.4]},
    "boundaries": {"x": "absorbing", "y": "conductor"},
    "time": {"end": 0.8, "output_every": 0.2, "dt": 0.04},
    "output": {"report": False, "animation": False},
}


@pytest.mark.slow
def test_a_run_with_an_incident_wave_goes_on_bit_for_bit(tmp_path):
    def run_in(name, changes, **options):
        place = {"output.root": str(tmp_path), "output.folder": str(tmp_path / name), "checkpoint.every_frames": 1}
        Simulation(validate(changed(CONFIGURED, {**place, **changes}))).run(**options)
        with sj.open_run(tmp_path / name) as fields:
            return fields.load()

    whole = run_in("whole", {})
    run_in("twice", {"time.end": 0.4})
    assert whole.equals(run_in("twice", {}, resume=tmp_path / "twice"))
    # E of a wave along y with E along x, nothing outside of the empty box: roundings.
    last = whole.isel(time=-1)
    assert float(np.abs(last.electric_x).max()) > 0.3
    assert float(np.abs(last.electric_y).max()) < 1e-14
    # A balance would miss what the wave brings, and a medium on the box's sides has no plane wave.
    with pytest.raises(ConfigurationError, match="a balance of energy does not know what physics.incident brings"):
        run_in("balance", {"outputs": [{"balance": "energy"}]})
    with pytest.raises(ConfigurationError, match="a medium that varies, conducts or has poles at the sides of the box"):
        run_in("varies", {"coefficients": {"permittivity": "where(x < 1, 2, 1)"}})


@pytest.mark.slow
def test_the_gradient_by_the_wave_s_height():
    """What is received is linear in it."""
    model, params = build(CONFIGURED)

    @jax.jit
    @jax.value_and_grad
    def received(height):
        own = eqx.tree_at(lambda p: p.incident.values["height"], params, height)
        state, _ = run(model, own, at_rest(model, own), 0.04, 20, lambda t, state: None)
        return model.receive(0.8, state, own)[0]

    value, slope = received(jnp.asarray(1.5))
    assert abs(float(value)) > 0.1
    assert float(slope) == pytest.approx(float(value) / 1.5, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lower": [0.5, 0.4]}, "reaches from 0.5 to 1.2 along x: expected .* from 0.6 to 1.4, two cells from sides"),
        ({"upper": [1.2, None]}, "has null along y: expected null at both ends along a periodic axis across"),
        ({"lower": [0.5]}, "physics.incident.lower = .*: expected 2 number"),
        ({"direction": "z"}, "physics.incident.direction = z: expected an axis of the grid"),
        ({"direction": "u"}, "physics.incident.direction = 'u': expected one of x, -x"),
        ({"along": "y"}, "physics.incident.along = y: expected x, a component of E across the direction"),
        ({"signal": "sin(x)"}, "physics.incident.signal: .*unknown name 'x'"),
    ],
)
def test_incident_waves_that_are_refused(changes, expected):
    message = refusal(changed(CONFIGURED, {f"physics.incident.{name}": value for name, value in changes.items()}))
    assert re.search(expected, message), message


def test_incident_waves_on_other_grids_are_refused():
    message = refusal(changed(CONFIGURED, {"physics.order": 4}))
    assert "physics.incident is given: expected a Cartesian grid of equal cells and physics.order: 2" in message
    with pytest.raises(ConfigurationError, match="Params no signal of it, or the other way round"):
        params = Params(*MEDIUM, incident=pulse)
        Maxwell(Domain(Grid((8, 8))), [WALLS] * 2).prepare(params)


def mie(m, x):
    """Amplitudes of the waves scattered by a cylinder of index m with E along it, of exp(i w t), |n| to 20."""
    n = np.arange(-20, 21)
    inner, slope = jv(n, m * x), m * jvp(n, m * x)
    return -(slope * jv(n, x) - inner * jvp(n, x)) / (slope * hankel2(n, x) - inner * h2vp(n, x))


@pytest.mark.parametrize("kind", ["glass", "metal"])
@pytest.mark.slow
def test_the_widths_of_a_cylinder_are_mie_s(kind):
    """Scattering and absorption by Fourier sums around the box and in it, at 20 cells a wave in the cylinder."""
    h, half, radius, w = 0.025, 1.5, 0.35, 2 * np.pi
    n = round(2 * half / h)
    grid = Grid((n, n), (-half, -half), (half, half))
    wave = sj.IncidentWave((-0.6, -0.6), (0.6, 0.6), "x")
    model = Maxwell(Domain(grid), [LAYERS] * 2, incident=wave)

    def within(inside, outside):
        return lambda x, y: jnp.where(x**2 + y**2 < radius**2, inside, outside)

    drude = sj.DrudePole(within(1.0, 0.0), jnp.asarray(9.0), jnp.asarray(2.0))
    metal = kind == "metal"
    index = np.sqrt(1 - 81 / (w**2 - 2j * w)) if metal else 2.0

    def signal(t):
        return jnp.sin(w * (t - 2)) * jnp.exp(-(((t - 2) / 0.8) ** 2))

    one = jnp.asarray(1.0)
    params = Params(one if metal else within(4.0, 1.0), one, incident=signal, poles=(drude,) if metal else ())
    params = model.averaged(params)
    dt, steps = 0.0125, 1600
    first = {"scattered": n // 2 - 30, "total": n // 2 - 20}  # a line of values of E around the box, and one in it

    def look(t, state):
        seen, (electric,), (mx, my) = {}, state.electric, state.magnetic
        for name, a in first.items():
            b = n - a
            line = slice(a, b + 1)
            seen[name] = [(electric[i, line], 0.5 * (my[i - 1, line] + my[i, line])) for i in (a, b)]
            seen[name] += [(electric[line, j], 0.5 * (mx[line, j - 1] + mx[line, j])) for j in (a, b)]
        return seen

    _, seen = run(model, params, at_rest(model, params), dt, steps, look)
    times = dt * np.arange(1, steps + 1)
    kernel = np.exp(-1j * w * times)
    incident = abs(kernel @ np.asarray(signal(times)))

    def outward(lines):
        """The energy that passes a closed line over that of the wave in a unit of length; H is half a step late."""
        total = 0.0
        for (e, m), sign in zip(lines, (1, -1, -1, 1), strict=True):
            flux = np.real((kernel @ np.asarray(e)) * np.conj((kernel @ np.asarray(m)) * np.exp(0.5j * w * dt)))
            total += sign * h * (flux.sum() - 0.5 * (flux[0] + flux[-1]))
        return total / incident**2

    amplitudes = mie(index, w * radius)
    scattering = 4 / w * np.sum(np.abs(amplitudes) ** 2)
    absorption = -4 / w * np.sum(amplitudes.real) - scattering
    found = outward(seen["scattered"]), -outward(seen["total"])
    print(found, scattering, absorption)
    assert found[0] == pytest.approx(scattering, rel=0.01)
    assert found[1] == pytest.approx(absorption, rel=0.01, abs=0.002)
