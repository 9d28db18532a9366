"""Run the slow and long tests that have not passed on the present sources, and write down what became of them.

    python tests/ledger.py --minutes 20

Groups that the change touches run first, then those that have not run for longest. What has passed or failed is written
to `tests/reference/ledger.json`, which is committed with the change. The exit code is one where a group fails that was
right before. See `docs/testing.md`.
"""

import argparse
import contextlib
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from owed_groups import LEDGER, Ledger, file_of  # noqa: E402

# Seconds of a test that has not been measured.
USUAL = {"slow": 4, "long": 10}
# What is left for starting and for groups that take longer than they did.
START, MARGIN = 20, 0.85
# One a landing is run as users compile it.
OPTIMISED = (
    "flow-2d-walls",
    "gas-1d-weno",
    "maxwell-2d",
    "particles-liquid-2d",
    "declared-allen_cahn",
    "spectral-vorticity-2d",
    "boussinesq-2d-walls",
    "burgers-1d",
    "acoustic-1d",
    "passive-scalar-2d-walls",
    "transport-2d-implicit",
    "semilinear-gray-scott-2d",
    "gas-2d-walls",
    "particles-plasma-2d",
    "flow-2d-free-body",
    "acoustic-2d",
    "boussinesq-2d-moving-solid",
    "particles-water-2d",
)


def run_pytest(folder: Path, groups: list[str], options: list[str], seconds: float, output=None) -> None:
    """Run pytest with the tests of some groups (of all, for an empty list), and end it and its processes in time."""
    (folder / "chosen.json").write_text(json.dumps(groups))
    paths = os.pathsep.join([str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "GROUP_RESULTS": str(folder), "PYTHONPATH": paths.rstrip(os.pathsep)}
    files = sorted({file_of(group) for group in groups})
    command = [sys.executable, "-m", "pytest", "-p", "group_results", "-m", "slow or long", *options, *files]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"\nended after {seconds / 60:.0f} minutes; groups that are not complete are not counted", flush=True)
        # The process that distributes tests says what has failed, and counts nothing more. Those that run the tests get
        # no signal: a test whose own processes were interrupted would fail.
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def all_tests() -> dict[str, list[str]]:
    """Names of the tests of each group that there is.

    Raises:
        SystemExit: pytest could not collect them.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "output").open("w") as output:
            run_pytest(folder, [], ["-n", "0", "--collect-only"], 600, output)
        try:
            return json.loads((folder / "collected.json").read_text())
        except FileNotFoundError:
            raise SystemExit(f"pytest could not collect the tests:\n{(folder / 'output').read_text()}") from None


def outcomes(folder: Path) -> dict[str, tuple[list[str], float]]:
    """Failed tests and seconds of each group of which every test has ended, and of each of which one has failed.

    A group all of whose tests were skipped has not run.
    """
    ended: dict[str, list[dict]] = {}
    file, tests_of = folder / "ended.jsonl", folder / "collected.json"
    for line in file.read_text().splitlines() if file.exists() else []:
        part = json.loads(line)
        ended.setdefault(part["test"], []).append(part)
    result = {}
    for group, tests in json.loads(tests_of.read_text()).items() if tests_of.exists() else ():
        parts = [part for test in tests for part in ended.get(test, [])]
        failed = {part["test"].partition("@")[0]: None for part in parts if part["outcome"] == "failed"}
        complete = {part["test"] for part in parts if part["when"] == "teardown"} == {*tests}
        ran = any(part["when"] == "call" and part["outcome"] == "passed" for part in parts)
        if failed or complete and ran:
            result[group] = [*failed], sum(part["seconds"] for part in parts)
    return result


def chosen(names: list[str], expected: dict[str, float], minutes: float, processes: int) -> list[str]:
    """The first of some groups that fit into the time; one that is too long gives way to those after it."""
    longest = MARGIN * (60 * minutes - START)
    left, result = longest * processes, []
    for name in names:
        if expected[name] <= min(left, longest):
            left -= expected[name]
            result.append(name)
    return result


def commit() -> str:
    """The commit that is checked out, with a + where files but the ledger differ from it; "unknown" without git."""
    number = _git("rev-parse", "--short=8", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":!{LEDGER.relative_to(ROOT).as_posix()}")
    return number + "+" * bool(changed) if number else "unknown"


def _git(*arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ended.stdout.strip() if ended.returncode == 0 else None


def next_landing(ledger: Ledger, text: str) -> int:
    """The number of the landing that is being prepared: one more than the committed ledger has.

    The ledger counts for itself, as a checkout may be without its history: it goes on by one where the file is as it
    was committed, and stays where it has been written since.
    """
    committed = _git("show", f"HEAD:{LEDGER.relative_to(ROOT).as_posix()}")
    return ledger.landing + (committed is not None and committed == text.strip())


def run(ledger: Ledger, names: list[str], tests: dict[str, list[str]], minutes: float, processes: int) -> list[str]:
    """Run the first of some groups for so many minutes, and write what became of them into the ledger; those failed."""
    expected = {name: ledger.groups[name]["seconds"] or USUAL[name.split()[0]] * len(tests[name]) + 5 for name in names}
    groups = chosen(names, expected, minutes, processes)
    print(f"{len(groups)} of {len(names)} groups, {sum(expected[name] for name in groups):.0f} s of tests", flush=True)
    if not groups:
        return []
    sources = {name: ledger.sources(name) for name in groups}
    with tempfile.TemporaryDirectory() as folder:
        run_pytest(Path(folder), groups, ["-n", str(processes), "-rfE"], 60 * minutes)
        ended = outcomes(Path(folder))
    changed = ledger.changed_since(sources)
    for name, (failures, seconds) in ended.items():
        if name not in changed:
            ledger.record(name, commit(), failures, seconds)
    print(f"{len(ended)} of {len(groups)} groups have ended; not: {sorted({*groups} - {*ended})}", flush=True)
    if changed:
        print("sources have changed in the meantime: what has run on them is not written down", flush=True)
    return [name for name, (failures, _) in ended.items() if failures]


def tell(ledger: Ledger, before: str) -> None:
    """Print the state of the ledger, and what has changed in it as a patch."""
    stale = [name for name in ledger.groups if ledger.is_stale(name)]
    failing = [name for name in stale if ledger.groups[name]["failed"]]
    oldest = max(map(ledger.age, stale), default=0)
    print(f"landing {ledger.landing}: {len(stale)} of {len(ledger.groups)} groups have not passed on these sources,")
    print(f"of which the oldest passed, or was entered, {oldest} landings ago")
    for name in failing:
        failed = ledger.groups[name]["failed"]
        print(f"  fails since {failed['commit']} or before: {name}: {', '.join(failed['tests'])}")
    file = LEDGER.relative_to(ROOT).as_posix()
    lines = before.splitlines(True), ledger.text().splitlines(True)
    print("".join(difflib.unified_diff(*lines, f"a/{file}", f"b/{file}", n=1)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="time for all groups; 0 enters new ones alone")
    parser.add_argument("--touched", type=float, help="most minutes for groups that the change touches (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="how many tests run at once")
    parser.add_argument("--only", default="", metavar="WORD", help="groups whose name contains a word")
    parser.add_argument("--print", action="store_true", dest="printed", help="print the change, do not write it")
    parser.add_argument("--family", action="store_true", help="print the case of this landing to run with OPTIMISED=1")
    given = parser.parse_args(arguments)
    before = LEDGER.read_text(encoding="utf-8")
    ledger = Ledger.read(before)
    if given.family:
        print(OPTIMISED[ledger.landing % len(OPTIMISED)])
        return 0
    ledger.landing = next_landing(ledger, before)
    tests = all_tests()
    ledger.enter(tests)
    known = [name for name in ledger.groups if ledger.groups[name]["failed"]]
    begun, failing = time.monotonic(), []
    touched = [name for name in ledger.touched() if given.only in name]
    most = given.minutes if given.touched is None else min(given.touched, given.minutes)
    print("== groups that the change touches", flush=True)
    failing += run(ledger, touched, tests, most, given.processes)
    print("== groups that have not run for longest", flush=True)
    left = given.minutes - (time.monotonic() - begun) / 60
    owed = [name for name in ledger.owed() if given.only in name and name not in touched]
    failing += [name for name in run(ledger, owed, tests, left, given.processes) if name not in known]
    tell(ledger, before)
    if not given.printed:
        LEDGER.write_text(ledger.text(), encoding="utf-8")
    return any(map(ledger.was_ever_known, failing))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
