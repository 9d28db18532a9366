"""Conditions end a run, and write a frame, when they hold: at the right time, once, on any devices, across a stop."""

import json

import numpy as np
import pytest
from configurations import DYE, FLOW, changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError

# A Taylor-Green vortex: its energy falls as exp(-16 pi^2 nu t), whatever the scheme up to its error.
RATE = 16 * np.pi**2 * 0.02
VORTEX = {
    "model": "incompressible",
    "physics": {"viscosity": 0.02},
    "grid": {"shape": [16, 16]},
    "initial": {"velocity": ["sin(2*pi*x)*cos(2*pi*y)", "-cos(2*pi*x)*sin(2*pi*y)"]},
    "time": {"end": 1.0, "output_every": 0.1, "dt": 0.01},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    return sj.Simulation(validate(changed(VORTEX, {**place, **changes}))).run(**options)


def frames(folder):
    with sj.open_run(folder) as dataset:
        return dataset.load()


def test_a(tmp_path):
    for every in ("frame", "step"):
        r=run(tmp_path / every, {"stop": {"when": "kinetic_energy < 0.06", "every": every}, "events": [{"when": "kinetic_energy < 0.12", "every": every}]})
        print(r.message, r.exit_code)
        f=frames(tmp_path/every); print(f.time.values, f.kinetic_energy.values)
        e=frames(tmp_path/every/"events"/"event"); print(e.time.values, e.kinetic_energy.values)
    assert 0
