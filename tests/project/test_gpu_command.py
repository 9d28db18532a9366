"""The frame of `python -m benchmarks gpu`: rows in their order, what hangs or fails, traces, tables, CUDA's kernels."""

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from paths import ROOT

from benchmarks.gpu import command, cuda, rows, worker
from benchmarks.gpu.builders import NotHere
from benchmarks.gpu.tables import as_table
from benchmarks.gpu.trace import dearest

NAMES = [row.name for group in rows.GROUPS for row in group.rows]


def test_the_list_names_all_rows_in_their_order(capsys):
    assert command.main(["--list"]) == 0
    listed = [line[12:52].strip() for line in capsys.readouterr().out.splitlines()]
    assert listed == NAMES and len(set(NAMES)) == len(NAMES)


def test_every_row_of_others_has_one_of_simjax_to_compare_with():
    compared = {row.compared for group in rows.GROUPS for row in group.rows if row.by.startswith("simjax")}
    assert {row.compared for group in rows.GROUPS for row in group.rows} == compared | {"copy"}


def test_every_row_that_was_measured_earlier_is_still_there():
    earlier = json.loads((ROOT / "benchmarks" / "results" / "gpu_h100_jax_0.11.2.json").read_text())["rows"]
    assert {row["row"] for row in earlier} <= {row.compared for group in rows.GROUPS for row in group.rows}


def test_a_row_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "there is no row or group 'nothing'" in capsys.readouterr().err


def test_a_processor_alone_is_refused_in_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "Process", spoken([{"environment": {"device": "cpu: cpu"}}]))
    assert command.main(["copy", "--output", str(tmp_path)]) == command.NO_GPU
    assert "expected a GPU" in capsys.readouterr().err and not (tmp_path / "gpu.json").exists()


def spoken(*talks):
    """Workers that say so, one after the other; each then says nothing in time."""
    left = [list(talk) for talk in talks]

    class Worker:
        started: list[list[str]] = []

        def __init__(self, group, names, options):
            self.started.append(names)
            self.lines = left.pop(0)

        def line(self, seconds):
            return self.lines.pop(0) if self.lines else {"late": True}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    return Worker


def test_a_row_that_hangs_leaves_the_others(tmp_path, monkeypatch, capsys):
    here, own = {"environment": {"device": "gpu: a card", "jax": "1"}}, rows.FLOWS
    timed = {"row": {**worker.head(own[0]), "ms": 2.0, "versions": {"jax": "1"}}}
    last = {"row": {**worker.head(own[2]), "ms": 3.0}}
    told = spoken([here, {"begin": own[0].name}, timed], [here, last])
    monkeypatch.setattr(command, "Process", told)
    assert command.main(["flows", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["name"] for row in found["rows"]] == [row.name for row in own]
    assert found["rows"][1]["failed"] == "took longer than 60 s"
    # What comes after it is timed by a process of its own.
    assert told.started == [[row.name for row in own], [own[2].name]]
    assert found["environment"]["device"] == "gpu: a card" and found["versions"]["jax"] == "1"
    assert "not timed: took longer than 60 s" in (tmp_path / "gpu.md").read_text()


def test_nothing_is_begun_when_the_time_is_over(tmp_path, monkeypatch):
    told = spoken()
    monkeypatch.setattr(command, "Process", told)
    assert command.main(["flows", "--minutes", "0", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert not told.started and {row["failed"] for row in found["rows"]} == {"left out, as 0 minutes are over"}


def test_flags_of_gpus_are_left_out_of_a_trial(tmp_path, monkeypatch):
    told = spoken()
    monkeypatch.setattr(command, "Process", told)
    assert command.main(["no-graphs", "--trial", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert not told.started and {row["failed"] for row in found["rows"]} == {"a trial has no flags of GPUs"}


def test_a_failure_is_told_by_its_sentence():
    def fails(error):
        raise error

    assert worker.outcome(lambda: fails(NotHere("openmm is not installed here"))) == {
        "failed": "openmm is not installed here"
    }
    assert worker.outcome(lambda: fails(ValueError("one\ntwo"))) == {"failed": "ValueError: one"}


def test_ratios_are_to_the_row_of_simjax():
    alike = {"row": "a", "what": "steps"}
    found = as_table(
        {
            "trial": False,
            "rows": [
                {**alike, "by": "another", "ms": 3.0},
                {**alike, "by": "simjax, XLA", "ms": 2.0},
                {**alike, "by": "absent", "failed": "it is | not here"},
            ],
        }
    )
    assert found.splitlines()[2:] == [
        "| steps | simjax, XLA | 2.00 |  |",
        "| steps | another | 3.00 | **1.5** |",
        "| steps | absent | not timed: it is / not here |  |",
    ]


def named(kind, pid, name, tid=None):
    return {"ph": "M", "name": kind, "pid": pid, "args": {"name": name}, **({} if tid is None else {"tid": tid})}


def ran(pid, tid, name, microseconds, operation=""):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "dur": microseconds, "args": {"hlo_op": operation}}


def test_launches_of_a_gpu_are_what_ran_on_its_streams():
    events = [
        named("process_name", 1, "/device:GPU:0"),
        named("thread_name", 1, "Stream #14(Compute)", 3),
        named("thread_name", 1, "XLA Ops", 4),
        named("process_name", 2, "/host:CPU"),
        named("thread_name", 2, "Stream", 3),
        *(ran(1, 3, "vector_fft", 40, "fft.1") for _ in range(4)),
        ran(1, 3, "MemcpyD2D", 100),
        ran(1, 4, "fft.1", 160, "fft.1"),
        ran(2, 3, "launch", 1e6, "fft.1"),
    ]
    found = dearest(events, 2)
    assert (found["traced_launches"], found["traced_ms"]) == (2.5, 0.13)
    assert found["dearest"][0] == {"kernel": "vector_fft", "operation": "fft.1", "launches": 2.0, "ms": 0.08}
    assert found["dearest"][1]["kernel"] == "MemcpyD2D"


def test_launches_of_a_processor_are_operations_that_hold_no_others():
    events = [ran(1, 1, "while.1", 100, "while.1"), ran(1, 1, "fusion", 40, "fusion"), ran(1, 1, "python", 1e3)]
    assert dearest(events, 1)["dearest"] == [{"kernel": "fusion", "operation": "fusion", "launches": 1, "ms": 0.04}]
    assert "not_traced" in dearest([], 1)


@pytest.mark.slow
def test_a_trial_of_some_rows_runs_to_its_end(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "gpu", "--trial", "copy", "heat-512-cuda", "kolmogorov-512"]
    command += ["kolmogorov-512-jax-cfd-linear", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads((tmp_path / "gpu.json").read_text())
    copy, by_hand, ours, peer = found["rows"]
    assert copy["ms"] > 0 and copy["gb_per_s"] > 0 and ours["ms"] > 0 and ours["compile_cpu_s"] > 0
    assert ours["dearest"][0]["ms"] > 0 and found["trial"] and found["versions"]["jax"]
    # A trial sees no card: a sentence stands in the place of a figure, as in that of a package that is not here.
    assert "failed" in by_hand and ("failed" in peer) == (importlib.util.find_spec("jax_cfd") is None)
    assert "They mean nothing." in done.stdout


# ------------------------------------------------------------------ kernels of CUDA, on a processor

LOOPS = """
struct Place { int x, y, z; };
static Place blockIdx, blockDim, threadIdx;
#define __global__
#include "SOURCE"
#define OVER(blocks, threads) \\
    blockDim = {threads[0], threads[1], threads[2]}; \\
    for (int c = 0; c < blocks[2]; c++) for (int b = 0; b < blocks[1]; b++) for (int a = 0; a < blocks[0]; a++) \\
        for (int t = 0; t < threads[1]; t++) for (int s = 0; s < threads[0]; s++) \\
            if (blockIdx = {a, b, c}, threadIdx = {s, t, 0}, true)
extern "C" {
void run_heat2(int *B, int *T, float **u, int *n, float *d, int l)
{ OVER(B, T) heat2(u[0], u[1], n[0], n[1], d[0], d[1], l); }
void run_heat3(int *B, int *T, float **u, int *n, float *d, int l)
{ OVER(B, T) heat3(u[0], u[1], n[0], n[1], n[2], d[0], d[1], d[2], l); }
void run_kick3(int *B, int *T, float **u, int *n, float *d, int l)
{ OVER(B, T) kick3(u[0], u[1], u[2], u[3], n[0], n[1], n[2], d[0], d[1], d[2], l); }
void run_drift3(int *B, int *T, float **u, int *n, float *d, int l)
{ OVER(B, T) drift3(u[0], u[1], u[2], u[3], n[0], n[1], n[2], d[0], d[1], d[2], l); }
}
"""
COEFFICIENTS = [0.1, 0.2, 0.05]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The kernels as functions of C++, whose blocks and threads are loops."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler of C++ is here")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "loops.cpp").write_text(LOOPS.replace("SOURCE", str(cuda.SOURCE)))
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", folder / "loops.so", folder / "loops.cpp"], check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def launch(library, name, arrays):
    shape = arrays[0].shape
    blocks, threads = ((ctypes.c_int * 3)(*sizes) for sizes in cuda.launched(shape))
    places = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    sizes, numbers = (ctypes.c_int * len(shape))(*shape), (ctypes.c_float * 3)(*COEFFICIENTS)
    getattr(library, f"run_{name}")(blocks, threads, places, sizes, numbers, ctypes.c_int(cuda.LENGTH))


# Sizes that blocks and the lengths that threads walk do not divide.
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(70, 300), (37, 13, 70)])
def test_heat_by_hand_is_that_of_numpy(library, shape):
    u = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = np.zeros_like(u)
    launch(library, f"heat{len(shape)}", [u, found])
    sums = (c * (np.roll(u, 1, a) - 2 * u + np.roll(u, -1, a)) for a, c in enumerate(COEFFICIENTS[: len(shape)]))
    np.testing.assert_allclose(found, u + sum(sums), atol=2e-6)  # some roundings of numbers up to 5


@pytest.mark.slow
def test_sound_by_hand_is_that_of_numpy(library):
    p, *v = np.random.default_rng(0).normal(size=(4, 37, 13, 70)).astype(np.float32)
    kicked = [u - c * (p - np.roll(p, 1, a)) for a, (u, c) in enumerate(zip(v, COEFFICIENTS, strict=True))]
    launch(library, "kick3", [p, *v])
    np.testing.assert_allclose(v, kicked, atol=2e-6)
    flux = sum(c * (np.roll(u, -1, a) - u) for a, (u, c) in enumerate(zip(v, COEFFICIENTS, strict=True)))
    expected = p - flux
    launch(library, "drift3", [p, *v])
    np.testing.assert_allclose(p, expected, atol=2e-6)
