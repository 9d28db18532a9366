"""The process around a run: what it tells libraries that jax starts, and whether jax computes what it should."""

import os
import pty
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paths import ROOT

import simjax as sj
from simjax.driver.start import environment
from simjax.driver.start.environment import SILENT_TPU, UNSOUND, StopSignals, silence_absent_tpus


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
        [sys.executable, "-m", command, "experiment=dye", "grid.shape=[8,8]"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env={**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": str(ROOT)},
    )
    assert told.returncode == 5 and not any(tmp_path.iterdir())
    assert told.stderr.splitlines()[-1].startswith(f"simjax: JAX_PLATFORMS={platform}: expected a device of that kind")
    assert "write JAX_PLATFORMS=cpu" in told.stderr and "Traceback" not in told.stderr


# ---------------------------------------------------------------------- the start


TELL_START = "import simjax.driver.start.environment as e, time; offset = time.time() - time.monotonic(); "
TELL_START += "print(offset + e.process_start(), time.time())"


def test_time_counts_from_the_interpreter_and_not_from_the_shell_that_becomes_it():
    """A shell takes the place of its last command: the process is then as old as the shell."""
    command = f"sleep 1 && date +%s.%N && exec {sys.executable} -c '{TELL_START}'"
    told = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.split()
    became, start, now = map(float, told)
    # The shell began a second earlier; the system tells when it makes a process to 0.01 s.
    assert became - 0.1 < start < now


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_a_first_signal_asks_for_a_stop(name):
    # Below nohup a hangup is ignored.
    was = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = signal.getsignal(signal.Signals[name])
    with StopSignals(lethal=False) as signals:
        signal.raise_signal(signal.Signals[name])
        assert signals.received == name
    assert signal.getsignal(signal.Signals[name]) is before
    signal.signal(signal.SIGHUP, was)


def test_a_hangup_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignals(lethal=False) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.received is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


OUTLIVE = """
import fcntl, signal, sys, termios, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
from simjax.driver.start.environment import StopSignals
from simjax.driver.loop.progress import Progress
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
        [sys.executable, "-c", OUTLIVE, str(path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": terminal},
    )
    os.close(slave)
    told = b""
    while b"ready" not in told:
        told += os.read(master, 1000)
    time.sleep(0.2)
    os.close(master)
    assert process.wait(60) == 75 and path.read_text() == "SIGHUP"


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


def test_a_checkout_tells_its_commit(tmp_path, monkeypatch):
    """As Git says it, and whether files are changed; an installed package tells none."""

    def git(*arguments):
        told = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path), *arguments]
        return subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "simjax").mkdir()
    module = tmp_path / "simjax" / "__init__.py"
    module.write_text("")
    monkeypatch.setattr(sj, "__file__", str(module))
    state = environment.git_state.__wrapped__
    assert state() == {"simjax_git_commit": "", "simjax_git_dirty": 0}
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert state() == {"simjax_git_commit": git("rev-parse", "HEAD"), "simjax_git_dirty": 0}
    module.write_text("changed = 1")
    assert state()["simjax_git_dirty"] == 1
