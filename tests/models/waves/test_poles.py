"""Dispersive media: exact complex frequencies, energy, time reversal, transmission of films, what is refused."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK
from configurations import changed, refusal
from test_wave_energy import POINTS, check, readings
from test_waves_configuration import build
from wave_steps import LEAPFROG, run, symbol

import simjax as sj
from simjax.config import validate
from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.driver.simulation import Simulation
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.waves.maxwell import Maxwell, Params
from simjax.models.waves.pml import AbsorbingSide

CONDUCTOR = (SlipWall(), SlipWall())
LAYERS = (AbsorbingSide(), AbsorbingSide())
EPS, MU = 1.7, 0.6


compiled = functools.partial(jax.jit, compiler_options=QUICK)


def places(model):
    """Places along x of E_z and of H_y."""
    layouts = model.electric_layouts[0], model.magnetic_layouts[1]
    return (model.domain.coordinates(layout.offset)[0] for layout in layouts)


def pole(kind, strength=2.3):
    numbers = {
        "drude": (sj.DrudePole, 5.0, 0.7),
        "lossless drude": (sj.DrudePole, 5.0),
        "lorentz": (sj.LorentzPole, 7.0, 0.9),
        "lossless lorentz": (sj.LorentzPole, 7.0),
        "debye": (sj.DebyePole, 0.3),
    }[kind]
    return numbers[0](strength if callable(strength) else jnp.asarray(strength), *map(jnp.asarray, numbers[1:]))


def added(one, w):
    """What a pole adds to the permittivity at a complex frequency."""
    s = np.asarray(one.strength)
    if isinstance(one, sj.DebyePole):
        return s / (1 + 1j * w * float(one.relaxation_time))
    g, square = 0.0 if one.damping is None else float(one.damping), float(one.frequency) ** 2
    bound = square if isinstance(one, sj.LorentzPole) else 0.0
    return s * square / (bound - w**2 + 1j * w * g)


def root(function, guess):
    """A complex root by secants."""
    a, b = guess, guess * (1 + 1e-4)
    for _ in range(60):
        fa, fb = function(a), function(b)
        if fb == fa or abs(b - a) < 1e-15 * abs(b):
            break
        a, b = b, b - fb * (b - a) / (fb - fa)
    return b


def warped(w, dt):
    """The frequency that a pole sees: changes over a step, divided by means of its ends."""
    return 2 / dt * np.tan(w * dt / 2)


def numerical_frequency(poles, k, h, dt, guess):
    def mismatch(w):
        permittivity = EPS + sum(added(one, warped(w, dt)) for one in poles)
        return (2 / dt * np.sin(w * dt / 2)) ** 2 * MU * permittivity - symbol(k, h, 2) ** 2

    return root(mismatch, guess)


def kept(one, field, w):
    """What a pole keeps beside a field, complex."""
    if isinstance(one, sj.DebyePole):
        return (field / (1 + 1j * w * float(one.relaxation_time)),)
    ratio = added(one, w) / np.asarray(one.strength) * field  # the displacement of a Lorentz pole
    rate = 1j * w / float(one.frequency) * ratio
    return (rate,) if isinstance(one, sj.DrudePole) else (ratio, rate)


@pytest.mark.parametrize(
    "kinds", [["drude"], ["lorentz"], ["debye"], ["lossless lorentz", "lossless drude", "debye", "lorentz"]]
)
def test_standing_waves_have_the_scheme_s_exact_complex_frequency(kinds):
    """And follow what each pole keeps, to rounding."""
    n, steps, k = 24, 60, 2 * np.pi
    grid = Grid((n, 3))
    model, poles = Maxwell(Domain(grid), [PERIODIC] * 2), tuple(map(pole, kinds))
    params = Params(jnp.asarray(EPS), jnp.asarray(MU), poles=poles)
    start = model.state_from({"electric": (jnp.zeros(grid.shape),), "magnetic": (jnp.zeros(grid.shape),) * 2}, params)
    dt = 0.9 * float(model.stable_dt(start, params))
    w = numerical_frequency(poles, k, 1 / n, dt, 8.0)
    seen = warped(w, dt)
    x, across = (
        model.domain.coordinates(layout.offset)[0] for layout in (model.electric_layouts[0], model.magnetic_layouts[1])
    )
    shape = jnp.cos(k * x) * jnp.ones(grid.shape)
    # mu dH_y/dt = dE_z/dx over a step about t = 0, of which H is taken half a step before.
    magnetic = -symbol(k, 1 / n, 2) / (MU * 2j / dt * np.sin(w * dt / 2)) * np.exp(-0.5j * w * dt)
    fields = {
        "electric": (shape,),
        "magnetic": (jnp.zeros(grid.shape), magnetic.real * jnp.sin(k * across) * jnp.ones(grid.shape)),
    }
    start = model.state_from(fields, params)
    begun = tuple((tuple(float(np.real(p)) * shape for p in kept(one, 1.0, seen)),) for one in poles)
    start = eqx.tree_at(lambda s: (s.poles, s.lag), start, (begun, jnp.asarray(0.5 * dt)))
    end, found = run(model, params, start, dt, steps, lambda t, state: (state.electric[0][0, 0], state.poles))
    factors = np.exp(1j * w * dt * np.arange(1, steps + 1))
    # Roundings of 60 steps, and of the root.
    np.testing.assert_allclose(found[0], factors.real, rtol=0, atol=1e-11)
    for one, ((*parts,),) in zip(poles, found[1], strict=True):
        for part, amplitude in zip(parts, kept(one, 1.0, seen), strict=True):
            np.testing.assert_allclose(part[:, 0, 0], (amplitude * factors).real, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["drude", "lorentz", "debye"])
def test_the_frequency_in_a_medium_is_of_second_order(kind):
    """w^2 mu eps(w) = k^2, of the frequency to which the test above holds the steps."""
    poles, k = (pole(kind),), 2 * np.pi
    exact = root(lambda w: w**2 * MU * (EPS + added(poles[0], w)) - k**2, 8.0)
    errors = [
        abs(numerical_frequency(poles, k, 1 / n, 0.9 * np.sqrt(EPS * MU / 2) / n, exact) - exact) for n in (24, 48)
    ]
    print(errors)
    assert errors[1] < 0.01 * abs(exact)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.03)


RNG = np.random.default_rng(7)
ALL = ("drude", "lorentz", "debye")


def rough(shape):
    return jnp.asarray(RNG.random(shape))


def noise(model, params):
    shape = model.domain.grid.shape
    fields = {name: tuple(rough(shape) - 0.5 for _ in layouts) for name, layouts in model.component_layouts().items()}
    state = model.state_from(fields, params)
    poles = jax.tree.map(lambda u: rough(shape) - 0.5, state.poles)
    return model.constrain(0.0, 0.0, eqx.tree_at(lambda s: s.poles, state, poles), params)


@pytest.mark.parametrize(
    ("shape", "polarisation", "rings"),
    [
        ((8, 12), "tm", False),
        ((8, 12), "te", True),
        ((6, 8, 5), "full", False),
    ],
)
@pytest.mark.slow
def test_energy_stays_and_steps_go_back_without_damping(shape, polarisation, rings):
    """At the longest step there is without poles, with resonances that it does not resolve."""
    grid = Grid(shape, axisymmetric=rings)
    model = Maxwell(Domain(grid), [CONDUCTOR] * len(shape), polarisation=polarisation)
    kinds = [pole(kind, rough(shape)) for kind in ("lossless lorentz", "lossless drude")]
    poles = (*kinds, eqx.tree_at(lambda p: p.frequency, kinds[0], jnp.asarray(60.0)))
    params = Params(1 + rough(shape), 1 + rough(shape), poles=poles)
    assert model.irreversible(params) == ""
    start = noise(model, params)
    dt = 0.999 * model.stable_dt(start, params)
    end, energy = run(model, params, start, dt, 60, lambda t, state: model.energy(t, state, params))
    assert 0 < energy[0] < np.inf
    # Rounding: sums of some hundred numbers over 60 steps.
    np.testing.assert_allclose(energy, energy[0], rtol=1e-13)
    back, _ = run(model, params, end, -dt, 60, lambda t, state: None)
    for found, begun in zip(
        jax.tree.leaves((back.electric, back.poles)), jax.tree.leaves((start.electric, start.poles)), strict=True
    ):
        np.testing.assert_allclose(found, begun, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_balance_closes_in_layers_with_sources_conduction_and_damping():
    shape = (24, 20)
    model = Maxwell(Domain(Grid(shape)), [(AbsorbingSide(), SlipWall()), LAYERS], polarisation="te", layer_cells=6)
    poles = tuple(pole(kind, rough(shape)) for kind in ALL)
    params = Params(1 + rough(shape), 1 + rough(shape), 0.2 * rough(shape), *POINTS, poles=poles)
    fields = {"electric": (rough(shape) - 0.5,) * 2, "magnetic": (0.0,)}
    found = readings(model, params, fields, 100)
    check(found)
    bare = readings(model, eqx.tree_at(lambda p: p.poles, params, ()), fields, 100)
    assert found["made_by_conduction"] < 2 * bare["made_by_conduction"] < 0


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.slow
def test_heat_of_damping_is_what_fields_and_poles_lose(kind):
    """Uniform fields in a periodic box, which nothing else changes; the energy begins with that of E alone."""
    model = Maxwell(Domain(Grid((3, 2))), [PERIODIC] * 2)
    params = Params(jnp.asarray(2.0), jnp.asarray(1.0), poles=(pole(kind, jnp.full((3, 2), 1.1)),))
    found = readings(model, params, {"electric": (1.5,), "magnetic": (0.0,) * 2}, 40, lambda number: 0.05)
    check(found)
    assert found["at_start"] == pytest.approx(2.25, rel=1e-14)
    # What is left: of a metal nothing, else E is reduced as if the charge stayed, eps E + s E = eps E_0, but for
    # what still oscillates.
    left = {"drude": 0.0, "lorentz": 2.25 * 2.0 / 3.1, "debye": 2.25 * 2.0 / 3.1}[kind]
    assert found["now"] - left == pytest.approx(found["at_start"] - left + found["made_by_conduction"], abs=1e-13)
    assert left < found["now"] < 0.95 * found["at_start"]


def spectra(poles, end):
    """Fourier transforms of a pulse behind a film from 1.5 to 1.8, by angular frequency."""
    grid = Grid((400, 2), (0.0, 0.0), (4.0, 0.02))
    model = Maxwell(Domain(grid), [LAYERS, PERIODIC])
    params = Params(jnp.asarray(1.0), jnp.asarray(1.0), receivers=None, poles=poles)
    params = model.averaged(params)

    def pulse(x):
        return jnp.exp(-(((x - 0.8) / 0.08) ** 2)) * jnp.ones(grid.shape)

    x, halfway = (
        model.domain.coordinates(layout.offset)[0] for layout in (model.electric_layouts[0], model.magnetic_layouts[1])
    )
    fields = {"electric": (pulse(x),), "magnetic": (jnp.zeros(grid.shape), -pulse(halfway))}
    dt = 0.006
    _, seen = run(
        model, params, model.state_from(fields, params), dt, int(end / dt), lambda t, s: s.electric[0][250, 0]
    )
    w = np.linspace(2.0, 14.0, 25)
    t = dt * np.arange(1, len(seen) + 1)
    return w, np.exp(-1j * w[:, None] * t) @ np.asarray(seen)


@pytest.mark.parametrize(
    "film",
    [
        lambda s: sj.DrudePole(s, jnp.asarray(9.3), jnp.asarray(1.2)),
        lambda s: sj.LorentzPole(s, jnp.asarray(8.0), jnp.asarray(2.0)),
        lambda s: sj.DebyePole(s, jnp.asarray(0.12)),
    ],
    ids=ALL,
)
@pytest.mark.slow
def test_transmission_of_a_film_follows_its_index(film):
    """Amplitude and phase against 1 / (cos d + i/2 (n + 1/n) sin d), d = n w thickness, over a band."""
    thickness = 0.303  # ends within cells
    one = film(lambda x, y: jnp.where((x > 1.5) & (x < 1.5 + thickness), 1.4, 0.0))
    w, through = spectra((one,), 24.0)
    _, free = spectra((), 24.0)
    n = np.sqrt(1 + added(eqx.tree_at(lambda p: p.strength, one, 1.4), w) + 0j)
    phase = n * w * thickness
    exact = np.exp(1j * w * thickness) / (np.cos(phase) + 0.5j * (n + 1 / n) * np.sin(phase))
    error = np.abs(through / free - exact)
    print(error.max(), np.abs(exact).min(), np.abs(exact).max())
    assert np.ptp(np.abs(exact)) > 0.3
    # At least 20 cells in a wave in the film; the one per cent of what comes in.
    assert error.max() < 0.01


@pytest.mark.slow
def test_gradients_by_the_numbers_of_poles():
    """Against differences, of a field received behind layers; in single precision to its digits."""
    grid = Grid((16, 18), (0.0, 0.0), (1.6, 1.8))
    model = Maxwell(Domain(grid), [LAYERS, PERIODIC], layer_cells=4)
    spots, poles = jnp.asarray([[0.81, 0.5], [0.9, 1.3]]), tuple(pole(kind, rough(grid.shape)) for kind in ALL)
    params = Params(jnp.asarray(1.0), jnp.asarray(1.0), None, spots[:1], POINTS[1][:1], spots[1:], poles)
    arrays, rest = eqx.partition(params, eqx.is_array)

    def received(poles, dtype=jnp.float64):
        given = jax.tree.map(lambda u: u.astype(dtype), (arrays, poles))
        params, dt = eqx.tree_at(lambda p: p.poles, eqx.combine(given[0], rest), given[1]), jnp.asarray(0.05, dtype)
        prepared = model.prepare(params)
        zeros = jnp.zeros(grid.shape, dtype)
        start = model.state_from({"electric": (zeros,), "magnetic": (zeros,) * 2}, params)

        def step(carry, _):
            t, state = carry
            state = LEAPFROG.step(model, t, dt, state, params, prepared)
            return (t + dt, state), model.receive(t, state, params)

        return jnp.sum(jax.lax.scan(step, (jnp.zeros((), dtype), start), None, length=30)[1] ** 2)

    value, gradient = compiled(jax.value_and_grad(received))(poles)
    assert all(float(jnp.abs(leaf).max()) > 1e-7 * float(value) for leaf in jax.tree.leaves(gradient))
    value_of = compiled(received)
    single = compiled(received, static_argnums=1)(poles, jnp.float32)
    assert single.dtype == jnp.float32
    # Thirty steps of roundings of numbers of order one.
    assert float(single) == pytest.approx(float(value), rel=1e-5)
    leaves, tree = jax.tree.flatten(poles)
    for number, leaf in enumerate(leaves):
        direction = jnp.asarray(RNG.normal(size=leaf.shape))

        def moved(step, number=number, direction=direction):
            changed = [u + step * direction if k == number else u for k, u in enumerate(leaves)]
            return value_of(jax.tree.unflatten(tree, changed))

        difference = float(moved(1e-5) - moved(-1e-5)) / 2e-5
        assert float(jnp.sum(jax.tree.leaves(gradient)[number] * direction)) == pytest.approx(difference, rel=1e-5)


CONFIGURED = {
    "model": "maxwell_te",
    "precision": "float64",
    "parameters": {"plasma": 8.0, "loss": 0.3},
    "physics": {
        "layer_cells": 3,
        "poles": [
            {"drude": {"strength": "where(x < 0.7, 1, 0)", "frequency": "plasma", "damping": "2*loss"}},
            {"lorentz": {"strength": 2, "frequency": 12}},
            {"debye": {"strength": "loss", "relaxation_time": 0.2}},
        ],
    },
    "grid": {"shape": [16, 12], "upper": [1.6, 1.2]},
    "boundaries": {"x": "absorbing", "y": "conductor"},
    "initial": {"magnetic": "exp(-20*((x - 0.9)**2 + (y - 0.5)**2))"},
    "time": {"end": 0.4, "output_every": 0.1, "dt": 0.02},
}


def test_poles_of_a_configuration():
    drude, lorentz, debye = build(CONFIGURED)[1].poles
    assert isinstance(drude, sj.DrudePole) and isinstance(lorentz, sj.LorentzPole) and isinstance(debye, sj.DebyePole)
    assert (float(drude.frequency), float(drude.damping), float(debye.strength)) == (8.0, 0.6, 0.3)
    assert lorentz.damping is None and lorentz.strength.dtype == jnp.float64
    model, params = build(CONFIGURED)
    # Of E_x, at centres along x, all of a cell is on one side of 0.7, a face; of E_y half is.
    across, along = model.averaged(params).poles[0].strength
    np.testing.assert_allclose(across[:, 3], [1.0] * 7 + [0.0] * 9, rtol=0, atol=0.01)
    np.testing.assert_allclose(along[:, 3], [1.0] * 7 + [0.5] + [0.0] * 8, rtol=0, atol=0.01)


@pytest.mark.parametrize(
    ("poles", "expected"),
    [
        ([{"drude": {"strength": -1, "frequency": 3}}], "poles[0].drude.strength = -1: expected a finite number >= 0"),
        ([{"drude": {"strength": 1}}], "physics.poles[0].drude.frequency is missing: plasma frequency"),
        ([{"lorentz": {"strength": 1, "frequency": "x"}}], "physics.poles[0].lorentz.frequency: .*unknown name 'x'"),
        (
            [{"lorentz": {"strength": 1, "frequency": "-plasma"}}],
            "frequency = '-plasma' is -8: expected a finite number > 0",
        ),
        ([{"debye": {"strength": "z", "relaxation_time": 1}}], "physics.poles[0].debye.strength: .*unknown name 'z'"),
        ([{"lorenz": {"strength": 1, "frequency": 3}}], "did you mean 'lorentz'"),
    ],
)
def test_poles_that_are_refused(poles, expected):
    message = refusal(changed(CONFIGURED, {"physics.poles": poles}))
    assert re.search(expected.replace("[0]", r"\[0\]"), message), message


def test_poles_in_python_that_are_refused():
    with pytest.raises(ConfigurationError, match="LorentzPole.frequency=0: expected a finite number above 0"):
        sj.LorentzPole(jnp.asarray(1.0), frequency=jnp.asarray(0.0))
    with pytest.raises(ConfigurationError, match="DrudePole.strength=-1: expected a finite number at least 0"):
        sj.DrudePole(jnp.asarray([1.0, -1.0]), frequency=jnp.asarray(3.0))
    with pytest.raises(ConfigurationError, match="DebyePole.relaxation_time=-2"):
        sj.DebyePole(jnp.asarray(1.0), relaxation_time=jnp.asarray(-2.0))


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_with_its_balance(tmp_path):
    def run_in(name, changes, **options):
        place = {"output.root": str(tmp_path), "output.folder": str(tmp_path / name), "output.report": False}
        place |= {"output.animation": False, "outputs": [{"balance": "energy"}], "checkpoint.every_frames": 1}
        Simulation(validate(changed(CONFIGURED, {**place, **changes}))).run(**options)
        with sj.open_run(tmp_path / name) as fields, sj.open_output(tmp_path / name, "balance") as balance:
            return fields.load(), balance.load()

    whole, balance = run_in("whole", {})
    run_in("twice", {"time.end": 0.2})
    parts, again = run_in("twice", {}, resume=tmp_path / "twice")
    assert whole.equals(parts) and balance.equals(again)
    last = balance.isel(time=-1)
    assert float(last.energy_made_by_conduction) < -1e-3 * float(last.energy_at_start)
    assert abs(float(last.energy_residual)) < 1e-14


@pytest.mark.parametrize("kind", ["lorentz", "debye"])
@pytest.mark.slow
def test_the_displacement_is_what_currents_carried(kind):
    """In a periodic box the sum of eps E and of what charges add changes by the sources' currents alone."""
    grid = Grid((10, 12))
    model, poles = Maxwell(Domain(grid), [PERIODIC] * 2), (pole(kind, rough(grid.shape)),)
    params = Params(jnp.asarray(EPS), jnp.asarray(MU), None, POINTS[0][:1], (jnp.cos,), poles=poles)
    zero = jnp.zeros(grid.shape)
    start = model.state_from({"electric": (zero,), "magnetic": (zero,) * 2}, params)
    end, _ = run(model, params, start, 0.03, 20, lambda t, state: None)
    strength = model.at_edges(poles[0].strength)[0]
    displacement = jnp.sum(EPS * end.electric[0] + strength * end.poles[0][0][0]) / grid.cells
    carried = 0.03 * np.cos(0.03 * (np.arange(20) + 0.5)).sum()
    # Weights of a point add up to one to 1e-3 and are the same in every step.
    weights = model.prepare(params).sources.weights.sum() * EPS / grid.cells
    assert float(displacement) == pytest.approx(-carried * float(weights), rel=1e-12)
