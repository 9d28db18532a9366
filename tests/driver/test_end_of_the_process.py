"""What a program that imports simjax does at its end."""

import subprocess
import sys

from paths import ROOT

PROGRAM = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # called after simjax's own
import simjax

class Log:
    def __init__(self):
        self.file, self.again = open("log.txt", "w"), self.write  # a circle, which no count of references frees

    def write(self, text):
        self.file.write(text)

log = Log()
log.write("the last line")
closed = open("other.txt", "w")
closed.close()
"""


def test_python_takes_nothing_apart_and_open_files_are_whole(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "True\n", "")
    assert (tmp_path / "log.txt").read_text() == "the last line"
