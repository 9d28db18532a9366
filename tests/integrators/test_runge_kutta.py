"""Schemes at their order, clocks that neither drift nor depend on chunking, faults that never lose a good state."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PLAIN
from ordinary import Ordinary

from simjax.errors import ConfigurationError
from simjax.integrators.runge_kutta import INTEGRATORS
from simjax.status import FRAME_UNFINISHED, NON_FINITE, OK, STEP_COLLAPSED
from simjax.stepping.simulate import Clock, Schedule, advance, simulate, time_of


class Coupled(Ordinary):
    """u' = 2 t u log v, v' = -2 t v log u: nonlinear, coupled, non-autonomous; u = exp(sin t^2), v = exp(cos t^2)."""

    def rhs(self, t, state, params):
        u, v = state
        return 2 * t * u * jnp.log(v), -2 * t * v * jnp.log(u)

    def stable_dt(self, state, params):
        """Shrinks as the solution grows, so that steps under a Courant number differ."""
        return 0.06 / (1 + state[0])


class Decay(Ordinary):
    """u' = -k u^2 + cos(t), with parameter k."""

    def rhs(self, t, state, params):
        return -params * state**2 + jnp.cos(t)


class Explosion(Ordinary):
    """u' = u^2: infinite at t = 1 / u(0)."""

    def rhs(self, t, state, params):
        return params * state**2


def coupled_start():
    return jnp.ones(1), jnp.full(1, np.e)


def coupled_end(t):
    return np.exp(np.sin(t**2)), np.exp(np.cos(t**2))


def same(a, b):
    """Bitwise equality of two trees."""
    return all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


# ---------------------------------------------------------------------- schemes


@pytest.mark.parametrize("name", INTEGRATORS)
def test_measured_order_is_the_scheme_s(name):
    integrator, model = INTEGRATORS[name], Coupled()

    @jax.jit
    def error(steps):
        dt = 1.5 / steps

        def body(k, state):
            return integrator.step(model, k * dt, dt, state, None)

        state = jax.lax.fori_loop(0, steps, body, coupled_start())
        return sum(jnp.sum(jnp.abs(u - e)) for u, e in zip(state, coupled_end(1.5), strict=True))

    errors = np.array([error(n) for n in (80, 160, 320)])
    slopes = np.log2(errors[:-1] / errors[1:])
    # Away from the leading term by the next one, of relative size dt: the last pair's error is below 0.1.
    assert abs(slopes[-1] - integrator.order) < 0.15
    assert abs(slopes[-1] - integrator.order) < abs(slopes[0] - integrator.order) + 0.02


@pytest.mark.parametrize("name", INTEGRATORS)
def test_constraints_hold_where_the_tendency_is_taken(name):
    """Every stage is constrained at the time at which the next tendency is evaluated, the last one at t + dt."""
    visited = []

    class Recorded(Ordinary):
        def rhs(self, t, state, params):
            visited.append(("rhs", round(t, 12)))
            return state

        def constrain(self, t, dt, state, params):
            visited.append(("constrain", round(t, 12)))
            return state

    integrator = INTEGRATORS[name]
    integrator.step(Recorded(), 2.0, 0.25, 1.0, None)
    times = [t for kind, t in visited if kind == "rhs"]
    assert len(times) == integrator.stages and times[0] == 2.0
    assert [kind for kind, _ in visited] == ["rhs", "constrain"] * integrator.stages
    assert [t for kind, t in visited if kind == "constrain"] == [*times[1:], 2.25]


@pytest.mark.parametrize("name", [name for name, scheme in INTEGRATORS.items() if scheme.order > 2])
def test_the_stated_limit_is_near_the_end_of_stability(name):
    """|amplification| on the imaginary axis, where central advection is: at most one at the limit, above 10 % on."""
    integrator = INTEGRATORS[name]

    class Rotation(Ordinary):
        def rhs(self, t, state, params):
            return 1j * state

    def amplification(dt):
        return abs(integrator.step(Rotation(), 0.0, dt, 1.0, None))

    assert amplification(integrator.courant_limit) <= 1
    assert amplification(1.1 * integrator.courant_limit) > 1


# ---------------------------------------------------------------------- schedules


def run(schedule, *, frames=3, model=None, state=None, params=None, integrator="rk4", **options):
    """A compiled `simulate` that observes time, the last step's length and the state."""
    model = Coupled() if model is None else model
    state = coupled_start() if state is None else state

    def observe(t, state, params):
        return t, state

    return jax.jit(
        lambda state, params: simulate(
            model, INTEGRATORS[integrator], params, state, schedule, frames=frames, observe=observe, **options
        )
    )(state, params)


@pytest.mark.parametrize(
    ("interval", "dt", "steps"),
    [(0.1, 0.025, 4), (0.1, 0.03, 4), (0.1, 0.1, 1), (0.1, 0.7, 1), (0.3, 0.1, 3), (0.7, 0.0999, 8)],
)
def test_fixed_steps_hit_output_times_exactly(interval, dt, steps):
    schedule = Schedule(interval, dt=dt)
    assert schedule.steps == steps
    trajectory = run(schedule, frames=7)
    times, states = trajectory.observed
    # Bit for bit: the product of two numbers, never a sum of steps.
    np.testing.assert_array_equal(times, [interval * (k + 1) for k in range(7)])
    assert int(trajectory.clock.step) == 7 * steps and int(trajectory.clock.frame) == 7
    assert int(trajectory.clock.substep) == 0 and float(trajectory.clock.elapsed) == 0.0
    # The last step of a frame is the remainder, to a rounding of the interval.
    assert float(trajectory.clock.dt) == pytest.approx(interval - (steps - 1) * dt, abs=1e-15)


def test_the_time_integrated_is_the_time_told():
    """With u' = 1, the state is the sum of all steps: the shortened one too has the length that the clock says."""

    class Time(Ordinary):
        def rhs(self, t, state, params):
            return jnp.ones_like(state)

    for schedule in (Schedule(0.1, dt=0.03), Schedule(0.1, start=2.5, courant=0.37, max_steps=5)):
        trajectory = run(schedule, model=Time(), state=jnp.full(1, schedule.start), integrator="euler")
        times, states = trajectory.observed
        # A few additions of numbers of the size of the time.
        np.testing.assert_allclose(states[:, 0], times, rtol=1e-15)
        np.testing.assert_allclose(times, schedule.start + 0.1 * np.arange(1, 4), rtol=1e-15)


def test_a_shortened_step_keeps_the_order():
    """dt divides no interval; the solution at the end is still of fourth order."""
    ends = [run(Schedule(0.5, dt=dt), frames=3).state for dt in (0.023, 0.0115)]
    errors = [sum(abs(float(u[0]) - e) for u, e in zip(end, coupled_end(1.5), strict=True)) for end in ends]
    assert 3.8 < np.log2(errors[0] / errors[1]) < 4.3


def test_a_late_start_and_single_precision():
    """Ten million frames on, times in float32 are still the nearest ones: nothing is accumulated."""
    schedule = Schedule(0.1, dt=0.05, start=0.0)
    clock = eqx.tree_at(lambda c: c.frame, Clock.zero(jnp.float32), jnp.asarray(10_000_000, jnp.int32))
    assert float(time_of(clock, schedule)) == pytest.approx(1e6, rel=2e-7)
    clock = eqx.tree_at(lambda c: c.substep, clock, jnp.asarray(1, jnp.int32))
    assert float(time_of(clock, schedule)) == pytest.approx(1e6 + 0.05, rel=2e-7)


@functools.cache
def one_step(schedule):
    model = Coupled()
    return jax.jit(
        lambda state, clock, until: advance(
            model, INTEGRATORS["rk4"], None, state, clock, schedule, steps=1, until=until
        )
    )


def test_courant_steps_are_below_the_limit_and_end_frames_exactly():
    schedule = Schedule(0.25, courant=0.8, max_steps=64)
    state, clock = coupled_start(), Clock.zero(jnp.float64)
    lengths, frames, frame_time = [], 4, 0.0
    for _ in range(frames * schedule.max_steps):
        limit = 0.8 * float(Coupled().stable_dt(state, None)[0])
        before = clock
        state, clock = one_step(schedule)(state, clock, frames)
        if int(before.frame) == frames:
            # Nothing moves beyond the last frame asked for.
            assert same(clock, before)
            continue
        dt = float(clock.dt)
        assert 0 < dt <= limit * (1 + 1e-15)
        frame_time += dt
        if int(clock.frame) > int(before.frame):
            assert float(time_of(clock, schedule)) == 0.25 * int(clock.frame)
            # The steps of a frame add up to it, to a rounding each.
            assert frame_time == pytest.approx(0.25, abs=1e-15)
            frame_time = 0.0
        else:
            assert 0 < float(clock.elapsed) < 0.25
        lengths.append(dt / limit)
    assert int(clock.frame) == frames and int(clock.status) == OK
    # The limit is used: all steps but the last two of each frame are as long as allowed, none is a sliver.
    assert sum(r > 1 - 1e-12 for r in lengths) >= len(lengths) - 2 * frames
    assert min(lengths) > 0.4


def test_courant_steps_follow_the_solution():
    trajectory = run(Schedule(0.25, courant=0.8, max_steps=64), frames=6)
    times, states = trajectory.observed
    np.testing.assert_array_equal(times, 0.25 * np.arange(1, 7))
    for u, exact in zip(states, coupled_end(np.asarray(times)), strict=True):
        # Fourth order with steps of 0.02 at most.
        np.testing.assert_allclose(u[:, 0], exact, rtol=2e-5)


def test_too_few_steps_are_reported_and_the_state_is_kept():
    schedule = Schedule(0.25, courant=0.8, max_steps=3)
    trajectory = run(schedule, frames=3, on_fault="keep")
    _, states = trajectory.observed
    assert int(trajectory.clock.status) == FRAME_UNFINISHED
    assert int(trajectory.clock.frame) == 0 and int(trajectory.clock.step) == 3
    # The last good state is that after three steps, and stays.
    for u in states:
        np.testing.assert_array_equal(u[1:], u[:-1])


@pytest.mark.parametrize("stable", [0.0, np.nan, 1e-11])
def test_a_collapsed_step_is_reported_and_the_state_is_kept(stable):
    class Stiff(Coupled):
        def stable_dt(self, state, params):
            return params

    schedule = Schedule(0.25, courant=0.5, max_steps=4)
    trajectory = run(schedule, model=Stiff(), params=jnp.asarray(stable), frames=2, on_fault="keep")
    assert int(trajectory.clock.status) == STEP_COLLAPSED
    assert int(trajectory.clock.step) == 0 and same(trajectory.state, coupled_start())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "exactly one of dt, courant and tolerance"),
        ({"dt": 0.1, "courant": 0.5}, "exactly one of dt, courant and tolerance"),
        ({"dt": -0.1}, r"Schedule.dt=-0.1: expected a finite number above zero"),
        ({"dt": float("nan")}, "Schedule.dt=nan: expected a finite"),
        ({"courant": 0.5}, "needs max_steps"),
    ],
)
def test_impossible_schedules_are_refused(options, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        Schedule(1.0, **options)


# ---------------------------------------------------------------------- chunks


@pytest.mark.parametrize("integrator", ["euler", "ssprk3", "rk4"])
@pytest.mark.parametrize("schedule", [Schedule(0.25, dt=0.03), Schedule(0.25, courant=0.6, max_steps=20)])
@pytest.mark.slow
def test_the_division_into_calls_changes_nothing(integrator, schedule):
    @functools.partial(jax.jit, static_argnums=2)
    def go(state, clock, steps):
        return advance(
            Coupled(), INTEGRATORS[integrator], None, state, clock, schedule, steps=steps, until=2, checkpoint="none"
        )

    def through(chunks):
        state, clock = coupled_start(), Clock.zero(jnp.float64)
        for steps in chunks:
            state, clock = go(state, clock, steps)
        return state, clock

    # With dt a frame takes nine steps; with courant fewer than twenty, and what is left over does nothing.
    total = 18 if schedule.dt else 40
    whole = through([total])
    assert int(whole[1].frame) == 2
    assert same(through([5, 1, 7, total - 13]), whole)
    assert same(through([2] * (total // 2)), whole)


# ---------------------------------------------------------------------- faults


def test_a_lost_state_is_given_back_as_it_was():
    model, schedule = Explosion(), Schedule(0.5, dt=0.05)

    @jax.jit
    def frame(state, clock, growth):
        return advance(
            model, INTEGRATORS["rk4"], growth, state, clock, schedule, steps=schedule.steps, until=clock.frame + 1
        )

    state, clock = jnp.full(3, 0.5), Clock.zero(jnp.float64)
    good, growth = [(state, clock)], jnp.asarray(1.0)
    # Infinite at t = 2; the scheme oversteps the pole, and overflows within a few frames.
    while int(clock.status) == OK and len(good) < 9:
        state, clock = frame(state, clock, growth)
        good.append((state, clock))
    last_state, last_clock = good[-2]
    assert 3 <= len(good) < 9
    assert int(clock.status) == NON_FINITE
    assert same(state, last_state) and bool(jnp.all(jnp.isfinite(state)))
    assert same(eqx.tree_at(lambda c: c.status, clock, last_clock.status), last_clock)
    # Later calls change nothing, even where the step would now be harmless.
    assert same(frame(state, clock, jnp.asarray(0.0)), (state, clock))


def test_one_lost_cell_is_enough():
    schedule = Schedule(0.5, dt=0.5)

    def after(state):
        clock = Clock.zero(jnp.float64)
        return advance(Decay(), INTEGRATORS["euler"], 1.0, state, clock, schedule, steps=1, until=1)

    state = jnp.asarray([1.0, np.inf, 2.0])
    found, clock = jax.jit(after)(state)
    assert int(clock.status) == NON_FINITE and same(found, state)


@pytest.mark.parametrize("schedule", [Schedule(0.5, dt=0.05), Schedule(0.5, courant=0.5, max_steps=12)])
def test_a_lost_member_leaves_the_others_alone(schedule):
    model, frames = Explosion(), 8

    @jax.jit
    def ensemble(growths):
        def member(growth):
            return simulate(
                model,
                INTEGRATORS["heun"],
                growth,
                jnp.full(2, 0.5),
                schedule,
                frames=frames,
                observe=lambda t, state, params: state,
                on_fault="keep",
            )

        return jax.vmap(member)(growths)

    lost = ensemble(jnp.asarray([0.05, 1.0, -0.3]))
    healthy = ensemble(jnp.asarray([0.05, 0.1, -0.3]))
    np.testing.assert_array_equal(lost.clock.status, [OK, NON_FINITE, OK])
    np.testing.assert_array_equal(healthy.clock.status, [OK, OK, OK])
    for k in (0, 2):
        assert same(
            *(jax.tree.map(lambda x, k=k: x[k], (run.state, run.clock, run.observed)) for run in (lost, healthy))
        )
    # The lost one stays at its last good frame.
    stopped = int(lost.clock.frame[1])
    assert 3 <= stopped < frames and bool(jnp.all(jnp.isfinite(lost.state)))
    np.testing.assert_array_equal(lost.observed[1, stopped:], jnp.broadcast_to(lost.state[1], (frames - stopped, 2)))
    np.testing.assert_array_equal(lost.observed[1, stopped - 1], lost.state[1])


# ---------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("steps", "integrator"), [(1, "euler"), (12, "euler"), (13, "euler"), (7, "rk4"), (12, "rk4")])
@pytest.mark.slow
def test_checkpoints_change_neither_states_nor_gradients(steps, integrator):
    """One step, primes, and a number with divisors: groups of every kind, with and without a rest."""
    schedule = Schedule(0.5, dt=0.5 / steps)

    def run(params, state, checkpoint):
        return simulate(
            Decay(),
            INTEGRATORS[integrator],
            params,
            state,
            schedule,
            frames=3,
            observe=lambda t, state, params: jnp.sum(state**3) * t,
            checkpoint=checkpoint,
        )

    forward = jax.jit(run, static_argnums=2, compiler_options=PLAIN)
    gradient = jax.jit(jax.grad(lambda *a: jnp.sum(run(*a).observed), argnums=(0, 1)), static_argnums=2)
    arguments = jnp.asarray(0.7), jnp.linspace(0.2, 1.4, 3)
    expected, slopes = forward(*arguments, "none"), gradient(*arguments, "none")
    assert int(expected.clock.step) == 3 * steps
    for checkpoint in ("two_level", "every_step"):
        assert same(forward(*arguments, checkpoint), expected)
        for a, b in zip(gradient(*arguments, checkpoint), slopes, strict=True):
            # Recomputed values may be fused, and so rounded, otherwise; some forty steps of them.
            np.testing.assert_allclose(a, b, rtol=1e-13)
