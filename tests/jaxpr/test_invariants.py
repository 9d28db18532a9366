"""What a loop does not change is formed before it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import simjax as sj
from simjax.jaxpr.invariants import SMALL, formed_before
from simjax.jaxpr.platform import tracing_for

CELLS = 32


def step(x):
    """A wave along an axis, made of nothing, and a plane of it that is as large as the field."""
    wave = jax.jit(lambda scale: scale * jnp.sin(jnp.arange(CELLS, dtype=x.dtype))[None])(2.0)
    return x + wave + jnp.cos(wave.T * wave)


def operations(body, x):
    return str(jax.make_jaxpr(body)(x))


def test_small_arrays_leave_the_loop_and_large_ones_stay():
    x = jnp.ones((CELLS, CELLS))
    before, after = operations(step, x), operations(formed_before(step, x), x)
    assert "sin" in before and "iota" in before
    assert "sin" not in after and "iota" not in after and "cos" in after
    np.testing.assert_array_equal(formed_before(step, x)(x), step(x))


@pytest.mark.parametrize(("rows", "leaves"), [(SMALL, True), (SMALL - 1, False)])
def test_small_is_by_what_the_loop_carries(rows, leaves):
    x = jnp.ones((rows, CELLS))
    assert (
        "sin" not in operations(formed_before(lambda x: x + jnp.sin(jnp.arange(1.0 * CELLS))[None], x), x)
    ) == leaves


def test_a_program_called_twice_keeps_both_results():
    wave = jax.jit(lambda k: jnp.sin(k * jnp.arange(1.0 * CELLS))[None])

    def twice(x):
        return x + wave(2.0) * x + wave(3.0)

    x = jnp.ones((CELLS, CELLS))
    np.testing.assert_array_equal(formed_before(twice, x)(x), twice(x))


def test_large_arrays_of_nothing_stay_in_a_loop_that_is_differentiated():
    """A table of 16 times the carry, of a number and of an axis that counts its entries, of which the sum is used."""

    def step(x):
        table = jnp.broadcast_to(jnp.arange(4.0 * CELLS), (4, 4 * CELLS)) + jnp.broadcast_to(x.dtype.type(2), (4, 1))
        return x * jnp.sum(jnp.sin(table * x[0]))

    def end(body, x):
        return jnp.sum(lax.scan(lambda x, _: (body(x), None), x, None, length=3)[0])

    def formed_outside(body):
        """The largest array that is formed outside the loops of a derivative."""
        closed = jax.make_jaxpr(jax.grad(lambda x: end(body, x)))(x)
        return max(v.aval.size for e in closed.eqns if e.primitive.name != "scan" for v in e.outvars)

    x = jnp.linspace(0.1, 0.2, CELLS)
    tied = formed_before(step, x)
    # The axis itself is made of nothing at all.
    assert formed_outside(step) == 16 * CELLS and formed_outside(tied) == 4 * CELLS
    for a, b in zip(*(jax.value_and_grad(lambda x, f=f: end(f, x))(x) for f in (tied, step)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)  # the same operations


@pytest.mark.parametrize(
    "schedule",
    [sj.Schedule(0.02, dt=0.01), pytest.param(sj.Schedule(0.02, courant=0.5, max_steps=9), marks=pytest.mark.slow)],
)
def test_a_step_on_a_gpu_forms_its_waves_before_the_loop(schedule):
    """The loop has no coordinates and eigenvalues, and its values and derivatives are those of a CPU to rounding."""

    def force(t, x, params):
        return jnp.sin(4 * x[1]) * params.viscosity

    model = sj.Incompressible(sj.Domain(sj.Grid((32, 32))), [(sj.PeriodicSide(),) * 2] * 2, (force, None))
    params = model.Params(jnp.asarray(0.01), jnp.asarray(0.0))
    rows = jnp.broadcast_to(jnp.sin(jnp.arange(32.0))[None], (32, 32))
    start = model.state_from({"velocity": (rows, 0.5 * rows.T)}, params)

    def on(platform):
        def energy(viscosity, start):
            end = sj.simulate(
                model, sj.INTEGRATORS["rk4"], model.Params(viscosity, params.drag), start, schedule, frames=2
            )
            return sum(jnp.sum(u * u) for u in end.state.velocity)

        with tracing_for(platform):
            steps = str(jax.make_jaxpr(energy)(params.viscosity, start))
            return steps[steps.rindex("scan[") :], jax.jit(jax.value_and_grad(energy))(params.viscosity, start)

    (on_cpu, expected), (on_gpu, found) = on("cpu"), on("gpu")
    assert "iota" in on_cpu and "iota" not in on_gpu
    # Sums over 1024 cells of terms of order one.
    np.testing.assert_allclose(found, expected, rtol=1e-12)
