"""A run that stops early says so: raised outside a transform, not a number inside one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from ordinary import Ordinary, WithoutSpace

import simjax as sj
from simjax.core.domain import Domain
from simjax.core.model import SelfSteppingModel
from simjax.errors import ConfigurationError
from simjax.integrators.table import INTEGRATORS
from simjax.parallel import decompose, make_mesh
from simjax.status import NON_FINITE, OK, SKIN_PASSED, UNPHYSICAL, spoiled
from simjax.stepping.clock import Clock
from simjax.stepping.one_step import arranged_steps
from simjax.stepping.simulate import Schedule, simulate

HEUN = INTEGRATORS["heun"]
SCHEDULE = Schedule(0.5, start=1.0, dt=0.05)
FRAMES = 8


class Explosion(Ordinary):
    """u' = k u^2: infinite at t = 1 / (k u(0)) after the start."""

    def rhs(self, t, state, params):
        return params * state**2


class Tank(Ordinary):
    """u' = -k, of which less than nothing means nothing."""

    def rhs(self, t, state, params):
        return -params * jnp.ones_like(state)

    def unphysical(self, state, params):
        return {"an empty tank": state < 0}


def run(growth, state=None, model=None, **options):
    state = jnp.full(2, 0.5) if state is None else state
    return simulate(
        Explosion() if model is None else model,
        HEUN,
        growth,
        state,
        SCHEDULE,
        frames=FRAMES,
        observe=lambda t, state, params: (t, jnp.sum(state), jnp.asarray(7, jnp.int32)),
        **options,
    )


def test_a_fault_outside_a_transform_is_raised_with_its_cause_and_time():
    with pytest.raises(sj.NumericalError, match="a field became infinite or not a number") as error:
        run(1.0)
    stopped = run(1.0, on_fault="keep").clock
    frame, step = int(stopped.frame), int(stopped.step)
    assert 2 <= frame < FRAMES
    assert f"in frame {frame} (counted from 0), after step {step} at t={1 + 0.5 * frame:g}" in str(error.value)
    assert error.value.exit_code == 3
    assert sj.status_of(run(0.1).clock) == "no fault"


class Limited(Explosion):
    """Stable while a step is shorter than what the state takes to double."""

    def stable_dt(self, state, params):
        return 1 / (params * jnp.max(state))


def test_too_few_steps_for_a_frame_are_answered_with_a_schedule_that_has_more():
    """Steps get shorter, so that the first one does not tell how many there are; what is written in reply does it."""
    with pytest.raises(sj.NumericalError, match="more steps than Schedule.max_steps") as error:
        simulate(Limited(), HEUN, 1.0, jnp.full(2, 0.5), Schedule(1.5, courant=0.5, max_steps=2), frames=1)
    written = "Schedule(1.5, courant=0.5, max_steps=8)"
    assert f"A frame has 2 steps at most: allow more, as by {written}" in str(error.value)
    found = simulate(Limited(), HEUN, 1.0, jnp.full(2, 0.5), eval(written), frames=1)
    assert int(found.clock.status) == OK


class Wanderer(WithoutSpace, SelfSteppingModel):
    """A number on each device that grows by its rate in every step, and may be one more than when it was arranged."""

    domain: Domain
    steps_per_arrangement: int = 3

    def arrange(self, state, params):
        return state, state, jnp.zeros((), jnp.int32)

    def step(self, number, t, dt, state, params, arrangement):
        return state + params

    def skin_used(self, state, arrangement):
        return jnp.max(state - arrangement)

    def stable_dt(self, state, params):
        return jnp.asarray(1.0)


@pytest.mark.parametrize(("rate", "status"), [(0.33, OK), (0.34, SKIN_PASSED)])
def test_an_arrangement_that_no_longer_serves_one_device_ends_the_run_on_all(rate, status):
    mesh = make_mesh({"x": 2})
    model = Wanderer(decompose(sj.Grid((2,)), mesh))

    def statuses(rates):
        schedule = Schedule(steps=6, dt=jnp.asarray(0.1))
        return arranged_steps(model, rates, (jnp.zeros(1), Clock.zero(float)), schedule, 6, "none")[1].status[None]

    cut = PartitionSpec("x")
    run = jax.shard_map(statuses, mesh=mesh, in_specs=cut, out_specs=cut, check_vma=False)
    np.testing.assert_array_equal(jax.jit(run)(jnp.asarray([0.0, rate])), [status, status])


def test_the_start_is_not_taken_for_the_answer():
    """With one frame, the last good state is the start."""
    schedule, start = Schedule(4.0, dt=0.05), jnp.full(2, 0.5)
    with pytest.raises(sj.NumericalError):
        simulate(Explosion(), HEUN, 1.0, start, schedule, frames=1)
    with pytest.raises(sj.NumericalError):
        sj.integrate(Explosion(), HEUN, 1.0, start, dt=0.05, steps=80)
    traced = jax.jit(lambda u: simulate(Explosion(), HEUN, 1.0, u, schedule, frames=1))(start)
    assert np.all(np.isnan(traced.state)) and int(traced.clock.status) == NON_FINITE
    with pytest.raises(sj.NumericalError, match="in frame 0"):
        sj.raise_on_fault(traced.clock, schedule)
    kept = simulate(Explosion(), HEUN, 1.0, start, schedule, frames=1, on_fault="keep")
    np.testing.assert_array_equal(kept.state, start)


@pytest.mark.parametrize(("model", "rate", "bit"), [(Explosion(), 1.0, NON_FINITE), (Tank(), 0.3, UNPHYSICAL)])
@pytest.mark.slow
def test_in_a_transform_what_follows_a_fault_is_no_number(model, rate, bit):

    def ends(k):
        found = run(k, model=model)
        return jnp.stack([jnp.sum(found.state), found.observed[1][-1]])

    traced, reverse, forward = jax.jit(lambda k: (run(k, model=model), jax.jacrev(ends)(k), jax.jacfwd(ends)(k)))(rate)
    stopped = int(traced.clock.frame)
    assert 2 <= stopped < FRAMES and int(traced.clock.status) == bit
    times, sums, marks = traced.observed
    kept = run(rate, model=model, on_fault="keep").observed[1]
    np.testing.assert_array_equal(sums[:stopped], kept[:stopped])
    assert np.all(np.isnan(sums[stopped:])) and np.all(np.isnan(times[stopped:]))
    assert np.all(np.isnan(traced.state)) and np.all(marks == 7)
    # Not even of a linear function is a gradient that of the last good state; nor is it zero.
    assert np.all(np.isnan(reverse)) and np.all(np.isnan(forward))


def test_a_lost_member_spoils_no_other():
    rates = jnp.asarray([0.05, 1.0, -0.3])

    def total(rates):
        found = jax.vmap(run)(rates)
        return jnp.nansum(found.state), found

    (_, found), slopes = jax.jit(jax.value_and_grad(total, has_aux=True))(rates)
    np.testing.assert_array_equal(np.isnan(found.state).all(1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(slopes), [False, True, False])
    # Nothing is made NaN in these, so that they know nothing of the members of `spoiled`.
    alone = jax.jit(jax.grad(lambda k: jnp.sum(run(k, on_fault="keep").state)))
    for k in (0, 2):
        # The same operations, compiled with and without a member axis.
        np.testing.assert_allclose(slopes[k], alone(rates[k]), rtol=1e-13)
    assert sj.status_of(found.clock, SCHEDULE).startswith("1 of 3 members failed; member 1: a field became infinite")


def test_a_good_run_and_its_gradient_are_what_they_were():
    state = jnp.asarray([0.5, -0.2])

    def outcome(on_fault):
        def loss(k, u):
            found = run(k, u, on_fault=on_fault)
            return jnp.sum(jnp.abs(found.state)), (found.state, found.observed)

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)), (jnp.asarray(0.1), state)

    programs = {on_fault: outcome(on_fault) for on_fault in ("raise", "nan", "keep")}
    found = {on_fault: program(*arguments) for on_fault, (program, arguments) in programs.items()}
    for on_fault in ("raise", "nan"):
        for a, b in zip(jax.tree.leaves(found[on_fault]), jax.tree.leaves(found["keep"]), strict=True):
            np.testing.assert_array_equal(a, b)


def test_numbers_of_every_type_are_spoiled_or_kept():
    tree = {
        "complex": jnp.asarray([1.5 - 0.0j, -0.0 + 2j]),
        "half": jnp.ones(2, jnp.bfloat16),
        "count": jnp.arange(3),
        "key": jax.random.key(0),
        "plain": 2.5,
    }
    kept, lost = (jax.jit(lambda bits: spoiled(tree, bits))(bits) for bits in (OK, UNPHYSICAL))
    for name, leaf in tree.items():
        assert jnp.all(kept[name] == leaf)
        assert name in ("count", "key") or np.all(np.isnan(np.asarray(lost[name], complex)))
    # Bit for bit, signs of zeros included.
    np.testing.assert_array_equal(np.signbit(kept["complex"].view(float)), np.signbit(tree["complex"].view(float)))
    assert jnp.all(lost["count"] == tree["count"]) and lost["key"] == tree["key"]


def test_a_good_run_costs_a_product_at_its_end():
    """The program grows at the end of the run and of each frame, and not within a step."""

    def equations(on_fault):
        traced = jax.make_jaxpr(lambda k: run(k, on_fault=on_fault).state)(0.1)

        def count(jaxpr):
            inner = [j for e in jaxpr.eqns for j in jax.tree.leaves(e.params, is_leaf=lambda x: hasattr(x, "eqns"))]
            inner = [getattr(j, "jaxpr", j) for j in inner if hasattr(j, "eqns") or hasattr(j, "jaxpr")]
            return len(jaxpr.eqns) + sum(map(count, inner))

        return count(traced.jaxpr)

    # One leaf of the state, two that are observed: a comparison, a choice in a call, conversions and a product each.
    assert equations("nan") - equations("keep") <= 3 * 6


def test_all_devices_hold_no_number():
    mesh = sj.make_mesh({"x": 2})

    class Grows(sj.CenteredModel):
        """du/dt = u^2, too fast in one cell."""

        fields = ("u",)

        def rhs(self, t, state, params):
            return {"u": state["u"] ** 2}

        def stable_dt(self, state, params):
            return jnp.asarray(1.0)

    domain = sj.decompose(sj.Grid((4,)), mesh)
    model = Grows(domain, [(sj.PeriodicSide(), sj.PeriodicSide())])

    def loss(state):
        end = simulate(model, HEUN, {}, state, SCHEDULE, frames=4)
        return domain.sum(end.state["u"]), end

    spec, whole = {"u": domain.spec()}, PartitionSpec()
    ends = sj.Trajectory(spec, whole, whole)
    program = sj.distribute(
        jax.value_and_grad(loss, has_aux=True), mesh, in_specs=(spec,), out_specs=((whole, ends), spec)
    )
    (value, end), slope = program({"u": jnp.asarray([0.1, 0.2, 0.1, 3.0])})
    assert np.isnan(value) and np.all(np.isnan(end.state["u"])) and np.all(np.isnan(slope["u"]))
    (value, end), slope = program({"u": jnp.asarray([0.1, 0.2, 0.1, 0.3])})
    assert np.isfinite(value) and int(end.clock.status) == OK and np.all(np.isfinite(slope["u"]))


def test_words_for_faults():
    assert "infinite" in sj.reasons(NON_FINITE)
    assert sj.reasons(np.int64(NON_FINITE)) == sj.reasons(jnp.asarray(NON_FINITE)) == sj.reasons(NON_FINITE)
    with pytest.raises(ConfigurationError, match="expected one of 'raise', 'nan', 'keep'"):
        run(0.1, on_fault="ignore")


@pytest.mark.parametrize("status", ["text", None, 1.5, np.ones(2, int)])
def test_words_are_of_whole_numbers(status):
    with pytest.raises(ConfigurationError, match=r"reasons\(.*\): expected the status of one run, a whole number"):
        sj.reasons(status)


@pytest.mark.parametrize("checkpoint", [np.ones(2), jnp.ones(2), [1]])
def test_a_plan_that_is_an_array_is_refused(checkpoint):
    with pytest.raises(ConfigurationError, match=r"checkpoint=.*: expected 'auto', 'none', .* or Budget"):
        run(0.1, checkpoint=checkpoint)
