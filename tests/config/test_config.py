"""Configurations: typed and complete when valid; every mistake refused, all of them at once."""

import dataclasses

import numpy as np
import pytest
import yaml
from configurations import DYE, FLOW, changed, composed, models, refusal, shipped

from simjax.config import list_experiments, load_config, validate
from simjax.config.folders import config_yaml
from simjax.core.domain import Domain
from simjax.driver.start.build import describe_model
from simjax.grid import Grid
from simjax.integrators import table
from simjax.models.registry import MODELS
from simjax.schema import model_schema


def test_defaults_are_filled_in():
    config = validate(FLOW)
    assert config.precision == "float32" and config.time.courant == 0.5 and config.time.dt is None
    assert config.grid.lower == (0.0, 0.0) and config.grid.upper == (1.0, 1.0)
    assert all(boundary.periodic for boundary in config.boundaries)
    assert [formula.constant for formula in config.initial["velocity"]] == [0.0, 0.0]
    assert config.physics.drag == 0.0 and config.mesh.devices == 1


@pytest.mark.parametrize("name", [experiment.name for experiment in list_experiments()])
def test_every_experiment_is_valid_and_what_it_writes_is_complete(name):
    config = shipped(name)
    # As the base says its keys, so that configurations of runs read alike, after the number of their schema.
    assert [*config.write()] == ["schema", *composed(name).mapping]
    assert config.experiment_name == name and config.title
    assert validate(config.write()) == config
    assert validate(yaml.safe_load(config_yaml(config))) == config


def test_what_is_replaced_is_written():
    """A configuration has one form: none that stays behind."""
    config = dataclasses.replace(validate(FLOW), seed=7, title="another")
    assert (config.write()["seed"], config.write()["title"]) == (7, "another")
    assert validate(config.write()) == config


def test_every_experiment_has_a_description():
    for experiment in list_experiments():
        assert 20 < len(experiment.description) < 90, experiment


def test_integrator_names_are_those_that_exist():
    assert set(model_schema.INTEGRATORS) == set(table.INTEGRATORS)


def test_walls():
    config = validate(
        changed(
            FLOW,
            {
                "boundaries.x": "slip",
                "boundaries.y": {
                    "lower": "no_slip",
                    "upper": {"kind": "no_slip", "velocity": ["sin(t)*x", 0]},
                },
            },
        )
    )
    x, y = config.boundaries
    assert x.lower.kind == x.upper.kind == "slip" and not x.periodic
    assert y.lower.fields["velocity"][0].constant == 0.0 and y.upper.fields["velocity"][0].text == "sin(t)*x"
    plate = validate(changed(DYE, {"boundaries.y": {"lower": {"kind": "dirichlet", "value": 2}, "upper": "neumann"}}))
    assert plate.boundaries[1].lower.fields["value"][0].constant == 2.0
    assert plate.boundaries[1].upper.fields["slope"][0].constant == 0.0


def test_parameters_are_known_to_formulas_and_numbers_may_be_formulas():
    mapping = changed(FLOW, {"parameters": {"width": "pi/15"}, "grid.upper": ["2*pi", 1]})
    mapping |= {"initial": {"velocity": ["sin(x/width)*viscosity", "drag"]}}
    config = validate(mapping)
    assert config.parameters["width"] == np.pi / 15 and config.grid.upper[0] == 2 * np.pi


def test_velocity_components_are_known_to_formulas():
    assert validate(changed(DYE, {"exact.concentration": "sin(x - velocity_x*t)*velocity_y"}))
    assert "velocity_z" in refusal(changed(DYE, {"exact.concentration": "velocity_z"}))


def test_every_model_has_an_experiment_and_writes_what_the_registry_says():
    """The registry may know more: what depends on other keys, such as a polarisation."""
    shown = set()
    for experiment in list_experiments():
        config = shipped(experiment.name)
        shown.add(config.model)
        assert models()[experiment.name] == config.model
        if config.schema.of_particles:
            continue
        model, _ = describe_model(config, Domain(Grid(config.grid.shape, config.grid.lower, config.grid.upper)))
        names = {output.name for output in model.outputs()}
        assert names <= set(config.variables()), experiment.name
    assert shown == {name for name in MODELS if name.islower()}, "user models have class names"


MOMENT = "2026-11-28T05:00:00+00:00"


@pytest.mark.parametrize(
    "written", ["2026-11-28T06:00:00+01:00", "2026-11-28 05:00Z", MOMENT, 1795842000, "1795842000", 1795842000.0]
)
def test_the_end_of_a_job_is_a_moment_with_its_zone_or_seconds(written):
    config = validate(changed(FLOW, {"limits.until": written}))
    assert config.limits.until == MOMENT and validate(config.write()) == config
    file = yaml.safe_load(f"until: {written}")  # where YAML makes a date of it
    assert validate(changed(FLOW, {"limits.until": file["until"]})).limits.until == MOMENT


def test_the_end_of_a_job_on_the_command_line():
    for written in ("2026-11-28T06:00:00+01:00", "1795842000"):
        assert load_config("fluid", [f"limits.until={written}"]).limits.until == MOMENT


# ---- mistakes: (base, changes, words of the message)

MISTAKES = {
    "unknown key": (FLOW, {"viscosity": 1}, ["viscosity: unknown key"]),
    "key of a section": (FLOW, {"end": 1}, ["end: unknown key", "did you mean 'time.end'"]),
    "key nearly right": (changed(FLOW, {"physics": {"visc": 1}}), {}, ["did you mean 'physics.viscosity'"]),
    "unknown key, nearest": (FLOW, {"grid.shpe": [1]}, ["grid.shpe", "did you mean 'grid.shape'"]),
    "unknown key of the model": (
        FLOW,
        {"physics.diffusivity": 1},
        ["physics.diffusivity", "known here: viscosity, drag"],
    ),
    "unknown key, deep": (
        FLOW,
        {"boundaries.y": {"lower": "slip", "uper": "slip"}},
        ["boundaries.y.uper", "boundaries.y.upper"],
    ),
    "word for a number": (FLOW, {"physics.viscosity": "abc"}, ["physics.viscosity = 'abc'", ">= 0"]),
    "quoted number": (FLOW, {"physics.viscosity": "1e-3"}, ["without quotes"]),
    "negative": (FLOW, {"physics.viscosity": -1.0}, ["physics.viscosity = -1.0", ">= 0"]),
    "nan": (FLOW, {"physics.viscosity": float("nan")}, ["= nan", "finite"]),
    "infinite": (FLOW, {"physics.viscosity": float("inf")}, ["= inf", "finite"]),
    "no is false": (FLOW, {"physics.viscosity": False}, ["YAML reads yes, no"]),
    "missing": (
        changed(FLOW, {"physics": {}}),
        {},
        ["physics.viscosity is missing: kinematic viscosity nu, in m2 s-1"],
    ),
    "1e3 cells": (FLOW, {"grid.shape": [1e3, 8]}, ["grid.shape[0] = 1000.0", "write 1000"]),
    "zero cells": (FLOW, {"grid.shape": [0, 8]}, ["grid.shape[0] = 0", ">= 1"]),
    "true cells": (FLOW, {"grid.shape": [True, 8]}, ["grid.shape[0] = True"]),
    "four axes": (FLOW, {"grid.shape": [2, 2, 2, 2]}, ["grid.shape", "1 to 3"]),
    "one axis of a flow": (FLOW, {"grid.shape": [8]}, ["at least 2 axes"]),
    "not a list": (FLOW, {"grid.shape": 64}, ["grid.shape = 64", "a list"]),
    "box upside down": (FLOW, {"grid.upper": [1.0, -1.0]}, ["grid.upper[1] = -1.0", "above grid.lower[1]=0"]),
    "corner of another rank": (FLOW, {"grid.lower": [0.0]}, ["grid.lower", "2 number(s)"]),
    "zero step": (FLOW, {"time.dt": 0.0}, ["time.dt = 0.0", "> 0"]),
    "negative step": (FLOW, {"time.dt": -0.1}, ["time.dt = -0.1"]),
    "010": (FLOW, {"time.dt": "010"}, ["write 10 without leading zeros"]),
    "12:30": (FLOW, {"limits.wall_clock": "12:30"}, ["limits.wall_clock", "clock notation"]),
    "checkpoints without number": (FLOW, {"checkpoint.keep_every": 1e-320}, ["keep_every", "at most 10000000 check"]),
    "steps of nothing": (FLOW, {"time.courant": 1e-320}, ["time.courant = 1e-320", ">= 1e-06"]),
    "members that are alike": (
        FLOW,
        {"ensemble.size": 2},
        ["ensemble.size = 2: expected members that differ", "nothing of them is random", "physics.viscosity: {uniform"],
    ),
    "members that draw the same": (
        FLOW,
        {"ensemble": {"size": 2, "noise": "shared"}, "initial.velocity": ["noise(3)", "0"]},
        ["ensemble.size = 2: expected members that differ", "ensemble.noise=per_member"],
    ),
    "samples after the end": (
        FLOW,
        {"outputs": [{"probe": {"points": [[0.5, 0.5]]}, "of": ["pressure"], "every": 1.001}], "time.end": 0.999},
        ["outputs[0].every = 1.001: expected a time of which multiples lie before time.end=0.999", "every: frame"],
    ),
    "statistics after the end": (
        FLOW,
        {"statistics": [{"of": ["pressure"], "kinds": ["mean"], "from": 0.7, "every": 0.6}], "time.end": 1.1},
        ["statistics[0].every = 0.6: expected a time", "time.end=1.1, and some of them after from=0.7"],
    ),
    "samples without number": (
        FLOW,
        {"outputs": [{"probe": {"points": [[0.5, 0.5]]}, "of": ["pressure"], "every": 1e-320}]},
        ["every = 1e-320", "at most 2147483647 samples"],
    ),
    "statistics without number": (
        FLOW,
        {"statistics": [{"of": ["pressure"], "kinds": ["mean"], "every": 1e-320}]},
        ["every = 1e-320", "at most 2147483647 samples"],
    ),
    "moment without a zone": (FLOW, {"limits.until": "2026-11-28T06:00"}, ["limits.until = '2026", "with its zone"]),
    "no moment": (FLOW, {"limits.until": "tomorrow"}, ["limits.until = 'tomorrow'", "$SLURM_JOB_END_TIME"]),
    "moment of a truth value": (FLOW, {"limits.until": True}, ["limits.until = True"]),
    "endless moment": (FLOW, {"limits.until": 1e300}, ["limits.until = 1e+300"]),
    "two steps": (FLOW, {"time.dt": 0.1, "time.courant": 0.5}, ["time.courant=null", "time.dt=null"]),
    "too many steps": (FLOW, {"time.dt": 1e-12}, ["time.dt", "at most 2147483647 steps"]),
    "too many frames": (FLOW, {"time.output_every": 1e-9}, ["time.output_every", "frames"]),
    "negative end": (FLOW, {"time.end": -1}, ["time.end = -1", ">= 0"]),
    "integrator": (FLOW, {"time.integrator": "rk5"}, ["one of kutta3", "did you mean 'rk4'"]),
    "model": (FLOW, {"model": "incompresible"}, ["did you mean 'incompressible'"]),
    "precision": (FLOW, {"precision": "float16"}, ["float32, float64"]),
    "seed": (FLOW, {"seed": -1}, ["seed = -1"]),
    "name with a slash": (FLOW, {"experiment_name": "../up"}, ["experiment_name"]),
    "wall": (FLOW, {"boundaries.y": "no_slp"}, ["did you mean 'no_slip'"]),
    "wall of another model": (DYE, {"boundaries.y": "rigid"}, ["dirichlet, neumann"]),
    "wall value": (
        FLOW,
        {"boundaries.y": {"kind": "slip", "velocity": [1, 0]}},
        ["boundaries.y.velocity: unknown key"],
    ),
    "flow through a wall": (
        FLOW,
        {"boundaries.y": {"kind": "no_slip", "velocity": [0, 1]}},
        ["velocity[1] = 1", "inflow"],
    ),
    "inflow of nothing": (FLOW, {"boundaries.x": "inflow"}, ["boundaries.x.velocity is missing"]),
    "half periodic": (
        FLOW,
        {"boundaries.x": {"lower": "periodic", "upper": "slip"}},
        ["boundaries.x: expected periodic at both ends"],
    ),
    "one wall": (FLOW, {"boundaries.x": {"lower": "slip"}}, ["boundaries.x.upper is missing"]),
    "axis of the grid": (FLOW, {"boundaries.z": "slip"}, ["boundaries.z: unknown key"]),
    "formula": (FLOW, {"initial.velocity": ["sin(x", 0]}, ["initial.velocity[0]", "column 4"]),
    "name in a formula": (FLOW, {"initial.velocity": ["sin(k*x)", 0]}, ["unknown name 'k'"]),
    "z in two dimensions": (FLOW, {"initial.velocity": ["sin(z)", 0]}, ["unknown name 'z'"]),
    "component missing": (FLOW, {"initial.velocity": ["sin(x)"]}, ["list of 2", "x y"]),
    "scalar for a vector": (FLOW, {"initial.velocity": "sin(x)"}, ["list of 2"]),
    "field": (FLOW, {"initial.velcity": ["x", 0]}, ["did you mean 'initial.velocity'"]),
    "initial nan": (DYE, {"initial.concentration": float("nan")}, ["initial.concentration", "finite"]),
    "noise later": (FLOW, {"forcing.velocity": ["noise(3)", 0]}, ["initial conditions only"]),
    "exact": (FLOW, {"exact.velocity_z": "x"}, ["did you mean 'exact.velocity_"]),
    "no such file": (
        FLOW,
        {"initial.velocity": {"file": "no.nc", "variable": ["u", "v"]}},
        ["no.nc", "no such file"],
    ),
    "file without a name": (
        FLOW,
        {"initial.velocity": {"variable": ["u", "v"]}},
        ["initial.velocity.file is missing"],
    ),
    "one variable of two": (
        FLOW,
        {"initial.velocity": {"file": "no.nc", "variable": "u"}},
        ["velocity_x, velocity_y"],
    ),
    "file key": (
        FLOW,
        {"initial.velocity": {"fil": "no.nc", "variable": ["u", "v"]}},
        ["did you mean 'initial.velocity.file'"],
    ),
    "parameter named x": (FLOW, {"parameters.x": 1.0}, ["parameters.x"]),
    "parameter of physics": (FLOW, {"parameters.viscosity": 1.0}, ["choose another name"]),
    "velocity of another rank": (DYE, {"physics.velocity": [1.0]}, ["physics.velocity", "2 number(s)"]),
    "mesh does not divide": (
        FLOW,
        {"grid.shape": [100, 8], "mesh.x": 8},
        ["use 96 or 104 cells", "mesh.x=5"],
    ),
    "mesh axis without a grid axis": (FLOW, {"mesh.z": 2}, ["mesh.z = 2", "has no axis z"]),
    "members on the mesh": (FLOW, {"ensemble.size": 6, "mesh.ensemble": 4}, ["ensemble.size=8"]),
    "batch": (FLOW, {"ensemble.size": 2, "ensemble.batch": 4}, ["ensemble.batch = 4"]),
    "vary what": (
        FLOW,
        {"ensemble.vary": {"physics": {"viscosty": {"uniform": [1, 2]}}}},
        ["did you mean 'ensemble.vary.physics.viscosity'"],
    ),
    "vary how": (
        FLOW,
        {"ensemble.vary": {"physics": {"viscosity": {"unifrom": [1, 2]}}}},
        ["uniform, log_uniform"],
    ),
    "vary below the range": (
        FLOW,
        {"ensemble.vary": {"physics": {"viscosity": {"uniform": [-1, 2]}}}},
        ["uniform[0] = -1", ">= 0"],
    ),
    "logarithm of zero": (FLOW, {"ensemble.vary": {"physics.viscosity": {"log_uniform": [0, 1]}}}, ["> 0"]),
    "vary backwards": (
        FLOW,
        {"ensemble.vary": {"physics.viscosity": {"uniform": [2, 1]}}},
        ["lower number first"],
    ),
    "values per member": (
        FLOW,
        {"ensemble.size": 3, "ensemble.vary": {"physics.viscosity": {"values": [1, 2]}}},
        ["list of 3"],
    ),
    "folder outside": (FLOW, {"output.folder": "../../.."}, ["output.folder", "below output.root=outputs"]),
    "absolute folder": (FLOW, {"output.folder": "/etc"}, ["output.folder = '/etc'"]),
    "fields": (
        FLOW,
        {"output.fields": ["velocity_w"]},
        ["output.fields[0] = 'velocity_w'", "did you mean 'velocity_"],
    ),
    "flag": (FLOW, {"output.report": "yes"}, ["true or false"]),
    "section is a number": (FLOW, {"time": 3}, ["time = 3", "keys with values"]),
    "bits": (FLOW, {"output.rounding_bits": 60}, ["<= 52"]),
    "target": (FLOW, {"physics._target_": "os.system"}, ["physics._target_", "calls nothing"]),
    "partial": (FLOW, {"initial": {"velocity": [{"_partial_": True}]}}, ["_partial_"]),
    "environment": (FLOW, {"title": "${oc.env:HOME}"}, ["title", "${oc.env:HOME}"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_key_value_and_remedy(mistake):
    base, changes, words = MISTAKES[mistake]
    said = refusal(changed(base, changes))
    assert "\n" not in said, "one mistake, one sentence"
    for word in words:
        assert word in said, said


def test_all_mistakes_are_told_at_once():
    said = refusal(
        changed(
            FLOW,
            {
                "modle": 1,
                "physics.viscosity": -1,
                "grid.shape": [1e3, 8],
                "time.end": "no",
                "boundaries.y": "no_slp",
                "initial.velocity": ["sin(q)", 0],
                "seed": 1.5,
            },
        )
    )
    assert said.startswith("7 problems in the configuration:")
    for path in (
        "modle",
        "physics.viscosity",
        "grid.shape[0]",
        "time.end",
        "boundaries.y",
        "initial.velocity[0]",
        "seed",
    ):
        assert f"\n  {path}" in said, said


def test_hostile_depth_is_refused():
    deep: dict = {}
    for _ in range(900):
        deep = {"a": deep}
    assert "nested deeper" in refusal({**FLOW, "parameters": deep})


@pytest.mark.parametrize(
    "changes",
    [
        {"ensemble.size": 2, "initial.velocity": ["noise(3)", "0"]},
        {"ensemble": {"size": 2, "noise": "shared", "vary": {"physics.viscosity": {"values": [1.0, 2.0]}}}},
        {"ensemble": {"size": 1, "numbers": [4]}},
        # A step that ends a thousandth of the cadence early counts.
        {"outputs": [{"probe": {"points": [[0.5, 0.5]]}, "of": ["pressure"], "every": 1.0}], "time.end": 0.9995},
        {"statistics": [{"of": ["pressure"], "kinds": ["mean"], "from": 0.5, "every": 0.6}], "time.end": 1.0},
    ],
    ids=["noise", "varied", "one", "at the end", "after the start"],
)
def test_what_has_an_effect_is_taken(changes):
    validate(changed(FLOW, changes))
