"""Waves taken back in time instead of stored: the gradients of stored plans, from memory that no step adds to."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC, QUICK, smooth_field, weighted_square
from cases_waves import Oscillation
from jax.sharding import PartitionSpec
from ordinary import Decay, Pendulum, State

from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.waves import acoustic, maxwell
from simjax.models.waves.pml import AbsorbingSide, FreeSurface
from simjax.parallel import decompose, distribute, make_mesh, prepend_axis
from simjax.stepping.checkpointing.plan import plan
from simjax.stepping.simulate import Schedule, simulate

PLANE = Grid((16, 24), (0.0, -1.0), (2.0, 2.0))
WALLS = (SlipWall(), SlipWall())
SIDES = {"acoustic": [(FreeSurface(), SlipWall()), (SlipWall(), FreeSurface())], "maxwell": [WALLS, PERIODIC]}
LEAPFROG = INTEGRATORS["leapfrog"]
# 0.04 / 0.011 is no integer: three full steps and a shortened one per frame.
UNEVEN = Schedule(0.04, dt=0.011)
compiled = functools.partial(jax.jit, compiler_options=QUICK)


class Bounded(Pendulum):
    """A pendulum that may not leave a range, and says that it loses nothing."""

    def irreversible(self, params):
        return ""

    def unphysical(self, state, params):
        return {"too far": state.position > 1}


def medium(seed, dtype):
    return (1.5 + 0.3 * smooth_field(PLANE, (0.5, 0.5), seed)).astype(dtype)


def parameters(kind, dtype=jnp.float64):
    """A medium that varies by a factor of two, and a source that goes on and on."""
    place, signal = jnp.asarray([[0.9, 0.4]], dtype), Oscillation(jnp.asarray(2.0, dtype), jnp.asarray(9.0, dtype))
    params = acoustic.Params if kind == "acoustic" else maxwell.Params
    return params(medium(3, dtype), medium(5, dtype), sources=place, signals=(signal,))


def pendulums(*positions):
    """All of them in motion."""
    return State(jnp.asarray(positions), jnp.ones(len(positions)), jnp.zeros(()))


def swing(checkpoint, schedule, frames, params, state):
    """A function of how pendulums end and of how they were seen on the way."""
    seen = simulate(
        Bounded(Domain(Grid((1,)))),
        LEAPFROG,
        params,
        state,
        schedule,
        frames=frames,
        checkpoint=checkpoint,
        on_fault="keep",
        observe=lambda t, state, params: jnp.cos(t) * jnp.sum(state.position**2),
    )
    return jnp.sum(seen.state.velocity * seen.state.position) + jnp.sum(seen.observed)


def build(kind, domain):
    model = acoustic.Acoustic if kind == "acoustic" else maxwell.Maxwell
    return model(domain, SIDES[kind])


def initial(kind, dtype=jnp.float64):
    """Smooth fields; where there is a lag, the run does not begin with it at zero."""
    model, params = build(kind, decompose(PLANE, None)), parameters(kind)
    fields = {
        name: tuple(smooth_field(PLANE, layout.offset, k).astype(dtype) for k, layout in enumerate(layouts))
        for name, layouts in model.component_layouts().items()
    }
    state = model.constrain(0.0, 0.0, model.state_from(fields, params), params)
    return jax.tree.map(lambda u: u if u.ndim else u + jnp.asarray(0.004, dtype), state)


def loss(kind, domain, checkpoint, schedule, frames=1):
    """Of the end, of what was seen at the end of every frame, and of when."""
    model = build(kind, domain)

    def weighed(fields):
        return weighted_square(domain, [u.astype(jnp.float64) for u in fields])

    def look(t, state, params):
        return weighed(jax.tree.leaves(state)[:1]), t.astype(jnp.float64)

    def run(params, state):
        seen = simulate(model, LEAPFROG, params, state, schedule, frames=frames, observe=look, checkpoint=checkpoint)
        leaves, (squares, times) = jax.tree.leaves(seen.state), seen.observed
        ends = weighed([u for u in leaves if u.ndim]) + seen.state.lag.astype(jnp.float64)
        return ends + jnp.dot(squares, jnp.cos(times))

    return run


@functools.cache
def differentiated(kind, checkpoint, sizes=()):
    """Two frames of four steps and their gradient, compiled: (params, state) -> (value, gradients of both)."""
    mesh = make_mesh(dict(sizes))
    domain = decompose(PLANE, mesh)
    specs = build(kind, domain).partition_specs(initial(kind), parameters(kind))
    run = distribute(
        loss(kind, domain, checkpoint, UNEVEN, frames=2), mesh, in_specs=specs[::-1], out_specs=PartitionSpec()
    )
    return compiled(jax.value_and_grad(run, argnums=(0, 1)))


def assert_same(found, expected, tolerance):
    """Each array within `tolerance` of its largest entry."""
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(b).max() > 0, f"{path} vanishes: nothing is tested"
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), err_msg=str(path))


# "every_few" takes the four steps of a frame together.
PLANS = pytest.mark.parametrize("checkpoint", ["reverse", "every_few"])
WAVES = pytest.mark.parametrize("kind", ["acoustic", pytest.param("maxwell", marks=pytest.mark.slow)])


@WAVES
def test_gradients_are_those_of_stored_states(kind):
    """With respect to media, a source and its place, and the first state; steps differ, frames are looked at."""
    arguments = parameters(kind), initial(kind)
    found, expected = differentiated(kind, "reverse")(*arguments), differentiated(kind, "every_step")(*arguments)
    # Roundings of eight steps there and back.
    assert_same(found, expected, 1e-13)


@pytest.mark.slow
@WAVES
@PLANS
def test_gradients_do_not_depend_on_the_decomposition(kind, checkpoint):
    params, state = parameters(kind), initial(kind)
    found = differentiated(kind, checkpoint, (("x", 2), ("y", 4)))(params, state)
    # Sums over the grid in another order.
    assert_same(found, differentiated(kind, "every_step")(params, state), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["acoustic", "maxwell"])
@PLANS
def test_members_of_a_decomposed_ensemble_have_their_own_gradients(kind, checkpoint):
    mesh = make_mesh({"ensemble": 2, "x": 2, "y": 2})
    domain = decompose(PLANE, mesh)
    state = initial(kind)
    members = [(parameters(kind), jax.tree.map(lambda u, k=k: u * (1 - 0.4 * k), state)) for k in range(4)]
    params, states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    specs = build(kind, domain).partition_specs(state, parameters(kind))
    run = distribute(
        jax.vmap(loss(kind, domain, checkpoint, UNEVEN, frames=2)),
        mesh,
        in_specs=tuple(prepend_axis(s, "ensemble") for s in specs[::-1]),
        out_specs=PartitionSpec("ensemble"),
    )
    found = compiled(jax.grad(lambda *a: jnp.sum(run(*a)), argnums=(0, 1)))(params, states)
    for k, member in enumerate(members):
        _, expected = differentiated(kind, "every_step")(*member)
        assert_same(jax.tree.map(lambda g, k=k: g[k], found), expected, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["acoustic", "maxwell"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-12), (jnp.float32, 1e-3)], ids=["64", "32"])
def test_rounding_of_a_thousand_steps_there_and_back(kind, dtype, tolerance):
    """States neither grow nor decay, so neither do their roundings: 3e-14 was measured, and 3e-5 in float32."""

    def slope(checkpoint):
        run = loss(kind, decompose(PLANE, None), checkpoint, Schedule(12.0, dt=0.012))
        return jax.jit(jax.grad(run, argnums=(0, 1)))(parameters(kind, dtype), initial(kind, dtype))

    assert_same(slope("reverse"), slope("two_level"), tolerance)


@pytest.mark.parametrize("kind", ["pendulum", pytest.param("acoustic", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_memory_does_not_follow_the_steps(kind):
    if kind == "acoustic":
        arguments = parameters(kind), initial(kind)
    else:
        arguments = None, pendulums(*np.linspace(0.0, 0.9, 384))

    def temporaries(steps, checkpoint="reverse", frames=1):
        schedule = Schedule(0.001 * steps, dt=0.001)
        if kind == "acoustic":
            run = loss(kind, Domain(PLANE), checkpoint, schedule, frames)
        else:
            run = functools.partial(swing, checkpoint, schedule, frames)
        return jax.jit(jax.grad(run, argnums=(0, 1))).lower(*arguments).compile().memory_analysis().temp_size_in_bytes

    few, many = temporaries(100), temporaries(10_000)
    assert many == few
    # Of frames what was seen of each: two numbers, their cotangents and a flag, some of them twice.
    assert temporaries(10, frames=1000) - temporaries(10, frames=10) < 100 * 990
    state = sum(u.nbytes for u in jax.tree.leaves(arguments[1]))
    assert temporaries(100, "every_step") > few + 50 * state


def test_forward_over_reverse():
    """Products with the Hessian, as of stored states."""
    begin = pendulums(0.1, 0.3)

    def product(checkpoint):
        slope = jax.grad(functools.partial(swing, checkpoint, UNEVEN, 2, None))
        return compiled(lambda *a: jax.jvp(slope, a, a)[1])(begin)

    assert_same(product("reverse"), product("every_step"), 1e-13)


def test_a_run_that_stopped_has_the_gradient_of_the_frames_before():
    """Some pendulum leaves its range in the second of three frames."""
    begin = pendulums(0.1, 0.2)

    def run(checkpoint, frames):
        program = functools.partial(swing, checkpoint, Schedule(0.8, dt=0.1), frames)
        return compiled(jax.grad(program, argnums=1))(None, begin)

    # Eight steps there and back.
    assert_same(run("reverse", 3), run("every_step", 3), 1e-13)
    # Two more frames have seen the first one's end.
    assert not np.allclose(run("every_step", 3).position, run("every_step", 1).position)


def decay():
    return Decay(), INTEGRATORS["heun"], jnp.asarray(0.8), jnp.ones(1)


def pendulum():
    return Pendulum(Domain(Grid((1,)))), LEAPFROG, None, pendulums(0.1)


def waves(kind, sides, **medium):
    model = (acoustic.Acoustic if kind == "acoustic" else maxwell.Maxwell)(Domain(PLANE), sides, layer_cells=4)
    params = dataclasses.replace(parameters(kind), **medium)
    fields = {name: tuple(jnp.ones(PLANE.shape) for _ in kinds) for name, kinds in model.component_layouts().items()}
    return model, LEAPFROG, params, model.state_from(fields, params)


FIXED = Schedule(1.0, dt=0.1)
ABSORBED = [PERIODIC, (SlipWall(), AbsorbingSide())]


@pytest.mark.parametrize(
    ("problem", "schedule", "why"),
    [
        (decay, FIXED, "expected a scheme whose steps can be undone (leapfrog), got RungeKutta"),
        (
            lambda: waves("acoustic", [PERIODIC] * 2),
            Schedule(1.0, courant=0.5, max_steps=9),
            "expected steps of a fixed length (Schedule.dt), got courant=0.5",
        ),
        (lambda: waves("acoustic", ABSORBED), FIXED, "but an absorbing side cannot be undone"),
        (lambda: waves("maxwell", ABSORBED), FIXED, "but an absorbing side cannot be undone"),
        (
            lambda: waves("maxwell", [PERIODIC] * 2, conductivity=jnp.asarray(0.1)),
            FIXED,
            "but conduction cannot be undone",
        ),
        (pendulum, FIXED, "but what Pendulum does in a step cannot be undone"),
    ],
    ids=["scheme", "courant", "sound absorbed", "light absorbed", "conduction", "undeclared"],
)
def test_refusals(problem, schedule, why):
    sentence = f"checkpoint='reverse': .*{re.escape(why)}; use 'two_level' or Binomial"
    with pytest.raises(ConfigurationError, match=sentence):
        simulate(*problem(), schedule, frames=1, checkpoint="reverse")


def test_memory_and_cost():
    found = plan("reverse", frames=2, steps=500, state_bytes=2**20)
    assert str(found) == (
        "reverse: 2 states of 1 MiB stored, 2 MiB per device; 1000 steps taken back to reverse 1000; value and "
        "gradient cost about 4.5 forward runs"
    )
