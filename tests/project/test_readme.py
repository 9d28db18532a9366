"""What the README says runs: its Python examples as they stand, its commands' experiments and options."""

import os
import re
import subprocess
import sys

import pytest
from paths import ROOT

from simjax.config import compose

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


# Each starts Python and compiles what it runs, the last one the gradient of a decomposed run.
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_python_example_runs(number, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-2000:]


def test_there_are_examples():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(
    "line", re.findall(r"^python -m simjax.run (experiment=.*?)(?:\s+#.*)?$", README, re.MULTILINE)
)
def test_command_composes_and_validates(line):
    overrides = [part.strip("'") for part in line.split() if part != "-m"]
    # A sweep takes several values of a key; one of them is enough here.
    config = compose([re.sub(r"^(seed=\d+),.*", r"\1", part) for part in overrides]).config()
    assert config.experiment_name in line


def test_the_two_commands_are_there_for_continuous_integration():
    for name in ("run", "test"):
        assert re.search(rf"<!-- command: {name} -->\n```sh\npython3 -m venv", README)
