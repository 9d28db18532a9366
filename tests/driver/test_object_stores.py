"""Copies of runs in object stores: whole wherever they are cut short, and enough to go on with on another machine."""

import dataclasses
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import fsspec
import pytest
from configurations import FLOW as FLOW_MAPPING
from configurations import changed

import simjax as sj
from simjax.config import validate
from simjax.driver.loop.single_run import SingleRun
from simjax.driver.output.run_folder import RunFolder
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.environment import StopSignals, command_line
from simjax.errors import CheckpointError, ConfigurationError, InputOutputError, without_credentials
from simjax.io.folder_copy import FolderCopy, fetched, require_writable
from simjax.run import main

FLOW = [
    "grid.shape=[16,16]",
    "time.end=0.2",
    "time.output_every=0.02",
    "precision=float64",
    "checkpoint.every_frames=2",
    "output.animation=false",
    "output.report=false",
]


class Cut(BaseException):
    """The end of the process in the middle of a copy."""


@pytest.fixture
def store():
    """An object store in memory."""
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/bucket", recursive=True) if files.exists("/bucket") else None


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Folders of a run as they were after each of its checkpoints, and its programs."""
    folder, found = tmp_path_factory.mktemp("states"), []
    save = RunFolder.checkpoint

    def save_and_keep(record, *args):
        save(record, *args)
        record.checkpoints.wait()
        found.append(folder / f"state{len(found)}")
        shutil.copytree(record.folder, found[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "checkpoint", save_and_keep)
        simulation = sj.load("fluid", [*FLOW, f"output.root={folder}"])
        whole = simulation.run().ds.load()
    assert len(found) == 5 and any((found[1] / "data").glob("*.h5"))
    return found, compiled_run(simulation.config), whole


def go_on(folder, programs):
    """Finish the run in a folder, without further checkpoints on the way; the frames."""
    rarely = dataclasses.replace(programs.config.checkpoint, every_frames=100)
    config = dataclasses.replace(programs.config, checkpoint=rarely)
    result = SingleRun(config, programs, StopSignals(lethal=False), False, time.monotonic()).go_on(folder)
    with sj.open_run(result.folder) as dataset:
        return dataset.load()


class Interfered:
    """A store that does something before the n-th file that is sent."""

    def __init__(self, files, at, do):
        self._files, self._left, self._do = files, at, do

    def __getattr__(self, name):
        return getattr(self._files, name)

    def pipe_file(self, *args):
        if self._left == 0:
            self._do()
        self._left -= 1
        self._files.pipe_file(*args)


def end_now():
    raise Cut


def copy_changes(store, states, folder, at, do):
    """Copy a folder in its first state whole, then in its second one, with something before the n-th file.

    Returns whether that many files were sent.
    """
    store.rm("/bucket", recursive=True) if store.exists("/bucket") else None
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(states[0], folder)
    with FolderCopy(folder, "memory://bucket/run"):
        pass
    shutil.rmtree(folder)
    shutil.copytree(states[1], folder)
    copy = FolderCopy(folder, "memory://bucket/run")
    copy._files = Interfered(copy._files, at, do)
    try:
        with copy:
            pass
    except Cut:
        return True
    return copy._files._left < 0


@pytest.mark.slow
@pytest.mark.parametrize("event", ["cut short", "the run goes on"])
def test_a_copy_can_be_gone_on_with_whatever_happens_after_any_of_its_files(event, store, states, tmp_path):
    found, programs, whole = states
    folder = tmp_path / "run"

    def replace_by_later():
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(found[2], folder, dirs_exist_ok=True)

    do = end_now if event == "cut short" else replace_by_later
    before = None
    for at in itertools.count():
        happened = copy_changes(store, found[:2], folder, at, do)
        again = fetched("memory://bucket/run", tmp_path / f"elsewhere{at}")
        steps = {path.parent.name for path in (again / "checkpoints").glob("*/simjax_commit")}
        if event == "cut short":
            assert steps >= {path.name for path in (found[0 if happened else 1] / "checkpoints").glob("[0-9]*")} - {"0"}
        if at < 12 or steps != before or not happened:  # of the files of a checkpoint, those with which it counts
            # Bitwise, since a run that goes on computes what it would have computed.
            assert go_on(again, programs).equals(whole)
        before = steps
        if not happened:
            break
    assert at > 20


@pytest.mark.slow
def test_only_what_has_changed_is_sent_again_also_after_a_restart(store, states, tmp_path):
    folder, url = tmp_path / "run", "memory://bucket/run"
    shutil.copytree(states[0][0], folder)
    (folder / "fields.h5.tmp").write_text("unfinished")
    with FolderCopy(folder, url):
        pass
    names = {path.removeprefix("/bucket/run/") for path in store.find("/bucket")}
    own = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == own - {"fields.h5.tmp", ".copied.json", ".simjax.lock"}
    before = {path: store.created(path) for path in store.find("/bucket")}
    with (folder / "run.log").open("a") as log:
        log.write("more\n")
    (folder / "metrics.jsonl").unlink()
    for sent in ({"/bucket/run/run.log"}, set()):
        with FolderCopy(folder if sent else fetched(url, tmp_path / "elsewhere"), url):
            pass
        now = {path: store.created(path) for path in store.find("/bucket")}
        assert {path for path, when in now.items() if when != before.get(path)} == sent
        before = now
    assert "/bucket/run/metrics.jsonl" not in before and store.cat_file("/bucket/run/run.log").endswith(b"more\n")


@pytest.mark.slow
def test_a_copy_that_is_ahead_is_never_lost(store, states, tmp_path):
    later, earlier = states[0][2], tmp_path / "earlier"
    with FolderCopy(later, "memory://bucket/run"):
        pass
    shutil.copytree(states[0][0], earlier)
    before = store.find("/bucket")
    for folder in (earlier, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(CheckpointError, match=r"checkpoint of step \d+ that .* lacks.*resume=memory://bucket/run"):
            FolderCopy(folder, "memory://bucket/run").__enter__()
    (tmp_path / "run").mkdir()
    shutil.copytree(earlier, tmp_path / "run", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match="lacks the checkpoint of step"):
        fetched("memory://bucket/run", tmp_path)
    assert store.find("/bucket") == before
    with FolderCopy(tmp_path / "new", "memory://bucket/run", replace=True):
        pass
    assert store.find("/bucket") == []


@pytest.mark.slow
def test_a_store_that_fails_on_the_way_does_not_stop_the_run_but_its_end_is_told(store, states, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(states[0][0], folder)

    def refuse(*_):
        raise OSError("quota exceeded")

    copy = FolderCopy(folder, "memory://bucket/run")
    monkeypatch.setattr(type(store), "pipe_file", refuse)
    with pytest.raises(InputOutputError, match="does not have all that .*quota exceeded.*resume="), copy:
        pass
    with pytest.raises(ZeroDivisionError), FolderCopy(folder, "memory://bucket/run"):
        raise ZeroDivisionError  # an error of the run is not hidden by one of the store


@pytest.mark.parametrize(
    "url",
    [
        "async_wrapper://a/b",
        "dbfs://a/b",
        "dir://a/b",
        "generic://a/b",
        "gist://",
        "github://a/b",
        "jupyter://a/b",
        "reference://a/b",
        "tar://a/b",
        "webhdfs://",
        "zip://a/b",
        "simplecache::memory://a/b",
        "zip::memory://a",
    ],
)
def test_stores_that_cannot_be_opened_are_told_in_a_sentence(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (require_writable, lambda url: fetched(url, tmp_path / "a")):
        with pytest.raises(ConfigurationError, match=r"expected one object store|cannot be opened") as refused:
            use(url)
        assert str(refused.value).startswith(f"{url}: ") and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["output.copy_to=folder"], "output.copy_to.*such as gs://bucket/runs"),
        (["output.copy_to=nothing://bucket"], "nothing:// is no store"),
        (["output.copy_to=file:///tmp/runs"], "file:// is a disk"),
        (["output.copy_to=s3://nobody/runs"], "s3://nobody/runs cannot be written to"),
        (["resume=memory://bucket/none"], "expected the copy of a run"),
        (["output.root=gs://bucket/runs"], r"output\.copy_to=URL"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_used_is_refused_before_a_folder_is_made(overrides, sentence, tmp_path):
    root = [] if any(text.startswith("output.root") for text in overrides) else [f"output.root={tmp_path / 'runs'}"]
    with pytest.raises(ConfigurationError, match=sentence):
        sj.load("fluid", [*FLOW, *root, *overrides]).run()
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------------- names and passwords in places


SECRETS = ["me", "hunter2", "hun/ter2", "abc123"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://me:hunter2@bucket/runs", "s3://***@bucket/runs"),
        ("s3://me:hun/ter2@bucket/runs is", "s3://***@bucket/runs is"),
        ("'sftp://me@host:22/runs'.", "'sftp://***@host:22/runs'."),
        ("see https://host:8080/a?token=abc123&x=1; try", "see https://host:8080/a?***; try"),
        ("gs://me:hunter2@b/a?key=abc123, s3://c/d", "gs://***@b/a?***, s3://c/d"),
        ("abfs://container@account.dfs.core.windows.net/runs", "abfs://container@account.dfs.core.windows.net/runs"),
        ("abfs://me:hunter2@account/runs", "abfs://***@account/runs"),
        ("memory://bucket/me@home is no place; is it?", "memory://bucket/me@home is no place; is it?"),
        ("http://localhost:8080/runs/me@home", "http://localhost:8080/runs/me@home"),
        ("mail me@host: a? b", "mail me@host: a? b"),
    ],
)
def test_names_passwords_and_queries_are_not_shown(text, shown):
    assert str(InputOutputError(text)) == without_credentials(text) == shown
    assert without_credentials(shown) == shown


@pytest.mark.parametrize("piece", ["x", "s3://", "s3://a:", "s3://a?", "s3://a:b@c?d ", "?", "@"])
def test_a_long_text_is_looked_through_once(piece):
    """Where a million places could each be the start of a scheme it would be hours, and a test has minutes."""
    without_credentials(piece * (10**6 // len(piece)) + "://@?")


@pytest.mark.parametrize("key", ["output.copy_to", "resume"])
@pytest.mark.parametrize(
    "place", ["memory://me:hunter2@bucket/runs", "memory://me:hun/ter2@bucket/runs", "memory://bucket/runs?key=abc123"]
)
def test_credentials_in_a_place_are_refused_and_told_nowhere(key, place, tmp_path, capsys, monkeypatch):
    """At the command line, from Python and from a file, alone and in a multirun."""
    told = "expected a place without user, password or query.* write memory://bucket/runs, and give"
    said = rf"({key}( = '.*')?|memory://\S+): {told}"
    small = ["experiment=fluid", f"output.root={tmp_path / 'runs'}", f"{key}={place}"]
    for words in (small, [*small, "-m", "seed=1,2"], [*small, "--cfg", "job"], small[1:]):
        assert main(words) == 2
        printed = "".join(capsys.readouterr())
        assert re.search(said, printed) or (key, words) == ("output.copy_to", small[1:])  # which lists experiments
        assert not any(secret in printed for secret in SECRETS[1:]), printed
    with pytest.raises(ConfigurationError, match=said):
        section, _, name = key.rpartition(".")
        validate(changed(FLOW_MAPPING, {key: place} if section else {name: place}))
    with pytest.raises(ConfigurationError, match="expected a place without user"):
        fetched(place, tmp_path)
    simulation = sj.load("fluid", [*FLOW, f"output.root={tmp_path / 'runs'}"])
    with pytest.raises(ConfigurationError, match="expected a place without user"):
        simulation.run(resume=place)
    assert not (tmp_path / "runs").exists()


def test_what_a_store_says_is_not_repeated_as_it_is(store, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("403 for https://store/bucket/runs?X-Amz-Signature=abc123")

    monkeypatch.setattr(type(store), "find", refuse)
    with pytest.raises(ConfigurationError, match=r"403 for https://store/bucket/runs\?\*\*\*"):
        fetched("memory://bucket/runs", tmp_path)


def test_the_recorded_command_has_no_passwords(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run", "-m", "hydra.sweeper.storage=postgresql://me:hunter2@host/trials"])
    assert command_line().endswith("hydra.sweeper.storage=postgresql://***@host/trials")


@pytest.mark.slow
def test_a_run_in_a_store_goes_on_by_its_place_alone(store, states, tmp_path, capsys):
    """With the configuration that its copy has: no experiment is named."""
    with FolderCopy(states[0][2], "memory://bucket/runs/fluid/RUN"):
        pass
    words = ["resume=memory://bucket/runs/fluid/RUN", f"output.root={tmp_path}", "output.copy_to=null"]
    assert main(words) == 0, capsys.readouterr()
    with sj.open_run(tmp_path / "fluid" / "RUN") as dataset:
        assert dataset.load().equals(states[2])
    capsys.readouterr()
    assert main(["resume=memory://bucket/runs/fluid/OTHER", f"output.root={tmp_path}"]) == 2
    assert ".hydra/config.yaml of a run cannot be read there" in capsys.readouterr().err


# ---------------------------------------------------------------------- servers that speak the stores' own protocols


@pytest.fixture
def s3(monkeypatch):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    place = f"http://{host}:{port}"
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", place)  # of the runs; read once, when fsspec is imported
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": place})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    fsspec.filesystem("s3").mkdir("bucket")
    yield "s3://bucket"
    server.stop()


@pytest.fixture
def gs(monkeypatch):
    from gcp_storage_emulator.server import create_server

    server = create_server("localhost", 0, in_memory=True, default_bucket="bucket")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{server._api._httpd.server_address[1]}")
    # gcsfs asks by gRPC, which the emulator does not speak, what kind of bucket it is.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    yield "gs://bucket"
    server.stop()


def start(*overrides):
    return subprocess.Popen(
        [sys.executable, "-m", "simjax.run", *overrides],
        env=os.environ.copy(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_machine_that_vanishes_is_replaced_by_another_one(kind, request, states, tmp_path):
    """Kill a run, remove its disk, and go on by the same command from what the store has."""
    bucket, whole = request.getfixturevalue(kind), states[2]
    command = [
        "experiment=fluid",
        *FLOW,
        "time.end=0.4",
        "resume=auto",
        f"output.copy_to={bucket}/runs",
        f"output.root={tmp_path / 'disk'}",
    ]
    process = start(*command)
    record = "*/*/.copied.json"
    while process.poll() is None and not any(
        "simjax_commit" in path.read_text() for path in (tmp_path / "disk").glob(record)
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, output
    (name,) = os.listdir(tmp_path / "disk" / "fluid")
    shutil.rmtree(tmp_path / "disk")
    process = start(*command)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    (folder,) = (tmp_path / "disk" / "fluid").iterdir()
    assert folder.name == name  # it went on, rather than began anew
    again = fetched(f"{bucket}/runs/fluid/{folder.name}", tmp_path / "copy")
    assert not sj.check_files(again)
    own, there = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (folder, again)
    )
    assert {name: there.get(name) for name in own if name.name[0] != "."} == {
        name: content for name, content in own.items() if name.name[0] != "."
    }
    with sj.open_run(again) as dataset:  # twice as far as in `states`, with the same frames up to there
        assert dataset.load().sel(time=whole.time).equals(whole)
