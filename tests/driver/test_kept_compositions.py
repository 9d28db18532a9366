"""Configurations of earlier commands are taken without Hydra, and only where what they are made of is the same."""

import shutil

import pytest

import simjax.config
from simjax.driver.programs import compile_cache
from simjax.driver.start import kept_compositions
from simjax.driver.start.kept_compositions import composed
from simjax.schema.locate import conf_folder

GIVEN = ["experiment=sod", "time.end=0.1", "output=none"]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Programs kept in a new folder, and a list with an entry for each time that Hydra composes."""
    programs = compile_cache.KeptPrograms(tmp_path, 1 << 20)
    monkeypatch.setattr(kept_compositions, "kept_programs", lambda: programs)
    monkeypatch.setattr(kept_compositions, "keep_programs", lambda: None)
    made, compose = [], simjax.config.compose
    monkeypatch.setattr(
        simjax.config, "compose", lambda *given, **more: made.append(given) or compose(*given, **more), raising=False
    )
    return made


def test_what_is_taken_is_what_was_made(kept):
    first, second = composed(GIVEN), composed(GIVEN)
    assert second == first and second.config() == first.config() and len(kept) == 1


def test_other_overrides_and_other_files_are_composed(kept, tmp_path, monkeypatch):
    composed(GIVEN)
    assert composed([*GIVEN, "seed=3"]).mapping["seed"] == 3
    conf = shutil.copytree(conf_folder(), tmp_path / "conf")
    monkeypatch.setattr(kept_compositions, "conf_folder", lambda: conf)
    composed(GIVEN)
    assert len(kept) == 3
    with (conf / "experiment" / "sod.yaml").open("a") as file:
        file.write("# changed\n")
    composed(GIVEN)
    assert len(kept) == 4


@pytest.mark.parametrize("what", ["sources_digest", "packages_digest"])
def test_other_sources_and_packages_are_composed(what, kept, monkeypatch):
    composed(GIVEN)
    monkeypatch.setattr(kept_compositions, what, lambda: "another")
    composed(GIVEN)
    assert len(kept) == 2


def test_files_of_a_user_and_settings_of_hydra_are_composed(kept, tmp_path):
    for _ in range(2):
        composed(GIVEN, config_dir=str(tmp_path))
        assert composed([*GIVEN, "hydra.verbose=true"]).around
    assert len(kept) == 4


def test_a_damaged_entry_is_composed_anew(kept, tmp_path, monkeypatch):
    first = composed(GIVEN)
    programs = kept_compositions.kept_programs()
    (file,) = tmp_path.glob("*.program")
    programs.put(file.stem, b"no pickle")
    assert composed(GIVEN) == first and len(kept) == 2


def test_without_a_store_every_command_composes(kept, monkeypatch):
    monkeypatch.setattr(kept_compositions, "kept_programs", lambda: None)
    assert composed(GIVEN) == composed(GIVEN) and len(kept) == 2
