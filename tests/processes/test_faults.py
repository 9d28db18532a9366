"""A signal to one process stops all; one that is killed or stands still is named by the others; the run goes on."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from process_groups import environment, outputs, start_run

import simjax as sj

FLOW = [
    "experiment=fluid", "grid.shape=[32,32]", "time.end=3.0", "time.output_every=0.05", "time.dt=0.0005",
    "time.courant=null", "precision=float64", "checkpoint.every_frames=3", "output.animation=false",
    "output.report=false",
]  # fmt: skip


def lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def wait_for_frames(folder, processes, more=4, timeout=120):
    """Return when `more` frames have been written, or a process has ended."""
    before, end = lines(folder), time.monotonic() + timeout
    while lines(folder) < before + more and all(p.poll() is None for p in processes):
        assert time.monotonic() < end, "no frame was written"
        time.sleep(0.05)


def resumed(folder, mesh, count=2):
    return start_run([f"resume={folder}", *mesh], count)


MESHES = {4: ["mesh.x=2", "mesh.y=2"], 8: ["mesh.x=4", "mesh.y=2"], 1: ["mesh.x=1", "mesh.y=1"]}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    jax_free = [sys.executable, "-m", "simjax.run", *FLOW, f"output.root={root}", "output.folder=whole"]
    subprocess.run(jax_free, env=environment(1), check=True, capture_output=True)
    with sj.open_run(root / "whole") as dataset:
        yield dataset.load()


@pytest.mark.slow
def test_a_run_goes_on_after_signals_kills_and_standstills_on_other_processes(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    new = [*FLOW, *MESHES[4], f"output.root={tmp_path}", "output.folder=run"]

    processes = start_run(new)
    wait_for_frames(folder, processes)
    processes[1].send_signal(signal.SIGTERM)
    told = outputs(processes, 75)
    assert "stopped by SIGTERM at process 1" in told[0] and "SIGTERM" not in told[1]
    steps = {path.name for path in (folder / "checkpoints").iterdir() if path.name.isdecimal()}
    assert steps  # both saved at one step, or orbax would not have ended

    for victim, number, count in ((1, signal.SIGKILL, 2), (0, signal.SIGKILL, 2), (3, signal.SIGSTOP, 4)):
        processes = resumed(folder, MESHES[2 * count], count)
        wait_for_frames(folder, processes)
        processes[victim].send_signal(number)
        begun = time.monotonic()
        others = [process for who, process in enumerate(processes) if who != victim]
        told = outputs(others, 5)
        assert time.monotonic() - begun < 60
        assert all(f"process {victim} of {count}" in text for text in told), told
        processes[victim].kill()
        processes[victim].communicate()

    with sj.open_run(folder) as dataset:
        assert dataset.sizes["time"] > 1  # what was committed is there
    done = subprocess.run(
        [sys.executable, "-m", "simjax.run", f"resume={folder}", *MESHES[8], "time.end=3.0"], env=environment(8),
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sj.check_files(folder) == []
    with sj.open_run(folder) as dataset:
        for name in ("velocity_x", "velocity_y", "pressure"):
            # Rounding of transforms in another order, as between any two meshes.
            np.testing.assert_allclose(dataset[name], uninterrupted[name], rtol=0, atol=1e-11)
        np.testing.assert_array_equal(dataset.time, uninterrupted.time)
    parts = json.loads((folder / "provenance.json").read_text())["parts"]
    assert len(parts) == 5
