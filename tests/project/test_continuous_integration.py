"""Pages tell of `.ci/run` what it does, and of the tests how many there are."""

import re
import subprocess

import pytest
import yaml
from owed_groups import ELSEWHERE, MOST_LANDINGS
from paths import ROOT, TESTS

RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
TESTING, VALIDATION = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("testing", "validation"))
# A number on the page may be so far from the tests that there are.
ROUNDED = 0.05


def section(page, title):
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text):
    """Cells of the rows of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_has_the_parts_in_their_order():
    parts = [name for name in re.findall(r'^\s*part "(.*)"$', RUN, re.MULTILINE) if name]
    assert [row[0] for row in rows(section(TESTING, "Continuous integration"))] == parts


def test_the_page_has_the_times_of_the_ledger():
    whole, most = re.search(r"minutes=\$\(\((\d+) - SECONDS / 60\)\)\nminutes=\$\(\(minutes > (\d+) \?", RUN).groups()
    part, whole_of = map(
        int, re.search(r"ledger\.py --print .*--touched \$\(\(minutes \* (\d) / (\d)\)\)", RUN).groups()
    )
    touched = int(most) * part // whole_of
    assert f"touched groups for up to {touched} minutes, owed ones for what is left of {most}" in TESTING
    assert f"all within {whole} minutes" in TESTING
    assert f"owed for more than {MOST_LANDINGS} landings" in TESTING.replace("\n", " ")
    assert f"within {MOST_LANDINGS} landings" in VALIDATION


def test_the_page_has_the_number_of_tests(request):
    """Compared where all files of tests were collected."""
    items = request.config.stash["collected"]
    if len({item.path for item in items}) < len([*TESTS.rglob("test_*.py")]) - 1:  # one needs a newer jax
        return
    numbers = {"default": 0, "slow": 0, "long": 0}
    for item in items:
        numbers[next((kind for kind in ("long", "slow") if item.get_closest_marker(kind)), "default")] += 1
    told = {kind.strip("`"): int(number) for kind, number, _ in rows(TESTING.partition("\n## ")[0])}
    assert told == pytest.approx(numbers, rel=ROUNDED)


def test_tests_that_the_page_of_validation_names_are_there():
    named = re.findall(r"`(tests/[\w/.]+)`", VALIDATION)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_what_is_in_no_group_is_run_there():
    assert [file for file in ELSEWHERE if file not in RUN] == []


def test_files_and_cases_that_it_names_are_there():
    named = set(re.findall(r"tests/[\w/]+\.py", RUN))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_hook_needs_a_registry_of_packages_alone():
    """It runs the hooks themselves; those of other hosts could not be fetched everywhere."""
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [each["repo"] for each in configuration["repos"]] == ["local"]
    assert "pre-commit run --all-files" in RUN
    hooks = {hook["id"] for each in configuration["repos"] for hook in each["hooks"]}
    assert hooks >= {"ruff-check", "ruff-format", "end-of-file-fixer", "trailing-whitespace", "check-yaml"}


def test_parts_are_told_with_their_seconds(tmp_path):
    """The functions of the script, of two parts the second of which fails."""
    functions = RUN[RUN.index('table=""') : RUN.index('part "clean copies"')]
    program = f'set -eu\n{functions}\npart "one"\nsleep 1.1\npart "two"\nfalse\n'
    ended = subprocess.run(
        ["bash", "-c", program], env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert ended.returncode == 1 and [*tmp_path.iterdir()] == []
    assert re.search(r"\n +[1-9]\d* s  one\n +\d+ s  two\n +[1-9]\d* s  in all\n$", ended.stdout)
