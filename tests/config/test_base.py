"""The base of a configuration (an experiment, or nothing), the entries of it that remain, and the listing of keys."""

import dataclasses
import subprocess
import sys

import pytest

import simjax as sj
from simjax import run
from simjax.config import compose, compose_from_run
from simjax.config.folders import config_yaml
from simjax.config.listing import keys_of_model
from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.config import Keys
from simjax.schema.kinds import Nested
from simjax.schema.parts import PartOf


@pytest.mark.slow
def test_no_experiment_is_the_defaults_alone():
    given = ["model=acoustic", "grid.shape=[8]", "time.dt=0.1", "initial={pressure: x}"]
    by_name = compose(["experiment=none", *given])
    assert by_name.experiment is None and by_name.notes == ()
    assert by_name.config() == compose(given).config() == sj.load(overrides=given).config == sj.load(None, given).config
    assert [*by_name.mapping["initial"]] == ["pressure"] and by_name.mapping["parameters"] == {}


def test_a_users_own_experiment_may_be_called_none(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "none.yaml").write_text("# @package _global_\n# Own\nseed: 7\n")
    assert compose(["experiment=none"], config_dir=tmp_path).mapping["seed"] == 7


# The case that went wrong: a wave at rest beside the wave packet of the experiment.
REST = "initial={magnetic: [0, 0]}"


@pytest.mark.parametrize(
    ("overrides", "fields", "noted"),
    [
        ([REST], {"electric", "magnetic"}, ["electric"]),
        (["~initial", REST], {"magnetic"}, []),
        (["~initial.electric", REST], {"magnetic"}, []),
        (["initial={electric: 0, magnetic: [0, 0]}"], {"electric", "magnetic"}, []),
        (["initial.electric=0"], {"electric", "magnetic"}, []),  # one entry is meant
        (["grid={shape: [8, 8]}"], {"electric", "magnetic"}, []),  # a section of fixed keys
    ],
)
def test_what_a_base_adds_is_told_and_can_be_dropped(overrides, fields, noted):
    composed = compose(["experiment=double_slit", *overrides])
    assert {*composed.mapping["initial"]} == fields
    assert [note.split(" of experiment=double_slit")[0].split(": ")[1] for note in composed.notes] == noted
    if noted:
        assert "write ~initial before it" in composed.notes[0]
        assert composed.config().notes == composed.notes


def test_every_open_section_tells_what_remains():
    overrides = ["parameters={depth: 1}", "boundaries={x: absorbing}", "coefficients={permittivity: 2}"]
    notes = compose(["experiment=double_slit", *overrides]).notes
    assert [note.partition("=")[0] for note in notes] == ["parameters", "boundaries", "coefficients"]
    assert "wavelength, slit, distance, wall" in notes[0]


def test_a_resumed_run_tells_as_well(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(config_yaml(compose(["experiment=double_slit"]).config()))
    (note,) = compose_from_run(file, [REST]).notes
    assert "electric of the earlier run" in note


@pytest.mark.slow
def test_the_note_is_in_the_log(tmp_path):
    quiet = ["output=none", f"output.root={tmp_path}", "grid.shape=[8,8]", "time.end=0.01", "time.output_every=0.01"]
    quiet += ["time.courant=null", "time.dt=0.01", "exact=null"]
    result = sj.load("dye", [*quiet, "parameters={depth: 1}", "initial={concentration: x}"]).run()
    assert "parameters={...} is merged" in (result.folder / "run.log").read_text()


# ---- keys


def _all_keys(section, margin="  "):
    """Every key and its margin, also those of parts."""
    for field in dataclasses.fields(section):
        yield margin, field
        kind = field.metadata["kind"]
        for part in kind.parts.values() if isinstance(kind, PartOf) else ():
            yield from _all_keys(part.Keys, f"{margin}        ")
        if isinstance(kind, Nested):
            yield from _all_keys(kind.section, f"{margin}      ")


@pytest.mark.parametrize(
    "section",
    [Keys, *(MODELS[name] for name in MODELS if name.islower())],
    ids=lambda one: getattr(one, "name", "keys"),
)
def test_every_key_says_what_it_is(section):
    sections = [section] if section is Keys else [section.physics, section.particles]
    for _, field in (pair for one in sections if one is not None for pair in _all_keys(one)):
        about = field.metadata["about"]
        assert about and about.split()[0] not in ("of", "in", "at", "by", "with"), f"{field.name}: {about!r}"


@pytest.mark.parametrize("name", [name for name in MODELS if name.islower()])
def test_every_key_is_listed_with_its_units_and_default(name):
    schema = MODELS[name]
    lines = keys_of_model(schema, {}).splitlines()
    for section in (schema.physics, schema.particles):
        for margin, field in [*_all_keys(section)] if section is not None else ():
            units = field.metadata["units"]
            begin = f"{margin}{field.name}{f' [{units}]' if units != '1' else ''}"
            first = [k for k, line in enumerate(lines) if line == begin or line.startswith(f"{begin}: ")]
            assert [k for k in first if field.metadata["about"] in lines[k]]
            told = [lines[k + 1] for k in first if field.metadata["kind"].allowed in lines[k + 1]]
            assert any(("required" in line) == (field.default is dataclasses.MISSING) for line in told)
    for field in (*schema.fields, *schema.coefficients):
        assert any(line.startswith(f"  {field.name}") for line in lines)


def test_help_of_an_experiment_lists_the_keys_of_its_model(capsys):
    assert run.main(["--help", "experiment=fluid", "physics.drag=0.5"]) == 0
    shown = capsys.readouterr().out
    assert "viscosity [m2 s-1]: kinematic viscosity nu" in shown and "required; here 0.0001" in shown
    assert "default 0.0; here 0.5" in shown
    assert run.main(["--help", "model=incompresible"]) == ConfigurationError.exit_code
    assert "did you mean model=incompressible?" in capsys.readouterr().err


def test_help_does_not_import_jax():
    code = "import sys, simjax.run; simjax.run.main(['--help']); print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "False"
