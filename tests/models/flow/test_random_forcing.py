"""Random forcing: its energy, its independence of decomposition, resolution and chunks, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PLAIN
from spectral_runs import compiled, started

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.fourier.fourier_flow import Params
from simjax.models.flow.fourier.random_forcing import Band
from simjax.models.flow.fourier.spectral_velocity import SpectralVelocity
from simjax.models.flow.fourier.vorticity import Vorticity
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.fourier import FourierBasis
from simjax.stepping.simulate import Clock, Schedule, advance, simulate

TWO_PI = 2 * np.pi
BAND, BAND_3D = Band(1.5, 3.2), Band(1.0, 2.2)


def params(injection, seed=0.0, viscosity=0.0):
    return Params(jnp.asarray(viscosity), jnp.asarray(0.0), None, jnp.asarray(injection), jnp.asarray(seed))


def plane(shape=(16, 24), mesh=None, band=BAND):
    return Vorticity(decompose(Grid(shape, upper=(TWO_PI, TWO_PI)), mesh), band=band)


def box(shape=(8, 12, 16), mesh=None, band=BAND_3D):
    return SpectralVelocity(decompose(Grid(shape, upper=(TWO_PI,) * 3), mesh), band=band)


@pytest.mark.parametrize("build, components", [(plane, 1), pytest.param(box, 3, marks=pytest.mark.slow)])
def test_energy_is_fed_at_the_given_rate(build, components):
    """Kicks at rest, of 2000 independent steps: their mean energy per time, and that it is spread over the band.

    The energy of a kick is a sum over the M / 2 pairs of waves of exponentially (3-D: Gamma(2)) distributed numbers:
    its relative standard deviation is sqrt(2 / M), or sqrt(1 / M). A rate wrong by 2 % (2-D: M = 28) or 1 % (3-D)
    would be four standard deviations of the mean off and be seen; by chance the test fails with probability 6e-5.
    """
    model, rate, dt, kicks = build(), 0.37, 0.02, 2000
    ndim = model.domain.grid.ndim
    p = params(rate)
    rest = model.state_from({"velocity": (jnp.zeros(model.domain.grid.shape),) * ndim}, p)

    def energy(step):
        kicked = model.perturb(step, 0.0, dt, rest, p)
        return model.energies(model.basis.wavenumbers(jnp.float64), kicked)

    per_mode = jax.jit(lambda: jax.lax.map(energy, jnp.arange(kicks, dtype=jnp.int32), batch_size=100).mean(0))()
    count = int(model.band.inside(model.domain.grid).sum())
    deviation = np.sqrt((2 if components == 1 else 1) / count / kicks)
    assert float(per_mode.sum()) == pytest.approx(rate * dt, rel=4 * deviation)
    size = np.sqrt(sum(np.asarray(i, float) ** 2 for i in model.basis.indices()))
    inside = (size >= model.band.low) & (size <= model.band.high)
    share = np.asarray(per_mode / model.basis.weights(jnp.float64)) / (rate * dt / count)
    assert np.all(share[~inside] == 0)
    # One wave's mean of 2000 exponential numbers: five standard deviations, for at most a few hundred waves.
    assert np.all(np.abs(share[inside] - 1) < 5 / np.sqrt(kicks)), share[inside]


@pytest.mark.slow
def test_noise_belongs_to_real_fields_without_divergence():
    for model in (plane(), box()):
        ndim = model.domain.grid.ndim
        rest = model.state_from({"velocity": (jnp.zeros(model.domain.grid.shape),) * ndim}, None)
        kicked = model.perturb(3, 0.0, 0.1, rest, params(0.5))
        for u in jax.tree.leaves(kicked):
            np.testing.assert_allclose(model.basis.make_real(u), u, rtol=0, atol=1e-17)
        k = model.basis.wavenumbers(jnp.float64)
        spread = sum(model.derivative(v, u) for v, u in zip(k, model.velocity(k, kicked), strict=True))
        assert float(jnp.abs(spread).max()) < 1e-16


@pytest.mark.parametrize(
    "build, sizes",
    [
        (plane, {"x": 2, "y": 4}),
        pytest.param(plane, {"x": 8}, marks=pytest.mark.slow),
        pytest.param(box, {"x": 2, "y": 2, "z": 2}, marks=pytest.mark.slow),
    ],
)
def test_the_same_numbers_on_every_mesh(build, sizes):
    mesh = make_mesh(sizes)
    whole, cut = build(), build(mesh=mesh)
    noise = jax.jit(lambda: whole.band.noise(whole.basis, 5, 17, 2, jnp.float64))()

    def draw():
        return cut.band.noise(cut.basis, 5, 17, 2, jnp.float64)

    found = distribute(draw, mesh, in_specs=(), out_specs=(cut.basis.spec,) * 2)()
    for a, b in zip(found, noise, strict=True):
        assert float(jnp.abs(b).max()) > 0.5
        # The inverse error function may round differently in a program for several devices.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-15)


def test_numbers_depend_on_seed_and_step_but_not_on_resolution_or_precision():
    coarse, fine = plane((16, 24)).basis, plane((32, 48)).basis

    @functools.cache
    def drawn(basis, dtype):
        return compiled(lambda seed, step: BAND.noise(basis, seed, step, 1, dtype)[0])

    def entries(basis, *key, dtype=jnp.float64):
        noise = np.asarray(drawn(basis, dtype)(*key))
        kx, ky = (np.asarray(i).ravel() for i in basis.indices())
        return {(int(a), int(b)): noise[j, i] for i, a in enumerate(kx) for j, b in enumerate(ky) if noise[j, i] != 0}

    first = entries(coarse, 1, 2)
    assert entries(fine, 1, 2) == first
    single = entries(coarse, 1, 2, dtype=jnp.float32)
    assert max(abs(complex(single[k]) - complex(first[k])) for k in first) < 2e-6
    for other in (entries(coarse, 1, 3), entries(coarse, 2, 2)):
        assert first.keys() == other.keys() and all(first[k] != other[k] for k in first)


@pytest.mark.slow
def test_a_run_in_pieces_is_the_run_in_one():
    """The number of the step enters, not the piece: bit for bit."""
    model, p, scheme = plane(), params(0.3, 4.0, 0.01), INTEGRATORS["etdrk2"]
    start = started(model, {"vorticity": (jnp.zeros((16, 24)),)})
    schedule, plainly = Schedule(1.0, dt=0.1), functools.partial(jax.jit, compiler_options=PLAIN)

    def pieces(count, steps):
        program = plainly(lambda s, c: advance(model, scheme, p, s, c, schedule, steps=steps, until=9))
        state, clock = start, Clock.zero(jnp.float64)
        for _ in range(count):
            state, clock = program(state, clock)
        return state["vorticity"]

    whole = pieces(1, 12)
    assert float(jnp.abs(whole).max()) > 0.01
    np.testing.assert_array_equal(pieces(3, 4), whole)


@pytest.mark.slow
def test_energy_of_a_run_grows_at_the_given_rate():
    """400 runs of an inviscid flow from rest: E(t) = epsilon t in the mean, whatever the flow does with it.

    A wave's energy after any number of kicks is exponentially distributed: one run's energy deviates by sqrt(2 / M),
    27 % with M = 28 waves, the mean of 400 by 1.3 %. Four standard deviations are allowed; a rate wrong by 7 % is
    beyond them with a probability of nine tenths.
    """
    model, rate, members = plane((12, 12)), 0.2, 400
    start = model.state_from({"vorticity": (jnp.zeros((12, 12)),)}, None)

    def energy(seed):
        schedule = Schedule(1.0, dt=0.2)
        p = params(rate, seed)
        final = simulate(model, INTEGRATORS["etdrk2"], p, start, schedule, frames=1, checkpoint="none").state
        return model.diagnostics(1.0, final, p)["kinetic_energy"]

    energies = np.asarray(jax.jit(jax.vmap(energy))(jnp.arange(float(members))))
    deviation = np.sqrt(2 / int(BAND.inside(model.domain.grid).sum()))
    assert energies.mean() == pytest.approx(rate, rel=4 * deviation / np.sqrt(members))
    # The deviation itself is known to 4 %; time stepping changes a little of what has been fed.
    assert np.std(energies) / rate == pytest.approx(deviation, rel=0.2)


def test_derivative_with_respect_to_the_rate():
    """Amplitudes go with its square root: d(vorticity)/d(rate) = vorticity / (2 rate); zero, not NaN, at no rate."""
    model = plane()
    rest = started(model, {"vorticity": (jnp.zeros((16, 24)),)})

    def kicked(rate):
        return model.perturb(0, 0.0, 0.1, rest, params(rate))["vorticity"]

    def largest(rate):
        return jnp.sum(jnp.abs(kicked(rate)) ** 2) ** 0.5

    value, slope = compiled(jax.value_and_grad(largest))(0.3)
    assert float(slope) == pytest.approx(float(value) / 0.6, rel=1e-12)
    assert np.all(np.asarray(compiled(jax.jacfwd(lambda rate: kicked(rate).real))(0.0)) == 0)


def test_bands_that_hold_no_wave_or_too_fine_ones_are_refused():
    with pytest.raises(ConfigurationError, match="this grid keeps 5"):
        plane(band=Band(4.0, 6.0))
    with pytest.raises(ConfigurationError, match="No wavenumber of the box lies between 2.3 and 2.4"):
        Band(2.3, 2.4).check(FourierBasis(Domain(Grid((32,), upper=(TWO_PI,)))))
