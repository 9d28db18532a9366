"""Every shipped experiment runs a few steps on a small grid, writes, and reads back what it says it writes."""

import numpy as np
import pytest
from small_experiments import small

import simjax as sj
from simjax.config import list_experiments, load_config

NAMES = [experiment.name for experiment in list_experiments()]


# In every run of the tests a few, the cheapest.
USUAL = ("fluid", "from_file", "burgers", "solitons", "condensate")
# The same models as others, started otherwise, or run by test_particle_families or test_chains_and_charges too. What is
# sought in an inverse problem is in test_inverse_experiments.
LONGER = (
    "taylor_green_sph",
    "two_stream",
    "binary_mixture",
    "molten_salt",
    "polymer_melt",
    "weibel",
    "zeldovich",
    "kolmogorov",
    "taylor_green",
    "taylor_green_3d",
    "zabusky_kruskal",
    "shear_layer",
)


def marks(name):
    longer = name in LONGER or name.startswith("inverse_")
    return [] if name in USUAL else [pytest.mark.long if longer else pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_experiment_runs_writes_and_reads_back(name, tmp_path):
    result = sj.load(name, overrides=[*small(name), f"output.root={tmp_path}", "output.animation=false"]).run()
    assert result.exit_code == 0 and result.failed_checks == ()
    dataset = result.ds
    config = load_config(name)
    of_particles = config.schema.of_particles
    assert dataset.attrs["simjax_complete"] == 1 and dataset.sizes["time"] == 3
    # Files keep times in float64: exact multiples of the interval.
    every = 2 * config.time.dt if of_particles else config.time.output_every / 16
    np.testing.assert_allclose(dataset.time, every * np.arange(3), rtol=1e-15)
    for variable in dataset.data_vars.values():
        assert np.all(np.isfinite(variable.values)), variable.name
    assert (result.folder / "report.html").stat().st_size < 3e6
    # A VTKHDF image has cells of one size.
    fields = "fields.m0000.xdmf" if not of_particles and config.grid.stretch else "fields.m0000.vtkhdf"
    sidecar = "particles.vtkhdf" if of_particles else fields
    for file in ("summary.png", "diagnostics.h5", sidecar, "provenance.json", "metrics.jsonl"):
        assert (result.folder / file).is_file(), file


@pytest.mark.slow
def test_taylor_green_against_its_exact_solution(tmp_path):
    result = sj.load(
        "taylor_green",
        overrides=[
            "grid.shape=[32,32]",
            "time.end=0.5",
            f"output.root={tmp_path}",
            "output.animation=false",
            "output.report=false",
        ],
    ).run()
    # Second order in space: 64 points per wavelength would give a quarter of this.
    assert float(result.ds["error_velocity_x"].isel(time=-1)) < 2e-3
