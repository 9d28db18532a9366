"""Budgets of a flow: momentum to rounding, kinetic energy but for steps in time, and what walls and buoyancy do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import changed

import simjax as sj
from simjax.config import validate
from simjax.core.mappings import lines
from simjax.integrators.table import INTEGRATORS
from simjax.models.balances import BalancedScheme, with_balances


def budgets(flow, params, velocity, scheme, names=None):
    """Readings of every part as a function of the length of a step and the number of steps."""
    model, scheme = with_balances(flow, names), BalancedScheme(INTEGRATORS[scheme])

    @jax.jit
    def run(dt, steps):
        state = model.constrain(0.0, 0.0, model.state_from({"velocity": velocity}, params), params)
        end = jax.lax.fori_loop(0, steps, lambda k, s: scheme.step(model, k * dt, dt, s, params), state)
        return model.readings(end, params)

    return lambda dt, steps: {name: float(value) for name, value in run(dt, steps).items()}


@pytest.mark.slow
def test_a_wall_that_drags_a_flow_along():
    """Couette's flow u = y: friction nu carries momentum from wall to wall, and the upper one's work is dissipated."""
    lid = sj.NoSlipWall(velocity=(1.0, 0.0))
    domain = sj.Domain(sj.Grid((8, 8)))
    flow = sj.Incompressible(domain, [(sj.PeriodicSide(),) * 2, (sj.NoSlipWall(), lid)])
    y = domain.coordinates((0.0, 0.5))[1]
    params = flow.Params(jnp.asarray(0.1), jnp.asarray(0.0))
    found = budgets(flow, params, (jnp.broadcast_to(y, (8, 8)), jnp.zeros((8, 8))), "euler")(0.02, 5)
    carried = 0.1 * 0.1  # nu times the time
    wanted = {
        "momentum_x_in_y_lower": -carried,
        "momentum_x_in_y_upper": carried,
        "kinetic_energy_in_y_lower": 0.0,
        "kinetic_energy_in_y_upper": carried,
        "kinetic_energy_made_by_viscosity": -carried,
    }
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-15), name  # a linear flow is exact
    assert abs(found["kinetic_energy_residual"]) < 1e-15


@pytest.mark.slow
def test_momentum_closes_where_the_flow_goes_in_and_out_as_it_likes():
    """Driven by a pressure through a stretched box of which two sides, a lower one among them, and the top are open."""
    finer = tuple(lines("formula", "s - 0.2*s*(1 - s)", count, 0.0, 1.0) for count in (12, 10))
    domain = sj.Domain(sj.Grid((12, 10), stretch=finer))
    ends = sj.OpenSide(pressure=lambda t, x, y: 1 + y + jnp.sin(9 * t)), sj.OpenSide()
    flow = sj.Incompressible(domain, [ends, (sj.NoSlipWall(), sj.OpenSide(pressure=0.2))])
    params = flow.Params(jnp.asarray(0.02), jnp.asarray(0.5))
    y = domain.coordinates((0.0, 0.5))[1]
    velocity, names = (jnp.broadcast_to(1 + y, (12, 10)), 0.1 * jnp.ones((12, 10))), ("momentum_x", "momentum_y")
    found = budgets(flow, params, velocity, "kutta3", names)(0.002, 32)
    for name, other in (("momentum_x", "y_upper"), ("momentum_y", "x_lower")):
        # Roundings of sums of numbers below one; what the flow along a side carries out is far from nothing.
        assert abs(found[f"{name}_residual"]) < 1e-14 and abs(found[f"{name}_in_{other}"]) > 1e-3, found
        assert abs(found[f"{name}_made_by_pressure"]) > 1e-3


@pytest.mark.slow
def test_momentum_closes_and_energy_at_the_order_of_the_steps():
    """In a stretched box with a lid that speeds up, forces and drag: kutta3 leaves an eighth at half the step."""
    lid = sj.NoSlipWall(velocity=(lambda t, x, y: 1 + jnp.sin(9 * t), 0.0))
    maps = ("s - 0.2*s*(1 - s)", 16), ("s - 0.1*sin(2*pi*s)/pi", 12)
    finer = tuple(lines("formula", formula, count, 0.0, 1.0) for formula, count in maps)
    domain = sj.Domain(sj.Grid((16, 12), stretch=finer))
    forces = lambda t, x, params: jnp.sin(20 * t) * x[1], lambda t, x, params: 1 + x[0]
    flow = sj.Incompressible(domain, [(sj.NoSlipWall(),) * 2, (sj.NoSlipWall(), lid)], forces)
    y = domain.coordinates((0.0, 0.5))[1]
    params = flow.Params(jnp.asarray(0.02), jnp.asarray(0.5))
    run = budgets(flow, params, (jnp.broadcast_to(jnp.sin(3 * y), (16, 12)), jnp.zeros((16, 12))), "kutta3")
    coarse, fine = run(0.002, 32), run(0.001, 64)
    for name in ("momentum_x", "momentum_y"):
        assert abs(coarse[f"{name}_residual"]) < 1e-15 and abs(coarse[f"{name}_made_by_pressure"]) > 0.05
    assert coarse["kinetic_energy_made_by_viscosity"] < -0.05 and coarse["kinetic_energy_in_y_upper"] > 0.05
    ratio = coarse["kinetic_energy_residual"] / fine["kinetic_energy_residual"]
    assert np.log2(ratio) == pytest.approx(3, abs=0.2)  # the next order is still seen


CONVECTION = {
    "model": "boussinesq",
    "grid": {"shape": [16, 16]},
    "physics": {"viscosity": 0.02, "diffusivity": 0.03, "gravity": [0.0, -1.0]},
    "forcing": {"temperature": "x*sin(20*t)"},
    "initial": {"velocity": ["0", "0"], "temperature": "sin(6*x)*y"},
    "boundaries": {
        "x": "slip",
        "y": {"lower": {"kind": "no_slip", "temperature": 1.0}, "upper": {"kind": "no_slip", "temperature": 0.0}},
    },
    "outputs": [{"balance": ["temperature", "momentum_x", "momentum_y", "kinetic_energy"]}],
    "time": {"end": 0.08, "output_every": 0.04, "dt": 0.01, "integrator": "midpoint"},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


@pytest.mark.slow
def test_heat_closes_and_buoyancy_works_on_any_devices_and_after_a_restart(tmp_path):
    def run(name, changes, **options):
        place = {"output.root": str(tmp_path), "output.folder": str(tmp_path / name)}
        sj.Simulation(validate(changed(CONVECTION, {**place, **changes}))).run(**options)
        with sj.open_output(tmp_path / name, "balance") as dataset:
            return dataset.load()

    run("alone", {"time.end": 0.04})
    alone, split = run("alone", {}, resume=tmp_path / "alone"), run("split", {"mesh.x": 2})
    for name in alone.data_vars:
        # Devices add up in another order: roundings of sums of order one at eight steps.
        np.testing.assert_allclose(split[name], alone[name], rtol=0, atol=1e-14, err_msg=str(name))
    last = alone.isel(time=-1)
    assert abs(float(last.temperature_residual)) < 1e-14 and float(last.temperature_in_y_lower) > 0.01
    assert abs(float(last.momentum_y_residual)) < 1e-14
    # From rest, what buoyancy did is what moves and what was dissipated; eight steps of second order leave 0.24 %.
    worked = float(last.kinetic_energy_made_by_buoyancy)
    assert worked > 1e-4 and abs(float(last.kinetic_energy_residual)) < 0.01 * worked
