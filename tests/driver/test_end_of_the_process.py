"""What a command does at its end, and a program that imports simjax does not."""

import subprocess
import sys

import pytest
from paths import ROOT

PROGRAM = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # called after simjax's own
from simjax.run import main

class Log:
    def __init__(self):
        self.file, self.again = open("log.txt", "w"), self.write  # a circle, which no count of references frees

    def write(self, text):
        self.file.write(text)

log = Log()
log.write("the last line")
closed = open("other.txt", "w")
closed.close()
sys.argv[1:] = ["--version"]
main({given})
"""


@pytest.mark.parametrize(("given", "frozen"), [("", True), ("['--version']", False)], ids=["command", "program"])
def test_a_command_takes_nothing_apart_and_open_files_are_whole(given, frozen, tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(given=given)],
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (told.returncode, told.stdout.splitlines()[1:], told.stderr) == (0, [str(frozen)], "")
    assert (tmp_path / "log.txt").read_text() == "the last line"
