"""Signals in a Python program reach it after the checkpoint; a run that writes no fields still has its last frame."""

import os
import signal

import numpy as np
import pytest

import simjax as sj
from simjax.config import validate
from simjax.driver.output import run_folder
from simjax.errors import ConfigurationError
from simjax.inverse import search

DYE = [
    "grid.shape=[8,8]",
    "precision=float64",
    "time.courant=null",
    "parameters=null",
    "exact=null",
    "initial={concentration: 'sin(2*pi*x)'}",
    "time.dt=0.01",
    "time.end=0.04",
    "time.output_every=0.01",
    "output.animation=false",
    "output.report=false",
]


def dye(tmp_path, *overrides):
    return sj.load("dye", overrides=[*DYE, f"output.root={tmp_path}", *overrides])


@pytest.fixture
def signalled(monkeypatch):
    """Sends this process a signal when the frame of that number is taken, for those that are told."""

    def send(number, frame, owner=run_folder.RunFolder, name="checkpoint_is_due", patch=monkeypatch):
        original, seen = getattr(owner, name), []

        def called(*arguments):
            seen.append(arguments)
            if len(seen) == frame:
                os.kill(os.getpid(), number)
            return original(*arguments)

        patch.setattr(owner, name, called)

    return send


@pytest.mark.slow
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, sj.Stopped)])
def test_a_signal_reaches_the_program_after_the_checkpoint(tmp_path, signalled, number, error):
    handler = signal.getsignal(number)
    signalled(number, frame=2)
    reached = []
    with pytest.raises(error, match="resumable") as stop:
        for seed in range(3):  # a loop of runs ends with the first
            reached.append(seed)
            dye(tmp_path, f"seed={seed}").run()
    assert reached == [0] and signal.getsignal(number) is handler
    folder = stop.value.folder
    assert f"resume={str(folder)!r}" in str(stop.value)
    whole = dye(tmp_path).run()
    resumed = dye(tmp_path).run(resume=folder)
    np.testing.assert_array_equal(resumed.ds.concentration, whole.ds.concentration)


def test_a_signal_during_the_last_frame_is_not_lost(tmp_path, signalled):
    signalled(signal.SIGINT, 1, name="finish")
    with pytest.raises(sj.Interrupted, match="completed") as stop:
        dye(tmp_path).run()
    with sj.open_run(stop.value.folder) as dataset:
        assert float(dataset.time[-1]) == pytest.approx(0.04)


def test_a_second_interrupt_acts_at_once_and_leaves_the_process_alive(tmp_path, monkeypatch):
    due = run_folder.RunFolder.checkpoint_is_due

    def twice(self, frame):
        # To this thread, so that the first is handled before the second comes.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return due(self, frame)

    monkeypatch.setattr(run_folder.RunFolder, "checkpoint_is_due", twice)
    # A shell that starts the tests in the background makes Python ignore the signal from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as stop:
            dye(tmp_path).run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not isinstance(stop.value, sj.Interrupted)


def test_the_command_line_stops_with_its_code(tmp_path, signalled):
    signalled(signal.SIGTERM, frame=2)
    result = dye(tmp_path).run(on_stop="return")
    assert result.exit_code == 75 and "resumable" in result.message


@pytest.mark.slow
def test_a_search_is_interrupted_after_its_checkpoint(tmp_path, signalled, monkeypatch):
    config = validate(
        {
            "model": "advection_diffusion",
            "physics": {"diffusivity": 0.05, "velocity": [0.3]},
            "grid": {"shape": [8]},
            "initial": {"concentration": "sin(2*pi*x)"},
            "time": {"end": 0.02, "output_every": 0.01, "dt": 0.01},
            "output": {"root": str(tmp_path), "report": False},
            "inverse": {
                "unknowns": {"physics.diffusivity": {"guess": 0.1}},
                "observations": [{"output": "fields", "of": "concentration", "deviation": 0.01}],
                "solver": {"name": "sgd", "iterations": 4, "learning_rate": 1e-9},
            },
        }
    )
    with monkeypatch.context() as once:
        signalled(signal.SIGINT, 2, owner=search._Search, name="_record", patch=once)
        with pytest.raises(KeyboardInterrupt, match="SIGINT after 2 iterations") as stop:
            sj.Search(config).run()
    folder = stop.value.folder
    assert list((folder / "checkpoints").iterdir())
    # Where a limit leaves no time for an iteration, a resume gets no further, and says so.
    monkeypatch.setattr(search, "limit_reached", lambda *_: "the wall-clock limit of 1 s")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}
    with pytest.raises(ConfigurationError, match="limit of 1 s is reached before the first step"):
        sj.Search(config).run(resume=folder)
    now = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}
    assert now == before


# ---- a run without fields in its files


@pytest.mark.slow
def test_without_output_the_last_frame_is_in_memory(tmp_path, capsys):
    quiet = dye(tmp_path, "output=none").run(progress=True)
    whole = dye(tmp_path).run()
    assert "concentration" not in sj.open_run(quiet.folder)
    np.testing.assert_array_equal(quiet.ds.concentration, whole.ds.concentration.isel(time=-1))
    np.testing.assert_array_equal(quiet.ds.isel(time=-1).concentration.x, whole.ds.x)
    assert quiet.ds.mean_concentration.shape == (5,)
    # Everything that the terminal names is there, and nothing that shows fields is.
    named = [word.strip("'()") for word in capsys.readouterr().out.replace("simjax.open_run(", " ").split()]
    paths = [word.partition("resume=")[2] or word for word in named if str(tmp_path) in word]
    assert paths and all(os.path.exists(path) for path in paths)
    assert not list(quiet.folder.glob("*.vtkhdf"))


@pytest.mark.slow
def test_members_without_output(tmp_path):
    vary = "ensemble.vary={physics.diffusivity: {values: [0.1, 0.2]}}"
    assert dye(tmp_path, "output=none", "ensemble.size=2", vary).run().ds.concentration.dims == ("member", "y", "x")


@pytest.mark.long  # a minute of compiling
def test_particles_without_output(tmp_path):
    liquid = ["particles.count=256", "box.upper=[6.8,6.8,6.8]", "time.end=0.02", "time.output_every=0.01"]
    result = sj.load("lennard_jones", [*liquid, "output=none", f"output.root={tmp_path}"]).run()
    assert result.ds.position.dims == ("particle", "space") and not list(result.folder.glob("*.xyz"))
    assert np.isfinite(result.ds.position).all()
