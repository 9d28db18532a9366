"""Modes that go out from a plane across a waveguide, and what modes carry through planes: amplitudes, scattering."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_waves import Core, Oscillation
from configurations import changed, refusal
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
PULSE = "exp(-((t - 2)/0.6)**2)*sin(2*pi*(t - 2))"
GUIDE = {
    "model": "maxwell_te",
    "precision": "float64",
    "parameters": {"height": 1.5, "width": 0.3},
    "physics": {
        "layer_cells": 8,
        "mode_sources": [{"direction": "x", "at": 0.9, "frequency": 1.0, "signal": f"height*{PULSE}"}],
    },
    "grid": {"shape": [64, 32], "lower": [0, -0.8], "upper": [3.2, 0.8]},
    "boundaries": {"x": "absorbing", "y": "absorbing"},
    "coefficients": {"permittivity": "where(abs(y) < width/2, 6.25, 1)"},
    "time": {"end": 10.0, "output_every": 5.0, "courant": 0.5},
    "outputs": [
        {"flux": {"through": {"x": x}}, "of": "energy", "name": name}
        for x, name in ((0.7, "behind"), (2.2, "in_front"))
    ],
    "statistics": [
        {"of": name, "frequencies": [0.9, 1.0, 1.1], "name": f"{name}_modes"} for name in ("behind", "in_front")
    ],
    "output": {"report": False, "animation": False},
}


def amplitudes(mapping, tmp_path, names, **options):
    """Amplitudes of modes in planes of a run, of the statistics of these names."""
    run_of = Simulation(validate(changed(mapping, {"output.root": str(tmp_path)}))).run()
    return [sj.mode_amplitudes(run_of.folder, name, **options) for name in names], run_of


WAYS = [
    ("tm", "x"),
    ("te", "-y"),
    *(pytest.param(*way, marks=pytest.mark.slow) for way in (("tm", "-x"), ("tm", "y"), ("te", "x"), ("te", "y"))),
]


@pytest.mark.parametrize(("polarisation", "direction"), WAYS)
def test_a_mode_goes_one_way(polarisation, direction):
    """In the pulse's middle nothing goes back, and the field in front is the signal on its way."""
    along_x = direction[-1] == "x"
    shape, lower, upper = (80, 40), (0.0, -1.0), (4.0, 1.0)
    turn = (lambda u: u) if along_x else (lambda u: u[::-1])
    grid = Grid(turn(shape), turn(lower), turn(upper))
    source = sj.ModeSource(direction, 2.0, 1.0)
    model = Maxwell(Domain(grid), [LAYERS, LAYERS], polarisation=polarisation, mode_sources=[source])

    def core(x, y):
        return jnp.where(abs(y if along_x else x) < 0.15, 6.25, 1.0)

    def signal(t):
        return jnp.exp(-(((t - 2) / 0.8) ** 2)) * jnp.sin(2 * jnp.pi * (t - 2))

    params = Params(core, jnp.asarray(1.0), mode_signals=(signal,))
    zeros = jnp.zeros(grid.shape)
    fields = {name: (zeros,) * len(layouts) for name, layouts in model.component_layouts().items()}
    dt = 0.5 * float(model.stable_dt(None, params))
    number = model.mode_sources[0].electric

    def look(t, state):
        u = state.electric[number] if along_x else state.electric[number].T
        return t, u[18:63:22]

    _, (t, seen) = run(model, params, model.state_from(fields, params), dt, int(11 / dt), look)
    found = np.exp(-2j * np.pi * np.asarray(t)) @ np.asarray(seen).transpose(1, 0, 2) * dt  # (places, cells)
    before, here, after = found if len(direction) == 1 else found[::-1]
    sent = np.exp(-2j * np.pi * np.asarray(t)) @ np.asarray(signal(t)) * dt
    largest = np.argmax(abs(here))
    print(abs(before).max() / abs(after).max(), here[largest] / sent)
    # What the source sends back at its frequency: the phase of a step in time, (w dt)^2 / 48 of H, is 2.6e-4, and
    # what comes back from the layers is less than 1e-4.
    assert abs(before).max() < 3e-4 * abs(after).max()
    # The largest E on the line has the amplitude and the sign of the signal.
    assert here[largest] / sent == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "mode"), [("maxwell_tm", 1), ("maxwell_te", 2)])
def test_a_bar_of_glass_between_plates_scatters_as_it_must(model, mode, tmp_path):
    """Between plates a bar across the guide keeps each mode, which is a pair of plane waves at 56 to 44 degrees.

    Reflection and transmission are those of a film by Fresnel; 56 degrees is Brewster's angle, at which the electric
    field in the plane (`maxwell_te`) is not reflected. One mode goes in, and nothing of lower ones comes out.
    """
    h, thickness, places, frequencies = 0.03, 0.3, (1.2, 3.3), np.asarray([1.0, 1.1, 1.2])
    pulse = "exp(-(t - 3)**2)*sin(2.2*pi*(t - 3))"
    mapping = changed(
        GUIDE,
        {
            "model": model,
            "grid": {"shape": [140, 40], "upper": [4.2, 1.2]},
            "boundaries": {"x": "absorbing", "y": "conductor"},
            "coefficients.permittivity": "where(abs(x - 2.2) < width/2, 2.25, 1)",
            "physics.layer_cells": 18,
            "physics.mode_sources": [{"direction": "x", "at": 0.9, "frequency": 1.1, "mode": mode, "signal": pulse}],
            "time": {"end": 24.0, "output_every": 24.0, "courant": 0.7},
            "outputs": [
                {"flux": {"through": {"x": x}}, "of": "energy", "name": name}
                for x, name in zip(places, ("behind", "in_front"), strict=True)
            ],
            "statistics": [
                {"of": name, "frequencies": frequencies.tolist(), "name": f"{name}_modes"}
                for name in ("behind", "in_front")
            ],
        },
    )
    (port, other), _ = amplitudes(mapping, tmp_path, ("behind_modes", "in_front_modes"), modes=mode + 1)
    inside = np.sqrt((2 * np.pi * frequencies) ** 2 * 2.25 - (2 * np.pi / 1.2) ** 2)
    outside = np.sqrt((2 * np.pi * frequencies) ** 2 - (2 * np.pi / 1.2) ** 2)
    own, other_own = (outside, inside) if model == "maxwell_tm" else (inside / 2.25, outside)
    r = (own - other_own) / (own + other_own)  # of E across the guide
    turned = np.exp(-2j * inside * thickness)
    # The way to the film and back has the wavenumber of the scheme.
    way = port.wavenumber.values[:, mode]
    np.testing.assert_allclose(way, outside, rtol=3e-3)  # (k h)^2 / 24 of k^2 over the part along the guide
    reflected = r * (1 - turned) / (1 - r**2 * turned) * np.exp(-2j * way * (2.05 - places[0]))
    passed = (1 - r**2) * np.exp(-1j * inside * thickness) / (1 - r**2 * turned)
    passed = passed * np.exp(-1j * way * (places[1] - places[0] - thickness))
    found = [(port.backwards / port.forwards).values[:, mode], (other.forwards / port.forwards).values[:, mode]]
    errors = [abs(one - wanted) for one, wanted in zip(found, (reflected, passed), strict=True)]
    print(errors, abs(found[0]) ** 2 + abs(found[1]) ** 2 - 1)
    # What the scheme loses of the phase in the film, twice through it; 19 to 22 cells over the wave.
    k = 2 * np.pi * frequencies * 1.5
    phase = (k * h) ** 2 / 24 * k**2 / inside * 2 * thickness
    assert all(np.all(error < phase) for error in errors)
    # Near the frequency below which this mode does not go on, layers send back up to 0.8 %, which adds to both.
    returned = abs(other.backwards / other.forwards).values[:, mode].max()
    assert returned < 1e-2
    np.testing.assert_allclose(sum(abs(one) ** 2 for one in found), 1, atol=4 * returned)
    # Roundings of a run of a thousand steps: modes do not mix.
    assert float(abs(other.forwards[:, :mode]).max()) < 1e-12 * float(abs(other.forwards[:, mode]).max())


def test_amplitudes_between_plates_are_those_of_one_mode(tmp_path):
    """Downwards, of the second mode: nothing else passes the plane, and its amplitude has all the energy."""
    mapping = changed(
        GUIDE,
        {
            "grid": {"shape": [12, 48], "lower": [0, 0], "upper": [1.2, 2.4]},
            "boundaries": {"x": "conductor", "y": "absorbing"},
            "coefficients.permittivity": 1.0,
            "physics": {
                "layer_cells": 8,
                "mode_sources": [
                    {"direction": "-y", "at": 1.6, "frequency": 1.2, "mode": 1, "signal": "height*sin(7.5*t)**3"}
                ],
            },
            "time": {"end": 2.0, "output_every": 2.0, "courant": 0.5},
            "outputs": [{"flux": {"through": {"y": 1.1}}, "of": "energy", "name": "port"}],
            "statistics": [{"of": "port", "frequencies": [1.2], "name": "modes"}],
        },
    )
    (port,), made = amplitudes(mapping, tmp_path, ["modes"], modes=3)
    sizes = [abs(u.values[0]) for u in (port.forwards, port.backwards)]
    with sj.open_output(made.folder, "modes") as opened:
        power = float(opened.energy_flux_spectrum.isel(time=-1)[0])
    # Roundings of the run: other modes, and what goes up.
    assert sizes[1][1] > 0.1 and max(sizes[1][0], sizes[1][2], sizes[0][0], sizes[0][2]) < 1e-13
    assert sizes[0][1] < 2e-2 * sizes[1][1]
    assert sizes[0][1] ** 2 - sizes[1][1] ** 2 == pytest.approx(power, rel=1e-12)
    with pytest.raises(ConfigurationError, match="modes=40: expected at most 12, the cells of the line"):
        sj.mode_amplitudes(made.folder, "modes", modes=40)


@pytest.mark.slow
def test_amplitudes_carry_the_energy_that_passes(tmp_path):
    (back, front), made = amplitudes(GUIDE, tmp_path, ("behind_modes", "in_front_modes"), modes=2)
    with sj.open_output(made.folder, "in_front_modes") as opened:
        power = opened.energy_flux_spectrum.isel(time=-1).values
    forwards, backwards = (abs(u.values) ** 2 for u in (front.forwards, front.backwards))
    # In the middle of the pulse, where the source's mode is exact, all energy is the mode's.
    assert forwards[1, 0] - backwards[1, 0] == pytest.approx(power[1], rel=1e-4)
    # Beside it the source sends out a little beside the guide.
    np.testing.assert_allclose(forwards[:, 0] - backwards[:, 0], power, rtol=0.02)
    # The step in time: (w dt)^2 / 48 of H, and layers.
    assert abs(back.backwards.values[1, 0]) < 3e-4 * abs(front.forwards.values[1, 0])
    assert float(front.wavenumber[1, 0]) > float(front.wavenumber[1, 1]) > 0


@pytest.mark.slow
def test_gradients_without_stored_states_and_by_the_width_are_right():
    """A guide's energy by a number in its signal, and by what its core is made of."""
    grid = Grid((40, 24), upper=(2.0, 2.0))
    source = sj.ModeSource("x", 0.6, 0.6)
    walls = (SlipWall(), SlipWall())
    model = Maxwell(Domain(grid), [walls, walls], polarisation="te", mode_sources=[source])
    zeros = jnp.zeros(grid.shape)
    fields = {name: (zeros,) * len(layouts) for name, layouts in model.component_layouts().items()}

    def end(numbers, checkpoint):
        height, inside = numbers
        signal = Oscillation(height, jnp.asarray(4.0))
        params = Params(Core(inside, jnp.asarray(1.0)), jnp.asarray(1.0), mode_signals=(signal,))
        state = model.state_from(fields, params)
        schedule = sj.Schedule(0.9, dt=0.015)
        seen = sj.simulate(model, sj.INTEGRATORS["leapfrog"], params, state, schedule, frames=1, checkpoint=checkpoint)
        return jnp.sum(seen.state.electric[1] ** 2) + jnp.sum(seen.state.magnetic[0] ** 3)

    numbers = jnp.asarray([1.3, 5.0])
    found = jax.grad(end)(numbers, "every_step")
    np.testing.assert_allclose(jax.grad(end)(numbers, "reverse"), found, rtol=1e-9)  # roundings of 60 steps back
    for k in range(2):
        step = jnp.zeros(2).at[k].set(1e-4)
        expected = (end(numbers + step, "none") - end(numbers - step, "none")) / 2e-4
        assert float(found[k]) == pytest.approx(float(expected), rel=1e-6)  # of third derivatives, times step^2


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_and_members_have_their_own(tmp_path):
    def run_in(name, changes, **options):
        place = {"output.root": str(tmp_path), "output.folder": str(tmp_path / name), "checkpoint.every_frames": 1}
        Simulation(validate(changed(GUIDE, {**place, **changes}))).run(**options)
        with sj.open_run(tmp_path / name) as fields:
            return fields.load()

    whole = run_in("whole", {})
    run_in("twice", {"time.end": 5.0})
    assert whole.equals(run_in("twice", {}, resume=tmp_path / "twice"))
    several = run_in(
        "several", {"ensemble": {"size": 2, "vary": {"parameters.height": {"values": [1.5, 3.0]}}}, "statistics": []}
    )
    one, other = several.isel(time=1).electric_y.values  # the pulse is on its way
    assert abs(one).max() > 0.1
    np.testing.assert_allclose(other, 2 * one, rtol=0, atol=1e-13)  # roundings of a linear equation, of fields of one


def test_what_cannot_be_is_refused():
    source = "physics.mode_sources"
    own = GUIDE["physics"]["mode_sources"][0]

    def told(changes, **keys):
        return refusal(changed(GUIDE, {source: [{**own, **keys}], **changes}))

    assert f"{source}[0].at = 0.3: expected a number from 0.5 to 2.7, two cells from sides" in told({}, at=0.3)
    assert f"{source}[0].mode = 32: expected a number below 32, the cells of its line" in told({}, mode=32)
    assert "reaches from 0 to 0.1 along y: expected at least 4 cells" in told({}, lower=0.0, upper=0.1)
    assert f"{source}[0].upper = 2: expected a number in the box, from -0.8 to 0.8, or null" in told({}, upper=2.0)
    assert "expected a Cartesian grid of equal cells and physics.order: 2" in told({"physics.order": 4})
    assert f"{source}[0].signal" in told({}, signal="hight*t")
    space = {"model": "maxwell", "grid": {"shape": [20, 20, 20]}, "boundaries": {}, "outputs": [], "statistics": []}
    assert "expected a grid of two axes beside it, as modes in space are not known" in told(space, at=0.5)


@pytest.mark.parametrize(
    ("changes", "keys", "expected"),
    [
        ({}, {"mode": 5}, "mode that does not go on at its frequency"),
        ({}, {"mode": 2}, "mode that is not guided, but reaches the absorbing layers"),
        ({"coefficients.permittivity": "where(abs(y) < 0.1*x, 6.25, 1)"}, {}, "medium that varies along the guide"),
        # Cells of the wedge beside the line of the mode do not count: its own are those of a void.
        (
            {"coefficients.permittivity": "where(abs(y) < 0.1*x, 6.25, 1)"},
            {"lower": 0.2, "upper": 0.5, "mode": 1},
            "mode that does not go on at its frequency",
        ),
        ({"coefficients.conductivity": "where(x > 0.8, 0.1, 0)"}, {}, "conducts"),
    ],
)
def test_a_mode_that_is_none_is_told_of(changes, keys, expected, tmp_path):
    own = GUIDE["physics"]["mode_sources"][0]
    mapping = changed(GUIDE, {"physics.mode_sources": [{**own, **keys}], **changes, "output.root": str(tmp_path)})
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        Simulation(validate(mapping)).run()


def test_python_refuses_what_does_not_fit_together():
    grid = Grid((40, 24))
    model = Maxwell(Domain(grid), [LAYERS, LAYERS], layer_cells=4, mode_sources=[sj.ModeSource("x", 0.5, 3.0)])
    with pytest.raises(ConfigurationError, match=r"has 1 mode source\(s\) and Params 0 signal"):
        model.prepare(Params(jnp.asarray(1.0), jnp.asarray(1.0)))
    for wrong, told in (({"at": "a"}, "at='a'"), ({"direction": "z"}, "direction"), ({"frequency": 0}, "frequency")):
        with pytest.raises(ConfigurationError, match=told):
            sj.ModeSource(**{"direction": "x", "at": 0.5, "frequency": 1.0, **wrong})
    sound = sj.Acoustic(Domain(grid), [LAYERS, LAYERS], layer_cells=4)
    with pytest.raises(ConfigurationError, match="Acoustic has no waveguides; use maxwell_tm or maxwell_te"):
        sound.guided_modes(None, 0, 0.5, 1.0, 0.01, 1, (None, None))
