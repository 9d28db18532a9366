"""The process around a run: what it tells libraries that jax starts, and whether jax computes what it should."""

import os
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.driver.environment import SILENT_TPU, UNSOUND, silence_absent_tpus


@pytest.fixture
def variables(monkeypatch):
    """An environment without settings of TPUs, put back afterwards."""
    for name in (*SILENT_TPU, "JAX_FORCE_TPU_INIT"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    return monkeypatch


def devices(folder, *vendors):
    for number, vendor in enumerate(vendors):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "vendor").write_text(vendor + "\n")
    return folder


def test_a_machine_without_tpus_is_told_to_libtpu(variables, tmp_path):
    silence_absent_tpus(devices(tmp_path, "0x1af4", "0x8086"))
    assert {name: os.environ.get(name) for name in SILENT_TPU} == SILENT_TPU


def test_a_machine_that_may_have_tpus_is_left_alone(variables, tmp_path):
    silence_absent_tpus(devices(tmp_path, "0x1af4", "0x1ae0"))
    assert not set(SILENT_TPU) & set(os.environ)


@pytest.mark.parametrize("name", [*SILENT_TPU, "JAX_FORCE_TPU_INIT"])
def test_settings_of_a_user_stand(variables, tmp_path, name):
    variables.setenv(name, "mine")
    silence_absent_tpus(devices(tmp_path, "0x8086"))
    assert os.environ[name] == "mine" and len(set(SILENT_TPU) & set(os.environ)) <= 1


def test_rows_of_small_products_are_right_on_this_version_of_jax():
    """jax 0.10.2 gives thousands of wrong rows of these 40 000 on CPUs (jax#39103): they may differ by rounding."""
    numbers = np.random.default_rng(0)
    a, rows = (numbers.standard_normal(shape).astype(np.float32) for shape in ((3, 3), (40_000, 3)))
    found = jax.jit(jax.vmap(lambda v: jnp.sum(jnp.matmul(a, v, precision="highest") ** 2)))(rows)
    default = jax.jit(jax.vmap(lambda v: jnp.sum((a @ v) ** 2)))(rows)
    exact = np.sum((rows.astype(np.float64) @ a.astype(np.float64).T) ** 2, axis=1)
    # Three products and two sums, squared and added: some ten roundings of the sizes of the terms.
    size = np.sum((np.abs(rows).astype(np.float64) @ np.abs(a).astype(np.float64).T) ** 2, axis=1)
    for sums in (found, default):
        assert np.max(np.abs(np.asarray(sums, np.float64) - exact) / size) < 10 * np.finfo(np.float32).eps


@pytest.mark.parametrize("version", UNSOUND)
def test_a_run_on_a_version_that_computes_wrong_numbers_says_so_first(version, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(jax, "__version__", version)
    few = ["grid.shape=[8,8]", "time.end=0.02", "output=none", f"output.root={tmp_path}"]
    result = sj.load("fluid", few).run(progress=True)
    told = f"warning: jax {version} {UNSOUND[version]}: pip install 'jax!={version}' and run again."
    assert told in capsys.readouterr().out and told in (result.folder / "run.log").read_text().splitlines()[0]


def test_versions_that_warn_are_those_that_are_not_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for package in ("jax", "jaxlib"):
        (wanted,) = [one for one in project["dependencies"] if one.startswith(f"{package}>=")]
        assert {part[2:] for part in wanted.split(",") if part.startswith("!=")} == {*UNSOUND}
