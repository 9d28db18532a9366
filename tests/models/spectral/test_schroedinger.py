"""The nonlinear Schroedinger equation: solitons, plane waves, a swinging packet, what is conserved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from semilinear import largest, line, on, run

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.spectral.schroedinger import Params, Schroedinger
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stepping.simulate import Schedule, simulate


def start(model, psi):
    """The state of a complex array, or of a function of the coordinates."""
    if callable(psi):
        grid = model.domain.grid
        psi = psi(*np.meshgrid(*(grid.coordinates(axis, 0.5) for axis in range(grid.ndim)), indexing="ij"))
    parts = {"real_part": (jnp.asarray(psi.real),), "imaginary_part": (jnp.asarray(psi.imag),)}
    return model.state_from(parts, None)


def last(seen):
    return np.asarray(seen["real_part"][-1]) + 1j * np.asarray(seen["imaginary_part"][-1])


def focusing(strength=-1.0, potential=None):
    return Params(jnp.asarray(strength), potential)


@pytest.mark.slow
def test_a_soliton_travels_unchanged():
    model = on(line(512, -20, 20), Schroedinger)
    speed, size, strength = 2 * np.pi * 5 / 40, 1.2, -1.3
    width = size * np.sqrt(-strength)

    def soliton(x, t):
        phase = speed * x + 0.5 * (width**2 - speed**2) * t
        return size / np.cosh(width * (x - speed * t)) * np.exp(1j * phase)

    x, end = model.domain.grid.coordinates(0, 0.5), 3.0
    _, seen = run(model, focusing(strength), start(model, lambda x: soliton(x, 0.0)), end, 0.0025)
    # Tails of exp(-1.4 * 17) at the box's edge; steps of 0.005 leave 4.5e-9, of fourth order.
    assert largest(last(seen) - soliton(x, end)) < 4e-10
    np.testing.assert_allclose(seen["density"][-1], np.abs(soliton(x, end)) ** 2, atol=1e-9)


@pytest.mark.slow
def test_a_plane_wave_oscillates_at_its_frequency_in_three_dimensions():
    grid = Grid((8, 12, 16), (0, 0, 0), (1, 2, 3))
    model = on(grid, Schroedinger)
    k, size, strength, end = 2 * np.pi * np.array([1, -2, 3]) / grid.lengths, 0.7, 2.0, 1.0

    def wave(*x):
        return size * np.exp(1j * sum(component * v for component, v in zip(k, x, strict=True)))

    first = start(model, wave)
    _, seen = run(model, focusing(strength), first, end, 0.0025)
    frequency = 0.5 * np.sum(k**2) + strength * size**2
    expected = last({name: u[None] for name, u in model.observe(0.0, first, focusing()).items()})
    # The nonlinear part turns with the wave, at 60 radians per time: steps of 0.01 leave 7e-5, of fourth order.
    assert largest(last(seen) - expected * np.exp(-1j * frequency * end)) < 4e-7


def test_a_packet_swings_in_a_trap_without_changing_its_shape():
    """Schroedinger (1926): the ground state of x^2 / 2, displaced by a, moves as a cos(t)."""
    model = on(line(192, -9, 9), Schroedinger)
    x, reach, end = model.domain.grid.coordinates(0, 0.5), 1.5, 2.0

    def packet(x, t):
        phase = x * reach * np.sin(t) + 0.5 * t - 0.25 * reach**2 * np.sin(2 * t)
        return np.pi**-0.25 * np.exp(-0.5 * (x - reach * np.cos(t)) ** 2 - 1j * phase)

    params = focusing(0.0, jnp.asarray(0.5 * x**2))
    _, seen = run(model, params, start(model, lambda x: packet(x, 0.0)), end, 0.005)
    # Steps of 0.01 leave 2.4e-8, of fourth order.
    assert largest(last(seen) - packet(x, end)) < 2e-9


@pytest.mark.slow
def test_mass_energy_and_momentum_change_by_the_steps_alone():
    grid = Grid((24, 32), (0, 0), (5, 7))
    model = on(grid, Schroedinger)
    params = focusing(1.5)
    first = start(model, lambda x, y: 1 + 0.5 * np.exp(2j * np.pi * (x / 5 - y / 7)) + _bump(x, y))
    begin, drifts = model.diagnostics(0.0, first, params), []
    for dt in (0.02, 0.01):
        _, seen = run(model, params, first, 1.0, dt, look=model.diagnostics)
        drifts.append({name: abs(float(values[-1] - begin[name])) for name, values in seen.items()})
    for name, drift in drifts[1].items():
        # Fourth order: 16 in the limit.
        assert 15 < drifts[0][name] / drift < 17, name
        assert drift < 1e-7 * abs(float(begin[name])), name


@pytest.mark.slow
def test_a_potential_exchanges_momentum_but_not_energy():
    grid = line(96, 0, 10)
    model, x = on(grid, Schroedinger), grid.coordinates(0, 0.5)
    params = focusing(-1.0, jnp.asarray(0.5 * np.cos(2 * np.pi * x / 10)))
    first = start(model, lambda x: np.exp(-((x - 4) ** 2)) + 0j)
    begin = model.diagnostics(0.0, first, params)
    _, seen = run(model, params, first, 1.0, 0.005, look=model.diagnostics)
    assert abs(float(seen["momentum_x"][-1] - begin["momentum_x"])) > 0.01
    np.testing.assert_allclose(seen["energy"][-1], begin["energy"], rtol=1e-8)


def _bump(x, y):
    return 0.4j * np.exp(np.cos(2 * np.pi * x / 5) + np.sin(2 * np.pi * y / 7) - 1)


@pytest.mark.slow
def test_a_run_in_three_dimensions_cut_along_all_axes_equals_that_on_one_device():
    """All modes of every axis are kept in the layout of complex fields, another than that of real ones."""
    grid = Grid((8, 12, 16), (0, 0, 0), (4, 5, 6))
    mesh = make_mesh({"x": 2, "y": 2, "z": 2})
    rough = np.random.default_rng(3).standard_normal((3, *grid.shape))
    params = focusing(0.8, jnp.asarray(rough[2]))

    def runner(domain):
        model = Schroedinger(domain)

        def forward(params, state):
            return simulate(model, INTEGRATORS["etdrk2"], params, state, Schedule(0.1, dt=0.05), frames=1).state

        return model, forward

    model, forward = runner(Domain(grid))
    first = start(model, rough[0] + 1j * rough[1])
    expected = jax.jit(forward, compiler_options=QUICK)(params, first)
    model, forward = runner(decompose(grid, mesh))
    state_specs, params_specs = model.partition_specs(first, params)
    found = jax.jit(
        distribute(forward, mesh, in_specs=(params_specs, state_specs), out_specs=state_specs), compiler_options=QUICK
    )(params, first)
    # Sums of the same numbers in another order.
    np.testing.assert_allclose(found["psi"], expected["psi"], atol=1e-13)
