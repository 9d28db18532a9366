"""Three-dimensional flow in a Fourier basis: exact solutions, the Taylor-Green vortex, conservation, cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_runs import compiled, diagnosed, run, seen_in, started, transforms

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.spectral_velocity import SpectralVelocity, project
from simjax.models.flow.fourier.vorticity import Vorticity

TWO_PI = 2 * np.pi


def box(shape, forces=None, **options):
    return SpectralVelocity(Domain(Grid(shape, upper=(TWO_PI,) * 3)), None, forces, **options)


def params(viscosity=0.0, drag=0.0):
    return Params(jnp.asarray(viscosity), jnp.asarray(drag))


def swirl(t, x, viscosity, mean):
    """A Beltrami flow (A, B, C), curl u = u, carried by a mean velocity: an exact solution that decays by e^(-nu t)."""
    x, y, z = (v - m * t for v, m in zip(x, mean, strict=True))
    a, b, c = 1.0, 0.7, 0.4
    decay = np.exp(-viscosity * t)
    waves = (a * jnp.sin(z) + c * jnp.cos(y), b * jnp.sin(x) + a * jnp.cos(z), c * jnp.sin(y) + b * jnp.cos(x))
    return tuple(m + w * decay for m, w in zip(mean, waves, strict=True))


def field(model, values):
    shape = model.domain.grid.shape
    return {"velocity": tuple(jnp.broadcast_to(u, shape) for u in values)}


def eddies(model):
    """Random divergence-free waves |k_i| <= 2."""
    rng = np.random.default_rng(0)
    x = model.domain.coordinates((0.5,) * 3)
    components = []
    for _ in range(3):
        waves = rng.integers(-2, 3, (6, 3))
        components.append(
            sum(jnp.sin(sum(float(k) * v for k, v in zip(wave, x, strict=True)) + rng.uniform(0, 6)) for wave in waves)
        )
    return started(model, field(model, components))


def divergence(model, state):
    k = model.basis.wavenumbers(jnp.float64)
    return sum(model.derivative(v, u) for v, u in zip(k, state["velocity"], strict=True))


@pytest.mark.slow
def test_advected_beltrami_flow_is_solved_to_time_stepping_error():
    model, nu, mean, end = box((8, 12, 8)), 0.1, (0.5, -0.3, 0.2), 0.5
    x = model.domain.coordinates((0.5,) * 3)
    state = started(model, field(model, swirl(0.0, x, nu, mean)))
    final = run(model, params(nu), state, end, 0.025).state
    expected = swirl(end, x, nu, mean)
    seen = seen_in(model, end, final)
    for axis, u in zip("xyz", expected, strict=True):
        # Twenty steps of fourth order of waves of period 2 pi / 0.5 and more: 1e-7 / 120 each at most.
        np.testing.assert_allclose(seen[f"velocity_{axis}"], jnp.broadcast_to(u, (8, 12, 8)), rtol=0, atol=1e-8)
    curl = np.sqrt(sum((np.asarray(u) - m) ** 2 for u, m in zip(expected, mean, strict=True)))
    np.testing.assert_allclose(seen["vorticity_magnitude"], curl, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_velocity_stays_free_of_divergence():
    model = box((12, 8, 8), (lambda t, x, p: jnp.sin(x[0] + x[1]), None, lambda t, x, p: jnp.cos(x[2])))
    start = eddies(model)
    final = run(model, params(0.01), start, 0.5, 0.05).state
    assert float(jnp.abs(final["velocity"][0] - start["velocity"][0]).max()) > 0.01
    # Coefficients of order one times k of a few.
    assert float(jnp.abs(divergence(model, final)).max()) < 1e-15


def test_projection_keeps_what_is_solenoidal_and_is_its_own_square():
    model = box((8, 8, 12))
    k = model.basis.wavenumbers(jnp.float64)
    u = eddies(model)["velocity"]
    rng = np.random.default_rng(0)
    potential = compiled(lambda u: model.to_spectrum(u))(jnp.asarray(rng.standard_normal((8, 8, 12))))

    def projected(u, potential):
        return project(k, tuple(a + model.derivative(v, potential) for a, v in zip(u, k, strict=True)))

    for found, expected in zip(compiled(projected)(u, potential), u, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_truncated_inviscid_flow_conserves_energy_and_helicity():
    """The only loss is time stepping's, of third order."""
    model = box((12, 12, 12))
    start = eddies(model)

    def quantities(state):
        k, u = model.basis.wavenumbers(jnp.float64), state["velocity"]
        curl = [
            model.derivative(k[(i + 1) % 3], u[(i + 2) % 3]) - model.derivative(k[(i + 2) % 3], u[(i + 1) % 3])
            for i in range(3)
        ]
        helicity = sum(model.mean_product(a, b) for a, b in zip(u, curl, strict=True))
        return np.array([float(diagnosed(model, 0.0, state, params())["kinetic_energy"]), float(helicity)])

    before, losses = quantities(start), []
    for dt in (0.02, 0.01):
        final = run(model, params(), start, 0.4, dt, "etdrk3").state
        losses.append(np.abs(quantities(final) - before) / before[0])
    assert float(jnp.abs(final["velocity"][0] - start["velocity"][0]).max()) > 0.01
    assert losses[1].max() < 1e-5
    # An eighth at half the step.
    assert np.all(losses[1] < losses[0] / 6.5), losses


@pytest.mark.slow
def test_two_dimensional_flow_is_that_of_the_vorticity_equation():
    flat = Vorticity(Domain(Grid((12, 12), upper=(TWO_PI,) * 2)))
    deep = box((12, 12, 4))
    x, y = flat.domain.coordinates((0.5, 0.5))
    u = jnp.sin(y) + 0.5 * jnp.cos(2 * y + x) + 0.2
    v = jnp.cos(2 * x) - 0.25 * jnp.cos(2 * y + x) - 0.1
    p = params(0.02, 0.1)
    plane = run(flat, p, flat.state_from({"velocity": (u, v)}, p), 0.5, 0.05).state
    start = deep.state_from(field(deep, (u[..., None], v[..., None], jnp.zeros((12, 12, 1)))), p)
    space = run(deep, p, start, 0.5, 0.05).state
    expected, found = flat.observe(0.5, plane, p), deep.observe(0.5, space, p)
    for name in ("velocity_x", "velocity_y"):
        # Ten steps of the same scheme: rounding.
        np.testing.assert_allclose(found[name][..., 1], expected[name], rtol=0, atol=1e-14)
    for name in ("kinetic_energy", "enstrophy", "dissipation"):
        numbers = deep.diagnostics(0.5, space, p)[name], flat.diagnostics(0.5, plane, p)[name]
        assert float(numbers[0]) == pytest.approx(float(numbers[1]), rel=1e-13)


@pytest.mark.slow
def test_eight_transforms_a_stage():
    model, p = box((8, 12, 8)), params(0.01)
    scheme = INTEGRATORS["etdrk2"]
    prepared = scheme.prepare(model, p, 0.1)
    program = jax.make_jaxpr(lambda s: scheme.step(model, 0.0, 0.1, s, p, prepared))(eddies(model))
    # Each real transform has a complex one along each of the two other axes.
    assert transforms(program.jaxpr) == {"IRFFT": 6, "RFFT": 10, "IFFT": 12, "FFT": 20}


def taylor_green(n, dt, end):
    """Dissipation over time at Reynolds number 100, at every 8th of a unit of time."""
    model = box((n, n, n))
    x, y, z = model.domain.coordinates((0.5,) * 3)
    start = field(model, (jnp.sin(x) * jnp.cos(y) * jnp.cos(z), -jnp.cos(x) * jnp.sin(y) * jnp.cos(z), 0 * x))
    p = params(0.01)
    frames = int(8 * end)
    seen = run(model, p, model.state_from(start, p), 0.125, dt, "etdrk4", frames, model.diagnostics, None).observed
    return 0.125 * np.arange(1, frames + 1), {name: np.asarray(v) for name, v in seen.items()}


@pytest.mark.slow
def test_taylor_green_vortex_before_its_peak():
    """Energy and dissipation at t = 1 and 2 of converged runs at 48^3 and 64^3."""
    times, seen = taylor_green(24, 0.0625, 2)
    for t, energy, dissipation in ((1, 0.11748093391, 0.0077685619847), (2, 0.10904760903, 0.0092657871024)):
        at = list(times).index(t)
        # 24 points keep seven waves: by t = 2 the eighth and higher ones, which odd harmonics have reached, hold some
        # 1e-4 of the energy's decay and 1e-3 of the dissipation.
        assert seen["kinetic_energy"][at] == pytest.approx(energy, rel=1e-4)
        assert seen["dissipation"][at] == pytest.approx(dissipation, rel=1e-3)


@pytest.mark.slow
def test_taylor_green_dissipation_peak():
    """The peak of dissipation, 0.0129754 at t = 4.887, within a thousandth (48^3)."""
    times, seen = taylor_green(48, 0.03125, 5.5)
    top = int(np.argmax(seen["dissipation"]))
    # A parabola through the three values around the peak.
    slopes = np.polyfit(times[top - 1 : top + 2] - times[top], seen["dissipation"][top - 1 : top + 2], 2)
    peak = -slopes[1] / (2 * slopes[0])
    assert np.polyval(slopes, peak) == pytest.approx(0.012975433794, rel=1e-3)
    # The top is flat: a thousandth of its height is reached 0.1 away from it.
    assert times[top] + peak == pytest.approx(4.8868, abs=0.02)


def test_other_dimensions_are_refused():
    with pytest.raises(
        ConfigurationError, match="expected at least 3 axes for model=spectral_velocity; write 3 numbers"
    ):
        SpectralVelocity(Domain(Grid((8, 8))))
