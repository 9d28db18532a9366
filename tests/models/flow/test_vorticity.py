"""The vorticity equation: exact solutions, a converged benchmark, what it conserves, and what a step costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_runs import compiled, diagnosed, run, seen_in, started, transforms

from simjax.core.boundary import NoSlipWall, PeriodicSide
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.stepping.simulate import Schedule, simulate

TWO_PI = 2 * np.pi
# Converged pseudo-spectral runs at 512^2 and 768^2, of means over the box.
SHEAR_LAYER = {
    2: (0.4300396005463374, 0.9479895880004827),
    4: (0.4263616945284815, 0.8914299654563406),
    6: (0.42291967470418784, 0.8261514335794626),
    8: (0.41977999828940094, 0.7424663566813513),
}


def plane(n, forces=None, **options):
    shape = (n, n) if isinstance(n, int) else n
    return Vorticity(Domain(Grid(shape, upper=(TWO_PI, TWO_PI))), None, forces, **options)


def params(viscosity=0.0, drag=0.0, hyperviscosity=None):
    return Params(jnp.asarray(viscosity), jnp.asarray(drag), hyperviscosity and jnp.asarray(hyperviscosity))


def eddies(model):
    """A random field of the waves |k| <= 3 with a mean velocity."""

    @compiled
    def state():
        rng = np.random.default_rng(0)
        x, y = model.domain.coordinates((0.5, 0.5))
        stream = 0.0
        for k, m in ((1, 2), (2, -1), (3, 1), (0, 2), (3, 0), (1, 1)):
            stream = stream + jnp.sin(k * x + m * y + rng.uniform(0, TWO_PI)) / (k * k + m * m)
        spectrum = model.to_spectrum(stream)
        kx, ky = model.basis.wavenumbers(jnp.float64)
        u, v = (model.to_grid(model.derivative(k, spectrum)) for k in (ky, -kx))
        return model.state_from({"velocity": (u + 0.3, v - 0.2)}, None)

    return state()


def test_advected_taylor_green_vortex_is_solved_to_rounding():
    """u = U + sin(x - U t) cos(y - V t) e^(-2 nu t): its advection by itself is a gradient, the mean flow's is not."""
    model, nu, (mean_u, mean_v), end = plane((16, 12)), 0.05, (0.7, -0.4), 1.0

    def exact(t):
        x, y = model.domain.coordinates((0.5, 0.5))
        x, y, decay = x - mean_u * t, y - mean_v * t, np.exp(-2 * nu * t)
        return mean_u + jnp.sin(x) * jnp.cos(y) * decay, mean_v - jnp.cos(x) * jnp.sin(y) * decay

    state = started(model, {"velocity": exact(0.0)})
    final = run(model, params(nu), state, end, 0.005).state
    seen = seen_in(model, end, final)
    for name, expected in zip(("velocity_x", "velocity_y"), exact(end), strict=True):
        # Two hundred steps of fourth order of a wave of period 8: (0.005)^4 / 120.
        np.testing.assert_allclose(seen[name], jnp.broadcast_to(expected, (16, 12)), rtol=0, atol=1e-11)
    x, y = model.domain.coordinates((0.5, 0.5))
    vorticity = 2 * jnp.sin(x - mean_u) * jnp.sin(y - mean_v) * np.exp(-2 * nu)
    np.testing.assert_allclose(seen["vorticity"], vorticity, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_laminar_kolmogorov_flow_is_approached_exactly():
    """u = A sin(m y) (1 - e^(-(nu m^2 + r) t)) / (nu m^2 + r): linear, so exponential steps of any length are exact."""
    m, nu, drag, strength = 3, 0.02, 0.1, 0.7
    model = plane(16, (lambda t, x, p: strength * jnp.sin(m * x[1]), None))
    rest = started(model, {"vorticity": (jnp.zeros((16, 16)),)})
    rate = nu * m**2 + drag
    for end in (0.5, 40.0):
        p = params(nu, drag)
        final = run(model, p, rest, end, end / 4, "etdrk2").state
        _, y = model.domain.coordinates((0.5, 0.5))
        expected = strength / rate * (1 - np.exp(-rate * end)) * jnp.sin(m * y)
        seen = seen_in(model, end, final, p)
        np.testing.assert_allclose(seen["velocity_x"], jnp.broadcast_to(expected, (16, 16)), rtol=0, atol=2e-14)
        np.testing.assert_allclose(seen["velocity_y"], 0, atol=2e-14)
    # Then all that is fed is dissipated, up to what is left of the approach, e^(-11).
    found = diagnosed(model, end, final, p)
    left = np.exp(-rate * end)
    assert float(found["energy_injection"]) == pytest.approx(strength**2 / (2 * rate) * (1 - left), rel=1e-12)
    assert float(found["dissipation"]) == pytest.approx(strength**2 / (2 * rate) * (1 - left) ** 2, rel=1e-12)


def test_a_steady_force_in_the_mean_moves_everything():
    """dU/dt = -r U + f."""
    model = plane(8, (None, lambda t, x, p: jnp.full((), 0.6)))
    rest = started(model, {"vorticity": (jnp.zeros((8, 8)),)})
    final = run(model, params(0.1, 0.5), rest, 2.0, 1.0).state
    expected = 0.6 / 0.5 * (1 - np.exp(-1.0))
    np.testing.assert_allclose(seen_in(model, 2.0, final)["velocity_y"], expected, rtol=1e-14)
    assert float(diagnosed(model, 2.0, final, params())["kinetic_energy"]) == pytest.approx(expected**2 / 2)


@pytest.mark.slow
def test_double_shear_layer_to_a_hundred_thousandth():
    """Bell, Colella and Glaz (1989), nu = 1e-3 at 128^2: energy and enstrophy against converged runs."""
    model, p, width = plane(128), params(1e-3), np.pi / 15
    x, y = model.domain.coordinates((0.5, 0.5))
    u = jnp.where(y <= np.pi, jnp.tanh((y - np.pi / 2) / width), jnp.tanh((3 * np.pi / 2 - y) / width))
    velocity = (jnp.broadcast_to(u, (128, 128)), jnp.broadcast_to(0.05 * jnp.sin(x), (128, 128)))
    state = model.state_from({"velocity": velocity}, p)
    seen = run(model, p, state, 2.0, 0.02, frames=4, observe=model.diagnostics, options=None).observed
    for number, (energy, enstrophy) in enumerate(SHEAR_LAYER.values()):
        assert float(seen["kinetic_energy"][number]) == pytest.approx(energy, rel=1e-5)
        assert float(seen["enstrophy"][number]) == pytest.approx(enstrophy, rel=1e-5)


@pytest.mark.slow
def test_truncated_inviscid_flow_conserves_energy_and_enstrophy():
    """Without viscosity both are conserved by the 2/3-truncated equation at any resolution; what is lost is due to
    time stepping, of third order here."""
    model = plane((24, 16))
    start = eddies(model)
    before = diagnosed(model, 0.0, start, params())
    losses = []
    for dt in (0.04, 0.02):
        final = run(model, params(), start, 2.0, dt, "etdrk3").state
        after = diagnosed(model, 2.0, final, params())
        losses.append([abs(float(after[n] / before[n]) - 1) for n in ("kinetic_energy", "enstrophy")])
        assert float(jnp.abs(final["vorticity"] - start["vorticity"]).max()) > 0.1  # it has moved
    assert max(losses[1]) < 2e-5
    # An eighth at half the step.
    assert all(coarse / 9 < fine < coarse / 7 for coarse, fine in zip(*losses, strict=True)), losses


@pytest.mark.parametrize("p", [params(0.02), params(0.0, 0.3), params(0.0, 0.0, 1e-4)])
@pytest.mark.slow
def test_dissipation_is_what_energy_loses(p):
    """dE/dt = injection - dissipation, with dE/dt from the tendency."""
    model = plane(24, (lambda t, x, p: jnp.cos(x[0] + 2 * x[1]), None), order=3)
    state = eddies(model)

    def power_of(state, p):
        slope, k = model.rhs(0.0, state, p), model.basis.wavenumbers(jnp.float64)
        pairs = zip(model.velocity(k, state), model.velocity(k, slope), strict=True)
        return sum(model.mean_product(u, du) for u, du in pairs)

    power, seen = compiled(power_of)(state, p), diagnosed(model, 0.0, state, p)
    assert float(seen["dissipation"]) > 1e-3
    assert float(power) == pytest.approx(float(seen["energy_injection"] - seen["dissipation"]), abs=1e-15)


@pytest.mark.slow
def test_energy_spectrum_adds_up_and_finds_a_wave():
    model = plane(24)
    state = eddies(model)
    seen, shells = model.diagnostics(0.0, state, params()), model.energy_spectrum(state, params())
    # All waves lie within the shells: |k| <= 3.2 of 7.
    assert float(jnp.sum(shells)) == pytest.approx(float(seen["kinetic_energy"]), rel=1e-14)
    octaves = [float(seen[f"energy_octave_{j}"]) for j in range(3)]
    np.testing.assert_allclose(octaves, [shells[1], shells[2] + shells[3], jnp.sum(shells[4:])], rtol=1e-14)
    x, y = model.domain.coordinates((0.5, 0.5))
    wave = model.state_from({"vorticity": (jnp.sin(4 * x + 3 * y),)}, None)
    shells = model.energy_spectrum(wave, params())
    # |u|^2 / 2 = |w|^2 / (2 k^2) with k = 5.
    np.testing.assert_allclose(shells, np.where(np.arange(len(shells)) == 5, 0.25 / 25, 0), rtol=0, atol=1e-17)
    assert float(model.diagnostics(0.0, wave, params())["integral_scale"]) == pytest.approx(TWO_PI / 5)


def test_vorticity_and_velocity_start_the_same_flow():
    model = plane((16, 12))
    state = eddies(model)
    seen = seen_in(model, 0.0, state)
    velocity = (seen["velocity_x"], seen["velocity_y"])
    again = started(model, {"velocity": velocity})
    np.testing.assert_allclose(again["vorticity"], state["vorticity"], rtol=0, atol=1e-15)
    without_mean = started(model, {"vorticity": (seen["vorticity"],)})
    mean = started(model, {"velocity": (jnp.full((16, 12), 0.3), jnp.full((16, 12), -0.2))})
    np.testing.assert_allclose(without_mean["vorticity"] + mean["vorticity"], state["vorticity"], rtol=0, atol=1e-15)


@pytest.mark.slow
def test_a_turned_flow_has_the_turned_solution():
    """A quarter turn: (u, v)(x, y) -> (-v, u)(-y, x)."""
    model, p = plane(24), params(0.01, 0.05)
    start = eddies(model)

    def turned(w):
        return jnp.rot90(w)

    vorticity = seen_in(model, 0.0, start, p)["vorticity"]
    start, other = (started(model, {"vorticity": (w,)}) for w in (vorticity, turned(vorticity)))
    final = [seen_in(model, 1.0, run(model, p, s, 1.0, 0.05).state, p)["vorticity"] for s in (start, other)]
    assert float(jnp.abs(final[0] - vorticity).max()) > 0.1
    # Twenty steps of transforms whose axes are summed in another order.
    np.testing.assert_allclose(turned(final[0]), final[1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("integrator", ["etdrk1", "etdrk2", "etdrk3", "etdrk4"])
@pytest.mark.slow
def test_four_transforms_a_stage(integrator):
    """Two inverse and two forward real transforms, each with one complex transform along the other axis."""
    model, p = plane((16, 24)), params(0.01)
    scheme = INTEGRATORS[integrator]
    prepared = scheme.prepare(model, p, 0.1)
    program = jax.make_jaxpr(lambda s: scheme.step(model, 0.0, 0.1, s, p, prepared))(eddies(model))
    assert transforms(program.jaxpr) == dict.fromkeys(("IRFFT", "RFFT", "IFFT", "FFT"), 2 * scheme.stages)


@pytest.mark.slow
def test_the_step_at_courant_number_one():
    model = plane(24)
    state = model.state_from({"velocity": (jnp.full((24, 24), 3.0), jnp.full((24, 24), -0.5))}, None)
    # The largest wavenumber kept is 7.
    limit = float(INTEGRATORS["etdrk2"].stable_dt(model, state, params(5.0)))
    assert limit == pytest.approx(1 / (3.0 * 7 + 0.5 * 7))
    # A scheme without an exact linear part must also resolve nu k^2.
    assert float(model.stable_dt(state, params(5.0))) == pytest.approx(1 / (24.5 + 0.5 * 5.0 * 98))


@pytest.mark.slow
def test_gradient_of_a_run_agrees_with_its_difference_quotient():
    model = plane(12)
    start = eddies(model)

    def loss(viscosity, size):
        state = {"vorticity": size * start["vorticity"]}
        p = Params(viscosity, jnp.asarray(0.1))
        final = simulate(model, INTEGRATORS["etdrk4"], p, state, Schedule(0.5, dt=0.05), frames=1).state
        return model.domain.mean(model.observe(0.5, final, p)["vorticity"] ** 4)

    at = (jnp.asarray(0.02), jnp.asarray(0.9))
    gradients = compiled(jax.grad(loss, argnums=(0, 1)))(*at)
    value = compiled(loss)
    for number, gradient in enumerate(gradients):
        h = 1e-4
        shifted = [value(*(a + s * h if i == number else a for i, a in enumerate(at))) for s in (-2, -1, 1, 2)]
        quotient = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * h)
        # Rounding of the values over h.
        assert float(gradient) == pytest.approx(float(quotient), rel=1e-9)


def test_walls_and_other_dimensions_are_refused():
    grid = Grid((8, 8))
    with pytest.raises(ConfigurationError, match="write boundaries.y=periodic"):
        Vorticity(Domain(grid), [(PeriodicSide(),) * 2, (NoSlipWall(),) * 2])
    with pytest.raises(ConfigurationError, match="expected at most 2 axes for model=vorticity; write 2 numbers"):
        Vorticity(Domain(Grid((8, 8, 8))))
