"""Energy of waves: what sources, conductors, layers and changes of the step make is what there is more, to rounding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.integrators.table import INTEGRATORS
from simjax.models.balances import BalancedScheme, with_balances

SHAPE = (24, 20)
LAYER = sj.AbsorbingSide()
RNG = np.random.default_rng(0)


class Tone(eqx.Module):
    frequency: jax.Array

    def __call__(self, t):
        return jnp.sin(self.frequency * t)


POINTS = jnp.asarray([[0.5, 0.5], [0.4, 0.33]]), (Tone(jnp.asarray(20.0)), Tone(jnp.asarray(7.0)))


def rough():
    return jnp.asarray(1 + RNG.random(SHAPE))


def readings(bare, params, fields, steps, lengths=lambda number: 0.01):
    """The balance after steps of these lengths."""
    model, scheme = with_balances(bare), BalancedScheme(INTEGRATORS["leapfrog"])
    fields = {name: tuple(jnp.broadcast_to(u, bare.domain.grid.shape) for u in given) for name, given in fields.items()}

    @jax.jit
    def run(params):
        state = model.constrain(0.0, 0.0, model.state_from(fields, params), params)
        prepared = scheme.prepare(model, params, None)

        def step(number, carry):
            t, state = carry
            dt = lengths(number)
            return t + dt, scheme.step(model, t, dt, state, params, prepared)

        state = jax.lax.fori_loop(0, steps, step, (jnp.zeros(()), state))[1]
        return model.readings(state, params) | {"energy": model.model.energy(0.0, state.fields, params)}

    return {name.removeprefix("energy_"): float(value) for name, value in run(params).items()}


def check(found):
    parts = [value for name, value in found.items() if name.startswith(("in_", "made_"))]
    assert found["now"] == found["energy"]
    # Roundings of sums of order one at each of a hundred steps.
    assert found["now"] - found["at_start"] == pytest.approx(sum(parts), abs=1e-13)
    assert abs(found["residual"]) < 1e-13


@pytest.mark.parametrize("order", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_sound_closes_whatever_the_steps(order):
    sides = [(LAYER, LAYER), (LAYER, sj.FreeSurface())]
    model = sj.Acoustic(sj.Domain(sj.Grid(SHAPE)), sides, layer_cells=6, order=order)
    params = model.Params(rough(), rough(), *POINTS)
    noise = jnp.asarray(RNG.normal(size=SHAPE))
    fields = {"pressure": (noise,), "velocity": (0.0, 0.0)}
    found = readings(model, params, fields, 100, lambda number: 0.01 + 0.003 * jnp.sin(number.astype(float)))
    check(found)
    assert found["made_by_sources"] > 1 and abs(found["made_by_steps"]) > 1e-4
    assert max(found[f"in_{side}"] for side in ("x_lower", "x_upper", "y_lower")) < -0.1 and found["in_y_upper"] == 0


@pytest.mark.parametrize("polarisation", ["tm", pytest.param("te", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_light_closes_in_conducting_matter(polarisation):
    sides = [(LAYER, sj.SlipWall()), (LAYER, LAYER)]
    model = sj.Maxwell(sj.Domain(sj.Grid(SHAPE)), sides, polarisation=polarisation, layer_cells=6)
    params = model.Params(rough(), rough(), 0.2 * rough(), *POINTS)
    noise, (electric, magnetic) = jnp.asarray(RNG.normal(size=SHAPE)), {"tm": (1, 2), "te": (2, 1)}[polarisation]
    found = readings(model, params, {"electric": (noise,) * electric, "magnetic": (0.0,) * magnetic}, 100)
    check(found)
    assert found["made_by_sources"] > 1 and found["made_by_conduction"] < -0.1
    assert max(found[f"in_{side}"] for side in ("x_lower", "y_lower", "y_upper")) < -0.01


def test_heat_of_conduction_is_what_fields_lose():
    """Uniform fields in a periodic box, which nothing else changes."""
    model = sj.Maxwell(sj.Domain(sj.Grid((3, 2))), [(sj.PeriodicSide(),) * 2] * 2, polarisation="tm")
    conductivity, dt = 0.7, 0.05
    params = model.Params(jnp.asarray(2.0), jnp.asarray(1.0), jnp.asarray(conductivity))
    found = readings(model, params, {"electric": (1.5,), "magnetic": (0.0,) * 2}, 3, lambda number: dt)
    check(found)
    # E is damped by (1 - r) / (1 + r) in each step, r = sigma dt / (2 eps), from eps E^2 / 2 = 2.25; rounding.
    r = conductivity * dt / (2 * 2.0)
    assert found["made_by_conduction"] == pytest.approx(2.25 * (((1 - r) / (1 + r)) ** 6 - 1), rel=1e-12)


@pytest.mark.slow
def test_a_pulse_leaves_through_the_side_that_it_runs_to():
    """Towards smaller x, with u = -p: the lower layer takes all of it but for what little comes back."""
    line = sj.Acoustic(sj.Domain(sj.Grid((128,))), [(LAYER, LAYER)])
    x, face = line.domain.coordinates((0.5,))[0], line.domain.coordinates((0.0,))[0]

    def pulse(x):
        return jnp.cos(40 * (x - 0.5)) * jnp.exp(-200 * (x - 0.5) ** 2)

    params = line.Params(jnp.asarray(1.0), jnp.asarray(1.0))
    fields = {"pressure": (pulse(x),), "velocity": (-pulse(face),)}
    runs = (250, 0.004), (500, 0.002)
    whole, half = (readings(line, params, fields, steps, lambda number, dt=dt: dt) for steps, dt in runs)
    check(whole)
    # A leapfrog keeps the energy at the start with what the first step makes. A thousandth is still on its way.
    assert whole["in_x_lower"] == pytest.approx(-whole["at_start"] - whole["made_by_steps"], rel=1e-3)
    assert abs(whole["in_x_upper"]) < 1e-3 * whole["at_start"]
    # Only the first step differs from those before and after it: a part of second order in its length.
    assert whole["made_by_steps"] / half["made_by_steps"] == pytest.approx(4, rel=0.02)
