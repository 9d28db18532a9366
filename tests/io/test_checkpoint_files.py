"""A checkpoint is whole or not there, and goes on exactly, on any number of devices."""

import contextlib
import gc
import hashlib
import itertools
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from orbax.checkpoint._src.futures import future
from paths import ROOT

from simjax.errors import CheckpointError, InputOutputError
from simjax.io.checkpoint import (
    COMMIT_NAME,
    MANIFEST_NAME,
    SCHEMA,
    Checkpoints,
    list_checkpoints,
    require_meta,
    verify_checkpoint,
)


class State(NamedTuple):
    velocity: tuple
    clock: dict


def sharding(devices: int):
    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    return NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())


def make_state(step: int, devices: int = 1) -> State:
    split, replicated = sharding(devices)
    random = np.random.default_rng(step)
    velocity = tuple(jax.device_put(random.standard_normal((16, 60)), split) for _ in range(2))
    clock = {"step": jax.device_put(np.int32(step), replicated), "done": jax.device_put(False, replicated)}
    return State(velocity, clock)


def template(devices: int = 1, dtype=None):
    def leaf(array):
        kind = dtype if dtype and jnp.issubdtype(array.dtype, jnp.floating) else array.dtype
        return jax.ShapeDtypeStruct(array.shape, kind, sharding=sharding(devices)[0 if array.ndim else 1])

    return jax.tree.map(leaf, make_state(0))


def assert_state(restored, step: int) -> None:
    """Bit for bit, types included."""
    assert restored.step == step
    expected = make_state(step)
    assert jax.tree.structure(restored.tree) == jax.tree.structure(expected)
    for found, wanted in zip(jax.tree.leaves(restored.tree), jax.tree.leaves(expected), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    yield checkpoints
    checkpoints.close()


def save(checkpoints: Checkpoints, *steps: int, devices: int = 1) -> None:
    for step in steps:
        checkpoints.save(step, make_state(step, devices), {"time": 0.1 * step, "name": "ä"})
    checkpoints.wait()


def test_eight_devices_to_four_to_one_exactly(checkpoints):
    save(checkpoints, 30, devices=8)
    for devices in (8, 4, 1):
        restored = checkpoints.latest(template(devices))
        assert_state(restored, 30)
        assert restored.tree.velocity[0].sharding == sharding(devices)[0]
        assert restored.meta == {"time": 0.1 * 30, "name": "ä"} and restored.skipped == []
        checkpoints.save(30 + devices, restored.tree, {})
        checkpoints.wait()
        shutil.rmtree(checkpoints.folder / str(30 + devices))
    single = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=SingleDeviceSharding(jax.devices()[5])),
        template(),
    )
    assert_state(checkpoints.latest(single), 30)


def test_the_last_ones_are_kept_and_orbax_alone_can_read_them(checkpoints):
    assert checkpoints.latest(template()) is None
    save(checkpoints, 5, 10, 100)
    assert [path.name for path in list_checkpoints(checkpoints.folder)] == ["10", "100"]
    assert_state(checkpoints.latest(template()), 100)
    with ocp.CheckpointManager(checkpoints.folder) as manager:
        assert manager.latest_step() == 100
        leaves = manager.restore(10, args=ocp.args.StandardRestore())
    np.testing.assert_array_equal(leaves["000.velocity.0"], make_state(10).velocity[0])


def array_file(path: Path) -> Path:
    """The largest file of a checkpoint, which holds values."""
    return max((p for p in (path / "default").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def truncate(path: Path) -> None:
    with array_file(path).open("r+b") as file:
        file.truncate(array_file(path).stat().st_size - 8)


def flip_a_bit(path: Path) -> None:
    file = array_file(path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove_a_shard(path: Path) -> None:
    array_file(path).unlink()


def make_empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def remove_the_commit_marker(path: Path) -> None:
    (path / COMMIT_NAME).unlink()


def change_the_manifest(path: Path) -> None:
    manifest = json.loads((path / MANIFEST_NAME).read_text())
    manifest["meta"]["time"] = 1e9
    (path / MANIFEST_NAME).write_text(json.dumps(manifest))


def empty_every_file(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")


def rewrite(change):
    """A manifest of somebody else's, with a commit marker that fits."""

    def damage(path: Path) -> None:
        text = change(json.loads((path / MANIFEST_NAME).read_text()))
        (path / MANIFEST_NAME).write_text(text)
        (path / COMMIT_NAME).write_text(hashlib.sha256(text.encode()).hexdigest())

    return damage


def without(key):
    return lambda manifest: json.dumps({name: value for name, value in manifest.items() if name != key})


FOREIGN = {
    "not JSON": (rewrite(lambda manifest: "{"), "not JSON"),
    "a list": (rewrite(lambda manifest: "[1]"), "schema None"),
    "a later schema": (rewrite(lambda manifest: json.dumps(manifest | {"schema": 99})), "schema 99"),
    "no schema": (rewrite(without("schema")), "schema None"),
    "no files": (rewrite(without("files")), "no 'files' of type dict"),
    "no meta": (rewrite(without("meta")), "no 'meta' of type dict"),
    "leaves of numbers": (rewrite(lambda manifest: json.dumps(manifest | {"leaves": 3})), "no 'leaves' of type dict"),
    "files elsewhere": (rewrite(lambda manifest: json.dumps(manifest | {"files": {"../x": {}}})), "outside"),
    "files of numbers": (rewrite(lambda manifest: json.dumps(manifest | {"files": {"x": 1}})), "not its bytes"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.slow
def test_a_manifest_of_another_schema_is_skipped_with_a_word(checkpoints, name):
    save(checkpoints, 10, 20)
    damage, words = FOREIGN[name]
    damage(checkpoints.folder / "20")
    assert words in (verify_checkpoint(checkpoints.folder / "20") or "")
    restored = checkpoints.latest(template())
    assert_state(restored, 10)
    assert words in restored.skipped[0]


@pytest.mark.parametrize(
    "meta", [{}, {"time": None}, {"time": "1"}, {"time": float("nan")}, {"time": True}, {"time": 1.0, "frame": 1.5}]
)
def test_what_a_checkpoint_says_of_itself_is_checked(meta):
    with pytest.raises(CheckpointError, match="the checkpoint says") as refused:
        require_meta(meta, {"time": float, "frame": int})
    assert refused.value.exit_code == 6
    require_meta({"time": 1, "frame": 0, "more": None}, {"time": float, "frame": int})


DAMAGES = {
    truncate: "bytes where",
    flip_a_bit: "checksum",
    remove_a_shard: "missing",
    make_empty: "manifest",
    remove_the_commit_marker: "marker",
    change_the_manifest: "manifest does not match",
    empty_every_file: "manifest does not match",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.slow
def test_a_damaged_checkpoint_is_skipped_with_a_word(checkpoints, damage):
    save(checkpoints, 10, 20)
    damage(checkpoints.folder / "20")
    assert DAMAGES[damage] in (verify_checkpoint(checkpoints.folder / "20") or "")
    restored = checkpoints.latest(template())
    assert_state(restored, 10)
    (word,) = restored.skipped
    assert "checkpoint 20" in word and DAMAGES[damage] in word
    save(checkpoints, 20)  # the resumed run comes to the same step again
    assert_state(checkpoints.latest(template()), 20)
    damage(checkpoints.folder / "10")
    damage(checkpoints.folder / "20")
    with pytest.raises(CheckpointError, match="checkpoint 20.*checkpoint 10") as error:
        checkpoints.latest(template())
    assert error.value.exit_code == 6


def test_a_damaged_checkpoint_does_not_count_as_kept(checkpoints):
    save(checkpoints, 10, 20)
    flip_a_bit(checkpoints.folder / "20")
    checkpoints.latest(template())
    save(checkpoints, 25)
    assert [path.name for path in list_checkpoints(checkpoints.folder)] == ["10", "25"]


def test_one_of_every_interval_of_simulated_time_stays_for_good(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, keep_every=1.0)
    # Ten steps of 0.1 add up to less than one, which is meant as one.
    nearly = float(np.cumsum(np.full(10, 0.1))[-1])
    times = {5: 0.5, 10: nearly, 15: 1.5, 23: 2.3, 26: 2.6, 38: 3.8, 40: 4.0, 41: 4.1}
    for step, reached in times.items():
        checkpoints.save(step, make_state(step), {"time": reached})
    checkpoints.wait()
    kept = [int(path.name) for path in list_checkpoints(checkpoints.folder)]
    assert kept == [10, 23, 38, 40, 41]  # the first at or after 1, 2, 3 and 4, and the newest two
    assert nearly < 1
    (checkpoints.folder / "23" / MANIFEST_NAME).write_text("{}")  # an old one that was damaged stops nothing
    checkpoints.save(50, make_state(50), {"time": 5.0})
    checkpoints.wait()
    assert [int(path.name) for path in list_checkpoints(checkpoints.folder)] == [10, 38, 40, 41, 50]
    checkpoints.close()


def test_a_checkpoint_takes_its_place_after_what_belongs_to_it(checkpoints):
    frames = Future()
    checkpoints.save(10, make_state(10), {}, after=frames)
    time.sleep(0.5)  # by now orbax has long written 15 kB
    assert list_checkpoints(checkpoints.folder) == []
    frames.set_result(None)
    checkpoints.wait()
    assert_state(checkpoints.latest(template()), 10)
    assert checkpoints.longest >= 0.5
    lost = Future()
    lost.set_exception(OSError("No space left on device"))
    checkpoints.save(20, make_state(20), {}, after=lost)
    with pytest.raises(InputOutputError, match="step 20 could not be written .*No space left"):
        checkpoints.wait()
    assert_state(checkpoints.latest(template()), 10)


def test_the_end_reads_nothing_where_another_process_may_have_cleared_up(checkpoints, monkeypatch):
    def reload():
        raise FileNotFoundError("process 0 has removed the folder, at its own end")

    checkpoints.save(10, make_state(10), {})
    monkeypatch.setattr(checkpoints._manager, "reload", reload)
    checkpoints.close()
    assert [path.name for path in list_checkpoints(checkpoints.folder)] == ["10"]


def test_steps_after_the_one_resumed_from_are_forgotten(checkpoints):
    save(checkpoints, 10, 20)
    save(checkpoints, 15)
    assert [path.name for path in list_checkpoints(checkpoints.folder)] == ["10", "15"]
    assert_state(checkpoints.latest(template()), 15)


def test_another_schema_is_refused_not_cast(checkpoints):
    save(checkpoints, 10)
    with pytest.raises(CheckpointError, match=r"000\.velocity\.0 .*float64.*float32"):
        checkpoints.latest(template(dtype=np.float32))
    larger = template()._replace(clock={})
    with pytest.raises(CheckpointError, match="clock"):
        checkpoints.latest(larger)
    with pytest.raises(TypeError):
        checkpoints.save(20, make_state(20), {"state": object()})
    assert_state(checkpoints.latest(template()), 10)


# orbax leaves coroutines behind that it has not begun to write.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_checkpoint_and_one_sentence(checkpoints, caplog, capfd):
    save(checkpoints, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, hard))  # Python ignores the signal: the write fails
    try:
        with pytest.raises(InputOutputError, match="step 20 could not be written"):
            save(checkpoints, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    gc.collect()  # the coroutines, here and not within some other test
    # Neither orbax's threads, which log what they raise, nor those that find their event loop closed.
    assert not [record for record in caplog.records if record.exc_info] and "Traceback" not in capfd.readouterr().err
    # A thread of orbax that was still writing may make `.saving` once more: the next save begins without it.
    assert [path.name for path in list_checkpoints(checkpoints.folder)] == ["10"]
    assert_state(checkpoints.latest(template()), 10)
    save(checkpoints, 30)
    assert_state(checkpoints.latest(template()), 30)
    checkpoints.close()
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["10", "30"]


@pytest.mark.parametrize("logger", ["absl", "asyncio"])
def test_tracebacks_of_orbax_are_kept_back_and_no_others(checkpoints, caplog, logger):
    save(checkpoints, 10)
    for file in ("/orbax/checkpoint/serialization.py", "/a_program.py"):
        try:
            exec(compile("raise OSError('disk full')", file, "exec"))
        except OSError:
            logging.getLogger(logger).exception("raised in %s", file)
    assert [record.getMessage() for record in caplog.records] == ["raised in /a_program.py"]


def test_a_disk_that_is_too_small_is_known_before_orbax_is_asked(checkpoints, monkeypatch):
    save(checkpoints, 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 100, 100))
    with pytest.raises(InputOutputError, match="step 20 could not be written .*0.00 GB free"):
        save(checkpoints, 20)
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["10"]


def test_checkpoints_that_all_follow_another_schema_are_refused(checkpoints):
    save(checkpoints, 10)
    path = checkpoints.folder / "10"
    text = (path / MANIFEST_NAME).read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}')
    (path / MANIFEST_NAME).write_text(text)
    (path / COMMIT_NAME).write_text(hashlib.sha256(text.encode()).hexdigest())
    with pytest.raises(CheckpointError, match=f"schema {SCHEMA + 1}, and this version of simjax reads {SCHEMA}"):
        checkpoints.latest(template())


SAVER = """
import sys, itertools
from pathlib import Path
from test_checkpoint_files import Checkpoints, make_state
checkpoints = Checkpoints(Path(sys.argv[1]), keep=1)
for step in itertools.count(1):
    checkpoints.save(step, make_state(step), {})
    print(step, flush=True)
"""


def test_a_clock_that_is_set_ahead_does_not_spoil_a_checkpoint(tmp_path, monkeypatch):
    days = itertools.count()
    # A day between any two looks at the limits of what is written.
    monkeypatch.setattr(future, "time", SimpleNamespace(time=lambda: 86400.0 * next(days)))
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(3, make_state(3), {})
    checkpoints.close()
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == ["3"]
    assert next(days) > 2  # somebody has looked


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", SAVER]
    environment = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    random = np.random.default_rng(os.getpid())
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        saver = subprocess.Popen(
            [*command, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert saver.stdout is not None
        with contextlib.closing(saver.stdout):
            started = [int(saver.stdout.readline()) for _ in range(2)]  # a second save waits for the first
            time.sleep(random.uniform(0, 0.1))
            saver.send_signal(signal.SIGKILL)
            started += [int(line) for line in saver.stdout]
            saver.wait()
        checkpoints = Checkpoints(folder, keep=1)
        restored = checkpoints.latest(template())
        # The newest may be the one under way or the one before it; removal of older ones comes last.
        assert restored is not None and restored.step >= started[-1] - 1
        assert_state(restored, restored.step)
        assert restored.skipped == []
        save(checkpoints, restored.step + 1)
        checkpoints.close()
        assert [path.name for path in folder.iterdir()] == [str(restored.step + 1)]
