"""The account of a run's wall-clock time: complete, whatever is killed, and honest about what was lost."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import simjax as sj
from simjax.driver.loop.goodput import ACTIVITIES, GoodputLog, account
from simjax.errors import InputOutputError
from simjax.report.run_report import RunReport, _goodput


class Clock:
    """A clock that only moves when told; `monotonic` counts from the start of a machine, as the system's does."""

    def __init__(self):
        self.time = 1.7e9

    def now(self):
        return self.time

    def monotonic(self):
        return self.time - 1.6e9

    def log(self):
        return GoodputLog(self.monotonic(), monotonic=self.monotonic, now=self.now)


def simulate(clock, log, seconds, step):
    """A stretch of a run and the checkpoint at its end, which takes 2 s."""
    clock.time += seconds
    with log.during("checkpoint", step=step):
        clock.time += 2


def first_part(clock, folder):
    """Starting up 5 s, compiling 7, simulating 60 to step 10, and 40 more to nowhere, 3 of them written."""
    log = clock.log()
    clock.time += 5
    log.open(folder, None)
    log.begin("simulate")
    with log.during("compile"):
        clock.time += 7
    simulate(clock, log, 60, step=10)
    clock.time += 40
    with log.during("output"):
        clock.time += 3
    return log


def kill(log):
    """The process is gone: the system closes its files, and nothing more is written."""
    log._file.close()


def seconds(folder):
    return {name: round(value, 3) for name, value in sj.goodput(folder).seconds.items() if value}


def test_what_a_kill_takes_is_lost_and_the_time_until_the_next_start_is_down(tmp_path):
    clock = Clock()
    begun = clock.time
    kill(first_part(clock, tmp_path))
    assert seconds(tmp_path) == {"startup": 5, "compile": 7, "simulate": 100, "checkpoint": 2, "output": 3}
    clock.time += 1000  # killed; nothing was written since
    log = clock.log()
    clock.time += 6
    log.open(tmp_path, 10)
    log.begin("simulate")
    simulate(clock, log, 50, step=20)
    log.end("completed")
    parts = {"startup": 11, "compile": 7, "simulate": 110, "checkpoint": 4, "lost": 43, "down": 1000}
    assert seconds(tmp_path) == parts
    found = sj.goodput(tmp_path)
    assert tuple(found.seconds) == ACTIVITIES
    # The file keeps microseconds.
    assert found.wall == pytest.approx(clock.time - begun, abs=1e-4)
    assert found.share == pytest.approx(110 / found.wall)


def test_an_older_checkpoint_costs_what_both_parts_did_since(tmp_path):
    clock = Clock()
    log = first_part(clock, tmp_path)
    simulate(clock, log, 8, step=20)
    for step in (20, 10):  # the checkpoint of step 20 turned out to be damaged the second time
        kill(log)
        clock.time += 100
        log = clock.log()
        clock.time += 1
        log.open(tmp_path, step)
        log.begin("simulate")
        clock.time += 8
        with log.during("output"):
            clock.time += 1
    log.end("stopped")
    # 40 + 3 + 8 s of the first part and its second checkpoint, 9 s of the second.
    assert seconds(tmp_path) == {
        "startup": 7,
        "compile": 7,
        "simulate": 68,
        "output": 1,
        "checkpoint": 2,
        "down": 200,
        "lost": 40 + 3 + 8 + 2 + 9,
    }


def test_a_stop_in_good_order_loses_nothing_and_a_completed_run_is_not_down(tmp_path):
    clock = Clock()
    for outcome, waited in (("stopped by SIGTERM", 500), ("completed in 9 s", 7000)):
        log = first_part(clock, tmp_path) if outcome.startswith("stopped") else clock.log()
        log.open(tmp_path, 20)
        log.begin("simulate")
        simulate(clock, log, 10, step=20)
        with log.during("output"):
            clock.time += 4
        log.end(outcome)
        clock.time += waited
    log = clock.log()
    log.open(tmp_path, 20)
    log.end()
    found = seconds(tmp_path)
    assert "lost" not in found and found["down"] == 500 and found["output"] == 3 + 4 + 4


def test_torn_lines_and_clocks_set_back_are_survived(tmp_path):
    clock = Clock()
    kill(first_part(clock, tmp_path))
    path = tmp_path / "goodput.jsonl"
    with path.open("a") as file:
        file.write('{"at": "2026-')  # the line being written when the process was killed
    before = seconds(tmp_path)
    clock.time -= 3600
    log = clock.log()
    log.open(tmp_path, 10)
    log.begin("simulate")
    clock.time += 30
    log.end("completed")
    found = seconds(tmp_path)
    assert found["simulate"] == 60 + 30 and "down" not in found and found["compile"] == before["compile"]
    assert [bool(line) for line in path.read_text().splitlines()].count(False) == 0


def test_a_resume_that_fails_leaves_no_trace_and_another_process_no_file(tmp_path):
    clock = Clock()
    clock.log().begin("simulate")
    other = GoodputLog(0.0, kept=False)
    other.open(tmp_path, None)
    with other.during("output"):
        pass
    other.end()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputOutputError, match="goodput.jsonl is missing"):
        sj.goodput(tmp_path)


def test_no_line_is_written_while_nothing_changes(tmp_path):
    clock = Clock()
    log = clock.log()
    log.open(tmp_path, None)
    log.begin("output")
    with log.during("output"):
        clock.time += 1
    assert len((tmp_path / "goodput.jsonl").read_text().splitlines()) == 2
    assert account(log.lines(tmp_path)).seconds["output"] == pytest.approx(1)
    log.end()


def test_the_report_shows_shares_that_add_up_to_the_whole():
    page = _goodput(RunReport("a run", goodput={"simulate": 75.0, "startup": 20.0, "down": 5.0, "lost": 0.0}))
    assert page.count("width:") == 3 and "75.0 %" in page and "5.0 %" in page and "lost" not in page
    assert _goodput(RunReport("a run")) == ""


@pytest.mark.slow
def test_a_killed_run_accounts_for_all_of_its_time(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "simjax.run"]
    run = [
        "experiment=fluid",
        "grid.shape=[32,32]",
        "time.end=3",
        "time.output_every=0.01",
        "checkpoint.every_frames=50",
        "output.animation=false",
        "output.report=true",
        f"output.root={tmp_path}",
        f"output.folder={folder}",
    ]
    environment = {
        **os.environ,
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
    }
    begun = time.time()
    process = subprocess.Popen([*command, *run], env=environment, stdout=subprocess.DEVNULL)
    made = time.time()
    while process.poll() is None and not list((folder / "checkpoints").glob("[0-9]*")):
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed = time.time()
    last = (folder / "goodput.jsonl").stat().st_mtime  # that of its last line, by the file system's clock
    time.sleep(2)
    subprocess.run([*command, f"resume={folder}"], env=environment, stdout=subprocess.DEVNULL, check=True)
    resumed = time.time()
    ended = (folder / "goodput.jsonl").stat().st_mtime
    found = sj.goodput(folder)
    # The system makes the process between two moments, and tells its launch to 0.01 s.
    assert ended - made - 0.05 < found.wall < ended - begun + 0.05
    assert found.seconds["lost"] > 0
    lines = [json.loads(line) for line in (folder / "goodput.jsonl").read_text().splitlines()]
    (again,) = [index for index, line in enumerate(lines) if "from_step" in line]
    assert lines[again]["from_step"] in [line["step"] for line in lines[:again] if "step" in line]
    # Down from the last line before the kill until the process that resumes is made.
    assert killed - last + 2 - 0.05 <= found.seconds["down"] < resumed - last
    assert "Where the time went" in (folder / "report.html").read_text()
