"""How many windows of saved states a second `sj.batches` gives, from an ensemble and from as many single runs.

    python -m benchmarks.loading [members] [states] [cells of a side] [file for the results]

Files are written as a run writes them, with random fields, and are in the cache of the system when they are read: what
is measured is the way from HDF5 to batches, not the disk. Each figure is the best of three passes over 50 batches.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import simjax as sj
from benchmarks.measure import environment, rounded
from simjax.core.model import Output
from simjax.io.grid_output import GridWriter

LENGTH, SIZE, BATCHES, PASSES = 8, 16, 50, 3
FIELDS = ("velocity_x", "velocity_y", "pressure")


def written(folder, members, states, cells):
    """The folder of a run of random fields, of one member where `members` is None."""
    grid = sj.Grid((cells, cells))
    outputs = [Output(name, (0.5, 0.5), "1", name) for name in FIELDS]
    viscosity = np.float64(1e-3) if members is None else np.geomspace(1e-4, 1e-2, members)
    writer = GridWriter(
        folder,
        grid,
        outputs,
        members=members,
        parameters={"viscosity": viscosity},
        diagnostics=["energy"],
        attributes={"simjax_run_id": folder.name},
        title="random fields",
    )
    rng, lead = np.random.default_rng(0), () if members is None else (members,)
    for state in range(states):
        fields = {name: rng.random((1, *lead, cells, cells), np.float32) for name in FIELDS}
        writer.write([state], [0.1 * state], fields, {"energy": np.ones((1, *lead))})
    writer.close(True)
    return folder


def rates(windows, workers):
    """Windows and megabytes of fields a second."""
    iterator, best = sj.batches(windows, SIZE, seed=0, workers=workers), np.inf
    for _ in range(3):
        batch = next(iterator)
    for _ in range(PASSES):
        begin = time.perf_counter()
        for _ in range(BATCHES):
            batch = next(iterator)
        best = min(best, (time.perf_counter() - begin) / (BATCHES * SIZE))
    iterator.close()
    window = sum(batch[name][0].nbytes for name in FIELDS)
    return {"windows_per_s": rounded(1 / best), "MB_per_s": rounded(window / best / 1e6), "window_MB": window / 1e6}


def main(members=32, states=100, cells=128, file=None):
    members, states, cells = int(members), int(states), int(cells)
    with tempfile.TemporaryDirectory() as root:
        begin = time.perf_counter()
        ensemble = written(Path(root) / "ensemble", members, states, cells)
        writing = time.perf_counter() - begin
        singles = [written(Path(root) / f"run{k:03d}", None, states, cells) for k in range(members)]
        case = {"members": members, "states": states, "cells": [cells, cells], "fields": len(FIELDS), "length": LENGTH}
        results = {"environment": environment(), **case, "batch": SIZE, "ensemble_written_s": rounded(writing)}
        for name, runs in {"ensemble": [ensemble], "runs": singles}.items():
            begin = time.perf_counter()
            windows = sj.TrajectoryWindows(runs, length=LENGTH)
            results[f"{name}_indexed_s"] = rounded(time.perf_counter() - begin)
            for workers in (0, 2):
                results[f"{name}_{workers}_workers"] = rates(windows, workers)
    text = json.dumps(results, indent=1)
    print(text)
    if file:
        Path(file).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
