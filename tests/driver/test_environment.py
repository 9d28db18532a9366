"""The process around a run: what it tells libraries that jax starts."""

import os

import pytest

from simjax.driver.environment import SILENT_TPU, silence_absent_tpus


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
