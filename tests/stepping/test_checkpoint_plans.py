"""Checkpoint plans: the fewest steps computed again, the same gradients, and memory that does not follow the steps."""

import dataclasses
import functools
import math
import re

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec
from ordinary import Decay

import simjax as sj
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.integrators.table import INTEGRATORS
from simjax.jaxpr.platform import tracing_for
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stepping.checkpointing.binomial_order import fewest_advances, reach, replay
from simjax.stepping.checkpointing.binomial_scan import binomial_scan
from simjax.stepping.checkpointing.host_memory import device_memory, members_of
from simjax.stepping.checkpointing.plan import Binomial, Budget, plan
from simjax.stepping.clock import Clock
from simjax.stepping.simulate import Schedule, simulate

# ---------------------------------------------------------------------- the order of replays


@functools.cache
def fewest_by_search(steps, states):
    if steps == 1:
        return 0
    if states == 1:
        return steps * (steps - 1) // 2
    return min(
        ahead + fewest_by_search(steps - ahead, states - 1) + fewest_by_search(ahead, states)
        for ahead in range(1, steps)
    )


@pytest.mark.parametrize("states", [1, 2, 3, 5, 9, 40])
def test_no_order_advances_fewer_steps(states):
    for steps in range(1, 36):
        assert replay(steps, states).advanced == fewest_advances(steps, states) == fewest_by_search(steps, states)


@pytest.mark.parametrize(("steps", "states"), [(1, 1), (2, 1), (7, 3), (100, 4), (1000, 19), (3000, 200)])
def test_a_replay_stands_before_each_step_in_turn(steps, states):
    order, slots = replay(steps, states), {0: 0}
    for j, step in enumerate(reversed(range(steps))):
        position = slots[order.load[j]]
        for k in range(order.first[j], order.first[j + 1]):
            position += order.count[k]
            slots[order.slot[k]] = position
        assert position + order.rest[j] == step
    assert max(slots) < states


def test_steps_reversed_with_each_advanced_at_most_so_often():
    # Griewank and Walther: binomial(s + r, s).
    assert reach(19, 3) == math.comb(22, 3) > 1000 > reach(19, 2)
    for states, repeats in ((3, 4), (19, 2)):
        steps = reach(states, repeats)
        counted = np.zeros(steps, int)
        order, slots = replay(steps, states), {0: 0}
        for j in range(steps):
            position = slots[order.load[j]]
            for k in range(order.first[j], order.first[j + 1]):
                counted[position : position + order.count[k]] += 1
                position += order.count[k]
                slots[order.slot[k]] = position
            counted[position : position + order.rest[j]] += 1
        assert counted.max() == repeats


# ---------------------------------------------------------------------- the loop


def wave(scan, rate, u):
    """A chain that closes over `rate`, counts its steps and puts out something at each."""

    def body(carry):
        number, u = carry
        u = u + 0.1 * jnp.sin(rate * u) * jnp.cos(0.1 * number.astype(u.dtype))
        return (number + 1, u), {"size": jnp.sum(u**2), "number": number}

    (number, u), seen = scan(body, (jnp.zeros((), jnp.int32), u))
    weights = jnp.cos(jnp.arange(seen["size"].size, dtype=jnp.int32).astype(u.dtype))
    return jnp.sum(u**3) + jnp.sum(weights * seen["size"]), (number, seen["number"])


def stored(states):
    return lambda body, carry: binomial_scan(body, carry, length=23, states=states)


def plain(body, carry):
    return jax.lax.scan(lambda carry, _: body(carry), carry, length=23)


ARGUMENTS = jnp.asarray(0.7), jnp.linspace(0.1, 1.0, 5)


@pytest.mark.parametrize("states", [1, 2, 3, 5, 23, 40])
def test_gradients_are_those_of_a_scan(states):
    def both(scan):
        return jax.jit(jax.value_and_grad(functools.partial(wave, scan), argnums=(0, 1), has_aux=True))(*ARGUMENTS)

    (value, (number, numbers)), slopes = both(stored(states))
    (wanted, _), wanted_slopes = both(plain)
    assert int(number) == 23 and np.array_equal(numbers, np.arange(23))
    # The same operations; sums over 23 steps may be fused, and so rounded, otherwise.
    assert float(value) == pytest.approx(float(wanted), rel=1e-14)
    for a, b in zip(slopes, wanted_slopes, strict=True):
        assert np.all(np.abs(b) > 1e-3)
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_hessian_products_are_those_of_a_scan():
    def product(scan):
        slope = jax.grad(lambda rate, u: wave(scan, rate, u)[0], argnums=(0, 1))
        return jax.jit(lambda *a: jax.jvp(slope, a, (jnp.asarray(1.0), jnp.linspace(1.0, -1.0, 5)))[1])(*ARGUMENTS)

    for a, b in zip(product(stored(4)), product(plain), strict=True):
        assert np.all(np.abs(b) > 1)
        # The same operations, rounded otherwise: sums of 23 steps' second derivatives, of either sign and each of some
        # thirty roundings.
        np.testing.assert_allclose(a, b, rtol=1e-12)


# ---------------------------------------------------------------------- simulations


def gradient(steps, checkpoint, frames=1):
    """d/dk of the sum of u at the end of all frames, by forward Euler to t = 1."""
    schedule = Schedule(1.0 / frames, dt=1.0 / frames / steps)

    def total(k):
        seen = simulate(
            Decay(),
            INTEGRATORS["euler"],
            k,
            jnp.ones(4),
            schedule,
            frames=frames,
            checkpoint=checkpoint,
            observe=lambda t, state, params: jnp.sum(state),
        )
        return jnp.sum(seen.observed)

    return jax.jit(jax.grad(total), compiler_options=QUICK)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize(
    "checkpoint",
    ["none", "every_few", "every_stage", "every_step", "two_level", Binomial(2), Binomial(7), Budget(2000)],
    ids=str,
)
def test_every_plan_has_the_gradient_of_the_scheme(checkpoint, frames):
    steps, k = 20, 0.8
    dt = 1 / frames / steps
    ends = steps * np.arange(1, frames + 1)
    exact = np.sum(-4 * ends * dt * (1 - k * dt) ** (ends - 1))
    # Rounding of 60 steps.
    assert float(gradient(steps, checkpoint, frames)(jnp.asarray(k))) == pytest.approx(exact, rel=1e-13)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "integrator"),
    [
        slow("flow-2d-periodic", "midpoint"),
        slow("spectral-vorticity-2d", "etdrk2"),
        slow("flow-2d-periodic", "ssprk3"),
        slow("flow-2d-periodic", "williamson3"),
        slow("spectral-vorticity-2d", "etdrk4"),
    ],
)
def test_of_kept_stages_less_is_computed_again(name, integrator):
    """The same gradient by a program with fewer transforms."""
    case = next(case for case in cases.CASES if case.name == name)
    start, found = (case.params(), case.initial_state()), {}
    for kept in ("every_step", "every_stage"):
        run = dataclasses.replace(case, integrator=integrator, checkpoint=kept).runner(Domain(case.grid))
        loss = jax.jit(jax.grad(run, argnums=(0, 1), has_aux=True, allow_int=True))
        program = loss.lower(*start).compile(QUICK)
        solves = len(re.findall(r" fft\(", program.as_text()))
        found[kept] = jax.tree.leaves(program(*start)[0]), solves
    (again, many), (kept, few) = found["every_step"], found["every_stage"]
    assert few < many
    for expected, leaf in zip(again, kept, strict=True):
        # Rounding of a few steps, over the largest number.
        np.testing.assert_allclose(leaf, expected, rtol=0, atol=1e-13 * float(np.max(np.abs(expected))))


@pytest.mark.slow
def test_a_hundred_thousand_steps_from_two_hundred_states():
    steps, k = 100_000, 0.8
    exact = -4 * (1 - k / steps) ** (steps - 1)
    # Rounding of 1e5 steps, each of 1e-16, and of the time of each.
    assert float(gradient(steps, Binomial(199))(jnp.asarray(k))) == pytest.approx(exact, rel=1e-10)


def test_the_program_does_not_grow_with_the_steps():
    texts = [gradient(steps, Binomial(19)).lower(jnp.asarray(0.8)).as_text() for steps in (100, 100_000)]
    assert texts[0].count("\n") == texts[1].count("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "checkpoint",
    [
        Binomial(3),
        "every_few",
        pytest.param("every_step", marks=pytest.mark.slow),
        pytest.param("two_level", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_stored_states_stay_divided_among_devices(checkpoint):
    """No array of a device's program is as large as the grid."""
    case = next(case for case in cases.CASES if case.name == "advection-2d-walls")
    case = dataclasses.replace(case, checkpoint=checkpoint)
    mesh = make_mesh({"x": 2, "y": 4})
    domain = decompose(case.grid, mesh)
    state = case.initial_state()
    specs, params_specs = case.build(domain).partition_specs(state, case.params())
    run = distribute(case.runner(domain), mesh, in_specs=(params_specs, specs), out_specs=(PartitionSpec(), specs))
    program = jax.jit(jax.grad(run, argnums=(0, 1), has_aux=True), compiler_options=QUICK)
    text = program.lower(case.params(), state).compile().as_text()
    block = ",".join(map(str, domain.block_shape))
    # States stand together: of three, frames and steps have one or two each; of all steps, a frame has three.
    assert re.search(rf"f64\[[123],{block}\]", text)
    sizes = [math.prod(map(int, found.split(","))) for found in re.findall(r"f64\[([\d,]+)\]", text)]
    assert max(sizes) < case.grid.cells


# ---------------------------------------------------------------------- plans


def test_memory_and_cost_of_plans():
    few = plan(Binomial(19), frames=1, steps=1000, state_bytes=2**20)
    assert (few.step_states, few.again, few.bytes) == (19, 2769 - 999, 19 * 2**20)
    assert str(few) == (
        "binomial: 19 states of 1 MiB stored, 19 MiB per device; 1770 steps advanced again to reverse 1000; value and "
        "gradient cost about 5.3 forward runs"
    )
    two = plan("two_level", frames=1, steps=1000, state_bytes=2**20)
    assert two.step_states == 65 and two.again == 1000
    assert plan("two_level", frames=4, steps=1000, state_bytes=1).frame_states == 4
    shared = plan(Binomial(19), frames=10, steps=100, state_bytes=1)
    assert shared.frame_states + shared.step_states <= 19 and shared.cost < 8


@pytest.mark.parametrize(
    ("states", "policy"),
    [(3000, "every_stage"), (2999, "every_step"), (1000, "every_step"), (999, "binomial"), (1, "binomial")],
)
def test_a_budget_takes_the_cheapest_plan_that_fits(states, policy, caplog):
    with caplog.at_level("INFO", "simjax"):
        found = plan(Budget(100 * states + 99), frames=1, steps=1000, state_bytes=100, stages=3)
    assert found.policy == policy and found.bytes <= 100 * states + 99
    assert str(found) in caplog.text


@pytest.mark.parametrize(
    ("memory", "policy"),
    [
        # Half of it is for what is stored: 1000 states of 100 bytes, or 3000.
        (600_000, "every_stage"),
        (599_999, "every_step"),
        (200_000, "every_step"),
        (199_999, "two_level"),
        (None, "every_stage"),
    ],
)
def test_auto_stores_all_steps_where_the_device_has_room(memory, policy, caplog):
    with caplog.at_level("INFO", "simjax"):
        found = plan("auto", frames=1, steps=1000, state_bytes=100, stages=3, memory=memory)
    assert found.policy == policy
    assert (str(found) in caplog.text) == (memory is not None)


def test_auto_without_a_device_that_tells_stores_two_gibibytes():
    bound = 2**31 // 1000
    assert plan("auto", frames=1, steps=1000, state_bytes=bound).policy == "every_step"
    assert plan("auto", frames=1, steps=1000, state_bytes=bound + 1).policy == "two_level"


@pytest.mark.parametrize(("members", "policy"), [(1, "every_step"), (3, "two_level")])
def test_auto_asks_the_device_for_its_memory_and_counts_members(members, policy, monkeypatch, caplog):
    """Room for the steps of two members."""
    clock = sum(leaf.nbytes for leaf in jax.tree.leaves(Clock.zero(jnp.float64)))
    room = 2 * 2 * 20 * (4 * 8 + clock)
    monkeypatch.setattr("simjax.stepping.simulate.device_memory", lambda: room)

    def total(k, u):
        return jnp.sum(simulate(Decay(), INTEGRATORS["euler"], k, u, Schedule(1.0, dt=0.05), frames=1).state)

    k, u = jnp.linspace(0.5, 0.8, members), jnp.ones(4)
    with caplog.at_level("INFO", "simjax"):
        jax.jit(jax.vmap(jax.grad(total), in_axes=(0, None)), compiler_options=QUICK)(k, u)
    assert f": {policy}:" in caplog.text


def test_members_are_counted_through_maps_and_derivatives():
    found = []

    def seen(u, k):
        found.append(members_of({"u": u, "k": k}))
        return jnp.sum(u) * k

    mapped = jax.vmap(jax.vmap(jax.grad(seen), in_axes=(0, None)), in_axes=(None, 0))
    jax.jit(mapped)(jnp.ones((3, 2)), jnp.ones(5))
    jax.grad(lambda k: jnp.sum(jax.vmap(seen, in_axes=(None, 0))(jnp.ones(2), k)))(jnp.ones(7))
    seen(jnp.ones(2), 1.0)
    assert found == [15, 7, 1]


@pytest.mark.parametrize(
    ("backend", "processes", "limit", "expected"),
    [("gpu", 1, 7, 7), ("gpu", 2, 7, None), ("gpu", 1, None, None), ("cpu", 1, 7, None)],
)
def test_memory_is_that_of_a_device_that_is_there(backend, processes, limit, expected, monkeypatch):
    class Device:
        def memory_stats(self):
            return None if limit is None else {"bytes_limit": limit, "bytes_in_use": 3}

    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    assert device_memory() == expected
    # Compiled for a card on a machine without one.
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with tracing_for("gpu"):
        assert device_memory() is None


@pytest.mark.parametrize(
    ("checkpoint", "frames", "sentence"),
    [
        (Budget(99), 1, "at least 1 states of 100 bytes; use Budget(bytes=100)"),
        (Budget(199), 2, "use Budget(bytes=200)"),
        (Binomial(1), 2, "needs at least 2 stored states"),
        ("sqrt", 1, "'auto', 'none', 'every_few', 'every_stage', 'every_step', 'two_level', 'reverse', Binomial("),
    ],
    ids=str,
)
def test_refusals(checkpoint, frames, sentence):
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        plan(checkpoint, frames=frames, steps=10, state_bytes=100)


def test_states_in_host_memory_are_refused_where_there_is_none_apart():
    with pytest.raises(ConfigurationError, match="memory apart from the host's, got cpu.*leave out host=True"):
        gradient(4, Binomial(2, host=True))(jnp.asarray(0.8))
    found = plan(Budget(300, host=True), frames=1, steps=10, state_bytes=100)
    assert found.policy == "binomial" and found.host and "300 B per device in host memory" in str(found)


def test_states_placed_in_the_memory_of_the_host():
    """A backend with one memory ignores where they are; the program is otherwise the same."""

    def slopes(in_host):
        def scan(body, carry):
            return binomial_scan(body, carry, length=23, states=3, in_host=in_host)

        def run(rate, u):
            return wave(scan, rate, u)[0]

        members = jnp.stack([ARGUMENTS[1], -ARGUMENTS[1]])
        return jax.jit(jax.vmap(jax.grad(run, argnums=(0, 1)), in_axes=(None, 0)))(ARGUMENTS[0], members)

    for a, b in zip(slopes(True), slopes(False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_at_least_one_state():
    with pytest.raises(ConfigurationError, match="states=0: expected a whole number of at least 1"):
        Binomial(0)


@pytest.mark.parametrize(("dtype", "digits"), [("bfloat16", 8), ("float16", 11)])
def test_states_stored_in_16_bits(dtype, digits):
    """A wave of 128 places: its states take a quarter of the memory, numbers keep their digits."""

    def slope(dtype):
        def scan(body, carry):
            return binomial_scan(body, carry, length=23, states=4, dtype=dtype)

        run = jax.jit(jax.grad(lambda rate: wave(scan, rate, jnp.linspace(0.1, 1.0, 128))[0]))
        return float(run(0.7)), run.lower(0.7).as_text()

    (exact, whole), (found, halved) = slope(None), slope(dtype)
    kind = {"bfloat16": "bf16", "float16": "f16"}[dtype]
    assert "4x128xf64" in whole and f"4x128x{kind}" in halved and "4x128xf64" not in halved
    # Each step is taken from a state rounded by half a spacing at most, all of them in the same direction at worst.
    assert 0 < abs(found / exact - 1) < 23 * 2.0**-digits


def test_16_bits_are_of_fields_and_of_a_known_type():
    with pytest.raises(ConfigurationError, match="dtype='int8': expected one of None, 'bfloat16', 'float16'"):
        Binomial(2, dtype="int8")
    run = sj.load("lennard_jones", ["time.end=0.01", "time.output_every=0.01"])
    with pytest.raises(ConfigurationError, match="expected a model of fields, as places of particles"):
        run.differentiable(variables=[], checkpoint=Binomial(2, dtype="bfloat16"))()


def test_members_keep_their_outputs_under_a_gradient_of_a_compiled_map():
    """As many members as steps: an exchange of the two axes would not even change a shape."""

    def run(loop):
        def member(start, rate):
            def body(u):
                u = u + rate * jnp.sin(u)
                return u, u**2

            end, passed = loop(body, start)
            return end + jnp.sum(passed * jnp.asarray([1.0, 10.0, 100.0]))

        weights = jnp.asarray([1.0, 2.0, 4.0])
        return jax.value_and_grad(jax.jit(lambda start, rate: jnp.dot(weights, jax.vmap(member)(start, rate))), (0, 1))

    def by_scan(body, start):
        return jax.lax.scan(lambda u, _: body(u), start, length=3)

    def by_plan(body, start):
        return binomial_scan(body, start, length=3, states=2)

    arguments = jnp.asarray([0.3, -1.1, 2.0]), jnp.asarray([0.1, 0.5, 0.2])
    (value, gradient), (expected, wanted) = run(by_plan)(*arguments), run(by_scan)(*arguments)
    # A dozen roundings of numbers up to some hundred.
    assert float(value) == pytest.approx(float(expected), rel=1e-13)
    for a, b in zip(gradient, wanted, strict=True):
        assert float(jnp.min(jnp.abs(b))) > 0
        np.testing.assert_allclose(a, b, rtol=1e-12)
