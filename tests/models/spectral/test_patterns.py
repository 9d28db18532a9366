"""Phase fields and pattern-forming equations: rates of small waves, interfaces, what is conserved and what descends."""

import jax.numpy as jnp
import numpy as np
import pytest
from semilinear import largest, line, numbers, on, run, sample

from simjax.grid import Grid
from simjax.models.spectral.patterns import GrayScott, SwiftHohenberg
from simjax.models.spectral.phase_fields import AllenCahn, CahnHilliard


def waves(grid, modes):
    """cos(2 pi m . x / L) of several modes, stacked, at cell centres."""
    x = np.meshgrid(*(grid.coordinates(axis, 0.5) for axis in range(grid.ndim)), indexing="ij")
    turns = [[m * v / length for m, v, length in zip(mode, x, grid.lengths, strict=True)] for mode in modes]
    return np.stack([np.cos(2 * np.pi * sum(turn)) for turn in turns])


def amplitudes(field, shapes):
    """Of each of the waves `shapes` in a field."""
    return 2 * np.mean(field * shapes, axis=tuple(range(1, shapes.ndim)))


def squares(grid, modes):
    """|k|^2 of modes."""
    return np.array([sum((2 * np.pi * m / n) ** 2 for m, n in zip(mode, grid.lengths, strict=True)) for mode in modes])


def random_field(shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


# ---- Swift-Hohenberg


@pytest.mark.slow
def test_waves_of_swift_hohenberg_grow_and_decay_at_the_rates_of_the_linear_equation():
    grid = Grid((32, 40), (0, 0), (10 * np.pi, 12 * np.pi))
    modes, small, end = [(5, 0), (0, 4), (3, 5), (6, 2), (7, 7)], 1e-6, 2.0
    model, shapes = on(grid, SwiftHohenberg), waves(grid, modes)
    params = numbers(SwiftHohenberg, growth=0.3, wavenumber=1.1)
    _, seen = run(model, params, sample(model, u=lambda x, y: small * shapes.sum(axis=0)), end, 0.5)
    rates = np.log(amplitudes(seen["u"][0], shapes) / small) / end
    # The linear part is exact whatever the step; cubes of 1e-6 are 1e-12 of it.
    np.testing.assert_allclose(rates, 0.3 - (1.1**2 - squares(grid, modes)) ** 2, atol=1e-10)


@pytest.mark.slow
def test_stripes_and_hexagons_of_swift_hohenberg_descend_in_free_energy():
    grid = Grid((24, 32), (0, 0), (8 * np.pi, 9 * np.pi))
    model = on(grid, SwiftHohenberg)
    start = sample(model, u=lambda x, y: 0.3 * random_field(grid.shape))
    params = numbers(SwiftHohenberg, growth=0.3, asymmetry=0.7)
    _, seen = run(model, params, start, 40.0, 0.1, frames=20, look=model.diagnostics)
    energy = np.append(model.diagnostics(0.0, start, params)["free_energy"], seen["free_energy"])
    assert np.all(np.diff(energy) < 0) and energy[-1] < -10


def test_rolls_of_swift_hohenberg_have_the_amplitude_of_weakly_nonlinear_theory():
    model = on(line(32, 0, 4 * np.pi), SwiftHohenberg)
    growth = 0.01
    _, seen = run(
        model, numbers(SwiftHohenberg, growth=growth), sample(model, u=lambda x: 0.1 * np.cos(x)), 1000.0, 1.0
    )
    # u = 2 sqrt(r / 3) cos(x); the third harmonic, 1/64 of the cube, changes it by about r / 500 in proportion.
    np.testing.assert_allclose(np.max(seen["u"]), 2 * np.sqrt(growth / 3) * np.cos(np.pi / 16), rtol=1e-3)


# ---- Gray-Scott


def mixed_state(feed, kill):
    """Concentrations (u, v) of the steady reaction with catalyst, and the Jacobian of the reaction there."""
    v = (feed + np.sqrt(feed**2 - 4 * feed * (feed + kill) ** 2)) / (2 * (feed + kill))
    u = (feed + kill) / v
    return u, v, np.array([[-(v**2) - feed, -2 * u * v], [v**2, 2 * u * v - (feed + kill)]])


def test_turing_modes_of_gray_scott_grow_and_decay_at_the_eigenvalues_of_the_linearised_reaction():
    feed, kill, diffusivities, small, end = 0.06, 0.062, np.diag([4e-5, 1e-5]), 1e-7, 20.0
    grid = Grid((32, 40), (0, 0), (0.5, 0.6))
    modes = [(4, 0), (3, 3), (5, 4), (0, 7), (7, 5)]
    u, v, jacobian = mixed_state(feed, kill)
    model, shapes = on(grid, GrayScott), waves(grid, modes)
    rates, vectors = [], []
    for square in squares(grid, modes):
        values, columns = np.linalg.eig(jacobian - square * diffusivities)
        chosen = np.argmax(values.real)
        # Newer numpy has complex numbers for real ones too.
        assert np.imag(values[chosen]) == 0
        rates.append(np.real(values[chosen]))
        vectors.append(np.real(columns[:, chosen]))
    assert max(rates) > 0.02 and min(rates) < -0.01
    disturbance = small * np.einsum("mc,mxy->cxy", vectors, shapes)
    start = sample(model, u=lambda x, y: u + disturbance[0], v=lambda x, y: v + disturbance[1])
    params = numbers(GrayScott, diffusivity_u=4e-5, diffusivity_v=1e-5, feed=feed, kill=kill)
    _, seen = run(model, params, start, end, 0.25)
    for name, component in (("u", 0), ("v", 1)):
        first = small * np.array(vectors)[:, component]
        found = np.log(amplitudes(seen[name][0], shapes) / first) / end
        # Products of waves of 1e-7 in the second-order terms; steps leave (0.1 / 4)^4 / 100 of a rate of 0.1.
        np.testing.assert_allclose(found, rates, atol=1e-8)


def test_gray_scott_without_catalyst_fills_up_with_fuel():
    model = on(line(8, 0, 1), GrayScott)
    _, seen = run(model, numbers(GrayScott), sample(model, u=lambda x: 0.2 + 0 * x, v=lambda x: 0 * x), 30.0, 10.0)
    # 1 - 0.8 exp(-F t): the supply is exact, whatever the step.
    np.testing.assert_allclose(seen["u"][0], 1 - 0.8 * np.exp(-0.04 * 30), rtol=1e-14)


# ---- phase fields


def test_flat_interfaces_of_allen_cahn_stand_still():
    """tanh(x / sqrt(2) epsilon), there and back."""
    model = on(line(512, 0, 1), AllenCahn)
    epsilon = 0.015

    def profile(x):
        scale = np.sqrt(2) * epsilon
        return np.tanh((x - 0.25) / scale) - np.tanh((x - 0.75) / scale) - 1

    params = numbers(AllenCahn, epsilon=epsilon)
    _, seen = run(model, params, sample(model, u=profile), 20.0, 0.1)
    x = model.domain.grid.coordinates(0, 0.5)
    # Twenty relaxation times. Between the fronts their sum is off by 4 exp(-sqrt(2) 0.25 / epsilon) = 2e-10; the
    # spectrum ends at exp(-pi^2 128 sqrt(2) epsilon) = 2e-12.
    assert largest(seen["u"][0] - profile(x)) < 1e-9


@pytest.mark.slow
def test_an_interface_of_allen_cahn_moves_by_its_curvature_and_values_stay_within_bounds():
    epsilon, radius, end, frames = 0.05, 0.6, 0.08, 4
    model = on(Grid((96, 96), (-1, -1), (1, 1)), AllenCahn)
    start = sample(model, u=lambda x, y: np.tanh((radius - np.hypot(x, y)) / (np.sqrt(2) * epsilon)))
    # Time in units of epsilon^2 M: the area inside shrinks at 2 pi.
    params = numbers(AllenCahn, mobility=1 / epsilon**2, epsilon=epsilon)

    def look(t, state, params):
        u = model.to_grid(state["u"])
        return 4 * jnp.mean((1 + u) / 2), jnp.max(jnp.abs(u))

    _, (area, bound) = run(model, params, start, end, 0.2 * epsilon**2, frames=frames, look=look)
    rate = -np.diff(area) / (end / frames) / (2 * np.pi)
    # The law is that of thin interfaces: off by about (epsilon / radius)^2, 0.01 at the end.
    assert np.all(np.abs(rate - 1) < (epsilon / 0.45) ** 2)
    # The equation keeps |u| <= 1; the truncated one overshoots by its truncation, exp(-pi^2 24 epsilon / sqrt(2)).
    assert np.all(bound < 1 + 5e-4)


def test_values_of_allen_cahn_stay_within_bounds():
    model = on(line(128, 0, 1), AllenCahn)

    def rough(x):
        field = sum(np.cos(2 * np.pi * (k * x + 0.3 * k**2)) for k in range(1, 9))
        return field / np.abs(field).max()

    params = numbers(AllenCahn, mobility=1.0, epsilon=0.05)

    def look(t, state, params):
        return jnp.max(jnp.abs(model.to_grid(state["u"])))

    _, bound = run(model, params, sample(model, u=rough), 10.0, 0.1, frames=20, look=look)
    # Interfaces of 0.05 over 32 modes: truncated at exp(-pi^2 32 0.05 sqrt(2)) = 2e-10.
    assert np.all(bound < 1 + 1e-9)


@pytest.mark.parametrize("dt", [pytest.param(4e-4, marks=pytest.mark.slow), 2e-3])
def test_cahn_hilliard_conserves_its_mean_and_descends_in_free_energy(dt):
    """Also with steps far above those that resolve the motion: M dt / epsilon^2 = 2."""
    grid = Grid((32, 48), (0, 0), (1, 1.5))
    model, params = on(grid, CahnHilliard), numbers(CahnHilliard, epsilon=0.03)
    start = sample(model, u=lambda x, y: 0.1 + 0.2 * random_field(grid.shape))
    _, seen = run(model, params, start, 0.08, dt, frames=10, look=model.diagnostics)
    first = model.diagnostics(0.0, start, params)
    # The mean is a coefficient that no term touches: not even a rounding.
    np.testing.assert_array_equal(seen["mean_u"], first["mean_u"])
    assert np.all(np.diff(np.append(first["free_energy"], seen["free_energy"])) < 0)


def test_waves_of_cahn_hilliard_separate_at_the_rate_of_the_linear_equation():
    grid, modes, small, mean, epsilon, end = line(48, 0, 1), [(2,), (5,), (6,)], 1e-7, 0.2, 0.03, 4e-3
    model, shapes = on(grid, CahnHilliard), waves(grid, modes)
    start = sample(model, u=lambda x: mean + small * shapes.sum(axis=0))
    _, seen = run(model, numbers(CahnHilliard, epsilon=epsilon), start, end, end / 400)
    k2 = squares(grid, modes)
    rates = k2 * (1 - 3 * mean**2 - epsilon**2 * k2)
    found = np.log(amplitudes(seen["u"][0], shapes) / small) / end
    # Two thirds of it are taken explicitly: fourth order in the steps; products of waves are 1e-7 of them.
    np.testing.assert_allclose(found, rates, rtol=2e-6)
