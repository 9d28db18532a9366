"""Configurations: typed and complete when valid; every mistake refused, all of them at once."""

import copy
from pathlib import Path

import numpy as np
import pytest
import yaml

from simjax.config import (
    MODELS,
    compose,
    conf_folder,
    expand_sweep,
    list_experiments,
    load_config,
    sample_members,
)
from simjax.config import validate as validate_mapping
from simjax.config.composition import compose_from_run
from simjax.config.folders import (
    config_yaml,
    default_yaml,
    find_resumable,
    new_run_folder,
    resume_differences,
    write_hydra_folder,
)
from simjax.config.schema import INTEGRATORS
from simjax.core.errors import ConfigurationError, InputOutputError
from simjax.integrators import runge_kutta

FLOW = {
    "model": "incompressible",
    "physics": {"viscosity": 1e-3},
    "grid": {"shape": [16, 8]},
    "time": {"end": 1.0, "output_every": 0.1},
}
DYE = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 1e-3, "velocity": [1.0, 0.0]},
    "grid": {"shape": [16, 8]},
    "time": {"end": 1.0, "output_every": 0.1},
}


def changed(base, changes):
    """`base` with dotted keys set."""
    mapping = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        section = mapping
        for key in parents:
            section = section.setdefault(key, {})
        section[last] = value
    return mapping


def refusal(mapping, **options):
    with pytest.raises(ConfigurationError) as refused:
        validate_mapping(mapping, **options)
    assert refused.value.exit_code == 2
    return str(refused.value)


# ---- valid configurations


def test_defaults_are_filled_in():
    config = validate_mapping(FLOW)
    assert config.precision == "float32" and config.time.courant == 0.5 and config.time.dt is None
    assert config.grid.lower == (0.0, 0.0) and config.grid.upper == (1.0, 1.0)
    assert all(boundary.periodic for boundary in config.boundaries)
    assert [formula.constant for formula in config.initial["velocity"]] == [0.0, 0.0]
    assert config.physics.drag == 0.0 and config.mesh.devices == 1


@pytest.mark.parametrize("name", [experiment.name for experiment in list_experiments()])
def test_every_experiment_is_valid_and_its_mapping_is_complete(name):
    config = load_config(name)
    assert config.experiment_name == name
    assert validate_mapping(config.mapping) == config
    assert validate_mapping(yaml.safe_load(config_yaml(config))) == config


def test_every_experiment_has_a_description_and_a_title():
    for experiment in list_experiments():
        assert 20 < len(experiment.description) < 90, experiment
        assert load_config(experiment.name).title


def test_integrator_names_are_those_that_exist():
    assert set(INTEGRATORS) == set(runge_kutta.INTEGRATORS)


def test_walls():
    config = validate_mapping(
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
    assert y.lower.values[0].constant == 0.0 and y.upper.values[0].text == "sin(t)*x"
    plate = validate_mapping(
        changed(DYE, {"boundaries.y": {"lower": {"kind": "dirichlet", "value": 2}, "upper": "neumann"}})
    )
    assert plate.boundaries[1].lower.values[0].constant == 2.0
    assert plate.boundaries[1].upper.values[0].constant == 0.0


def test_parameters_are_known_to_formulas_and_numbers_may_be_formulas():
    mapping = changed(FLOW, {"parameters": {"width": "pi/15"}, "grid.upper": ["2*pi", 1]})
    mapping |= {"initial": {"velocity": ["sin(x/width)*viscosity", "drag"]}}
    config = validate_mapping(mapping)
    assert config.parameters["width"] == np.pi / 15 and config.grid.upper[0] == 2 * np.pi


def test_velocity_components_are_known_to_formulas():
    assert validate_mapping(changed(DYE, {"exact.concentration": "sin(x - velocity_x*t)*velocity_y"}))
    assert "velocity_z" in refusal(changed(DYE, {"exact.concentration": "velocity_z"}))


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
    "missing": (changed(FLOW, {"physics": {}}), {}, ["physics.viscosity is missing"]),
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
    "two steps": (FLOW, {"time.dt": 0.1, "time.courant": 0.5}, ["time.courant=null", "time.dt=null"]),
    "too many steps": (FLOW, {"time.dt": 1e-12}, ["time.dt", "at most 2147483647 steps"]),
    "too many frames": (FLOW, {"time.output_every": 1e-9}, ["time.output_every", "frames"]),
    "negative end": (FLOW, {"time.end": -1}, ["time.end = -1", ">= 0"]),
    "integrator": (FLOW, {"time.integrator": "rk5"}, ["one of euler", "did you mean 'rk4'"]),
    "model": (FLOW, {"model": "incompresible"}, ["did you mean 'incompressible'"]),
    "precision": (FLOW, {"precision": "float16"}, ["float32, float64"]),
    "seed": (FLOW, {"seed": -1}, ["seed = -1"]),
    "name with a slash": (FLOW, {"experiment_name": "../up"}, ["experiment_name"]),
    "wall": (FLOW, {"boundaries.y": "no_slp"}, ["did you mean 'no_slip'"]),
    "wall of another model": (DYE, {"boundaries.y": "slip"}, ["dirichlet, neumann"]),
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
    "half periodic": (FLOW, {"boundaries.x": {"lower": "periodic", "upper": "slip"}}, ["both sides"]),
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


# ---- files


def experiment(
    folder: Path, text: str, name: str = "mine", header: str = "# @package _global_\n# Mine\n"
) -> Path:
    (folder / "experiment").mkdir(exist_ok=True)
    (folder / "experiment" / f"{name}.yaml").write_text(header + text, encoding="utf-8")
    return folder


MINE = "physics: {viscosity: 0.1}\ntime: {end: 2.0}\n"


def test_own_experiment_in_own_folder(tmp_path):
    config = load_config("mine", ["seed=4"], config_dir=experiment(tmp_path, MINE))
    assert (config.experiment_name, config.physics.viscosity, config.time.end, config.seed) == (
        "mine",
        0.1,
        2.0,
        4,
    )


def test_own_experiment_may_build_on_another(tmp_path):
    experiment(tmp_path, MINE, "base")
    config = load_config(
        "mine", config_dir=experiment(tmp_path, "defaults: [base, _self_]\ntime: {end: 3.0}\n")
    )
    assert config.time.end == 3.0 and config.physics.viscosity == 0.1


@pytest.mark.parametrize("spelling", ["experiment=cavity", "+experiment=cavity", "++experiment=cavity"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_spellings_and_order_of_overrides(spelling, at):
    overrides = ["time.end=3.5", "+seed=7"]
    overrides.insert(at, spelling)
    config = compose(overrides).config()
    assert (config.time.end, config.seed, config.experiment_name) == (3.5, 7, "cavity")


FILE_MISTAKES = {
    "unknown key": (
        "physics: {viscosity: 1}\ntime: {edn: 2}\n",
        "time.edn: unknown key; did you mean 'time.end'",
    ),
    "octal": (MINE + "seed: 010\n", "line 5: 010 is an octal number to YAML; write 10"),
    "base 60": (MINE + "limits: {wall_clock: 12:30}\n", "line 5: 12:30 is a number of base 60"),
    "no": ("physics: {viscosity: no}\n", "physics.viscosity = False"),
    "nan": ("physics: {viscosity: .nan}\n", "physics.viscosity = nan"),
    "inf": ("physics: {viscosity: .inf}\n", "physics.viscosity = inf"),
    "real cells": (MINE + "grid: {shape: [1e2, 8]}\n", "grid.shape[0] = 100.0"),
    "environment": (MINE + "title: ${oc.env:HOME}\n", "'${oc.env:HOME}' is refused"),
    "environment within": (MINE + "title: a ${oc.env:HOME} b\n", "is refused"),
    "nested resolver": (MINE + "title: ${a.${oc.env:HOME}}\n", "is refused"),
    "target": ("physics: {viscosity: 1, _target_: os.system}\n", "physics._target_"),
    "python tag": (MINE + "title: !!python/object/apply:os.system [ls]\n", "tag"),
    "hydra key": (MINE + "hydra: {run: {dir: /tmp}}\n", "the key 'hydra' is refused"),
    "hydra default": ("defaults: [override /hydra/launcher: basic]\n" + MINE, "defaults entry"),
    "default above": ("defaults: [../../secret]\n" + MINE, "defaults entry"),
    "twice": ("seed: 1\nseed: 2\n" + MINE, "'seed' is written twice"),
    "circle": (MINE + "parameters: &a {b: *a}\n", "contains itself"),
    "references in a circle": (MINE + "title: ${experiment_name}\nexperiment_name: ${title}\n", "circular"),
    "reference to nothing": (MINE + "seed: ${sed}\n", "does not exist"),
    "not a mapping": ("- 1\n- 2\n", "expected keys with values"),
    "not YAML": ("a: [1\n", "not YAML"),
    "zero byte": ("a: \0\n", "not YAML"),
    "deep": ("a: " + "[" * 100 + "]" * 100 + "\n", "nested deeper"),
    "deeper": ("a: " + "[" * 5000 + "]" * 5000 + "\n", "nested deeper"),
    "large": ("a: " + "1" * 1_000_001, "at most 1000000"),
}


@pytest.mark.parametrize("mistake", FILE_MISTAKES)
def test_mistakes_in_an_experiment_file(tmp_path, mistake):
    text, said = FILE_MISTAKES[mistake]
    with pytest.raises(ConfigurationError) as refused:
        load_config("mine", config_dir=experiment(tmp_path, text))
    assert said in str(refused.value)


def test_alias_bomb(tmp_path):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(ConfigurationError, match="aliases are expanded"):
        load_config("mine", config_dir=experiment(tmp_path, "\n".join(lines)))


def test_reference_bomb(tmp_path):
    lines = ["a0: [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: [" + ", ".join(["'${a" + str(i - 1) + "}'"] * 9) + "]" for i in range(1, 12)]
    with pytest.raises(ConfigurationError, match="circular or too many"):
        load_config("mine", config_dir=experiment(tmp_path, "\n".join(lines)))


def test_reference_to_another_key(tmp_path):
    config = load_config(
        "mine", config_dir=experiment(tmp_path, MINE + "parameters: {nu: '${physics.viscosity}'}\n")
    )
    assert config.parameters == {"nu": 0.1}


@pytest.mark.parametrize("header", ["", "# Mine\n", "# @package experiment\n# Mine\n"])
def test_experiment_without_the_package_line(tmp_path, header):
    with pytest.raises(ConfigurationError, match="write '# @package _global_' as its first line"):
        load_config("mine", config_dir=experiment(tmp_path, MINE, header=header))


def test_experiment_with_a_name_of_ours(tmp_path):
    with pytest.raises(ConfigurationError, match="experiment=fluid is both"):
        load_config("fluid", config_dir=experiment(tmp_path, MINE, "fluid"))


OVERRIDE_MISTAKES = {
    "experiment=flud": "did you mean experiment=fluid",
    "experiment=": "no such experiment",
    "experiment=[fluid,cavity]": "several experiments need -m",
    "fluid": "did you mean experiment=fluid",
    "time.end": "expected key=value",
    "seed=1,2": "several values need -m",
    "title=${oc.env:HOME}": "is refused",
    'title="x ${oc.env:HOME}"': "is refused",
    "hydra.job.chdir=true": "only hydra.run.dir",
    "hydra/launcher=basic": "only hydra.run.dir",
    "hydra.run.dir=../../..": "below output.root",
    "hydra.run.dir=/tmp": "below output.root",
    "hydra.searchpath=[/tmp]": "only hydra.run.dir",
    "output=nun": "did you mean output=none",
    "physics._target_=os.system": "calls nothing",
    "initial.velocity=[sin(x),0]": "needs quotes",
    "title=a=b": "cannot be read",
    "grid.shape=[1e2,8]": "grid.shape[0] = 100.0",
    "physics.viscosity=nan": "physics.viscosity = nan",
    "physics.viscosity=inf": "physics.viscosity = inf",
    "physics.viscosity=no": "physics.viscosity = 'no'",
    "seed=010": "write 10 without leading zeros",
    "limits.wall_clock=12:30": "clock notation",
    "viscosity=1": "did you mean 'physics.viscosity'",
    "~nothing": "Could not delete",
    "../tests=test_config": "no such ../tests",
}


@pytest.mark.parametrize("override", OVERRIDE_MISTAKES)
def test_mistakes_in_overrides(override):
    overrides = [override] if override.startswith("experiment") else ["experiment=cavity", override]
    with pytest.raises(ConfigurationError) as refused:
        compose(overrides).config()
    assert OVERRIDE_MISTAKES[override] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_overrides_of_every_shape():
    config = load_config(
        "cavity",
        [
            'initial.velocity=["sin(x)*cos(y)","0"]',
            "boundaries.y.upper.velocity=[2.0,0]",
            "boundaries.x=periodic",
            "forcing.velocity=[1,0]",
            "ensemble.size=4",
            "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}",
            "output=full",
            "output.animation=false",
            "output.root=/some where/öäü (1)",
            "~parameters",
        ],
    )
    assert config.initial["velocity"][0].text == "sin(x)*cos(y)"
    assert config.boundaries[1].upper.values[0].constant == 2.0 and config.boundaries[0].periodic
    assert config.forcing["velocity"][0].constant == 1.0
    assert config.ensemble.vary[0].numbers == (1e-4, 1e-2)
    assert config.output.rounding_bits == 15 and config.output.animation is False
    assert config.output.root == "/some where/öäü (1)"


def test_output_groups():
    assert load_config("cavity", ["output=none"]).output.fields == ()
    assert load_config("cavity", ["output=none"]).output.report is False
    assert load_config("cavity").output.fields is None


def test_sweeps_are_lists_of_overrides():
    jobs = expand_sweep(["experiment=cavity,fluid", "seed=1,2", "time.end=3"])
    assert len(jobs) == 4
    composed = [compose(job).config() for job in jobs]
    assert [(c.experiment_name, c.seed, c.time.end) for c in composed] == [
        ("cavity", 1, 3.0),
        ("cavity", 2, 3.0),
        ("fluid", 1, 3.0),
        ("fluid", 2, 3.0),
    ]


def test_composing_leaves_no_trace(tmp_path, monkeypatch):
    from hydra import version
    from hydra.core.global_hydra import GlobalHydra

    monkeypatch.chdir(tmp_path)
    before = version.VersionBase.instance().version_base
    load_config("fluid")
    assert list(tmp_path.iterdir()) == [] and Path.cwd() == tmp_path
    assert version.VersionBase.instance().version_base is before
    assert not GlobalHydra.instance().is_initialized()


def test_conf_is_found_and_the_sample_file_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (conf_folder() / "config.yaml").is_file()
    assert load_config("from_file").initial["velocity"].file.is_file()


# ---- ensembles

VARIED = changed(
    FLOW,
    {
        "parameters": {"a": 1.0, "b": 2.0},
        "ensemble.size": 64,
        "ensemble.vary": {
            "physics": {"viscosity": {"log_uniform": [1e-4, 1e-2]}},
            "parameters": {"a": {"uniform": [-1, 3]}, "b": {"linspace": [0, 63]}},
        },
    },
)


def test_a_member_is_the_same_whatever_the_size():
    few = sample_members(validate_mapping(VARIED))
    many = sample_members(validate_mapping(changed(VARIED, {"ensemble.size": 1024})))
    alone = sample_members(
        validate_mapping(
            changed(
                FLOW, {"ensemble": {"size": 18, "vary": {"physics.viscosity": {"log_uniform": [1e-4, 1e-2]}}}}
            )
        )
    )
    for path in ("physics.viscosity", "parameters.a"):
        assert np.array_equal(few[path], many[path][:64])
    assert alone["physics.viscosity"][17] == many["physics.viscosity"][17]
    assert np.array_equal(few["parameters.b"], np.arange(64.0))


def test_samples_have_the_distribution_asked_for():
    samples = sample_members(validate_mapping(changed(VARIED, {"ensemble.size": 1024})))
    log = np.log10(samples["physics.viscosity"])
    assert log.min() >= -4 and log.max() <= -2
    # the mean of 1024 uniform numbers over a width w scatters by w / sqrt(12 * 1024) = 0.009 w: five of those
    assert abs(log.mean() + 3.0) < 0.045 * 2 and abs(samples["parameters.a"].mean() - 1.0) < 0.045 * 4
    # independent parameters: the correlation of 1024 pairs scatters by 1/32
    assert abs(np.corrcoef(log, samples["parameters.a"])[0, 1]) < 5 / 32


def test_another_seed_is_another_sample():
    one, other = (sample_members(validate_mapping({**VARIED, "seed": seed})) for seed in (0, 1))
    assert not np.any(one["parameters.a"] == other["parameters.a"])


# ---- folders


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path):
    config = validate_mapping(
        changed(FLOW, {"output.root": str(tmp_path / "out"), "experiment_name": "flow"})
    )
    folders = {new_run_folder(config) for _ in range(20)}
    assert len(folders) == 20 and all(folder.parent == tmp_path / "out" / "flow" for folder in folders)


def test_a_used_folder_is_refused(tmp_path):
    mapping = changed(FLOW, {"output.root": str(tmp_path), "output.folder": "mine"})
    folder = new_run_folder(validate_mapping(mapping))
    assert folder == tmp_path / "mine"
    (folder / "fields.h5").touch()
    with pytest.raises(ConfigurationError, match="resume=.*or output.overwrite=true"):
        new_run_folder(validate_mapping(mapping))
    assert new_run_folder(validate_mapping(changed(mapping, {"output.overwrite": True}))) == folder


def test_a_link_out_of_the_root_is_refused(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert "output.folder" in refusal(
        changed(FLOW, {"output.root": str(tmp_path / "root"), "output.folder": "link"})
    )


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "root").touch()
    with pytest.raises(InputOutputError, match="cannot be made"):
        new_run_folder(validate_mapping(changed(FLOW, {"output.root": str(tmp_path / "root")})))


def test_the_run_to_resume(tmp_path):
    config = validate_mapping(changed(FLOW, {"output.root": str(tmp_path), "resume": "auto"}))
    assert find_resumable(config) is None
    older, newer, empty = (tmp_path / "experiment" / f"2026010{i}-000000-aaaaaa" for i in (1, 2, 3))
    for folder in (older, newer):
        (folder / "checkpoints" / "8").mkdir(parents=True)
    (empty / "checkpoints").mkdir(parents=True)
    assert find_resumable(config) == newer
    assert find_resumable(validate_mapping(changed(FLOW, {"resume": str(older)}))) == older
    with pytest.raises(ConfigurationError, match="expected the folder of a run"):
        find_resumable(validate_mapping(changed(FLOW, {"resume": str(tmp_path / "no")})))


def test_a_run_keeps_its_configuration(tmp_path):
    config = load_config("cavity", ["seed=3", "time.end=1.5"])
    write_hydra_folder(tmp_path, config)
    assert yaml.safe_load((tmp_path / ".hydra" / "overrides.yaml").read_text())[-2:] == [
        "seed=3",
        "time.end=1.5",
    ]
    again = compose_from_run(tmp_path / ".hydra" / "config.yaml", ["time.end=2.5"]).config()
    assert (again.seed, again.time.end, again.experiment_name) == (3, 2.5, "cavity")
    assert resume_differences(config.mapping, again.mapping) == ([], ["time.end was 1.5 and is 2.5 now"])


def test_what_a_resumed_run_may_change():
    old = validate_mapping(FLOW).mapping
    new = changed(
        FLOW, {"physics.viscosity": 2e-3, "mesh.x": 2, "precision": "float64", "time.output_every": 0.5}
    )
    refused, allowed = resume_differences(old, validate_mapping(new).mapping)
    assert [sentence.split()[0] for sentence in refused] == ["physics.viscosity", "precision"]
    assert [sentence.split()[0] for sentence in allowed] == ["mesh.x", "time.output_every"]


def test_defaults_as_text():
    assert yaml.safe_load(default_yaml())["time"]["integrator"] in INTEGRATORS


def test_registry():
    assert set(MODELS) == {"advection_diffusion", "incompressible"}
    assert MODELS["incompressible"].variables(3)[:3] == ("velocity_x", "velocity_y", "velocity_z")
