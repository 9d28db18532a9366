"""Processes decide together: one word for all, one error for all, and a run by both of two that is that of one."""

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from prepared import PreparedProcess
from process_groups import environment, free_port, outputs, start_run

import simjax as sj
from simjax.processes import Processes

GROUP = """
import sys
from simjax.errors import ConfigurationError, NumericalError, SimjaxError
from simjax.processes import is_of_another, join
port, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
group = join(f"localhost:{port}", count, number)
assert (group.index, group.count, group.first) == (number, count, number == 0)
assert group.gather({"from": number}) == [{"from": who} for who in range(count)]
assert group.decide(lambda: f"by {number}") == "by 0"
assert group.first_reason("enough" if number == count - 1 else None) == f"enough at process {count - 1}"
assert group.first_reason(None) is None

def fails(of, kind=ConfigurationError, text="wrong"):
    if number in of:
        raise kind(text)

for of in ([1], [0], [*range(count)]):
    try:
        with group.together():
            fails(of)
        raise SystemExit("an error of another process did not arrive")
    except ConfigurationError as error:
        # The one who has it shows it; where all have the same, the first of them.
        assert is_of_another(error) == (number != min(of)) and str(error) == "wrong"
try:
    with group.ending_together():
        with group.together():
            fails([1], NumericalError, "not finite")
except NumericalError:
    pass
try:
    with group.ending_together():
        fails([0], KeyError, "a fault of the program")
        group.gather(1)
except (KeyError, SimjaxError) as error:
    assert "a fault of the program" in str(error) and isinstance(error, KeyError) == (number == 0)
assert group.gather(number) == [*range(count)]  # nobody is left behind
"""


def test_a_group_of_one_decides_at_once():
    group = Processes()
    assert group.first and group.gather(3) == [3] and group.decide(lambda: 4) == 4
    assert group.first_reason("SIGTERM") == "SIGTERM"


def test_processes_decide_together():
    port, count = free_port(), 3
    outputs(
        [
            PreparedProcess([sys.executable, "-c", GROUP, str(port), str(count), str(number)], environment())
            for number in range(count)
        ]
    )


def test_a_prepared_process_ends_as_one_that_begins_from_nothing(tmp_path):
    """What the tests of runs ask of their processes: code, output, folder, environment and signals."""
    ends = {
        "import jax, os; print(os.getcwd(), jax.device_count()); raise SystemExit(75)": 75,
        "import atexit; atexit.register(print, 'at the end'); raise SystemExit('a sentence')": 1,
        "import sys; print(sys.argv); raise KeyError('a key')": 1,
        "print('done')": 0,
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
        "import time; print('waits', flush=True); time.sleep(600)": -signal.SIGKILL,
    }
    processes = [PreparedProcess([sys.executable, "-c", text, "word"], environment(3), tmp_path) for text in ends]
    while "waits" not in Path(processes[-1].stdout.name).read_text():
        assert processes[-1].poll() is None
        time.sleep(0.01)
    processes[-1].send_signal(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        processes[-1].wait(0.1)
    processes[-1].kill()
    told = outputs(processes, [*ends.values()])
    assert told[0] == f"{tmp_path} 3\n" and told[3] == "done\n"
    assert "a sentence" in told[1] and "at the end" in told[1]
    # Written at once, or as Python ends: before the traceback or after it.
    before, after = told[2].split("['-c', 'word']\n")
    assert (before + after).startswith("Traceback") and (before + after).endswith("KeyError: 'a key'\n")


FLOW = [
    "experiment=fluid",
    "grid.shape=[16,16]",
    "time.end=0.05",
    "time.output_every=0.05",
    "precision=float64",
    "output.report=false",
    "output.animation=false",
]


@pytest.mark.slow
def test_a_flow_of_two_processes_is_that_of_one_device(tmp_path):
    told = outputs(start_run([*FLOW, "mesh.x=2", "mesh.y=2", f"output.root={tmp_path}", "output.folder=two"]))
    assert "completed in" in told[0] and "completed" not in told[1]  # process 0 speaks for all
    alone = sj.load(None, [*FLOW, f"output.root={tmp_path}", "output.folder=one"]).run().ds
    names = sorted(path.name for path in (tmp_path / "two" / "data").iterdir())
    assert names == ["fields.p00000.s000000.h5", "fields.p00001.s000000.h5"]
    with sj.open_run(tmp_path / "two") as found:
        for name in ("velocity_x", "velocity_y", "vorticity"):
            # Transforms of blocks and of the whole round differently: units in the last place of a few hundred.
            np.testing.assert_allclose(found[name], alone[name], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_a_refusal_is_told_once(tmp_path):
    told = outputs(start_run([*FLOW, f"output.root={tmp_path}"]), 5)
    assert "expected 4, all devices of the 2 processes" in told[0] and "simjax:" not in told[1]


@pytest.mark.slow
def test_a_search_of_two_processes_finds_what_one_finds(tmp_path):
    problem = [
        "experiment=inverse_source",
        "grid.shape=[16,16]",
        "time.end=0.2",
        "inverse.solver.iterations=2",
        f"output.root={tmp_path}",
        "output.report=false",
    ]
    # More than two minutes on two idle cores, which another worker of the tests may use too.
    outputs(start_run([*problem, "mesh.x=2", "mesh.y=2", "output.folder=two"]), timeout=600)
    outputs([PreparedProcess([sys.executable, "-m", "simjax.run", *problem, "output.folder=one"], environment(1))])
    losses = [[line["loss"][0] for line in lines_of(tmp_path / name / "metrics.jsonl")] for name in ("one", "two")]
    assert len(losses[0]) == 2
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-8)  # of solves to 1e-10 inside an iteration


@pytest.mark.slow
def test_a_gradient_is_certified_by_two_processes():
    few = ["experiment=dye", "grid.shape=[8,8]", "--steps=2", "--devices=4"]
    told = outputs(start_run(few, module="simjax.certificate"))
    assert "one device against 4" in told[0] and "PASSED: all" in told[0]
    assert "PASSED" not in told[1]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
