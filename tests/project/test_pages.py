"""Everything that a page prints is tried: blocks of Python as programs, lines of the shell at small sizes.

The Python of a page is one program, from top to bottom, in a folder of its own. A block whose first line is `# NAME.py`
is written to that file as well. A comment `<!-- run first ... -->` holds what a page takes for granted, such as a run
that has been made; it is Python, or lines of the shell where it begins with `sh`.
"""

import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from paths import ROOT
from prepared import PreparedProcess

pytestmark = pytest.mark.slow

PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
PARTS = re.compile(r"^<!-- run first( sh)?\n(.*?)^-->|^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "sh", "yaml", "text"}

# Installing, the tests and the linters are what `.ci/run` itself does.
ELSEWHERE = re.compile(r"pip install|-m venv|-m pytest|\.venv/bin/|tests/(mutations|ledger)\.py|simjax\[")
# A run of a page at a size that takes seconds: what is appended to its line, by experiment.
FEW = "output.report=false output.animation=false"
TINY = {
    "inverse_vorticity": "grid.shape=[16,16] inverse.solver.iterations=1",
    "double_slit": "grid.shape=[32,32] time.end=0.1 time.output_every=0.1 time.dt=0.02",
    "from_file": "grid.shape=[16,12] time.end=43200",
    "cavity": "grid.shape=[16,16] time.end=0.2 time.output_every=0.1",
    "fluid": "grid.shape=[16,16] time.end=0.02 time.output_every=0.01",
    "passive_scalar": "grid.shape=[16,16] time.end=0.2",
    "shock_bubble": "grid.shape=[48,16] time.end=0.02 time.output_every=0.01",
    "atoms.npz": "time.end=0.1",
    "dye.nc": "grid.shape=[16,16] time.end=0.2",
    "my_pde": "grid.shape=[16,16] time.end=0.2 time.output_every=0.1",
}


def parts(page):
    """Code of a page in its order, as (language, text); the language of what runs first is "first" or "first sh"."""
    for found in PARTS.finditer((ROOT / page).read_text(encoding="utf-8")):
        if found[2] is not None:
            yield ("first sh" if found[1] else "first"), found[2]
        else:
            yield found[3], found[4]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """That of a user who keeps compiled programs, but for machine code that is compiled faster and runs slower."""
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    kept = {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return {**os.environ, **kept, "XLA_FLAGS": quick, "MPLBACKEND": "agg"}


def execute(command, folder, environment):
    process = PreparedProcess(command, environment, folder)
    if "simjax.serve" in command:  # it runs until it is told to end, and says when it is ready
        end = time.monotonic() + 300
        while process.poll() is None and "serves" not in Path(process.stdout.name).read_text(encoding="utf-8"):
            assert time.monotonic() < end, f"{shlex.join(command[-8:])} is not ready"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(300)
    assert process.returncode == 0, f"{shlex.join(command[-8:])}\n{told[-4500:]}"


def newest(folder):
    """The newest run of `fluid`, which pages call RUN."""
    runs = sorted((folder / "outputs" / "fluid").glob("2*"), key=lambda run: run.stat().st_mtime)
    return runs[-1].name if runs else "RUN"


def small(line):
    """A line of a page with what makes it short; None where something else tries it."""
    if re.fullmatch(r"python \w+\.py", line):  # a program of the page
        return line.split()
    if ELSEWHERE.search(line) or not line.startswith("python -m simjax"):
        return None
    words = [re.sub(r"^(seed=)(\S+,\S+|range.*)", r"\g<1>1,2", word) for word in shlex.split(line, comments=True)]
    words = [re.sub(r"(n_trials=)\d+", r"\g<1>2", word) for word in words]
    apart = {"simjax.certificate", "simjax.inspect", "simjax.export", "simjax.data"}
    told = {"--help", "--info"} & set(words) or apart & set(words)
    if "simjax.serve" in words:
        return [*words, "--port", "0"]  # any that is free
    if told:
        return words
    known = " ".join(words)
    size = next((few for name, few in TINY.items() if name in known), "")
    if "resume=" in known:
        size = "time.end=0.02" if "resume=auto" not in known else TINY["fluid"]
    if "inverse_*" in known:  # all of them one after another: that they are found is enough
        return [*words, "--cfg", "job"] if "-m" not in words[3:4] else None
    # Sizes first: what the page says about them is tried where it is small itself.
    given = {word.partition("=")[0] for word in words if "=" in word}
    added = [few for few in shlex.split(size) if few.partition("=")[0] not in given or few.startswith(("grid", "time"))]
    return [word for word in words if word.partition("=")[0] not in {few.partition("=")[0] for few in added}] + [
        *added,
        *shlex.split(FEW),
    ]


def lines(text):
    """Commands of a block, those that go on after a backslash as one."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def test_every_block_names_its_language():
    for page in PAGES:
        for language, text in parts(page):
            assert language in LANGUAGES | {"first", "first sh"}, f"{page}: {language!r} of the block {text[:60]!r}"


def test_what_is_not_tried_here_is_known():
    """No command of a page is passed over but those that `.ci/run` runs, and a multirun of searches."""
    for page in PAGES:
        for language, text in parts(page):
            for line in lines(text) if language == "sh" else []:
                assert small(line) is not None or ELSEWHERE.search(line) or "inverse_*" in line, f"{page}: {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(language == "python" for language, _ in parts(page))])
def test_the_python_of_a_page_runs(page, tmp_path, environment):
    program = []
    for language, text in parts(page):
        name = re.match(r"# ([\w./]+\.py)\n", text) if language == "python" else None
        if name:
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
        if language in ("python", "first"):
            program.append(text)
    (tmp_path / "page.py").write_text("\n\n".join(program), encoding="utf-8")
    execute([sys.executable, "page.py"], tmp_path, environment)


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(language == "sh" and any(map(small, lines(text))) for language, text in parts(page))
    ],
)
def test_the_commands_of_a_page_run(page, tmp_path, environment):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "eddies.nc").symlink_to(ROOT / "experiments" / "eddies.nc")
    for language, text in parts(page):
        name = re.match(r"# ([\w./]+\.py)\n", text) if language == "python" else None
        if name:
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
        if language not in ("sh", "first sh"):
            continue
        for line in lines(text):
            words = small(line)
            if words is not None:
                run = newest(Path(tmp_path))
                words = [re.sub(r"outputs/fluid/(RUN|\d{8}-\d{6}-\w+)", f"outputs/fluid/{run}", word) for word in words]
                execute([sys.executable, *words[1:]], tmp_path, environment)
