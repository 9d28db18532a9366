"""Steps as long as their error allows: tolerance, frames, rejected steps, gradients, members, devices, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from ordinary import Decay, Ordinary
from refusals import refusals

import simjax as sj
from simjax.integrators.table import INTEGRATORS
from simjax.parallel import distribute
from simjax.status import FRAME_UNFINISHED, OK, TOLERANCE_MISSED
from simjax.stepping.controlled import SMALLEST

PERIODIC = (sj.PeriodicSide(), sj.PeriodicSide())
TSIT5 = sj.error_controlled("tsit5")
START, RATE = jnp.asarray([1.0, 2.0]), jnp.asarray(3.0)


class Root(Ordinary):
    """du/dt = -2 k u^(1/2): u = (u0^(1/2) - k t)^2, and not a number where a step goes below zero."""

    def rhs(self, t, state, params):
        return -2 * params * jnp.sqrt(state)


class Robertson(sj.CenteredModel):
    """Robertson's reaction, of rates from 0.04 to 3e7, in every cell, with some diffusion of what is slow."""

    fields, parameters = ("a", "b", "c"), {"slow": 0.04, "fast": 1e4, "fastest": 3e7}

    def rhs(self, t, state, params):
        a, b, c = (state[name] for name in self.fields)
        back, out = params["fast"] * b * c, params["fastest"] * b * b
        first = params["slow"] * a
        return {"a": back - first, "b": first - back - out, "c": out}

    def stable_dt(self, state, params):
        return jnp.asarray(1e-3)


def controlled(model, params, state, end, tolerance, *, scheme=TSIT5, frames=1, most=100, **options):
    schedule = sj.Schedule(end / frames, tolerance=tolerance, max_steps=most)
    return sj.simulate(model, scheme, params, state, schedule, frames=frames, **options)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7, pytest.param(1e-10, marks=pytest.mark.slow)])
def test_error_follows_the_tolerance(tolerance):
    end = controlled(Decay(), RATE, START, 1.0, tolerance)
    # A decaying solution adds up the errors of a few steps, each at most the tolerance of one to two.
    assert float(jnp.max(jnp.abs(end.state - START * jnp.exp(-3.0)))) < 10 * tolerance
    assert end.clock.status == OK and end.clock.frame == 1


def test_frames_end_where_they_should_and_change_little():
    whole, cut = (controlled(Decay(), RATE, START, 1.0, 1e-7, frames=n, observe=lambda t, u, _: t) for n in (1, 4))
    # Frames are multiples of a power of two: their times are exact, but for the rounding of their last step.
    np.testing.assert_allclose(cut.observed, [0.25, 0.5, 0.75, 1.0], rtol=1e-15)
    # Both are within the tolerance of the exact solution.
    np.testing.assert_allclose(whole.state, cut.state, rtol=0, atol=2e-6)


def test_a_run_cut_at_a_frame_goes_on_bit_for_bit():
    schedule = sj.Schedule(0.25, tolerance=1e-6, max_steps=40)
    whole = sj.simulate(Decay(), TSIT5, RATE, START, schedule, frames=3)
    part = sj.simulate(Decay(), TSIT5, RATE, START, schedule, frames=1)
    rest = sj.simulate(Decay(), TSIT5, RATE, part.state, schedule, frames=2, clock=part.clock)
    same = jax.tree.map(np.array_equal, (whole.state, whole.clock), (rest.state, rest.clock))
    assert all(jax.tree.leaves(same))


def test_advance_counts_attempts_and_stops_with_the_frame():
    schedule = sj.Schedule(0.5, tolerance=1e-6, max_steps=1)
    clock = sj.Clock.zero(jnp.float64, controlled=True)
    advance = jax.jit(
        lambda state, clock, steps: sj.advance(Decay(), TSIT5, RATE, state, clock, schedule, steps=steps, until=1),
        static_argnums=2,
    )
    state, few = advance(START, clock, 3)
    assert few.step + few.control.rejected == 3 and few.frame == 0
    once, piecewise = advance(START, clock, 1000), advance(state, few, 1000)
    assert once[1].frame == 1 and once[1].substep == 0
    assert np.array_equal(once[0], piecewise[0]) and once[1].step == piecewise[1].step


def from_a_step_too_long(rate, start, **options):
    """A run whose first attempt goes so far that its stages are not numbers."""
    clock = sj.Clock.zero(jnp.float64, controlled=True)
    clock = eqx.tree_at(lambda c: c.control.next_dt, clock, jnp.asarray(2.0))
    return controlled(Root(), rate, start, 0.9, 1e-8, clock=clock, **options)


def test_steps_that_meet_what_is_not_a_number_are_rejected():
    end = from_a_step_too_long(jnp.asarray(1.0), START)
    assert end.clock.control.rejected > 0
    # Of fourteen steps at most, the last of which amplify what is wrong by less than ten: u falls to a hundredth.
    np.testing.assert_allclose(end.state, (jnp.sqrt(START) - 0.9) ** 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("checkpoint", ["every_step", pytest.param("two_level", marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_steps_that_were_kept(checkpoint):
    def final(rate, start):
        return jnp.sum(from_a_step_too_long(rate, start, checkpoint=checkpoint).state)

    rate, start = jax.grad(final, argnums=(0, 1))(jnp.asarray(1.0), START)
    root = jnp.sqrt(START)
    # As exact as the run itself: the derivative of the exact solution.
    np.testing.assert_allclose(rate, jnp.sum(-1.8 * (root - 0.9)), atol=1e-6)
    np.testing.assert_allclose(start, (root - 0.9) / root, atol=1e-6)


@pytest.mark.slow
def test_forward_mode_agrees_with_reverse_mode():
    def final(rate):
        return jnp.sum(from_a_step_too_long(rate, START).state)

    rate = jnp.asarray(1.0)
    _, forward = jax.jvp(final, (rate,), (jnp.ones(()),))
    # The same operations in another order: some hundred roundings of fourteen steps of six stages.
    np.testing.assert_allclose(forward, jax.grad(final)(rate), rtol=1e-12)


def test_a_tolerance_that_no_step_meets_ends_the_run():
    class Noise(Ordinary):
        """A tendency that differs at every call, however short the step."""

        def rhs(self, t, state, params):
            return 1e12 * jnp.sin(1e18 * (t + 0.1) * (1 + jnp.abs(state)))

    end = controlled(Noise(), None, START, 1.0, 1e-10, on_fault="keep", most=40)
    assert end.clock.status == TOLERANCE_MISSED and end.clock.control.next_dt <= SMALLEST * 5
    assert np.array_equal(end.state, START)
    with pytest.raises(sj.NumericalError, match="no step was so short .*Take a larger tolerance"):
        controlled(Noise(), None, START, 1.0, 1e-10, most=40)


def test_a_frame_with_too_few_steps_says_what_to_write():
    assert controlled(Decay(), RATE, START, 1.0, 1e-8, most=3, on_fault="keep").clock.status == FRAME_UNFINISHED
    with pytest.raises(sj.NumericalError, match=r"Schedule\(1, tolerance=1e-08, max_steps=12\)"):
        controlled(Decay(), RATE, START, 1.0, 1e-8, most=3)


def test_members_take_their_own_steps():
    rates = jnp.asarray([0.1, 30.0])
    both = jax.vmap(lambda rate: controlled(Decay(), rate, START, 1.0, 1e-6, on_fault="keep"))(rates)
    for k, rate in enumerate(rates):
        alone = controlled(Decay(), rate, START, 1.0, 1e-6, on_fault="keep")
        assert both.clock.step[k] == alone.clock.step
        # The same operations, compiled for two: some ten roundings, where products and sums are contracted otherwise.
        np.testing.assert_allclose(both.state[k], alone.state, rtol=1e-14)
    assert both.clock.step[1] > both.clock.step[0]


def on_mesh(sizes, scheme="tsit5", tolerance=1e-6):
    """A wave carried and diffused for half a turn, and the derivative of its mean square by the diffusivity."""
    mesh = sj.make_mesh(sizes)
    model = sj.AdvectionDiffusion(sj.decompose(sj.Grid((16, 8)), mesh), [PERIODIC, PERIODIC])
    x, y = model.domain.unsplit().coordinates((0.5, 0.5))
    wave = jnp.sin(2 * jnp.pi * x) * jnp.cos(2 * jnp.pi * y)
    if mesh is not None:
        wave = jax.device_put(wave, NamedSharding(mesh, model.domain.spec()))
    schedule = sj.Schedule(0.1, tolerance=tolerance, max_steps=30)

    def final(diffusivity, wave):
        def mean_square(diffusivity):
            params = model.Params(diffusivity, jnp.asarray([0.5, 0.25]))
            end = sj.simulate(
                model, sj.error_controlled(scheme), params, model.State(wave), schedule, frames=1, on_fault="keep"
            )
            return model.domain.mean(end.state.concentration**2), (end.state.concentration, end.clock.step)

        (_, found), slope = jax.value_and_grad(mean_square, has_aux=True)(diffusivity)
        return *found, slope

    one, spec = PartitionSpec(), model.domain.spec()
    run = distribute(final, mesh, in_specs=(one, spec), out_specs=(spec, one, one))
    return run(jnp.asarray(0.05), wave)


@pytest.mark.parametrize("scheme", ["tsit5", pytest.param("kvaerno5", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_decomposed_steps_are_those_of_one_device(scheme):
    alone, steps, slope = on_mesh({}, scheme)
    split, split_steps, split_slope = on_mesh({"x": 4, "y": 2}, scheme)
    assert steps == split_steps
    # The norm is that of the whole state: only its sum is ordered otherwise, and moves steps by roundings.
    np.testing.assert_allclose(split, alone, rtol=0, atol=1e-13)
    # So do derivatives, a thousand times as much: they hold the lengths of steps fixed, which differ by roundings.
    np.testing.assert_allclose(split_slope, slope, rtol=1e-10)


def robertson(tolerance, slow=0.04, cells=3, most=120):
    model = Robertson(sj.Domain(sj.Grid((cells,))), [PERIODIC])
    params = {name: jnp.asarray(value) for name, value in {**model.parameters, "slow": slow}.items()}
    first = jnp.linspace(0.5, 1.0, cells)
    start = {"a": first, "b": jnp.zeros(cells), "c": jnp.zeros(cells)}
    schedule = sj.Schedule(40.0, tolerance=tolerance, absolute_tolerance=1e-4 * tolerance, max_steps=most)
    return sj.simulate(model, sj.error_controlled("kvaerno5"), params, start, schedule, frames=1), first


PUBLISHED = (0.7158270688, 9.185534765e-6, 0.2841637457)
"""Robertson's reaction at t = 40: Hairer and Wanner, Solving Ordinary Differential Equations II, IV.10."""


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-4, 1e-6])
def test_stiff_reactions_in_every_cell(tolerance):
    """Explicit steps would be 3e-4 at most: some 1e5 of them."""
    end, first = robertson(tolerance)
    for name, exact in zip(("a", "b", "c"), PUBLISHED, strict=True):
        # The last cell begins with one. Published to ten digits.
        np.testing.assert_allclose(end.state[name][-1], exact, rtol=max(10 * tolerance, 1e-8))
    # Every stage is a sum of tendencies that conserve it, and what Newton's method leaves conserves it too, as products
    # with the matrix do: some hundred roundings are left, of sixty steps.
    np.testing.assert_allclose(sum(end.state.values()), first, rtol=1e-13)


@pytest.mark.slow
def test_derivatives_through_implicit_stages():
    slope = jax.grad(lambda slow: jnp.sum(robertson(1e-7, slow)[0].state["b"]))(jnp.asarray(0.04))
    ends = [jnp.sum(robertson(1e-9, 0.04 + h, most=400)[0].state["b"]) for h in (-1e-4, 1e-4)]
    # A difference over a four-hundredth of the rate: its square times a third derivative of order one.
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / 2e-4, rtol=1e-4)


PLAIN = sj.Schedule(0.1, tolerance=1e-4, max_steps=10)
LINE = sj.AdvectionDiffusion(sj.Domain(sj.Grid((8,))), [PERIODIC])
FLOW = sj.Incompressible(sj.Domain(sj.Grid((8, 8))), [PERIODIC, PERIODIC])
STILL = FLOW.State((jnp.zeros((8, 8)),) * 2)
test_refusals = refusals(
    {
        "a scheme without estimate": (
            lambda: sj.simulate(
                LINE,
                INTEGRATORS["rk4"],
                LINE.Params(jnp.ones(()), jnp.ones(1)),
                LINE.State(jnp.ones(8)),
                PLAIN,
                frames=1,
            ),
            "a tolerance: expected a scheme that estimates its error, got RungeKutta; write error_controlled('tsit5').",
        ),
        "a flow": (
            lambda: sj.simulate(FLOW, TSIT5, FLOW.Params(jnp.ones(()), None), STILL, PLAIN, frames=1),
            "a tolerance: expected a model whose tendency is the whole law, but the projection of the velocity, by "
            "which no flow has a divergence, changes the state beside it, and an estimate of errors knows nothing of "
            "that; write courant or dt for Incompressible.",
        ),
        "two lengths": (
            lambda: sj.Schedule(0.1, dt=0.1, tolerance=1e-4),
            "Schedule needs exactly one of dt, courant and tolerance; dt=0.1, courant=None, tolerance=0.0001.",
        ),
        "no bound": (
            lambda: sj.Schedule(0.1, tolerance=1e-4),
            "Schedule.tolerance needs max_steps, the most steps a frame may take.",
        ),
        "an absolute tolerance alone": (
            lambda: sj.Schedule(0.1, dt=0.1, absolute_tolerance=1e-4),
            "Schedule.absolute_tolerance=0.0001 without a tolerance; write Schedule(interval, tolerance=1e-6, "
            "absolute_tolerance=1e-9, max_steps=1000).",
        ),
        "reversed": (
            lambda: controlled(Decay(), RATE, START, 1.0, 1e-4, checkpoint="reverse"),
            "checkpoint='reverse': expected a scheme whose steps can be undone (leapfrog), got Embedded; use "
            "'two_level' or Binomial(states=...).",
        ),
    }
)
