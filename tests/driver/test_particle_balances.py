"""Momentum, energy and charge of particles are what they were and what walls, baths and fields made, to rounding."""

import numpy as np
import pytest
from configurations import changed

import simjax as sj
from simjax.config import validate
from simjax.driver.programs.programs_of_run import compiled_run

QUIET = {"precision": "float64", "output": {"report": False, "animation": False}}
WARMED = {
    **QUIET,
    "model": "molecular_dynamics",
    "physics": {"mode": "force_shifted", "walls": "reflecting", "thermostat": {"langevin": {"friction": 2.0}}},
    "box": {"upper": [8.0, 8.0], "periodic": [True, False]},
    "particles": {"placement": "random", "count": 36, "distance": 0.9, "temperature": 4.0},
    "time": {"end": 1.0, "output_every": 0.5, "dt": 0.004},
    "outputs": [{"balance": ["momentum_x", "momentum_y", "energy"]}],
}


def balances(folder, base, changes):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(base, {**place, **changes}))).run()
    with sj.open_output(folder, "balance") as dataset:
        return {str(name): u.values for name, u in dataset.load().data_vars.items()}


@pytest.mark.slow
def test_what_walls_and_a_bath_give_to_particles(tmp_path):
    found = balances(tmp_path / "run", WARMED, {})
    made, lower, upper = (found[f"momentum_y_{part}"] for part in ("made_by_thermostat", "in_y_lower", "in_y_upper"))
    # Walls throw back into the box, some of 36 particles of speed 2 arrive in a time of one.
    assert lower[-1] > 0.5 and upper[-1] < -0.5 and abs(made[-1]) > 0.1, (lower, upper, made)
    change = found["momentum_y_now"] - found["momentum_y_at_start"]
    # Roundings of sums of numbers of order ten in 250 steps.
    np.testing.assert_allclose(change, made + lower + upper, atol=1e-12)
    for name in ("momentum_x", "momentum_y"):
        np.testing.assert_allclose(found[f"{name}_residual"], 0, atol=1e-12)
    assert "momentum_y_in_x_lower" not in found and not found["energy_in_y_lower"].any()
    heat = np.abs(found["energy_made_by_thermostat"]).max()
    # Velocity Verlet leaves what is of second order in steps of a hundredth of a collision: a hundredth of the heat.
    assert heat > 1 and np.abs(found["energy_residual"]).max() < 0.01 * heat


REFUSED = {
    "overdamped": (WARMED, {"physics.thermostat": {"brownian": {}}}, "does not know what Brownian gives and takes"),
    "turning in a periodic box": (
        {
            **QUIET,
            "model": "gravity",
            "physics": {"forces": "mesh", "mesh_cells": [8, 8]},
            "particles": {"count": 16},
            "box": {"upper": [1.0, 1.0]},
            "time": {"end": 0.1, "output_every": 0.1, "dt": 0.01},
            "outputs": [{"balance": "angular_momentum_z"}],
        },
        {},
        "angular_momentum_z expects a box that is open along all axes",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_conserved_is_refused(what):
    base, changes, told = REFUSED[what]
    with pytest.raises(sj.ConfigurationError, match=told):
        compiled_run(validate(changed(base, changes)))


TANK = {
    **QUIET,
    "model": "sph",
    "box": {"upper": [1.6, 1.6], "periodic": [False, False]},
    "particles": {"placement": "tank", "spacing": 0.1, "fluid": [0.6, 1.0], "lid": True},
    "physics": {"sound_speed": 20.0, "gravity": [0.0, -1.0], "viscosity": 0.01},
    "time": {"end": 0.1, "output_every": 0.1, "dt": 0.001},
    "outputs": [{"balance": ["fluid_mass", "momentum_x", "momentum_y"]}],
}
TURNING = {
    **QUIET,
    "model": "electrostatic_pic",
    "box": {"upper": ["4*pi"]},
    "particles": {"count": 256, "temperature": [1.0], "placement": "random"},
    "physics": {"mesh_cells": [16], "magnetic_field": [0.0, 0.0, 0.5]},
    "time": {"end": 1.0, "output_every": 1.0, "dt": 0.05},
    "outputs": [{"balance": ["momentum_x", "energy", "charge"]}],
}


@pytest.mark.slow
def test_what_gravity_and_the_walls_of_a_tank_give_to_a_fluid(tmp_path):
    found = {name: u[-1] for name, u in balances(tmp_path / "run", TANK, {}).items()}
    assert found["momentum_y_made_by_gravity"] == pytest.approx(-0.6 * 0.1, rel=1e-12)
    # Its column collapses from the wall at x = 0, which pushes it away as the floor carries it.
    assert found["momentum_x_made_by_walls"] > 5e-3 and found["momentum_y_made_by_walls"] > 5e-3
    for name in ("fluid_mass", "momentum_x", "momentum_y"):
        assert abs(found[f"{name}_residual"]) < 1e-14  # roundings of sums of numbers below one


@pytest.mark.slow
def test_what_a_magnetic_field_gives_to_a_plasma(tmp_path):
    found = {name: u[-1] for name, u in balances(tmp_path / "run", TURNING, {}).items()}
    assert abs(found["momentum_x_made_by_magnetic_field"]) > 0.05
    # Roundings of sums of 256 numbers of order 0.1; the field does no work.
    assert abs(found["momentum_x_residual"]) < 1e-13 and abs(found["charge_residual"]) < 1e-13
    assert abs(found["energy_residual"]) < 1e-3 * found["energy_now"]
