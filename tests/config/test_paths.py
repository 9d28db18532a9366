"""A path that no system can have is refused in a sentence, at every door that takes one."""

import numpy as np
import optax
import pytest
from configurations import FLOW, changed, refusal

import simjax as sj
from simjax.certificate.__main__ import main as certificate
from simjax.data.__main__ import main as data
from simjax.errors import ConfigurationError
from simjax.export.__main__ import main as export
from simjax.inspect.__main__ import main as inspect
from simjax.report.picture import Picture
from simjax.run import main as run
from simjax.schema.locate import LONGEST_NAME, path_problem
from simjax.serve.__main__ import main as serve

LONG = "a" * 300
DYE = ["experiment=dye", "grid.shape=[8,8]"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a" * LONGEST_NAME, None),
        ("a" * (LONGEST_NAME + 1), "at most 255 bytes, got one of 256"),
        ("ü" * 128, "at most 255 bytes, got one of 256"),  # two bytes each
        ("/".join(["a" * 200] * 20), None),
        ("/".join(["a" * 200] * 21), "a path of at most 4095 bytes, got 4221"),
        ("a\0b", "without the character NUL"),
        ("a\ud800", "in UTF-8"),
        ("", None),
    ],
)
def test_what_a_system_can_have(path, problem):
    told = path_problem(path)
    assert (told is None) == (problem is None) and (problem or "") in (told or "")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *((run, [*DYE, f"{key}={LONG}"]) for key in ("output.folder", "output.root", "resume")),
        (run, [f"resume={LONG}"]),
        (run, [*DYE, "--config-dir", LONG]),
        (run, [*DYE, "-m", "seed=1,2", f"hydra.sweep.dir={LONG}"]),
        (export, [LONG]),
        (export, [*DYE, "--folder", LONG]),
        (certificate, [LONG]),
        (serve, [LONG]),
        (data, [LONG]),
        (data, ["RUN", "--file", f"{LONG}.h5"]),
        (data, ["RUN", "format=pdebench", "--file", LONG]),
        (inspect, [*DYE, "target=cpu:2", "--json", LONG]),
        (inspect, [*DYE, "target=cpu:2", "--picture", f"{LONG}.png"]),
    ],
)
def test_commands_refuse_a_name_of_300_letters(command, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("simjax: ") and len(told.splitlines()) == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("path", [LONG, "a\0b"])
def test_functions_refuse_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Batches:
        def get_state(self):
            return {}

    loss = sj.WindowLoss(lambda line, window, key: line["slope"])
    learner = sj.Learner({"slope": np.zeros(())}, optax.sgd(0.1))
    simulation = sj.load("dye", DYE[1:])
    for call in (
        lambda: simulation.run(resume=path),
        lambda: sj.open_run(path),
        lambda: sj.check_files(path),
        lambda: sj.open_output(path, "probe"),
        lambda: sj.open_universe(path),
        lambda: sj.goodput(path),
        lambda: sj.TrajectoryWindows([path], length=2),
        lambda: Picture(b"", "png").save(f"{path}.png"),
        lambda: sj.train(learner, [sj.Stage(1, loss)], Batches(), folder=path),
    ):
        with pytest.raises(ConfigurationError, match="expected a path"):
            call()
    assert not any(tmp_path.iterdir())


def test_configurations_refuse_it():
    for key in ("output.root", "output.folder"):
        assert f"{key} = 'aaa" in (told := refusal(changed(FLOW, {key: LONG}))) and "got one of 300" in told
