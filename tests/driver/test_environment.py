"""The process around a run: what it tells libraries that jax starts."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from paths import ROOT

from simjax.driver.environment import SILENT_TPU, StopSignals, silence_absent_tpus


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


# ---------------------------------------------------------------------- devices that are not there


@pytest.mark.parametrize("platform", ["cuda", "banana"])
@pytest.mark.parametrize("command", ["simjax.run", pytest.param("simjax.export", marks=pytest.mark.slow)])
def test_a_device_that_is_not_there_is_one_sentence(platform, command, tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", command, "experiment=dye", "grid.shape=[8,8]"], cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert told.returncode == 5 and not any(tmp_path.iterdir())
    assert told.stderr.splitlines()[-1].startswith(f"simjax: JAX_PLATFORMS={platform}: expected a device of that kind")
    assert "write JAX_PLATFORMS=cpu" in told.stderr and "Traceback" not in told.stderr


# ---------------------------------------------------------------------- the start


TELL_START = "import simjax.driver.environment as e, time; print(time.time() - time.monotonic() + e.process_start())"


def test_time_counts_from_the_interpreter_and_not_from_the_shell_that_becomes_it():
    """A shell takes the place of its last command: the process is then as old as the shell."""
    command = f"sleep 3 && date +%s.%N && exec {sys.executable} -c '{TELL_START}'"
    told = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.split()
    became, start = map(float, told)
    # Half of the wait: reading Python from a disk on a busy machine is not computing.
    assert -0.1 < start - became < 1.5


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_a_first_signal_asks_for_a_stop(name):
    before = signal.getsignal(signal.Signals[name])
    with StopSignals(lethal=False) as signals:
        signal.raise_signal(signal.Signals[name])
        assert signals.received == name
    assert signal.getsignal(signal.Signals[name]) is before


def test_a_hangup_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignals(lethal=False) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.received is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


OUTLIVE = """
import fcntl, sys, termios, time
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
from simjax.driver.environment import StopSignals
from simjax.driver.progress import Progress
with StopSignals(lethal=True) as signals:
    progress = Progress("A run", 1.0, 8, interval=0.0)
    progress.start()
    print("ready", flush=True)
    for k in range(600):
        progress.update(k / 600, k, 1.0, {})
        time.sleep(0.05)
        if signals.received:
            break
    progress.finish("ended")
    print("ended", flush=True)
open(sys.argv[1], "w").write(str(signals.received))
sys.exit(75)
"""


@pytest.mark.parametrize("terminal", ["dumb", "xterm"])
def test_a_run_outlives_its_terminal_and_keeps_its_exit_code(terminal, tmp_path):
    """With plain lines, and with a block that a thread draws."""
    path = tmp_path / "received"
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", OUTLIVE, str(path)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**os.environ, "TERM": terminal},
    )  # fmt: skip
    os.close(slave)
    told = b""
    while b"ready" not in told:
        told += os.read(master, 1000)
    time.sleep(0.2)
    os.close(master)
    assert process.wait(60) == 75 and path.read_text() == "SIGHUP"
