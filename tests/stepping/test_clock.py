"""A clock in single precision that keeps its rounding errors, and runs whose step becomes too short."""

import dataclasses
import functools
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import OPTIMISED, PLAIN, QUICK
from jax.sharding import PartitionSpec
from ordinary import Ordinary

import simjax as sj
from simjax.errors import ConfigurationError, NumericalError
from simjax.integrators.table import INTEGRATORS
from simjax.status import OK, STEP_COLLAPSED, STEP_SHRUNK
from simjax.stepping.clock import (
    Clock,
    Schedule,
    clock_of,
    elapsed_of,
    numbers_of,
    tick_fixed,
    ticked_fixed,
    time_of,
)
from simjax.stepping.compensated import added, pair_of, product, total_of, two_sum
from simjax.stepping.simulate import advance, simulate

EULER = INTEGRATORS["euler"]


class Steady(Ordinary):
    """u' = 1, with the stable step as its parameter."""

    def rhs(self, t, state, params):
        return jnp.ones_like(state)

    def stable_dt(self, state, params):
        return params


class Shrinking(Ordinary):
    """u' = u, whose stable step falls like a power of u."""

    def rhs(self, t, state, params):
        return state

    def stable_dt(self, state, params):
        return 0.1 * jnp.min(state) ** -params


def steady(schedule, dtype=jnp.float32, frames=1, **options):
    """A compiled run of `Steady` on a stable step."""
    run = jax.jit(
        lambda limit: simulate(Steady(), EULER, limit, jnp.zeros(1, dtype), schedule, frames=frames), **options
    )
    return lambda limit: run(jnp.asarray(limit, dtype))


# ---------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("options", [PLAIN, QUICK, OPTIMISED], ids=["plain", "quick", "optimised"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.slow
def test_no_compiler_simplifies_a_rounding_error_away(dtype, options):
    """Also where one number is a constant, which compilers would like to cancel."""
    numbers = np.random.default_rng(0).uniform(-1, 1, 50).astype(dtype)
    small = np.asarray(1e-5, dtype)

    def pairs(a):
        return two_sum(a, jnp.asarray(small)), two_sum(jnp.asarray(small), a), two_sum(a * 3, a)

    def check(total, error, *expected):
        for s, e, *terms in zip(total, error, *expected, strict=True):
            assert Fraction(float(s)) + Fraction(float(e)) == sum(Fraction(float(x)) for x in terms)

    for transform in (jax.vmap(pairs), lambda a: jax.lax.scan(lambda _, x: (None, pairs(x)), None, a)[1]):
        first, second, third = jax.jit(transform, compiler_options=options)(jnp.asarray(numbers))
        check(*first, numbers, np.full_like(numbers, small))
        check(*second, numbers, np.full_like(numbers, small))
        # A product that is fused into the sum is not rounded before it: then only the sum is known.
        assert np.all(np.abs(np.float64(third[1])) <= np.spacing(np.abs(third[0])))
    slope = jax.jit(jax.grad(lambda a: sum(pairs(a)[0])), compiler_options=options)(jnp.asarray(small * 7))
    assert slope == 1


@pytest.mark.parametrize("options", [PLAIN, OPTIMISED], ids=["plain", "optimised"])
def test_counts_times_lengths_are_rounded_once(options):
    counts = np.random.default_rng(1).integers(0, 2**24, 2000)

    def times(n):
        length = product(n, pair_of(0.1, jnp.float32))
        return length, total_of(pair_of(1234.5, jnp.float32), length, product(n % 999, pair_of(1e-4, jnp.float32)))

    (whole, low), total = jax.jit(jax.vmap(times), compiler_options=options)(jnp.asarray(counts, jnp.int32))
    # The product with the lower half of the digits is rounded: 2^-24 of 2^-12.
    np.testing.assert_allclose(np.float64(whole) + np.float64(low), 0.1 * counts, rtol=2**-36)
    exact = 1234.5 + 0.1 * counts + 1e-4 * (counts % 999)
    # The nearest number, or where two are nearly as near, the other.
    assert np.all(np.abs(np.float64(total) - exact) <= 0.501 * np.spacing(exact.astype(np.float32)))


def test_the_derivative_of_a_product_is_the_count():
    count = jnp.asarray(1_234_567, jnp.int32)
    slope = jax.grad(lambda x: total_of(product(count, pair_of(x, jnp.float32))))(jnp.float32(0.3))
    assert float(slope) == 1_234_567


# ---------------------------------------------------------------------- steps of a frame


@pytest.mark.parametrize("options", [QUICK, OPTIMISED], ids=["quick", "optimised"])
def test_a_frame_has_as_many_short_steps_as_it_says(options):
    """A hundred thousand, in single precision: a sum of rounded times is two parts in a thousand off."""
    run = steady(Schedule(1.0, courant=1.0, max_steps=110_000), frames=2, compiler_options=options)
    clock = run(1e-5).clock
    # The last two steps of a frame share what is left, so there may be one more.
    assert abs(int(clock.step) - 200_000) <= 2
    assert int(clock.frame) == 2 and float(elapsed_of(clock)) == 0 and int(clock.status) == OK


@pytest.mark.parametrize("schedule", [sj.Schedule(0.1, dt=0.03), sj.Schedule(steps=3, dt=0.1)])
def test_many_steps_at_once_are_so_many_steps(schedule):
    clock = begin = dataclasses.replace(sj.Clock.zero(jnp.float32), substep=jnp.asarray(1, jnp.int32))
    for count in range(1, 10):
        clock, _ = tick_fixed(clock, schedule)
        for found, expected in zip(
            jax.tree.leaves(ticked_fixed(begin, schedule, jnp.asarray(count, jnp.int32))),
            jax.tree.leaves(clock),
            strict=True,
        ):
            assert found == expected and found.dtype == expected.dtype


@pytest.mark.parametrize("controlled", [False, True])
def test_numbers_of_a_clock_are_all_of_it(controlled):
    leaves, tree = jax.tree.flatten(sj.Clock.zero(jnp.float32, controlled=controlled))
    clock = tree.unflatten([jnp.asarray(k, leaf.dtype) for k, leaf in enumerate(leaves)])
    assert jax.tree.leaves(clock_of(*numbers_of(clock))) == jax.tree.leaves(clock)


def test_steps_far_below_a_rounding_of_the_frame_advance_time():
    """2e-9 of the frame, from its middle on, where a rounding of float32 is 6e-8."""
    schedule, steps, step = Schedule(1.0, courant=1.0, max_steps=10), 1000, np.float32(2e-9)
    clock = eqx.tree_at(lambda c: c.elapsed, Clock.zero(jnp.float32), jnp.asarray(0.5, jnp.float32))
    forward = jax.jit(lambda *a: advance(Steady(), EULER, *a, schedule, steps=steps, until=1))
    _, clock = forward(jnp.asarray(step), jnp.zeros(1, jnp.float32), clock)
    assert int(clock.step) == steps
    # A rounding of the second number per step, of which the largest are 2^-50.
    assert float(elapsed_of(clock)) == pytest.approx(0.5 + steps * float(step), abs=steps * 2**-49)


def test_the_division_into_calls_changes_nothing_in_single_precision():
    schedule = Schedule(1.0, courant=1.0, max_steps=10)

    @functools.partial(jax.jit, static_argnums=2)
    def go(state, clock, steps):
        return advance(Steady(), EULER, jnp.float32(1e-3), state, clock, schedule, steps=steps, until=9)

    def through(*calls):
        state, clock = jnp.zeros(1, jnp.float32), Clock.zero(jnp.float32)
        for steps in calls:
            state, clock = go(state, clock, steps)
        return [np.asarray(leaf) for leaf in jax.tree.leaves((state, clock))]

    assert through(150) == through(1, 70, 79) == through(75, 75)
    # The rounding error is part of it.
    assert np.any(through(150)[5] != 0)


def test_times_of_steps_in_single_precision_are_the_nearest_ones():
    """Late frames and late steps: neither is multiplied by a rounded length."""
    for schedule in (Schedule(0.1, 3.3, dt=0.1 / 70_001), Schedule(steps=70_001, start=3.3, dt=0.1 / 70_001)):
        frames, substeps = np.meshgrid([0, 7, 123_457 // 100, 20_000], [0, 1, 333, 70_000])

        def at(frame, substep, schedule=schedule):
            where = eqx.tree_at(lambda c: (c.frame, c.substep), Clock.zero(jnp.float32), (frame, substep))
            return time_of(where, schedule)

        counts = (jnp.asarray(n.ravel(), jnp.int32) for n in (frames, substeps))
        found = jax.jit(jax.vmap(at))(*counts)
        exact = (3.3 + 0.1 * frames + 0.1 / 70_001 * substeps).ravel()
        assert np.all(np.abs(np.float64(found) - exact) <= 0.501 * np.spacing(exact.astype(np.float32)))


class Wave(sj.CenteredModel):
    """Advection by upwind differences."""

    fields = ("u",)

    def rhs(self, t, state, params):
        h = self.domain.grid.spacing[0]
        return {"u": self.apply(lambda u: (u[:-2] - u[1:-1]) / h, state, t=t)}

    def stable_dt(self, state, params):
        return params["limit"] * jnp.min(state["u"])


@pytest.mark.slow
def test_the_clock_is_the_same_on_any_mesh_and_under_grad():
    start = {"u": 1 + 0.5 * jnp.sin(2 * jnp.pi * jnp.arange(8, dtype=jnp.float32) / 8)}
    params, schedule = {"limit": jnp.float32(0.004)}, Schedule(1.0, courant=0.7, max_steps=800)

    def result(mesh):
        domain = sj.decompose(sj.Grid((8,)), mesh)
        model = Wave(domain, [(sj.PeriodicSide(), sj.PeriodicSide())])

        def loss(state):
            end = simulate(model, EULER, params, state, schedule, frames=2)
            return domain.sum(end.state["u"] ** 2), end.clock

        (value, clock), slope = sj.distribute(
            jax.value_and_grad(loss, has_aux=True),
            mesh,
            in_specs=({"u": domain.spec()},),
            out_specs=((PartitionSpec(), PartitionSpec()), {"u": domain.spec()}),
        )(start)
        return clock, value, slope["u"]

    one, two = result(None), result(sj.make_mesh({"x": 2}))
    assert int(one[0].status) == OK and int(one[0].step) > 400
    for a, b in zip(jax.tree.leaves(one[0]), jax.tree.leaves(two[0]), strict=True):
        # Counts are equal; lengths of steps follow fields, which two programs round in two ways.
        np.testing.assert_allclose(a, b, rtol=1e-4 if jnp.issubdtype(a.dtype, jnp.floating) else 0)
    # Roundings of float32 in some five hundred steps.
    np.testing.assert_allclose(one[2], two[2], rtol=1e-5)
    assert np.all(np.isfinite(one[2])) and np.any(one[2] != 0)


# ---------------------------------------------------------------------- steps that become too short


@pytest.mark.parametrize(("bound", "status"), [(0.0, OK), (1e-2, STEP_SHRUNK)])
def test_a_step_that_shrinks_below_its_bound_ends_the_run(bound, status):
    """After a time of one, u^4 has grown by e^4 = 55; after 1.25, a hundred times."""
    schedule = Schedule(0.5, courant=1.0, max_steps=3000, step_shrink=bound)
    run = jax.jit(
        lambda u: simulate(Shrinking(), INTEGRATORS["heun"], 4.0, u, schedule, frames=3, on_fault="keep"),
    )
    clock = run(jnp.ones(1)).clock
    assert int(clock.status) == status and int(clock.frame) == (3 if status == OK else 2)
    said = sj.status_of(clock, schedule)
    if status != OK:
        assert "frame 2 (counted from 0)" in said and "at t=1" in said and "the first one was 0.1" in said
        # Found at the first step below the bound, to the growth within a step.
        assert 0.99e-3 < float(clock.smallest_limit) < 1e-3
    else:
        assert said == "no fault"


def test_a_limit_that_collapses_after_the_last_frame_takes_nothing_back():
    """Steps that are left over after the frames asked for look at no limit."""

    class Ends(Steady):
        def stable_dt(self, state, params):
            return jnp.where(state[0] < 0.999, 0.1, 0.0)

    schedule, begin = Schedule(1.0, courant=1.0, max_steps=10), (jnp.zeros(1), Clock.zero(jnp.float64))
    state, clock = jax.jit(lambda *a: advance(Ends(), EULER, None, *a, schedule, steps=30, until=1))(*begin)
    assert int(clock.frame) == 1 and int(clock.status) == OK
    _, clock = jax.jit(lambda *a: advance(Ends(), EULER, None, *a, schedule, steps=1, until=2))(state, clock)
    assert int(clock.frame) == 1 and int(clock.status) == STEP_COLLAPSED


class Runaway(sj.CenteredModel):
    """Growth du/dt = u, whose stable step falls like a power of u."""

    fields = ("u",)
    parameters = {"power": 2.0}

    def rhs(self, t, state, params):
        return dict(state)

    def stable_dt(self, state, params):
        return 0.2 * jnp.max(state["u"]) ** -params["power"]


def runaway(tmp_path, **sections):
    chosen = {"time": {"end": 3.0, "courant": 1.0, "output_every": 0.5}, "precision": "float32"} | sections
    return sj.configure(
        Runaway,
        grid={"shape": [4]},
        initial={"u": "1 + 0.1*x"},
        output={"root": str(tmp_path), "animation": False, "report": False},
        **chosen,
    )


def log_of(tmp_path):
    return next(tmp_path.glob("*/*/run.log")).read_text()


@pytest.mark.slow
def test_a_step_that_shrinks_is_told_and_ends_the_run(tmp_path, capsys):
    """u^6 = e^(6 t): a hundredth of the first step at t = 0.77, a two hundredth at t = 0.88."""
    with pytest.raises(NumericalError, match="limits.step_shrink") as error:
        runaway(tmp_path, limits={"step_shrink": 5e-3}, physics={"power": 6.0}).run(progress=True)
    assert error.value.exit_code == 3
    message = str(error.value)
    for part in ("the first one was 0.1", "t=0.8", "largest absolute values: ", " 2.6", "at index (3,)", "step "):
        assert part in message, message
    warning = "warning: the time step has shrunk to 0.00"
    assert log_of(tmp_path).count(warning) == 1 and "below limits.step_shrink=0.005 of it the run ends" in log_of(
        tmp_path
    )
    assert "has shrunk to" in capsys.readouterr().out
    # The last good state is kept, and goes on where it may.
    assert "limits.step_shrink=null to go on" in message
    further = runaway(
        tmp_path,
        limits={"step_shrink": None},
        physics={"power": 6.0},
        time={"end": 1.0, "courant": 1.0, "output_every": 0.5},
    )
    result = further.run(resume=str(next(tmp_path.glob("*/*/run.log")).parent))
    assert result.exit_code == 0 and float(result.ds.time[-1]) == 1.0
    # The first step of 0.1, with the third-order scheme, is the largest error.
    np.testing.assert_allclose(result.ds.u.isel(time=-1), np.e * result.ds.u.isel(time=0), rtol=1e-4)


@pytest.mark.slow
def test_without_a_bound_the_run_goes_on_and_tells_again(tmp_path):
    result = runaway(
        tmp_path,
        limits={"step_shrink": None},
        physics={"power": 4.0},
        time={"end": 2.5, "courant": 1.0, "output_every": 2.5},
    ).run()
    assert result.exit_code == 0
    # At e^-4.6 and e^-9.2 of the first step.
    assert log_of(tmp_path).count("limits.step_shrink=null, so the run goes on") == 2


@pytest.mark.slow
def test_a_healthy_run_is_not_warned_of(tmp_path):
    """The last interval is short, and its one step with it; that is no shrinkage."""
    result = runaway(tmp_path, physics={"power": 0.5}, time={"end": 0.50001, "courant": 1.0, "output_every": 0.5}).run()
    assert result.exit_code == 0 and "shrunk" not in log_of(tmp_path)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_impossible_bounds_are_refused(tmp_path, value):
    with pytest.raises(ConfigurationError, match=r"limits\.step_shrink"):
        runaway(tmp_path, limits={"step_shrink": value})


def test_added_pairs_keep_their_order():
    """The first number is the sum rounded, so that it alone is what a time shows."""
    pair = pair_of(1.0, jnp.float32)
    for _ in range(100):
        pair = added(pair, jnp.float32(1e-9))
    assert float(pair[0]) == np.float32(1 + 1e-7) and abs(float(pair[1])) <= 2**-24
