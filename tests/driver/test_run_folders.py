"""Folders of runs: never shared, never outside their root, and enough inside to go on."""

import ast
import json
import shutil
from pathlib import Path

import pytest
import yaml
from configurations import DYE, FLOW, changed, refusal

import simjax
from simjax.config import compose_from_run, load_config, validate
from simjax.config.folders import (
    default_yaml,
    find_resumable,
    new_run_folder,
    resume_differences,
    write_hydra_folder,
)
from simjax.errors import CheckpointError, ConfigurationError, InputOutputError


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path):
    config = validate(changed(FLOW, {"output.root": str(tmp_path / "out"), "experiment_name": "flow"}))
    folders = {new_run_folder(config) for _ in range(20)}
    assert len(folders) == 20 and all(folder.parent == tmp_path / "out" / "flow" for folder in folders)


def test_a_used_folder_is_refused(tmp_path):
    mapping = changed(FLOW, {"output.root": str(tmp_path), "output.folder": "mine"})
    folder = new_run_folder(validate(mapping))
    assert folder == tmp_path / "mine"
    (folder / "notes.txt").touch()
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


def began(folder, started, run_id, *, checkpoint=True):
    """A folder with the record of a run, and a checkpoint."""
    (folder / "checkpoints").mkdir(parents=True)
    if checkpoint:
        (folder / "checkpoints" / "8").mkdir()
    record = {"run_id": run_id, "started": started, "parts": []}
    (folder / "provenance.json").write_text(json.dumps(record))


def test_the_run_to_resume(tmp_path):
    config = validate(changed(FLOW, {"output.root": str(tmp_path), "resume": "auto"}))
    assert find_resumable(config) is None
    # Clocks were put back in between: by local time, and by the names, the older one is the newer one.
    older, newer, empty = (tmp_path / "experiment" / f"2026010{i}-000000-aaaaaa" for i in (3, 2, 4))
    began(older, "2026-10-25T00:30:00+00:00", "20261025-003000-aaaaaa")
    began(newer, "2026-10-25T01:10:00+00:00", "20261025-011000-aaaaaa")
    began(empty, "2026-10-25T01:20:00+00:00", "20261025-012000-aaaaaa", checkpoint=False)
    (tmp_path / "experiment" / "notes").mkdir()
    assert find_resumable(config) == newer
    assert find_resumable(validate(changed(FLOW, {"resume": str(older)}))) == older
    with pytest.raises(ConfigurationError, match="expected the folder of a run"):
        find_resumable(validate(changed(FLOW, {"resume": str(tmp_path / "no")})))
    shutil.rmtree(newer / "checkpoints")
    for resume in ("auto", str(newer), str(empty)):
        with pytest.raises(CheckpointError, match="bring (it|them) back") as refused:
            find_resumable(validate(changed(FLOW, {"output.root": str(tmp_path), "resume": resume})))
        assert refused.value.exit_code == 6
    (older / "provenance.json").write_text("{")
    with pytest.raises(CheckpointError, match="name the run, as in resume=FOLDER"):
        find_resumable(config)


def test_a_run_of_another_model_or_other_fields_is_not_overwritten(tmp_path):
    place = {"output.root": str(tmp_path), "output.folder": "mine", "output.overwrite": True}
    before = validate(changed(DYE, place | {"initial.concentration": "sin(x)"}))
    folder = new_run_folder(before)
    record = {"run_id": "a", "started": "2026-01-01", "parts": []}
    write_hydra_folder(folder, before, {folder / "provenance.json": json.dumps(record)})
    again = validate(changed(DYE, place | {"initial.concentration": "cos(x)", "grid.shape": [8, 8]}))
    assert new_run_folder(again) == tmp_path / "mine"
    with pytest.raises(ConfigurationError, match="another run, with the model advection_diffusion, not incompressible"):
        new_run_folder(validate(changed(FLOW, place)))
    (tmp_path / "mine" / ".hydra" / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigurationError, match="cannot be read, so what would be lost is not known"):
        new_run_folder(again)


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
    assert resume_differences(config.write(), again.write()) == ([], ["time.end was 1.5 and is 2.5 now"])


def test_what_a_resumed_run_may_change():
    old = validate(FLOW).write()
    new = changed(FLOW, {"physics.viscosity": 2e-3, "mesh.x": 2, "precision": "float64", "time.output_every": 0.5})
    refused, allowed = resume_differences(old, validate(new).write())
    assert [sentence.split()[0] for sentence in refused] == ["physics.viscosity", "precision"]
    assert [sentence.split()[0] for sentence in allowed] == ["mesh.x", "time.output_every"]


def test_defaults_as_text():
    assert yaml.safe_load(default_yaml())["output"]["animation"] is True


def replaced_names(tree):
    """Names that `with replaced(...) as name` binds."""
    withs = [item for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    calls = [(i.context_expr, i.optional_vars) for i in withs if isinstance(i.context_expr, ast.Call)]
    return {v.id for c, v in calls if ast.unparse(c.func) == "replaced" and isinstance(v, ast.Name)}


def test_files_are_written_beside_their_place_and_renamed():
    """No module but `io.files` writes a file in place: a full disk or a kill would leave half of it."""
    found = []
    for path in sorted(Path(simjax.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == "files.py" or not any(word in text for word in ("write_text(", "write_bytes(", "open(")):
            continue
        tree = ast.parse(text)
        allowed = replaced_names(tree) | {"self._files"}  # an object store, where files appear whole
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            written = name in ("write_text", "write_bytes") and isinstance(call.func, ast.Attribute)
            modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            opened = name in ("open", "open_in_run") and any(mode.strip("bt+") in ("w", "x") for mode in modes)
            target = ast.unparse(call.func).rpartition(".")[0]
            if (written or opened) and target not in allowed:
                found.append(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert not found
