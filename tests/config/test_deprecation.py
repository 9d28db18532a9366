"""Old spellings of names and keys work with a warning until the version that drops them; newer schemas are refused."""

import tomllib
from dataclasses import replace

import pytest
import yaml
from paths import ROOT

import simjax as sj
from simjax import deprecation
from simjax.config import compose, load_config, validate
from simjax.config.composition import compose_from_run
from simjax.config.folders import config_yaml, resume_differences
from simjax.deprecation import OldSpelling, Renamed, overdue, with_current_keys
from simjax.schema.schema_number import SCHEMA

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture
def old_spellings(monkeypatch):
    """Two keys, a section and a public name that were renamed, though none of them was."""
    keys = (
        Renamed("grid.cells", "grid.shape", "99.0.0"),
        Renamed("physics.friction", "physics.drag", "99.0.0"),
        Renamed("duration", "time", "99.0.0"),
    )
    monkeypatch.setattr(deprecation, "KEYS", keys)
    monkeypatch.setattr(deprecation, "NAMES", (Renamed("Mesh", "Grid", "99.0.0"),))


def test_no_old_spelling_outlives_the_version_that_drops_it():
    assert overdue(VERSION) == [], "remove them from simjax/deprecation.py, and say so in CHANGELOG.md"


@pytest.mark.parametrize(("version", "late"), [("0.9.0", False), ("0.10.0", True), ("0.10.1", True), ("1.0.0", True)])
def test_versions_are_compared_as_numbers(version, late, monkeypatch):
    monkeypatch.setattr(deprecation, "NAMES", (Renamed("Mesh", "Grid", "0.10.0"),))
    assert overdue(version) == (["Mesh"] if late else [])


def test_every_new_spelling_exists():
    for renamed in deprecation.NAMES:
        assert renamed.new in sj.__all__ and renamed.old not in sj.__all__
    for renamed in deprecation.KEYS:
        page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
        assert f"`{renamed.new}`" in page and f"`{renamed.old}`" not in page


def test_an_old_name_is_the_new_one_with_a_warning_at_the_line_that_uses_it(old_spellings):
    with pytest.warns(OldSpelling, match=r"sj\.Mesh is called sj\.Grid now; write sj\.Grid, since simjax 99") as warned:
        assert sj.Mesh is sj.Grid
    assert warned[0].filename == __file__ and "Mesh" not in dir(sj)
    with pytest.raises(AttributeError, match="has no attribute 'Meshes'"):
        _ = sj.Meshes


def test_an_old_key_means_the_new_one_in_an_override(old_spellings):
    with pytest.warns(OldSpelling, match=r"^grid\.cells is called grid\.shape now"):
        config = load_config("cavity", ["grid.cells=[8,16]"])
    assert config.grid.shape == (8, 16)
    with pytest.warns(OldSpelling, match=r"^duration is called time now"):
        assert load_config("cavity", ["duration.end=0.25"]).time.end == 0.25


def test_the_last_override_counts_by_either_spelling(old_spellings):
    with pytest.warns(OldSpelling):
        assert load_config("cavity", ["grid.cells=[8,8]", "grid.shape=[4,4]"]).grid.shape == (4, 4)
        assert load_config("cavity", ["grid.shape=[4,4]", "grid.cells=[8,8]"]).grid.shape == (8, 8)


def test_an_old_key_of_an_experiment_takes_the_place_of_the_default(old_spellings, tmp_path):
    (tmp_path / "experiment").mkdir()
    text = (
        "# @package _global_\nmodel: incompressible\ngrid: {cells: [8, 4]}\nphysics: {viscosity: 0.1, friction: 0.5}\n"
        "duration: {end: 0.5}\n"
    )
    (tmp_path / "experiment" / "own.yaml").write_text(text)
    default = load_config(None, ["model=incompressible", "physics.viscosity=0.1"]).time
    with pytest.warns(OldSpelling) as warned:
        config = load_config("own", config_dir=tmp_path)
    assert [str(one.message).split()[0] for one in warned] == [renamed.old for renamed in deprecation.KEYS]
    assert config.grid.shape == (8, 4) and config.physics.drag == 0.5
    assert config.time == replace(default, end=0.5)  # what the section leaves out is the default still
    assert "friction" not in config_yaml(config)


def test_both_spellings_at_once_are_refused(old_spellings):
    written = load_config("cavity").write()
    with pytest.raises(sj.ConfigurationError, match=r"grid\.cells and grid\.shape are the same key; write grid\.shape"):
        validate({**written, "grid": {**written["grid"], "cells": [8, 8]}})


def test_a_run_by_an_older_version_is_the_same_simulation_and_warns_nobody(old_spellings, tmp_path):
    config = load_config("cavity", ["grid.shape=[8,8]"])
    now = config.write()
    grid = dict(now["grid"])
    before = {**now, "grid": {"cells": grid.pop("shape"), **grid}}
    assert resume_differences(before, now) == ([], [])  # a warning would be an error here
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(before))
    assert compose_from_run(tmp_path / "config.yaml").config() == config


def test_what_is_given_is_not_changed(old_spellings):
    given = {"grid": {"cells": [8, 8], "lower": None}}
    with pytest.warns(OldSpelling):
        assert with_current_keys(given) == {"grid": {"lower": None, "shape": [8, 8]}}
    assert given == {"grid": {"cells": [8, 8], "lower": None}}


# ---- the number of the schema


def test_what_a_run_writes_has_the_number_of_its_schema():
    config = load_config("cavity")
    assert yaml.safe_load(config_yaml(config))["schema"] == SCHEMA
    assert validate(config.write()) == config


def test_a_configuration_without_a_schema_is_of_the_present_one():
    written = load_config("cavity").write()
    del written["schema"]
    assert validate(written).write()["schema"] == SCHEMA
    assert "schema" not in compose(["experiment=cavity"]).mapping  # nobody has to write it


def test_a_newer_schema_is_refused_with_one_sentence():
    written = load_config("cavity").write()
    newer = {**written, "schema": SCHEMA + 1, "gird": {}}  # its unknown keys are not told of
    with pytest.raises(sj.ConfigurationError, match=rf"^schema = {SCHEMA + 1}: .*newer simjax.*up to {SCHEMA}\. Inst"):
        validate(newer)
    for wrong in (0, "1", True, 1.0, None):
        with pytest.raises(sj.ConfigurationError, match=r"^schema = .*expected a whole number from 1 to"):
            validate({**written, "schema": wrong})


def test_a_run_from_before_schemas_had_numbers_is_the_same_simulation():
    now = load_config("cavity").write()
    before = {name: value for name, value in now.items() if name != "schema"}
    assert resume_differences(before, now)[0] == []
