"""Small configured runs, every model among them: shipped experiments, and what none of them has, cut over devices."""

import functools

from configurations import models
from small_experiments import small

import simjax as sj
from simjax.config import load_config

SIZES = {1: {"x": 4}, 2: {"x": 2, "y": 2}, 3: {"x": 2, "z": 2}}
"""Axes -> devices along them."""

SIMPLE = {"end": 0.02, "output_every": 0.01, "dt": 0.005}
PLANE = {"shape": [16, 24], "upper": [6.0, 8.0]}
WAVY = {"u": "sin(2*pi*x/6) + 0.5*cos(2*pi*(x/6 + y/4) + 0.3)"}
FALLING = {
    "box": {"upper": [4.0, 4.0, 4.0]},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    "particles": {"count": 60, "placement": "random", "dispersion": 0.3},
}
SALT = {
    "box": {"upper": [5.6, 5.6, 5.6]},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.02},
    "particles": {"placement": "rocksalt", "count": 64, "fractions": [0.5, 0.5], "temperature": 0.1},
}
_salt = {"potential": {"soft_sphere": {"power": 9, "epsilon": 0.1}}, "cutoff": 1.5, "mode": "force_shifted"}

WRITTEN = {
    "burgers": ({"grid": {"shape": [32], "upper": [1.0]}, "initial": {"concentration": "2 + sin(2*pi*x)"}}, SIMPLE),
    "viscous_burgers": ({"physics": {"viscosity": 0.1}, "grid": PLANE, "initial": WAVY}, SIMPLE),
    "korteweg_de_vries": ({"grid": PLANE, "initial": WAVY}, SIMPLE),
    "kuramoto_sivashinsky": ({"physics": {"form": "height"}, "grid": PLANE, "initial": WAVY}, SIMPLE),
    "gas": (
        {"grid": {"shape": [16, 16]}, "initial": {"density": "1 + 0.3*sin(2*pi*(x + y))", "pressure": "1"}},
        SIMPLE,
    ),
    # One device has three cells along an axis, two have two: mesh cells in a cell are 8/3 and 4, or 20/3 and 10.
    "p3m": (FALLING | {"physics": {"forces": "p3m", "mesh_cells": [8, 8, 8], "cutoff": 0.9, "softening": 0.05}}, None),
    "mesh_charges": (SALT | {"physics": {**_salt, "charges": {"species": [1.0, -1.0], "tolerance": 0.01}}}, None),
    "ewald": (
        SALT | {"physics": {**_salt, "charges": {"species": [1.0, -1.0], "tolerance": 0.01, "method": "ewald"}}},
        None,
    ),
}
"""Name -> sections of a configuration, and its section `time`."""
MODELS = {"gas": "compressible", "p3m": "gravity", "mesh_charges": "molecular_dynamics", "ewald": "molecular_dynamics"}
"""Models of those of `WRITTEN` that are not called by them."""
ALONE = {"p3m": {"x": 2}, "mesh_charges": {"x": 2}, "ewald": {"x": 2}}
"""Devices of runs whose cells change with them."""


def model_of(name: str) -> str:
    return MODELS.get(name, name) if name in WRITTEN else models()[name]


def configured(name: str, *, cut: bool):
    """The configuration `name`, on one device or `cut` over several."""
    if name in WRITTEN:
        sections, time = WRITTEN[name]
        sections = {"precision": "float64", **sections} | ({} if time is None else {"time": time})
        axes = len((sections.get("grid") or sections["box"])["upper"]) if name != "gas" else 2
        devices = {"mesh": ALONE.get(name, SIZES[axes])} if cut else {}
        return sj.configure(model_of(name), **sections, **devices)
    sizes = SIZES[load_config(name).ndim]
    devices = [f"mesh.{axis}={count}" for axis, count in sizes.items()] if cut else []
    return sj.load(name, [*small(name), "precision=float64", *devices])


@functools.cache
def observed(name: str, *, cut: bool):
    """The run as a function."""
    return configured(name, cut=cut).differentiable()
