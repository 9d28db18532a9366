"""Folders of runs: never shared, never outside their root, and enough inside to go on."""

import pytest
import yaml
from configurations import FLOW, changed, refusal

from simjax.config import compose_from_run, load_config, validate
from simjax.config.folders import (
    default_yaml,
    find_resumable,
    new_run_folder,
    resume_differences,
    write_hydra_folder,
)
from simjax.core.errors import ConfigurationError, InputOutputError


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path):
    config = validate(changed(FLOW, {"output.root": str(tmp_path / "out"), "experiment_name": "flow"}))
    folders = {new_run_folder(config) for _ in range(20)}
    assert len(folders) == 20 and all(folder.parent == tmp_path / "out" / "flow" for folder in folders)


def test_a_used_folder_is_refused(tmp_path):
    mapping = changed(FLOW, {"output.root": str(tmp_path), "output.folder": "mine"})
    folder = new_run_folder(validate(mapping))
    assert folder == tmp_path / "mine"
    (folder / "fields.h5").touch()
    with pytest.raises(ConfigurationError, match="resume=.*or output.overwrite=true"):
        new_run_folder(validate(mapping))
    assert new_run_folder(validate(changed(mapping, {"output.overwrite": True}))) == folder


def test_a_link_out_of_the_root_is_refused(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert "output.folder" in refusal(changed(FLOW, {"output.root": str(tmp_path / "root"), "output.folder": "link"}))


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "root").touch()
    with pytest.raises(InputOutputError, match="cannot be made"):
        new_run_folder(validate(changed(FLOW, {"output.root": str(tmp_path / "root")})))


def test_the_run_to_resume(tmp_path):
    config = validate(changed(FLOW, {"output.root": str(tmp_path), "resume": "auto"}))
    assert find_resumable(config) is None
    older, newer, empty = (tmp_path / "experiment" / f"2026010{i}-000000-aaaaaa" for i in (1, 2, 3))
    for folder in (older, newer):
        (folder / "checkpoints" / "8").mkdir(parents=True)
    (empty / "checkpoints").mkdir(parents=True)
    assert find_resumable(config) == newer
    assert find_resumable(validate(changed(FLOW, {"resume": str(older)}))) == older
    with pytest.raises(ConfigurationError, match="expected the folder of a run"):
        find_resumable(validate(changed(FLOW, {"resume": str(tmp_path / "no")})))


def test_a_run_keeps_its_configuration(tmp_path):
    config = load_config("cavity", ["seed=3", "time.end=1.5"])
    write_hydra_folder(tmp_path, config)
    assert yaml.safe_load((tmp_path / ".hydra" / "overrides.yaml").read_text())[-2:] == [
        "seed=3",
        "time.end=1.5",
    ]
    again = compose_from_run(tmp_path / ".hydra" / "config.yaml", ["time.end=2.5"]).config()
    assert (again.seed, again.time.end, again.experiment_name) == (3, 2.5, "cavity")
    with pytest.raises(ConfigurationError, match="takes keys"):
        compose_from_run(tmp_path / ".hydra" / "config.yaml", ["output=none"])
    assert resume_differences(config.mapping, again.mapping) == ([], ["time.end was 1.5 and is 2.5 now"])


def test_what_a_resumed_run_may_change():
    old = validate(FLOW).mapping
    new = changed(FLOW, {"physics.viscosity": 2e-3, "mesh.x": 2, "precision": "float64", "time.output_every": 0.5})
    refused, allowed = resume_differences(old, validate(new).mapping)
    assert [sentence.split()[0] for sentence in refused] == ["physics.viscosity", "precision"]
    assert [sentence.split()[0] for sentence in allowed] == ["mesh.x", "time.output_every"]


def test_defaults_as_text():
    assert yaml.safe_load(default_yaml())["output"]["animation"] is True
