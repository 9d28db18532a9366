"""Composing: experiment files, overrides and sweeps, and refusal of everything hostile or misread in them."""

from pathlib import Path

import pytest

from simjax.config import compose, conf_folder, expand_sweep, load_config
from simjax.errors import ConfigurationError


def experiment(folder: Path, text: str, name: str = "mine", header: str = "# @package _global_\n# Mine\n") -> Path:
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
    config = load_config("mine", config_dir=experiment(tmp_path, "defaults: [base, _self_]\ntime: {end: 3.0}\n"))
    assert config.time.end == 3.0 and config.physics.viscosity == 0.1


@pytest.mark.parametrize("spelling", ["experiment=cavity", "+experiment=cavity", "++experiment=cavity"])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.slow
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
    "sweeper's code": (MINE + "hydra: {sweeper: {_target_: os.system}}\n", "the key 'hydra' is refused"),
    "sweeper's own code": (MINE + "hydra: {sweeper: {custom_search_space: os.system}}\n", "the key 'hydra' is refused"),
    "hydra default": ("defaults: [override /hydra/job_logging: colorlog]\n" + MINE, "defaults entry"),
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
    config = load_config("mine", config_dir=experiment(tmp_path, MINE + "parameters: {nu: '${physics.viscosity}'}\n"))
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
    "hydra.job.chdir=true": "a run stays in the folder",
    "hydra/launcher=jobli": "Could not find 'hydra/launcher/jobli'",
    "hydra.launcher._target_=os.system": "code comes from installed plugins",
    "+hydra.callbacks.mine={_target_:os.system}": "code comes from installed plugins",
    "hydra.job_logging.handlers.mine.class=os.system": "run.log in its folder",
    "hydra.nothing=1": "nothing",
    "hydra.run.dir=../../..": "below output.root",
    "hydra.run.dir=/tmp": "below output.root",
    "hydra.searchpath=[/tmp]": "write --config-dir",
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
    "time.end.x=1": "time.end = {'x': 1}",
    "grid.shape.5=1": "the list has 2 entries",
    "seed@x=1": "without @",
    "viscosity=1": "did you mean 'physics.viscosity'",
    "~nothing": "no such key",
    "../tests=test_config": "'../tests' is no key",
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
            "initial.velocity.1=0.5*x",
        ],
    )
    assert config.initial["velocity"][0].text == "sin(x)*cos(y)"
    assert config.initial["velocity"][1].text == "0.5*x"
    assert config.boundaries[1].upper.fields["velocity"][0].constant == 2.0 and config.boundaries[0].periodic
    assert config.forcing["velocity"][0].constant == 1.0
    assert config.ensemble.vary[0].numbers == (1e-4, 1e-2)
    assert config.output.rounding_bits == 15 and config.output.animation is False
    assert config.output.root == "/some where/öäü (1)"


def test_a_formula_for_a_file_and_a_file_for_a_formula():
    assert load_config("from_file", ["initial.velocity=[0,1]"]).initial["velocity"][1].constant == 1.0
    sample = "initial.velocity={file:experiments/eddies.nc,variable:[u,v]}"
    assert load_config("cavity", [sample]).initial == load_config("from_file").initial


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


def test_a_box_stands_in_the_place_of_the_grid_that_fields_begin_with():
    box = ["model=gravity", "box.upper=[1,1,1]"]
    assert compose(box).mapping["grid"] is None
    assert compose([*box, "grid.shape=[64,64]"]).mapping["grid"]["shape"] == [64, 64]  # told to be a mistake
    assert compose(["model=incompressible"]).mapping["grid"]["shape"] == [64, 64]
