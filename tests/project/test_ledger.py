"""The ledger of slow and long tests: it has all of them, none is owed for long, and it says what has happened."""

import functools
import itertools
import json
import shutil
import subprocess

import ledger as command
import pytest
from owed_groups import BEGINNING, ELSEWHERE, LEDGER, MOST_LANDINGS, SHARES, Ledger, file_of, group_of, own_sources
from paths import ROOT

# A ledger that nobody has written for so many commits counts no landings.
MOST_COMMITS = 40
GROUP, OTHER, LONG = "slow tests/a/test_a.py", "slow tests/a/b/test_b.py", "long tests/a/test_a.py 1/2"


def kept():
    return Ledger.read(LEDGER.read_text(encoding="utf-8"))


def test_every_slow_and_long_test_is_in_the_ledger(request):
    """Of the tests that pytest has found in this session."""
    found = {group_of(item) for item in request.config.stash["collected"]} - {None}
    missing = sorted(found - kept().groups.keys())
    assert not missing, f"enter them by `python tests/ledger.py --minutes 0`: {missing}"


def test_groups_of_the_ledger_have_tests():
    names = [*kept().groups, *SHARES, *(f"long {file}" for file in ELSEWHERE)]
    gone = [name for name in names if not (ROOT / file_of(name)).exists()]
    assert not gone, f"drop them by `python tests/ledger.py --minutes 0`: {gone}"


def test_no_group_is_owed_for_too_long():
    ledger = kept()
    late = {name: ledger.groups[name]["failed"] or ledger.age(name) for name in ledger.overdue()}
    assert not late, f"more than {MOST_LANDINGS} landings; run them by `python tests/ledger.py`: {late}"


def test_the_ledger_counts_landings():
    """A landing counts when its ledger is committed. Without history, as in a shallow copy, there are fewer commits."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return
    file = LEDGER.relative_to(ROOT).as_posix()
    last = git("log", "-1", "--format=%H", "--", file)
    commits = int(git("rev-list", "--count", "--first-parent", f"{last}..HEAD")) if last else 0
    assert commits <= MOST_COMMITS, f"{file} is {commits} commits old: run `python tests/ledger.py` and commit it"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_every_folder_of_tests_is_about_sources():
    nothing = [name for name in kept().groups if len(own_sources(name)) < 2]
    assert not nothing, "see `owed_groups.ABOUT`"


def test_a_group_of_flows_is_about_flows_and_what_it_imports():
    test = "tests/models/flow/test_boussinesq.py"
    own = {file.relative_to(ROOT).as_posix() for file in own_sources(f"slow {test}")}
    assert {"simjax/models/flow/bodies/solids.py", "tests/support/exact_flows.py", test} <= own
    assert not {"simjax/models/gas/compressible.py", "simjax/stencil/padding.py", "tests/support/ewald.py"} & own


@pytest.fixture
def checkout(tmp_path):
    """A small checkout with two folders of sources and tests, and a ledger in which all groups have passed."""
    texts = {
        "simjax/a/one.py": "",
        "simjax/a/b/two.py": "",
        "simjax/c.py": "",
        "tests/a/test_a.py": "import helper",
        "tests/a/b/test_b.py": "",
        "tests/support/helper.py": "",
        "tests/reference/ledger.json": "",
        "docs/a.md": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ledger = Ledger(3, {}, tmp_path)
    ledger.enter([GROUP, OTHER, LONG])
    for name in ledger.groups:
        ledger.record(name, "abc", [], 10.0)
    return ledger


def write(ledger, name, text):
    sources = {group: ledger.sources(group) for group in ledger.groups}
    (ledger.root / name).write_text(text)
    return ledger.changed_since(sources)


@pytest.mark.parametrize(
    ("file", "touched", "stale"),
    [
        ("simjax/a/one.py", [GROUP], {GROUP, OTHER, LONG}),
        ("simjax/a/b/two.py", [OTHER], {GROUP, OTHER, LONG}),
        ("simjax/c.py", [], {GROUP, OTHER, LONG}),
        ("tests/support/helper.py", [GROUP], {GROUP, OTHER, LONG}),
        ("tests/a/test_a.py", [GROUP], {GROUP, LONG}),
        ("docs/a.md", [], set()),
        ("tests/reference/ledger.json", [], set()),
    ],
)
def test_a_change_touches_the_tests_of_its_folder_and_makes_stale_what_may_depend_on_it(checkout, file, touched, stale):
    assert write(checkout, file, "x = 1") == stale
    assert {name for name in checkout.groups if checkout.is_stale(name)} == {*checkout.owed()} == stale
    assert checkout.touched() == touched


def test_what_changes_back_has_passed(checkout):
    write(checkout, "simjax/a/one.py", "x = 1")
    write(checkout, "simjax/a/one.py", "")
    assert checkout.owed() == checkout.touched() == []


def test_a_failure_is_kept_until_the_group_passes_on_the_same_sources(checkout):
    write(checkout, "simjax/a/one.py", "x = 1")
    checkout.landing = 4
    checkout.record(GROUP, "def", ["test_a.py::test_x"], 5.0)
    again = Ledger.read(checkout.text(), checkout.root)
    assert again.is_stale(GROUP) and again.failed_here(GROUP)
    assert again.groups[GROUP]["passed"]["landing"] == 3 and again.groups[GROUP]["failed"]["commit"] == "def"
    # It is not tried again among those that are owed, but is where the change is about it.
    assert GROUP not in again.owed() and again.touched() == [GROUP]
    write(again, "simjax/c.py", "x = 1")
    assert GROUP in again.owed()
    again.record(GROUP, "fed", [], 5.0)
    assert again.groups[GROUP]["failed"] is None and not again.is_stale(GROUP) and again.touched() == []


def test_groups_are_late_after_so_many_landings(checkout):
    checkout.landing = 3 + MOST_LANDINGS + 1
    assert checkout.overdue() == []
    write(checkout, "simjax/c.py", "x = 1")
    checkout.record(OTHER, "def", [], 1.0)
    checkout.enter([GROUP, OTHER, LONG, "long tests/a/b/test_b.py"])
    assert checkout.overdue() == sorted([GROUP, LONG])
    assert {*checkout.owed()[:2]} == {GROUP, LONG}, "the oldest run first"
    assert checkout.owed()[2:] == ["long tests/a/b/test_b.py"] and checkout.age(OTHER) == 0
    write(checkout, "simjax/c.py", "x = 2")
    assert checkout.owed()[2:] == ["long tests/a/b/test_b.py", OTHER], "never passed"
    checkout.landing -= 1
    assert checkout.overdue() == []
    checkout.enter([OTHER])
    assert [*checkout.groups] == [OTHER]


def test_groups_that_never_passed_take_turns(checkout):
    """Continuous integration runs the first ones at every landing, and cannot write down which."""
    checkout.enter([f"long tests/a/test_{n}.py" for n in range(8)])
    age, first = checkout.landing, set()
    for landing in range(age, age + 6):
        checkout.landing = landing
        first.add(checkout.owed()[0])
        assert checkout.owed() == checkout.owed() and len(checkout.owed()) == 8
    assert len(first) > 2


def results(folder, *ended):
    """What the plugin writes of two groups, of two tests and one."""
    (folder / "collected.json").write_text(json.dumps({GROUP: ["a::x@a", "a::y@a"], OTHER: ["b::x"]}))
    lines = [json.dumps({"test": t, "when": w, "outcome": o, "seconds": 1.0}) for t, w, o in ended]
    (folder / "ended.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return command.outcomes(folder)


def ends(test, call="passed"):
    return (test, "setup", "passed"), (test, "call", call), (test, "teardown", "passed")


def test_only_what_has_run_wholly_has_passed(tmp_path):
    assert results(tmp_path, *ends("a::x@a"), *ends("a::y@a")) == {GROUP: ([], 6.0)}
    assert results(tmp_path, *ends("a::x@a"), *ends("a::y@a")[:2]) == {}, "the second was cut short"
    assert results(tmp_path, *ends("a::x@a")) == {}
    assert results(tmp_path, *ends("a::x@a"), *ends("a::y@a", "failed")) == {GROUP: (["a::y"], 6.0)}
    assert results(tmp_path, ("a::x@a", "???", "failed")) == {GROUP: (["a::x"], 1.0)}, "its process was lost"
    assert results(tmp_path, ("b::x", "setup", "failed"), ("b::x", "teardown", "passed")) == {OTHER: (["b::x"], 2.0)}
    assert results(tmp_path, *ends("b::x", "skipped")) == {}, "nothing ran"
    assert results(tmp_path, *ends("a::x@a", "skipped"), *ends("a::y@a")) == {GROUP: ([], 6.0)}


def test_the_time_is_filled_by_the_oldest_that_fit():
    seconds = {"a": 300.0, "b": 600.0, "c": 100.0, "d": 480.0, "e": 200.0}
    assert command.chosen([*"abcde"], seconds, 10, 2) == [*"acd"], "b is longer than the time for one process"
    assert command.chosen([*"abcde"], seconds, 0, 2) == []


def test_landings_are_counted_by_committed_ledgers(monkeypatch, checkout):
    text = checkout.text()
    committed = itertools.chain([text.strip(), "{}", None])
    monkeypatch.setattr(command, "_git", lambda *arguments: next(committed))
    assert [command.next_landing(checkout, text) for _ in range(3)] == [4, 3, 3]


@pytest.fixture
def prepared(monkeypatch, checkout):
    """The command in the small checkout, where every group is stale; `fails` are those whose tests do not pass."""
    fails = []

    def run_pytest(folder, groups, options, seconds):
        tests = {group: [f"{group}::x"] for group in groups}
        (folder / "collected.json").write_text(json.dumps(tests))
        parts = [part for group in groups for part in ends(f"{group}::x", "failed" if group in fails else "passed")]
        lines = [json.dumps({"test": t, "when": w, "outcome": o, "seconds": 1.0}) for t, w, o in parts]
        (folder / "ended.jsonl").write_text("\n".join(lines))

    file = checkout.root / "tests" / "reference" / "ledger.json"
    file.write_text(checkout.text())
    write(checkout, "simjax/c.py", "x = 1")
    monkeypatch.setattr(command, "LEDGER", file)
    monkeypatch.setattr(command, "ROOT", checkout.root)
    monkeypatch.setattr(command, "Ledger", functools.partial(Ledger, root=checkout.root))
    command.Ledger.read = functools.partial(Ledger.read, root=checkout.root)
    monkeypatch.setattr(command, "run_pytest", run_pytest)
    monkeypatch.setattr(command, "all_tests", lambda: {name: ["x"] for name in (GROUP, OTHER, LONG)})
    return fails, lambda: Ledger.read(file.read_text(), checkout.root)


def test_the_command_runs_what_is_stale_and_tells_a_failure_once(prepared, checkout):
    fails, now = prepared
    fails.append(OTHER)
    assert command.main(["--minutes", "5"]) == 1
    assert now().is_stale(OTHER) and now().failed_here(OTHER)
    assert not now().is_stale(GROUP) and not now().is_stale(LONG)
    # Other sources: it fails still, which the ledger has.
    write(checkout, "simjax/c.py", "x = 2")
    assert command.main(["--minutes", "5"]) == 0 and now().failed_here(OTHER)
    # The change is about it.
    write(checkout, "simjax/a/b/two.py", "x = 3")
    assert command.main(["--minutes", "5"]) == 1
    fails.clear()
    assert command.main(["--minutes", "5"]) == 0 and now().owed() == []


def test_what_never_passed_and_is_as_old_as_the_ledger_is_told_and_ends_nothing(prepared, checkout, capsys):
    fails, now = prepared
    fails.append(OTHER)
    old = now()
    old.groups[OTHER].update(since=BEGINNING, passed=None)
    command.LEDGER.write_text(old.text())
    assert command.main(["--minutes", "5"]) == 0 and now().failed_here(OTHER)
    assert f"fails since unknown or before: {OTHER}" in capsys.readouterr().out
    old.groups[OTHER]["since"] = BEGINNING + 1
    command.LEDGER.write_text(old.text())
    assert command.main(["--minutes", "5"]) == 1


def test_the_command_can_print_alone(prepared, capsys):
    before = prepared[1]().text()
    assert command.main(["--minutes", "5", "--print"]) == 0 and prepared[1]().text() == before
    assert "+  " + json.dumps(GROUP) in capsys.readouterr().out


def test_what_runs_while_sources_change_is_not_written_down(prepared, monkeypatch, checkout):
    run_pytest = command.run_pytest

    def change(*arguments):
        run_pytest(*arguments)
        (checkout.root / "simjax" / "c.py").write_text("x = 2")

    monkeypatch.setattr(command, "run_pytest", change)
    command.main(["--minutes", "5"])
    assert {*prepared[1]().owed()} == {GROUP, OTHER, LONG}


def test_a_group_is_run_by_pytest(tmp_path):
    """In a process of its own among two that share the tests, as always."""
    group = "slow tests/core/test_members.py"
    command.run_pytest(tmp_path, [group], ["-n", "1"], 300)
    ((name, (failures, seconds)),) = command.outcomes(tmp_path).items()
    assert name == group and failures == [] and seconds > 0
    tests = json.loads((tmp_path / "collected.json").read_text())[group]
    assert len(tests) > 1 and all(test.startswith(f"{file_of(group)}::") for test in tests)


def test_families_that_are_run_optimised_are_cases_that_are_cut():
    from cases import CASES

    names = [case.name for case in CASES if case.cuts]
    assert [family for family in command.OPTIMISED if not any(family in name for name in names)] == []


def test_groups_in_shares_are_complete():
    shares = {f"{file} {k + 1}/{n}" for file, n in SHARES.items() for k in range(n)}
    assert shares <= kept().groups.keys()
