"""White noise: moments against exact ones, orders of paths, devices, members, restart, gradients, refusals."""

import math

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.core.white_noise import standard_normals
from simjax.integrators.stochastic import Stochastic
from simjax.ops.difference import laplacian
from simjax.parallel import distribute

PERIODIC = (sj.PeriodicSide(), sj.PeriodicSide())
EULER, SHARK = sj.stochastic("euler_maruyama"), sj.stochastic("shark")


class NoisyHeat(sj.CenteredModel):
    """Stochastic heat equation: du = (D lap(u) - k u) dt + sigma dW."""

    fields, parameters = ("u",), {"D": 0.01, "k": 1.0, "sigma": 0.3}

    def rhs(self, t, state, params):
        spread = self.apply(lambda u: laplacian(u, self.domain.grid.spacing), state, t=t)
        return {"u": params["D"] * spread - params["k"] * state["u"]}

    def noise(self, t, state, params):
        return {"u": params["sigma"]}

    def stable_dt(self, state, params):
        return 1 / (2 * params["D"] * sum(1 / h**2 for h in self.domain.grid.spacing) + params["k"])


class NoisyAllenCahn(NoisyHeat):
    """Stochastic Allen-Cahn: du = (D lap(u) + u - u^3) dt + sigma dW."""

    def rhs(self, t, state, params):
        spread = self.apply(lambda u: laplacian(u, self.domain.grid.spacing), state, t=t)
        return {"u": params["D"] * spread + state["u"] - state["u"] ** 3}


class Geometric(NoisyHeat):
    """du = -k u dt + sigma u dW in every cell, in Ito's sense."""

    def rhs(self, t, state, params):
        return {"u": -params["k"] * state["u"]}

    def noise(self, t, state, params):
        return {"u": params["sigma"] * state["u"]}


class Growing(NoisyHeat):
    """du = -k u dt + sigma (1 + sin 3 t) dW in every cell."""

    def rhs(self, t, state, params):
        return {"u": -params["k"] * state["u"]}

    def noise(self, t, state, params):
        return {"u": params["sigma"] * (1 + jnp.sin(3 * t))}


def on_grid(model, *shape, upper=None, seed=0):
    domain = sj.Domain(sj.Grid(shape, upper=upper))
    return model(domain, [PERIODIC] * len(shape), seed=seed)


def numbers(**others):
    return {name: jnp.asarray(value) for name, value in {**NoisyHeat.parameters, **others}.items()}


# ---------------------------------------------------------------------- what is drawn


def test_numbers_are_normal_and_independent():
    domain = sj.Domain(sj.Grid((64, 64)))
    drawn = [standard_normals(domain, seed, jnp.asarray(n), f, jnp.float64) for seed, n, f in SOURCES]
    every = np.stack([np.ravel(u) for pair in drawn for u in pair])
    # Products of pairs and moments of 4096 numbers, of which five standard errors are 5 / 64, times the size of what
    # is averaged: squares vary by 2^(1/2), fourth powers by 96^(1/2).
    error = 5 / 64
    np.testing.assert_allclose(np.corrcoef(every) - np.eye(len(every)), 0, atol=error)
    np.testing.assert_allclose(every.mean(1), 0, atol=error)
    np.testing.assert_allclose((every**2).mean(1), 1, atol=error * 2**0.5)
    np.testing.assert_allclose((every**4).mean(1), 3, atol=error * 96**0.5)


SOURCES = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), ((1, 1), 0, 0), ((1, 0), 0, 0)]


def test_a_run_in_single_precision_has_the_same_noise():
    domain = sj.Domain(sj.Grid((8, 4, 2)))
    single, double = (standard_normals(domain, 3, jnp.asarray(5), 0, kind)[0] for kind in (jnp.float32, jnp.float64))
    # The inverse error function of single precision is exact to some roundings of 1e-7.
    np.testing.assert_allclose(single, double, rtol=1e-5)


# ---------------------------------------------------------------------- moments


@pytest.mark.parametrize("scheme", [EULER, SHARK])
def test_waves_of_the_heat_equation_have_the_variance_of_ornstein_and_uhlenbeck(scheme):
    """Of the transient too: sigma^2 / (2 r L) (1 - exp(-2 r t)) at the rate r of the discrete operator."""
    n, end, steps, members, params = 16, 0.5, 200, 400, numbers()
    model = on_grid(NoisyHeat, n, upper=(2.0,))
    h = model.domain.grid.spacing[0]

    def last(seed):
        run = on_grid(NoisyHeat, n, upper=(2.0,), seed=seed)
        return sj.integrate(run, scheme, params, {"u": jnp.zeros(n)}, dt=end / steps, steps=steps)["u"]

    found = np.fft.fft(jax.jit(jax.vmap(last))(jnp.arange(members)), axis=1) / n
    rate = params["k"] + params["D"] * (2 / h * np.sin(np.pi * np.arange(n) / n)) ** 2
    exact = params["sigma"] ** 2 / (2 * rate * 2.0) * (1 - np.exp(-2 * rate * end))
    # Five standard errors of a mean of squares, of real waves relative to which it varies by 2^(1/2); and Euler's
    # error in a variance, a relative rate dt / 2.
    error = 5 * (2 / members) ** 0.5 + float(rate.max()) * end / steps / 2
    np.testing.assert_allclose(np.mean(np.abs(found) ** 2, axis=0), exact, rtol=error)


def test_cells_of_allen_cahn_have_the_stationary_density():
    """Without diffusion the density in a cell is exp(-2 V(u) / s^2), V = u^4 / 4 - u^2 / 2, s^2 = sigma^2 / volume."""
    n, params = 8192, numbers(D=0.0, sigma=1.0)
    model = on_grid(NoisyAllenCahn, n, upper=(float(n),))  # cells of volume one
    start = {"u": jnp.where(jnp.arange(n) % 2 == 0, 1.0, -1.0)}
    u = np.asarray(sj.integrate(model, SHARK, params, start, dt=0.02, steps=400)["u"])
    x = np.linspace(-6, 6, 4001)
    density = np.exp(x**2 - x**4 / 2)
    mean = lambda f: np.sum(f * density) / np.sum(density)  # noqa: E731
    for power in (1, 2, 4):
        exact, spread = mean(x**power), math.sqrt(mean(x ** (2 * power)) - mean(x**power) ** 2)
        # Five standard errors of independent cells; and of the step, whose square is 4e-4, an error ten times that.
        assert abs(np.mean(u**power) - exact) < 5 * spread / n**0.5 + 4e-3 * (power > 1), power


def test_an_amplitude_that_depends_on_the_state_is_taken_in_itos_sense():
    """E u = exp(-k t) u0, where Stratonovich's sense has exp(-k t + sigma^2 t / 2); E u^2 = exp(-2 k t + sigma^2 t)."""
    n, k, sigma, end, steps = 16384, 0.5, 0.8, 0.5, 100
    model = on_grid(Geometric, n, upper=(float(n),))
    u = sj.integrate(model, EULER, numbers(k=k, sigma=sigma), {"u": jnp.ones(n)}, dt=end / steps, steps=steps)["u"]
    mean, square = np.exp(-k * end), np.exp((sigma**2 - 2 * k) * end)
    # Five standard errors, and (k dt) (k t) of Euler; Stratonovich's mean is 17 % larger.
    assert abs(np.mean(u) - mean) < 5 * np.sqrt((square - mean**2) / n) + mean * k**2 * end * end / steps


# ---------------------------------------------------------------------- paths


def refined(scheme: Stochastic, ratio: int) -> Stochastic:
    """The scheme on the path that the scheme has with steps `ratio` times shorter."""

    class Summed(Stochastic):
        def paths(self, model, noise, number, dt, state):
            def added(k, sums):
                w, integral = sums
                ((own, area),) = scheme.paths(model, noise, number * ratio + k, dt / ratio, state)
                # The integral of W over a step is dt (W / 2 + H).
                return w + own, integral + dt / ratio * (w + own / 2 + area)

            none = jnp.zeros_like(state["u"])
            w, integral = jax.lax.fori_loop(0, ratio, added, (none, none))
            return [(w, integral / dt - w / 2)]

    return Summed(**{name: getattr(scheme, name) for name in scheme.__dataclass_fields__})


@pytest.mark.parametrize(
    ("scheme", "model", "rate", "order"),
    [
        (EULER, NoisyAllenCahn, 0.0, 1.0),
        (SHARK, NoisyAllenCahn, 0.0, 1.5),
        (SHARK, Growing, 2.0, 2.0),  # of linear equations; with the change of g left out it is 1
        (EULER, Geometric, 0.1, 0.5),
    ],
)
def test_paths_converge_in_the_order_of_the_scheme(scheme, model, rate, order):
    n, finest = 512, 256
    params = numbers(D=0.1, sigma=0.8, k=rate)
    run = on_grid(model, n, upper=(float(n),), seed=2)
    start = {"u": 0.5 + jnp.cos(jnp.arange(float(n)))}

    def end(steps):
        fine = refined(scheme, finest // steps)
        return np.asarray(sj.integrate(run, fine, params, start, dt=1 / steps, steps=steps)["u"])

    exact = end(finest)
    errors = [np.sqrt(np.mean((end(steps) - exact) ** 2)) for steps in (8, 16, 32)]
    found = math.log2(errors[0] / errors[2]) / 2
    # The finest path stands for the exact one, which raises orders by 0.1 at one half, and errors of 512 cells are
    # known to some percent. The orders that schemes may have lie half a one apart.
    assert abs(found - order) < 0.24, errors


def test_the_table_is_that_of_diffrax():
    """A step of shark is diffrax's own, of the same W and H."""
    params, run = numbers(D=0.1, sigma=0.8), on_grid(NoisyAllenCahn, 8)
    start, dt = {"u": jnp.linspace(-1.0, 1.0, 8)}, jnp.asarray(0.05)
    noise = run.white_noise(0.0, start, params)
    ((w, h),) = SHARK.paths(run, noise, jnp.asarray(0), dt, start)

    class Path(diffrax.AbstractBrownianPath):
        t0 = t1 = None
        levy_area = diffrax.SpaceTimeLevyArea

        def evaluate(self, t0, t1=None, left=True, use_levy=False):
            return diffrax.SpaceTimeLevyArea(dt=dt, W=w, H=h)

    drift = diffrax.ODETerm(lambda t, u, _: run.rhs(t, {"u": u}, params)["u"])
    diffusion = diffrax.ControlTerm(lambda t, u, _: jnp.diag(jnp.full(8, noise.amplitudes["u"])), Path())
    terms = diffrax.MultiTerm(drift, diffusion)
    theirs = diffrax.ShARK().step(terms, jnp.asarray(0.0), dt, start["u"], None, None, False)[0]
    ours = SHARK.numbered_step(run, jnp.asarray(0), jnp.asarray(0.0), dt, start, params)["u"]
    assert np.min(np.abs(ours - start["u"])) > 1e-3  # every cell moved
    # Rounding of a few dozen operations.
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# ---------------------------------------------------------------------- layouts, restart, gradients

QUICK_PLANS = (EULER, "two_level"), (SHARK, "every_stage")


@pytest.mark.parametrize("mesh", [{"x": 2, "y": 4}, pytest.param({"x": 4, "y": 2}, marks=pytest.mark.slow)])
def test_the_noise_is_the_same_on_any_decomposition(mesh):
    grid = sj.Grid((16, 8))
    devices = sj.make_mesh(mesh)
    domain = sj.decompose(grid, devices)
    spec = domain.spec(2)

    def drawn(domain):
        return standard_normals(domain, 3, jnp.asarray(7), 0, jnp.float64)

    parts = distribute(lambda: drawn(domain), devices, in_specs=(), out_specs=(spec, spec))()
    for part, whole in zip(parts, jax.jit(lambda: drawn(sj.Domain(grid)))(), strict=True):
        np.testing.assert_array_equal(part, whole)

    params, start = numbers(), {"u": jnp.cos(jnp.arange(128.0)).reshape(16, 8)}

    def run(domain, state):
        return sj.integrate(NoisyHeat(domain, [PERIODIC] * 2, seed=4), SHARK, params, state, dt=0.02, steps=5)

    cut = distribute(lambda u: run(domain, u), devices, in_specs=(spec,), out_specs=spec)(start)
    whole = run(sj.Domain(grid), start)["u"]
    assert np.std(whole - start["u"]) > 0.01  # noise and diffusion moved it
    # The stencils of blocks are rounded in another order.
    np.testing.assert_allclose(cut["u"], whole, rtol=1e-12)


def test_a_run_cut_at_a_frame_goes_on_bit_for_bit():
    model, params, start = on_grid(NoisyHeat, 16, seed=1), numbers(), {"u": jnp.zeros(16)}
    for schedule in (sj.Schedule(0.1, dt=0.03), sj.Schedule(0.1, courant=0.5, max_steps=100)):
        whole = sj.simulate(model, EULER, params, start, schedule, frames=3)
        part = sj.simulate(model, EULER, params, start, schedule, frames=1)
        rest = sj.simulate(model, EULER, params, part.state, schedule, frames=2, clock=part.clock)
        np.testing.assert_array_equal(whole.state["u"], rest.state["u"])
        assert np.std(np.asarray(whole.state["u"])) > 0.1


@pytest.mark.parametrize(
    ("scheme", "checkpoint"),
    [
        pytest.param(scheme, plan, marks=() if (scheme, plan) in QUICK_PLANS else pytest.mark.slow)
        for scheme in (EULER, SHARK)
        for plan in ("none", "every_stage", "two_level", sj.Binomial(2))
    ],
)
def test_gradients_are_those_of_the_path(scheme, checkpoint):
    model, start = on_grid(NoisyAllenCahn, 16, seed=1), jnp.cos(jnp.arange(16.0))
    schedule = sj.Schedule(0.1, dt=0.02)

    def loss(sigma, u):
        end = sj.simulate(
            model, scheme, numbers(sigma=sigma), {"u": u}, schedule, frames=2, checkpoint=checkpoint
        ).state
        return jnp.sum(end["u"] ** 2)

    def moved(by):
        return loss(0.3 + by, start + by * jnp.sin(jnp.arange(16.0)))

    sigma, u = jax.grad(loss, argnums=(0, 1))(0.3, start)
    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    # Central differences: the square of the distance, and rounding over it.
    np.testing.assert_allclose(sigma + u @ jnp.sin(jnp.arange(16.0)), slope, rtol=1e-8)


def configured(**others):
    return sj.configure(
        NoisyHeat,
        precision="float64",
        grid={"shape": [8, 8]},
        initial={"u": "0"},
        time={"end": 0.2, "output_every": 0.1, "dt": 0.02},
        **others,
    )


@pytest.mark.slow
def test_members_have_noise_of_their_own_by_their_numbers(tmp_path):
    quiet = {"root": str(tmp_path), "report": False, "animation": False}
    whole = configured(ensemble={"size": 3}, output=quiet).run().ds.u.values
    last = configured(ensemble={"numbers": [2], "size": 1}, output=quiet).run().ds.u.values
    beside = {"parameters.beside": {"values": [1.0, 2.0]}}  # a number that nothing depends on
    same = {"parameters": {"beside": 1.0}, "ensemble": {"size": 2, "noise": "shared", "vary": beside}}
    alike = configured(**same, output=quiet).run().ds.u.values
    other = configured(seed=1, output=quiet).run().ds.u.values
    final = whole[:, -1].reshape(3, -1)
    assert np.abs(np.corrcoef(final) - np.eye(3)).max() < 5 / 8  # of 64 cells, five standard errors
    np.testing.assert_array_equal(last[0], whole[2])
    np.testing.assert_array_equal(alike[0], alike[1])
    assert np.abs(np.corrcoef(other[-1].ravel(), final[0])[0, 1]) < 5 / 8


# ---------------------------------------------------------------------- refusals


class Plain(NoisyHeat):
    """Heat conduction whose `noise` is that of a class without."""

    noise = sj.CenteredModel.noise


@pytest.mark.parametrize(
    ("model", "scheme", "words"),
    [
        (NoisyHeat, sj.INTEGRATORS["rk4"], r"NoisyHeat has noise: expected a scheme that draws it, got RungeKutta"),
        (NoisyHeat, sj.Stored(EULER, "bfloat16"), r"expected a scheme that draws it, got Stored"),
        (Plain, EULER, r"Plain has no noise; define noise\(t, state, params\)"),
        (Geometric, SHARK, r"Geometric\.noise depends on the state; write sj\.stochastic\('euler_maruyama'\)"),
    ],
)
def test_schemes_that_do_not_fit_are_refused(model, scheme, words):
    with pytest.raises(sj.ConfigurationError, match=words):
        sj.integrate(on_grid(model, 8), scheme, numbers(), {"u": jnp.ones(8)}, dt=0.1, steps=2)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"v": 1.0}, r"Wrong\.noise: expected a dict of amplitudes of some of u; got v"),
        (1.0, r"Wrong\.noise: expected a dict of amplitudes of some of u; got float"),
        ({"u": jnp.ones(3)}, r"the amplitude of u: expected a number or an array of shape \(8,\), got .* \(3,\)"),
    ],
)
def test_wrong_amplitudes_are_sentences(found, words):
    class Wrong(NoisyHeat):
        def noise(self, t, state, params):
            return found

    with pytest.raises(sj.ConfigurationError, match=words):
        sj.integrate(on_grid(Wrong, 8), EULER, numbers(), {"u": jnp.ones(8)}, dt=0.1, steps=2)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"time": {"tolerance": 1e-4}}, r"has noise, which an estimate of errors knows nothing of"),
        ({"time": {"dt": 0.1, "integrator": "rk4"}}, r"'rk4': expected one of euler_maruyama, shark"),
        ({"time": {"dt": 0.1}, "storage": {"dtype": "bfloat16"}}, r"storage: expected none, as .* has noise"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(others, words):
    time = {"end": 1.0, "output_every": 1.0, **others["time"]}
    rest = {name: section for name, section in others.items() if name != "time"}
    with pytest.raises(sj.ConfigurationError, match=words):
        sj.configure(NoisyHeat, grid={"shape": [8]}, initial={"u": "0"}, precision="float32", time=time, **rest)


def test_several_steps_per_exchange_are_refused():
    domain = sj.Domain(sj.Grid((8,)), steps_per_exchange=2)
    with pytest.raises(sj.ConfigurationError, match=r"steps_per_exchange=2: expected 0, as NoisyHeat has noise"):
        sj.integrate(NoisyHeat(domain, [PERIODIC]), EULER, numbers(), {"u": jnp.ones(8)}, dt=0.1, steps=4)


@pytest.mark.parametrize("seed", [-1, 0.5, 2**32])
def test_seeds_that_are_none_are_refused(seed):
    with pytest.raises(sj.ConfigurationError, match=r"NoisyHeat: seed=.*: expected a whole number from 0 to below"):
        on_grid(NoisyHeat, 8, seed=seed)


def test_a_scheme_of_another_name_is_refused():
    with pytest.raises(sj.ConfigurationError, match=r"stochastic\('milstein'\): expected one of euler_maruyama, shark"):
        sj.stochastic("milstein")
    with pytest.raises(sj.ConfigurationError, match=r"stochastic\(\{\}\): expected one of euler_maruyama, shark"):
        sj.stochastic({})
