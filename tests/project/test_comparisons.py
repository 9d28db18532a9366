"""The frame of `python -m benchmarks`: results are compared before times are, and contestants take turns."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import environments
from benchmarks.__main__ import main
from benchmarks.comparison import Contestant, Row, compare, distance
from benchmarks.comparisons import COMPARISONS
from benchmarks.environments import NotInstalled, python_of
from benchmarks.peer import Peer, Timing
from benchmarks.report import as_markdown

RIGHT = {"u": np.asarray([1.0, -2.0])}
CONTESTANTS = [
    Contestant("simjax", ""),
    *(Contestant(name, "", 1e-3, "rounding") for name in ("twice", "wrong", "absent")),
]


class Fake:
    """A contestant whose chunk takes what is given here; `calls` has the names in the order of their runs."""

    seconds = {"simjax": 2.0, "twice": 4.0, "wrong": 1.0}
    calls: list[str] = []

    def __init__(self, contestant, folder):
        if contestant.name == "absent":
            raise NotInstalled("absent could not be installed: no index")
        self.name = contestant.name

    def ready(self):
        error = 0.01 if self.name == "wrong" else 1e-4
        return {"compile_cpu_s": 1.5}, {"u": RIGHT["u"] * (1 if self.name == "simjax" else 1 + error)}

    def run(self):
        Fake.calls.append(self.name)
        return Timing(self.seconds[self.name], self.seconds[self.name])

    def close(self):
        pass


@pytest.fixture
def table():
    Fake.calls = []
    row = Row("a fake", "cells per second", "float32", 10.0, {}, {}, CONTESTANTS)
    return compare(row, 3, Fake) | {"comparison": "fake", "load": [0.0, 0.0]}


def test_a_wrong_result_is_refused_before_it_is_timed(table):
    wrong = table["contestants"][2]
    assert wrong["refused"] == "off by 0.01, where 0.001 is accepted"
    assert "wrong" not in Fake.calls and not {"seconds", "ratio"} & set(wrong)


def test_a_package_that_is_not_there_is_told_in_its_place(table):
    assert table["contestants"][3] == {"name": "absent", "refused": "absent could not be installed: no index"}


def test_contestants_alternate_with_simjax_and_are_compared_pair_by_pair(table):
    # Three pairs, and one that is not counted.
    assert Fake.calls == ["simjax", "twice"] * 4
    twice = table["contestants"][1]
    assert twice["ratios"] == [2.0] * 3 and twice["ratio"] == 2.0 and twice["rate"] == 2.5


def test_the_table_of_a_file_is_that_of_the_run(table):
    result = {"tables": [table], "scaling": []}
    text = as_markdown(json.loads(json.dumps(result)))
    assert text == as_markdown(result)
    assert "| twice | 2.5 | **2.0** | 2.0 | 1.0e-04 (1e-03) | 1.5 |" in text
    assert "| wrong | not timed: off by 0.01, where 0.001 is accepted |" in text


@pytest.mark.parametrize(
    "found", [{}, {"u": np.asarray([1.0, np.nan])}, {"u": np.zeros(3)}], ids=["none", "NaN", "shape"]
)
def test_what_cannot_be_compared_is_infinitely_far_off(found):
    assert distance(found, RIGHT) == np.inf


def test_a_contestant_that_ends_early_is_told_by_its_last_words():
    command = [sys.executable, "-c", "raise SystemExit('there is no program lmp')"]
    with Peer(command) as peer, pytest.raises(RuntimeError, match="^there is no program lmp$"):
        peer.report()


def test_an_index_that_does_not_answer_is_told_and_the_environment_made_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=int("pip" in command), stderr="ERROR: no index\n", stdout="")

    monkeypatch.setattr(environments.subprocess, "run", run)
    for _ in range(2):
        with pytest.raises(NotInstalled, match="exponax could not be installed: ERROR: no index"):
            python_of("exponax")
    assert len(commands) == 4 and "exponax==0.2.0" in commands[1]


def test_every_comparison_has_its_errors_bounded_with_a_reason():
    for name, build in COMPARISONS.items():
        for row in build(True):
            assert row.unit and row.precision and row.work > 0, name
            assert all(one.why and one.bound < 0.05 for one in row.contestants[1:])


def test_an_unknown_name_is_one_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["kolmogoroff"])
    assert re.search(
        "there is no comparison 'kolmogoroff'; write one of kolmogorov, .*scaling", capsys.readouterr().err
    )


def test_the_list_needs_no_jax():
    command = [
        sys.executable,
        "-c",
        "import sys; from benchmarks.__main__ import main; main(['--list']); sys.exit('jax' in sys.modules)",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == [*COMPARISONS, "scaling"]
