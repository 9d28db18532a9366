"""A test that hangs is ended, and says where."""

import os
import subprocess
import sys

import pytest
from paths import ROOT

HANGS = "import time\ndef test_it(): wait_for_nothing()\ndef wait_for_nothing(): time.sleep(120)\n"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 1])
def test_a_test_that_hangs_ends_with_its_stacks(tmp_path, processes):
    (tmp_path / "test_hanging.py").write_text(HANGS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-o",
        "addopts=",
        "-n",
        str(processes),
        "--max-worker-restart=0",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=1",
        tmp_path,
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=100)
    assert ended.returncode != 0 and "Timeout" in ended.stderr and "in wait_for_nothing" in ended.stderr
    assert not processes or "crashed while running 'test_hanging.py::test_it'" in ended.stdout


def test_a_limit_is_set(pytestconfig):
    """Longer than the longest test on a busy machine, and shorter than anyone waits."""
    assert 600 <= float(pytestconfig.getini("faulthandler_timeout")) <= 1800
