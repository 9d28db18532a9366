"""Bounds on the number of operations that the compiler gets, which its time follows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.certificate.prepared_objective import objective_of
from simjax.config import load_config
from simjax.core.boundary import Outflow, PeriodicSide
from simjax.core.domain import Domain
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.jaxpr.platform import tracing_for
from simjax.models.gas.boundaries import GasInflow
from simjax.models.gas.compressible import Compressible, Params
from simjax.ops.gas import GasScheme
from simjax.stencil.materialise import BARRIERS_HOLD, held_in_reverse, stacked, stored

WENO = GasScheme("weno5", "characteristic", "hllc_all_speed")
PERIODIC = (PeriodicSide(), PeriodicSide())
IDEAL = Params(jnp.asarray(1.4))


class Unrolled(Compressible):
    """A gas whose stages stand in the program one after the other."""

    @property
    def loops_over_stages(self):
        return False


def sheared(model):
    """A smooth state."""
    shape = model.domain.grid.shape
    waves = np.meshgrid(*(2 * np.pi * (np.arange(n) + 0.5) / n for n in shape), indexing="ij")
    fields = {
        "density": (jnp.asarray(1 + 0.2 * np.sin(waves[0])),),
        "velocity": tuple(jnp.asarray(0.5 * np.sin(wave + 1)) for wave in (*waves[1:], waves[0])),
        "pressure": (jnp.asarray(1 + 0.1 * np.cos(waves[-1])),),
    }
    return model.state_from(fields, IDEAL)


def steps(model, integrator, count):
    """`count` steps of a gas as a function of its state."""

    @jax.checkpoint
    def step(state, _):
        return INTEGRATORS[integrator].step(model, jnp.zeros(()), jnp.asarray(1e-3), state, IDEAL), None

    return lambda state: jax.lax.scan(step, state, length=count)[0]


def loss(function):
    return lambda state: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(function(state)))


def operations(function, *arguments):
    """Operations of StableHLO that a function becomes."""
    text = jax.jit(function).lower(*arguments).as_text()
    return sum(" = " in line for line in text.splitlines())


def plane_gas(kind=Compressible):
    model = kind(Domain(Grid((24, 32))), [PERIODIC] * 2, WENO)
    return model, sheared(model)


def test_a_step_of_a_gas_holds_its_tendency_once():
    # 4210, of which 376 are HLL's flux along shocks; 12 028 with stages, variables and sides of a face one by one.
    model, state = plane_gas()
    assert operations(steps(model, "ssprk3", 4), state) < 4600


@pytest.mark.slow
def test_the_gradient_of_a_gas_stays_small():
    # 20 707, of which 2262 are HLL's flux along shocks; 45 095 before stages were one loop, which took a compiler more
    # than five minutes and 3.4 GB.
    model, state = plane_gas()
    assert operations(jax.grad(loss(steps(model, "ssprk3", 30))), state) < 23000


@pytest.mark.slow
def test_the_gradient_of_a_gas_in_two_dimensions_compiles_and_is_that_of_forward_mode():
    model, state = plane_gas()
    function = loss(steps(model, "ssprk3", 30))
    direction = jax.tree.map(lambda u: jnp.cos(jnp.arange(u.size, dtype=u.dtype)).reshape(u.shape), state)
    slopes = jax.jit(jax.grad(function), compiler_options=QUICK)(state)
    pushed = jax.jit(lambda u, v: jax.jvp(function, (u,), (v,))[1], compiler_options=QUICK)(state, direction)
    pulled = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(slopes), jax.tree.leaves(direction), strict=True))
    size = sum(jnp.sum(jnp.abs(a)) for a in jax.tree.leaves(slopes))
    # Rounding, to which 30 steps of weights of smoothness answer a thousandfold.
    assert abs(float(pushed - pulled)) < 1e-11 * float(size)


@pytest.mark.parametrize("integrator", ["rk4", "ssprk3", "williamson3", "midpoint"])
@pytest.mark.slow
def test_stages_in_a_loop_are_those_one_after_the_other(integrator):
    def warm(t, *x):
        return 1.3 + 5.0 * t

    sides = [(GasInflow(1.1, warm, (0.4,), ()), Outflow())]
    found = []
    for kind in (Compressible, Unrolled):
        model = kind(Domain(Grid((32,))), sides, GasScheme("first_order", "primitive", "rusanov"))
        state = sheared(model)
        scheme = INTEGRATORS[integrator]
        step = jax.jit(lambda u, m=model, s=scheme: s.step(m, jnp.zeros(()), jnp.asarray(5e-3), u, IDEAL))
        assert ("while" in step.lower(state).as_text()) == (kind is Compressible)
        found.append(step(state))
    looped, unrolled = found
    for a, b in zip(jax.tree.leaves(looped), jax.tree.leaves(unrolled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)  # sums of a few rounded terms of order one


@pytest.mark.slow
def test_values_that_are_stored_have_the_derivatives_of_the_values():
    def function(x, keep):
        a, b = keep((jnp.sin(x), x * x))
        return jnp.sum(a * jnp.roll(b, 1) + b)

    x = jnp.linspace(0.3, 1.7, 7)
    plain = jax.grad(lambda x: function(x, lambda pair: pair))(x)
    for keep in (stored, held_in_reverse, lambda pair: stacked(list(pair))):
        # One rounding, in the sum of the cotangents of two readers; the derivative along ones sums seven of them.
        np.testing.assert_allclose(jax.grad(lambda x, keep=keep: function(x, keep))(x), plain, rtol=4e-16)
        pushed = jax.jvp(lambda x, keep=keep: function(x, keep), (x,), (jnp.ones_like(x),))[1]
        np.testing.assert_allclose(pushed, plain.sum(), rtol=1e-14)


def test_what_is_held_in_reverse_is_held_there_alone():
    """By a barrier, which needs a function that is not inlined around it where XLA drops barriers before it fuses."""

    def function(x):
        return jnp.sum(jnp.sin(held_in_reverse(x)))

    forward, reverse = (jax.jit(f).lower(jnp.ones(3)).as_text() for f in (function, jax.grad(function)))
    assert "optimization_barrier" not in forward and "optimization_barrier" in reverse
    calls = [line for line in reverse.splitlines() if "call @" in line]
    assert [("inlineable" in line) for line in calls] == ([] if BARRIERS_HOLD else [True])


@pytest.mark.slow
def test_reverse_mode_forms_the_start_around_a_body_again():
    """The first projection stands in a loop, which would keep hundreds of arrays and write each by itself."""
    rollout = DifferentiableRun(load_config("falling_plate", ["grid.shape=[36,60]"]), sizes={})
    values = {name: jnp.asarray(value) for name, value in rollout.start_values().items()}
    prepared = jax.eval_shape(rollout.prepared, values, rollout.start_fields())

    def kept(values, prepared):
        return jax.vjp(lambda values: rollout.begin(values, prepared)[0], values)[1]

    # Hundreds without a checkpoint, of every value that the projection reads.
    assert len(jax.tree.leaves(jax.eval_shape(kept, values, prepared))) < 100


@pytest.mark.slow
def test_the_gradient_around_a_free_body_stays_small():
    # 48 470 with jax 0.10.2; 68 336 where the start, and every reader of the distance, formed the geometry by itself.
    objective = objective_of(load_config("falling_plate", ["grid.shape=[16,16]"]), steps=6, devices=1)
    gradient = jax.value_and_grad(objective.on({}, "two_level"))
    assert operations(gradient, objective.start) < 54000


def test_stages_of_large_eddies_are_looped_on_a_processor_alone():
    """A step of theirs takes more launches in a loop on a GPU, and moves more."""
    rollout = DifferentiableRun(load_config("channel_les", ["grid.shape=[8,8,8]"]), sizes={})
    assert rollout.model.loops_over_stages
    with tracing_for("gpu"):
        assert not rollout.model.loops_over_stages
