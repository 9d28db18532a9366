"""Leapfrog: order two also where steps vary, time reversal, one kick and one drift per step, its exact frequency."""

import cases_waves
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from ordinary import Pendulum, State

from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.splitting import INTEGRATORS
from simjax.parallel import decompose, make_mesh
from simjax.stepping.simulate import Schedule, simulate

LEAPFROG = INTEGRATORS["leapfrog"]


class Oscillator(Pendulum):
    """x'' = -x."""

    def kick(self, t, dt, state, params, prepared):
        return State(state.position, state.velocity - dt * state.position, state.lag)


def pendulum(push=0.0):
    return Pendulum(Domain(Grid((1,))), push)


def start(position=1.0, velocity=0.5):
    return State(jnp.full(1, position), jnp.full(1, velocity), jnp.zeros(()))


def at_time(model, t, state):
    """Position and velocity, both at time t."""
    now = model.kick(t, state.lag, state, None, None)
    return float(now.position[0]), float(now.velocity[0])


def final(courant, end=2.0):
    model = pendulum(0.7)
    schedule = Schedule(end, courant=courant, max_steps=int(100 / courant))
    trajectory = jax.jit(lambda s: simulate(model, LEAPFROG, None, s, schedule, frames=1))(start())
    assert int(trajectory.clock.status) == 0
    return np.array(at_time(model, end, trajectory.state)), int(trajectory.clock.step)


def test_second_order_with_steps_that_follow_the_solution():
    finest, _ = final(0.02)
    runs = [final(courant) for courant in (0.8, 0.4, 0.2)]
    errors = np.array([np.abs(values - finest).max() for values, _ in runs])
    assert runs[1][1] > 1.9 * runs[0][1]
    # The finest run's own error is a hundredth of that at 0.2 (a slope 0.015 off); the next term adds as much.
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), 2, atol=0.1)


def test_steps_back_undo_steps_that_differ():
    model, state, t = pendulum(0.7), start(), 0.0
    steps = 0.3 * (1 + 0.8 * np.sin(np.arange(40)))
    for dt in steps:
        state = LEAPFROG.step(model, t, dt, state, None)
        t += dt
    assert abs(float(state.position[0]) - 1.0) > 0.1
    for dt in steps[::-1]:
        state = LEAPFROG.step(model, t, -dt, state, None)
        t -= dt
    # 80 steps of a regular motion: each rounds once or twice.
    np.testing.assert_allclose(at_time(model, t, state), (1.0, 0.5), rtol=0, atol=2e-14)


def test_one_kick_and_one_drift_per_step():
    model = pendulum()
    LEAPFROG.step(model, 0.0, 0.1, start(), None)
    assert model.calls == ["kick", "drift"]
    assert LEAPFROG.stages == 1


@pytest.mark.parametrize("dt", [0.1, 1.0, 1.9])
def test_frequency_is_exactly_the_scheme_s(dt):
    """x_n = cos(n W dt) with sin(W dt / 2) = dt / 2, from a state at rest."""
    model, state = Oscillator(Domain(Grid((1,)))), start(1.0, 0.0)
    found = []
    for n in range(30):
        state = LEAPFROG.step(model, n * dt, dt, state, None)
        found.append(float(state.position[0]))
    phase = 2 * np.arcsin(dt / 2) * np.arange(1, 31)
    # Rounding grows with the number of steps, faster near the limit of stability, where phases differ little.
    np.testing.assert_allclose(found, np.cos(phase), rtol=0, atol=1e-12)


def test_the_lag_does_not_depend_on_what_was_before():
    state = LEAPFROG.step(pendulum(), 0.0, 0.25, start(), None)
    assert float(state.lag) == 0.125
    state = LEAPFROG.step(pendulum(), 0.25, 0.5, state, None)
    assert float(state.lag) == 0.25


def messages(function, mesh, in_specs, out_specs, *arguments):
    program = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return str(jax.make_jaxpr(program)(*arguments)).count("ppermute[")


@pytest.mark.parametrize("case", cases_waves.CASES[1:], ids=lambda case: case.name)
@pytest.mark.slow
def test_one_exchange_per_kick_and_one_per_drift(case):
    """All components in one message per axis and direction; at second order a kick and a drift read one side each."""
    sizes = {2: {"x": 2, "y": 4}, 3: {"x": 2, "y": 2, "z": 2}}[case.grid.ndim]
    mesh = make_mesh(sizes)
    model = case.build(decompose(case.grid, mesh))
    params, state = case.params(), case.initial_state()
    state_specs, params_specs = model.partition_specs(state, params)

    def prepare(params, state):
        return jax.tree.map(lambda leaf: jnp.sum(leaf).astype(float)[None], model.prepare(params))

    def step(params, state):
        return LEAPFROG.step(model, 0.0, 0.01, state, params)

    specs = (params_specs, state_specs)
    before = messages(prepare, mesh, specs, PartitionSpec(tuple(sizes)), params, state)
    sides = {2: 1, 4: 2}[model.order]
    assert messages(step, mesh, specs, state_specs, params, state) - before == 2 * sides * len(sizes)
