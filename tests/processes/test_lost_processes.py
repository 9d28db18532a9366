"""A signal to one process stops all; one that is killed or stands still is named by the others; the run goes on."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from process_groups import end, environment, outputs, start_run

import simjax as sj

# The model that compiles soonest; its devices wait for their neighbours at every step.
DYE = [
    "experiment=dye",
    "grid.shape=[32,32]",
    "time.end=6.0",
    "time.output_every=0.05",
    "time.dt=0.001",
    "time.courant=null",
    "precision=float64",
    "checkpoint.every_frames=3",
    "output.animation=false",
    "output.report=false",
]


def lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def wait_for_frames(folder, processes, more=4, timeout=120):
    """Return when `more` frames have been written, or a process has ended."""
    before, end = lines(folder), time.monotonic() + timeout
    while lines(folder) < before + more and all(p.poll() is None for p in processes):
        assert time.monotonic() < end, "no frame was written"
        time.sleep(0.05)


MESHES = {4: ["mesh.x=2", "mesh.y=2"], 8: ["mesh.x=4", "mesh.y=2"], 1: ["mesh.x=1", "mesh.y=1"]}


@pytest.fixture
def begin():
    """A maker of the processes of a run, which end with the test at the latest."""
    started = []

    def begin(overrides, count=2, **options):
        processes = start_run(overrides, count, **options)
        started.extend(processes)
        return processes

    yield begin
    end(started)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    jax_free = [sys.executable, "-m", "simjax.run", *DYE, f"output.root={root}", "output.folder=whole"]
    subprocess.run(jax_free, env=environment(1), check=True, capture_output=True)
    with sj.open_run(root / "whole") as dataset:
        yield dataset.load()


@pytest.mark.slow
def test_a_run_goes_on_after_signals_kills_and_standstills_on_other_processes(tmp_path, uninterrupted, begin):
    folder = tmp_path / "run"
    new = [*DYE, *MESHES[4], f"output.root={tmp_path}", "output.folder=run"]

    processes = begin(new)
    wait_for_frames(folder, processes)
    processes[1].send_signal(signal.SIGTERM)
    told = outputs(processes, 75)
    assert "stopped by SIGTERM at process 1" in told[0] and "SIGTERM" not in told[1]
    steps = {path.name for path in (folder / "checkpoints").iterdir() if path.name.isdecimal()}
    assert steps  # both saved at one step, or orbax would not have ended

    # The one that the others meet at is lost, or another one; random faults below hit either.
    for victim, number, count in ((0, signal.SIGKILL, 2), (3, signal.SIGSTOP, 4)):
        processes = begin([f"resume={folder}", *MESHES[2 * count]], count)
        wait_for_frames(folder, processes)
        processes[victim].send_signal(number)
        others = [process for who, process in enumerate(processes) if who != victim]
        told = outputs(others, 5)  # which waits for minutes; where nothing tells them, they would wait for ever
        assert all(f"process {victim} of {count}" in text for text in told), told
        end([processes[victim]])

    with sj.open_run(folder) as dataset:
        assert dataset.sizes["time"] > 1  # what was committed is there
    done = subprocess.run(
        [sys.executable, "-m", "simjax.run", f"resume={folder}", *MESHES[8], "time.end=6.0"],
        env=environment(8),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert sj.check_files(folder) == []
    with sj.open_run(folder) as dataset:
        # Cells compute the same on every mesh, to the bit.
        np.testing.assert_array_equal(dataset.concentration, uninterrupted.concentration)
        np.testing.assert_array_equal(dataset.time, uninterrupted.time)
    parts = json.loads((folder / "provenance.json").read_text())["parts"]
    assert len(parts) == 4


# A clock that jumps a day ahead while the run goes on.
JUMPING_CLOCK = """
import time
begun, clock = time.monotonic(), time.time
time.time = lambda: clock() + (86400 if time.monotonic() > begun + 12 else 0)
"""
# No file may become larger than 64 KiB, as on a disk that is full.
FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
"""
FAULTS = ("kill", "stand still", "signal", "truncated checkpoint", "full disk", "clock jump")


def newest_checkpoint(folder, damaged):
    """The newest checkpoint that is whole and the number of frames that it is sure of; None before the first."""
    found = [path for path in (folder / "checkpoints").glob("*") if path.name.isdecimal() and path not in damaged]
    steps = sorted(found, key=lambda path: int(path.name))
    if not steps:
        return None, 0
    return steps[-1], json.loads((steps[-1] / "simjax_manifest.json").read_text())["meta"]["frames"]


def truncate(checkpoint, chance):
    """Cut a file of a checkpoint short."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.stat().st_size > 1)
    victim = chance.choice(files)
    os.truncate(victim, victim.stat().st_size // 2)


def suffer(fault, folder, processes, chance, frames):
    """Have a fault happen to a run; the exit codes with which its processes may end."""
    if fault == "full disk":
        return {4}
    wait_for_frames(folder, processes, frames)
    victim = chance.choice(processes)
    if fault in ("kill", "stand still"):
        victim.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        if fault == "stand still":
            for process in processes:
                if process is not victim:
                    process.wait(60)
            victim.kill()
        return {-9, 5}
    victim.send_signal(signal.SIGTERM)
    return {75}


@pytest.mark.parametrize(
    "faults", [pytest.param(len(FAULTS), marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)]
)
def test_random_faults_lose_nothing_before_the_last_checkpoint(faults, tmp_path, uninterrupted, begin):
    chance, folder, damaged = random.Random(20), tmp_path / "run", set()
    for name, code in (("clock jump", JUMPING_CLOCK), ("full disk", FULL_DISK)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(code)
    command = [*DYE, f"output.root={tmp_path}", "output.folder=run"]
    for number in range(faults):
        at = time.monotonic()
        fault, count = FAULTS[number % len(FAULTS)], chance.choice((1, 2))
        kept, sure = newest_checkpoint(folder, damaged)
        overrides = [f"resume={folder}"] if kept else [*command, "output.overwrite=true"]
        mesh = ["mesh.x=2", f"mesh.y={count}"]
        paths = [tmp_path / fault] if fault in ("clock jump", "full disk") else []
        processes = begin([*overrides, *mesh], count, paths=paths)
        allowed = suffer(fault, folder, processes, chance, chance.randint(1, 4))
        told = [process.communicate(timeout=120)[0] for process in processes]
        print(number, fault, count, round(time.monotonic() - at))
        codes = {process.returncode for process in processes}
        assert codes <= allowed, (fault, codes, told)
        after, frames = newest_checkpoint(folder, damaged)
        assert frames >= sure, (fault, told)
        if after is not None:
            with sj.open_run(folder) as dataset:
                assert dataset.sizes["time"] >= frames, (fault, told)
        if fault == "truncated checkpoint" and after is not None and kept is not None:
            truncate(after, chance)
            damaged.add(after)
    outputs(begin([f"resume={folder}", "mesh.x=2", "mesh.y=1"], 1))
    assert sj.check_files(folder) == []
    with sj.open_run(folder) as dataset:
        np.testing.assert_array_equal(dataset.time, uninterrupted.time)
        np.testing.assert_array_equal(dataset.concentration, uninterrupted.concentration)
