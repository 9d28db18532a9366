"""A run is resumed as what it was: its configuration, its frames and its checkpoints belong together."""

import errno
import functools
import json
import os
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
import yaml

import simjax as sj
from simjax.driver.output import provenance
from simjax.driver.output.run_folder import RunFolder
from simjax.errors import CheckpointError, ConfigurationError, InputOutputError
from simjax.io import checkpoint, files
from simjax.io.checkpoint import MANIFEST_NAME, list_checkpoints

# The cheapest model to compile.
DYE = [
    "grid.shape=[8,8]",
    "precision=float64",
    "time.courant=null",
    "time.dt=0.02",
    "time.end=0.2",
    "parameters=null",
    "time.output_every=0.1",
    "initial={concentration: 'sin(2*pi*x)'}",
    "exact=null",
    "output.animation=false",
    "output.report=false",
    "checkpoint.every_frames=1",
]


def run(folder, *overrides, **options):
    where = [f"output.root={folder.parent}", f"output.folder={folder}"]
    return sj.load("dye", overrides=[*DYE, *where, *overrides]).run(**options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run to t = 0.2 with frames at 0, 0.1 and 0.2."""
    folder = tmp_path_factory.mktemp("identity") / "run"
    run(folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def contents(folder):
    """Every file but the lock, which is emptied and stays."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".simjax.lock")
    return {path: path.read_bytes() for path in paths}


def refused(folder, error, sentence, *overrides, code):
    before = contents(folder)
    with pytest.raises(error, match=sentence) as raised:
        run(folder, *overrides, resume=str(folder))
    assert raised.value.exit_code == code and contents(folder) == before


def manifest(folder):
    return json.loads((list_checkpoints(folder / "checkpoints")[-1] / MANIFEST_NAME).read_text())


@pytest.mark.slow
def test_a_checkpoint_says_what_it_belongs_to(finished):
    text = (finished / ".hydra" / "config.yaml").read_text()
    saved = manifest(finished)
    described = saved["meta"]["run"]
    assert (saved["schema"], described["schema"]) == (checkpoint.SCHEMA, provenance.SCHEMA)
    assert described["config"] == text and yaml.safe_load(text)["physics"]["diffusivity"] > 0
    assert {"simjax", "jax", "jaxlib"} <= set(described["versions"])
    assert described["device"] == {"kind": "cpu", "count": 1}
    assert described["parameters"]["diffusivity"] == yaml.safe_load(text)["physics"]["diffusivity"]
    kept = json.loads((finished / "provenance.json").read_text())
    assert kept["run_id"] == described["run_id"] and kept["started"] == described["started"]
    with sj.open_run(finished) as dataset:
        assert dataset.attrs["simjax_run_id"] == kept["run_id"] and saved["meta"]["frames"] == dataset.sizes["time"]


@pytest.mark.parametrize(
    ("key", "value"), [("physics.diffusivity", 0.5), ("time.end", 0.4), ("grid.shape", [16, 8]), ("seed", 5)]
)
def test_an_edited_configuration_is_refused_with_the_difference(folder, key, value):
    """Even changes that are allowed have to be made on the command line."""
    path = folder / ".hydra" / "config.yaml"
    edited = yaml.safe_load(path.read_text())
    section, _, name = key.rpartition(".")
    (edited[section] if section else edited)[name] = value
    path.write_text(yaml.safe_dump(edited))
    refused(folder, CheckpointError, f"config.yaml was changed .*{key} was .* and is .*{value}", code=6)


def test_layout_and_comments_of_the_configuration_may_change(folder):
    path = folder / ".hydra" / "config.yaml"
    path.write_text("# a note\n" + yaml.safe_dump(yaml.safe_load(path.read_text())))
    assert "already reached" in run(folder, resume=str(folder)).message


@pytest.mark.parametrize("text", ["", "a: [1\n", "\x00"])
def test_a_damaged_configuration_is_refused(folder, text):
    (folder / ".hydra" / "config.yaml").write_text(text)
    refused(folder, CheckpointError, r"config.yaml", code=6)


@pytest.mark.slow
def test_another_simulation_is_refused_and_leaves_no_override(folder):
    refused(folder, ConfigurationError, "physics.diffusivity was .* and is 0.5 now", "physics.diffusivity=0.5", code=2)
    with pytest.raises(ConfigurationError, match="time.end"):
        run(folder, "time.end=-1", resume=str(folder))
    assert yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())["time"]["end"] == 0.2


@pytest.mark.parametrize("emptied", [False, True])
def test_deleted_checkpoints_are_no_new_start(folder, emptied):
    shutil.rmtree(folder / "checkpoints")
    if emptied:
        (folder / "checkpoints").mkdir()
    refused(folder, CheckpointError, "checkpoints .*bring (it|them) back", code=6)


def test_checkpoints_of_another_run_are_refused(folder):
    path = folder / "provenance.json"
    path.write_text(path.read_text().replace(manifest(folder)["meta"]["run"]["run_id"], "20260101-000000-aaaaaa"))
    refused(folder, CheckpointError, "belong to the run .* its provenance.json to 20260101", code=6)


@pytest.mark.slow
def test_frames_older_than_the_checkpoint_are_refused(folder):
    """A copy that was brought back in part looks like this."""
    older = (folder / "fields.h5").read_bytes()
    run(folder, "time.end=0.4", resume=str(folder))
    (folder / "fields.h5").write_bytes(older)
    refused(folder, InputOutputError, "3 frames are there .* where 5 were written", "time.end=0.6", code=4)


def test_parts_versions_and_changes_are_kept(folder, monkeypatch):
    now = provenance.versions() | {"jax": "99.0", "numpy": "1.0"}
    monkeypatch.setattr(provenance, "versions", lambda: now)
    run(folder, "time.end=0.3", resume=str(folder))
    kept = json.loads((folder / "provenance.json").read_text())
    first, second = kept["parts"]
    assert first["versions"]["jax"] != second["versions"]["jax"] == "99.0"
    assert (first["from_step"], second["from_step"]) == (0, 10) and "time.end=0.3" in second["overrides"]
    assert first["outcome"].startswith("completed") and second["outcome"].startswith("completed")
    log = (folder / "run.log").read_text()
    assert "time.end was 0.2 and is 0.3 now" in log
    table = [line.split() for line in log.splitlines() if line.startswith(("jax ", "numpy "))]
    assert table == [["jax", first["versions"]["jax"], "99.0"], ["numpy", first["versions"]["numpy"], "1.0"]]
    assert yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())["time"]["end"] == 0.3


class Killed(BaseException):
    """Stands for the death of the process."""


def fail_at(monkeypatch, number, error):
    """Make the write of that number fail, as it is forced to the disk."""
    synchronise, count = files.synchronise, iter(range(10**6))

    def failing(path):
        if next(count) == number:
            raise error
        synchronise(path)

    monkeypatch.setattr(files, "synchronise", failing)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Killed()], ids=["full", "killed"])
@pytest.mark.parametrize("number", [0, 4, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.slow
def test_a_resume_that_fails_in_its_first_writes_changes_nothing(folder, monkeypatch, number, error):
    """Five files are written together: metrics, provenance and three of the configuration."""
    before = contents(folder)
    fail_at(monkeypatch, number, error)
    with pytest.raises((InputOutputError, Killed)):
        run(folder, "time.end=0.3", resume=str(folder))
    assert contents(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5, 23, 6))
def test_a_resume_that_fails_later_is_whole_and_goes_on(folder, finished, monkeypatch, number, tmp_path):
    whole = run(tmp_path / "whole", "time.end=0.5").ds.load()
    fail_at(monkeypatch, number, OSError(28, "No space left on device"))
    with pytest.raises(InputOutputError, match="No space left"):
        run(folder, "time.end=0.5", resume=str(folder))
    monkeypatch.undo()
    assert sj.check_files(folder) == []
    run(folder, "time.end=0.5", resume=str(folder))
    with sj.open_run(folder) as dataset:
        xarray.testing.assert_identical(dataset.load().drop_attrs(), whole.drop_attrs())


def test_texts_replace_each_other_together_or_not_at_all(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths[:2]:
        path.write_text("before")
    before = contents(tmp_path)
    rename, called = os.replace, []

    def full(source, target):
        called.append(target)
        if len(called) == 3:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputOutputError, match="No space left"):
        files.write_texts(dict.fromkeys(paths, "after"))
    assert contents(tmp_path) == before
    files.write_texts(dict.fromkeys(paths, "after"))
    assert set(contents(tmp_path).values()) == {b"after"}


@pytest.mark.slow
def test_a_run_killed_while_it_was_finishing_is_finished_by_a_resume(tmp_path, monkeypatch):
    def dies(self, *_):
        raise Killed

    monkeypatch.setattr(RunFolder, "finish", dies)
    with pytest.raises(Killed):
        run(tmp_path / "run")
    monkeypatch.undo()
    assert run(tmp_path / "run", resume=str(tmp_path / "run")).message.startswith("completed")
    with sj.open_run(tmp_path / "run") as dataset:
        assert dataset.attrs["simjax_complete"] == 1 and np.allclose(dataset.time, [0, 0.1, 0.2], rtol=1e-15)
    before = contents(tmp_path / "run")
    assert "nothing to do" in run(tmp_path / "run", resume=str(tmp_path / "run")).message
    assert contents(tmp_path / "run") == before


@pytest.mark.slow
def test_overwriting_leaves_nothing_of_the_earlier_run(folder):
    run(folder, "grid.shape=[4,8]", "time.end=0.1", "output.overwrite=true", "checkpoint.every_frames=null")
    assert [path.name for path in list_checkpoints(folder / "checkpoints")] == ["5"] and sj.check_files(folder) == []
    assert len(json.loads((folder / "provenance.json").read_text())["parts"]) == 1
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_disk_that_is_too_small_is_known_before_anything_is_compiled_or_made(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 100, 100))

    def compiled(*_):
        raise AssertionError("nothing is compiled before")

    monkeypatch.setattr("simjax.driver.programs.programs_of_fields.CompiledFields.start", compiled)
    with pytest.raises(InputOutputError, match=r"0.00 GB free .* output.root to a folder on another disk"):
        run(tmp_path / "root" / "run")
    assert not (tmp_path / "root").exists()


def test_a_disk_without_room_for_more_files_is_told_as_that(tmp_path, monkeypatch):
    """Before the run, and where it fills up on the way, with one advice."""
    there = os.statvfs(tmp_path)

    def statvfs(path, free=0):
        return SimpleNamespace(f_files=10**6, f_favail=free)

    with monkeypatch.context() as disk:
        disk.setattr(files.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, 10**12))
        disk.setattr(files.os, "statvfs", statvfs)
        with pytest.raises(InputOutputError, match=r"has room for no more files, though \S+ GB are free; remove files"):
            run(tmp_path / "root" / "run")
        disk.setattr(files.os, "statvfs", functools.partial(statvfs, free=1))
        files.require_free_space(tmp_path, 1)
        # A system of files that has no such limit.
        disk.setattr(files.os, "statvfs", lambda path: SimpleNamespace(f_files=0, f_favail=0))
        files.require_free_space(tmp_path, 1)
    assert not (tmp_path / "root").exists() and there.f_favail

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "open", full)
    for write in (lambda: files.open_in_run(tmp_path / "a"), lambda: files.write_text(tmp_path / "a", "")):
        with pytest.raises(InputOutputError, match="free space, or remove files where it is their number") as told:
            write()
        assert "permissions" not in str(told.value)


def test_the_wall_clock_limit_counts_from_the_launch(tmp_path):
    with pytest.raises(ConfigurationError, match=r"600 s is reached before the first step, \d{3,}\.\d s after"):
        run(tmp_path / "late", "limits.wall_clock=600", launched=time.monotonic() - 600, on_stop="return")
    assert not (tmp_path / "late").exists()
