"""Steps of a length that is traced: one program for all of them, differentiable in it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from ordinary import Ordinary
from paths import ROOT

import simjax as sj
from simjax.errors import ConfigurationError
from simjax.integrators.table import INTEGRATORS
from simjax.models.waves import acoustic
from simjax.stepping.checkpointing.plan import Binomial
from simjax.stepping.simulate import Schedule, simulate

RK4 = INTEGRATORS["rk4"]
START = jnp.asarray([0.2, 0.7])


class Decay(Ordinary):
    """u' = -k u^2 + cos(t), with parameter k."""

    def rhs(self, t, state, params):
        return -params * state**2 + jnp.cos(t)


def integrate(dt, t0=0.0, state=START, k=0.7, steps=12, **options):
    return sj.integrate(Decay(), RK4, k, state, dt=dt, steps=steps, t0=t0, **options)


def assert_taylor(function, x):
    """The remainder of the linear approximation falls like the square of the step."""
    both = jax.jit(jax.value_and_grad(function))
    value, slope = both(jnp.asarray(x))
    sizes = 1e-3 / 2.0 ** np.arange(4)
    rest = np.array([float(both(jnp.asarray(x + h))[0] - value - h * slope) for h in sizes])
    order = np.log2(np.abs(rest[:-1] / rest[1:]))
    # Of the third order are 1e-3 of the remainder and less, times derivatives of the size of ten.
    assert np.all(np.abs(order - 2) < 0.05), order


def test_integrate_is_simulate():
    end = simulate(Decay(), RK4, 0.7, START, Schedule(0.6, start=0.3, dt=0.05), frames=1)
    assert int(end.clock.step) == 12
    np.testing.assert_array_equal(integrate(0.05, 0.3), end.state)


def test_one_program_serves_every_step_length():
    traces = []

    @jax.jit
    def run(dt, t0):
        traces.append(None)
        return integrate(dt, t0)

    for dt, t0 in [(0.05, 0.0), (0.02, 0.3), (0.11, -1.0)]:
        # A traced length is multiplied in the program, a plain one when it is compiled: some roundings.
        np.testing.assert_allclose(run(dt, t0), integrate(dt, t0), rtol=1e-14)
        run(jnp.asarray(dt), jnp.asarray(t0))
    # A Python number and an array are two types of argument.
    assert len(traces) <= 2


@pytest.mark.parametrize("checkpoint", ["auto", "two_level", "none", Binomial(3)])
def test_gradients_by_the_length_of_steps(checkpoint):
    def function(dt):
        return jnp.sum(integrate(dt, checkpoint=checkpoint) ** 3)

    assert_taylor(function, 0.05)
    slope = jax.jit(jax.grad(function))(jnp.asarray(0.05))
    # Twelve steps of dt: of the exact solution, twelve times its derivative in time, to the scheme's fourth order.
    u = integrate(0.05)
    expected = jnp.sum(3 * u**2 * 12 * (-0.7 * u**2 + jnp.cos(0.6)))
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_gradients_by_the_start_of_time():
    assert_taylor(lambda t0: jnp.sum(integrate(0.05, t0) ** 3), 0.4)


def test_gradients_of_several_frames_of_traced_steps():
    def ends(dt):
        schedule = Schedule(steps=5, dt=dt, start=0.1)
        found = simulate(Decay(), RK4, 0.7, START, schedule, frames=3, observe=lambda t, u, k: (t, u))
        return found.observed

    times, _ = jax.jit(ends)(0.02)
    # A sum and a product, rounded.
    np.testing.assert_allclose(times, [0.2, 0.3, 0.4], rtol=1e-15)
    slope = jax.jit(jax.jacfwd(lambda dt: ends(dt)[0]))(0.02)
    np.testing.assert_allclose(slope, [5, 10, 15], rtol=1e-15)
    assert_taylor(lambda dt: jnp.sum(ends(dt)[1] ** 2), 0.02)


def test_members_with_steps_of_their_own():
    lengths = jnp.asarray([0.02, 0.05, 0.09])
    together = jax.jit(jax.vmap(integrate))(lengths)
    for dt, end in zip(lengths, together, strict=True):
        np.testing.assert_allclose(end, integrate(dt), rtol=1e-14)


class Burgers(sj.SpectralModel):
    """Burgers' equation in a Fourier basis: du/dt = nu u_xx - (u^2 / 2)_x."""

    fields = ("u",)
    parameters = {"nu": 0.3}

    def symbol(self, k, params):
        return {"u": -params["nu"] * k[0] ** 2}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.derivative(-0.5 * k[0], self.to_spectrum(u * u))}


@pytest.mark.slow
def test_coefficients_of_exponential_schemes_follow_a_traced_step():
    """They are formed once before the loop, of the step's length."""
    model = Burgers(sj.Domain(sj.Grid((16,), upper=(2 * np.pi,))))
    params = {"nu": jnp.asarray(0.3)}
    (x,) = model.domain.coordinates((0.5,))
    state = model.state_from({"u": (jnp.exp(jnp.sin(x)),)}, params)

    def loss(dt):
        end = sj.integrate(model, INTEGRATORS["etdrk2"], params, state, dt=dt, steps=4)
        return jnp.sum(model.to_grid(end["u"]) ** 3)

    np.testing.assert_allclose(jax.jit(loss)(0.1), loss(0.1), rtol=1e-13)
    assert_taylor(loss, 0.1)


@pytest.mark.slow
def test_gradients_over_devices_and_backwards_in_time():
    """Waves on a mesh; with leapfrog, reverse mode also undoes the steps."""
    mesh, grid = sj.make_mesh({"x": 2, "y": 2}), sj.Grid((8, 6))
    domain = sj.decompose(grid, mesh)
    model = acoustic.Acoustic(domain, [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
    params = acoustic.Params(jnp.asarray(1.1), jnp.asarray(1.2))
    fields = {
        name: tuple(
            jnp.sin(sum((k + 2) * x for k, x in enumerate(sj.Domain(grid).coordinates(layout.offset, jnp.float64))))
            for layout in layouts
        )
        for name, layouts in model.component_layouts().items()
    }
    state = acoustic.Acoustic(sj.Domain(grid), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2).state_from(fields, params)
    specs = model.partition_specs(state, params)[0]

    def slope(checkpoint):
        def loss(dt, state):
            end = sj.integrate(
                model, INTEGRATORS["leapfrog"], params, state, dt=dt, steps=6, t0=0.2, checkpoint=checkpoint
            )
            return domain.sum(end.pressure**4)

        whole = PartitionSpec()
        return sj.distribute(jax.value_and_grad(loss), mesh, in_specs=(whole, specs), out_specs=(whole, whole))

    stored, undone = slope("every_step"), slope("reverse")
    results = [program(jnp.asarray(0.02), state) for program in (stored, undone)]
    # Six steps there and back.
    np.testing.assert_allclose(results[0], results[1], rtol=1e-11)
    higher, lower = (stored(jnp.asarray(0.02 + h), state)[0] for h in (1e-6, -1e-6))
    # A central difference: with derivatives up to 600 times the one before it, 6e-8 of its second order.
    np.testing.assert_allclose(results[0][1], (higher - lower) / 2e-6, rtol=1e-7)


def test_single_precision_where_the_step_is_a_plain_number():
    end = integrate(0.05, state=START.astype(jnp.float32), k=jnp.float32(0.7))
    assert end.dtype == jnp.float32
    np.testing.assert_allclose(end, integrate(0.05), rtol=1e-6)
    traced = jax.jit(lambda dt: integrate(dt, state=START.astype(jnp.float32), k=jnp.float32(0.7)))(jnp.float64(0.05))
    np.testing.assert_allclose(traced, end, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Schedule(1.0, dt=0.1, steps=10), "expected an interval, or with dt a number of steps"),
        (lambda: Schedule(dt=0.1), "expected an interval, or with dt a number of steps"),
        (lambda: Schedule(courant=0.5, steps=3), "expected an interval"),
        (lambda: Schedule(steps=0, dt=0.1), "Schedule.steps=0: expected a whole number of at least 1"),
        (lambda: Schedule(steps=3, dt=jnp.asarray(-0.1)), "Schedule.dt=-0.1: expected a finite number above zero"),
        (lambda: Schedule(steps=3, dt=jnp.ones(2)), r"shape \(2,\).*use jax.vmap"),
        (lambda: jax.jit(lambda dt: Schedule(1.0, dt=dt).steps)(0.1), r"Schedule.dt is traced.*Schedule\(steps=100"),
        (lambda: Schedule(1.0, courant=0.5, max_steps=3, step_shrink=1.0), "Schedule.step_shrink=1.0: expected"),
    ],
)
def test_impossible_steps_are_refused(make, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        make()


@pytest.mark.slow
def test_the_page_on_running_models_runs(capsys):
    text = (ROOT / "docs" / "simulate.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert "a field became infinite or not a number, in frame" in capsys.readouterr().out


def test_an_array_as_a_step_is_a_plain_number():
    """Without the warning of equinox at an array in a static field; warnings are errors here."""
    assert Schedule(1.0, dt=jnp.asarray(0.25)) == Schedule(1.0, dt=0.25)
    assert Schedule(jnp.asarray(1.0), dt=np.float32(0.25)).steps == 4
    assert hash(Schedule(1.0, dt=0.25)) == hash(Schedule(1.0, dt=0.25))
