"""Files of every release are read by this version, and its runs are gone on with."""

import tarfile
import tomllib

import numpy as np
import pytest
import xarray
from paths import REFERENCE, ROOT
from released_files import RUNS

import simjax as sj
from simjax.config.composition import compose_from_run
from simjax.schema.schema_number import SCHEMA

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ARCHIVES = sorted((REFERENCE / "released").glob("*.tar.xz"))
END = {"fields": 0.3, "particles": 0.03}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def release(request, tmp_path_factory):
    """The version that wrote an archive, and the folder with its runs."""
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return request.param.name.removesuffix(".tar.xz"), folder


def configuration(folder, *overrides):
    """What a run's folder says that was run, with some keys changed."""
    return compose_from_run(folder / ".hydra" / "config.yaml", overrides).config()


def test_this_version_has_an_archive():
    assert f"{VERSION}.tar.xz" in [archive.name for archive in ARCHIVES], "run python tests/support/released_files.py"


@pytest.mark.parametrize("name", RUNS)
def test_files_of_a_release_are_whole_and_read(name, release):
    version, folder = release
    assert sj.check_files(folder / name) == []
    with sj.open_run(folder / name) as dataset:
        assert dataset.attrs["simjax_version"] == version
        assert dataset.sizes["time"] == 3 and all(np.isfinite(dataset[field]).all() for field in dataset.data_vars)
        assert dataset.time.values[-1] == {"fields": 0.2, "particles": 0.02}[name]


def test_samples_of_an_instrument_of_a_release_are_read(release):
    with sj.open_output(release[1] / "fields", "place") as samples:
        assert samples.time.values[-1] == 0.2 and np.isfinite(samples.pressure).all()


@pytest.mark.parametrize("name", RUNS)
def test_a_configuration_of_a_release_becomes_one_of_the_present(name, release):
    written = configuration(release[1] / name).write()
    assert written["schema"] == SCHEMA and written["experiment_name"] in RUNS[name][0]
    assert written["output"]["report"] is False and written["precision"] == "float64"


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_a_release_goes_on_as_if_it_had_not_stopped(name, release, tmp_path):
    folder = release[1] / name
    longer = f"time.end={END[name]}"
    elsewhere = configuration(folder, longer, f"output.root={tmp_path}", f"output.folder={tmp_path / name}")
    resumed = sj.Simulation(configuration(folder, longer)).run(resume=folder)
    whole = sj.Simulation(elsewhere).run()
    with resumed.ds as got, whole.ds as expected:
        assert got.sizes["time"] == 4
        # Rounding, 1e-16, differs between machines and compilers; in three to six steps it grows to far less than 1e-9.
        xarray.testing.assert_allclose(got.drop_attrs(), expected.drop_attrs(), rtol=1e-9, atol=1e-11)
