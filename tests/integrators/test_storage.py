"""Fields in 16 bits between steps: rounding right in the mean, the same on every mesh and however steps are taken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import DYE, changed, refusal
from jax.sharding import PartitionSpec

import simjax as sj
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.storage import _sixteen_bits
from simjax.integrators.table import INTEGRATORS
from simjax.jaxpr.varying import vary_like
from simjax.stepping.simulate import Clock, advance

PERIODIC = (sj.PeriodicSide(), sj.PeriodicSide())
HEAT = {
    **DYE,
    "physics": {"diffusivity": 0.1, "velocity": [0.0, 0.0]},
    "grid": {"shape": [32, 32]},
    "initial": {"concentration": "sin(2*pi*x)*cos(2*pi*y)"},
    "precision": "float32",
    "time": {"end": 0.08, "output_every": 0.04, "dt": 5e-4},
}
QUIET = {"report": False, "animation": False}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_is_right_in_the_mean_and_leaves_what_needs_none(dtype):
    random = np.random.default_rng(0)
    u = random.uniform(-2, 2, 50).astype(np.float32)
    bits = jnp.asarray(random.integers(0, 2**32, (4000, 50)), jnp.uint32)
    found = np.asarray(_sixteen_bits(jnp.broadcast_to(jnp.asarray(u), bits.shape), bits, dtype))
    spacing = 2.0 ** np.floor(np.log2(np.abs(u))) * float(jnp.finfo(dtype).eps)
    assert np.array_equal(found, found.astype(jnp.dtype(dtype)).astype(np.float32))
    assert np.all(np.abs(found - u) < spacing)
    # The mean of 4000 roundings, each off by half a spacing in the root mean square at most: 5 deviations.
    assert np.all(np.abs(found.mean(0) - u) < 2.5 * spacing / np.sqrt(4000))
    kept = jnp.asarray([0.0, -0.0, 1.5, -0.25, jnp.inf, -jnp.inf, jnp.nan], jnp.float32)
    for one in (0, 2**32 - 1):
        assert np.array_equal(_sixteen_bits(kept, jnp.full(7, one, jnp.uint32), dtype), kept, equal_nan=True)


def line(scheme):
    """Steps of a wave that decays, by a function of (state, steps, checkpoint)."""
    model = sj.AdvectionDiffusion(Domain(Grid((64,))), [PERIODIC])
    params = model.Params(jnp.float32(0.1), jnp.zeros(1, jnp.float32))
    state = model.State(jnp.sin(2 * jnp.pi * (jnp.arange(64, dtype=jnp.float32) + 0.5) / 64))
    schedule = sj.Schedule(0.1, dt=1e-3)

    def run(begin, steps, checkpoint=None):
        state, clock = (state_of(), Clock.zero(jnp.float32)) if begin is None else begin
        return advance(model, scheme, params, state, clock, schedule, steps=steps, until=1, checkpoint=checkpoint)

    def state_of():
        return scheme.rounded(model, jnp.float32(0), state, params) if isinstance(scheme, sj.Stored) else state

    return run


def test_slow_changes_are_not_lost():
    """A step takes 4e-3 of the wave away, as much as bfloat16 holds; rounding to the nearest keeps all of it."""
    exact = line(INTEGRATORS["euler"])(None, 100)[0].concentration
    for dtype, bound in (("bfloat16", 1e-2), ("float16", 1.5e-3)):
        found = line(sj.Stored(INTEGRATORS["euler"], dtype))(None, 100)[0].concentration
        # Noise of a third of a spacing a step, 2^-8 and 2^-11 of the field at most, damped by diffusion meanwhile.
        assert 0 < jnp.std(found - exact) / jnp.std(exact) < bound


def test_steps_are_the_same_in_one_call_or_several_packed_or_not():
    run = line(sj.Stored(INTEGRATORS["rk4"], "bfloat16"))
    once, parts, kept = run(None, 20), run(run(None, 7), 13), run(None, 20, "every_step")
    for other in (parts, kept):
        assert jnp.array_equal(once[0].concentration, other[0].concentration)
    packed, whole = (str(jax.make_jaxpr(lambda plan=plan: run(None, 20, plan))()) for plan in (None, "every_step"))
    assert "bf16[64]" in packed.partition("optimization_barrier")[2] and "optimization_barrier" not in whole
    assert once[0].concentration.dtype == jnp.float32


@pytest.mark.slow
def test_a_decomposed_run_rounds_as_one_device_does():
    scheme = sj.Stored(INTEGRATORS["leapfrog"], "float16")
    coefficients = dict(speed=jnp.ones((16, 8), jnp.float32), density=jnp.ones((16, 8), jnp.float32))

    x, y = Domain(Grid((16, 8))).coordinates((0.5, 0.5), jnp.float32)
    pressure = jnp.exp(-20 * ((x - 0.4) ** 2 + (y - 0.6) ** 2))

    def run(domain):
        model = sj.Acoustic(domain, [PERIODIC, PERIODIC])

        def steps(pressure, coefficients):
            params = model.Params(**coefficients)
            zero = jnp.zeros_like(pressure)
            state = model.state_from({"pressure": (pressure,), "velocity": (zero, zero)}, params)
            state = scheme.rounded(model, jnp.float32(0), state, params)
            clock = vary_like(Clock.zero(jnp.float32), state)
            schedule = sj.Schedule(0.1, dt=0.01)
            return advance(model, scheme, params, state, clock, schedule, steps=10, until=1)[0].pressure

        return steps

    grid, mesh = Grid((16, 8)), sj.make_mesh({"x": 2, "y": 4})
    alone = jax.jit(run(Domain(grid)))(pressure, coefficients)
    decomposed = sj.distribute(
        run(sj.decompose(grid, mesh)),
        mesh,
        in_specs=(PartitionSpec("x", "y"),) * 2,
        out_specs=PartitionSpec("x", "y"),
    )(pressure, coefficients)
    # Single precision before rounding may differ by a rounding of its own, which decides by chance in 2^-13 of cells.
    assert jnp.mean(alone != decomposed) < 0.02 and jnp.max(jnp.abs(alone - decomposed)) < 2e-3
    assert jnp.array_equal(decomposed, decomposed.astype(jnp.float16).astype(jnp.float32))


@pytest.mark.slow
def test_derivatives_are_those_of_steps_without_rounding():
    def total(scheme, factor):
        run, start = line(scheme), line(scheme)(None, 0)
        state = jax.tree.map(lambda u: factor * u, start[0])
        return jnp.sum(run((state, start[1]), 10, "every_step")[0].concentration ** 2)

    plain, stored = (
        jax.grad(lambda factor, s=s: total(s, factor))(jnp.float32(1.1))
        for s in (INTEGRATORS["euler"], sj.Stored(INTEGRATORS["euler"], "bfloat16"))
    )
    # Equal but for the values at which they are taken: 2^-8 of the field.
    assert 0 < abs(stored / plain - 1) < 2**-8


@pytest.mark.slow
def test_deviations_from_rest_carry_the_signal(tmp_path):
    """Sound of 1e-3 in a gas: 16 bits of the whole density are 4e-3 of it, of the deviation 4e-3 of the sound."""
    gas = {
        "model": "compressible",
        "grid": {"shape": [64]},
        "precision": "float32",
        "output": {**QUIET, "root": str(tmp_path)},
        "initial": {"density": "1 + 1e-3*sin(2*pi*x)", "velocity": ["0"], "pressure": "1 + 1.4e-3*sin(2*pi*x)"},
        "time": {"end": 0.1, "output_every": 0.1, "dt": 2e-3},
    }

    def density(**storage):
        run = sj.configure(**gas, **({"storage": {"dtype": "bfloat16", **storage}} if storage else {})).run()
        return run.ds.isel(time=-1)["density"].values.astype(np.float64) - 1

    exact, found = density(), density(rest={"density": 1.0, "pressure": 1.0})
    # 50 steps, each of which rounds by 2^-8 of the sound at most.
    assert np.std(found - exact) < 0.05 * np.std(exact)
    assert np.std(density(rest={}) - exact) > np.std(exact)


@pytest.mark.slow
def test_a_run_tells_its_error(tmp_path):
    run = sj.configure(**changed(HEAT, {"storage.dtype": "bfloat16"}), output={**QUIET, "root": str(tmp_path)}).run()
    told = (run.folder / "run.log").read_text()
    sentence = "Fields are kept in bfloat16 between steps: after 32 steps concentration differs from single"
    assert sentence in told
    plain = sj.configure(**HEAT, output={**QUIET, "root": str(tmp_path)}).run()
    u, v = (one.ds.isel(time=-1)["concentration"].values for one in (run, plain))
    assert 0 < np.std(u - v) < 0.01 * np.std(v)  # as in `test_slow_changes_are_not_lost`


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"precision": "float64"}, "expected precision=float32, as 16 bits are kept of single precision"),
        ({"steps_per_exchange": 2}, "expected steps_per_exchange=0, as fields are rounded after each step"),
        ({"storage.rest": {"dye": 1}}, "storage.rest.dye: unknown key; known here: concentration"),
        ({"storage.rest": {"concentration": [1, 2]}}, "storage.rest.concentration"),
        ({"storage.dtype": "int8"}, "storage.dtype = 'int8': expected one of bfloat16, float16"),
    ],
)
def test_what_cannot_be_stored_so_is_refused(changes, sentence):
    assert sentence in refusal(changed(HEAT, {"storage.dtype": "bfloat16", **changes}))


def test_complex_amplitudes_are_refused():
    with pytest.raises(sj.ConfigurationError, match="model=gray_scott keeps complex amplitudes; leave storage out"):
        sj.load("gray_scott", ["storage.dtype=float16"]).run()
