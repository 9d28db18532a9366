"""Times in files are the numbers that a user writes: 0.7, not the sum of seven frames of 0.1."""

import json

import numpy as np
import pytest
import xarray as xr

import simjax as sj
from simjax.io.frame_layout import written_times

QUIET = ["output.report=false", "output.animation=false", "time.output_every=0.1", "time.end=1.0"]
WRITTEN = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_times_keep_their_digits():
    summed = np.cumsum([0.1] * 30)
    assert (summed != np.round(summed, 1)).any() and 7 * 0.1 != 0.7
    np.testing.assert_array_equal(written_times(summed), np.round(summed, 1))
    np.testing.assert_array_equal(written_times(7 * 0.1), [0.7])
    for exact in (1 / 3, np.pi * 1e6, 5e-324, 1e300, -2.5):  # to half of the last digit
        np.testing.assert_allclose(written_times(exact), [exact], rtol=5e-15, atol=0)
    assert np.unique(written_times(1e6 + 1e-8 * np.arange(100))).size == 100


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("times")
    probe = "{probe: {points: [[0.3, 0.4]]}, of: [concentration], every: 0.1}"
    overrides = [
        "grid.shape=[8,8]",
        "exact=null",
        "time.dt=0.05",
        f"outputs=[{probe}]",
        "statistics=[{name: s, of: [concentration]}]",
        f"output.root={root}",
    ]
    return sj.load("dye", [*QUIET, *overrides]).run()


def test_frames_are_selected_by_the_times_that_were_asked_for(run):
    dataset = sj.open_run(run.folder)
    assert dataset.time.values.tolist() == WRITTEN
    assert float(dataset.sel(time=0.7).time) == 0.7
    with xr.open_dataset(run.folder / "diagnostics.h5", engine="h5netcdf") as diagnostics:
        assert diagnostics.time.values.tolist() == WRITTEN
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["time"] for line in lines] == WRITTEN


def test_samples_and_statistics_are_selected_by_their_times(run):
    assert sj.open_output(run.folder, "probe").time.values.tolist() == WRITTEN
    assert sj.open_output(run.folder, "s").time.values.tolist()[-1] == 1.0


@pytest.mark.slow
def test_particles_are_selected_by_their_times(tmp_path):
    overrides = ["particles.count=32", "time.dt=0.05", f"output.root={tmp_path}"]
    folder = sj.load("lennard_jones", [*QUIET, *overrides]).run().folder
    assert sj.open_run(folder).time.values.tolist() == WRITTEN
