"""Few steps at a time, all of whose values reverse mode keeps: derivatives, memory, and where `auto` takes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

import simjax as sj
from simjax.jaxpr.platform import tracing_for
from simjax.models.waves import acoustic, maxwell
from simjax.models.waves.pml import AbsorbingSide
from simjax.stepping.checkpointing.plan import FEW, GIVEN_AGAIN, Budget, plan
from simjax.stepping.simulate import Schedule, simulate

CELLS = 24


def run_of(equations, steps: int, checkpoint: str):
    """(`last(first, second)` -> the first field in the end, both properties of a medium), in absorbing layers."""
    domain = sj.Domain(sj.Grid((CELLS, CELLS)))
    model = equations(domain, [(AbsorbingSide(), AbsorbingSide())] * 2, layer_cells=4)
    x, y = np.meshgrid(*[(np.arange(CELLS) + 0.5) / CELLS] * 2, indexing="ij")
    medium = [jnp.asarray(1 + 0.3 * np.sin(2 * np.pi * (x + y) + k)) for k in range(2)]
    pulse = jnp.asarray(np.exp(-40 * ((x - 0.4) ** 2 + (y - 0.5) ** 2)))
    fields = {name: tuple(pulse / (1 + k) for k in range(len(of))) for name, of in model.component_layouts().items()}
    state = model.state_from(fields, model.Params(*medium))
    schedule = Schedule(steps * 0.01, dt=0.01)

    def last(first, second):
        params = model.Params(first, second)
        end = simulate(model, sj.INTEGRATORS["leapfrog"], params, state, schedule, frames=1, checkpoint=checkpoint)
        return jax.tree.leaves(end.state)[0]

    return last, medium


def square(last):
    return lambda *medium: jnp.sum(last(*medium) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("equations", [acoustic.Acoustic, maxwell.Maxwell])
@pytest.mark.parametrize("steps", [FEW - 1, 2 * FEW + 3])
def test_derivatives_are_those_of_all_values_kept(equations, steps):
    found = []
    for checkpoint in ("none", "every_few"):
        last, medium = run_of(equations, steps, checkpoint)
        gradient = jax.jit(jax.grad(square(last), argnums=(0, 1)), compiler_options=QUICK)(*medium)
        directions = tuple(jnp.cos(u) for u in medium)
        push = jax.jit(lambda *medium, last=last, to=directions: jax.jvp(last, medium, to), compiler_options=QUICK)
        found.append((gradient, push(*medium)))
    for expected, leaf in zip(*map(jax.tree.leaves, found), strict=True):
        # Rounding of a few steps, over the largest number.
        np.testing.assert_allclose(leaf, expected, rtol=0, atol=1e-13 * float(np.max(np.abs(expected))))


@pytest.mark.slow
def test_derivatives_twice():
    """Products of the Hessian, forward over reverse and reverse over reverse."""
    last, medium = run_of(acoustic.Acoustic, FEW, "every_few")
    loss = lambda first: square(last)(first, medium[1])  # noqa: E731
    direction = jnp.cos(medium[0])
    forward = jax.jvp(jax.grad(loss), (medium[0],), (direction,))[1]
    reverse = jax.grad(lambda first: jnp.vdot(jax.grad(loss)(first), direction))(medium[0])
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12 * float(np.max(np.abs(forward))))


@pytest.mark.slow
def test_memory_follows_a_fraction_of_the_steps():
    """With all values kept each step takes those of several states; here each fourth takes one."""

    def temporaries(steps, checkpoint):
        last, medium = run_of(acoustic.Acoustic, steps, checkpoint)
        program = jax.jit(jax.grad(square(last), argnums=(0, 1))).lower(*medium).compile(QUICK)
        return program.memory_analysis().temp_size_in_bytes

    few, every = ((temporaries(96, kept) - temporaries(32, kept)) / 64 for kept in ("every_few", "none"))
    assert few < 0.4 * every


def test_a_run_without_derivatives_is_a_loop_over_single_steps():
    plain, few = (
        jax.jit(last).lower(*medium).as_text().count("stablehlo.multiply")
        for last, medium in (run_of(acoustic.Acoustic, 2 * FEW, kept) for kept in ("none", "every_few"))
    )
    assert few <= plain


LONG = GIVEN_AGAIN // 100


@pytest.mark.parametrize(
    ("platform", "steps", "state_bytes", "policy"),
    [
        # Two states hold the values of a step.
        ("cpu", LONG // 2, 100, "none"),
        ("cpu", LONG // 2 + 1, 100, "every_few"),
        ("gpu", LONG // 2 + 1, 100, "none"),
        ("tpu", LONG // 2 + 1, 100, "none"),
        # 2 GiB: a fourth of the states and the values of four steps; one byte more is too much.
        ("cpu", 1000, 2**31 // (250 + 2 * FEW), "every_few"),
        ("cpu", 1000, 2**31 // (250 + 2 * FEW) + 1, "two_level"),
    ],
)
def test_auto_takes_few_steps_at_a_time_where_fresh_memory_is_dear(platform, steps, state_bytes, policy):
    with tracing_for(platform):
        found = plan("auto", frames=1, steps=steps, state_bytes=state_bytes, values=2)
    assert found.policy == policy
    if policy == "every_few":
        assert found.step_states == -(-steps // FEW) and found.cost == pytest.approx(3.5)


def test_a_budget_is_kept_with_the_values_of_few_steps():
    size = GIVEN_AGAIN // 100
    for states, policy in ((250 + 2 * FEW, "every_few"), (250 + 2 * FEW - 1, "binomial")):
        with tracing_for("cpu"):
            found = plan(Budget(states * size), frames=1, steps=1000, state_bytes=size, values=2)
        assert found.policy == policy
