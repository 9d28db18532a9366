"""What is there is replaced only where simjax wrote it, as what it writes now, and never where it is read."""

import hashlib
import json
import os

import fsspec
import h5py
import numpy as np
import optax
import pytest
from configurations import DYE, changed
from written_frames import make_writer, write_frames

import simjax as sj
from simjax.config import validate
from simjax.config.folders import clear_run_folder, new_run_folder, write_hydra_folder
from simjax.data.__main__ import main as data
from simjax.errors import ConfigurationError
from simjax.export.__main__ import main as export
from simjax.inspect.__main__ import main as inspect
from simjax.io.folder_copy import FolderCopy
from simjax.io.replacing import EXPORT, TRAINING, is_name_of_run, require_replaceable
from simjax.io.training_output import TrainingLine, write_training
from simjax.report.sheet import Sheet


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def overwriting(root, **changes):
    place = {"output.root": str(root), "output.folder": "mine", "output.overwrite": True}
    return validate(changed(DYE, place | changes))


def checkpoint(folder, step, meta):
    (folder / "checkpoints" / str(step)).mkdir(parents=True)
    (folder / "checkpoints" / str(step) / "simjax_manifest.json").write_text(json.dumps({"meta": meta}))


@pytest.fixture
def earlier(tmp_path):
    """A folder with a run, and with files beside it that are its owner's."""
    folder, record = tmp_path / "mine", {"run_id": "a", "started": "2026-01-01", "parts": []}
    folder.mkdir()
    write_hydra_folder(folder, overwriting(tmp_path), {folder / "provenance.json": json.dumps(record)})
    writer = make_writer(folder)
    write_frames(writer, range(8))
    writer.close(False)
    checkpoint(folder, 8, {"run": {"run_id": "a"}})
    (folder / "run.log").write_text("a line")
    (folder / "notes.txt").write_text("mine")
    (folder / "thesis.tmp").write_text("mine")
    (folder / "checkpoints" / "notes").mkdir()
    return folder


def test_of_a_run_all_is_replaced_and_nothing_of_others(tmp_path, earlier):
    assert len(list((earlier / "data").glob("*.h5"))) > 1
    assert new_run_folder(overwriting(tmp_path)) == earlier
    clear_run_folder(earlier)
    (earlier / "fields.h5.tmp").write_text("left by a kill")
    make_writer(earlier)
    left = {path.relative_to(earlier).as_posix() for path in earlier.rglob("*") if path.is_file()}
    assert left - {f".hydra/{name}.yaml" for name in ("config", "hydra", "overrides")} == {
        "notes.txt",
        "thesis.tmp",
        "fields.h5",
        "diagnostics.h5",
    }
    assert (earlier / "checkpoints" / "notes").is_dir()


def hdf5(path):
    path.parent.mkdir(exist_ok=True, parents=True)
    with h5py.File(path, "w") as file:
        file["density"] = np.ones(3)


def training(folder):
    write_training(folder, [TrainingLine(1, 0, 1.0, 1.0)])
    checkpoint(folder, 12, {"history": [], "since": [], "data": {}})


FOREIGN = {
    "a training": (training, "checkpoints/12 is no checkpoint of a run"),
    "fields of another program": (lambda folder: hdf5(folder / "fields.h5"), "does not say that a run wrote it"),
    "a segment": (lambda folder: hdf5(folder / "data" / "fields.p00000.s000099.h5"), "does not say that a run wrote"),
    "a group": (lambda folder: hdf5(folder / "groups" / "0" / "fields.h5"), "does not say that a run wrote it"),
    "beside groups": (lambda folder: hdf5(folder / "groups" / "survey.h5"), "does not say that a run wrote it"),
    "samples": (lambda folder: hdf5(folder / "outputs" / "mast" / "samples.h5"), "does not say that a run wrote it"),
    "a year's folder": (lambda folder: (folder / "checkpoints" / "2024").mkdir(parents=True), "no checkpoint of a run"),
}


@pytest.mark.parametrize("beside_a_run", [False, True])
@pytest.mark.parametrize("what", FOREIGN)
def test_no_run_replaces_what_others_wrote(what, beside_a_run, request, tmp_path):
    folder = request.getfixturevalue("earlier") if beside_a_run else tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    make, told = FOREIGN[what]
    make(folder)
    before = contents(folder)
    with pytest.raises(ConfigurationError, match=told):
        new_run_folder(overwriting(tmp_path))
    with pytest.raises(ConfigurationError, match=told):
        clear_run_folder(folder)
    assert contents(folder) == before


@pytest.mark.parametrize("name", [".hydra/config.yaml", "report.html", "run.log", "summary.png", "closure.eqx"])
def test_names_of_a_run_alone_do_not_make_one(name, tmp_path):
    """Such as the folder of another program that uses Hydra."""
    path = tmp_path / "mine" / name
    path.parent.mkdir(parents=True)
    path.write_text("model: resnet")
    with pytest.raises(ConfigurationError, match=r"lies beside no provenance\.json.* only a run that it wrote"):
        new_run_folder(overwriting(tmp_path))
    path.rename(path.with_name("another"))
    assert new_run_folder(overwriting(tmp_path)) == tmp_path / "mine"


def test_a_record_that_cannot_be_read_is_none(tmp_path, earlier):
    (earlier / "provenance.json").write_text('{"name": "someone else"}')
    with pytest.raises(ConfigurationError, match=r"provenance\.json cannot be read as that of a run"):
        new_run_folder(overwriting(tmp_path))


@pytest.mark.parametrize("source", ["mine/fields.h5", "linked.h5"])
def test_a_run_does_not_replace_what_it_reads(source, tmp_path, earlier, monkeypatch):
    os.symlink(earlier / "fields.h5", tmp_path / "linked.h5")
    path = tmp_path / source
    initial = {"initial.concentration": {"file": str(path), "variable": "temperature"}}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"mine/.* is read for what is to be written, and would be lost"):
        new_run_folder(overwriting(tmp_path, **initial))


def test_a_run_is_replaced_from_within_its_folder(tmp_path, earlier, monkeypatch):
    """Words of its configuration that are names of files there are none of its inputs."""
    monkeypatch.chdir(earlier)
    words = {"title": "data", "experiment_name": "fields.h5", "output.folder": str(earlier)}
    assert new_run_folder(overwriting(tmp_path, **words)) == earlier


# ---------------------------------------------------------------------- trainings


def test_a_training_replaces_its_own_files(tmp_path):
    require_replaceable(tmp_path, TRAINING, "folder")
    training(tmp_path)
    (tmp_path / "module.eqx").write_bytes(b"arrays")
    require_replaceable(tmp_path, TRAINING, "folder")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: (folder / "module.eqx").write_bytes(b"pretrained"), r"module\.eqx lies beside no training\.h5"),
        (lambda folder: (folder / "training.png").write_bytes(b"photo"), r"training\.png lies beside no training\.h5"),
        (lambda folder: hdf5(folder / "training.h5"), r"training\.h5 does not say that a training wrote it"),
        (lambda folder: checkpoint(folder, 8, {"run": {}}), "checkpoints/8 is no checkpoint of a training"),
        (lambda folder: (folder / "checkpoints" / "2024").mkdir(parents=True), "2024 is no checkpoint of a training"),
    ],
)
def test_no_training_replaces_what_others_wrote(make, told, tmp_path):
    class Data:
        def __iter__(self):
            return self

        def __next__(self):
            raise AssertionError("nothing is trained")

        def get_state(self):
            return {}

    loss = sj.WindowLoss(lambda line, window, key: line["slope"])
    learner = sj.Learner({"slope": np.zeros(())}, optax.sgd(0.1))
    make(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ConfigurationError, match=told):
        sj.train(learner, [sj.Stage(1, loss)], Data(), folder=tmp_path)
    assert contents(tmp_path) == before


# ---------------------------------------------------------------------- data


@pytest.fixture
def run(tmp_path):
    writer = make_writer(tmp_path / "run", attributes={"simjax_run_id": "a", "simjax_config_yaml": YAML})
    write_frames(writer, range(4))
    writer.close(False)
    return tmp_path / "run"


YAML = "experiment_name: flow\nmodel: incompressible\nboundaries: {x: periodic, y: periodic}\n"


@pytest.mark.parametrize("form", ["well", "pdebench"])
def test_data_replace_data_and_no_run(form, run, tmp_path, capsys):
    file, words = tmp_path / "data.hdf5", [str(run), f"format={form}", "fields=[temperature]", "--file"]
    assert data([*words, str(file)]) == 0
    first = file.read_bytes()
    assert data([*words, str(file)]) == 0 and len(file.read_bytes()) == len(first)
    hdf5(tmp_path / "other.h5")
    (tmp_path / "link.h5").symlink_to(file)
    os.link(run / "fields.h5", tmp_path / "hard.h5")
    (tmp_path / "folder.h5").mkdir()
    before = contents(tmp_path)
    segment = next((run / "data").glob("*.h5"))
    for target, told in {
        run / "fields.h5": "is read for what is to be written, and would be lost",
        segment: "is read for what is to be written",
        tmp_path / "hard.h5": "is read for what is to be written",
        tmp_path / "other.h5": "does not say that simjax wrote it",
        tmp_path / "link.h5": "is a link",
        tmp_path / "folder.h5": "is no file",
    }.items():
        capsys.readouterr()
        assert data([*words, str(target)]) == 2
        assert told in capsys.readouterr().err
    assert contents(tmp_path) == before


# ---------------------------------------------------------------------- exports


def test_an_export_replaces_what_its_record_names(tmp_path):
    require_replaceable(tmp_path, EXPORT, "folder")
    (tmp_path / "program.jax").write_bytes(b"program")
    digest = hashlib.sha256(b"program").hexdigest()
    (tmp_path / "meta.json").write_text(json.dumps({"files": {"program.jax": digest}}))
    require_replaceable(tmp_path, EXPORT, "folder")
    (tmp_path / "tesseract_api.py").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"tesseract_api\.py is not the file that meta\.json beside it names"):
        require_replaceable(tmp_path, EXPORT, "folder")


@pytest.mark.parametrize("name", ["meta.json", "program.jax", "arguments.npz", "tesseract_config.yaml"])
def test_no_export_replaces_what_others_wrote(name, tmp_path, capsys):
    (tmp_path / name).write_text('{"title": "of a photograph"}')
    assert export(["experiment=dye", "--folder", str(tmp_path)]) == 2
    assert f"{name} is not" in capsys.readouterr().err and (tmp_path / name).read_text().startswith('{"title"')


# ---------------------------------------------------------------------- inspections


@pytest.mark.parametrize("option", ["--json", "--picture"])
def test_an_inspection_replaces_its_own_files_alone(option, tmp_path, capsys):
    path = tmp_path / "file.png"
    path.write_text('{"a": 1}')
    assert inspect(["experiment=dye", "target=cpu:2", option, str(path)]) == 2
    assert "does not say that simjax wrote it" in capsys.readouterr().err and path.read_text() == '{"a": 1}'
    if option == "--json":
        path.write_text('{"format": "simjax inspection/1"}')
    else:
        Sheet(2.0, 2.0, dpi=50).save(path)
    assert inspect(["experiment=nothing", "target=cpu:2", option, str(path)]) == 2
    assert "experiment=nothing" in capsys.readouterr().err  # it got as far as that


# ---------------------------------------------------------------------- copies in stores


@pytest.fixture
def store():
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/bucket", recursive=True) if files.exists("/bucket") else None


@pytest.mark.parametrize("replace", [False, True])
def test_a_copy_replaces_a_run_and_nothing_of_others(replace, store, earlier, tmp_path):
    store.pipe_file("/bucket/run/fields.h5", b"of another program")
    with pytest.raises(ConfigurationError, match=r"holds fields\.h5 without the provenance\.json of a run"):
        FolderCopy(earlier, "memory://bucket/run", replace).__enter__()
    store.pipe_file("/bucket/run/provenance.json", b'{"run_id": "b", "parts": []}')
    store.pipe_file("/bucket/run/notes.md", b"mine")
    store.pipe_file("/bucket/run/metrics.jsonl", b"of the run before")
    with FolderCopy(earlier, "memory://bucket/run", replace):
        pass
    assert store.cat_file("/bucket/run/notes.md") == b"mine"
    assert store.cat_file("/bucket/run/fields.h5") == (earlier / "fields.h5").read_bytes()
    assert not store.exists("/bucket/run/metrics.jsonl")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("fields.h5", True),
        ("data/fields.p00000.s000001.h5", True),
        (".hydra/config.yaml", True),
        ("checkpoints/8/array/a", True),
        ("groups/0/checkpoints/8/a", True),
        ("groups/0/run.log", True),
        ("outputs/mast/samples.h5", True),
        ("events/gust/fields.h5", True),
        ("notes.md", False),
        ("backup/fields.h5", False),
        ("checkpoints/notes", False),
        ("groups/notes.md", False),
        ("data/x.h5", False),
    ],
)
def test_names_of_a_runs_files(name, own):
    assert is_name_of_run(name) == own
